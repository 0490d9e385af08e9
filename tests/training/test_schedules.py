"""The learning rate at named updates."""

import keras
import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import Reranker, TextClassifier, TextEmbedder
from kerasbert.training import InverseSquareRoot, RootDecay, WarmupDecay, add_lora, fine_tuning_rate


def rate(schedule, step):
    return float(keras.ops.convert_to_numpy(schedule(keras.ops.convert_to_tensor(step, "int32"))))


def test_bert_official_code():
    """Numbers of the paper's run: 1e-4, 10,000 of 1,000,000 updates."""
    schedule = WarmupDecay(1e-4, 10_000, 1_000_000, decay_from="start")
    expected = {0: 0.0, 5_000: 5.0e-5, 9_999: 9.999e-5, 10_000: 9.90e-5, 500_000: 5.0e-5, 1_000_000: 0.0}
    for step, value in expected.items():
        assert rate(schedule, step) == pytest.approx(value, rel=1e-6, abs=1e-12)


@pytest.mark.one_backend
def test_decay_throughout():
    """ELECTRA-small, and GPT's factor in a run of 1,000 updates."""
    schedule = WarmupDecay(5e-4, 10_000, 1_000_000, decay_from="throughout")
    expected = {0: 0.0, 5_000: 2.4875e-4, 10_000: 4.95e-4, 500_000: 2.5e-4, 1_000_000: 0.0}
    assert {step: rate(schedule, step) for step in expected} == pytest.approx(expected, rel=1e-6, abs=1e-12)
    factor = WarmupDecay(1.0, 2, 1_000, decay_from="throughout")
    assert [rate(factor, step) for step in (0, 1, 2, 500)] == pytest.approx([0, 0.4995, 0.998, 0.5])


@pytest.mark.one_backend
@pytest.mark.parametrize("warmup, steps", [(0, 7), (3, 10), (10, 10), (1, 2)])
def test_linear_decay_is_that_of_transformers(warmup, steps):
    schedule = WarmupDecay(3e-4, warmup, steps)
    for step in range(steps + 5):
        factor = step / max(1, warmup) if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))
        assert rate(schedule, step) == pytest.approx(3e-4 * factor, rel=1e-6, abs=1e-12)


@pytest.mark.one_backend
def test_live_transformers():
    import torch
    import transformers

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    linear = transformers.get_linear_schedule_with_warmup(optimizer, 4, 20)
    schedule = WarmupDecay(0.5, 4, 20)
    for step in range(25):
        assert rate(schedule, step) == pytest.approx(linear.get_last_lr()[0], rel=1e-6)
        optimizer.step()
        linear.step()


@pytest.mark.one_backend
def test_power_and_final():
    schedule = WarmupDecay(1.0, 2, 12, power=2.0, final=0.1)
    assert rate(schedule, 1) == 0.5
    assert rate(schedule, 2) == pytest.approx(1.0)
    assert rate(schedule, 7) == pytest.approx(0.1 + 0.9 * 0.25)
    assert rate(schedule, 100) == pytest.approx(0.1)
    constant = WarmupDecay(1.0, 4, 8, final=1.0)
    assert [rate(constant, step) for step in (0, 2, 4, 6, 8, 99)] == [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.one_backend
def test_survives_serialization():
    schedule = WarmupDecay(1e-4, 10, 100, power=2.0, decay_from="start", final=1e-6)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert isinstance(restored, WarmupDecay) and restored.get_config() == schedule.get_config()
    assert restored.decay_from == "start" and restored.steps == 100


@pytest.mark.one_backend
def test_accepts_numpy_counts():
    assert WarmupDecay(1e-4, np.int64(3), np.int32(9)).get_config()["steps"] == 9


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((1e-4, 11, 10), "between 0 and `steps`"),
        ((1e-4, -1, 10), "between 0 and `steps`"),
        ((1e-4, 0, 0), "between 0 and `steps`"),
        ((1e-4, 0.1, 10), "must be an integer"),
        ((0.0, 1, 10), "above 0"),
        ((1e-4, 1, 10, 0.0), "above 0"),
        ((1e-4, 1, 10, 1.0, "end"), "decay_from"),
        ((1e-4, 5, 10, 1.0, 4), "decay_from"),
        ((1e-4, 1, 10, 1.0, "warmup", 0.0, "step"), "`shape` must be"),
    ],
)
@pytest.mark.one_backend
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupDecay(*arguments)


@pytest.mark.one_backend
def test_the_rate_of_the_transformer():
    schedule = InverseSquareRoot(512)
    for update, value in {1: 1.747e-7, 100: 1.747e-5, 4_000: 6.988e-4, 16_000: 3.494e-4, 100_000: 1.398e-4}.items():
        assert rate(schedule, update - 1) == pytest.approx(value, rel=5e-4)
    assert rate(InverseSquareRoot(1_024), 3_999) == pytest.approx(4.941e-4, rel=1e-4)
    twice = InverseSquareRoot(512, warmup=8_000, factor=2.0)
    assert rate(twice, 7_999) == pytest.approx(2 * (512 * 8_000) ** -0.5, rel=1e-5)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(twice))
    assert isinstance(restored, InverseSquareRoot) and restored.get_config() == twice.get_config()


@pytest.mark.parametrize("arguments", [(0,), (512, 0), (512, 0.5), (512, 10, 0.0)])
@pytest.mark.one_backend
def test_refuses_rates_that_are_none(arguments):
    with pytest.raises(ValueError, match="at least 1|must be an integer"):
        InverseSquareRoot(*arguments)


@pytest.mark.one_backend
def test_shapes_of_decay():
    cosine = WarmupDecay(2.5e-4, 2_000, 10_000, shape="cosine")  # GPT
    values = {1_000: 1.25e-4, 2_000: 2.5e-4, 4_000: 2.5e-4 * 0.8535534, 6_000: 1.25e-4, 10_000: 0.0}
    assert {step: rate(cosine, step) for step in values} == pytest.approx(values, rel=1e-5, abs=1e-11)
    # ModernBERT's sheet: a quarter into the decay the factor is .001 + .999 * .5.
    sqrt = WarmupDecay(1.0, 10, 1_000, decay_from=600, final=0.001, shape="sqrt")
    assert [rate(sqrt, step) for step in (5, 10, 300, 600)] == [0.5, 1.0, 1.0, 1.0]
    assert rate(sqrt, 700) == pytest.approx(0.5005) and rate(sqrt, 1_000) == pytest.approx(0.001)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(sqrt))
    assert rate(restored, 700) == pytest.approx(0.5005)


@pytest.mark.one_backend
def test_root_decay():
    t5 = RootDecay(0.01, 10_000, flat=True)
    values = {0: 0.01, 10_000: 0.01, 40_000: 0.005, 2**19: 0.0013811}
    assert {step: rate(t5, step) for step in values} == pytest.approx(values, rel=1e-4)
    xlm = RootDecay(1e-4, 4_000)
    values = {0: 0.0, 1_000: 2.5e-5, 4_000: 1e-4, 16_000: 5e-5}
    assert {step: rate(xlm, step) for step in values} == pytest.approx(values, rel=1e-5)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(t5))
    assert isinstance(restored, RootDecay) and restored.get_config() == t5.get_config()
    for arguments in ((0.0, 10), (0.1, 0), (0.1, 1.5)):
        with pytest.raises(ValueError, match="at least 1|must be an integer"):
            RootDecay(*arguments)


@pytest.mark.one_backend
def test_the_default_rate_of_tasks_goes_by_the_width():
    """Embedders and rerankers keep that of sentence-transformers."""
    rates = {width: fine_tuning_rate(width) for width in (256, 257, 512, 768, 769, 1_024)}
    assert rates == {256: 3e-4, 257: 1e-4, 512: 1e-4, 768: 5e-5, 769: 2e-5, 1_024: 2e-5}
    sizes = dict(num_layers=1, num_heads=1, feed_forward_dim=2, max_length=4)
    for width in (4, 260):
        model = TextClassifier(Bert(BertConfig(vocabulary_size=11, hidden_dim=width, **sizes)))
        model.compile()
        assert model.optimizer.schedule.peak == fine_tuning_rate(width)
        add_lora(model, rank=2)
        model.compile()
        assert model.optimizer.schedule.peak == 10 * fine_tuning_rate(width)
    assert TextEmbedder.default_learning_rate == Reranker.default_learning_rate == 5e-5
