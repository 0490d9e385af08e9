"""Parts of a check, each of which is a process with a time limit. A part that fails does not stop the others."""

import argparse
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.devices.results import Results, device_name, sharing_device

ROOT = Path(__file__).resolve().parents[2]
LEAST_SECONDS = 5  # no part starts with less
FAILED, UNFINISHED = 1, 2  # exit statuses of a check; 0 if every part has succeeded
WRONG = 3  # exit status of a part that has measured something wrong


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a check.

    Args:
        name: unique in the check.
        arguments: the module that it runs, and its options.
        limit: seconds after which it is stopped.
        environment: variables of its process.
    """

    name: str
    arguments: tuple[str, ...]
    limit: float
    environment: dict = dataclasses.field(default_factory=dict)


class Runner:
    """Runs parts, and prints one line for each.

    Args:
        results: the `Results`. Parts that have succeeded are not run again.
        seconds: time limit of all parts.
        options: further options of all parts.
    """

    def __init__(self, results: Results, seconds: float, options: Sequence[str] = ()):
        self.results, self.options = results, list(options)
        self.end = time.monotonic() + seconds
        self.running = set()

    def run(self, groups: Sequence[Sequence[Part]], at_once: int) -> int:
        """Runs groups of parts one after another. The parts of a group run at the same time, up to `at_once` of them.

        Returns: the exit status: 0, FAILED or UNFINISHED.
        """
        found = []
        with self._stopping_with_this_process():
            for group in groups:
                with ThreadPoolExecutor(at_once) as pool:
                    found += pool.map(self._run, group)
        if FAILED in found:
            return FAILED
        return UNFINISHED if UNFINISHED in found else 0

    def _run(self, part: Part) -> int:
        cell, start = f"part {part.name}", time.monotonic()
        if self.results.is_done(cell):
            return 0
        left = self.end - start
        if left < LEAST_SECONDS:
            print(f"left  {cell}: no time. Run the same command again.", flush=True)
            return UNFINISHED
        log = self.results.path.parent / "logs" / f"{part.name.replace(' ', '_')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        limit = min(part.limit, left)
        status = self._status(part, log, limit)
        seconds = round(time.monotonic() - start, 1)
        if status is None and limit < part.limit:
            print(f"left  {cell}: stopped after {seconds} s. Run the same command again.", flush=True)
            return UNFINISHED
        text = {0: f"{seconds} s", WRONG: "has results that are wrong"}.get(status)
        if text is None:
            reason = f"stopped at its limit of {limit:g} s" if status is None else f"ended with status {status}"
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            text = f"{reason}; see {log}" + "".join(f": {line[:300]}" for line in last)
        self.results.add(cell, status == 0, text, seconds=seconds)
        return 0 if status == 0 else FAILED

    def _status(self, part: Part, log: Path, limit: float) -> int | None:
        """The exit status of a part, or None if its time was up."""
        command = [sys.executable, "-m", *part.arguments, "--results", str(self.results.path), *self.options]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **part.environment}
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=file, start_new_session=True)
            self.running.add(process)
            try:
                return process.wait(limit)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _stop(process)
                self.running.discard(process)

    @contextlib.contextmanager
    def _stopping_with_this_process(self):
        def stop(number, frame):
            for process in list(self.running):
                _stop(process)
            os._exit(128 + number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _stop(process: subprocess.Popen) -> None:
    """Ends a process and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# === Inside of a part ===


def parser(title: str) -> argparse.ArgumentParser:
    """The options of every part."""
    arguments = argparse.ArgumentParser(description=title)
    arguments.add_argument("--results", type=Path, required=True, help="file of the results")
    arguments.add_argument("--share", default="0/1", help="which part of the cells: 1/3 is the second third")
    arguments.add_argument("--tiny", action="store_true", help="sizes for trying the script on a CPU")
    return arguments


def share_of(cells: Sequence, share: str) -> list:
    """The cells of one of several processes."""
    number, count = map(int, share.split("/"))
    return list(cells)[number::count]


def measure_all(options: argparse.Namespace, cells: dict) -> int:
    """Measures {cell: function}, those of this process, and returns its exit status."""
    results = Results(options.results, device_name())
    with sharing_device(options.results.parent):
        right = [results.measure(name, cells[name]) for name in share_of(cells, options.share)]
    return 0 if all(right) else WRONG
