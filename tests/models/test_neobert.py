"""NeoBERT against the arithmetic of its authors' code, which transformers does not have; its files and invariances."""

import json

import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, NeoBert, NeoBertConfig
from kerasbert.models.neobert import SIZES, PairRotation
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier, TextEmbedder
from kerasbert.training import add_lora
from tests.models.reference import (
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    example,
    randomize,
    to_numpy,
)

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=64)
M, F, V, D = 24, 40, 61, 8


def authors_config(**changes):
    """The fields of the file on the hub. Its feed-forward networks have 40 inner units: 2 / 3 of 57, rounded up."""
    sizes = dict(vocab_size=V, hidden_size=M, num_hidden_layers=2, num_attention_heads=3, intermediate_size=57)
    ranges = dict(embedding_init_range=0.03, decoder_init_range=0.04, classifier_init_range=0.05)
    noise = dict(auto_map={}, dim_head=D, kwargs={"classifier_init_range": 0.02}, trust_remote_code=True)
    others = dict(model_type="neobert", architectures=["NeoBERTLMHead"], max_length=64, norm_eps=1e-5, pad_token_id=0)
    return {**sizes, **ranges, **noise, **others, **changes}


def authors_tensors(heads=("decoder",), vocabulary=V):
    shapes = {"model.encoder.weight": (vocabulary, M), "model.layer_norm.weight": (M,)}
    for i in range(2):
        block = f"model.transformer_encoder.{i}"
        shapes |= {f"{block}.qkv.weight": (3 * M, M), f"{block}.wo.weight": (M, M)}
        shapes |= {f"{block}.ffn.w12.weight": (2 * F, M), f"{block}.ffn.w3.weight": (M, F)}
        shapes |= {f"{block}.attention_norm.weight": (M,), f"{block}.ffn_norm.weight": (M,)}
    outputs = {"decoder": vocabulary, "dense": M, "classifier": 5}
    for head in heads:
        shapes |= {f"{head}.weight": (outputs[head], M), f"{head}.bias": (outputs[head],)}
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}


def authors_states(tensors, ids, real):
    """The hidden states by the arithmetic of the authors' code: rotations are products of complex numbers."""
    import torch

    def get(name):
        return torch.from_numpy(tensors[f"model.{name}.weight"])

    def norm(x, name):
        return get(name) * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def rotate(x):
        pairs = torch.view_as_complex(x.unflatten(-1, (D // 2, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)

    angles = torch.arange(ids.shape[1])[:, None] * 10_000.0 ** (-torch.arange(0, D, 2) / D)
    hidden = torch.where(torch.from_numpy(real)[:, None, None, :], 0.0, -torch.inf)
    x = get("encoder")[torch.from_numpy(ids).long()]
    for block in ("transformer_encoder.0", "transformer_encoder.1"):
        heads = (norm(x, f"{block}.attention_norm") @ get(f"{block}.qkv").T).unflatten(-1, (3, 3 * D))
        q, k, v = heads.chunk(3, dim=-1)
        scores = torch.einsum("bqhd,bkhd->bhqk", rotate(q), rotate(k)) / D**0.5 + hidden
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        x = x + y.flatten(2) @ get(f"{block}.wo").T
        gate, linear = (norm(x, f"{block}.ffn_norm") @ get(f"{block}.ffn.w12").T).chunk(2, dim=-1)
        x = x + (torch.nn.functional.silu(gate) * linear) @ get(f"{block}.ffn.w3").T
    return norm(x, "layer_norm").numpy()


def authors_folder(folder, heads=("decoder",), prefix="model.", **changes):
    """Writes a folder of the authors. Returns its tensors."""
    from safetensors.numpy import save_file

    tensors = authors_tensors(heads)
    save_file({name.replace("model.", prefix): array for name, array in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(authors_config(**changes)))
    return tensors


def written(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.one_backend
@pytest.mark.parametrize(("padding", "prefix"), [("none", "model."), ("left", ""), ("right", "model.")])
def test_hidden_states(padding, prefix, tmp_path):
    heads = ("decoder",) if prefix else ()
    tensors = authors_folder(tmp_path, heads, prefix, architectures=["NeoBERTLMHead" if prefix else "NeoBERT"])
    backbone = Backbone.from_preset(tmp_path)
    assert isinstance(backbone, NeoBert) and backbone.config.feed_forward_dim == F
    inputs, _, real = example(V, padding)
    found = to_numpy(backbone(inputs)["sequence_output"])[real]
    np.testing.assert_allclose(found, authors_states(tensors, inputs["token_ids"], real)[real], atol=1e-5)


@pytest.mark.one_backend
def test_masked_lm_both_ways(tmp_path):
    """The output matrix is not the table of tokens; what we write is what was read, bit for bit."""
    tensors = authors_folder(tmp_path)
    model = kerasbert.load(tmp_path)
    assert isinstance(model, MaskedLM)
    inputs, _, real = example(V, "right")
    states = authors_states(tensors, inputs["token_ids"], real)
    expected = states @ tensors["decoder.weight"].T + tensors["decoder.bias"]
    np.testing.assert_allclose(to_numpy(model(inputs))[real], expected[real], atol=1e-5)
    model.save_to_preset(tmp_path / "ours")
    again = written(tmp_path / "ours")
    assert again.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    stored = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert stored["architectures"] == ["NeoBERTLMHead"] and stored["intermediate_size"] == 60  # 40 units, as 57 is
    assert kerasbert.load(tmp_path / "ours").backbone.config == model.backbone.config
    for name in ("vocab_size", "norm_eps", "embedding_init_range", "decoder_init_range", "classifier_init_range"):
        assert stored[name] == authors_config()[name]


@pytest.mark.one_backend
def test_classifiers_both_ways(tmp_path):
    names = {str(number): letter for number, letter in enumerate("abcde")}
    head = dict(architectures=["NeoBERTForSequenceClassification"], id2label=names, classifier_dropout=0.3)
    tensors = authors_folder(tmp_path, ("dense", "classifier"), **head)
    model = kerasbert.load(tmp_path)
    assert isinstance(model, TextClassifier) and model.labels == list("abcde")
    assert model.classifier.dropout.rate == model.classifier.input_dropout.rate == 0.3
    inputs, _, real = example(V, "right")
    first = authors_states(tensors, inputs["token_ids"], real)[:, 0]
    hidden = np.tanh(first @ tensors["dense.weight"].T + tensors["dense.bias"])
    expected = hidden @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    np.testing.assert_allclose(to_numpy(model(inputs)), expected, atol=1e-5)
    model.save_to_preset(tmp_path / "ours")
    again = written(tmp_path / "ours")
    assert again.keys() == tensors.keys() and all(np.array_equal(again[name], tensors[name]) for name in tensors)


@pytest.mark.one_backend
def test_adapters_are_fused_head_by_head(tmp_path):
    """An adapter of `query` has zeros in the rows of keys and values, which lie between those of its heads."""
    from safetensors.numpy import load_file

    authors_folder(tmp_path, (), architectures=["NeoBERT"])
    model = TextEmbedder.from_preset(tmp_path)
    add_lora(model, rank=2, targets=["query"])
    rng = np.random.default_rng(0)
    for block in model.backbone.blocks:
        block.attention.query.lora_kernel_b.assign(rng.normal(size=(2, M)))
    inputs, _, _ = example(V, "right")
    expected = to_numpy(model.backbone(inputs)["sequence_output"])
    model.save_adapter(tmp_path / "adapter")
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    rows = stored["base_model.model.transformer_encoder.0.qkv.lora_B.weight"].any(axis=1).reshape(3, 3, D)
    assert rows[:, 0].all() and not rows[:, 1:].any()
    adapted = TextEmbedder.from_preset(tmp_path)
    assert np.abs(to_numpy(adapted.backbone(inputs)["sequence_output"]) - expected).max() > 0.1
    adapted.load_adapter(tmp_path / "adapter")
    model.save_to_preset(tmp_path / "merged")
    for backbone in (adapted.backbone, Backbone.from_preset(tmp_path / "merged")):
        np.testing.assert_allclose(to_numpy(backbone(inputs)["sequence_output"]), expected, atol=1e-5)


# === Configs ===


def read(folder, **changes):
    (folder / "config.json").write_text(json.dumps(authors_config(**changes)))
    return NeoBert.from_preset(folder, load_weights=False).config


@pytest.mark.one_backend
def test_configs(tmp_path):
    config = read(tmp_path)
    assert (config.initializer_range, config.embedding_initializer_range) == (0.04, 0.03)
    for stored, width in ((57, 40), (60, 40), (61, 40), (3_072, 2_048), (100, 72)):
        assert read(tmp_path, intermediate_size=stored).feed_forward_dim == width
    stored = authors_config()
    for name in ("vocab_size", "max_length", "norm_eps"):
        del stored[name]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    config = NeoBert.from_preset(tmp_path, load_weights=False).config
    assert (config.vocabulary_size, config.max_length, config.norm_epsilon) == (32_064, 1_024, 1e-6)
    with pytest.raises(ValueError, match="`feed_forward_dim` must be a multiple of 8.* Received: 44"):
        NeoBertConfig(**{**TINY, "feed_forward_dim": 44})


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden_act", "gelu"), ("rms_norm", False), ("rope", False), ("ngpt", True), ("dropout", 0.1)],
)
def test_what_we_do_not_have_is_refused(name, value, tmp_path):
    with pytest.raises(ValueError, match=f"neobert only with {name}=.* {name}={value!r}"):
        read(tmp_path, **{name: value})


# === The encoder ===


@pytest.mark.one_backend
def test_the_size_has_the_parameters_of_the_released_model():
    def parameters(m, f, v, layers):
        return v * m + layers * (4 * m * m + 3 * m * f + 2 * m) + m

    config = NeoBertConfig(**SIZES["neobert"])
    m, v = config.hidden_dim, config.vocabulary_size
    encoder = parameters(m, config.feed_forward_dim, v, config.num_layers)
    assert (encoder, encoder + v * m + v) == (221_665_536, 245_136_954)
    assert NeoBert(NeoBertConfig(**TINY)).count_params() == parameters(M, F, V, 2)


@pytest.mark.one_backend
def test_weights_start_from_uniform_distributions():
    model = MaskedLM(NeoBert(NeoBertConfig(**TINY, initializer_range=0.1, embedding_initializer_range=0.3)))
    kernels = [model.masked_lm.dense.kernel, model.backbone.blocks[0].attention.key.kernel]
    for weight, limit in (*((kernel, 0.1) for kernel in kernels), (model.backbone.token_embedding.embeddings, 0.3)):
        largest = np.abs(to_numpy(weight)).max()
        assert 0.9 * limit < largest <= limit
    assert np.abs(to_numpy(model.backbone.token_embedding.embeddings)[0]).max() > 0  # the padding row, too


def test_neighboring_dimensions_are_rotated():
    """Position 3, 4 dimensions, theta 100: (0, 1) by 3, (2, 3) by 0.3."""
    rotation = PairRotation.at(np.array([[3]], "int32"), 4, 100.0)
    x = np.array([1.0, 0.0, 0.0, 2.0], "float32").reshape(1, 1, 1, 4)
    expected = [np.cos(3), np.sin(3), -2 * np.sin(0.3), 2 * np.cos(0.3)]
    np.testing.assert_allclose(to_numpy(rotation(x)).ravel(), expected, atol=1e-6)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(NeoBert(NeoBertConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: NeoBert(NeoBertConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(V, "right")
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    check_gradients(randomize(MaskedLM(NeoBert(NeoBertConfig(**{**TINY, "num_layers": 1})))), (x, labels))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(NeoBert(NeoBertConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)
