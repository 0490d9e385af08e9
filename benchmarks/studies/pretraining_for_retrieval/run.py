"""Pretraining for retrieval: RetroMAE, DupMAE, TSDAE and SimCSE against more masked language modeling.

    python -m benchmarks.studies.pretraining_for_retrieval.run --data data/retrieval
    python -m benchmarks.studies.pretraining_for_retrieval.run --data data/retrieval --only retromae "mlm, seed 0"
    python -m benchmarks.studies.pretraining_for_retrieval.run --report

The first command runs the cells that have no row yet, the last one only writes the table, `report.md`. A cell is an
objective with a seed, in a program of its own: a row of `rows.jsonl`, appended when it is finished.

    none      no further pretraining
    mlm       masked tokens, 30%
    retromae  `RetroMAE`: masks of 30% for the encoder, and of 50% for the decoder
    dupmae    the same with `bag_of_words_weight=0.1`
    tsdae     `TSDAE`: 60% of the words are deleted
    simcse    `SimCSE`, temperature 0.05

All start from `modernbert_mini_en` and read the same number of rows of the documents of SciFact and Vaswani, without
their queries: `--updates` batches of 16 rows of 128 tokens, with AdamW, a warm-up of 10% and linear decay. Each is then
trained in the same way on the 809 claims of SciFact's training split, each with one of its abstracts: `--passes` over
them in batches of 32, with `MultipleNegatives`. The embedding is the output at the first token; "none, mean" and
"mlm, mean" take the mean of all tokens, which masked language models need. Seeds change masks, the order and dropout.
SimCSE needs dropout, and has the rate 0.1. All arms are computed in bfloat16 (`mixed_bfloat16`). No setting was chosen
on a test split.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.studies.pretraining_for_retrieval import report
from kerasbert.data import Corpus, MaskedLMBatches, RetroMAEBatches, Tokens, TSDAEBatches, WholeTextBatches
from kerasbert.objectives import TSDAE, MaskedLM, RetroMAE, SimCSE
from kerasbert.retrieval import MultipleNegatives, evaluate_retrieval, read_beir
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw

RESULTS = Path(__file__).with_name("rows.jsonl")
MODEL = "modernbert_mini_en"
DTYPE = "mixed_bfloat16"  # takes 60 to 75% of the time of float32 on a core with bfloat16 instructions
COLLECTIONS = ("scifact", "vaswani")
SEEDS = 5
ROWS, LENGTH = 16, 128  # of a batch of pretraining
RATE = 3e-4
PAIRS, TUNING_RATE = 32, 1e-4  # of the training on pairs
DROPOUT = dict(attention_dropout=0.1, attention_output_dropout=0.1, feed_forward_dropout=0.1)


def masked(corpus: Corpus, **options: Any) -> MaskedLMBatches:
    """Batches with the masks that ModernBERT has."""
    return MaskedLMBatches(corpus, noise=Tokens(0.3, mask_special=True, count="independent"), **options)


# Name -> (class of the objective, function that makes its batches, further arguments of the class).
OBJECTIVES: dict[str, tuple[type, Callable, dict[str, Any]]] = {
    "mlm": (MaskedLM, masked, {}),
    "retromae": (RetroMAE, RetroMAEBatches, {}),
    "dupmae": (RetroMAE, RetroMAEBatches, dict(bag_of_words_weight=0.1)),
    "tsdae": (TSDAE, TSDAEBatches, {}),
    "simcse": (SimCSE, WholeTextBatches, DROPOUT),
}
# Name of an arm -> (objective, pooling).
ARMS = {
    "none": (None, "cls"),
    "none, mean": (None, "mean"),
    "mlm": ("mlm", "cls"),
    "mlm, mean": ("mlm", "mean"),
    **{name: (name, "cls") for name in ("retromae", "dupmae", "tsdae", "simcse")},
}


def cells() -> list[str]:
    """All cells, in the order in which they are run: "tsdae, seed 0"."""
    return [f"{name}, seed {seed}" for seed in range(SEEDS) for name in ARMS]


def rows(results: Path) -> list[dict]:
    """The measured rows."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def pretrained(name: str, seed: int, data: Path, work: Path, updates: int) -> tuple[Path, dict[str, float]]:
    """Trains an objective on the documents. Returns the folder of the model, and the numbers of the training."""
    from kerasbert.backend import seed_everything

    folder = work / f"{name}-{seed}-{updates}"
    if (folder / "numbers.json").exists():  # two arms have the same model
        return folder, json.loads((folder / "numbers.json").read_text())
    cls, make, arguments = OBJECTIVES[name]
    seed_everything(seed)
    model = cls.from_preset(MODEL, **arguments)
    texts = [text for collection in COLLECTIONS for text in read_beir(data / collection).documents.values()]
    corpus = Corpus.in_memory(texts, model.tokenizer)
    batches = make(corpus, batch_size=ROWS, length=LENGTH, seed=seed, steps=updates)
    model.compile(adamw(RATE, updates // 10, updates))
    begin = time.process_time()
    loss = model.fit(batches, verbose=0).history["loss"][-1]
    numbers = {"pretraining_seconds": round(time.process_time() - begin), "loss": round(float(loss), 4)}
    model.save_to_preset(folder)
    (folder / "numbers.json").write_text(json.dumps(numbers))
    return folder, numbers


def tuned(start: str | Path, pooling: str, seed: int, data: Path, passes: int) -> tuple[TextEmbedder, dict[str, float]]:
    """Trains an embedder on pairs of SciFact. Returns it, and the numbers of the training."""
    from kerasbert.backend import seed_everything

    collection = read_beir(data / "scifact", "train")
    pairs = []
    for query in collection.judged:
        relevant = [document for document, grade in collection.relevant[query].items() if grade > 0]
        pairs.append((collection.queries[query], collection.documents[relevant[seed % len(relevant)]]))
    seed_everything(seed)
    model = TextEmbedder.from_preset(start, pooling=pooling, max_length=LENGTH, objective=MultipleNegatives())
    updates = passes * -(-len(pairs) // PAIRS)
    model.compile(adamw(TUNING_RATE, updates // 10, updates))
    begin = time.process_time()
    model.fit(pairs, batch_size=PAIRS, epochs=passes, seed=seed, verbose=0)
    return model, {"tuning_seconds": round(time.process_time() - begin)}


def run_cell(name: str, options: argparse.Namespace) -> None:
    """Trains and measures one cell, and appends its row."""
    import keras  # behind kerasbert, which picks the backend

    keras.config.set_dtype_policy(DTYPE)
    arm, seed = name.split(", seed ")
    objective, pooling = ARMS[arm]
    start, numbers = MODEL, {}
    if objective is not None:
        start, numbers = pretrained(objective, int(seed), options.data, options.work, options.updates)
    model, more = tuned(start, pooling, int(seed), options.data, options.passes)
    scores = {}
    for collection in COLLECTIONS:
        found = evaluate_retrieval(read_beir(options.data / collection), model)
        scores[collection] = {key: round(found[key], 4) for key in ("ndcg@10", "mrr@10", "recall@10")}
    row = {"cell": name, "arm": arm, "seed": int(seed), "scores": scores, **numbers, **more}
    row |= {"updates": options.updates if objective else 0, "passes": options.passes}
    with options.results.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**row, "backend": keras.backend.backend()}) + "\n")
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the collections scifact and vaswani")
    parser.add_argument("--only", nargs="*", default=[], help="cells whose names begin so; default: all")
    parser.add_argument("--updates", type=int, default=400, help="of pretraining")
    parser.add_argument("--passes", type=int, default=3, help="over the claims of SciFact")
    parser.add_argument("--work", type=Path, default=Path("runs/pretraining_for_retrieval"), help="folder for models")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the rows; the table is beside it")
    parser.add_argument("--report", action="store_true", help="only write the table")
    parser.add_argument("--cell", help="the one that this program is to run")
    options = parser.parse_args()
    if options.cell:
        run_cell(options.cell, options)
        return
    done = {
        row["cell"]
        for row in rows(options.results)
        if row["passes"] == options.passes and row["updates"] in (0, options.updates)
    }
    for name in [] if options.report else cells():
        if name in done or (options.only and not name.startswith(tuple(options.only))):
            continue
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--data", str(options.data), "--cell", name]
        command += [
            "--results",
            str(options.results),
            "--work",
            str(options.work),
            "--updates",
            str(options.updates),
            "--passes",
            str(options.passes),
        ]
        code = subprocess.run(command, env={"OMP_NUM_THREADS": "1", **os.environ}).returncode
        if code:
            print(f"{name}: failed ({code})", flush=True)
    table = options.results.with_name("report.md")
    report.write(rows(options.results), list(ARMS), options.updates, options.passes, table)


if __name__ == "__main__":
    main()
