"""How long the first training step of 24 layers takes, against KerasHub: without a compilation cache, and with one.

    KERAS_BACKEND=jax python -m benchmarks.speed.compile_time --peer-python PYTHON_WITH_KERAS_HUB

Each run compiles the step anew and takes it once, on 2 rows of 16 tokens, so that next to nothing is computed. "warm"
reads what a run before has left in the persistent cache, which the pipelines switch on.
"""

from pathlib import Path

import numpy as np

from benchmarks.berts import SHAPE, keras_hub_masked_lm, write
from benchmarks.harness import Comparison, Contender, Work, compare, parser

DEEP = {**SHAPE, "num_layers": 24, "vocabulary_size": 1_000, "max_length": 64}
ROWS, LENGTH, SLOTS = 2, 16, 2


def prepare(folder: Path, options) -> None:
    write(folder / "model", "gelu_new", DEEP)


def batch() -> tuple:
    ids = np.random.default_rng(0).integers(200, 1_000, (ROWS, LENGTH), "int32")
    return ids, np.tile(np.array([3, 7], "int32"), (ROWS, 1)), ids[:, :SLOTS].copy()


def kerasbert(folder: Path) -> Work:
    from kerasbert.objectives import MaskedLM
    from kerasbert.training import adamw

    model = MaskedLM.from_preset(folder / "model")
    ids, slots, y = batch()
    x = {"token_ids": ids, "masked_positions": slots}

    def run() -> None:
        model.compile(adamw(learning_rate=1e-4))
        model.fit(x, y, batch_size=ROWS, verbose=0)

    return Work(run, {"logits": model.predict(x, verbose=0)}, tries=1)


def keras_hub(folder: Path) -> Work:
    import keras

    model = keras_hub_masked_lm(folder / "model")
    ids, slots, y = batch()
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": np.ones_like(ids), "mask_positions": slots}

    def run() -> None:
        model.compile(
            optimizer=keras.optimizers.AdamW(1e-4),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
        )
        model.fit(x, y, batch_size=ROWS, verbose=0)

    return Work(run, {"logits": model.predict(x, verbose=0)}, tries=1)


COLD = {"JAX_ENABLE_COMPILATION_CACHE": "false"}

if __name__ == "__main__":
    compare(
        "compile_time",
        prepare,
        {
            "kerasbert": Contender(kerasbert, environment=COLD),
            "kerasbert, warm": Contender(kerasbert),
            "keras-hub": Contender(keras_hub, peer=True, environment=COLD),
            "keras-hub, warm": Contender(keras_hub, peer=True),
        },
        [
            Comparison("kerasbert", "keras-hub", 2.0, tolerance=1e-3),
            Comparison("kerasbert, warm", "keras-hub, warm", None, tolerance=1e-3),
            Comparison("kerasbert, warm", "kerasbert", None, tolerance=1e-3),
        ],
        options=parser(__doc__.splitlines()[0]).parse_args(),
    )
