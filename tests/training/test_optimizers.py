"""AdamW against a numpy reference and against torch; what it excludes, clips, accumulates and saves."""

import keras
import numpy as np
import pytest

from kerasbert.training import LossScale, TransformerAdamW, WarmupDecay, adamw

SHAPES = {"kernel": (5, 3), "bias": (3,)}


def gradients(steps, seed=0):
    generator = np.random.default_rng(seed)
    return [{n: generator.normal(size=s).astype("float32") for n, s in SHAPES.items()} for _ in range(steps)]


def variables():
    generator = np.random.default_rng(9)
    return {n: keras.Variable(generator.normal(size=s).astype("float32"), name=n) for n, s in SHAPES.items()}


def run(optimizer, steps):
    """The variables after every update."""
    held, history = variables(), []
    optimizer.build(list(held.values()))
    for gradient in steps:
        optimizer.apply([keras.ops.convert_to_tensor(gradient[name]) for name in held])
        history.append({name: np.array(keras.ops.convert_to_numpy(v)) for name, v in held.items()})
    return history


def reference(steps, rates, decay=0.01, epsilon=1e-6, clip=None, correct=True, beta_1=0.9, beta_2=0.999):
    """AdamW in float64: Algorithm 2 of Loshchilov and Hutter, or BERT's, which does not correct the bias."""
    values = {name: keras.ops.convert_to_numpy(v).astype("float64") for name, v in variables().items()}
    mean, square = ({name: np.zeros(s) for name, s in SHAPES.items()} for _ in range(2))
    history = []
    for t, (gradient, rate) in enumerate(zip(steps, rates, strict=True), start=1):
        norm = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in gradient.values()))
        for name, g in gradient.items():
            g = g.astype("float64") * (min(1.0, clip / norm) if clip else 1.0)
            mean[name] = beta_1 * mean[name] + (1 - beta_1) * g
            square[name] = beta_2 * square[name] + (1 - beta_2) * g**2
            m, s = mean[name], square[name]
            if correct:
                m, s = m / (1 - beta_1**t), s / (1 - beta_2**t)
            step = m / (np.sqrt(s) + epsilon) + (decay * values[name] if name != "bias" else 0.0)
            values[name] = values[name] - rate * step
        history.append(dict(values))
    return history


def assert_same(found, expected, tolerance=2e-6):
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for name in SHAPES:
            np.testing.assert_allclose(
                ours[name], theirs[name], rtol=tolerance, atol=tolerance, err_msg=f"{step} {name}"
            )


@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_equals_the_formula(correct, epsilon):
    steps = gradients(20)
    optimizer = adamw(0.01, bias_correction=correct, epsilon=epsilon, clip_norm=None)
    assert_same(run(optimizer, steps), reference(steps, [0.01] * 20, epsilon=epsilon, correct=correct))


def test_any_order_in_memory():
    """Weights and gradients that lie column by column, as transposed ones do on torch."""
    steps = gradients(3)
    held = {n: keras.Variable(np.asfortranarray(keras.ops.convert_to_numpy(v)), name=n) for n, v in variables().items()}
    optimizer = adamw(0.01, clip_norm=None)
    optimizer.build(list(held.values()))
    for step in steps:
        columns = [keras.ops.transpose(keras.ops.convert_to_tensor(np.ascontiguousarray(g.T))) for g in step.values()]
        optimizer.apply(columns)
    found = {name: keras.ops.convert_to_numpy(v) for name, v in held.items()}
    assert_same([found], reference(steps, [0.01] * 3)[-1:])


def test_schedule_and_clipping():
    steps = gradients(12)
    rates = [0.02 * x for x in (0, 1 / 3, 2 / 3, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0, 0)]
    found = run(adamw(0.02, warmup=3, steps=10, clip_norm=0.5), steps)
    assert_same(found, reference(steps, rates, clip=0.5))
    first = {name: keras.ops.convert_to_numpy(v) for name, v in variables().items()}
    np.testing.assert_array_equal(found[0]["kernel"], first["kernel"])  # the rate of update 0 is 0


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_equals_torch(epsilon):
    import torch

    steps = gradients(30)
    held = {name: torch.nn.Parameter(torch.tensor(keras.ops.convert_to_numpy(v))) for name, v in variables().items()}
    groups = [{"params": [held["kernel"]]}, {"params": [held["bias"]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, eps=epsilon, weight_decay=0.05)
    expected = []
    for gradient in steps:
        for name, parameter in held.items():
            parameter.grad = torch.tensor(gradient[name])
        torch.nn.utils.clip_grad_norm_(held.values(), 1.0)
        optimizer.step()
        expected.append({name: parameter.detach().numpy().copy() for name, parameter in held.items()})
    assert_same(run(adamw(0.01, weight_decay=0.05, epsilon=epsilon), steps), expected)


def test_accumulation_is_the_mean_and_counts_updates():
    steps = gradients(9)
    means = [{n: np.mean([s[n] for s in steps[i : i + 3]], axis=0) for n in SHAPES} for i in (0, 3, 6)]
    optimizer = adamw(0.02, warmup=2, steps=4, clip_norm=0.5, accumulation=3)
    found = run(optimizer, steps)
    assert_same(found[2::3], reference(means, [0.0, 0.01, 0.02], clip=0.5))
    np.testing.assert_array_equal(found[3]["kernel"], found[4]["kernel"])  # nothing moves between updates
    assert float(keras.ops.convert_to_numpy(optimizer.learning_rate)) == pytest.approx(0.01)  # of update 3


def decayed(optimizer, model):
    """Names of the variables that a zero gradient and a rate of 1 shrink."""
    optimizer.build(model.trainable_variables)
    before = [np.array(keras.ops.convert_to_numpy(v)) + 1.0 for v in model.trainable_variables]
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    optimizer.apply([keras.ops.zeros(v.shape) for v in model.trainable_variables])
    after = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    return {v.name for v, a, b in zip(model.trainable_variables, before, after, strict=True) if not np.allclose(a, b)}


def test_norms_and_biases_are_not_decayed(tiny):
    assert decayed(adamw(1.0, weight_decay=0.5), tiny.build_model()) == {"embeddings", "kernel"}


@pytest.mark.parametrize("way", ["config", "serialize", "get"])
@pytest.mark.one_backend
def test_exclusions_survive_serialization(tiny, way):
    optimizer = adamw(1.0, weight_decay=0.5, no_decay=("bias", "^embedding[^/]*/"), bias_correction=False)
    if way == "config":
        restored = TransformerAdamW.from_config(optimizer.get_config())
    elif way == "serialize":
        restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    else:
        restored = keras.optimizers.get(keras.optimizers.serialize(optimizer))
    assert type(restored) is TransformerAdamW and restored.bias_correction is False
    assert restored.get_config() == optimizer.get_config()
    assert decayed(restored, tiny.build_model()) == {"gamma", "beta", "kernel"}


@pytest.mark.one_backend
def test_survives_a_keras_file(tiny, tmp_path):
    model = tiny.build_model(adamw(1e-3, warmup=2, steps=8, weight_decay=0.3, no_decay=("kernel",)))
    tiny.train(model, 0, 4)
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(restored.optimizer, TransformerAdamW) and restored.optimizer.no_decay == ("kernel",)
    assert isinstance(restored.optimizer.get_config()["learning_rate"], dict)
    for x, y in zip(model.optimizer.variables, restored.optimizer.variables, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(x), keras.ops.convert_to_numpy(y))


@pytest.mark.one_backend
def test_exclude_from_weight_decay_is_saved(tiny):
    model = tiny.build_model()
    optimizer = adamw(1.0, weight_decay=0.5)
    kernel = next(v for v in model.trainable_variables if v.name == "kernel")
    optimizer.exclude_from_weight_decay([kernel], ["bias"])
    restored = TransformerAdamW.from_config(optimizer.get_config())
    assert decayed(restored, model) == {"embeddings", "gamma", "beta"}


@pytest.mark.one_backend
def test_everything_excluded_and_no_decay(tiny):
    assert decayed(adamw(1.0, no_decay=(".",)), tiny.build_model()) == set()
    assert decayed(adamw(1.0, weight_decay=0.0), tiny.build_model()) == set()


@pytest.mark.parametrize("clip_norm", [0.5, 1e3])
def test_clipping_leaves_the_gradients_that_are_given(clip_norm):
    steps = gradients(1)
    given = {name: keras.ops.convert_to_tensor(gradient) for name, gradient in steps[0].items()}
    optimizer = adamw(0.01, clip_norm=clip_norm)
    optimizer.build(list(variables().values()))
    clipped = optimizer._clip_gradients(list(given.values()))
    norm = np.sqrt(sum((gradient**2).sum() for gradient in steps[0].values()))
    for before, after, gradient in zip(given.values(), clipped, gradients(1)[0].values(), strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(before), gradient)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(after), gradient * min(1, clip_norm / norm), rtol=1e-6)


def test_repeated_rows_count_in_the_norm():
    """An embedding whose rows repeat in a batch is clipped by the norm of the summed gradient, on every backend."""
    layer = keras.layers.Embedding(5, 3)
    model = keras.Sequential([keras.Input((4,), dtype="int32"), layer])
    model.compile(adamw(1.0, clip_norm=1e-3, epsilon=1.0, weight_decay=0.0), "mse")
    before = np.array(layer.get_weights()[0])
    x = np.array([[1, 1, 1, 2]], "int32")
    y = np.zeros((1, 4, 3), "float32")
    model.fit(x, y, verbose=0)
    gradient = np.zeros_like(before)
    np.add.at(gradient, x[0], 2 * before[x[0]] / 12)
    clipped = gradient * 1e-3 / np.sqrt((gradient**2).sum())
    expected = before - clipped / (np.abs(clipped) + 1.0)
    np.testing.assert_allclose(layer.get_weights()[0], expected, atol=1e-7)


def test_float16_skips_overflows(tiny):
    """Every loss scale that is too large costs one step and is halved; nothing that is not finite arrives."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = tiny.build_model(LossScale(adamw(0.01, warmup=2, steps=30), initial_scale=2.0**20))
    finally:
        keras.config.set_dtype_policy(policy)
    history = tiny.train(model, 0, 40, epoch=10).history["loss"]
    inner = model.optimizer.inner_optimizer
    assert isinstance(inner, TransformerAdamW)
    assert history[-1] < history[0]
    assert all(np.isfinite(x).all() for x in tiny.state(model))
    scale = float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale))
    assert int(keras.ops.convert_to_numpy(inner.iterations)) == 40 - np.log2(2.0**20 / scale)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(model.optimizer))
    assert type(restored) is LossScale and restored.inner_optimizer.no_decay == inner.no_decay


def test_bfloat16_variables_stay_close():
    steps = gradients(300)
    held = keras.Variable(np.zeros((5, 3)), dtype="bfloat16", name="kernel")
    optimizer = adamw(1e-3, weight_decay=0.0, clip_norm=None)
    optimizer.build([held])
    for gradient in steps[:5]:
        optimizer.apply([keras.ops.convert_to_tensor(gradient["kernel"])])
    expected = reference(steps[:5], [1e-3] * 5, decay=0.0)[-1]["kernel"]
    start = keras.ops.convert_to_numpy(variables()["kernel"])
    found = keras.ops.convert_to_numpy(keras.ops.cast(held, "float32"))
    np.testing.assert_allclose(found, expected - start, atol=1e-4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(learning_rate=1e-4, warmup=11, steps=10), "between 0 and `steps`"),
        (dict(learning_rate=1e-4, warmup=11), "needs `steps`"),
        (dict(learning_rate=WarmupDecay(1e-4, 1, 10), steps=10), "one or the other"),
        (dict(learning_rate=1e-4, accumulation=0), "at least 1"),
        (dict(learning_rate=1e-4, weight_decay=-0.01), "at least 0, or weights would grow"),
        (dict(learning_rate=1e-4, amsgrad=True), "amsgrad"),
    ],
)
@pytest.mark.one_backend
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        adamw(**arguments)


def blocks():
    """Variables of a model with two blocks, by path."""
    names = {"tiny/token_embedding/embeddings", "tiny/block_0/kernel", "tiny/block_1/kernel", "tiny/pooler/kernel"}
    held, depths = {}, {"tiny/token_embedding/embeddings": 0, "tiny/block_0/kernel": 1, "tiny/block_1/kernel": 2}
    for path in sorted(names | {"classifier/dense/kernel"}):
        held[path] = keras.Variable(np.ones((2, 2), "float32"), name=path.rpartition("/")[2])
        held[path]._path = path
        held[path].block_depth = depths.get(path)
    return held


def moved(optimizer, updates):
    """How far each variable went in each update, over the rate."""
    held, history = blocks(), []
    optimizer.build(list(held.values()))
    for _ in range(updates):
        before = {path: keras.ops.convert_to_numpy(v).copy() for path, v in held.items()}
        optimizer.apply([keras.ops.ones((2, 2)) for _ in held])
        after = {path: keras.ops.convert_to_numpy(v) for path, v in held.items()}
        history.append({path: float((before[path] - after[path]).mean()) / 1e-2 for path in held})
    return history


def test_rates_by_layer_are_electras():
    optimizer = adamw(1e-2, weight_decay=0.0, clip_norm=None, layer_decay=0.8)
    (step,) = moved(optimizer, 1)
    expected = {
        "tiny/token_embedding/embeddings": 0.8**4, "tiny/block_0/kernel": 0.8**3, "tiny/block_1/kernel": 0.8**2,
        "tiny/pooler/kernel": 1.0, "classifier/dense/kernel": 1.0,
    }  # fmt: skip
    assert step == pytest.approx(expected, rel=1e-4)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert moved(again, 1)[0] == pytest.approx(expected, rel=1e-4)
    # The decay follows the rate: with gradients of one, a step is factor * (1 + 0.5 * 1).
    decayed = moved(adamw(1e-2, weight_decay=0.5, clip_norm=None, layer_decay=0.8), 1)[0]
    assert decayed == pytest.approx({path: 1.5 * factor for path, factor in expected.items()}, rel=1e-2)


def test_gradual_unfreezing_and_factors_by_path():
    history = moved(adamw(1e-2, weight_decay=0.1, clip_norm=None, unfreeze_every=2), 7)
    first = {path: next(i for i, step in enumerate(history) if step[path] > 0) for path in history[0]}
    assert first == {
        "classifier/dense/kernel": 0, "tiny/pooler/kernel": 0, "tiny/block_1/kernel": 2, "tiny/block_0/kernel": 4,
        "tiny/token_embedding/embeddings": 6,
    }  # fmt: skip
    (step,) = moved(adamw(1e-2, weight_decay=0.0, clip_norm=None, rate_factors={"^tiny/": 0.1}), 1)
    assert step["classifier/dense/kernel"] == pytest.approx(1.0, rel=1e-4)
    assert all(step[path] == pytest.approx(0.1, rel=1e-4) for path in step if path.startswith("tiny/"))
    with pytest.raises(ValueError, match="`layer_decay` must be above 0"):
        adamw(1e-2, layer_decay=0)
    with pytest.raises(ValueError, match="at least 1 update"):
        adamw(1e-2, unfreeze_every=0)
