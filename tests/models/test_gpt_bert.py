"""GPT-BERT against a forward pass in torch on the official names of weights, both ways; causal rows; invariances."""

import json

import numpy as np
import pytest

import kerasbert
from kerasbert.layers.disentangled import distances_in_use
from kerasbert.models import Backbone, GPTBert, GPTBertConfig
from kerasbert.models.gpt_bert import SIZES
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import TextClassifier
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

SIZE = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40)
TINY = dict(**SIZE, max_length=64, distance_buckets=8)
THEIR_CONFIG = dict(vocab_size=61, num_hidden_layers=2, num_attention_heads=3, hidden_size=24, intermediate_size=40)
THEIR_CONFIG |= dict(max_position_embeddings=64, position_bucket_size=8, hidden_dropout_prob=0.3, layer_norm_eps=1e-7)


# === The reference ===


def official_shapes(config, labels=None):
    """{official name: shape} of all weights of a language model, or of a classifier."""
    v, m, f = config["vocab_size"], config["hidden_size"], config["intermediate_size"]
    shapes = {"embedding.word_embedding.weight": (v, m)}
    shapes["embedding.relative_embedding"] = (2 * config["position_bucket_size"] - 1, m)
    shapes |= {f"embedding.relative_layer_norm.{leaf}": (m,) for leaf in ("weight", "bias")}
    for i in range(config["num_hidden_layers"]):
        for name, width in (("in_proj_qk", 2 * m), ("in_proj_vg", 2 * m), ("out_proj", m)):
            shapes |= {f"transformer.attention_layers.{i}.{name}.weight": (width, m)}
            shapes |= {f"transformer.attention_layers.{i}.{name}.bias": (width,)}
        shapes |= {f"transformer.mlp_layers.{i}.mlp.1.weight": (2 * f, m)}
        shapes |= {f"transformer.mlp_layers.{i}.mlp.4.weight": (m, f)}
        shapes |= {f"transformer.dwa_modules.alphas.{j}": (j + 2,) for j in (2 * i, 2 * i + 1)}
    head, outputs = ("classifier", v) if labels is None else ("head", labels)
    shapes |= {f"{head}.nonlinearity.1.weight": (m, m), f"{head}.nonlinearity.1.bias": (m,)}
    return shapes | {f"{head}.nonlinearity.5.weight": (outputs, m), f"{head}.nonlinearity.5.bias": (outputs,)}


def official_folder(folder, labels=None, **changes):
    """Writes config.json and pytorch_model.bin with weights from N(0, 0.3), and returns config and weights."""
    import torch

    config = {**THEIR_CONFIG, **changes}  # the released ones have no model type, and this architecture
    generator = torch.Generator().manual_seed(0)
    shapes = official_shapes(config, labels)
    state = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
    if labels is None:
        state["classifier.nonlinearity.5.weight"] = state["embedding.word_embedding.weight"]
    folder.mkdir(exist_ok=True)
    buffers = {f"transformer.attention_layers.{i}.position_indices": official_rows(config) for i in range(2)}
    torch.save({**state, **buffers}, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LtgbertFoCausalLM"]}))
    return config, state


def official_rows(config, length=None):
    """int64 (s, s), the row of the table of distances for each query and key."""
    import torch

    buckets, positions = config["position_bucket_size"], config["max_position_embeddings"]
    places = torch.arange(length or positions)
    distance = (places[:, None] - places[None]).clamp(1 - positions, positions - 1)
    half = buckets // 2
    far = (distance.abs().clamp(min=half) / half).log() / np.log((positions - 1) / half)
    far = (far * (half - 1)).ceil().long().clamp(max=half - 1) + half
    return torch.where(distance.abs() <= half, distance, distance.sign() * far) + buckets - 1


def official_forward(state, config, ids, allowed, attention=None):
    """The outputs of the last layer, (b, s, m), for a bool mask (b, s, s) that is True where attention is allowed."""
    import torch
    from torch.nn.functional import gelu, layer_norm, linear

    def norm(x):
        return layer_norm(x, x.shape[-1:], eps=config["layer_norm_eps"])

    def heads(x):
        return x.unflatten(-1, (config["num_attention_heads"], -1)).transpose(-2, -3)

    x = norm(state["embedding.word_embedding.weight"][torch.tensor(ids).long()])
    affine = [state[f"embedding.relative_layer_norm.{leaf}"] for leaf in ("weight", "bias")]
    table = layer_norm(state["embedding.relative_embedding"], x.shape[-1:], *affine, config["layer_norm_eps"])
    rows, states, outputs = official_rows(config, ids.shape[1]), [x], [x]
    mask = torch.tensor(allowed)[:, None]

    def average(j):
        return sum(a * h for a, h in zip(state[f"transformer.dwa_modules.alphas.{j}"], states, strict=True))

    for i in range(config["num_hidden_layers"]):
        layer = f"transformer.attention_layers.{i}"
        qk, vg, out = (
            [state[f"{layer}.{name}.{leaf}"] for leaf in ("weight", "bias")]
            for name in ("in_proj_qk", "in_proj_vg", "out_proj")
        )
        q, k = (heads(part) for part in linear(norm(x), *qk).chunk(2, -1))
        qr, kr = (heads(part)[:, rows] for part in linear(table, *qk).chunk(2, -1))
        v, g = linear(norm(x), *vg).chunk(2, -1)
        scores = q @ k.transpose(-1, -2)
        scores = scores + torch.einsum("bhqd,hqkd->bhqk", q, kr) + torch.einsum("bhkd,hqkd->bhqk", k, qr)
        scores = (scores / (3 * q.shape[-1]) ** 0.5).masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1).masked_fill(~mask, 0.0)
        if attention is not None:
            attention.append(weights)
        y = (weights @ heads(v)).transpose(1, 2).flatten(2)
        states.append(x + linear(norm(y * gelu(g)), *out))
        x = average(2 * i)
        a, b = linear(norm(x), state[f"transformer.mlp_layers.{i}.mlp.1.weight"]).chunk(2, -1)
        y = linear(norm(a * gelu(b, approximate="tanh")), state[f"transformer.mlp_layers.{i}.mlp.4.weight"])
        states.append(x + y)
        x = average(2 * i + 1)
        outputs.append(x)
    return outputs


def official_head(state, config, x, name="classifier"):
    from torch.nn.functional import gelu, layer_norm, linear

    first, last = ([state[f"{name}.nonlinearity.{n}.{leaf}"] for leaf in ("weight", "bias")] for n in (1, 5))
    x = gelu(linear(layer_norm(x, x.shape[-1:], eps=config["layer_norm_eps"]), *first))
    return linear(layer_norm(x, x.shape[-1:], eps=config["layer_norm_eps"]), *last).numpy()


def both_kinds():
    """A batch of 21 tokens whose row 0 is causal and whose row 1 is not and ends in 6 pads, and its mask."""
    ids, real = np.random.default_rng(0).integers(4, 61, (2, 21)).astype("int32"), np.ones((2, 21), bool)
    real[1, 15:] = False
    allowed = np.stack([np.tri(21, dtype=bool), np.broadcast_to(real[1], (21, 21))])
    return {"token_ids": ids, "padding_mask": real, "causal_rows": np.array([True, False])}, allowed, real


# === Parity ===


@pytest.mark.parametrize("longest", [pytest.param(64, marks=pytest.mark.one_backend), 16])
def test_both_kinds_of_rows_equal_the_official_network(longest, tmp_path):
    """With 16, most distances share the last bucket, and rows are longer than `max_length`."""
    config, state = official_folder(tmp_path, max_position_embeddings=longest)
    x, allowed, real = both_kinds()
    attention = []
    expected = official_forward(state, config, x["token_ids"], allowed, attention)
    found = GPTBert.from_preset(tmp_path)(x, hidden_states=True, attention_weights=True)
    for one, other in zip(found["hidden_states"], expected, strict=True):
        np.testing.assert_allclose(to_numpy(one)[real], other.numpy()[real], atol=1e-5, rtol=1e-5)
    for one, other in zip(found["attention_weights"], attention, strict=True):
        np.testing.assert_allclose(np.moveaxis(to_numpy(one), 1, 2)[real], other.movedim(1, 2).numpy()[real], atol=1e-5)
    # As a masked language model, a token is predicted from the output of the token before it.
    model, logits = MaskedLM.from_preset(tmp_path), official_head(state, config, expected[-1])
    slots = np.array([[3, 20, -1], [14, 1, 7]], "int32")
    some = model.predict_on_batch({**x, "masked_positions": slots})
    for row, column in np.argwhere(slots >= 0):
        np.testing.assert_allclose(some[row, column], logits[row, slots[row, column] - 1], atol=3e-5, rtol=1e-5)


@pytest.mark.one_backend
def test_the_same_weights_are_a_masked_and_a_causal_language_model(tmp_path):
    config, state = official_folder(tmp_path)
    (x, _, _), everything = both_kinds(), np.ones((2, 21, 21), bool)
    x = {"token_ids": x["token_ids"]}
    for cls, allowed in ((MaskedLM, everything), (CausalLM, everything & np.tri(21, dtype=bool))):
        expected = official_head(state, config, official_forward(state, config, x["token_ids"], allowed)[-1])
        found = to_numpy(cls.from_preset(tmp_path)(x))
        if cls is MaskedLM:
            found = found[:, 1:]
        np.testing.assert_allclose(found, expected[:, : found.shape[1]], atol=3e-5, rtol=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize("cls", [Backbone, MaskedLM, CausalLM, TextClassifier])
def test_official_files_both_ways(cls, tmp_path):
    import torch
    from safetensors.torch import load_file

    labels = 5 if cls is TextClassifier else None
    config, state = official_folder(tmp_path / "theirs", labels)
    options = dict(labels=list("abcde")) if labels else {}
    model = (GPTBert if cls is Backbone else cls).from_preset(tmp_path / "theirs", **options)
    model.save_to_preset(tmp_path / "ours")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    for i in range(2):
        rows = written.pop(f"transformer.attention_layers.{i}.position_indices")
        assert rows.dtype == torch.int64 and torch.equal(rows, official_rows(config))
    if not labels:
        del state["classifier.nonlinearity.5.weight"]  # tied
    if cls is Backbone:
        state = {name: array for name, array in state.items() if not name.startswith("classifier.")}
    assert written.keys() == state.keys()
    assert all(torch.equal(written[name], state[name]) for name in state)
    stored = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert {**stored, **config} == stored and stored["model_type"] == "gpt_bert"
    assert type(kerasbert.load(tmp_path / "ours")) is type(model)
    if cls is CausalLM:
        assert type(kerasbert.load(tmp_path / "theirs")) is CausalLM
    if labels:
        x, _, _ = both_kinds()
        outputs = official_forward(state, config, x["token_ids"], np.ones((2, 21, 21), bool))[-1]
        expected = official_head(state, config, outputs[:, 0], "head")
        np.testing.assert_allclose(to_numpy(model({"token_ids": x["token_ids"]})), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.one_backend
def test_other_files(tmp_path):
    """Names with the prefix of a wrapper; buckets that differ from those of the config."""
    from safetensors.torch import save_file

    config, state = official_folder(tmp_path / "theirs")
    (tmp_path / "wrapped").mkdir()
    (tmp_path / "wrapped" / "config.json").write_text(json.dumps({**config, "model_type": "gpt_bert"}))
    save_file({f"model.{name}": array.clone() for name, array in state.items()}, tmp_path / "wrapped/model.safetensors")
    x = {"token_ids": both_kinds()[0]["token_ids"]}
    expected = to_numpy(MaskedLM.from_preset(tmp_path / "theirs")(x))
    np.testing.assert_array_equal(to_numpy(MaskedLM.from_preset(tmp_path / "wrapped")(x)), expected)
    state["classifier.nonlinearity.5.weight"] = state["embedding.word_embedding.weight"].clone()
    state["transformer.attention_layers.1.position_indices"] = official_rows(config).flip(0)
    save_file(state, tmp_path / "wrapped/model.safetensors")
    with pytest.raises(ValueError, match="contradicts the config: transformer.attention_layers.1.position_indices"):
        MaskedLM.from_preset(tmp_path / "wrapped")


# === Distances, sizes, weights ===


@pytest.mark.one_backend
def test_buckets_of_the_worked_example():
    rows, last = GPTBertConfig().distance_rows(), 31
    limit = len(rows) // 2
    found = {d: int(rows[min(d, limit) + limit]) - last for d in (15, 16, 17, 18, 20, 24, 32, 64, 128, 256, 511)}
    expected = [15, 16, 17, 17, 17, 18, 20, 23, 26, 29, 31]
    assert list(found.values()) == expected and rows[limit] == last
    assert [last - int(rows[max(-d, -limit) + limit]) for d in found] == expected
    config = dict(position_bucket_size=32, max_position_embeddings=512)
    table = official_rows(config).numpy()
    assert (table[511, 0], table[0, 511], table[7, 7]) == (62, 0, 31)
    distances = np.arange(512)[:, None] - np.arange(512)
    np.testing.assert_array_equal(table, rows[np.clip(distances, -limit, limit) + limit])


@pytest.mark.one_backend
def test_sizes_have_the_parameters_of_the_released_models():
    def count(config):
        m, f, layers = config.hidden_dim, config.feed_forward_dim, config.num_layers
        tables = (config.vocabulary_size + 2 * config.distance_buckets - 1) * m + 2 * m
        averages = sum(range(2, 2 * layers + 2))
        return tables + layers * (5 * (m * m + m) + 3 * m * f) + averages

    for size, expected in (("gpt_bert_small", 29_892_164), ("gpt_bert_base", 119_454_532)):
        config = GPTBertConfig(**SIZES[size])
        head = config.hidden_dim**2 + config.hidden_dim + config.vocabulary_size
        assert count(config) + head == expected
    config = GPTBertConfig(**TINY)
    assert GPTBert(config).count_params() == count(config)


@pytest.mark.one_backend
def test_initial_weights():
    model = MaskedLM(GPTBert(GPTBertConfig(**{**TINY, "hidden_dim": 96, "feed_forward_dim": 160})))
    sigma, truncated = (2 / (5 * 96)) ** 0.5, 0.8796  # the standard deviation after truncation at two
    for variable in model.weights:
        value = to_numpy(variable)
        if variable.path.endswith(("kernel", "embeddings")):
            factor = 1.0
            if "feed_forward" in variable.path:
                factor = 0.5**0.5 if "feed_forward_0" in variable.path else 0.5
            # Keras on torch exceeds two standard deviations in about four of a million draws.
            assert (abs(value) > 2 * sigma * factor).mean() < 1e-3, variable.path
            np.testing.assert_allclose(value.std(), truncated * sigma * factor, rtol=0.05, err_msg=variable.path)
        elif variable.path.endswith("alphas"):
            assert value.tolist() == [0.0] * (len(value) - 1) + [1.0]
        elif variable.path.endswith(("bias", "beta")):
            assert not value.any()
    x = {"token_ids": both_kinds()[0]["token_ids"]}
    states = model.backbone(x, hidden_states=True)["hidden_states"]
    attention, _, feed_forward, _ = model.backbone.blocks[0]
    used, rows = distances_in_use(model.backbone.config.distance_rows(), 21)
    distances = (model.backbone.distance_norm(model.backbone.distance_embedding(used)), rows)
    plain, _ = feed_forward(attention(states[0], distances=distances)[0])  # the averages change nothing
    np.testing.assert_allclose(to_numpy(states[1]), to_numpy(plain), atol=1e-6)


# === Rows ===


def test_the_cache_gives_what_the_whole_text_gives():
    """In pieces of 4, 1 and 3 tokens, behind padding on the left in one row, with distances that share a bucket."""
    model = randomize(CausalLM(GPTBert(GPTBertConfig(**{**TINY, "max_length": 7, "causal": True, "pad_id": None}))))
    ids = np.random.default_rng(0).integers(0, 61, (2, 8)).astype("int32")
    real = np.arange(8) >= np.array([[0], [2]])
    whole = to_numpy(model.backbone({"token_ids": ids, "padding_mask": real})["sequence_output"])
    cache, parts = model.backbone.empty_cache(2, 13), []
    for start, stop in ((0, 4), (4, 5), (5, 8)):
        outputs = model.backbone({"token_ids": ids[:, start:stop], "padding_mask": real[:, start:stop]}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1)[real], whole[real], atol=1e-5)
    for row, answer in zip((ids[0], ids[1, :3]), model.generate([ids[0], ids[1, :3]], max_new_tokens=5), strict=True):
        logits = to_numpy(model({"token_ids": answer[None]}))[0]
        assert answer[: len(row)].tolist() == row.tolist()
        assert answer[len(row) :].tolist() == logits[len(row) - 1 : -1].argmax(-1).tolist()


@pytest.mark.one_backend
def test_causal_rows_do_not_see_later_tokens():
    backbone = randomize(GPTBert(GPTBertConfig(**TINY)))
    x, _, _ = both_kinds()
    x = {"token_ids": x["token_ids"], "causal_rows": x["causal_rows"]}
    before = to_numpy(backbone(x)["sequence_output"])
    changed = x["token_ids"].copy()
    changed[:, 9] = 5
    after = to_numpy(backbone({**x, "token_ids": changed})["sequence_output"])
    moved = np.abs(after - before).max(axis=-1) > 1e-6
    assert moved[0].tolist() == [column >= 9 for column in range(21)] and moved[1].all()
    causal = GPTBert(GPTBertConfig(**TINY, causal=True))
    causal.set_weights(backbone.get_weights())
    np.testing.assert_allclose(to_numpy(causal({"token_ids": changed})["sequence_output"])[0], after[0], atol=1e-6)
    np.testing.assert_allclose(to_numpy(causal({**x, "token_ids": changed})["sequence_output"]), after, atol=1e-6)


@pytest.mark.one_backend
def test_tokens_are_predicted_within_their_sequence():
    """In packed rows and next to padding, the first token of a sequence is predicted from its own output."""
    model = randomize(MaskedLM(GPTBert(GPTBertConfig(**TINY))))
    ids = both_kinds()[0]["token_ids"][:1]
    sequences = np.array([[1] * 5 + [2] * 9 + [0] * 7], "int32")
    packed = {"token_ids": ids, "sequence_ids": sequences, "masked_positions": np.array([[0, 4, 5, 6, -1]], "int32")}
    outputs = to_numpy(model.masked_lm(model.backbone(packed)["sequence_output"], model.backbone.token_table))[0]
    expected = outputs[[0, 3, 5, 5, 0]]
    np.testing.assert_allclose(to_numpy(model(packed))[0], expected, atol=1e-5)
    left = {"token_ids": ids, "padding_mask": np.arange(21)[None] >= 4}
    outputs = to_numpy(model.masked_lm(model.backbone(left)["sequence_output"], model.backbone.token_table))[0]
    np.testing.assert_allclose(to_numpy(model(left))[0, 4:], outputs[[4, *range(4, 20)]], atol=1e-5)


@pytest.mark.one_backend
def test_invariances():
    for causal in (False, True):
        backbone = randomize(GPTBert(GPTBertConfig(**TINY, causal=causal)))
        check_batch_invariance(backbone)
        check_padding_invariance(backbone, left=True)
        check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: GPTBert(GPTBertConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = both_kinds()
    config = GPTBertConfig(**TINY, dropout=0.0, attention_dropout=0.0)
    x = {**x, "masked_positions": np.array([[1, 4, 9], [2, -1, 14]], "int32")}
    check_gradients(randomize(MaskedLM(GPTBert(config))), (x, np.array([[5, 60, 1], [7, 0, 3]], "int32")))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(GPTBert(GPTBertConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)


@pytest.mark.one_backend
def test_bad_input():
    with pytest.raises(ValueError, match="multiple of `num_heads`. Received: hidden_dim=25, num_heads=3"):
        GPTBertConfig(**{**TINY, "hidden_dim": 25})
    with pytest.raises(ValueError, match="Half of `distance_buckets`.*distance_buckets=8, max_length=5"):
        GPTBertConfig(**{**TINY, "max_length": 5})
    with pytest.raises(ValueError, match=r"`causal_rows` must have the shape \(b\)"):
        GPTBert(GPTBertConfig(**TINY))({"token_ids": np.full((2, 4), 5, "int32"), "causal_rows": np.ones((2, 4), bool)})
    inputs, _, _ = example(61, "none")
    with pytest.raises(ValueError, match="Add `first_positions`"):
        TextClassifier(GPTBert(GPTBertConfig(**TINY)))({**inputs, "sequence_ids": np.ones((2, 11), "int32")})
