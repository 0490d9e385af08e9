"""What makes a tiny masked language model leave the unigram plateau within two minutes: one change at a time.

    python -m benchmarks.studies.plateau.run run --corpus corpora/novels --held-out corpora/novels_held_out  # all
    python -m benchmarks.studies.plateau.run run --corpus ... --held-out ... --shard 0/2  # half; 1/2: the rest
    python -m benchmarks.studies.plateau.run run --corpus ... --held-out ... \
        --arms "8 rows" "8 rows + no dropout" --seeds 0
    python -m benchmarks.studies.plateau.run combine --corpus ... --held-out ...  # the changes that helped, together
    python -m benchmarks.studies.plateau.run report  # writes report.md

A masked language model first learns how frequent tokens are. Its loss stays near that of a unigram model, the plateau,
until it learns to use context. The base is BERT with 2 layers of 128, learned absolute positions, rows of 128 tokens
and mostly the settings of the paper; every arm changes one thing (`arms.py`). A cell is a set of arms and a
seed, trained for the same time of one core: processor time of the updates and their batches, without compilation and
evaluation. Rates stay constant after the warm-up, so that a cell can be read at any time before its end.

All cells are evaluated on the same held-out targets, in rows of 128 and of 32 tokens. All of these targets are masked:
by BERT's rule a tenth of them would be visible, and copying is not the use of context. The measure is the loss minus
the unigram loss of these targets, in nats; the plateau is left when the loss is below 0.9 times the unigram loss.

`combine` takes the best arm of every group that helped with every seed, and trains them together, then without each of
them, then with other architectures. A finished cell is a line of RESULTS and is not run again.
"""

import json
import math
import os
import time
from pathlib import Path

import numpy as np
import tyro

from benchmarks.studies.plateau.arms import ARCHITECTURES, ARMS, arms_of, joined, recipe_of
from benchmarks.studies.plateau.divided_corpus import divided
from benchmarks.studies.plateau.report import WIDTHS, above, by_cell, report, winners
from kerasbert.backend import seed_everything
from kerasbert.data import Batches, Corpus
from kerasbert.layers import sinusoidal_table
from kerasbert.training.feed import real_tokens
from pipelines.runs.building import evaluation_batches, make_batches, make_model, make_optimizer

RESULTS = Path(__file__).with_name("rows.jsonl")
WORK = Path("runs/plateau")
EVERY = 10.0  # seconds between evaluations
HELD_OUT = 10, 4_096  # batches of an evaluation, tokens in each
CELLS = ("base", *ARMS, *(cell for cell in ARCHITECTURES if cell not in ARMS))


def run(
    corpus: Path,
    held_out: Path,
    arms: tuple[str, ...] = CELLS,
    seeds: tuple[int, ...] = (0, 1, 2),
    seconds: float = 120.0,
    shard: str = "0/1",
    minutes: float = math.inf,
    set: tuple[str, ...] = (),
) -> None:
    """Trains cells, all of them with the first seed, then with the next.

    Args:
        corpus: folder of `prepare_corpus`, to train on.
        held_out: the same, of other text.
        arms: "base", an arm, or several arms joined by " + ".
        seeds: of the weights, the order of the rows, and the masks.
        seconds: processor time of a cell.
        shard: "i/n": every n-th cell from the i-th on, on core i.
        minutes: start no cell after this time.
        set: settings of the recipe that all cells share.
    """
    started = time.monotonic()
    index, count = map(int, shard.split("/"))
    if hasattr(os, "sched_setaffinity"):  # before the backend starts its threads
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[index % len(cores)]})
    training, unseen = Corpus.open(corpus), Corpus.open(held_out)
    cells = [(joined(arms_of(name)), seed) for seed in seeds for name in arms]
    for cell, seed in cells[index::count]:
        section = training.fingerprint, seconds, set
        if seed in by_cell(read_rows(), section).get(cell, {}):
            continue
        if time.monotonic() - started > 60 * minutes:
            break
        row = train_cell(cell, seed, training, unseen, seconds, set)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{cell}, seed {seed}: {above(row, seconds):+.3f} nats after {row['updates']:,} updates", flush=True)


def combine(
    corpus: Path,
    held_out: Path,
    seeds: tuple[int, ...] = (0, 1, 2),
    seconds: float = 120.0,
    shard: str = "0/1",
    minutes: float = math.inf,
    set: tuple[str, ...] = (),
) -> None:
    """Trains the winners together, without each of them, and with other architectures. Arguments: see `run`."""
    section = Corpus.open(corpus).fingerprint, seconds, set
    best = winners(by_cell(read_rows(), section), seconds)
    print(f"winners: {', '.join(best) or 'none'}")
    without = [[name for name in best if name != one] for one in best if len(best) > 1]
    others = [[*best, *arms_of(cell)] for cell in ARCHITECTURES]
    if best:
        run(corpus, held_out, tuple(map(joined, [best, *without, *others])), seeds, seconds, shard, minutes, set)


def write_report() -> None:
    """Writes report.md."""
    text = report(read_rows())
    RESULTS.with_name("report.md").write_text(text)
    print(text)


def read_rows() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


# === A cell ===


def train_cell(
    cell: str, seed: int, corpus: Corpus, held_out: Corpus, seconds: float, changes: tuple[str, ...] = ()
) -> dict:
    """Trains and evaluates a cell; returns its line of RESULTS."""
    started = time.perf_counter()
    arms = [ARMS[name] for name in arms_of(cell)]
    text = divided(corpus, "".join(arm.text for arm in arms), WORK)
    recipes = [recipe_of(cell, seed, changes, later) for later in (False, True)]
    halves = [make_batches(recipe, text) for recipe in recipes]
    tests = [test_batches(held_out, width) for width in WIDTHS]
    seed_everything(seed)
    model = make_model(recipes[0], text)
    for arm in arms:
        start_as_sinusoids(model.backbone, arm.sinusoids)
    model.compile(make_optimizer(recipes[0]))

    clock, updates, tokens, compiled, curve = 0.0, 0, 0, [], []
    while clock < seconds:
        begin = time.process_time()
        batch = halves[0 if clock < seconds / 2 else 1][updates]
        model.train_on_batch(*batch)  # returns numbers, so the update is complete
        shape = batch[0]["token_ids"].shape
        if shape in compiled:
            clock += time.process_time() - begin
        else:
            compiled.append(shape)
        updates, tokens = updates + 1, tokens + real_tokens(batch[0])
        if clock >= min(EVERY * (len(curve) + 1), seconds):
            found = [model.evaluate(test, verbose=0, return_dict=True) for test in tests]
            losses = [round(math.log(metrics["perplexity"]), 4) for metrics in found]
            curve.append((round(clock, 1), updates, losses, round(float(found[0]["accuracy"]), 4)))
    return {
        "cell": cell,
        "seed": seed,
        "seconds": seconds,
        "set": list(changes),
        "corpus": corpus.fingerprint,
        "corpus_tokens": corpus.num_tokens,
        "vocabulary": corpus.tokenizer_info["vocabulary_size"],
        "unigram_losses": [round(unigram_loss(test, corpus), 4) for test in tests],
        "weights": model.count_params(),
        "updates": updates,
        "tokens": tokens,
        "curve": curve,  # seconds, updates, losses in rows of WIDTHS, accuracy in rows of the first width
        "elapsed": round(time.perf_counter() - started, 1),
    }


def test_batches(held_out: Corpus, width: int) -> Batches:
    """The same rows and masks for every cell; all targets are masked."""
    batches, tokens = HELD_OUT
    settings = [f"held_out.length={width}", f"held_out.batch_size={tokens // width}", "held_out.data.noise.rate=0.15"]
    recipe = recipe_of("base", seed=0).with_settings([*settings, "held_out.data.noise.shares=(1.0, 0.0)"])
    return evaluation_batches(recipe, held_out, batches)


def unigram_loss(batches: Batches, corpus: Corpus) -> float:
    """Nats per target of a model that knows how often each token is in the training text."""
    counts = corpus.counts()
    counts = np.pad(counts, (0, corpus.tokenizer_info["vocabulary_size"] - len(counts))) + 1.0
    losses = -np.log(counts / counts.sum())
    targets, weights = (np.concatenate([batch[part].ravel() for batch in batches]) for part in (1, 2))
    return float(np.average(losses[targets], weights=weights))


def start_as_sinusoids(backbone, tables: tuple[str, ...]) -> None:
    """Fills embedding tables with sinusoids by row number; a backbone may lack one of the tables."""
    for name in tables:
        if (table := getattr(backbone, name, None)) is not None:
            start = sinusoidal_table(*table.embeddings.shape)
            table.embeddings.assign(start * backbone.config.initializer_range / np.sqrt(np.square(start).mean()))


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"run": run, "combine": combine, "report": write_report})
