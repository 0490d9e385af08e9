"""NomicBERT against transformers, both ways, its two kinds of config and file, long texts, and its invariances."""

import json

import keras
import numpy as np
import pytest

from kerasbert.models import Backbone, NomicBert, NomicBertConfig
from kerasbert.models.nomic_bert import HUGGINGFACE_ONLY, SIZES, rotation_of
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

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=64)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1_000.0, "factor": 2.0}


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40)
    others = dict(max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-7, classifier_dropout=0.25)
    return transformers.NomicBertConfig(**{**sizes, **others, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head.endswith("Classification") else {}
    check_head("NomicBert", head, their_config(**labels), tmp_path, num_segments=2)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [f"NomicBert{head}"]
    for name in ("vocab_size", "intermediate_size", "rope_parameters", "layer_norm_eps", "classifier_dropout"):
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.one_backend), True])
def test_hidden_states_and_long_texts_equal_transformers(dynamic, tmp_path):
    """With a training length of 16 and rows of 29 tokens; then short rows, which are not stretched."""

    rope = dict(rope_parameters=DYNAMIC, max_position_embeddings=16) if dynamic else {}
    theirs = their_model("NomicBertModel", their_config(**rope), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    assert backbone.config.rope_factor == (2.0 if dynamic else None) and backbone.pooler is None
    for length in (29, 11):
        ours, inputs, real = example(61, "right", num_segments=2, length=length)
        found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)


@pytest.mark.one_backend
def test_the_base_of_the_periods_grows_with_the_text():
    """theta' = 3621.087981 for M = 16, a factor of 2, 29 tokens and heads of 8."""
    config = NomicBertConfig(**{**TINY, "max_length": 16}, rope_factor=2.0)
    for length, theta in ((29, 3_621.087981), (16, 1_000.0), (11, 1_000.0)):
        positions = np.arange(length, dtype="int32")[None]
        sines = to_numpy(rotation_of(keras.ops.convert_to_tensor(positions), config).sines)[0, :, 0]
        np.testing.assert_allclose(sines, np.sin(positions[0][:, None] * theta ** (-np.arange(0, 8, 2) / 8)), atol=1e-5)


# === Files and configs of nomic-ai ===


def older_config(**changes):
    """A config with the fields of nomic-ai's code only, as in its first files."""
    sizes = dict(vocab_size=58, pad_vocab_size_multiple=4, n_embd=24, n_layer=2, n_head=3, n_inner=256)
    others = dict(activation_function="swiglu", rotary_emb_base=500.0, rotary_emb_fraction=1.0, type_vocab_size=2)
    rates = dict(resid_pdrop=0.1, attn_pdrop=0.2, embd_pdrop=0.0, layer_norm_epsilon=1e-7)
    noise = dict(use_flash_attn=True, fused_bias_fc=True, n_positions=8_192, max_trained_positions=32)
    return {"model_type": "nomic_bert", **HUGGINGFACE_ONLY, **sizes, **others, **rates, **noise, **changes}


@pytest.mark.one_backend
def test_configs_of_nomic_ai(tmp_path):
    def read(**changes):
        (tmp_path / "config.json").write_text(json.dumps(older_config(**changes)))
        return NomicBert.from_preset(tmp_path, load_weights=False).config

    config = read()
    sizes = (60, 2, 3, 24, 256, 32)
    fields = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "feed_forward_dim", "max_length")
    assert tuple(getattr(config, name) for name in fields) == sizes
    assert (config.dropout, config.attention_dropout, config.activation) == (0.1, 0.2, "silu")
    assert (config.rope_theta, config.rope_factor, config.layer_norm_epsilon) == (500.0, None, 1e-7)
    assert read(rotary_scaling_factor=2).rope_factor == 2
    assert read(n_inner=None, n_embd=384).feed_forward_dim == 1_024 and read(n_inner=300).feed_forward_dim == 512
    # Fields of transformers come first.
    both = read(rope_parameters=DYNAMIC, intermediate_size=40, hidden_size=48, num_hidden_layers=1, hidden_act="gelu")
    assert (both.rope_theta, both.rope_factor, both.feed_forward_dim) == (1_000.0, 2.0, 40)
    assert (both.hidden_dim, both.num_layers, both.activation) == (48, 1, "gelu")


@pytest.mark.one_backend
def test_saved_configs_have_both_sets_of_fields(tmp_path):
    config = NomicBertConfig(**TINY, rope_theta=77.0, rope_factor=3.0, dropout=0.1, attention_dropout=0.3)
    NomicBert(config).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["rope_parameters"] == {"rope_type": "dynamic", "rope_theta": 77.0, "factor": 3.0}
    assert (stored["rotary_emb_base"], stored["rotary_scaling_factor"], stored["prenorm"]) == (77.0, 3.0, False)
    for newer in ("hidden_size", "rope_parameters", "hidden_act", "num_hidden_layers", "num_attention_heads"):
        del stored[newer]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert NomicBert.from_preset(tmp_path).config == config


@pytest.mark.one_backend
def test_files_of_nomic_ai(tmp_path):
    """Names with the prefix of BERT, and a head without biases, which are then zero."""
    from safetensors.numpy import load_file, save_file

    model = randomize(MaskedLM(NomicBert(NomicBertConfig(**TINY))))
    for bias in (model.masked_lm.bias, model.masked_lm.dense.bias):
        bias.assign(np.zeros(bias.shape))
    model.save_to_preset(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    assert not any("decoder" in name and "weight" in name for name in tensors)
    older = {name.replace("nomic_bert.", "bert."): array for name, array in tensors.items()}
    for name in ("cls.predictions.transform.dense.bias", "cls.predictions.bias", "cls.predictions.decoder.bias"):
        older.pop(name, None)
    older["cls.predictions.decoder.weight"] = older["bert.embeddings.word_embeddings.weight"].copy()
    save_file(older, path)
    (tmp_path / "kerasbert.json").unlink()
    inputs, _, _ = example(61, "right")
    with pytest.warns(UserWarning, match="no weights for masked_lm, masked_lm/dense"):
        again = MaskedLM.from_preset(tmp_path)
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))
    older["bert.encoder.layers.9.norm1.weight"] = np.ones(24, "float32")
    save_file(older, path)
    with pytest.raises(ValueError, match="not used by NomicBert: bert.encoder.layers.9.norm1.weight"):
        MaskedLM.from_preset(tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(prenorm=True), "only with prenorm=False. .*prenorm=True"),
        (dict(rotary_emb_fraction=0.5), "only with rotary_emb_fraction=1.0"),
        (dict(qkv_proj_bias=True), "only with qkv_proj_bias=False"),
        (dict(activation_function="gelu"), "activation_function='swiglu'. .*'gelu'"),
        (dict(rope_parameters={"rope_type": "yarn", "factor": 4.0}), "rope_type='default' and 'dynamic'. .*'yarn'"),
        (dict(moe_every_n_layers=2, num_experts=8), "only with moe_every_n_layers=0. .*moe_every_n_layers=2"),
        (dict(head_dim=16), "`head_dim` must be .* Received: 16"),
        (dict(tie_word_embeddings=False), "only with tie_word_embeddings=True"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(older_config(**change)))
    with pytest.raises(ValueError, match=message):
        NomicBert.from_preset(tmp_path, load_weights=False)


# === The encoder ===


@pytest.mark.one_backend
def test_the_size_has_the_parameters_of_the_released_model():
    config = NomicBertConfig(**SIZES["nomic_bert_base"])
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    assert (v + 2) * m + 2 * m + config.num_layers * (4 * m * m + 3 * m * f + 4 * m) == 136_731_648
    m, f = 24, 40
    backbone = NomicBert(NomicBertConfig(**TINY))
    assert backbone.count_params() == (61 + 2) * m + 2 * m + 3 * (4 * m * m + 3 * m * f + 4 * m)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(NomicBert(NomicBertConfig(**TINY), pooler=True))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows_are_stretched_by_their_longest_text():
    backbone = randomize(NomicBert(NomicBertConfig(**{**TINY, "max_length": 8}, rope_factor=2.0)))
    ids = np.random.default_rng(0).integers(1, 61, (1, 20)).astype("int32")
    packed = {"token_ids": ids, "sequence_ids": np.array([[1] * 12 + [2] * 8], "int32")}
    alone = to_numpy(backbone({"token_ids": ids[:, :12]})["sequence_output"])
    np.testing.assert_allclose(to_numpy(backbone(packed)["sequence_output"])[:, :12], alone, atol=1e-5)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: NomicBert(NomicBertConfig(**TINY, rope_factor=2.0), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=2)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    config = NomicBertConfig(**{**TINY, "num_layers": 2, "max_length": 8}, rope_factor=2.0)
    check_gradients(randomize(MaskedLM(NomicBert(config))), (x, labels))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    backbone = NomicBert(NomicBertConfig(**TINY, rope_factor=2.0), pooler=True)
    check_keras_file(randomize(TextClassifier(backbone, labels=["a", "b", "c"])), tmp_path)


@pytest.mark.one_backend
def test_bad_input():
    for factor, heads in ((0.5, 3), (2.0, 12)):
        with pytest.raises(ValueError, match=f"Received: {factor} with heads of {24 // heads}"):
            NomicBertConfig(**{**TINY, "num_heads": heads}, rope_factor=factor)
    with pytest.raises(ValueError, match="`segment_ids` must be between 0 and 1"):
        ids = np.full((1, 4), 2, "int32")
        NomicBert(NomicBertConfig(**TINY))({"token_ids": ids, "segment_ids": ids})
