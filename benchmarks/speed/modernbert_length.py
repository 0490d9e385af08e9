"""What a token costs in ModernBERT as rows grow from 512 to 8,192 tokens, against what its arithmetic says.

    KERAS_BACKEND=jax python -m benchmarks.speed.modernbert_length

Six layers of the base model, two of them global; 8,192 tokens a run. Local layers see 64 tokens on either side.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

LENGTHS, TOKENS, LAYERS, GLOBAL, WINDOW = (512, 2_048, 8_192), 8_192, 6, 2, 128
WIDTH, INNER = 768, 1_152


def prepare(folder: Path, options) -> None:
    ids = np.random.default_rng(0).integers(100, 1_000, TOKENS, "int32")
    np.save(folder / "ids.npy", ids)


def flops(length: int) -> float:
    """Of a run forward: the dense layers, and scores and sums over all keys or over those of the window."""
    dense = LAYERS * 2 * (4 * WIDTH**2 + 3 * WIDTH * INNER)
    keys = GLOBAL * length + (LAYERS - GLOBAL) * min(WINDOW + 1, length)
    return float(TOKENS * (dense + 4 * WIDTH * keys))


def rows_of(length: int):
    def make(folder: Path) -> Work:
        from kerasbert.models import ModernBert, ModernBertConfig

        config = ModernBertConfig(vocabulary_size=1_000, num_layers=LAYERS, max_length=max(LENGTHS))
        model = ModernBert(config)
        x = {"token_ids": np.load(folder / "ids.npy").reshape(-1, length)}
        return Work(lambda: model.predict_on_batch(x), units=TOKENS, flops=flops(length), notes={"length": length})

    return make


if __name__ == "__main__":
    compare(
        "modernbert_length",
        prepare,
        {f"{length} tokens": Contender(rows_of(length)) for length in LENGTHS},
        [
            Comparison(
                f"{length} tokens",
                f"{LENGTHS[0]} tokens",
                1.3 * flops(length) / flops(LENGTHS[0]),
                tolerance=None,
                what="cost",
            )
            for length in LENGTHS[1:]
        ],
        unit="tokens",
        options=parser(__doc__.splitlines()[0]).parse_args(),
    )
