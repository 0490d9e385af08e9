"""ModernBERT against transformers, both ways, where the window bites, and its invariances."""

import json

import numpy as np
import pytest

from kerasbert.models import Backbone, ModernBert, ModernBertConfig
from kerasbert.models.modernbert.modernbert import SIZES
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import (
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
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, local_attention=6, pad_id=4
)
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
BIASES = dict(attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, decoder_bias=False)


def their_config(**changes):
    import transformers

    return transformers.ModernBertConfig(
        **{
            **dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40),
            **dict(local_attention=8, norm_eps=1e-7, pad_token_id=4, bos_token_id=1, eos_token_id=2, cls_token_id=1),
            **dict(sep_token_id=2, hidden_activation="gelu_pytorch_tanh", classifier_activation="silu"),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    mean = dict(classifier_pooling="mean") if head == "ForMultipleChoice" else {}
    check_head("ModernBert", head, their_config(**labels, **mean), tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize("head", ["ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice"])
def test_biases_pooling_and_layer_types_equal_transformers(head, tmp_path):
    types = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 50.0}, "sliding_attention": {"rope_theta": 7.0}}
    pooling = "mean" if head == "ForSequenceClassification" else "cls"
    config = their_config(
        **BIASES, num_hidden_layers=4, layer_types=types, rope_parameters=rope, classifier_pooling=pooling
    )
    ours, _ = check_head("ModernBert", head, config, tmp_path)
    assert ours.backbone.config.global_layers == (1, 2)
    assert (ours.backbone.config.global_rope_theta, ours.backbone.config.local_rope_theta) == (50.0, 7.0)


@pytest.mark.one_backend
@pytest.mark.optimized
@pytest.mark.parametrize("length", [37, 150])
def test_where_the_window_bites(length, tmp_path):
    """Whole rows and blocks, hidden states and attention weights."""

    theirs = their_model("ModernBertModel", their_config(num_hidden_layers=4), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, "right", pad_id=4, length=length)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=4)
    alone = to_numpy(backbone(ours)["sequence_output"])
    np.testing.assert_allclose(alone[real], to_numpy(expected.last_hidden_state)[real], atol=1e-5)


@pytest.mark.one_backend
def test_configs_of_both_versions_of_transformers(tmp_path):
    config = ModernBertConfig(**{**TINY, "num_layers": 5}, global_every=2, global_rope_theta=99.0, local_rope_theta=5.0)
    ModernBert(config).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["layer_types"] == ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert stored["rope_parameters"]["full_attention"] == {"rope_type": "default", "rope_theta": 99.0}
    assert stored["rope_parameters"]["sliding_attention"] == {"rope_type": "default", "rope_theta": 5.0}
    newer, older = ["layer_types", "rope_parameters"], ["global_attn_every_n_layers", "global_rope_theta"]
    for names in (newer, [*older, "local_rope_theta"], []):
        left = {key: value for key, value in stored.items() if key not in names}
        (tmp_path / "config.json").write_text(json.dumps(left))
        assert ModernBert.from_preset(tmp_path, load_weights=False).config == config
    (tmp_path / "config.json").write_text(json.dumps({**left, "rope_parameters": None, "local_rope_theta": None}))
    assert ModernBert.from_preset(tmp_path, load_weights=False).config.local_rope_theta == 99.0


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(layer_types=["full_attention", "chunked_attention", "full_attention"]), "chunked_attention"),
        (dict(rope_parameters={"full_attention": {"rope_type": "yarn", "factor": 4.0}}), "only rope_type='default'"),
        (dict(rope_scaling={"type": "linear", "factor": 2.0}), "only with rope_scaling=None"),
        (dict(tie_word_embeddings=False), "only with tie_word_embeddings=True"),
        (dict(classifier_pooling="max"), "must be cls or mean"),
        (dict(hidden_size=27), "must be even. Received: 9"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, tmp_path):
    ModernBert(ModernBertConfig(**TINY)).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=message):
        ModernBert.from_preset(tmp_path, load_weights=False)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "encoder", "with_head"),
    [("modernbert_base", 149_014_272, 149_655_232), ("modernbert_large", 394_781_696, 395_881_664)],
)
def test_sizes_are_the_papers(name, encoder, with_head):
    config = ModernBertConfig(**SIZES[name])
    v, m, f = config.vocabulary_size, config.hidden_dim, config.feed_forward_dim
    assert v * m + config.num_layers * (4 * m * m + 3 * m * f + 2 * m) + m == encoder
    assert encoder + m * m + m + v == with_head
    assert m // config.num_heads == 64


@pytest.mark.one_backend
def test_parameters_agree_with_the_closed_form():
    m, f = 24, 40
    model = MaskedLM(ModernBert(ModernBertConfig(**TINY)))
    assert model.backbone.count_params() == 61 * m + 3 * (4 * m * m + 3 * m * f + 2 * m) + m
    assert model.count_params() == model.backbone.count_params() + m * m + m + 61


@pytest.mark.one_backend
@pytest.mark.parametrize(("cutoff", "spread"), [(2.0, 0.880), (1.0, 0.540)])
def test_initial_weights_are_cut_and_shrink_with_depth(cutoff, spread):
    config = {**TINY, "num_layers": 2, "hidden_dim": 192, "feed_forward_dim": 200, "vocabulary_size": 300}
    wide = TextClassifier(ModernBert(ModernBertConfig(**config, initializer_cutoff=cutoff)), labels=200)
    block = wide.backbone.blocks[1]
    for kernel, std in (
        (block.attention.query.kernel, 0.02),
        (block.attention.project.kernel, 0.01),
        (block.feed_forward.inner.kernel, 0.02),
        (block.feed_forward.outer.kernel, 0.01),
        (wide.backbone.token_embedding.embeddings, 0.02),
        (wide.classifier.transform.dense.kernel, 0.02),
        (wide.classifier.dense.kernel, 192**-0.5),
    ):
        kernel = to_numpy(kernel)
        assert abs(kernel.std() - spread * std) < 0.03 * std
        assert np.mean(np.abs(kernel) > cutoff * std * 1.001) < 1e-4


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(ModernBert(ModernBertConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_left_padding_and_packing_in_blocks():
    backbone = randomize(ModernBert(ModernBertConfig(**TINY)))
    ids = np.random.default_rng(0).integers(0, 61, (1, 70)).astype("int32")
    alone = to_numpy(backbone({"token_ids": ids})["sequence_output"])[0]
    row = np.concatenate([np.full((1, 80), 7, "int32"), ids], axis=1)
    padded = backbone({"token_ids": row, "padding_mask": np.arange(150)[None] >= 80})["sequence_output"]
    np.testing.assert_allclose(to_numpy(padded)[0, 80:], alone, atol=1e-5)
    packed = {"token_ids": row, "sequence_ids": np.repeat([[1, 2]], [80, 70], axis=1).astype("int32")}
    np.testing.assert_allclose(to_numpy(backbone(packed)["sequence_output"])[0, 80:], alone, atol=1e-5)


@pytest.mark.one_backend
def test_packed_rows_are_pooled_by_sequence():
    ids = np.arange(9, dtype="int32")[None]
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 2, 0, 0]], "int32")}
    for pooling in ("cls", "mean"):
        model = randomize(TextClassifier(ModernBert(ModernBertConfig(**TINY, classifier_pooling=pooling))))
        found = to_numpy(model({**packed, "first_positions": np.array([[0, 3]], "int32")}))
        for row, part in zip(found[0], (ids[:, :3], ids[:, 3:7]), strict=True):
            np.testing.assert_allclose(row, to_numpy(model({"token_ids": part}))[0], atol=1e-5)
        with pytest.raises(ValueError, match="first_positions"):
            model(packed)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: ModernBert(ModernBertConfig(**TINY), dtype=dtype))
    check_half_precision(lambda dtype: ModernBert(ModernBertConfig(**TINY, classifier_pooling="mean"), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", pad_id=4, length=130)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    biases = dict(attention_bias=True, feed_forward_bias=True, norm_bias=True, head_bias=True)
    quiet = dict(attention_output_dropout=0.0)
    model = randomize(MaskedLM(ModernBert(ModernBertConfig(**TINY, **biases, **quiet))))
    check_gradients(model, (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    config = ModernBertConfig(**TINY, global_layers=(1,))
    check_keras_file(randomize(TextClassifier(ModernBert(config), labels=["a", "b", "c"])), tmp_path)
