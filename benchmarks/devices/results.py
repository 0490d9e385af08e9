"""Results of a check as lines of JSON, so that a check that was interrupted continues with what is missing."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Of dense products in bfloat16, in TFLOP/s, by a part of the device's name; from NVIDIA's data sheets.
PEAKS = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121}


def device_name() -> str:
    """The name of the first NVIDIA GPU, such as "NVIDIA H100 80GB HBM3", or "CPU"."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "CPU"
    return found.stdout.splitlines()[0].strip() if found.returncode == 0 and found.stdout.strip() else "CPU"


def peak_of(device: str) -> float | None:
    """The peak of a device in TFLOP/s, or None if the table does not have it."""
    return next((peak for name, peak in PEAKS.items() if name in device), None)


class Results:
    """The rows of a file. Several processes may write to it.

    Args:
        path: the file.
        device: name of the device. Results of other devices do not count.
    """

    def __init__(self, path: Path, device: str):
        self.path, self.device = path, device
        path.parent.mkdir(parents=True, exist_ok=True)

    def rows(self) -> dict[str, dict]:
        """Returns {cell: its last row} of this device."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        found = {}
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):  # the line at which an earlier process was killed
                row = json.loads(line)
                if row["device"] == self.device:
                    found[row["cell"]] = row
        return found

    def is_done(self, cell: str) -> bool:
        return self.rows().get(cell, {}).get("ok", False)

    def add(self, cell: str, ok: bool, text: str, **values) -> None:
        """Appends a row, and prints it as one line."""
        row = {"cell": cell, "device": self.device, "ok": ok, "text": text, **values}
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("" if whole else "\n") + json.dumps(row) + "\n")
        sys.stdout.write(f"{'ok  ' if ok else 'FAIL'}  {cell}: {' '.join(text.split())}\n")
        sys.stdout.flush()

    def measure(self, cell: str, function: Callable[[], tuple[bool, str, dict]]) -> bool:
        """Runs a function that returns (whether the result is right, one line, values), unless its cell is done.

        An exception is a result that is wrong.

        Returns: whether the cell is right.
        """
        if self.is_done(cell):
            return True
        start = time.perf_counter()
        try:
            ok, text, values = function()
        except Exception as error:
            ok, text, values = False, f"{type(error).__name__}: {error}"[:1_000], {}
        self.add(cell, ok, text, seconds=round(time.perf_counter() - start, 1), **values)
        return ok


@contextlib.contextmanager
def sharing_device(folder: Path, alone: bool = False) -> Iterator[None]:
    """Waits until the device may be used: with `alone`, until no other part of the check uses it.

    A lock on a file is released however a process ends.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "device.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
