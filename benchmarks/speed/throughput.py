"""How much text small models read in stages of two and a half hours on this machine, to budget trainings.

    python -m benchmarks.speed.throughput --corpus corpora/novels  # every model, on one core and on two
    python -m benchmarks.speed.throughput --corpus corpora/novels --only GPT-2  # those whose names hold one of these
    python -m benchmarks.speed.throughput --corpus corpora/novels --table  # only the table

Each model is trained by `fit` for 30 updates, by a process of its own that may use one core or two; the time is the
median of three parts of 10. Compilation, validation and checkpoints are not in it: of a stage, 95% are counted. Real
tokens are those that are not padding; `busy` is the share of the cores' time that the process had, far below 100% on
one core if other programs were running. Operations are those of matrix products, two for a multiplication and an
addition, three times for the gradients; padding costs as much as text.

The corpus should have a vocabulary of 8,000. KERAS_BACKEND chooses the backend. Results are kept in RESULTS, and what
is there for a corpus and a backend is not measured again.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.studies.plateau.divided_corpus import divided
from benchmarks.studies.plateau.report import table
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus
from kerasbert.training.feed import real_tokens
from pipelines.recipes.recipe import find_recipe
from pipelines.runs.building import make_batches, make_model, make_optimizer

WORK = Path("runs/throughput")
RESULTS = WORK / "results.jsonl"
PARTS, UPDATES = 3, 10  # timed parts, updates in each
SAMPLE = 200  # batches whose tokens are counted
STAGES, HOURS = (2, 4, 8), 2.5
TRAINING_SHARE = 0.95  # of a stage

# === Models ===

WIDE = ("model.hidden_dim=256", "model.feed_forward_dim=1024")
BERT = (
    *WIDE,
    *("model.num_heads=8", "model.max_length=128", "model.dropout=0.1", "model.attention_dropout=0.1"),
    *("data.rows=chunks", "data.static_masks=0"),
    "data.noise.shares=(0.9, 0.0)",  # no visible targets, as in BabyBERTa
)
PACKED = ("data.rows=packed", "length=128")
MODERNBERT = (
    *("model.num_layers=6", "model.hidden_dim=256", "model.num_heads=4", "model.feed_forward_dim=384"),
    "model.local_attention=128",
)


@dataclass(frozen=True)
class Candidate:
    """A model with its rows.

    Args:
        recipe: the name of the recipe that is changed.
        settings: the changes.
        text: the unit of text that a sequence does not go beyond; see `divided_corpus`.
    """

    recipe: str
    settings: tuple[str, ...]
    text: str = ""


def bert(layers: int, *settings: str) -> Candidate:
    """A BERT like BabyBERTa, with one sentence in each sequence."""
    return Candidate("bert.tiny", (*BERT, f"model.num_layers={layers}", "batch_size=16", *settings), "sentences")


CANDIDATES = {
    **{f"BERT 8 x 256, a sentence in each of 16 rows of {n}": bert(8, f"length={n}") for n in (32, 64, 128)},
    **{f"BERT 8 x 256, sentences packed into {n} rows of 128": bert(8, *PACKED, f"batch_size={n}") for n in (4, 16)},
    **{f"BERT 4 x 256, a sentence in each of 16 rows of {n}": bert(4, f"length={n}") for n in (32, 64, 128)},
    "BERT 4 x 256, sentences packed into 16 rows of 128": bert(4, *PACKED),
    "ModernBERT 6 x 256, 16 packed rows of 128": Candidate("modernbert.tiny", (*MODERNBERT, "batch_size=16")),
    "GPT-2 6 x 256, 16 rows of 128": Candidate(
        "gpt2.tiny", (*WIDE, "model.num_layers=6", "model.num_heads=4", "batch_size=16", "length=128")
    ),
}


def main(
    corpus: Path, only: tuple[str, ...] = (), cores: tuple[int, ...] = (1, 2), table: bool = False, cell: str = ""
) -> None:
    """Measures models and prints the table.

    Args:
        corpus: folder of `prepare_corpus`.
        only: models whose names hold one of these; default: all.
        cores: how many cores a process may use.
        table: only print it.
        cell: the one model that this process is to measure, with all cores that it may use.
    """
    if cell:
        row = measure(cell, Corpus.open(corpus))
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with open(RESULTS, "a") as file:
            file.write(json.dumps(row) + "\n")
        return
    fingerprint, allowed = Corpus.open(corpus).fingerprint, sorted(os.sched_getaffinity(0))
    for name in () if table else CANDIDATES:
        if only and not any(part in name for part in only):
            continue
        for count in cores:
            if (name, count) in measured(fingerprint):
                continue
            os.sched_setaffinity(0, allowed[:count])  # which the new process inherits
            command = [sys.executable, "-m", __spec__.name, "--corpus", str(corpus), "--cell", name]
            if code := subprocess.run(command).returncode:
                print(f"{name}, {count} cores: failed ({code})", flush=True)
    print(write_table(measured(fingerprint)))


def measured(fingerprint: str) -> dict[tuple[str, int], dict]:
    """{(name, cores): row} of a corpus and this backend."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    found = [row for row in map(json.loads, lines) if (row["corpus"], row["backend"]) == (fingerprint, backend())]
    return {(row["cell"], row["cores"]): row for row in found}


def backend() -> str:
    import keras  # behind kerasbert, which picks the backend

    return keras.backend.backend()


# === A measurement ===


def measure(name: str, corpus: Corpus) -> dict:
    """Trains a model for some updates; returns the line of RESULTS."""
    candidate = CANDIDATES[name]
    text = divided(corpus, candidate.text, WORK)
    short = (f"steps={SAMPLE}", "warmup=0", "optimizer.schedule.decay_from=warmup")
    recipe = find_recipe(candidate.recipe).with_settings([*candidate.settings, *short])
    seed_everything(0)
    model = make_model(recipe, text)
    model.compile(make_optimizer(recipe))
    sample = make_batches(recipe, text)
    tokens = statistics.mean(real_tokens(sample[step][0]) for step in range(SAMPLE))
    seconds, busy = [], []
    for part in range(PARTS + 1):
        batches = make_batches(recipe.with_settings([f"steps={UPDATES}", f"seed={part}"]), text)
        begin, begin_busy = time.perf_counter(), time.process_time()
        model.fit(batches, verbose=0)
        seconds.append((time.perf_counter() - begin) / UPDATES)
        busy.append((time.process_time() - begin_busy) / UPDATES)
    return {
        "cell": name,
        "corpus": corpus.fingerprint,
        "backend": backend(),
        "cores": len(os.sched_getaffinity(0)),
        "weights": model.count_params(),
        "operations": training_operations(model, sample[0][0]),
        "slots": sample[0][0]["token_ids"].size,
        "tokens": tokens,
        "seconds": statistics.median(seconds[1:]),
        "processor_seconds": statistics.median(busy[1:]),
        "first_seconds": seconds[0] * UPDATES,  # with compilation
    }


def training_operations(model, x: dict) -> float:
    """Operations of the matrix products of one update.

    Where a backbone computes only some positions in its last block, these are the predicted ones and the first of each
    sequence; keys and values are computed for all.
    """
    config, (rows, length) = model.backbone.config, x["token_ids"].shape
    wide, gated = config.hidden_dim, hasattr(config, "global_rope_theta")
    slots = x["masked_positions"].shape[1] if "masked_positions" in x else length
    inner = (3 if gated else 2) * wide * config.feed_forward_dim
    token = 2 * wide**2 + inner + 2 * length * wide  # query and output, feed-forward, scores and their sums
    block = length * (2 * wide**2 + token)
    last = block
    if model.backbone.has_output_positions:
        first = x["first_positions"].shape[1] if "first_positions" in x else 1
        last = length * 2 * wide**2 + (slots + first) * token
    transform = wide**2 if "masked_positions" in x else 0
    total = (config.num_layers - 1) * block + last + slots * (transform + wide * config.vocabulary_size)
    return 6.0 * rows * total


# === The table ===


def write_table(rows: dict[tuple[str, int], dict]) -> str:
    """The rows in Markdown; what fits into the stages is that of the most cores."""
    cores = sorted({count for _, count in rows})
    columns = ["model", "weights", "MFLOP a token", "real tokens an update"]
    columns += [f"{count} core{'s' * (count > 1)}: s an update, real tokens/s, GFLOP/s, busy" for count in cores]
    columns += [f"{stages} stages ({stages * HOURS:g} h): M tokens, thousand updates" for stages in STAGES]
    lines = []
    for name in CANDIDATES:
        found = {count: rows[name, count] for count in cores if (name, count) in rows}
        if not found:
            continue
        row = found[max(found)]
        share = f"{row['tokens']:,.0f} ({row['tokens'] / row['slots']:.0%})"
        line = [name, f"{row['weights'] / 1e6:.1f} M", f"{row['operations'] / row['slots'] / 1e6:.1f}", share]
        for count in cores:
            numbers = found.get(count)
            line.append("" if numbers is None else ", ".join(speeds(numbers)))
        for stages in STAGES:
            updates = TRAINING_SHARE * stages * HOURS * 3_600 / row["seconds"]
            line.append(f"{updates * row['tokens'] / 1e6:,.0f}, {updates / 1_000:,.0f}")
        lines.append(line)
    return "\n".join(table(columns, lines))


def speeds(row: dict) -> list[str]:
    seconds = row["seconds"]
    rates = f"{row['tokens'] / seconds:,.0f}", f"{row['operations'] / seconds / 1e9:,.0f}"
    return [f"{seconds:.3f}", *rates, f"{row['processor_seconds'] / row['cores'] / seconds:.0%}"]


if __name__ == "__main__":
    tyro.cli(main)
