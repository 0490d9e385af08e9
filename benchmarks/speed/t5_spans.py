"""Speed of T5's span corruption, beside the published algorithm, row by row.

    python -m benchmarks.speed.t5_spans

One core, 128 rows of 568 tokens, 15% noise, spans of 3 (encoder 512, decoder 114). Ours includes the drawing of random
numbers; "whole batches" reads a corpus as well. The row-by-row algorithm is that of the reference: shuffled boundary
indicators, segment numbers, a mask, and sentinels by cumulative sums, written here in plain numpy. Both are run in
turns and the medians compared; packing a million lengths is timed as well. Prints a table, then JSON.
"""

import json
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"

import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from kerasbert.data import Corpus, DenoisingBatches, Tokenizer  # noqa: E402
from kerasbert.data.corpus.bin_packing import pack  # noqa: E402
from kerasbert.data.noise.denoising import OBJECTIVES, Denoising  # noqa: E402
from kerasbert.data.sampling import DYNAMIC, row_draws  # noqa: E402

ROWS, LENGTH, SENTINEL, END = 128, 568, 32099, 1
ROUNDS, SECONDS = 15, 0.1


def main() -> None:
    token_ids = np.random.default_rng(0).integers(3, 31_000, (ROWS, LENGTH), dtype=np.int32)
    lengths = np.full(ROWS, LENGTH)
    denoising = {
        name: Denoising(name, sentinels=range(SENTINEL, SENTINEL - 100, -1), vocabulary=(3, SENTINEL + 1))
        for name in OBJECTIVES
    }

    def corrupt(name: str) -> Callable[[int], object]:
        rule = denoising[name]
        draws = rule.num_draws(LENGTH)
        return lambda step: rule(token_ids, lengths, row_draws(0, step, DYNAMIC, 0, ROWS, draws))

    generator = np.random.default_rng(1)
    contenders = {f"kerasbert, {name}": corrupt(name) for name in OBJECTIVES}
    contenders["row by row, random_spans"] = lambda step: [corrupted(row, 0.15, 3.0, generator) for row in token_ids]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus.write(Path(folder) / "corpus", *_text())
        batches = DenoisingBatches(corpus, ROWS, 512, steps=1 << 40)
        contenders["kerasbert, whole batches"] = lambda step: batches[step]
        speeds = {name: [] for name in contenders}
        for number in range(ROUNDS):
            for name in list(contenders)[:: 1 if number % 2 == 0 else -1]:
                speeds[name].append(_tokens_per_second(contenders[name]))
    medians = {name: float(np.median(values)) for name, values in speeds.items()}
    print(f"{f'one core, {ROWS} x {LENGTH}':32} {'median':>8} {'lowest':>8} {'highest':>8}  Mtokens/s")
    for name, values in speeds.items():
        print(f"{name:32} {medians[name] / 1e6:8.2f} {min(values) / 1e6:8.2f} {max(values) / 1e6:8.2f}")
    times = medians["kerasbert, random_spans"] / medians["row by row, random_spans"]
    packing = _packing()
    print(f"kerasbert / row by row: {times:.1f}")
    print(f"packing 1,000,000 lengths: {packing['microseconds']:.3f} us each, rows {packing['fill']:.2%} full")
    result = {"mtokens_per_second": {name: round(value / 1e6, 2) for name, value in medians.items()}}
    print(json.dumps({**result, "times_row_by_row": round(times, 1), "packing": packing, "numpy": np.__version__}))


def corrupted(tokens: np.ndarray, rate: float, mean_span: float, random: np.random.Generator) -> tuple:
    """The reference's algorithm for one row."""
    length = len(tokens)
    noise = min(max(int(np.round(np.float32(length) * np.float32(rate))), 1), length - 1)
    spans = max(int(np.round(np.float32(noise) / np.float32(mean_span))), 1)

    def segments(items: int) -> np.ndarray:
        first = np.arange(items - 1) < spans - 1
        random.shuffle(first)
        return np.bincount(np.cumsum(np.append(0, first)), minlength=spans)

    interleaved = np.stack([segments(length - noise), segments(noise)], axis=1).reshape(-1)
    starts = np.cumsum(interleaved)[:-1]
    indicator = np.zeros(length, dtype=np.int8)
    indicator[starts] = 1
    mask = np.cumsum(indicator) % 2 == 1
    return _with_sentinels(tokens, mask), _with_sentinels(tokens, ~mask)


def _with_sentinels(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    before = np.append(False, mask[:-1])
    first, later = mask & ~before, mask & before
    rendered = np.where(first, SENTINEL + 1 - np.cumsum(first), tokens)
    return np.append(rendered[~later], END)


def _packing() -> dict:
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 0.8, 1_000_000).astype(int), 3, 512)
    spent = []
    for _ in range(3):
        start = time.process_time()
        _, starts = pack(lengths, 512)
        spent.append(time.process_time() - start)
    return {"microseconds": round(min(spent), 4), "fill": round(float(lengths.sum() / (len(starts) - 1) / 512), 5)}


def _text() -> tuple[list[str], Tokenizer]:
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(random.choice(letters, random.integers(2, 9))) for _ in range(2000)]
    documents = ["\n".join(" ".join(random.choice(words, 20)) for _ in range(100)) for _ in range(60)]
    return documents, Tokenizer.train("unigram", documents, 600, family="t5")


def _tokens_per_second(contender: Callable[[int], object]) -> float:
    contender(0)
    steps, start = 0, time.process_time()  # what other programs take of the core does not count
    while (spent := time.process_time() - start) < SECONDS:
        contender(steps)
        steps += 1
    return steps * ROWS * LENGTH / spent


if __name__ == "__main__":
    main()
