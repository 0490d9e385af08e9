"""MobileBERT against transformers, both ways, with every switch of its bottlenecks; its teacher; its invariances."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, MobileBert, MobileBertConfig
from kerasbert.models.mobilebert import SIZES
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
    vocabulary_size=61,
    num_layers=3,
    num_heads=3,
    hidden_dim=26,
    bottleneck_dim=24,
    embedding_dim=10,
    feed_forward_dim=40,
    num_feed_forwards=3,
    max_length=23,
    num_segments=3,
)

# The teacher's shape: wide inside the blocks, whose queries and keys read the narrow stream.
TEACHER = {**SIZES["ib_bert_large"], **TINY, "hidden_dim": 18, "bottleneck_dim": 30, "num_feed_forwards": 1}


def their_config(**changes):
    import transformers

    return transformers.MobileBertConfig(
        **{
            **dict(vocab_size=61, hidden_size=26, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40),
            **dict(intra_bottleneck_size=24, embedding_size=10, num_feedforward_networks=3, layer_norm_eps=1e-7),
            **dict(max_position_embeddings=23, type_vocab_size=3, hidden_act="gelu_new"),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    check_head("MobileBert", head, their_config(num_hidden_layers=2, **labels), tmp_path, num_segments=3)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [
        dict(classifier_activation=False),
        dict(use_bottleneck_attention=True),  # the narrow copy for query and key is stored, and read by nothing
        dict(use_bottleneck_attention=True, key_query_shared_bottleneck=False),  # TINY
        dict(key_query_shared_bottleneck=False, intra_bottleneck_size=27, hidden_size=27),
        dict(use_bottleneck=False, hidden_size=27),
        dict(use_bottleneck=False, use_bottleneck_attention=True, normalization_type="layer_norm", hidden_size=27),
        dict(normalization_type="layer_norm", num_feedforward_networks=1, hidden_act="relu"),
        dict(trigram_input=False),
        dict(trigram_input=False, embedding_size=26),  # the projection is stored, and used by nothing
    ],
    ids=lambda changes: ",".join(f"{name}={value}" for name, value in changes.items()),
)
def test_each_switch_equals_transformers_both_ways(changes, tmp_path):
    config = their_config(**{"num_hidden_layers": 1, **changes})
    check_head("MobileBert", "ForPreTraining", config, tmp_path, num_segments=3)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("MobileBertModel", their_config(classifier_activation=False), tmp_path)
    ours, inputs, real = example(61, padding, num_segments=3)
    found, expected = check_states(Backbone.from_preset(tmp_path), theirs, ours, inputs, real, blocks=3)
    np.testing.assert_allclose(to_numpy(found["pooled_output"]), to_numpy(expected.pooler_output), atol=1e-5)


@pytest.mark.one_backend
def test_next_sentence_checkpoints_fill_the_sentence_pair_head(tmp_path):
    import torch

    theirs = their_model("MobileBertForNextSentencePrediction", their_config(), tmp_path)
    with pytest.warns(UserWarning, match="masked_lm/dense"):
        ours = MaskedLM.from_preset(tmp_path, sentence_pair=True)
    x, inputs, _ = example(61, "right", num_segments=3)
    with torch.no_grad():
        expected = theirs(**{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}).logits
    np.testing.assert_allclose(to_numpy(ours(x)["sentence_pair"]), to_numpy(expected), atol=1e-5)


def number_of_parameters(config):
    """From the paper's table 1 and figure 1, without a pooler layer."""
    h, w, f, n = config.hidden_dim, config.block_dim, config.feed_forward_dim, config.num_feed_forwards
    narrow = w if config.use_bottleneck_attention or config.key_query_shared_bottleneck else h
    attention = 2 * (narrow * w + w) + ((w if config.use_bottleneck_attention else h) * w + w) + (w * w + w) + 2 * w
    bottlenecks = (2 if config.key_query_shared_bottleneck else 1) * (h * w + w + 2 * w) + (w * h + h + 2 * h)
    block = bottlenecks + attention + n * (2 * w * f + f + w + 2 * w)
    tables = config.vocabulary_size * config.embedding_dim + (config.max_length + config.num_segments) * h
    return tables + (3 * config.embedding_dim * h + h) + 2 * h + config.num_layers * block


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters", "millions"),
    [
        ("mobilebert", 24_581_888, 25.3),
        ("mobilebert_tiny", 15_485_696, 15.1),
        ("mobilebert_without_opt", 24_581_888, 25.3),
        ("ib_bert_large", 294_205_184, 293),
    ],
)
def test_sizes_have_the_parameters_of_the_paper(name, parameters, millions):
    config = MobileBertConfig(**SIZES[name])
    assert number_of_parameters(config) == parameters
    assert abs(parameters / 1e6 - millions) < 0.03 * millions  # the paper does not say what it counts
    one_block = MobileBertConfig(**{**SIZES[name], "num_layers": 1, "vocabulary_size": 99})
    assert MobileBert(one_block, pooler=False).count_params() == number_of_parameters(one_block)


@pytest.mark.one_backend
def test_the_teacher_reads_queries_keys_and_values_from_the_stream(tmp_path):
    backbone = randomize(MobileBert(MobileBertConfig(**TEACHER)))
    attention = backbone.blocks[0].attention
    assert tuple(attention.query.kernel.shape) == (18, 30) and tuple(attention.value.kernel.shape) == (18, 30)
    assert backbone.blocks[0].shared_bottleneck is None and not backbone.blocks[0].extra_feed_forwards
    assert {layer.epsilon for layer in (backbone.embedding_norm, backbone.blocks[2].feed_forward_norm)} == {1e-12}
    check_batch_invariance(backbone)
    inputs, _, _ = example(61, "right", num_segments=3)
    student = MobileBert(MobileBertConfig(**{**TINY, "hidden_dim": 18}))
    states = [model(inputs, hidden_states=True)["hidden_states"] for model in (student, backbone)]
    assert [state.shape for state in states[0]] == [state.shape for state in states[1]]

    backbone.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is MobileBert and again.config == backbone.config
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(to_numpy(again(inputs)[name]), to_numpy(backbone(inputs)[name]))


def test_the_trigram_is_next_this_previous():
    backbone = randomize(MobileBert(MobileBertConfig(**TINY)))
    ids = np.array([[5, 17, 42]], "int32")
    table, zeros = to_numpy(backbone.token_embedding.embeddings), np.zeros(10)
    rows = [[table[17], table[5], zeros], [table[42], table[17], table[5]], [zeros, table[42], table[17]]]
    dense = backbone.token_projection.dense
    expected = np.array([np.concatenate(row) for row in rows]) @ to_numpy(dense.kernel) + to_numpy(dense.bias)
    found = to_numpy(backbone.token_projection(backbone.token_embedding(ids)))[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(MobileBert(MobileBertConfig(**TINY)))
    check_batch_invariance(backbone)
    check_packing(backbone)
    # The last token reads its neighbor: padding is seen there, by its vector, which is zero for this one test.
    table = to_numpy(backbone.token_embedding.embeddings).copy()
    table[0] = 0.0
    backbone.token_embedding.embeddings.assign(table)
    ids = example(61, "none")[0]["token_ids"]
    plain = to_numpy(backbone({"token_ids": ids})["sequence_output"])
    padded = np.pad(ids, [[0, 0], [0, 5]])
    for padding in ({"lengths": np.array([11, 11], "int32")}, {"padding_mask": padded > 0}):
        found = to_numpy(backbone({"token_ids": padded, **padding})["sequence_output"])
        np.testing.assert_allclose(found[:, :11], plain, atol=1e-5)
    check_padding_invariance(randomize(MobileBert(MobileBertConfig(**TINY, trigram_input=False))))


@pytest.mark.one_backend
def test_pooling_a_packed_row_needs_its_starts():
    packed = {"token_ids": np.ones((1, 5), "int32"), "sequence_ids": np.ones((1, 5), "int32")}
    for classifier_activation in (False, True):
        model = TextClassifier(MobileBert(MobileBertConfig(**TINY, classifier_activation=classifier_activation)))
        assert model({**packed, "first_positions": np.zeros((1, 1), "int32")}).shape == (1, 1, 2)
        assert MaskedLM(model.backbone)(packed).shape == (1, 5, 61)
        with pytest.raises(ValueError, match="first_positions"):
            model(packed)
    outputs = MobileBert(MobileBertConfig(**TINY), pooler=False)(packed)
    assert "pooled_output" not in outputs and outputs["sequence_output"].shape == (1, 5, 26)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    for config in (TINY, TEACHER):
        config = MobileBertConfig(**{**config, "num_layers": 1})
        check_half_precision(lambda dtype, config=config: MobileBert(config, dtype=dtype))


@pytest.mark.parametrize(
    "config",
    [TINY, pytest.param(TEACHER, marks=pytest.mark.one_backend)],
    ids=["student", "teacher"],
)
def test_every_weight_gets_a_gradient(config):
    config = {**config, "dropout": 0.0, "attention_dropout": 0.0, "activation": "gelu"}
    x, _, _ = example(61, "right", num_segments=3)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = {"tokens": np.array([[5, 60, 1], [7, 0, 3]], "int32"), "sentence_pair": np.array([0, 1], "int32")}
    model = randomize(MaskedLM(MobileBert(MobileBertConfig(**config)), sentence_pair=True), std=0.4)
    check_gradients(model, (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_dropout_is_where_the_paper_has_it():
    for use_bottleneck, inside in ((True, 0.0), (False, 0.3)):
        changes = dict(dropout=0.3, attention_dropout=0.2, num_layers=1, hidden_dim=24, use_bottleneck=use_bottleneck)
        backbone = MobileBert(MobileBertConfig(**{**TINY, **changes}))
        block = backbone.blocks[0]
        assert backbone.embedding_dropout.rate == 0.3 and block.attention.dropout.rate == 0.2
        assert block.attention_output_dropout.rate == block.feed_forward_dropout.rate == inside
        assert not use_bottleneck or block.output_dropout.rate == 0.3


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = TextClassifier(MobileBert(MobileBertConfig(**TINY)), labels=["a", "b", "c"])
    check_keras_file(randomize(model), tmp_path)


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = MobileBert(MobileBertConfig(**{**TINY, "vocabulary_size": 5_000}))
    table = to_numpy(backbone.token_embedding.embeddings)
    assert abs(table.std() - 0.0176) < 2e-4 and np.abs(table).max() <= 0.04
    norm = backbone.blocks[1].output_norm
    assert (to_numpy(norm.gamma) == 1).all() and not to_numpy(norm.beta).any()
    assert np.abs(to_numpy(MaskedLM(backbone).masked_lm.extra_table)).max() <= 0.04


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(normalization="batch_norm"), "`normalization` must be no_norm or layer_norm. Received: 'batch_norm'"),
        (dict(bottleneck_dim=25), "Received: 25, num_heads=3. Use 27"),
        (dict(activation="mish"), "`activation` must be one of"),
    ],
)
def test_a_config_that_cannot_be_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        MobileBert(MobileBertConfig(**{**TINY, **changes}))


@pytest.mark.one_backend
def test_the_output_matrix_is_no_narrower_than_the_table():
    backbone = MobileBert(MobileBertConfig(**{**TINY, "embedding_dim": 30}))
    with pytest.raises(ValueError, match="at least `embedding_dim`. Received: 26 and 30"):
        MaskedLM(backbone)


@pytest.mark.one_backend
def test_input_that_would_be_misread_is_an_error():
    backbone = MobileBert(MobileBertConfig(**TINY))
    with pytest.raises(ValueError, match="`token_ids` must be between 0 and 60"):
        backbone({"token_ids": np.full((1, 4), 61)})
    with pytest.raises(ValueError, match="max_length=23"):
        backbone({"token_ids": np.ones((1, 24), "int32")})
    assert keras.tree.flatten(backbone({"token_ids": np.ones((1, 1), "int32")}))[0].shape[0] == 1
