"""The tables of `run.py`: accuracy by phenomenon, as the mean of its paradigms."""

from pathlib import Path

import numpy as np

INTRODUCTION = """# Official minimal pairs

Written by `python -m benchmarks.studies.official_pairs.run --report`, whose docstring explains the scores. Percent of
pairs in which the acceptable sentence has the higher score; 50 is chance. A phenomenon is the mean of its paradigms,
and "all" is the mean of all paradigms. A cell is empty as long as a paradigm is missing.
"""


def write(rows: list[dict], path: Path) -> None:
    """Writes the tables of the rows."""
    parts = [INTRODUCTION]
    for suite in dict.fromkeys(row["suite"] for row in rows):
        found = [row for row in rows if row["suite"] == suite]
        models = list(dict.fromkeys(row["model"] for row in found))
        parts.append(f"\n## {suite}\n\n| phenomenon | paradigms | {' | '.join(models)} |\n")
        parts.append(f"| --- |{' --- |' * (len(models) + 1)}\n")
        for phenomenon in [*sorted({row["phenomenon"] for row in found}), None]:
            chosen = [row for row in found if phenomenon in (None, row["phenomenon"])]
            by_model = [[row["accuracy"] for row in chosen if row["model"] == name] for name in models]
            count = len({row["paradigm"] for row in chosen})
            cells = [f"{100 * np.mean(values):.1f}" if len(values) == count else "" for values in by_model]
            parts.append(f"| {phenomenon or 'all'} | {count} | {' | '.join(cells)} |\n")
    path.write_text("".join(parts), encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
