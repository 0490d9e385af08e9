"""Evaluation of Transformer-XL with its memory, against the same network over a window that moves token by token.

    KERAS_BACKEND=jax python -m benchmarks.speed.transformer_xl_evaluation

Dai et al. 2019 (arXiv 1901.02860, table 9): a model without memory must compute a whole window for every token if each
is to see as much as possible; one with memory computes each token once. Attention lengths are half memory, half
segment. As long as the text fits into one window both must predict the same.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

LENGTHS = (128, 384, 640)
ROWS, WINDOWS, SEGMENTS = 4, 1, 4
VOCABULARY = 2_000


def make_model(memory_length: int):
    from kerasbert.backend import seed_everything
    from kerasbert.models import TransformerXL, TransformerXLConfig
    from kerasbert.objectives import CausalLM

    seed_everything(0)
    sizes = dict(num_layers=4, num_heads=4, hidden_dim=256, head_dim=64, feed_forward_dim=1_024, embedding_dim=256)
    return CausalLM(
        TransformerXL(
            TransformerXLConfig(
                **sizes, vocabulary_size=VOCABULARY, cutoffs=(), clamp_length=None, memory_length=memory_length
            )
        )
    )


def prepare(folder: Path, options) -> None:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, (SEGMENTS + 2) * max(LENGTHS)), "int32")
    np.save(folder / "ids.npy", ids)
    make_model(LENGTHS[0] // 2).backbone.save_weights(folder / "shared.weights.h5")


def loaded(folder: Path, memory_length: int) -> tuple:
    model = make_model(memory_length)
    model.backbone.load_weights(folder / "shared.weights.h5")
    return model, np.load(folder / "ids.npy")


def with_memory(length: int):
    def make(folder: Path) -> Work:
        model, ids = loaded(folder, length // 2)
        size = length // 2

        def segment(number: int) -> np.ndarray:
            first = np.full(ROWS, number == 0)
            return model.predict_on_batch(
                {"token_ids": ids[:, number * size : (number + 1) * size], "stream_start": first}
            )

        def run() -> np.ndarray:
            return [segment(number)[:, -1] for number in range(SEGMENTS)]

        return Work(run, {"logits": run()[1]}, units=ROWS * SEGMENTS * size)

    return make


def with_window(length: int):
    def make(folder: Path) -> Work:
        model, ids = loaded(folder, 0)
        last = np.full((ROWS, 1), length - 1, "int32")

        def run() -> np.ndarray:
            windows = (ids[:, start : start + length] for start in range(WINDOWS))
            return [model.predict_on_batch({"token_ids": x, "masked_positions": last})[:, 0] for x in windows]

        return Work(run, {"logits": run()[0]}, units=ROWS * WINDOWS)

    return make


CONTENDERS, COMPARISONS = {}, []
for _length in LENGTHS:
    CONTENDERS[f"memory, {_length}"] = Contender(with_memory(_length))
    CONTENDERS[f"window, {_length}"] = Contender(with_window(_length))
    _goal = 50.0 if _length == 640 else None
    COMPARISONS.append(Comparison(f"memory, {_length}", f"window, {_length}", _goal, tolerance=1e-3))

if __name__ == "__main__":
    options = parser(__doc__.splitlines()[0]).parse_args()
    compare("transformer_xl_evaluation", prepare, CONTENDERS, COMPARISONS, unit="tokens", options=options)
