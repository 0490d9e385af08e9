"""Which lines of kerasbert the tests execute. `make test-all` sets LINE_COVERAGE to a folder and prints the percentage.

python -m tests.line_coverage FOLDER

Slipcover changes the bytecode of our modules only, and takes a line out once it was executed; tracing every call, those
inside Keras and PyTorch included, takes 70% more time.
"""

import json
import os
import sys
from pathlib import Path

import slipcover

PACKAGE = Path(__file__).resolve().parent.parent / "kerasbert"


class LineCoverage:
    """Measures the modules of kerasbert that are imported from now on."""

    def __init__(self):
        self._slipcover = slipcover.Slipcover(source=[str(PACKAGE)])
        matcher = slipcover.FileMatcher(sources=[str(PACKAGE)])
        slipcover.ImportManager(self._slipcover, matcher).__enter__()

    def save(self, folder: str) -> None:
        """Writes the lines so far to a file of this process in `folder`."""
        found = self._slipcover.get_coverage()
        with open(Path(folder) / f"{os.getpid()}.json", "w", encoding="utf-8") as file:
            json.dump(found["files"], file)


def percentage(folder: str) -> float:
    """Lines that at least one process executed, in percent of all."""
    executed, lines = set(), set()
    for path in Path(folder).glob("*.json"):
        for name, found in json.loads(path.read_text(encoding="utf-8")).items():
            executed |= {(name, line) for line in found["executed_lines"]}
            lines |= {(name, line) for line in found["executed_lines"] + found["missing_lines"]}
    return 100 * len(executed) / len(lines)


if __name__ == "__main__":
    print(f"{percentage(sys.argv[1]):.1f}%")
