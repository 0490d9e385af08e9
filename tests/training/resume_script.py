"""A training run in a process of its own; `test_checkpointing.py` kills it and starts it again.

resume_script.py FOLDER STEPS KILL: trains the tiny model to STEPS in epochs of 4, with checkpoints in FOLDER/run, and
writes the final state to FOLDER/final.npz. KILL: a step that ends in SIGKILL, "save" for SIGKILL in the middle of the
second save of this process, or "never".
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import keras  # noqa: E402
import numpy as np  # noqa: E402

from kerasbert.backend import seed_everything  # noqa: E402
from kerasbert.training import Checkpoints, RunLog, adamw, checkpointing  # noqa: E402


class KillAt(keras.callbacks.Callback):
    async_safe = True

    def __init__(self, step, first):
        super().__init__()
        self.step, self.done = step, first

    def on_train_batch_begin(self, batch, logs=None):
        if self.done == self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        self.done += 1


def kill_in_second_save():
    publish, calls = checkpointing.publish, []

    def kill(temporary, path):
        calls.append(path)
        if len(calls) == 4:  # two files a save: this is the description of the second
            os.kill(os.getpid(), signal.SIGKILL)
        publish(temporary, path)

    checkpointing.publish = kill


def main(folder, steps, kill, tiny):
    folder, steps = Path(folder), int(steps)
    seed_everything(3)
    model = tiny.build_model(adamw(0.01, warmup=4, steps=steps, accumulation=2))
    checkpoints = Checkpoints(folder / "run", keep=2, recipe={"steps": steps})
    start = checkpoints.restore(model)
    if kill == "save":
        kill_in_second_save()
    callbacks = [checkpoints, RunLog(folder / "run")]
    if kill.isdigit():
        callbacks.append(KillAt(int(kill), start))
    tiny.train(model, start, steps, callbacks)
    np.savez(folder / "final.npz", *tiny.state(model))
    return start


if __name__ == "__main__":
    import conftest

    main(*sys.argv[1:], conftest)
