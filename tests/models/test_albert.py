"""ALBERT against transformers, both ways; its ways of sharing; its invariances."""

import dataclasses

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Albert, AlbertConfig, Backbone
from kerasbert.models.albert import SIZES
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import (
    HEADS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_outputs,
    check_packing,
    check_padding_invariance,
    check_states,
    check_way_back,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    **dict(vocabulary_size=61, embedding_dim=10, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40),
    **dict(max_length=23, num_segments=3, activation="gelu_new"),
)
# The paper's four ways to share, and transformers' groups and inner groups.
SHARING = {
    "all": dict(),
    "attention": dict(sharing="attention"),
    "feed_forward": dict(sharing="feed_forward", num_inner_layers=2),
    "none": dict(sharing="none"),
    "groups": dict(num_groups=2, num_inner_layers=2),
    "no projection": dict(embedding_dim=24, num_groups=3),
    "projection of equal widths": dict(embedding_dim=24, embedding_projection=True),
}


def _config(way):
    return AlbertConfig(**{**TINY, **SHARING[way]})


@pytest.fixture(autouse=True)
def sentence_order_logits(monkeypatch):
    """transformers names the logits of ALBERT's second target otherwise than BERT's."""
    names = {"tokens": "prediction_logits", "sentence_pair": "sop_logits"}
    monkeypatch.setitem(HEADS, "ForPreTraining", (MaskedLM, {"sentence_pair": True}, names))


def their_config(**changes):
    import transformers

    return transformers.AlbertConfig(
        **{
            **dict(vocab_size=61, embedding_size=10, hidden_size=24, num_attention_heads=3, intermediate_size=40),
            **dict(num_hidden_layers=3, num_hidden_groups=2, inner_group_num=2, max_position_embeddings=23),
            **dict(type_vocab_size=3, hidden_act="gelu", layer_norm_eps=1e-7),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    ours, _ = check_head("Albert", head, their_config(**labels), tmp_path, num_segments=3)
    if labels:
        assert ours.labels == [f"LABEL_{i}" for i in range(5)]


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [
        dict(num_hidden_groups=1, inner_group_num=1, hidden_act="gelu_new"),
        dict(num_hidden_layers=5, num_hidden_groups=3, hidden_act="relu", layer_norm_eps=1e-3),
        dict(embedding_size=24),
    ],
)
def test_groups_equal_transformers_both_ways(changes, tmp_path):
    config = their_config(**changes)
    ours, theirs = check_head("Albert", "Model", config, tmp_path, num_segments=3)
    assert ours.config.sharing == "all" and ours.config.num_groups == config.num_hidden_groups
    check_outputs(ours, theirs, config, {"pooled_output": "pooler_output"}, "right", num_segments=3)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("AlbertModel", their_config(), tmp_path)
    ours, inputs, real = example(61, padding, num_segments=3)
    found, expected = check_states(Backbone.from_preset(tmp_path), theirs, ours, inputs, real, blocks=6)


@pytest.mark.one_backend
@pytest.mark.parametrize("way", ["attention", "feed_forward", "none", "no projection"])
def test_transformers_loads_every_way_to_share(way, tmp_path):
    """What its layout lacks is written out: the outputs are equal, and our own folder is read back as it was."""
    import transformers

    ours = randomize(MaskedLM(Albert(_config(way), pooler=False)))
    ours.save_to_preset(tmp_path / "ours")
    theirs, report = transformers.AlbertForMaskedLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    check_outputs(ours, theirs.eval(), theirs.config, {"": "logits"}, "right", num_segments=3)
    again = kerasbert.load(tmp_path / "ours")
    assert again.backbone.config == ours.backbone.config
    for one, other in zip(again.weights, ours.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    check_way_back(again, theirs, tmp_path / "again")


@pytest.mark.one_backend
@pytest.mark.parametrize("way", SHARING)
def test_weights_are_shared_as_the_config_says(way):
    config = _config(way)
    backbone = Albert(config)
    attention, feed_forward = config.num_copies("attention"), config.num_copies("feed_forward")
    expected = {"all": (1, 1), "attention": (1, 3), "feed_forward": (3, 1), "none": (3, 3)}
    expected |= {"groups": (2, 2), "no projection": (3, 3), "projection of equal widths": (1, 1)}
    assert (attention, feed_forward) == expected[way]
    assert backbone.count_params() == _closed_form(config)


def _closed_form(config):
    e, m, f = config.embedding_dim, config.hidden_dim, config.feed_forward_dim
    tables = (config.vocabulary_size + config.max_length + config.num_segments) * e + 2 * e
    projection = (e * m + m) * (e != m or config.embedding_projection is True)
    attention, feed_forward = 4 * (m * m + m) + 2 * m, (m * f + f) + (f * m + m) + 2 * m
    layers = config.num_copies("attention") * attention + config.num_copies("feed_forward") * feed_forward
    return tables + projection + config.num_inner_layers * layers + m * m + m


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        (SIZES["albert_base_v1"], 11_683_584),
        (SIZES["albert_large_v1"], 17_683_968),
        (SIZES["albert_xlarge_v1"], 58_724_864),
        (SIZES["albert_xxlarge_v1"], 222_595_584),
        (SIZES["albert_base_v2"], 11_683_584),
        (SIZES["albert_large_v2"], 17_683_968),
        (SIZES["albert_xlarge_v2"], 58_724_864),
        (SIZES["albert_xxlarge_v2"], 222_595_584),
        (dict(sharing="attention"), 63_647_232),
        (dict(sharing="feed_forward"), 37_686_528),
        (dict(sharing="none"), 89_650_176),
        (dict(embedding_dim=768), 31_114_752),
        (dict(embedding_dim=768, sharing="attention"), 83_078_400),
        (dict(embedding_dim=768, sharing="feed_forward"), 57_117_696),
        (dict(embedding_dim=768, sharing="none"), 109_081_344),
    ],
)
def test_sizes_have_the_parameters_of_the_paper(changes, parameters):
    assert _closed_form(AlbertConfig(**changes)) == parameters


@pytest.mark.one_backend
def test_a_size_is_built_with_its_parameters():
    backbone = Albert.from_preset("albert_base_v1", load_weights=False, num_layers=2)  # which all share
    assert backbone.count_params() == 11_683_584 and backbone.config.dropout == 0.1
    heads = MaskedLM(backbone, sentence_pair=True).count_params() - backbone.count_params()
    assert heads == 130_226


@pytest.mark.one_backend
def test_pretraining_loss_equals_transformers(tmp_path):
    import torch

    theirs = their_model("AlbertForPreTraining", their_config(), tmp_path)
    ours = MaskedLM.from_preset(tmp_path, sentence_pair=True)
    x, inputs, real = example(61, "right", num_segments=3)
    positions = np.array([[1, 4, 9], [2, -1, -1]], "int32")
    labels = np.array([[5, 60, 0], [7, 0, 0]], "int32")
    theirs_labels = np.full(real.shape, -100)
    theirs_labels[[0, 0, 0, 1], [1, 4, 9, 2]] = [5, 60, 0, 7]
    pairs = np.array([0, 1], "int32")
    with torch.no_grad():
        expected = theirs(
            **{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()},
            labels=torch.from_numpy(theirs_labels),
            sentence_order_label=torch.from_numpy(pairs.astype("int64")),
        ).loss.item()
    ours.compile(keras.optimizers.SGD(0.0))
    batch = ({**x, "masked_positions": positions}, {"tokens": labels, "sentence_pair": pairs})
    np.testing.assert_allclose(float(ours.test_on_batch(*batch, return_dict=True)["loss"]), expected, rtol=1e-5)


@pytest.mark.one_backend
def test_dropout_is_where_the_paper_has_it():
    """v2 has none before fine-tuning, where the heads have theirs; the port of transformers has it on both."""
    config = AlbertConfig()
    assert (config.dropout, config.attention_dropout, config.classifier_dropout) == (0.0, 0.0, 0.1)
    backbone = Albert(AlbertConfig(**TINY, classifier_dropout=0.3))
    for kind, rate in (("sentence_pair", 0.0), ("choice", 0.3)):
        assert backbone.make_head(kind).dropout.rate == rate
    for kind in ("classifier", "tagger"):
        assert backbone.make_head(kind, num_labels=2).dropout.rate == 0.3
    assert backbone.make_head("span").dropout.rate == 0.0
    with_dropout = Albert(AlbertConfig(**TINY, dropout=0.5))
    states = with_dropout({"token_ids": np.ones((2, 3), "int32")})["sequence_output"]
    noisy = with_dropout({"token_ids": np.ones((2, 3), "int32")}, training=True)["sequence_output"]
    assert not np.allclose(to_numpy(states), to_numpy(noisy))


@pytest.mark.one_backend
@pytest.mark.parametrize("way", ["attention", "groups"])
def test_invariances(way):
    backbone = randomize(Albert(_config(way)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Albert(_config("feed_forward"), dtype=dtype))


@pytest.mark.parametrize("way", ["attention", "groups"])
def test_every_weight_gets_a_gradient(way):
    x, _, _ = example(61, "right", num_segments=3)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = {"tokens": np.array([[5, 60, 1], [7, 0, 3]], "int32"), "sentence_pair": np.array([0, 1], "int32")}
    # Few layers: random norms make all tokens alike with depth, and then attention has nothing to learn from.
    config = dataclasses.replace(_config(way), num_layers=2, classifier_dropout=0.0)
    check_gradients(randomize(MaskedLM(Albert(config), sentence_pair=True)), (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(Albert(_config("attention")), labels=["a", "b", "c"])), tmp_path)


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = Albert(AlbertConfig(**{**TINY, "vocabulary_size": 9_000, "hidden_dim": 240}))
    for kernel in (backbone.token_embedding.embeddings, backbone.embedding_projection.kernel):
        # A normal cut at two standard deviations keeps 0.88 of its spread. (On torch Keras lets a few through.)
        kernel = to_numpy(kernel)
        assert abs(kernel.std() - 0.0176) < 1e-3 and np.mean(np.abs(kernel) > 0.04) < 1e-4
    assert not to_numpy(backbone.embedding_projection.bias).any()


@pytest.mark.one_backend
def test_copies_that_differ_are_refused(tmp_path):
    """transformers may train the repeated weights apart; then they are no longer shared."""
    from safetensors.numpy import load_file, save_file

    randomize(Albert(_config("attention"))).save_to_preset(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["encoder.albert_layer_groups.2.albert_layers.0.attention.key.bias"] += 1
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"groups\.2\.albert_layers\.0\.attention\.key\.bias must be equal to"):
        Albert.from_preset(tmp_path)
    assert Albert.from_preset(tmp_path, sharing="none").config.num_copies("attention") == 3


@pytest.mark.one_backend
def test_a_config_without_widths_means_xxlarge():
    from kerasbert.checkpoints.huggingface_config import read_config

    fields = read_config(Albert.family, {"model_type": "albert"})
    assert AlbertConfig(**fields) == AlbertConfig(**SIZES["albert_xxlarge_v2"], embedding_projection=True)
    with pytest.raises(ValueError, match="only with position_embedding_type='absolute'"):
        read_config(Albert.family, {"model_type": "albert", "position_embedding_type": "relative_key"})


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(sharing="embeddings"), "`sharing` must be"),
        (dict(num_groups=4), "`num_groups` must be between 1 and `num_layers`"),
        (dict(num_groups=0), "`num_groups` must be"),
        (dict(num_groups=2, sharing="attention"), "1 unless sharing='all'"),
        (dict(embedding_projection=False), "`embedding_dim` must equal `hidden_dim`"),
    ],
)
def test_configs_that_contradict_themselves_are_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        AlbertConfig(**{**TINY, **changes})


@pytest.mark.one_backend
def test_pooling_a_packed_row_needs_its_starts():
    packed = {"token_ids": np.ones((1, 5), "int32"), "sequence_ids": np.ones((1, 5), "int32")}
    model = TextClassifier(Albert(AlbertConfig(**TINY)))
    assert "pooled_output" not in model.backbone(packed)
    with pytest.raises(ValueError, match="first_positions"):
        model(packed)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        ({"token_ids": np.ones((1, 4), int), "segment_ids": np.full((1, 4), 3)}, "`segment_ids` must be"),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        Albert(AlbertConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})
