"""Every tiny recipe on real text: what it learns, how fast, in how much memory.

    python -m benchmarks.studies.tiny_recipes.run --data data                    # all cells, one after the other
    python -m benchmarks.studies.tiny_recipes.run --data data --only electra.tiny xlnet.tiny
    python -m benchmarks.studies.tiny_recipes.run --data data --only roberta.tiny --text french --tokenizer unigram
    python -m benchmarks.studies.tiny_recipes.run --data data --table            # writes tiny_recipes.md

A cell is one recipe, with its settings, text and tokenizer, trained in a program of its own: a row of RESULTS, appended
when it is finished; a cell that is there is not run again, and one that was cut off continues from its checkpoint.
`texts.py` has the texts, `measures.py` what is measured, and `bars.py` what a model has to be better than
on the same held-out targets: by CLEAR standard errors, or the table says that the bar is not met.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import tyro

import kerasbert
from benchmarks.studies.tiny_recipes.measures import STEPS, compare, measure
from benchmarks.studies.tiny_recipes.texts import corpora_of, text_of
from pipelines.pretrain import train
from pipelines.recipes.recipe import all_recipes, find_recipe
from pipelines.runs.building import make_model

RESULTS = Path(__file__).with_name("rows.jsonl")
CLEAR = 5.0  # standard errors


def tiny_recipes() -> list[str]:
    """Names of the tiny recipes; teachers are trained inside the cells that need them."""
    runs = [name for name in all_recipes() if name.partition(".")[2].startswith("tiny") or name.endswith("_tiny")]
    return [name for name in runs if not name.endswith("teacher")]


def main(
    data: Path,
    only: tuple[str, ...] = (),
    work: Path = Path("runs/tiny_recipes"),
    seconds: float | None = None,
    table: bool = False,
    cell: str = "",
    text: str = "",
    tokenizer: str = "",
    set: tuple[str, ...] = (),
    results: Path = RESULTS,
) -> None:
    """Runs cells, and writes the table.

    Args:
        data: folder of the texts.
        only: recipes; default: all.
        work: folder for corpora and runs.
        seconds: stop a cell after so long, to see that it works; nothing is recorded then.
        table: only write it.
        cell: the one recipe that this program is to run.
        text: instead of the text of the recipe; see `recipe_texts.documents_of`.
        tokenizer: kind of the tokenizer, instead of that of the recipe.
        set: changes of the recipe.
        results: file of the rows; the table is beside it.
    """
    if cell:
        row = run_cell(cell, data, work, list(set), text, tokenizer)
        with open(results, "a") as file:
            file.write(json.dumps(row) + "\n")
        return
    done = {cell_of(row) for row in read_rows(results) if "measures" in row}
    for name in () if table else only or tiny_recipes():
        if (name, set, *text_of(name, text, tokenizer)[:2]) in done:
            continue
        command = [sys.executable, "-m", __spec__.name, "--data", data, "--work", work]
        command += ["--results", results, "--cell", name, "--text", text, "--tokenizer", tokenizer]
        command += ["--set", *set] if set else []
        try:
            subprocess.run(list(map(str, command)), timeout=seconds, check=True)
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {seconds:.0f} seconds")
        except subprocess.CalledProcessError as error:
            print(f"{name}: failed ({error.returncode})")
    page = report(read_rows(results))
    results.with_name("report.md").write_text(page, encoding="utf-8")
    print(page)


def cell_of(row: dict) -> tuple:
    """What identifies a cell."""
    text, tokenizer, _ = text_of(row["recipe"], row.get("text", ""), row.get("tokenizer", ""))
    return row["recipe"], tuple(row["set"]), text, tokenizer


def read_rows(results: Path) -> list[dict]:
    """The newest row of every cell."""
    lines = results.read_text().splitlines() if results.exists() else []
    return list({cell_of(row): row for row in map(json.loads, lines)}.values())


# === A cell ===


def run_cell(name: str, data: Path, work: Path, settings: list[str], text: str = "", tokenizer: str = "") -> dict:
    """Trains a recipe and measures it before and after; returns its row of RESULTS."""
    import keras  # behind kerasbert, which picks the backend

    load, recipe = os.getloadavg(), find_recipe(name).with_settings(settings)
    corpora, unseen = corpora_of(name, data, work / "corpora", text, tokenizer)
    run = work / "-".join(filter(None, [name, text, tokenizer, *settings])).replace("/", "_").replace(" ", "_")
    before = {}
    if not recipe.teacher and not recipe.init_from:
        before = measure(recipe, make_model(recipe, next(iter(corpora.values()))), unseen)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is that of training
    clock = time.perf_counter()
    last = train(recipe, corpora, run, unseen, held_out_steps=STEPS, report_every=500)
    seconds = max(time.perf_counter() - clock, last.get("seconds", 0.0))  # of all programs, if some were cut off
    peak = peak_mib()
    model = kerasbert.load(run / "model")  # of a teacher and its student, the student
    kind = text_of(name, text, tokenizer)
    return {
        **{"recipe": name, "set": settings, "text": kind[0], "tokenizer": kind[1], "seed": recipe.seed},
        **{"backend": keras.backend.backend(), "cores": len(os.sched_getaffinity(0))},
        **{"load": [round(number, 2) for number in load], "load_at_end": [round(n, 2) for n in os.getloadavg()]},
        **{"weights": model.backbone.count_params(), "steps": last["step"], "tokens": last.get("tokens")},
        "start": before,
        **compare(recipe, model, corpora, unseen),
        "tokens_per_second": last.get("tokens_per_second"),
        "seconds": round(seconds, 1),
        "peak_mib": peak,
        "last": last,
    }


def peak_mib() -> int:
    """Most memory of this program; `getrusage` would begin with that of the program which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024)


# === The tables ===

INTRODUCTION = f"""# The tiny recipes on real text

By `python -m benchmarks.studies.tiny_recipes.run`, which names the files that explain the texts, the
measures and the bars.

## What is learned

On held-out text, nats a token that the model was not shown. `bar`: the best prediction from counts alone, on the same
targets; the others are in brackets. Unigrams are those of a language, bigrams are for models that read the token before
a target, and an accuracy has to be better than always giving the most frequent label. `gain`: by how much the model is
better, with its standard error over the units of the last column: whole documents, up to 24 blocks of a held-out text
of fewer than 20 documents, pairs (of a text and its translation or answer), or batches of pairs of words. A bar is met
from {CLEAR:g} standard errors on.
"""

RUNS = """
## Runs

Values of the first measure of each recipe, mostly nats: before training, at its end on training text, and on held-out
text. Tokens without padding, minutes with the training of a teacher; the most memory during training; the mean load of
the machine over the last minute, before the run and at its end.
"""


def report(rows: list[dict]) -> str:
    """The page of all cells, in Markdown."""
    rows = sorted(rows, key=label)
    learned = [line for row in rows for line in verdicts(row)]
    older = [label(row) for row in rows if "measures" not in row]
    left = ""
    if older:
        left = f"\nMeasured without these bars, some on other text, and to be run again: {', '.join(older)}.\n"
    return "\n".join(
        [
            INTRODUCTION,
            *table(("recipe", "measure", "value", "bar", "gain", "clears by", "", "over"), learned),
            left + RUNS,
            *table(
                ("recipe", "before", "trained on", "held out", "updates", "tokens", "tokens/s", "MiB", "minutes")
                + ("cores", "load", "seed"),
                [summary(row) for row in rows],
            ),
            "",
        ]
    )


def label(row: dict) -> str:
    """The recipe, with what differs from its usual text, tokenizer and settings."""
    usual = text_of(row["recipe"])
    changed = [row.get(key, value) for key, value in zip(("text", "tokenizer"), usual, strict=False)]
    changed = [value for value, was in zip(changed, usual, strict=False) if value != was]
    return ", ".join([row["recipe"], *changed, *row["set"]])


def verdicts(row: dict) -> list[list[str]]:
    """A line of the first table for every measure."""
    lines = []
    for found in row.get("measures", ()):
        bars = [f"{name} {value:.3f}" for name, value in found["bars"].items() if name != found["bar"]]
        bar = f"{found['bar']} {found['bars'][found['bar']]:.3f}" + (f" ({', '.join(bars)})" if bars else "")
        errors = found["gain"] / found["error"] if found["error"] else 0.0
        verdict = "met" if errors >= CLEAR else "not met"
        gain = f"{found['gain']:+.3f} ± {found['error']:.3f}"
        numbers = [f"{found['value']:.3f}", bar, gain, f"{errors:.1f}", verdict, f"{found['units']:,} {found['kind']}"]
        lines.append([label(row), found["what"], *numbers])
    return lines


def summary(row: dict) -> list[str]:
    """A line of the second table."""
    held_out = {found["what"]: found["value"] for found in row["measures"]} if "measures" in row else row["held_out"]
    values = [next(iter(part.values()), None) for part in (row["start"], row["end"], held_out)]
    if "measures" not in row:
        values = [part.get("token_loss", part.get("loss")) for part in (row["start"], row["end"], held_out)]
    load = "" if "load" not in row else f"{row['load'][0]:.1f}, {row['load_at_end'][0]:.1f}"
    tokens = row.get("tokens") or row["last"].get("tokens")
    numbers = [f"{row['steps']:,}", f"{tokens:,}" if tokens else "", f"{row['tokens_per_second'] or 0:,.0f}"]
    numbers += [f"{row['peak_mib']:,}", f"{row['seconds'] / 60:.0f}", str(row["cores"]), load, str(row.get("seed", ""))]
    return [label(row), *("" if value is None else f"{value:.3f}" for value in values), *numbers]


def table(columns: tuple[str, ...], lines: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *lines)]


if __name__ == "__main__":
    tyro.cli(main)
