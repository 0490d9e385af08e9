"""The span boundary objective: the official head's numbers, the loss in closed form, folders, a loss that falls."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasbert
from kerasbert.checkpoints.tensor_files import TensorFiles
from kerasbert.data import ExampleBatches, Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM, SpanBoundary
from kerasbert.training import adamw
from tests.models.reference import randomize, to_numpy

TINY = dict(
    **dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=20, max_length=13),
    **dict(dropout=0.0, attention_dropout=0.0),
)


def objective(**options):
    return randomize(SpanBoundary(Bert(BertConfig(**TINY), pooler=False), **options), 0.3)


def batch(rows=4, seed=0):
    """Spans (3, 5) and (8, 8) of rows of twelve; the second row's first span has no boundary term."""
    rng = np.random.default_rng(seed)
    x = {
        "token_ids": rng.integers(0, 31, (rows, 12)).astype("int32"),
        "masked_positions": np.tile(np.array([3, 4, 5, 8, -1], "int32"), (rows, 1)),
        "span_left": np.tile(np.array([2, 2, 2, 7, -1], "int32"), (rows, 1)),
        "span_right": np.tile(np.array([6, 6, 6, 9, -1], "int32"), (rows, 1)),
        "span_offset": np.tile(np.array([0, 1, 2, 0, -1], "int32"), (rows, 1)),
    }
    for key in ("span_left", "span_right", "span_offset"):
        x[key][1, :3] = -1
    return x, rng.integers(0, 31, (rows, 5)).astype("int32")


def test_the_head_equals_the_official_one(repository):
    golden = load_file(repository / "tests" / "goldens" / "spanbert_sbo_head.safetensors")
    config = BertConfig(**{**TINY, "vocabulary_size": 37, "hidden_dim": 24})
    head = Bert(config, pooler=False).make_head("span_boundary", max_targets=10)
    states, targets = golden["hidden_states"], golden["targets"]
    boundaries, slots = golden["span_boundaries"], np.arange(3)

    def beside(side):
        vectors = np.stack([states[row, boundaries[row, slots, side]] for row in range(2)])
        return keras.ops.convert_to_tensor(vectors.repeat(10, axis=1))

    offsets = keras.ops.convert_to_tensor(np.tile(np.arange(10, dtype="int32"), (2, 3)))
    arguments = (beside(0), beside(1), offsets, keras.ops.convert_to_tensor(golden["param.decoder.weight"]))
    head(*arguments)
    head.position_embedding.embeddings.assign(golden["param.position_embeddings.weight"])
    for number in (0, 1):
        dense, norm = getattr(head, f"dense_{number}"), getattr(head, f"norm_{number}")
        dense.kernel.assign(golden[f"param.mlp_layer_norm.linear{number + 1}.weight"].T)
        dense.bias.assign(golden[f"param.mlp_layer_norm.linear{number + 1}.bias"])
        norm.gamma.assign(golden[f"param.mlp_layer_norm.layer_norm{number + 1}.gamma"])
        norm.beta.assign(golden[f"param.mlp_layer_norm.layer_norm{number + 1}.beta"])
    head.bias.assign(golden["param.bias"])
    logits = to_numpy(head(*arguments)).reshape(6, 10, 37)
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
    chosen = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    losses = -np.take_along_axis(chosen, targets.reshape(6, 10, 1), axis=-1)[..., 0]
    assert losses[targets.reshape(6, 10) > 0].sum() == pytest.approx(float(golden["loss_sum"][0]), rel=1e-5)


def test_loss_in_closed_form():
    model = objective(boundary_weight=0.5)
    x, y = batch()
    logits = {name: to_numpy(value) for name, value in model(x).items()}
    means = {}
    for name, used in (("tokens", x["masked_positions"] >= 0), ("boundary", x["span_offset"] >= 0)):
        scores = logits[name] - np.logaddexp.reduce(logits[name], axis=-1, keepdims=True)
        losses = -np.take_along_axis(scores, y[..., None], axis=-1)[..., 0]
        means[name] = losses[used].mean()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(means["tokens"] + 0.5 * means["boundary"], rel=1e-5)
    assert results["boundary_loss"] == pytest.approx(means["boundary"], rel=1e-5)
    used = {"tokens": x["masked_positions"] >= 0, "boundary": x["span_offset"] >= 0}
    weights = {name: array.astype("float32") for name, array in used.items()}
    again = model.evaluate(x, {"tokens": y, "boundary": y}, sample_weight=weights, verbose=0, return_dict=True)
    assert again == pytest.approx(results)


@pytest.mark.one_backend
def test_a_boundary_token_decides_and_the_span_does_not():
    """The second head sees the span only by way of its boundary's hidden states, and by the place in the span."""
    model = objective()
    x, _ = batch(rows=2)
    before = {name: to_numpy(value) for name, value in model(x).items()}
    moved = {**x, "span_left": x["span_left"] - (x["span_left"] > 0)}
    after = {name: to_numpy(value) for name, value in model(moved).items()}
    np.testing.assert_array_equal(before["tokens"], after["tokens"])
    assert np.abs(before["boundary"] - after["boundary"])[0, :4].min() > 0
    assert np.abs(before["boundary"][0, 0] - before["boundary"][0, 1]).max() > 1e-3


@pytest.mark.one_backend
def test_batches_without_boundary_terms_have_the_loss_of_the_tokens():
    model = objective()
    x, y = batch()
    for key in ("span_left", "span_right", "span_offset"):
        x[key][:] = -1
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(np.log(results["perplexity"]), rel=1e-5) and results["boundary_loss"] == 0


@pytest.mark.one_backend
def test_folders(tmp_path):
    """transformers loads the encoder and the first head, and finds nothing it does not know; we load all of it."""
    model = objective(max_targets=7)
    model.save_to_preset(tmp_path)
    names = set(TensorFiles(tmp_path).keys())
    settings = {name for name in names if name.startswith("kerasbert.")}
    assert len(settings) == 10
    again = kerasbert.load(tmp_path)
    assert type(again) is SpanBoundary and again.arguments() == model.arguments()
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs), err_msg=ours.path)
    x, _ = batch()
    found, expected = again(x), model(x)
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(to_numpy(found[name]), to_numpy(expected[name]))
    masked = MaskedLM.from_preset(tmp_path)
    # To rounding: MaskedLM computes the last block at the masked positions only, in products of other shapes.
    np.testing.assert_allclose(to_numpy(masked(x)), to_numpy(expected["tokens"]), rtol=1e-6, atol=1e-7)
    masked.save_to_preset(tmp_path)  # its folder has no second head any more
    assert set(TensorFiles(tmp_path).keys()) == names - settings


@pytest.mark.one_backend
def test_transformers_reads_the_folder(tmp_path):
    import torch
    import transformers

    model = objective()
    model.save_to_preset(tmp_path)
    theirs, report = transformers.BertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    x, _ = batch()
    with torch.no_grad():
        expected = theirs.eval()(torch.from_numpy(x["token_ids"].astype("int64"))).logits.numpy()[:, [3, 4, 5, 8]]
    np.testing.assert_allclose(to_numpy(model(x)["tokens"])[:, :4], expected, atol=1e-5)


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = objective()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    x, _ = batch()
    np.testing.assert_array_equal(to_numpy(again(x)["boundary"]), to_numpy(model(x)["boundary"]))


@pytest.mark.one_backend
def test_losses_fall():
    """Rows of one token each: what is masked stands at both ends of the span, too."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(3, 13, (800, 1))
    x, _ = batch(rows=800)
    x["token_ids"] = np.repeat(tokens, 12, axis=1).astype("int32")
    y = np.repeat(tokens, 5, axis=1).astype("int32")
    np.put_along_axis(x["token_ids"], x["masked_positions"][:, :4], 2, axis=1)
    model = SpanBoundary(Bert(BertConfig(**TINY, initializer_range=0.1), pooler=False))
    model.compile(adamw(1e-2, warmup=10, steps=100))
    model.fit(ExampleBatches(x, y, batch_size=8, shuffle=False), steps_per_epoch=100, verbose=0)
    x, y = {key: value[:200] for key, value in x.items()}, y[:200]
    results = model.evaluate(x, y, batch_size=200, verbose=0, return_dict=True)
    assert results["boundary_loss"] < 1.0 and np.log(results["perplexity"]) < 1.0
    assert results["boundary_accuracy"] > 0.6


@pytest.mark.one_backend
def test_texts_train_it():
    texts = ["the cat sat on the mat and the dog ran to the log"] * 8
    tokenizer = Tokenizer.train("wordpiece", texts, 40)
    model = SpanBoundary(
        Bert(BertConfig(**{**TINY, "vocabulary_size": tokenizer.vocabulary_size, "max_length": 20}), pooler=False),
        tokenizer=tokenizer,
    )
    history = model.fit(texts, batch_size=4, epochs=2, verbose=0).history
    assert len(history["boundary_loss"]) == 2 and history["boundary_loss"][0] > 0


@pytest.mark.one_backend
def test_bad_input():
    model = objective(max_targets=3)
    x, y = batch()
    with pytest.raises(ValueError, match="needs span_left"):
        model({key: value for key, value in x.items() if key != "span_left"})
    with pytest.raises(ValueError, match="`span_right` must be below 12"):
        model({**x, "span_right": x["span_right"] + 3})
    with pytest.raises(ValueError, match="the same `max_targets`"):
        model({**x, "span_offset": x["span_offset"] + 1})
    y[0, 0] = 31
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.raises(ValueError, match="Labels must be between"):
        model.evaluate(x, y, verbose=0)
