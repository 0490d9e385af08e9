"""What a sharded checkpoint costs a run: time between reports with one, and without.

    KERAS_BACKEND=jax python -m benchmarks.speed.checkpoint_time --steps 100

A BERT is trained with the layout fsdp on two simulated devices, which are the two halves of the processor. At every
second report, `Checkpoints` writes the whole state while the next steps are computed. An interval is timed from one
report to the next, so an interval with a checkpoint includes the copy of the state, during which training waits, and
whatever writing takes from the steps after it. A checkpoint must be complete at the next report.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100, help="of an interval")
    parser.add_argument("--pairs", type=int, default=4, help="of intervals, one with a checkpoint and one without")
    options = parser.parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=2"
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    sys.path.insert(0, str(ROOT))
    print(json.dumps(measured(options)))


def measured(options) -> dict:
    import keras
    import numpy as np

    from kerasbert.backend import parallel
    from kerasbert.models import Bert, BertConfig
    from kerasbert.objectives import MaskedLM
    from kerasbert.training import Checkpoints, adamw

    keras.distribution.set_distribution(parallel("fsdp"))
    config = BertConfig(
        num_layers=options.layers,
        hidden_dim=options.hidden,
        num_heads=options.hidden // 64,
        feed_forward_dim=4 * options.hidden,
        vocabulary_size=16_000,
    )
    model = MaskedLM(Bert(config, pooler=False))
    model.compile(adamw(learning_rate=1e-4))
    random = np.random.default_rng(0)
    ids = random.integers(1_000, 16_000, (options.rows * options.steps, options.length), "int32")
    slots = np.tile(np.arange(options.length * 15 // 100, dtype="int32") * 6, (len(ids), 1))

    class EverySecond(Checkpoints):
        """Saves at the end of every second epoch. {whether it includes a checkpoint: seconds of intervals}"""

        seconds, waited = {True: [], False: []}, []

        def on_epoch_end(self, epoch, logs=None):
            float(logs["loss"])  # the steps are finished
            now = time.perf_counter()
            if epoch >= 2:  # programs are compiled in the first two
                self.seconds[epoch % 2 == 1].append(now - self.begin)
            if epoch % 2:
                assert self.newest == self.saved, "the checkpoint is not complete: use more steps"
            self.begin = now
            if epoch % 2 == 0:
                super().on_epoch_end(epoch, logs)
                self.waited.append(time.perf_counter() - now)
                self.saved = self._path(self.step)

    with tempfile.TemporaryDirectory() as folder:
        checkpoints = EverySecond(folder, keep=1)
        model.fit(
            {"token_ids": ids, "masked_positions": slots},
            ids[:, : slots.shape[1]].copy(),
            batch_size=options.rows,
            epochs=2 * options.pairs + 2,
            verbose=0,
            callbacks=[checkpoints],
        )
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    seconds = checkpoints.seconds
    added = [full / empty - 1 for full, empty in zip(seconds[True], seconds[False], strict=True)]
    return {
        "parameters": model.count_params(),
        "checkpoint_bytes": size,
        "steps": options.steps,
        "seconds_without": [round(value, 2) for value in seconds[False]],
        "seconds_with": [round(value, 2) for value in seconds[True]],
        "waiting_seconds": [round(value, 3) for value in checkpoints.waited],
        "added_median": round(statistics.median(added), 4),
    }


if __name__ == "__main__":
    main()
