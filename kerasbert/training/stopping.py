"""Stops a run after a step, on a signal or a time limit, so that it can be resumed from that step."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable

from ..backend.hosts import LargestNumber
from .checkpointing import Checkpoints
from .counting import RunCallback

TIME = "time"


class RunStopped(Exception):
    """Raised when a run has stopped on request, after saving a checkpoint of its last step.

    Attributes:
        reason: "SIGINT", the name of another signal, or "time".
        step: the number of finished steps of the run.
    """

    raised_by_all = True  # processes that train together stop at the same step

    def __init__(self, reason: str, step: int):
        super().__init__(f"The run was stopped after step {step:,} ({reason}).")
        self.reason, self.step = reason, step

    @property
    def exit_status(self):
        """The exit status of a command whose run has stopped: 0 for the time limit, 128 + number for a signal."""
        return 0 if self.reason == TIME else 128 + getattr(signal, self.reason)


class StopRequest:
    """A request to stop a run: `reason` says why, and is None until the run should stop.

    Inside its `with` block, the first signal asks the run to stop, and the second one ends the process immediately. A
    signal does not raise an exception: Keras would swallow a KeyboardInterrupt while it converts logs, and an exception
    raised inside a backend may crash the process later. The signals are read by a separate thread, because the main
    thread may be compiling for minutes. Python allows signal handlers only in the main thread. If the request is
    created in another thread, only the time limit works.

    Args:
        minutes: the time limit, counted from the creation of the request; None for no limit.
        signals: names of signals. Default: SIGINT (Ctrl-C), and SIGTERM, which announces that the machine is needed.

    Raises:
        ValueError: if `minutes` is not above 0.
    """

    def __init__(self, minutes: float | None = None, signals: Iterable[str] = ("SIGINT", "SIGTERM")):
        if minutes is not None and not minutes > 0:
            raise ValueError(f"`minutes` must be above 0. Received: {minutes}.")
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._names = {int(getattr(signal, name)): name for name in signals}
        self._signal = None

    @property
    def reason(self) -> str | None:
        if self._signal is None and self._deadline is not None and time.monotonic() >= self._deadline:
            return TIME
        return self._signal

    def __enter__(self):
        self._before = {}
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _ignore) for number in self._names}
        threading.Thread(target=self._read, args=(self._reader,), daemon=True).start()
        return self

    def __exit__(self, *error):
        if self._before:
            for number, handler in self._before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: the handler was not installed by Python
            signal.set_wakeup_fd(self._wakeup)
            self._writer.close()  # ends the reading thread

    def _read(self, reader):
        with reader:
            while numbers := reader.recv(1):
                name = self._names.get(numbers[0])
                if name and self._signal:
                    print(f"{name}: stopped immediately", file=sys.stderr, flush=True)
                    os._exit(128 + numbers[0])
                if name:
                    self._signal = name
                    message = "stopping after this step, with a checkpoint; a second signal stops immediately"
                    print(f"{name}: {message}", file=sys.stderr, flush=True)


class StopOnRequest(RunCallback):
    """After a request, saves a checkpoint of the finished steps and raises `RunStopped` before the next step.

    If several processes train together, all stop at the same step, up to 16 steps after one of them was asked to.

    Args:
        request: a `StopRequest`.
        checkpoints: the run's `Checkpoints`.

    Raises:
        RunStopped: in `fit`, after a request.
    """

    def __init__(self, request: StopRequest, checkpoints: Checkpoints):
        super().__init__()
        self.request, self.checkpoints = request, checkpoints
        self._largest = LargestNumber()

    def on_train_batch_begin(self, batch, logs=None):
        # Called in the main thread, after the previous batches have finished or been sent to the device.
        reason = self.request.reason
        # The time is a reason with the smallest number, since it is the only one after which the model is saved.
        number = self._largest.of(0 if reason is None else 1 if reason == TIME else 1 + getattr(signal, reason))
        if number:
            if batch:
                self.checkpoints.save_within_epoch(batch)
            raise RunStopped(TIME if number == 1 else signal.Signals(number - 1).name, self._epoch_start + batch)


def _ignore(number, frame):
    """Does nothing. Python writes a signal to the wakeup file descriptor only if the signal has a Python handler."""
