"""LAMB, Adafactor and StableAdamW against the numbers of the papers' codes, and against numpy."""

import keras
import numpy as np
import pytest

from kerasbert.training import StableAdamW, TransformerAdafactor, TransformerLamb, WarmupDecay


def numbers(variable):
    return np.array(keras.ops.convert_to_numpy(variable))


def variable(value, name="kernel"):
    return keras.Variable(np.asarray(value, "float32"), name=name)


def apply(optimizer, variables, gradients):
    optimizer.build(variables)
    optimizer.apply([keras.ops.convert_to_tensor(np.asarray(g, "float32")) for g in gradients])


def test_adafactor_of_t5():
    w = variable([0.3, -0.4])
    optimizer = TransformerAdafactor(0.01)
    apply(optimizer, [w], [[0.1, -0.2]])
    np.testing.assert_allclose(numbers(w), [0.296464, -0.396464], atol=1e-6)
    apply(optimizer, [w], [[0.3, 0.1]])
    np.testing.assert_allclose(numbers(w), [0.292077, -0.398757], atol=1e-6)


def test_adafactor_factors_the_two_largest_dimensions():
    generator = np.random.default_rng(0)
    shape, rate = (5, 3, 6), 0.02
    start = generator.normal(size=shape)
    w, expected = variable(start), start.copy()
    optimizer = TransformerAdafactor(rate, min_factored=4)
    rows, columns = np.zeros((5, 3)), np.zeros((3, 6))
    for step in range(1, 4):
        gradient = generator.normal(size=shape)
        apply(optimizer, [w], [gradient])
        kept = 1 - step**-0.8
        rows = kept * rows + (1 - kept) * (gradient**2).mean(axis=2)
        columns = kept * columns + (1 - kept) * (gradient**2).mean(axis=0)
        v = rows[:, :, None] * columns[None] / rows.mean(axis=0)[None, :, None]
        u = gradient / np.sqrt(v)
        u = u / max(1.0, np.sqrt((u**2).mean()))
        expected = expected - rate * np.sqrt((expected**2).mean()) * u
    np.testing.assert_allclose(numbers(w), expected, rtol=2e-5, atol=1e-6)
    assert sorted(tuple(v.shape) for v in optimizer.variables if len(v.shape) == 2) == [(3, 6), (5, 3)]
    assert not any(tuple(v.shape) == shape for v in optimizer.variables), "no moment has the size of the weights"
    whole = TransformerAdafactor(rate)
    whole.build([variable(start)])
    assert any(tuple(v.shape) == shape for v in whole.variables), "below 128 it is not factored"


def test_lamb_of_albert():
    generator = np.random.default_rng(1)
    values = {"kernel": generator.normal(size=(4, 3)), "bias": generator.normal(size=3)}
    held = {name: variable(value, name) for name, value in values.items()}
    optimizer = TransformerLamb(WarmupDecay(0.02, 1, 10, decay_from="start"))
    m, v = ({name: np.zeros_like(value) for name, value in values.items()} for _ in range(2))
    for rate in (0.0, 0.018, 0.016):
        gradients = {name: generator.normal(size=value.shape) for name, value in values.items()}
        apply(optimizer, list(held.values()), list(gradients.values()))
        for name, gradient in gradients.items():
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient**2
            u = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name == "kernel":  # norms and biases have no decay, and the ratio 1
                u = u + 0.01 * values[name]
                u = u * np.linalg.norm(values[name]) / np.linalg.norm(u)
            values[name] = values[name] - rate * u
    for name, value in values.items():
        np.testing.assert_allclose(numbers(held[name]), value, rtol=2e-5, atol=1e-6)


def test_stable_adamw_of_modernbert():
    w = variable([1.0])
    optimizer = StableAdamW(0.1, weight_decay=0.0)
    apply(optimizer, [w], [[2.0]])
    assert numbers(w)[0] == pytest.approx(0.9, abs=1e-6)
    apply(optimizer, [w], [[20.0]])
    assert numbers(w)[0] == pytest.approx(0.842632, abs=1e-5)


def test_the_decay_of_stable_adamw_is_a_share_a_step():
    held = [variable([1.0]), variable([1.0], "bias")]
    optimizer = StableAdamW(WarmupDecay(0.1, 0, 10, decay_from=2), weight_decay=0.5)
    for share in (0.5, 0.25, 0.125, 0.125 * (1 - 0.5 * 7 / 8)):
        apply(optimizer, held, [[0.0], [0.0]])
        assert numbers(held[0])[0] == pytest.approx(share, rel=1e-6)
    assert numbers(held[1])[0] == 1.0
    with pytest.raises(ValueError, match="`peak` must be given, because the schedule ExponentialDecay has no"):
        StableAdamW(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))


@pytest.mark.parametrize("cls", [TransformerLamb, TransformerAdafactor, StableAdamW])
def test_they_survive_serialization_and_count_updates(cls):
    schedule = WarmupDecay(0.4, 0, 4)
    optimizer = cls(schedule, gradient_accumulation_steps=2, layer_decay=0.5, no_decay=["kernel$"])
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is cls and restored.get_config() == optimizer.get_config()
    held = [variable([1.0, 2.0], "kernel")]
    held[0].block_depth = 1
    for _ in range(4):  # two updates
        apply(restored, held, [[1.0, -1.0]])
    assert float(numbers(restored.learning_rate)) == pytest.approx(0.2)
    assert np.abs(numbers(held[0]) - [1.0, 2.0]).min() > 1e-3
