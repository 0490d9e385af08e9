"""How long small encoders take: the batches and the rate."""

import numpy as np
import pytest

from benchmarks.studies.shipped_models import hours
from kerasbert.models import ModernBert, ModernBertConfig
from kerasbert.objectives import MaskedLM

pytestmark = pytest.mark.one_backend


def test_targets_are_the_tokens_at_different_positions():
    x, y = hours.batch(50, 0)
    positions = x["masked_positions"]
    assert positions.shape == y.shape == (hours.ROWS, hours.MASKED)
    assert (np.diff(positions, axis=1) > 0).all() and positions.max() < hours.LENGTH
    np.testing.assert_array_equal(y[3], x["token_ids"][3][positions[3]])


def test_the_rate_is_that_of_the_timed_updates(monkeypatch):
    """Seven updates, each of which takes two ticks of a clock: 2,048 tokens in 2 seconds."""
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(hours.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(MaskedLM, "train_on_batch", lambda *_: None)
    sizes = dict(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=128)
    assert hours.rate(MaskedLM(ModernBert(ModernBertConfig(**sizes))), updates=2) == 1024.0
