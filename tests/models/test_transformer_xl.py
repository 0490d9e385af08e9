"""Transformer-XL against the authors' code and transformers 4, over several segments; its memory, its softmax."""

import functools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import kerasbert
from kerasbert.backend.compilation import compiled
from kerasbert.core.inputs import checked_inputs
from kerasbert.models import Backbone, TransformerXL, TransformerXLConfig
from kerasbert.models.transformer_xl import adaptive_softmax
from kerasbert.models.transformer_xl.transformer_xl import SIZES
from kerasbert.objectives import CausalLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import (
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    randomize,
    to_numpy,
)

FOLDER = Path(__file__).parent.parent / "goldens" / "transformer_xl"
OFFICIAL = sorted(path.stem.removeprefix("official_") for path in FOLDER.glob("official_*.safetensors"))
TINY = dict(
    vocabulary_size=61, num_layers=2, num_heads=3, head_dim=6, hidden_dim=24, feed_forward_dim=40, embedding_dim=16,
    cutoffs=(20, 40), embedding_divisor=2, memory_length=7, pad_id=4,
)  # fmt: skip


@functools.lru_cache
def program(model, **options):
    """A call of `model` compiled once a shape, which JAX and TensorFlow are much faster with."""
    run = compiled(lambda inputs: model(inputs, **options), lambda: model.weights)

    def checked(inputs):
        with checked_inputs():
            return run(inputs)

    return checked


def in_segments(backbone, ids, sizes, memory=None):
    """The outputs of segments of these sizes, with the memory of the ones before."""
    memory = backbone.empty_memory(len(ids)) if memory is None else memory
    found, start = [], 0
    for size in sizes:
        outputs = program(backbone)({"token_ids": ids[:, start : start + size], **memory})
        memory = {key: outputs[key] for key in memory}
        found.append(outputs)
        start += size
    return found


def sequence_outputs(*arguments, **options):
    return np.concatenate([outputs["sequence_output"] for outputs in in_segments(*arguments, **options)], axis=1)


def token_losses(model, x, labels):
    """Of the head alone, from hidden states: float (b, s)."""
    log_probabilities = to_numpy(model.causal_lm(x, model.backbone.token_table))
    np.testing.assert_allclose(np.exp(log_probabilities).sum(-1), 1, rtol=1e-5)
    return -np.take_along_axis(log_probabilities, labels[..., None], axis=-1)[..., 0]


# === The authors' code ===


def official_model(name, folder):
    """(model, tensors, sizes): a stored state of the authors' code, as a folder in the layout of transformers."""
    with safe_open(FOLDER / f"official_{name}.safetensors", "np") as file:
        sizes, tensors = json.loads(file.metadata()["config"]), {key: file.get_tensor(key) for key in file.keys()}
    stored = {key.removeprefix("param."): array for key, array in tensors.items() if key.startswith("param.")}
    for key in stored.keys() & {"crit.cluster_weight", "crit.cluster_bias"}:
        stored[key] = stored[key][::-1].copy()  # theirs reads the clusters' entries from the last one
    stored = {key if key.startswith("crit") else f"transformer.{key}": array for key, array in stored.items()}
    save_file(stored, folder / "model.safetensors")
    names = {"n_token": "vocab_size", "tie_projs": None, "tie_weight": None, "tgt_len": None, "segments": None}
    config = {names.get(key, key): value for key, value in sizes.items()}
    config |= {"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"], "untie_r": False}
    (folder / "config.json").write_text(json.dumps(config))
    return kerasbert.load(folder), tensors, sizes


@pytest.mark.parametrize("name", OFFICIAL)
def test_segments_equal_the_authors_code(name, tmp_path):
    model, tensors, sizes = official_model(name, tmp_path)
    ids = tensors["input_ids"].astype("int32")
    found = sequence_outputs(model.backbone, ids, [sizes["tgt_len"]] * sizes["segments"])
    np.testing.assert_allclose(found, tensors["hidden"], atol=1e-5)
    np.testing.assert_allclose(token_losses(model, found, ids[:, 1:]), tensors["loss"], atol=1e-5)


# === transformers 4 ===


@pytest.mark.one_backend
@pytest.mark.parametrize("name", ["clusters", "one_width", "shared", "one_softmax", "classifier"])
def test_segments_equal_transformers_both_ways(name, tmp_path):
    golden = load_file(FOLDER / name / "golden.safetensors")
    model = kerasbert.load(FOLDER / name)
    assert type(model) is (TextClassifier if name == "classifier" else CausalLM)
    # Theirs begins with a memory of zeros, which it attends to.
    memory = model.backbone.empty_memory(2)
    memory["memory_mask"] = keras.ops.ones_like(memory["memory_mask"])
    for number, outputs in enumerate(in_segments(model.backbone, golden["token_ids"], [4, 6], memory)):
        np.testing.assert_allclose(outputs["sequence_output"], golden[f"hidden_{number}"], atol=1e-5)
        if name == "classifier":
            logits = model.classifier(outputs)
        else:
            logits = model.causal_lm(outputs["sequence_output"], model.backbone.token_table)
        np.testing.assert_allclose(to_numpy(logits), golden[f"logits_{number}"], atol=1e-5, rtol=1e-5)
    model.save_to_preset(tmp_path)
    written, read = load_file(tmp_path / "model.safetensors"), load_file(FOLDER / name / "model.safetensors")
    for key in written:
        tolerance = 1e-3 if "inv_freq" in key else 0.0  # the stored ones are in half precision
        np.testing.assert_allclose(written[key], read[key].astype("float32"), rtol=tolerance, err_msg=key)
    left_out = read.keys() - written.keys()
    assert all(key.startswith(("crit.out_layers.", "crit.out_projs.")) for key in left_out), left_out
    theirs, ours = (json.loads((path / "config.json").read_text()) for path in (FOLDER / name, tmp_path))
    for key in theirs.keys() & ours.keys() - {"torch_dtype", "dtype"}:
        assert theirs[key] == ours[key], key
    assert kerasbert.load(tmp_path).backbone.config == model.backbone.config


@pytest.mark.one_backend
def test_what_we_do_not_have_is_refused(tmp_path):
    TransformerXL(TransformerXLConfig(**TINY)).save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "attn_type": 2}))
    with pytest.raises(ValueError, match="only with attn_type=0"):
        TransformerXL.from_preset(tmp_path)


# === Sizes and initial weights ===


def closed_form(config, head=True):
    m, f, width = config.hidden_dim, config.feed_forward_dim, config.num_heads * config.head_dim
    block = 5 * m * width + 2 * m * f + f + m + 4 * m
    biases = 2 * width * (config.num_layers if config.untied_biases else 1)
    clusters = len(config.cutoffs)
    sizes = config.clusters().tables
    total = config.num_layers * block + biases + sum(rows * columns for rows, columns in sizes)
    if config.clusters().projected:
        total += sum(m * columns for _, columns in sizes)
        if head:
            columns = [sizes[min(i, len(sizes) - 1)][1] for i in range(clusters + 1)]
            total += sum(m * c for c, tied in zip(columns, config.tied_projections, strict=True) if not tied)
    return total + (config.vocabulary_size + clusters * (config.embedding_dim + 1) if head else 0)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("transformer_xl_wikitext103", 151_107_538),
        ("transformer_xl_wikitext103_large", 285_170_506),
        ("transformer_xl_enwik8", 41_055_436),
        ("transformer_xl_enwik8_large", 277_231_820),
    ],
)
def test_sizes_are_those_of_the_authors_code(name, parameters):
    config = TransformerXLConfig(**SIZES[name])
    assert closed_form(config) == parameters
    assert config.num_heads * config.head_dim == config.hidden_dim


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [dict(), dict(embedding_divisor=1, untied_biases=True), dict(cutoffs=(), embedding_dim=24, embedding_divisor=1)],
)
def test_parameters_agree_with_the_closed_form(changes):
    config = TransformerXLConfig(**{**TINY, **changes})
    assert CausalLM(TransformerXL(config)).count_params() == closed_form(config)


@pytest.mark.one_backend
def test_initial_weights_are_those_of_the_authors_code():
    wide = dict(hidden_dim=192, embedding_dim=192, head_dim=64, feed_forward_dim=300, num_layers=1)
    model = CausalLM(TransformerXL(TransformerXLConfig(**{**TINY, **wide, "vocabulary_size": 600})))
    backbone, block = model.backbone, model.backbone.blocks[0]
    for weight, mean, std in (
        (block.attention.query.kernel, 0.0, 0.02),
        (block.attention.distance.kernel, 0.0, 0.02),
        (block.feed_forward.outer.kernel, 0.0, 0.02),
        (block.attention_norm.gamma, 1.0, 0.02),
        (backbone.biases[0], 0.0, 0.02),
        (backbone.token_embedding.tables[2], 0.0, 0.02),
        (backbone.token_embedding.projections[0], 0.0, 0.01),
        (model.causal_lm.projections[0], 0.0, 0.01),
    ):
        tolerance = 4 * std / weight.shape[0] ** 0.5 if len(weight.shape) == 1 else 0.1 * std
        assert abs(to_numpy(weight).std() - std) < tolerance and abs(to_numpy(weight).mean() - mean) < tolerance
    assert not to_numpy(block.feed_forward.inner.bias).any() and not to_numpy(model.causal_lm.biases[1]).any()


# === Memory ===


@pytest.fixture(scope="module")
def backbone():
    return randomize(TransformerXL(TransformerXLConfig(**{**TINY, "memory_length": 12})))


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(2).integers(5, 61, (2, 12)).astype("int32")


@pytest.mark.one_backend
def test_a_memory_of_all_that_was_equals_the_long_context(backbone, ids):
    whole = program(backbone)({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(sequence_outputs(backbone, ids, [5, 4, 3]), whole, atol=1e-5)


@pytest.mark.one_backend
def test_pre_norm_blocks_remember_what_is_not_normalized(ids):
    changes = dict(pre_norm=True, untied_biases=True, memory_length=12)
    backbone = randomize(TransformerXL(TransformerXLConfig(**{**TINY, **changes})))
    whole = program(backbone)({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(sequence_outputs(backbone, ids, [7, 5]), whole, atol=1e-5)


@pytest.mark.one_backend
def test_one_block_with_the_same_length_sees_the_last_keys_only(ids):
    """Worked example: memory 3, segments of 2, with a full memory rows 01110 and 00111."""
    config = {**TINY, "num_layers": 1, "memory_length": 3, "same_length": True}
    backbone = randomize(TransformerXL(TransformerXLConfig(**config)))
    memory = backbone.empty_memory(2)
    for start, expected in (
        (0, ["00010", "00011"]),
        (2, ["01110", "00111"]),
        (4, ["01110", "00111"]),
    ):
        outputs = program(backbone, attention_weights=True)({"token_ids": ids[:, start : start + 2], **memory})
        memory = {key: outputs[key] for key in memory}
        seen = outputs["attention_weights"][0][0, 0] > 0
        assert ["".join("01"[value] for value in row) for row in seen.astype(int)] == expected
    whole = program(backbone)({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(sequence_outputs(backbone, ids, [2] * 6), whole, atol=1e-5)


@pytest.mark.one_backend
def test_the_memory_holds_the_last_inputs_of_each_block(backbone, ids):
    outputs = in_segments(backbone, ids, [5])[0]
    states = program(backbone, hidden_states=True)({"token_ids": ids[:, :5]})["hidden_states"]
    for layer in range(2):
        np.testing.assert_allclose(outputs["memory"][:, layer, -5:], states[layer], atol=1e-5)
    assert outputs["memory_mask"].tolist() == [[False] * 7 + [True] * 5] * 2


@pytest.mark.one_backend
def test_padding_leaves_no_trace_in_the_memory(backbone, ids):
    """A row of 4 and then 3 tokens in segments padded to 6 and 5 equals one of 7 tokens."""
    expected = sequence_outputs(backbone, ids[:1], [4, 3])
    first, second = ids[:, :6].copy(), np.concatenate([ids[:, 4:7], ids[:, :2]], axis=1)
    run = program(backbone)
    outputs = run({"token_ids": first, "lengths": np.array([4, 6], "int32"), **backbone.empty_memory(2)})
    memory = {key: outputs[key] for key in ("memory", "memory_mask")}
    assert memory["memory_mask"].sum(axis=1).tolist() == [4, 6]
    again = run({"token_ids": second, "lengths": np.array([3, 3], "int32"), **memory})
    np.testing.assert_allclose(outputs["sequence_output"][:1, :4], expected[:, :4], atol=1e-5)
    np.testing.assert_allclose(again["sequence_output"][:1, :3], expected[:, 4:], atol=1e-5)


@pytest.mark.one_backend
def test_a_stream_that_starts_remembers_nothing(backbone, ids):
    memory = in_segments(backbone, ids, [4])[0]
    memory = {key: memory[key] for key in ("memory", "memory_mask")}
    inputs = {"token_ids": ids[:, 4:8], **memory}
    found = program(backbone)({**inputs, "stream_start": np.array([True, False])})["sequence_output"]
    alone = program(backbone)({"token_ids": ids[:, 4:8]})["sequence_output"]
    going = program(backbone)(inputs)["sequence_output"]
    np.testing.assert_allclose(found, np.stack([alone[0], going[1]]), atol=1e-6)
    assert np.abs(going[0] - alone[0]).max() > 1e-3


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda memory: {**memory, "memory": memory["memory"][:, :, 1:]}, r"float32\[2, 2, 12, 24\].*\[2, 2, 11, 24\]"),
        (lambda memory: {**memory, "memory": keras.ops.cast(memory["memory"], "float16")}, "Received: float16"),
        (lambda memory: {key: value[:1] for key, value in memory.items()}, r"Received: float32\[1, 2, 12, 24\]"),
        (lambda memory: {**memory, "memory_mask": np.ones((2, 12), "int32")}, "`memory_mask` must be bool"),
        (lambda memory: {"memory_mask": memory["memory_mask"]}, "Give both or neither"),
        (lambda memory: {**memory, "sequence_ids": np.ones((2, 3), "int32")}, "Packed rows"),
    ],
)
def test_a_memory_of_another_form_is_an_error(backbone, ids, change, message):
    with pytest.raises(ValueError, match=message):
        backbone({"token_ids": ids[:, :3], **change(backbone.empty_memory(2))})


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(cutoffs=(40, 20)), "`cutoffs` must be strictly increasing"),
        (dict(cutoffs=(61,)), "`cutoffs` must be strictly increasing"),
        (dict(tied_projections=(True,)), "an entry for each of 3 clusters"),
        (dict(embedding_dim=3), "at least embedding_divisor"),
        (dict(hidden_dim=25), "must be even"),
        (dict(same_length=True, memory_length=0), "Use same_length=False"),
    ],
)
def test_configs_that_make_no_sense_are_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLConfig(**{**TINY, **changes})


# === Invariances ===


@pytest.mark.one_backend
def test_invariances(backbone):
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_a_token_sees_nothing_behind_it(backbone, ids):
    changed = ids.copy()
    changed[:, 6:] = (changed[:, 6:] + 7) % 61
    found, other = (program(backbone)({"token_ids": rows})["sequence_output"] for rows in (ids, changed))
    np.testing.assert_array_equal(found[:, :6], other[:, :6])
    assert np.abs(found[:, 6:] - other[:, 6:]).max(axis=-1).min() > 1e-3


@pytest.mark.one_backend
def test_half_precision_is_finite():
    config = TransformerXLConfig(**{**TINY, "num_layers": 1, "cutoffs": (20,)})
    check_half_precision(lambda dtype: TransformerXL(config, dtype=dtype))


def test_every_weight_gets_a_gradient():
    """u meets every key of a query alike only if keys were alike; so it, too, gets one."""
    x = {"token_ids": np.random.default_rng(0).integers(0, 61, (2, 23)).astype("int32")}
    y = np.random.default_rng(1).integers(0, 61, (2, 23)).astype("int32")
    check_gradients(randomize(CausalLM(TransformerXL(TransformerXLConfig(**TINY, dropout=0.0)))), (x, y))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(CausalLM(TransformerXL(TransformerXLConfig(**TINY)))), tmp_path)


@pytest.mark.one_backend
def test_a_folder_may_be_evaluated_with_a_longer_memory():
    loaded = Backbone.from_preset(FOLDER / "one_width", memory_length=20, clamp_length=9, same_length=True)
    assert loaded.empty_memory(3)["memory"].shape == (3, 2, 20, 24)


# === The softmax in clusters ===


@pytest.mark.parametrize("changes", [dict(), dict(embedding_divisor=1, embedding_dim=24)])
def test_losses_by_clusters_equal_those_of_one_softmax_over_all_tokens(changes, monkeypatch):
    """The whole step of training in blocks of 8 tokens equals one through the log probabilities of all tokens."""
    monkeypatch.setattr(adaptive_softmax, "BLOCK", 8)
    monkeypatch.setattr(adaptive_softmax, "MOST_BLOCKS", 100)
    config = TransformerXLConfig(**{**TINY, **changes, "num_layers": 1, "dropout": 0.0})
    rng = np.random.default_rng(0)
    x = {"token_ids": rng.integers(0, 61, (2, 7)).astype("int32")}
    y = np.array([[3, 60, 19, 20, 0, 1, 2], [40, 5, 6, 7, 8, 9, 59]], "int32")
    models = [randomize(CausalLM(TransformerXL(config)), std=0.3) for _ in range(2)]
    results = []
    for model, metrics in zip(models, (None, [keras.metrics.SparseCategoricalAccuracy(name="exact")]), strict=True):
        model.compile(keras.optimizers.SGD(1.0), metrics=metrics)
        results.append(model.train_on_batch(x, y, return_dict=True))
    assert models[0].losses_alone and not models[1].losses_alone
    np.testing.assert_allclose(results[0]["loss"], results[1]["loss"], rtol=1e-5)
    for one, other in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5, err_msg=one.path)


@pytest.mark.one_backend
def test_a_block_without_rare_tokens_asks_no_cluster_of_them():
    model = randomize(CausalLM(TransformerXL(TransformerXLConfig(**TINY))))
    x = np.random.default_rng(0).normal(size=(2, 6, 24)).astype("float32")
    labels = np.arange(12, dtype="int32").reshape(2, 6)
    losses, hits = (to_numpy(part) for part in model.causal_lm(x, model.backbone.token_table, labels=labels))
    np.testing.assert_allclose(losses, token_losses(model, x, labels), atol=1e-5)
    expected = to_numpy(model.causal_lm(x, model.backbone.token_table)).argmax(-1) == labels
    assert (hits <= expected).all()  # step by step never finds more
    # With another tail, nothing changes, not even by a not-a-number.
    model.backbone.token_embedding.tables[2].assign(np.full((21, 4), np.nan))
    again, _ = model.causal_lm(x, model.backbone.token_table, labels=labels)
    np.testing.assert_array_equal(to_numpy(again), losses)
