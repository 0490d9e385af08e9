"""DistilBERT against transformers, both ways, and its invariances."""

import json

import numpy as np
import pytest

from kerasbert.checkpoints.huggingface_config import read_config
from kerasbert.models import Backbone, Bert, BertConfig, DistilBert, DistilBertConfig
from kerasbert.models.distilbert import HUGGINGFACE_CONFIG, SIZES
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from tests.models.reference import (
    HEADS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    check_states,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23)


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, dim=24, n_layers=3, n_heads=3, hidden_dim=40, max_position_embeddings=23)
    dropouts = dict(dropout=0.3, attention_dropout=0.25, qa_dropout=0.15, seq_classif_dropout=0.35)
    return transformers.DistilBertConfig(**{**sizes, **dropouts, "pad_token_id": 3, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    sinusoidal = dict(sinusoidal_pos_embds=head == "ForMaskedLM")
    check_head("DistilBert", head, their_config(activation="relu", **sinusoidal, **labels), tmp_path)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"]
    for stored in HUGGINGFACE_CONFIG.values():
        assert ours[stored] == theirs[stored], stored


@pytest.mark.one_backend
def test_sizes_under_the_names_of_other_families():
    stored = dict(model_type="distilbert", hidden_size=24, num_attention_heads=3, num_hidden_layers=2)
    found = read_config(DistilBert.family, stored)
    assert found == dict(model_type="distilbert", hidden_dim=24, num_heads=3, num_layers=2)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("DistilBertModel", their_config(), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, padding, pad_id=3)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)


@pytest.mark.one_backend
def test_equals_bert_without_segments():
    student = randomize(DistilBert(DistilBertConfig(**TINY)))
    teacher = Bert(BertConfig(**TINY), pooler=False)
    paths = {variable.path.split("/", 1)[1]: variable for variable in student.weights}
    for variable in teacher.weights:
        path = variable.path.split("/", 1)[1]
        variable.assign(paths[path] if path in paths else np.zeros(variable.shape))
    inputs, _, real = example(61, "right")
    found, expected = (to_numpy(model(inputs)["sequence_output"])[real] for model in (student, teacher))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "encoder", "with_lm_head"),
    [
        ("distilbert_base", 66_362_880, 66_985_530),
        ("distilbert_base_cased", 65_190_912, 65_812_036),
        ("distilbert_base_multilingual_cased", 134_734_080, 135_445_755),
    ],
)
def test_sizes_have_the_parameters_of_the_paper(name, encoder, with_lm_head):
    assert closed_form(DistilBertConfig(**SIZES[name])) == (encoder, with_lm_head)


def closed_form(config):
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    encoder = (v + config.max_length) * m + 2 * m + config.num_layers * block
    return encoder, encoder + m * m + 3 * m + v


@pytest.mark.one_backend
def test_built_models_have_the_counted_parameters():
    backbone = DistilBert(DistilBertConfig(**TINY))
    assert (backbone.count_params(), MaskedLM(backbone).count_params()) == closed_form(backbone.config)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(DistilBert(DistilBertConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows():
    ids = np.random.default_rng(0).integers(1, 61, (1, 11)).astype("int32")
    packed = {"token_ids": ids, "sequence_ids": np.array([[1] * 7 + [2] * 4], "int32")}
    backbone = randomize(DistilBert(DistilBertConfig(**TINY)))
    outputs = backbone({**packed, "first_positions": np.array([[0, 7]], "int32")})
    np.testing.assert_array_equal(to_numpy(outputs["first_output"]), to_numpy(outputs["sequence_output"])[:, [0, 7]])
    assert MaskedLM(backbone)(packed).shape == (1, 11, 61)
    with pytest.raises(ValueError, match="first_positions"):
        TextClassifier(backbone)(packed)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: DistilBert(DistilBertConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right")
    rates = dict(dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    config = DistilBertConfig(**{**TINY, "num_layers": 1}, **rates)
    classifier = randomize(TextClassifier(DistilBert(config)))
    check_gradients(classifier, (x, np.array([0, 1], "int32")), without=["key/bias"])
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    check_gradients(randomize(MaskedLM(DistilBert(config))), (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_attention_output_is_not_dropped():
    backbone = randomize(DistilBert(DistilBertConfig(**TINY, dropout=0.9, attention_dropout=0.0)))
    block = backbone.blocks[0]
    x = np.random.default_rng(0).normal(size=(2, 5, 24)).astype("float32")
    assert not np.allclose(to_numpy(block(x, training=True)[0]), to_numpy(block(x, training=False)[0]))
    for weight in block.feed_forward.outer.weights:
        weight.assign(np.zeros(weight.shape))
    np.testing.assert_allclose(to_numpy(block(x, training=True)[0]), to_numpy(block(x, training=False)[0]), atol=1e-6)


@pytest.mark.one_backend
def test_sinusoidal_positions_equal_transformers_and_stay(tmp_path):
    import transformers

    theirs = transformers.DistilBertModel(their_config(sinusoidal_pos_embds=True))
    backbone = DistilBert(DistilBertConfig(**TINY, sinusoidal_positions=True))
    table = backbone.position_embedding.embeddings
    np.testing.assert_allclose(to_numpy(table), to_numpy(theirs.embeddings.position_embeddings.weight), atol=1e-7)
    assert not any(variable is table for variable in backbone.trainable_variables)
    backbone.save_to_preset(tmp_path)
    again = Backbone.from_preset(tmp_path)
    assert again.config.sinusoidal_positions
    np.testing.assert_array_equal(to_numpy(again.position_embedding.embeddings), to_numpy(table))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(DistilBert(DistilBertConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = DistilBert(DistilBertConfig(**{**TINY, "vocabulary_size": 5_000}))
    table = to_numpy(backbone.token_embedding.embeddings)
    # A normal that is not cut: three in a thousand lie beyond three standard deviations.
    assert abs(table.std() - 0.02) < 2e-4 and 0.002 < (np.abs(table) > 0.06).mean() < 0.0034
    assert not to_numpy(backbone.blocks[0].attention.query.bias).any()


@pytest.mark.one_backend
def test_head_dropouts():
    config = DistilBertConfig(**TINY, dropout=0.3, classifier_dropout=0.35, span_dropout=0.15)
    backbone = DistilBert(config)
    assert TextClassifier(backbone).classifier.dropout.rate == 0.35
    assert TextClassifier(backbone).classifier.input_dropout.rate == 0
    assert MultipleChoice(backbone).choice.dropout.rate == 0.35
    assert QuestionAnswerer(backbone).span.dropout.rate == 0.15
    assert TokenClassifier(backbone).tagger.dropout.rate == 0.3


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        ({"token_ids": np.ones((1, 4), int), "position_ids": np.full((1, 4), 23)}, "`position_ids` must be"),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        DistilBert(DistilBertConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})
