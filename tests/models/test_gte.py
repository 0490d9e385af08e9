"""GTE against transformers, both ways, the folders of its authors against their arithmetic, and its invariances."""

import json

import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, Gte, GteConfig
from kerasbert.models.gte import SIZES, stretched
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier, TextEmbedder
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
    write_embedder,
)

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=64)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
LINEAR = {"rope_type": "linear", "rope_theta": 700.0, "factor": 1.5}


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40)
    others = dict(max_position_embeddings=64, type_vocab_size=2, layer_norm_eps=1e-7, classifier_dropout=0.25)
    return transformers.GteConfig(**{**sizes, **others, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head.endswith("Classification") else {}
    check_head("Gte", head, their_config(**labels), tmp_path, num_segments=2)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [f"Gte{head}"]
    for name in ("model_type", "intermediate_size", "rope_parameters", "layer_norm_eps", "classifier_dropout"):
        assert ours[name] == theirs[name], name


@pytest.mark.one_backend
def test_longer_periods_and_no_segments_equal_transformers(tmp_path):
    config = their_config(rope_parameters=LINEAR, type_vocab_size=0)
    theirs = their_model("GteModel", config, tmp_path / "theirs")
    backbone = Backbone.from_preset(tmp_path / "theirs")
    assert (backbone.config.rope_theta, backbone.config.rope_factor, backbone.config.num_segments) == (700.0, 1.5, 0)
    assert backbone.segment_embedding is None and backbone.pooler is None and not backbone.reads_segments
    inputs, theirs_inputs, real = example(61, "right", pad_id=1)
    check_states(backbone, theirs, inputs, theirs_inputs, real, blocks=3)
    segments = np.full_like(inputs["token_ids"], 7)
    with_segments = backbone({**inputs, "segment_ids": segments})["sequence_output"]
    np.testing.assert_array_equal(to_numpy(with_segments), to_numpy(backbone(inputs)["sequence_output"]))
    backbone.save_to_preset(tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["rope_parameters"] == LINEAR and written["type_vocab_size"] == 0


# === Folders of the authors ===


def authors_config(**changes):
    """A config with the fields of the authors' code, as in gte-multilingual-base."""
    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
    others = dict(max_position_embeddings=64, type_vocab_size=1, layer_norm_eps=1e-12, layer_norm_type="layer_norm")
    rope = dict(position_embedding_type="rope", rope_theta=300.0, rope_scaling={"factor": 8.0, "type": "ntk"})
    speed = dict(pack_qkv=True, unpad_inputs=False, use_memory_efficient_attention=False)
    noise = dict(logn_attention_scale=False, logn_attention_clip1=False, id2label={"0": "LABEL_0"}, pad_token_id=1)
    classes = dict(model_type="new", architectures=["NewModel", "NewForTokenClassification"])
    return {**classes, **sizes, **others, **rope, **speed, **noise, **changes}


def authors_tensors(prefix, segments=1):
    """The tensors of such a folder: rows of q, k and v; the linear branch, and then the gate."""
    m, f = 24, 40
    shapes = {"embeddings.word_embeddings.weight": (61, m), "embeddings.token_type_embeddings.weight": (segments, m)}
    norms = ["embeddings.LayerNorm"]
    for i in range(2):
        layer = f"encoder.layer.{i}"
        shapes |= {f"{layer}.attention.qkv_proj.weight": (3 * m, m), f"{layer}.attention.qkv_proj.bias": (3 * m,)}
        shapes |= {f"{layer}.attention.o_proj.weight": (m, m), f"{layer}.attention.o_proj.bias": (m,)}
        shapes |= {f"{layer}.mlp.up_gate_proj.weight": (2 * f, m), f"{layer}.mlp.down_proj.weight": (m, f)}
        shapes |= {f"{layer}.mlp.down_proj.bias": (m,)}
        norms += [f"{layer}.attn_ln", f"{layer}.mlp_ln"]
    shapes |= {f"{norm}.{leaf}": (m,) for norm in norms for leaf in ("weight", "bias")}
    rng = np.random.default_rng(3)
    return {prefix + name: rng.normal(0, 0.2, shape).astype("float32") for name, shape in shapes.items() if shape[0]}


def authors_states(tensors, prefix, ids, real, theta=300.0, factor=8.0):
    """The hidden states by the arithmetic of the authors' code: float (b, s, m)."""
    import torch
    from torch.nn import functional

    def get(name):
        return torch.from_numpy(tensors[prefix + name]) if prefix + name in tensors else None

    def dense(x, name):
        return functional.linear(x, get(f"{name}.weight"), get(f"{name}.bias"))

    def norm(x, name):
        return functional.layer_norm(x, x.shape[-1:], get(f"{name}.weight"), get(f"{name}.bias"), 1e-12)

    def rotate(x):
        first, second = x.chunk(2, dim=-1)
        return x * cosines + torch.cat([-second, first], dim=-1) * sines

    frequencies = 1.0 / (theta * factor) ** (torch.arange(0, 8, 2) / 8) / factor ** (2 / 8)
    angles = torch.arange(ids.shape[1])[:, None] * frequencies.repeat(2)
    cosines, sines = angles.cos(), angles.sin()
    hidden = torch.where(torch.from_numpy(real)[:, None, None, :], 0.0, -1e30)
    x = get("embeddings.word_embeddings.weight")[torch.from_numpy(ids).long()]
    segments = get("embeddings.token_type_embeddings.weight")
    x = norm(x if segments is None else x + segments[0], "embeddings.LayerNorm")
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        heads = (t.unflatten(-1, (3, 8)).transpose(1, 2) for t in dense(x, f"{layer}.attention.qkv_proj").chunk(3, -1))
        q, k, v = heads
        weights = (rotate(q) @ rotate(k).transpose(-1, -2) / 8**0.5 + hidden).softmax(-1)
        y = dense((weights @ v).transpose(1, 2).flatten(2), f"{layer}.attention.o_proj")
        x = norm(x + y, f"{layer}.attn_ln")
        up, gate = dense(x, f"{layer}.mlp.up_gate_proj").chunk(2, -1)
        x = norm(x + dense(functional.gelu(gate) * up, f"{layer}.mlp.down_proj"), f"{layer}.mlp_ln")
    return x.numpy()


def authors_folder(folder, prefix, segments=1, further=None, **changes):
    """Writes a folder of the authors. Returns its tensors."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    tensors = authors_tensors(prefix, segments)
    save_file({**tensors, **(further or {})}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(authors_config(type_vocab_size=segments, **changes)))
    return tensors


@pytest.mark.one_backend
@pytest.mark.parametrize(("prefix", "segments"), [("", 0), ("new.", 1)])
def test_folders_of_the_authors(prefix, segments, tmp_path):
    """Their periods are stretched ("ntk"). Saved again, transformers reads them, with equal outputs."""
    import torch
    import transformers

    tensors = authors_folder(tmp_path / "authors", prefix, segments)
    inputs, theirs, real = example(61, "right", pad_id=1)
    expected = authors_states(tensors, prefix, inputs["token_ids"], real)[real]
    backbone = Backbone.from_preset(tmp_path / "authors")
    assert backbone.config.model_type == "gte"
    np.testing.assert_allclose(to_numpy(backbone(inputs)["sequence_output"])[real], expected, atol=1e-5)
    backbone.save_to_preset(tmp_path / "ours")
    assert Backbone.from_preset(tmp_path / "ours").config == backbone.config
    model = transformers.AutoModel.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        found = model(**{key: torch.from_numpy(value.astype("int64")) for key, value in theirs.items()})
    np.testing.assert_allclose(found.last_hidden_state.numpy()[real], expected, atol=1e-5)


@pytest.mark.one_backend
def test_an_embedder_of_the_authors(tmp_path):
    """The files of gte-multilingual-base: the first token, unit length, and a head for sparse weights, not used."""
    sparse = {"classifier.weight": np.ones((1, 24), "float32"), "classifier.bias": np.ones(1, "float32")}
    tensors = authors_folder(tmp_path, "new.", further=sparse, pad_token_id=0)
    tokenizer = write_embedder(tmp_path, "cls", {"query": "the ", "document": ""})
    embedder = kerasbert.load(tmp_path)
    assert isinstance(embedder, TextEmbedder) and isinstance(embedder.backbone, Gte)
    ids = np.array(tokenizer.encode(["the cat sat"]))
    expected = authors_states(tensors, "new.", ids, np.ones_like(ids, bool))[:, 0]
    expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(embedder.embed_queries(["cat sat"]), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.embed_documents(["the cat sat"]), expected, atol=1e-5)


@pytest.mark.one_backend
def test_a_reranker_of_the_authors(tmp_path):
    """Its score comes from the first token, through the pooler and one dense layer."""
    rng = np.random.default_rng(7)
    shapes = {"new.pooler.dense.weight": (24, 24), "new.pooler.dense.bias": (24,), "classifier.weight": (1, 24)}
    head = {name: rng.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}
    head["classifier.bias"] = np.full(1, 0.5, "float32")
    architectures = ["NewForSequenceClassification"]
    tensors = authors_folder(tmp_path, "new.", further=head, architectures=architectures)
    model = kerasbert.load(tmp_path)
    assert isinstance(model, TextClassifier) and model.problem == "score"
    inputs, _, real = example(61, "right", pad_id=1)
    first = authors_states(tensors, "new.", inputs["token_ids"], real)[:, 0]
    pooled = np.tanh(first @ head["new.pooler.dense.weight"].T + head["new.pooler.dense.bias"])
    expected = pooled @ head["classifier.weight"].T + head["classifier.bias"]
    np.testing.assert_allclose(to_numpy(model(inputs)).reshape(2, 1), expected, atol=1e-5)


def read(folder, **changes):
    (folder / "config.json").write_text(json.dumps(authors_config(**changes)))
    return Gte.from_preset(folder, load_weights=False).config


@pytest.mark.one_backend
def test_configs_of_the_authors(tmp_path):
    config = read(tmp_path)
    assert (config.rope_theta, config.rope_factor) == (2_400.0, 8.0 ** (2 / 8))
    assert (config.dropout, config.attention_dropout, config.pad_id) == (0.1, 0.0, 1)
    # snowflake-arctic-embed-m-v2.0 has the model type of transformers, and periods that are not stretched.
    config = read(tmp_path, model_type="gte", rope_theta=160_000, rope_scaling=None, unpad_inputs=True)
    assert (config.rope_theta, config.rope_factor) == (160_000, 1.0)
    # Without the fields, each code has its own defaults.
    stored = authors_config()
    for name in ("rope_theta", "rope_scaling", "vocab_size", "pad_token_id", "type_vocab_size"):
        del stored[name]
    fields = ("rope_theta", "vocabulary_size", "pad_id", "num_segments")
    for model_type, values in (("new", (10_000.0, 30_528, None, 1)), ("gte", (160_000.0, 250_048, 1, 1))):
        (tmp_path / "config.json").write_text(json.dumps({**stored, "model_type": model_type}))
        config = Gte.from_preset(tmp_path, load_weights=False).config
        assert tuple(getattr(config, name) for name in fields) == values


@pytest.mark.one_backend
def test_stretched_periods():
    """Pair i is stretched by factor ** (2 (i + 1) / head_dim): the last of the four by 8."""
    theta, factor = stretched(20_000.0, 8.0, head_dim=8)
    pairs = np.arange(4)
    np.testing.assert_allclose(
        theta ** (2 * pairs / 8) * factor, 20_000.0 ** (2 * pairs / 8) * 8.0 ** (np.array([1, 2, 3, 4]) / 4)
    )


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(position_embedding_type="absolute"), "only with position_embedding_type='rope'. .*'absolute'"),
        (dict(layer_norm_type="rms_norm"), "only with layer_norm_type='layer_norm'. .*'rms_norm'"),
        (dict(logn_attention_scale=True), "only with logn_attention_scale=False"),
        (dict(pack_qkv=False), "only with pack_qkv=True"),
        (dict(tie_word_embeddings=False), "only with tie_word_embeddings=True"),
        (dict(rope_scaling={"type": "yarn", "factor": 4.0}), "rope_type='default', 'linear' and 'ntk'.* 'yarn'"),
        (dict(rope_scaling={"type": "ntk", "factor": 4.0, "mixed_b": 0.6}), "'ntk with mixed_b=0.6'"),
        (dict(rope_parameters={"rope_type": "dynamic", "factor": 4.0}), "without mixed_b. .*'dynamic'"),
        (dict(rope_scaling={"type": "ntk"}), "`rope_theta` in .* must have the form"),
        (dict(rope_parameters={"rope_type": "linear", "factor": 0.0}), "`rope_factor` must be greater than 0"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, **change)


# === The encoder ===


@pytest.mark.one_backend
def test_sizes_have_the_parameters_of_the_released_models():
    def parameters(m, f, v, layers, segments):
        return (v + segments) * m + 2 * m + layers * (4 * m * m + 4 * m + 3 * m * f + m + 4 * m)

    for name, number in (("gte_multilingual_base", 305_368_320), ("gte_base_en", 136_776_192)):
        config = GteConfig(**SIZES[name])
        sizes = (config.hidden_dim, config.feed_forward_dim, config.vocabulary_size, 12, config.num_segments)
        assert parameters(*sizes) == number
    assert Gte(GteConfig(**TINY)).count_params() == parameters(24, 40, 61, 2, 1)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(Gte(GteConfig(**TINY), pooler=True))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Gte(GteConfig(**TINY, rope_factor=1.5), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=2, pad_id=1)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    model = randomize(MaskedLM(Gte(GteConfig(**{**TINY, "num_layers": 1}, num_segments=2, rope_factor=1.5))))
    check_gradients(model, (x, labels), without=("key/bias",))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    backbone = Gte(GteConfig(**TINY, rope_factor=1.5), pooler=True)
    check_keras_file(randomize(TextClassifier(backbone, labels=["a", "b", "c"])), tmp_path)
