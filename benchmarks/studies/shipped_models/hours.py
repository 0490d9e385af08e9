"""How long small encoders take to read ten million words ten times: a table, before anything is trained.

    KERAS_BACKEND=torch python -m benchmarks.studies.shipped_models.hours

ModernBERTs of about 5, 8 and 12 million weights with the vocabulary of `modernbert_mini_en`, trained by masked language
modeling on rows of 128 random tokens, 16 in a batch, with masks of 30%, in bfloat16, as in the recipes of the shipped
models. The rate is the median of --updates updates after five others. TOKENS is what ten passes over ten million words
come to, with 1.3 tokens per word.
"""

import statistics
import time

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import numpy as np
import tyro

from kerasbert.models import ModernBert, ModernBertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.training import adamw

TOKENS = 10 * 13_000_000
ROWS, LENGTH, MASKED = 16, 128, 38
FIRST = 5  # updates that are not timed
SIZES = (
    dict(num_layers=6, hidden_dim=256, num_heads=4, feed_forward_dim=384),
    dict(num_layers=8, hidden_dim=288, num_heads=6, feed_forward_dim=416),
    dict(num_layers=10, hidden_dim=336, num_heads=7, feed_forward_dim=480),
)


def batch(vocabulary: int, seed: int) -> tuple:
    random = np.random.default_rng(seed)
    ids = random.integers(5, vocabulary, (ROWS, LENGTH), dtype="int32")
    positions = np.sort(random.permuted(np.tile(np.arange(LENGTH), (ROWS, 1)), axis=1)[:, :MASKED], axis=1)
    x = {"token_ids": ids, "masked_positions": positions.astype("int32")}
    return x, np.take_along_axis(ids, positions, axis=1)


def rate(model: MaskedLM, updates: int) -> float:
    """Tokens per second of training."""
    model.compile(adamw(1e-3, 10, 1_000))
    seconds = []
    for number in range(FIRST + updates):
        x, y = batch(model.backbone.config.vocabulary_size, number)
        begin = time.perf_counter()
        model.train_on_batch(x, y)
        seconds.append(time.perf_counter() - begin)
    return ROWS * LENGTH / statistics.median(seconds[FIRST:])


def main(updates: int = 20) -> None:
    """Prints the table.

    Args:
        updates: timed updates of each size.
    """
    print("| weights | layers | width | tokens per second | hours |\n|---|---|---|---|---|")
    for size in SIZES:
        config = ModernBertConfig(vocabulary_size=8_192, max_length=LENGTH, **size)
        model = MaskedLM(ModernBert(config, dtype="mixed_bfloat16"))
        found = rate(model, updates)
        weights = f"{model.count_params() / 1e6:.1f} M"
        hours = f"{TOKENS / found / 3600:.0f}"
        cells = [weights, config.num_layers, config.hidden_dim, f"{found:,.0f}", hours]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    tyro.cli(main)
