"""Base class of the callbacks, which counts steps and measures speed without waiting for the device."""

import threading
import time
import weakref
from pathlib import Path
from typing import Any

import keras


class RunCallback(keras.callbacks.Callback):
    """Counts the steps of a run, including the steps before it was resumed.

    A step is one batch passed to the model (with gradient accumulation, one micro-batch). n steps are complete when
    `batches[n - 1]` has been processed. The count starts at `model.initial_step`, which `Checkpoints.restore` and `fit`
    set.

    On JAX and torch, Keras calls the batch hooks of callbacks that declare `async_safe` from other threads, in any
    order and with a delay. The training loop never waits for them. `on_report` and `on_steps` are called under a lock;
    `on_steps` is called only when `self.step` has increased. The other hooks run between epochs.
    """

    async_safe = True
    count_tokens = None  # (first, last) -> number of tokens in steps [first, last) of the run; set by `fit`

    def __init__(self, tokens_per_step: int | None = None):
        super().__init__()
        self._given_tokens_per_step = tokens_per_step
        self._lock = threading.Lock()
        self.step = 0

    def on_train_begin(self, logs=None):
        with self._lock:
            self.initial_step = getattr(self.model, "initial_step", 0)
            self.step = self._epoch_start = self.initial_step
            self.tokens_per_step = self._given_tokens_per_step or getattr(self.model, "tokens_per_step", None)
            self._warm = False
            # Threads of an earlier, failed `fit` may still report batches. The threads of this `fit` start later.
            self._earlier_threads = weakref.WeakSet(threading.enumerate()) - {threading.current_thread()}

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start = self.step
        self._clock_now = time.perf_counter()
        self._timed = [0, 0.0]  # steps, seconds
        self._slow = []  # steps that may have been compiled: (seconds per step, steps, seconds)

    def on_train_batch_end(self, batch, logs=None):
        with self._lock:
            if threading.current_thread() in self._earlier_threads:
                return
            self.on_report(batch, logs or {})
            step = self._epoch_start + batch + 1
            if step <= self.step:
                return
            now = time.perf_counter()
            steps, seconds = step - self.step, now - self._clock_now
            self.step, self._clock_now = step, now
            if self._warm and seconds > steps * COMPILATION_SECONDS:
                self._slow.append((seconds / steps, steps, seconds))
            elif self._warm:
                self._timed[0] += steps
                self._timed[1] += seconds
            self._warm = True  # the first step is never timed, because it includes compilation
            self.on_steps(logs or {})

    def on_report(self, batch: int, logs: dict[str, Any] | None) -> None:
        """Called for every finished batch of the epoch, in any order."""

    def on_steps(self, logs: dict[str, Any] | None) -> None:
        """Called after `self.step` has increased."""

    @property
    def steps_per_second(self):
        """Steps per second in this epoch, excluding validation and steps with compilation. None until it is known."""
        steps, seconds = self._timed
        for each, slow_steps, slow_seconds in sorted(self._slow):
            if steps and each > COMPILATION_FACTOR * seconds / steps:
                break
            steps, seconds = steps + slow_steps, seconds + slow_seconds
        return steps / seconds if steps and seconds > 0 else None

    @property
    def tokens_per_second(self):
        """Tokens per second in this epoch, without padding; None if the number of tokens is unknown."""
        steps, speed = self.step - self._epoch_start, self.steps_per_second
        tokens = self.tokens_between(self._epoch_start, self.step)
        return tokens / steps * speed if tokens and speed else None

    def tokens_between(self, first: int, last: int) -> int:
        """Number of tokens in steps [first, last), counted or computed from `tokens_per_step`. None if unknown."""
        if self._given_tokens_per_step is None and self.count_tokens is not None:
            return self.count_tokens(first, last)
        return self.tokens_per_step and self.tokens_per_step * (last - first)


# A step is assumed to include compilation if it took longer than this many seconds, and longer than this many times the
# mean of the other steps.
COMPILATION_SECONDS = 1.0
COMPILATION_FACTOR = 10


class TrainingDiverged(ArithmeticError):
    """Raised when training produces a loss or a variable that is not finite.

    Attributes:
        step: index i of the batch `batches[i]` whose loss is not finite, or None if only a variable is not finite.
        checkpoint: path of the newest complete and undamaged checkpoint, or None.
    """

    def __init__(self, message: str, step: int | None = None, checkpoint: Path | None = None):
        super().__init__(message)
        self.step, self.checkpoint = step, checkpoint
