"""Dropout works while a model trains, whatever the model, and only then."""

import keras
import numpy as np
import pytest

from kerasbert import models, objectives, tasks
from tests.models.reference import to_numpy

SIZES = dict(vocabulary_size=61, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, dropout=0.5)


def bert(**options):
    return models.Bert(models.BertConfig(**SIZES, **options))


def electra():
    return models.Electra(models.ElectraConfig(**SIZES, embedding_dim=16))


def t5():
    return models.T5(models.T5Config(**SIZES, head_dim=8))


MODELS = {
    "MaskedLM": lambda: objectives.MaskedLM(bert(), sentence_pair=True),
    "SpanBoundary": lambda: objectives.SpanBoundary(bert()),
    "CausalLM": lambda: objectives.CausalLM(
        models.GPT2(models.GPT2Config(**{k: v for k, v in SIZES.items() if k != "feed_forward_dim"}))
    ),
    "Seq2SeqLM": lambda: objectives.Seq2SeqLM(t5()),
    "PermutationLM": lambda: objectives.PermutationLM(models.XLNet(models.XLNetConfig(**SIZES))),
    "Discriminator": lambda: objectives.Discriminator(electra()),
    "ReplacedTokenDetection": lambda: objectives.ReplacedTokenDetection(
        objectives.MaskedLM(electra()), objectives.Discriminator(electra())
    ),
    "Distillation": lambda: objectives.Distillation(objectives.MaskedLM(bert()), objectives.MaskedLM(bert())),
    "BidirectionalLM": lambda: objectives.BidirectionalLM(
        models.Elmo(
            models.ElmoConfig(
                vocabulary_size=61, filters=((1, 4), (2, 4)), num_highways=1, hidden_dim=8, cell_dim=8, dropout=0.5
            )
        )
    ),
    "Reranker": lambda: tasks.Reranker(bert()),
    "TextClassifier": lambda: tasks.TextClassifier(bert(), labels=2),
    "TokenClassifier": lambda: tasks.TokenClassifier(bert(), labels=["O", "B-X", "I-X"]),
    "QuestionAnswerer": lambda: tasks.QuestionAnswerer(bert()),
    "MultipleChoice": lambda: tasks.MultipleChoice(bert()),
    "TextEmbedder": lambda: tasks.TextEmbedder(bert()),
    "MultiTask": lambda: tasks.MultiTask(bert(), tasks={"first": {"labels": 2}, "second": {"problem": "score"}}),
}


def outputs(model, training):
    """As the trainer of the backend computes them, with the seeds moved on."""
    inputs = keras.tree.map_structure(keras.ops.convert_to_tensor, model.example_inputs())
    if keras.backend.backend() == "jax":
        variables = model.trainable_variables, model.non_trainable_variables
        y, changed = model.stateless_call(*([v.value for v in vs] for vs in variables), inputs, training=training)
        for variable, value in zip(variables[1], changed, strict=True):
            variable.assign(value)
    else:
        y = model(inputs, training=training)
    return [to_numpy(array).astype("float64") for array in keras.tree.flatten(y)]


@pytest.mark.parametrize("name", MODELS)
def test_dropout_is_for_training(name):
    model = MODELS[name]()
    assert model._call_has_training_arg  # what the trainers of Keras look at
    evaluated, trained = ([outputs(model, training) for _ in range(2)] for training in (False, True))
    if name != "ReplacedTokenDetection":  # which draws the generator's tokens anew
        assert all(np.array_equal(*pair) for pair in zip(*evaluated, strict=True))
    # A teacher has no dropout.
    differ = [not np.array_equal(*pair) for pair in zip(*trained, strict=True)]
    assert any(differ) and (all(differ) or name == "Distillation")


def test_training_and_evaluation_differ():
    model = MODELS["MaskedLM"]()
    model = objectives.MaskedLM(model.backbone)
    model.compile(keras.optimizers.SGD(0.0))
    x = {"token_ids": np.full((4, 9), 7, "int32"), "masked_positions": np.tile(np.arange(5, dtype="int32"), (4, 1))}
    y = np.full((4, 5), 9, "int32")
    trained = [model.fit(x, y, verbose=0).history["loss"][0] for _ in range(2)]
    evaluated = [model.evaluate(x, y, verbose=0, return_dict=True)["loss"] for _ in range(2)]
    assert len({*trained, *evaluated}) == 3
    assert evaluated[0] == evaluated[1]
