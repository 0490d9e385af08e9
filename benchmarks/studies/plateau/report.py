"""The tables of `run.py`: where every cell stands, and what every change is worth."""

import math
import statistics
from collections import defaultdict

from benchmarks.studies.plateau.arms import ARCHITECTURE, ARMS, arms_of, joined

MARKS = (60, 100, 120)  # seconds that the tables show
WIDTHS = (128, 32)  # tokens of a row in the two evaluations; the first one decides
LEFT = 0.9  # of the unigram loss: the plateau is left below
LEAST_GAIN = 0.05  # nats by which an arm has to be better than the base to be combined

Cells = dict[str, dict[int, dict]]  # {cell: {seed: row}}

# === What a row says ===


def section_of(row: dict) -> tuple:
    """What rows must share to be compared: text, seconds, common settings."""
    return row["corpus"], float(row["seconds"]), tuple(row["set"])


def by_cell(rows: list[dict], section: tuple) -> Cells:
    """The rows of a section."""
    found = defaultdict(dict)
    for row in rows:
        if section_of(row) == section:
            found[row["cell"]][row["seed"]] = row
    return dict(found)


def above(row: dict, second: float, width: int = WIDTHS[0]) -> float:
    """Loss minus unigram loss at a time, in nats; NaN if the cell was shorter."""
    place = WIDTHS.index(width)
    losses = (losses[place] for seconds, _, losses, _ in row["curve"] if seconds >= second)
    return next(losses, math.nan) - row["unigram_losses"][place]


def left_at(row: dict) -> float | None:
    """The time of the first evaluation with a loss below LEFT of the unigram loss, in seconds."""
    limit = LEFT * row["unigram_losses"][0]
    return next((seconds for seconds, _, losses, _ in row["curve"] if losses[0] < limit), None)


# === Comparisons ===


def gains(cells: Cells, cell: str, reference: str, second: float) -> list[float]:
    """Nats by which a cell is better than another at a time, for every seed that both have."""
    mine, theirs = cells.get(cell, {}), cells.get(reference, {})
    return [above(theirs[seed], second) - above(mine[seed], second) for seed in sorted(mine.keys() & theirs.keys())]


def winners(cells: Cells, second: float) -> list[str]:
    """Of every group, the arm with the largest mean gain over the base, of those that help with every seed."""
    best = {}
    for name, arm in ARMS.items():
        found = gains(cells, name, "base", second)
        if arm.group == ARCHITECTURE or not found or min(found) <= 0 or statistics.mean(found) <= LEAST_GAIN:
            continue
        best[arm.group] = max(best.get(arm.group, (0.0, "")), (statistics.mean(found), name))
    return [name for _, name in best.values()]


# === Tables ===


def report(rows: list[dict]) -> str:
    """The page of all results, in Markdown."""
    lines = [
        "# Leaving the unigram plateau",
        "",
        "By `python -m benchmarks.studies.plateau.run`, which explains the base, the cells and the measure.",
        "Nats above (+) or below (-) the unigram",
        "loss of the same held-out targets after so many seconds of one core; means and standard deviations over the",
        f"seeds. `left`: the median time at which the loss fell below {LEFT} of the unigram loss, and with how many",
        "seeds it did. `worth`: nats by which a change lowers the loss; differences are taken seed by seed.",
    ]
    for section in dict.fromkeys(map(section_of, rows)):
        cells, (_, seconds, changes) = by_cell(rows, section), section
        marks = sorted({*(mark for mark in MARKS if mark < seconds), seconds})
        row = next(iter(next(iter(cells.values())).values()))
        text = f"{row['corpus_tokens']:,} tokens, vocabulary of {row['vocabulary']:,}"
        units = [f"{loss:.3f} in rows of {width}" for loss, width in zip(row["unigram_losses"], WIDTHS, strict=True)]
        lines += ["", f"## {', '.join([text, f'{seconds:g} seconds', *changes])}", ""]
        lines += [f"Unigram loss: {', '.join(units)}.", "", *standings(cells, marks), ""]
        best = ", ".join(winners(cells, seconds)) or "none"
        lines += [f"Winners at {seconds:g} s: {best}.", "", *worths(cells, marks)]
    return "\n".join(lines) + "\n"


def standings(cells: Cells, marks: list[float]) -> list[str]:
    """The table of the cells, the best one first."""
    last, narrow = marks[-1], f"rows of {WIDTHS[1]}"
    found = []
    for cell, rows in cells.items():
        rows = list(rows.values())
        left = [seconds for row in rows if (seconds := left_at(row)) is not None]
        numbers = [
            *(spread([above(row, mark) for row in rows]) for mark in marks),
            spread([above(row, last, WIDTHS[1]) for row in rows]),
            f"{statistics.median(left):.0f} s, {len(left)} of {len(rows)}" if left else "never",
            f"{statistics.mean(row['updates'] for row in rows):,.0f}",
            f"{statistics.mean(row['tokens'] / row['curve'][-1][0] for row in rows):,.0f}",
            str(len(rows)),
        ]
        found.append((statistics.mean(above(row, last) for row in rows), [cell, *numbers]))
    columns = ["cell", *(f"{mark:g} s" for mark in marks), narrow, "left", "updates", "tokens/s", "seeds"]
    return table(columns, [line for _, line in sorted(found)])


def worths(cells: Cells, marks: list[float]) -> list[str]:
    """The table of what each arm of a cell adds to the cell without it, the base first."""
    found = []
    for cell in cells:
        for name in arms_of(cell):
            rest = joined([other for other in arms_of(cell) if other != name])
            if last := gains(cells, cell, rest, marks[-1]):
                numbers = [spread(gains(cells, cell, rest, mark)) for mark in marks]
                line = [name, rest, *numbers, str(len(last))]
                found.append((rest != "base", rest, -statistics.mean(last), line))
    columns = ["change", "of", *(f"worth, {mark:g} s" for mark in marks), "seeds"]
    return table(columns, [line for *_, line in sorted(found)])


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):+.3f}{deviation}"


def table(columns: list[str], lines: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *lines)]
