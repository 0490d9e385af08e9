"""Callbacks that report on a run (progress, logs, TensorBoard), and a function that plots its log."""

import csv
import json
import math
import os
import socket
import sys
import time
from os import PathLike
from pathlib import Path

import keras

from ..backend.hosts import is_first_process
from ..data.text.folders import folder_at
from .checkpointing import Checkpoints
from .counting import RunCallback, TrainingDiverged

MOST_CHARACTERS = 120  # of a line of progress in a log


def in_lines(text):
    """Divides a line at its double spaces, if it is too long for a log. The further lines are indented."""
    lines = []
    for part in text.split("  "):
        if lines and len(lines[-1]) + 2 + len(part) <= MOST_CHARACTERS:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"    {part}" if lines else part)
    return "\n".join(lines)


class Progress(RunCallback):
    """Shows step, loss, speed and remaining time. It is a bar if `rich` is installed and the output is a terminal.

    Use it with `fit(verbose=0)`. Otherwise, Keras also shows a progress bar.

    Args:
        steps: number of steps of the whole run. Default: computed from the epochs and steps passed to `fit`.
        tokens_per_step: number of tokens per step, from which the speed in tokens is computed. Default: the tokens that
            `fit` counts, or `model.tokens_per_step`.
        interval: seconds between two plain lines.
        quiet: if True, nothing is shown. Of several processes, only the first one shows anything.
    """

    programs = 0  # number of programs to compile in this run; set by `fit`

    def __init__(
        self, steps: int | None = None, tokens_per_step: int | None = None, interval: float = 10.0, quiet: bool = False
    ):
        super().__init__(tokens_per_step)
        self.steps, self.interval, self.quiet = steps, interval, quiet or not is_first_process()
        self._bar = None

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._total = self.steps
        self._printed = time.perf_counter()
        self._clock_now, self._report_seconds = None, 0.0  # seconds that the last validation and checkpoint took
        if self.programs and not self.quiet:
            print(f"compiling {self.programs} program{'s' * (self.programs > 1)} during the first steps", flush=True)
        if not self.quiet and sys.stdout.isatty():
            self._bar = _rich_bar()

    def on_epoch_begin(self, epoch, logs=None):
        if self._clock_now is not None:
            self._report_seconds = time.perf_counter() - self._clock_now
        super().on_epoch_begin(epoch, logs)
        if self._total is None and self.params.get("steps"):
            self._total = self.step + (self.params["epochs"] - epoch) * self.params["steps"]
        if self._bar and not self._bar.tasks:
            self._bar.add_task("", total=self._total, completed=self.step, info="")
            self._bar.start()
            # The cursor is never hidden, because no callback could show it again if `fit` fails.
            self._bar.console.show_cursor()

    def on_steps(self, logs):
        if self.quiet or time.perf_counter() - self._printed < (0.2 if self._bar else self.interval):
            return
        if self._bar:
            self._printed = time.perf_counter()
            self._bar.update(self._bar.tasks[0].id, completed=self.step, info=self._info(logs), refresh=True)
        else:
            self._print(logs)

    def on_epoch_end(self, epoch, logs=None):
        if self._bar:
            self._bar.console.print(self._line(logs))
        elif not self.quiet:
            self._print(logs)

    def on_train_end(self, logs=None):
        if self._bar:
            self._bar.update(self._bar.tasks[0].id, completed=self.step, info="", refresh=True)
            self._bar.stop()
            self._bar = None

    def _print(self, logs):
        self._printed = time.perf_counter()
        print(in_lines(self._line(logs)), flush=True)

    def _line(self, logs):
        whole = f"{self._total:,}" if self._total else ""
        return f"step {self.step:>{len(whole)},}{f'/{whole}' if whole else ''}  {self._info(logs)}"

    def _info(self, logs):
        parts = [f"{name} {value:.4g}" for name, value in (logs or {}).items() if isinstance(value, float)]
        if self.tokens_per_second:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if speed := self.steps_per_second:
            parts.append(f"{speed:.3g} steps/s")
            if self._total:
                reports = (self._total - self.step) // (self.params.get("steps") or self._total)
                left = (self._total - self.step) / speed + reports * self._report_seconds
                parts.append(f"{_duration(left)} left")
        return "  ".join(parts)


PROCESS = time.time()  # identifies this process


class RunLog(RunCallback):
    """Appends a row to `log.jsonl` and `log.csv` at the end of every epoch.

    The columns are step, epoch (the number of the row, or with `steps_per_pass` the passes over the data so far),
    seconds and tokens (both counted from the start of the run), tokens_per_second, learning_rate (of the next update),
    and all metrics. Padding is not counted if `fit` is given batches of this package. A resumed run rewrites the files
    from the rows in its checkpoint. A run that starts at step 0 first renames existing files to `log.1.jsonl`,
    `log.1.csv`, and so on. Of several processes, only the first one writes.

    Args:
        folder: the folder of the run; created if missing.
        tokens_per_step: number of tokens per step. Default: the tokens that `fit` counts, or `model.tokens_per_step`.
        checkpoints: the run's `Checkpoints`, which save the rows. Default: the `Checkpoints` callback of the same
            `fit`, if the model is one of this package. Without checkpoints, a resumed run keeps the rows of the files
            for steps before its first step.
        steps_per_pass: number of steps of one pass over the data.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches
        >>> from kerasbert.objectives import MaskedLM
        >>> from kerasbert.training import RunLog, read_log
        >>> model = MaskedLM.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> batches = MaskedLMBatches(corpus, batch_size=4, length=16, steps=2)
        >>> history = model.fit(batches, steps_per_epoch=1, callbacks=[RunLog("runs/cats")], verbose=0)
        >>> [row["step"] for row in read_log("runs/cats")]
        [1, 2]
    """

    def __init__(
        self,
        folder: str | PathLike,
        tokens_per_step: int | None = None,
        checkpoints: Checkpoints | None = None,
        steps_per_pass: int | None = None,
    ):
        super().__init__(tokens_per_step)
        self.folder, self.checkpoints, self.steps_per_pass = folder_at(folder), checkpoints, steps_per_pass
        self.rows = []

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        if not is_first_process():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = None
        if self.checkpoints is not None:
            self.checkpoints.log, saved = self, self.checkpoints.saved_log
        self.rows = saved["rows"] if saved else read_log(self.folder)
        if self.rows and not self.initial_step:
            self._put_aside()
        self.rows = [row for row in self.rows if row["step"] <= self.initial_step]
        self._write_all()
        last = saved or (self.rows[-1] if self.rows else {})
        self._seconds_before = last.get("seconds", 0.0)
        self._tokens_before = last.get("tokens")
        if self._tokens_before is None:
            self._tokens_before = (self.tokens_per_step or 0) * self.initial_step
        self._begin = time.perf_counter()
        self._first_start = last.get("first_start", time.time())
        self._starts = last.get("starts", 0) + (last.get("process") != PROCESS)  # one process may call `fit` repeatedly

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        if self.rows and self.rows[-1]["step"] == self.step:
            self._tokens_before = self.rows[-1]["tokens"] or 0

    def state(self, step):
        """The state to save in the checkpoint of a step: the rows, and the seconds and tokens of the run so far."""
        starts = {"first_start": self._first_start, "starts": self._starts, "process": PROCESS}
        return {"rows": self.rows, "seconds": self._seconds(), "tokens": self._tokens(step), **starts}

    def describe_goodput(self):
        """Returns a sentence about the goodput of a run that has been restarted, or "" if it has not been restarted.

        Goodput is the share of the time since the first start that contributed to the result. It excludes work after
        the last checkpoint of a process, and time in which no process was running.
        """
        if self._starts < 2:
            return ""
        whole = time.time() - self._first_start
        share = self._seconds() / max(whole, 1e-9)
        return f"goodput {share:.0%}: {self._seconds():,.0f} of {whole:,.0f} s, in {self._starts} starts"

    def _seconds(self):
        return round(self._seconds_before + time.perf_counter() - self._begin, 3)

    def _tokens(self, step):
        # The number of tokens per step may change between the phases of a run.
        return self._tokens_before + (self.tokens_between(self._epoch_start, step) or 0)

    def on_epoch_end(self, epoch, logs=None):
        if not is_first_process() or (self.rows and self.rows[-1]["step"] == self.step):
            return
        row = {
            "step": self.step,
            "epoch": epoch + 1 if self.steps_per_pass is None else round(self.step / self.steps_per_pass, 2),
            "seconds": self._seconds(),
            "tokens": self._tokens(self.step) or None,
            "tokens_per_second": self.tokens_per_second and round(self.tokens_per_second, 1),
            "learning_rate": _learning_rate(self.model),
            # JSON cannot represent infinity.
            **{name: value if math.isfinite(value) else None for name, value in (logs or {}).items()},
        }
        new_columns = not self.rows or self.rows[-1].keys() != row.keys()
        self.rows.append(row)
        if new_columns:
            self._write_all()
            return
        with open(self.folder / "log.jsonl", "a") as file:
            file.write(json.dumps(row) + "\n")
        with open(self.folder / "log.csv", "a", newline="") as file:
            csv.DictWriter(file, self._columns()).writerow(row)

    def _columns(self):
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def _write_all(self):
        for name in ("log.jsonl", "log.csv"):
            temporary = self.folder / f".{name}.temporary"
            with open(temporary, "w", newline="") as file:
                if name == "log.jsonl":
                    file.writelines(json.dumps(row) + "\n" for row in self.rows)
                elif self.rows:
                    writer = csv.DictWriter(file, self._columns())
                    writer.writeheader()
                    writer.writerows(self.rows)
            os.replace(temporary, self.folder / name)

    def _put_aside(self):
        number = 1
        while (self.folder / f"log.{number}.jsonl").exists():
            number += 1
        for suffix in ("jsonl", "csv"):
            if (self.folder / f"log.{suffix}").exists():
                os.replace(self.folder / f"log.{suffix}", self.folder / f"log.{number}.{suffix}")
        self.rows = []


def connect(callbacks, count_tokens, programs=0) -> None:
    """Passes the token counter, the number of programs to compile, and the `Checkpoints` to the callbacks of a run."""
    checkpoints = next((callback for callback in callbacks if isinstance(callback, Checkpoints)), None)
    for callback in callbacks:
        if isinstance(callback, RunCallback):
            callback.count_tokens = count_tokens
        if isinstance(callback, Progress):
            callback.programs = programs
        if isinstance(callback, (RunLog, StopOnNaN)) and callback.checkpoints is None:
            callback.checkpoints = checkpoints


def read_log(folder: str | PathLike) -> list:
    """Returns the rows of `log.jsonl` as dicts, or [] if there is no such file. A truncated last line is skipped."""
    path = Path(folder) / "log.jsonl"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def plot_curves(folder: str | PathLike) -> Path:
    """Draws `curves.png` from the log in `folder`: one panel for each metric and one for the learning rate.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if the log has no rows.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('Drawing curves needs matplotlib: pip install "kerasbert[plots]".') from error
    rows = read_log(folder)
    if not rows:
        raise ValueError(f"{Path(folder) / 'log.jsonl'} has no rows to draw. Train with RunLog first.")
    bookkeeping = {"step", "epoch", "seconds", "tokens", "tokens_per_second"}
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in bookkeeping]
    panels = [name for name in names if not (name.startswith("val_") and name.removeprefix("val_") in names)]
    panels.sort(key=lambda name: (name == "learning_rate", name != "loss"))
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5 * columns, 3.5 * lines), layout="constrained")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, index + 1)
        for name in (panel, f"val_{panel}"):
            points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), marker="." if len(points) < 30 else None, label=name)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend()
    path = Path(folder) / "curves.png"
    FigureCanvasAgg(figure).print_png(path)
    return path


class TensorBoardLog(RunCallback):
    """Writes every epoch's metrics for TensorBoard, using only the package `tensorboard`.

    It never imports TensorFlow. Keras's callback and torch's writer import TensorFlow if it is installed.

    Args:
        folder: the folder to which the event files are written.
        tokens_per_step: number of tokens per step. Default: the tokens that `fit` counts, or `model.tokens_per_step`.

    Raises:
        ImportError: if the package `tensorboard` is not installed.
    """

    def __init__(self, folder: str | PathLike, tokens_per_step: int | None = None):
        super().__init__(tokens_per_step)
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise ImportError("TensorBoardLog needs the package tensorboard: pip install tensorboard.") from error
        self.folder = folder_at(folder)
        self._event, self._summary, self._record_writer = event_pb2.Event, summary_pb2.Summary, RecordWriter

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        if not is_first_process():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(self.folder / name, "wb")
        self._records = self._record_writer(self._file)
        self._write(file_version="brain.Event:2")
        # Tells TensorBoard to discard values that an interrupted run wrote for this step and later steps.
        self._write(step=self.initial_step + 1, session_log={"status": "START"})

    def on_epoch_end(self, epoch, logs=None):
        if not is_first_process():
            return
        scalars = dict(logs or {}, learning_rate=_learning_rate(self.model), tokens_per_second=self.tokens_per_second)
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in scalars.items()
            if isinstance(value, float)
        ]
        self._write(step=self.step, summary=self._summary(value=values))

    def on_train_end(self, logs=None):
        if is_first_process():
            self._file.close()

    def _write(self, **fields):
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
        self._records.flush()


class StopOnNaN(RunCallback):
    """Stops the run with `TrainingDiverged` at the first loss that is not finite, before anything is saved.

    Args:
        checkpoints: the run's `Checkpoints`, of which the error message names the newest checkpoint that is complete
            and undamaged. Default: the `Checkpoints` callback of the same `fit`.

    Raises:
        TrainingDiverged: in `fit`, at the first loss that is not finite.
    """

    def __init__(self, checkpoints: Checkpoints | None = None):
        super().__init__()
        self.checkpoints = checkpoints

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._running, self._first, self._value = set(), None, None

    def on_train_batch_begin(self, batch, logs=None):
        with self._lock:
            self._running.add(batch)

    def on_report(self, batch, logs):
        loss = logs.get("loss", 0.0)
        # Batches may report in any order, so the first bad batch is only known once all earlier batches have reported.
        self._running.discard(max(begun for begun in self._running if begun <= batch))
        if not math.isfinite(loss) and (self._first is None or batch < self._first):
            self._first, self._value = batch, loss
        if self._first is None or any(begun < self._first for begun in self._running):
            return
        step = self._epoch_start + self._first
        newest = self.checkpoints.describe_newest() if self.checkpoints else "The run keeps no checkpoints."
        raise TrainingDiverged(
            f"The loss became {self._value} at step {step + 1} of the run, on `batches[{step}]`. {newest} Check "
            "this batch; a lower learning rate, a longer warm-up, or bfloat16 instead of float16 often helps.",
            step=step,
            checkpoint=self.checkpoints.newest if self.checkpoints else None,
        )


def _learning_rate(model):
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def _duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _rich_bar():
    """Returns a progress bar that has not been started, or None if `rich` is not installed."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[info]}")
    terminal = getattr(sys.stdout, "unfiltered", None)  # commands escape the control characters of other output
    return Progress(*columns, console=Console(highlight=False, file=terminal), auto_refresh=False)
