"""What `fit` adds to a bare loop over the same compiled step: 4 layers of 256, 16 rows of 32 tokens.

    KERAS_BACKEND=jax python -m benchmarks.speed.fit_overhead

Two processes train the same model in turns. `fit` makes its batches, checks them, and reports.
"""

from pathlib import Path

import numpy as np

from benchmarks.berts import SHAPE, write
from benchmarks.harness import Comparison, Contender, Work, compare, parser

ROWS, LENGTH, SLOTS, STEPS = 16, 32, 5, 20


def prepare(folder: Path, options) -> None:
    write(folder / "model")


def model_and_data(folder: Path) -> tuple:
    from kerasbert.objectives import MaskedLM
    from kerasbert.training import adamw

    model = MaskedLM.from_preset(folder / "model")
    model.compile(adamw(learning_rate=1e-5))
    random = np.random.default_rng(0)
    ids = random.integers(1_000, SHAPE["vocabulary_size"], (ROWS * STEPS, LENGTH), "int32")
    slots = np.tile(np.arange(SLOTS, dtype="int32") * 6, (len(ids), 1))
    return model, {"token_ids": ids, "masked_positions": slots}, ids[:, :SLOTS].copy()


def by_fit(folder: Path) -> Work:
    model, x, y = model_and_data(folder)
    return Work(lambda: model.fit(x, y, batch_size=ROWS, verbose=0), units=STEPS)


def by_loop(folder: Path) -> Work:
    import keras

    model, x, y = model_and_data(folder)
    model.fit({key: array[:ROWS] for key, array in x.items()}, y[:ROWS], batch_size=ROWS, verbose=0)
    batches = []
    for start in range(0, len(y), ROWS):
        rows = slice(start, start + ROWS)
        batches.append(({key: array[rows] for key, array in x.items()}, y[rows]))
    step = model.train_function

    def run() -> None:
        if keras.backend.backend() != "jax":
            for batch in batches:
                logs = step(iter([batch]))
            float(logs["loss"])
            return
        owners = (model, model, model.optimizer, model)
        names = ("trainable_variables", "non_trainable_variables", "variables", "metrics_variables")
        variables = [getattr(owner, name) for owner, name in zip(owners, names, strict=True)]
        state = tuple([variable.value for variable in group] for group in variables)
        for batch in batches:
            logs, state = step(state, iter([batch]))
        float(logs["loss"])
        for group, values in zip(variables, state, strict=True):
            for variable, value in zip(group, values, strict=True):
                variable.assign(value)

    return Work(run, units=STEPS)


if __name__ == "__main__":
    compare(
        "fit_overhead",
        prepare,
        {"fit": Contender(by_fit), "bare loop": Contender(by_loop)},
        [Comparison("fit", "bare loop", 1.02, tolerance=None, what="cost")],
        unit="steps",
        options=parser(__doc__.splitlines()[0]).parse_args(),
    )
