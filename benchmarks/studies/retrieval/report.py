"""The table of `run.py`: means and deviations of nDCG@10."""

from pathlib import Path

import numpy as np

from benchmarks.studies.retrieval.training import METHODS

COLLECTIONS = ("scifact", "vaswani", "cisi")
INTRODUCTION = """# Retrieval trained on SciFact

Written by `python -m benchmarks.studies.retrieval.run --report`, which describes the methods. nDCG@10 (binary)
on the 300 test claims of SciFact, and without further training on Vaswani (93 queries) and CISI (76): mean and standard
deviation over the seeds. All models were trained for the same CPU time.

| method | SciFact | Vaswani | CISI | seeds | updates | examples |
| --- | --- | --- | --- | --- | --- | --- |
"""


def write(rows: list[dict], path: Path) -> None:
    """Writes the table of the rows; of several with the same cell, the last one counts."""
    latest = {row["cell"]: row for row in rows}
    lines = []
    for method in METHODS:
        found = [row for row in latest.values() if row["method"] == method]
        if not found:
            continue
        cells = [method]
        for name in COLLECTIONS:
            values = [row["scores"][name]["ndcg@10"] for row in found]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}")
        cells.append(str(len(found)))
        for key in ("updates", "examples"):
            numbers = [row[key] for row in found if key in row]
            cells.append(f"{round(np.mean(numbers)):,}" if numbers else "")
        lines.append(f"| {' | '.join(cells)} |")
    path.write_text(INTRODUCTION + "\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
