"""The base of our callbacks: which step of the run it is, and how fast, without a wait for the device."""

import threading
import time

import keras


class RunCallback(keras.callbacks.Callback):
    """Counts the steps of the run, across resumes.

    A step is one batch handed to the model (with gradient accumulation, one micro-batch): step n of a run is done when
    `batches[n - 1]` is. The count starts at `model.initial_step`, which `Checkpoints.restore` and `fit` set.

    On JAX and torch, Keras calls the batch hooks of callbacks that declare `async_safe` from threads, in any order and
    after the fact, so that the training loop never waits for them: `on_steps` is called under a lock and only ever
    with a higher step than before. Everything else runs between epochs.
    """

    async_safe = True

    def __init__(self, tokens_per_step=None):
        super().__init__()
        self._given_tokens_per_step = tokens_per_step
        self._lock = threading.Lock()
        self.step = 0

    def on_train_begin(self, logs=None):
        self.initial_step = getattr(self.model, "initial_step", 0)
        self.step = self._epoch_start = self.initial_step
        self.tokens_per_step = self._given_tokens_per_step or getattr(self.model, "tokens_per_step", None)
        self._warm = False

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start = self.step
        self._clock_step, self._clock_start = self.step, time.perf_counter()
        self._clock_now = self._clock_start

    def on_train_batch_end(self, batch, logs=None):
        with self._lock:
            step = self._epoch_start + batch + 1
            if step <= self.step:
                return
            self.step, self._clock_now = step, time.perf_counter()
            if not self._warm:
                # The first step compiles: the clock starts behind it.
                self._warm, self._clock_step, self._clock_start = True, step, self._clock_now
            self.on_steps(logs or {})

    def on_steps(self, logs):
        """Called after `self.step` rose."""

    @property
    def steps_per_second(self):
        """Of this epoch, without compilation and validation; None until it is known."""
        steps, seconds = self.step - self._clock_step, self._clock_now - self._clock_start
        return steps / seconds if steps and seconds > 0 else None

    @property
    def tokens_per_second(self):
        """None where the tokens of a step are not known."""
        speed = self.steps_per_second
        return self.tokens_per_step * speed if self.tokens_per_step and speed else None


class TrainingDiverged(ArithmeticError):
    """Training has produced a loss or a state that is not finite.

    Attributes:
        step: index into the run's batches of the step that showed it, or None when only the epoch is known.
        checkpoint: path of the newest good checkpoint, or None.
    """

    def __init__(self, message, step=None, checkpoint=None):
        super().__init__(message)
        self.step, self.checkpoint = step, checkpoint
