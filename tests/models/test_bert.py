"""BERT against transformers, both ways, and its invariances."""

import keras
import numpy as np
import pytest

from kerasbert.models import Backbone, Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
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

TINY = dict(
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, num_segments=3
)


def their_config(**changes):
    import transformers

    return transformers.BertConfig(
        **{
            **dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40),
            **dict(max_position_embeddings=23, type_vocab_size=3, hidden_act="gelu_new", layer_norm_eps=1e-7),
            **changes,
        }
    )


@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    ours, _ = check_head("Bert", head, their_config(**labels), tmp_path, num_segments=3)
    if labels:
        assert ours.labels == [f"LABEL_{i}" for i in range(5)]


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("BertModel", their_config(hidden_act="gelu"), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, padding, num_segments=3)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)
    np.testing.assert_allclose(to_numpy(found["pooled_output"]), to_numpy(expected.pooler_output), atol=1e-5)


def test_pretraining_loss_equals_transformers(tmp_path):
    import torch

    theirs = their_model("BertForPreTraining", their_config(), tmp_path)
    ours = MaskedLM.from_preset(tmp_path, sentence_pair=True)
    x, inputs, real = example(61, "right", num_segments=3)
    positions = np.array([[1, 4, 9], [2, -1, -1]], "int32")
    labels = np.array([[5, 60, 0], [7, 0, 0]], "int32")
    theirs_labels = np.full(real.shape, -100)
    for row, column in zip(*np.nonzero(positions >= 0), strict=True):
        theirs_labels[row, positions[row, column]] = labels[row, column]
    pairs = np.array([0, 1], "int32")
    with torch.no_grad():
        expected = theirs(
            **{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()},
            labels=torch.from_numpy(theirs_labels),
            next_sentence_label=torch.from_numpy(pairs.astype("int64")),
        ).loss.item()
    ours.compile(keras.optimizers.SGD(0.0))
    batch = ({**x, "masked_positions": positions}, {"tokens": labels, "sentence_pair": pairs})
    found = ours.test_on_batch(*batch, return_dict=True)
    np.testing.assert_allclose(float(found["loss"]), expected, rtol=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert_tiny", 4_385_920),
        ("bert_mini", 11_170_560),
        ("bert_small", 28_763_648),
        ("bert_medium", 41_373_184),
        ("bert_base", 109_482_240),
        ("bert_large", 335_141_888),
        ("bert_base_cased", 108_310_272),
        ("bert_large_cased", 333_579_264),
    ],
)
def test_sizes_have_the_parameters_of_the_papers(name, parameters):
    from kerasbert.models.bert import SIZES

    config = BertConfig(**SIZES[name])
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    closed_form = (v + config.max_length + 2) * m + 2 * m + config.num_layers * block + m * m + m
    assert closed_form == parameters
    if name == "bert_tiny":
        assert Bert.from_preset(name, load_weights=False).count_params() == parameters


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(Bert(BertConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Bert(BertConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=3)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = {"tokens": np.array([[5, 60, 1], [7, 0, 3]], "int32"), "sentence_pair": np.array([0, 1], "int32")}
    model = randomize(MaskedLM(Bert(BertConfig(**TINY, dropout=0.0, attention_dropout=0.0)), sentence_pair=True))
    check_gradients(model, (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(Bert(BertConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)


def test_initial_weights_are_the_papers():
    backbone = Bert(BertConfig(**{**TINY, "vocabulary_size": 5_000, "initializer_range": 0.02}))
    table = to_numpy(backbone.token_embedding.embeddings)
    # A normal cut at two standard deviations keeps 0.88 of its spread. (On torch Keras lets one in 250,000 through.)
    assert abs(table.std() - 0.0176) < 2e-4 and np.mean(np.abs(table) > 0.04) < 1e-4
    assert not to_numpy(backbone.blocks[0].attention.query.bias).any()


@pytest.mark.one_backend
def test_packed_rows_may_be_longer_than_the_table_their_sequences_may_not():
    backbone = randomize(Bert(BertConfig(**TINY)))
    sequences = np.concatenate([np.full(20, 1), np.full(4, 2), np.zeros(30, int)])[None].astype("int32")
    outputs = backbone({"token_ids": np.ones((1, 54), "int32"), "sequence_ids": sequences})
    assert np.isfinite(to_numpy(outputs["sequence_output"])).all()


@pytest.mark.one_backend
def test_pooling_a_packed_row_needs_its_starts():
    model = TextClassifier(Bert(BertConfig(**TINY)))
    with pytest.raises(ValueError, match="first_positions"):
        model({"token_ids": np.ones((1, 5), "int32"), "sequence_ids": np.ones((1, 5), "int32")})


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.full((1, 4), -1)}, "Received: -1"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        ({"token_ids": np.ones((1, 30), int), "sequence_ids": np.ones((1, 30), int)}, "a sequence of length 30"),
        ({"token_ids": np.ones((1, 4), int), "segment_ids": np.full((1, 4), 3)}, "`segment_ids` must be"),
        ({"token_ids": np.ones((1, 4), int), "position_ids": np.full((1, 4), 23)}, "`position_ids` must be"),
        ({"token_ids": np.ones((1, 4), int), "masked_positions": np.array([[4]])}, "`masked_positions` must be"),
        (
            {"token_ids": np.ones((1, 4), int), "padding_mask": np.ones((1, 4, 4), int)},
            r"`padding_mask` must have the shape of `token_ids`, \(1, 4\).*Received: \(1, 4, 4\).*`sequence_ids`",
        ),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        Bert(BertConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})
