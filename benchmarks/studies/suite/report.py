"""Formats the results of a suite in Markdown: means, standard errors, and significance tests of the differences."""

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.significance import (
    Difference,
    holm,
    mean_and_error,
    paired_t_test,
    share_error,
    spearman_error,
    verdict,
)
from kerasbert.data.text.files import write_text

UNTRAINED = ("minimal_pairs", "cloze", "vectors")
STARTS = ("pretrained", "scratch", "reference", "unigrams", "5-grams")
INTRODUCTION = """Scores are in per cent, correlations in hundredths; ± is the standard error.
"""
TRAINED = """## Fine-tuning

Means over the seeds ({seeds}) and their standard errors. Settings: at most {examples:,} training examples, epochs:
{epochs}, peak learning rate: {rates}{dtype}. A seed chooses the same examples, in the same order,
for all starts; the held-out examples are the same for all seeds. Differences of the first score of a task have a paired
two-sided t-test, with Holm's correction over the tasks; "better" and "worse" need a corrected p-value below 0.05. The
tests allow for the choice of the training examples and for the randomness of training, not for the choice of the
held-out examples.
"""
NOT_TRAINED = """## Without training

Standard errors are those of the choice of examples. Unigrams answer every cloze sentence with the most frequent words.
"""


def write_report(path: Path, model: str, rows: Sequence[dict], left_out: Sequence[str]) -> str:
    """Writes the report, and returns its text.

    Args:
        path: path of the report.
        model: name of the model.
        rows: the rows of cells.jsonl.
        left_out: parts that were not measured, with reasons.
    """
    sections = [f"# Evaluation of {model}\n\n{INTRODUCTION}"]
    trained = [row for row in rows if row["cell"]["task"] not in UNTRAINED]
    if trained:
        cells = [row["cell"] for row in trained]
        numbers = [cell["epochs"] for cell in cells]
        epochs = " to ".join(map(str, sorted({min(numbers), max(numbers)})))
        dtype = f", dtype: {cells[0]['dtype']}" if "dtype" in cells[0] else ""
        settings = dict(examples=cells[0]["examples"], epochs=epochs, rates=_rates(cells), dtype=dtype)
        text = TRAINED.format(seeds=len({cell["seed"] for cell in cells}), **settings)
        sections.append(text + "\n" + training_table(trained))
    untrained = [row for row in rows if row["cell"]["task"] in UNTRAINED]
    if untrained:
        sections.append(NOT_TRAINED + "\n" + untrained_table(untrained))
    pairs = [row for row in rows if row["cell"]["task"] == "minimal_pairs"]
    if pairs:
        sections.append("## Minimal pairs by paradigm\n\n" + paradigm_table(pairs))
    for row in rows:
        if row.get("answers"):
            title = f"## The first ten cloze sentences, {row['cell']['start']}\n\n"
            sections.append(title + answer_table(row["answers"]))
    if left_out:
        sections.append("## Left out\n\n" + "".join(f"- {line}\n" for line in left_out))
    text = "\n".join(sections)
    write_text(path, text)
    return text


def _rates(cells: Sequence[dict]) -> str:
    """Returns the peak learning rate, and that of the reference if it has another one."""
    rates = {cell["start"]: f"{cell['learning_rate']:g}" for cell in cells}
    other = rates.pop("reference", None)
    rate = next(iter(rates.values()), other)
    return rate if other in (None, rate) else f"{rate} ({other} for the reference)"


def training_table(rows: Sequence[dict]) -> str:
    """Returns a table with one row per task, score, and start that the pretrained model is compared with."""
    scores: dict = {}  # {task: {start: {metric: {seed: value}}}}
    for row in rows:
        cell = row["cell"]
        for metric, value in row["scores"].items():
            by_start = scores.setdefault(cell["task"], {}).setdefault(cell["start"], {})
            by_start.setdefault(metric, {})[cell["seed"]] = value
    lines = []
    for other in STARTS[1:]:
        lines += _comparisons({task: found for task, found in scores.items() if other in found}, other)
    if not lines:  # no other start has been measured yet
        lines = [
            (task, metric, _shown(*mean_and_error(list(values.values()))), *[""] * 5)
            for task, found in scores.items()
            for metric, values in found.get("pretrained", {}).items()
        ]
    names = ("task", "score", "pretrained", "compared with", "its score", "difference", "p", "pretrained is")
    return _table(names, lines)


def _comparisons(scores: dict, other: str) -> list[tuple]:
    """Returns the rows that compare the pretrained model with another start. P-values are corrected over the tasks."""
    found: dict[tuple[str, str], tuple[list, list, Difference]] = {}
    for task, starts in scores.items():
        for metric, values in starts.get("pretrained", {}).items():
            seeds = [seed for seed in values if seed in starts[other].get(metric, {})]
            if seeds:
                sides = [[side[seed] for seed in seeds] for side in (values, starts[other][metric])]
                found[task, metric] = (*sides, paired_t_test(*sides))
    first = dict(reversed(found))  # the first score of each task
    corrected = dict(zip(first, holm([found[key][2].p for key in first.items()]), strict=True))
    lines = []
    for (task, metric), (mine, its, difference) in found.items():
        p = corrected[task]
        is_tested = first[task] == metric and not math.isnan(difference.error)
        tested = (_p_value(p), verdict(difference.mean, p)) if is_tested else ("", "")
        pretrained, theirs = (_shown(*mean_and_error(side)) for side in (mine, its))
        shown = _shown(difference.mean, difference.error, sign="+")
        lines.append((task, metric, pretrained, other, theirs, shown, *tested))
    return lines


def untrained_table(rows: Sequence[dict]) -> str:
    """Returns a table with one row per part and score, and one column per start."""
    found = {
        (row["cell"]["task"], metric, row["cell"]["start"]): _shown(value, _error(row, metric))
        for row in rows
        for metric, value in row["scores"].items()
        if row["cell"]["task"] != "minimal_pairs" or metric == "overall"
    }
    starts = [start for start in STARTS if any(key[2] == start for key in found)]
    parts = dict.fromkeys(key[:2] for key in found)
    lines = [(*part, *(found.get((*part, start), "") for start in starts)) for part in parts]
    return _table(("part", "score", *starts), lines)


def _error(row: dict, metric: str) -> float:
    """Returns the standard error, in per cent, of a score that needs no training."""
    if metric == "spearman":
        return 100 * spearman_error(row["scores"][metric] / 100, row["count"])
    if metric != "overall":
        return 100 * share_error(row["scores"][metric] / 100, row["count"])
    paradigms = [value for name, value in row["scores"].items() if name != "overall"]
    each = row["count"] // len(paradigms)
    return 100 * math.hypot(*(share_error(value / 100, each) for value in paradigms)) / len(paradigms)


def paradigm_table(rows: Sequence[dict]) -> str:
    names = dict.fromkeys(name for row in rows for name in row["scores"])
    lines = [(name, *(f"{row['scores'].get(name, math.nan):.1f}" for row in rows)) for name in names]
    return _table(("paradigm", *(row["cell"]["start"] for row in rows)), lines)


def answer_table(answers: Sequence[dict]) -> str:
    lines = [(answer["text"], answer["word"], ", ".join(answer["answers"])) for answer in answers]
    return _table(("sentence", "word", "answers, the likeliest first"), lines)


# === Parts ===


def _shown(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.1f}" + ("" if math.isnan(error) else f" ± {error:.1f}")


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [names, ["---"] * len(names), *lines]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)
