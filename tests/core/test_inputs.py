"""What compiled code would misread in silence is an error: eagerly, and where batches enter fit, evaluate, predict."""

import keras
import numpy as np
import pytest

from kerasbert import models
from kerasbert.data.batches.batches import ExampleBatches
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, TextClassifier, TextEmbedder

SIZES = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=12, feed_forward_dim=20)
IDS = np.random.default_rng(0).integers(3, 61, (2, 7)).astype("int32")
MASK = np.arange(7) < np.array([[7], [5]])


@pytest.fixture(scope="module")
def bert():
    return models.Bert(models.BertConfig(**SIZES, max_length=16))


@pytest.fixture(scope="module")
def classifier(bert):
    model = TextClassifier(bert, labels=2)
    model.compile("sgd")
    return model


WRONG = {
    "another name": ({"attention_mask": MASK}, "Received: 'attention_mask'. Use `padding_mask`, True or 1 at real"),
    "another name of segments": ({"token_type_ids": IDS * 0}, "Received: 'token_type_ids'. Use `segment_ids`"),
    "a misspelt name": ({"paddng_mask": MASK}, "Received: 'paddng_mask'. Use `padding_mask`"),
    "an unknown name": ({"zzz": MASK}, "Received: 'zzz'. The keys are backward, "),
    "targets": ({"labels": IDS}, "Targets must not be in a batch. Received: `labels` in a batch. Pass them as y"),
    "an additive mask": ({"padding_mask": np.where(MASK, 0, -1e9)}, "bool, or integers of 0 and 1. Received: float64"),
    "a mask of halves": ({"padding_mask": np.full((2, 7), 0.5, "float32")}, "0 and 1. Received: float32"),
    "a mask of NaN": ({"padding_mask": np.full((2, 7), np.nan, "float32")}, "0 and 1. Received: float32"),
    "a mask of 2": ({"padding_mask": MASK * 2}, "bool, or integers of 0 and 1. Received: 2"),
    "a mask of -1": ({"padding_mask": MASK * np.int32(-1)}, "bool, or integers of 0 and 1. Received: -1"),
    "a mask of one row": ({"padding_mask": MASK[:1]}, r"shape of `token_ids`, \(2, 7\): one value per token.*\(1, 7\)"),
    "a mask of one column": ({"padding_mask": MASK[:, :1]}, r"one value per token. Received: \(2, 1\)"),
    "a mask of pairs": ({"padding_mask": MASK[:, None] & MASK[:, :, None]}, r"Received: \(2, 7, 7\). To separate"),
    "lengths that are too long": (
        {"lengths": np.array([7, 99], "int32")},
        "between 0 and 7, the number of columns.*: 99",
    ),
    "lengths below 0": (
        {"lengths": np.array([7, -1], "int32")},
        "between 0 and 7, the number of columns.*Received: -1",
    ),
    "one length": ({"lengths": np.array([7], "int32")}, r"`lengths` must have the shape \(b\), here \(2\). .*\(1,\)"),
    "float lengths": ({"lengths": np.array([7.0, 5.0])}, "`lengths` must be integers. Received: float64"),
    "float ids": ({"token_ids": IDS.astype("float32")}, "`token_ids` must be integers. Received: float32"),
    "bool ids": ({"token_ids": MASK}, "`token_ids` must be integers. Received: bool"),
    "ids of one row": (
        {"token_ids": IDS[0]},
        r"must be \(b, s\): one row per sequence. Received: shape \(7,\). Use token",
    ),
    "a list of ids": ({"token_ids": IDS.tolist()}, "must be an array or a tensor. Received: a list"),
    "words": ({"token_ids": np.array([["a", "b"]])}, "`token_ids` must be integers. Received: text or objects"),
    "segments that broadcast": ({"segment_ids": IDS[:1] * 0}, r"`segment_ids` must have the shape of .*\(1, 7\)"),
    "positions that broadcast": ({"position_ids": IDS[:1] * 0}, r"`position_ids` must have the shape of .*\(1, 7\)"),
    "slots of other rows": ({"masked_positions": np.array([[1]], "int32")}, r"here \(2, p\). Received: \(1, 1\)"),
}


@pytest.mark.one_backend
@pytest.mark.parametrize("name", WRONG)
def test_backbones_and_models_refuse(name, bert, classifier):
    wrong, message = WRONG[name]
    batch = {"token_ids": IDS, **wrong}
    for call in (bert, classifier):
        with pytest.raises(ValueError, match=message):
            call(batch)
    if "list" in name:  # arrays are made of it there
        return
    with pytest.raises(ValueError, match=message):
        classifier.predict(batch, verbose=0)


def test_batches_are_checked_where_they_enter(classifier):
    wrong = {"token_ids": IDS, "padding_mask": np.where(MASK, 0.0, -1e9)}
    y = np.array([0, 1], "int32")
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in classifier.weights]
    with pytest.raises(ValueError, match="added to the scores"):
        classifier.fit(wrong, y, verbose=0)
    with pytest.raises(ValueError, match="added to the scores"):
        classifier.fit({"token_ids": IDS}, y, validation_data=(wrong, y), verbose=0)
    with pytest.raises(ValueError, match="added to the scores"):
        classifier.evaluate(wrong, y, verbose=0)
    with pytest.raises(ValueError, match="added to the scores"):
        classifier.evaluate(ExampleBatches(wrong, y, batch_size=2), verbose=0)
    for value, variable in zip(before, classifier.weights, strict=True):
        np.testing.assert_array_equal(value, keras.ops.convert_to_numpy(variable))
    with pytest.raises(ValueError, match="'input_ids'. Use `token_ids`"):
        classifier.predict({"input_ids": IDS}, verbose=0)
    with pytest.raises(ValueError, match="`token_ids` for input_ids, `padding_mask` for attention_mask; help"):
        classifier.predict({"input_ids": IDS, "attention_mask": IDS}, verbose=0)


def test_masks_of_both_kinds_are_one(bert):
    one = bert({"token_ids": IDS, "padding_mask": MASK})["sequence_output"]
    for kind in ("int32", "int64", "uint8"):
        other = bert({"token_ids": IDS, "padding_mask": MASK.astype(kind)})["sequence_output"]
        np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(x) for x in (one, other)))
    lengths = bert({"token_ids": IDS, "lengths": np.array([7, 5], "int64")})["sequence_output"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(lengths)[MASK], keras.ops.convert_to_numpy(one)[MASK], 1e-5)


@pytest.mark.one_backend
def test_keys_that_are_none_are_absent(bert):
    given = bert({"token_ids": IDS, "padding_mask": None, "segment_ids": None})["sequence_output"]
    absent = bert({"token_ids": IDS})["sequence_output"]
    np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(x) for x in (given, absent)))


@pytest.mark.one_backend
def test_both_halves_are_checked():
    model = Seq2SeqLM(models.Transformer(models.TransformerConfig(**SIZES)))
    good = {"token_ids": IDS, "decoder_token_ids": IDS[:, :4]}
    model(good)
    for wrong, message in (
        ({"decoder_attention_mask": MASK[:, :4]}, "Use `decoder_padding_mask`"),
        ({"decoder_padding_mask": MASK}, r"shape of `decoder_token_ids`, \(2, 4\)"),
        (
            {"decoder_lengths": np.array([4, 5], "int32")},
            "between 0 and 4, the number of columns",
        ),
        ({"decoder_token_ids": IDS[:1]}, r"must be \(b, t\) of 2 rows: one row per sequence. Received: shape \(1, 7\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model({**good, **wrong})
    with pytest.raises(ValueError, match="must have the shape \\(2, 4\\) for this batch. Received: shape \\(2, 1\\)"):
        model.compile("sgd")
        model.evaluate(good, IDS[:, :1], batch_size=2, verbose=0)


@pytest.mark.one_backend
def test_a_seq2seq_model_needs_decoder_ids():
    model = Seq2SeqLM(models.T5(models.T5Config(**SIZES, head_dim=4)))
    for call in (model, model.predict):
        with pytest.raises(ValueError, match="which begin with the start token 0. Received: token_ids. Use `Seq2Seq"):
            call({"token_ids": IDS})


@pytest.mark.one_backend
def test_examples_of_several_texts(bert):
    choices = np.stack([IDS, IDS, IDS], axis=1)
    model = MultipleChoice(bert)
    model({"token_ids": choices, "padding_mask": np.stack([MASK] * 3, axis=1)})
    for wrong, message in (
        ({"token_ids": IDS}, r"must be \(b, c, s\), for examples of c choices. Received: shape \(2, 7\)"),
        ({"token_ids": choices, "padding_mask": MASK}, r"those of `token_ids`, \(2, 3\). Received: \(2, 7\)"),
        ({"token_ids": choices, "attention_mask": choices}, "Use `padding_mask`"),
        ({"token_ids": choices, "lengths": np.full((2, 3), 8, "int32")}, "between 0 and 7"),
        ({"token_ids": choices + 60}, "between 0 and 60"),
    ):
        with pytest.raises(ValueError, match=message):
            model(wrong)
    with pytest.raises(ValueError, match=r"those of `token_ids`, \(2, 3\). Received: \(2, 7\)"):
        TextEmbedder(bert)({"token_ids": choices, "padding_mask": MASK})


@pytest.mark.one_backend
@pytest.mark.parametrize("y", [IDS[:, :1], IDS[:, :3], IDS[:, 0], IDS[..., None]])
def test_targets_that_would_broadcast(y, bert):
    model = MaskedLM(bert)
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 7\) for this batch. Received: shape \(2,"):
        model.evaluate({"token_ids": IDS}, y, batch_size=2, verbose=0)
    weights = np.ones((2, 1), "float32")
    with pytest.raises(ValueError, match=r"Weights of y must have its shape, \(2, 7\), or one value per row, \(2,\)"):
        model.evaluate({"token_ids": IDS}, IDS, batch_size=2, sample_weight=weights, verbose=0)


@pytest.mark.one_backend
def test_padding_that_nothing_hides_is_a_warning(bert):
    padded = np.array([[5, 6, 7, 8], [5, 6, 0, 0]], "int32")
    with pytest.warns(UserWarning, match="padding tokens, 0, but.*they are attended to. Pass `padding_mask`, for"):
        bert({"token_ids": padded})
    bert({"token_ids": padded, "padding_mask": padded != 0})
    bert({"token_ids": padded, "lengths": np.array([4, 2], "int32")})
    # An end token that is also the padding may be meant.
    gpt2 = CausalLM(models.GPT2(models.GPT2Config(**SIZES, max_length=8, pad_id=0, eos_id=0)))
    gpt2({"token_ids": padded})


@pytest.mark.one_backend
def test_a_users_own_keys(bert):
    class Weighed(TextClassifier):
        extra_inputs = ("importance",)

        def call(self, inputs, training=None):
            outputs = super().call(inputs, training)
            return outputs if "importance" not in inputs else outputs * inputs["importance"][:, None]

    model, batch = Weighed(bert, labels=2), {"token_ids": IDS, "importance": np.array([0, 1], "float32")}
    for outputs in (keras.ops.convert_to_numpy(model(batch)), model.predict(batch, verbose=0)):
        assert not outputs[0].any() and outputs[1].any()
    bert.extra_inputs = ("ages",)
    bert({"token_ids": IDS, "ages": np.ones(2, "int32")})
    del bert.extra_inputs
    with pytest.raises(ValueError, match="'importance'"):
        bert(batch)


def test_symbolic_inputs_are_checked(bert):
    ids, mask = keras.Input((7,), dtype="int32"), keras.Input((7,), dtype="float32")
    assert bert({"token_ids": ids})["sequence_output"].shape == (None, 7, 12)
    with pytest.raises(ValueError, match="0 and 1. Received: float32"):
        bert({"token_ids": ids, "padding_mask": mask})
