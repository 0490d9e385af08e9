"""The training step of BERT-base against that of transformers: `accelerator_step.py` as a part of a check."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.devices.parts import ROOT, WRONG, parser
from benchmarks.devices.results import Results, device_name, peak_of

SIZES = ("--shape", "base", "--length", "512", "--rows", "32", "--rounds", "3")
# The second backend is not compared with the eager step again.
FEWER = ("--only", "kerasbert", "transformers, compiled")
# On a CPU, PyTorch would need a compiler of C++.
TINY = ("--shape", "tiny", "--length", "64", "--rows", "2", "--rounds", "1", "--only", "kerasbert", "eager")
DROPOUT = 0.1  # as in the paper


def result_of(row: dict, peak: float | None) -> tuple[bool, str, dict]:
    """One line of a comparison: the ratio of the speeds, and what both make of the device.

    Args:
        row: a row of `harness.compare`.
        peak: of the device in TFLOP/s, or None.
    """
    if "ratio" not in row:
        return False, (row.get("void") or row["skipped"])[-500:], {}
    text = f"{row['ratio']:.2f} times as fast ({row['lowest']:.2f} to {row['highest']:.2f})"
    rates = [row["flops"] / row[f"{side}_seconds"] / 1e12 for side in ("ours", "theirs")]
    text += f", {rates[0]:.1f} against {rates[1]:.1f} TFLOP/s"
    if peak is not None:
        text += f", {rates[0] / peak:.1%} against {rates[1] / peak:.1%} of {peak} TFLOP/s"
    return True, f"{text}; {row['notes'] or ''}".rstrip("; "), {"row": row}


def main() -> int:
    options = parser(__doc__.splitlines()[0]).parse_args()
    results = Results(options.results, device_name())
    sizes = TINY if options.tiny else SIZES + (FEWER if os.environ["KERAS_BACKEND"] == "torch" else ())
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        command = [sys.executable, "-m", "benchmarks.devices.accelerator_step", *sizes, "--dropout", str(DROPOUT)]
        found = subprocess.run([*command, "--results", str(rows)], cwd=ROOT, stdout=sys.stderr)
        lines = rows.read_text().splitlines() if rows.exists() else []
    if found.returncode or not lines:
        sys.exit(f"accelerator_step.py ended with status {found.returncode} and {len(lines)} rows")
    right = []
    for row in map(json.loads, lines):
        result = result_of(row, peak_of(results.device))
        cell = f"{row['backend']} {row['ours']} against {row['theirs']}"
        right.append(results.measure(cell, lambda result=result: result))
    return 0 if all(right) else WRONG


if __name__ == "__main__":
    raise SystemExit(main())
