"""The shipped language models on the official suites of grammar: BLiMP, and Zorro.

    python -m benchmarks.studies.official_pairs.run --blimp blimp/data --zorro Zorro/sentences/babyberta --novels novels
    python -m benchmarks.studies.official_pairs.run --blimp ... --zorro ... --only mine --folder runs/mine/model
    python -m benchmarks.studies.official_pairs.run --report                 # only the table, `report.md`

The files are those of github.com/alexwarstadt/blimp (67 paradigms of 1,000 pairs) and github.com/phueb/Zorro (23 of
2,000), which no model was trained on and no setting was chosen on. A cell is a model with a paradigm: a row of
`rows.jsonl`, appended when it is finished. The commands run the cells that have no row yet.

A masked language model scores a sentence by its pseudo-log-likelihood, with one token masked at a time (Salazar et al.
2020, arXiv 1910.14659), and a causal one by its log-likelihood. Equal scores count one half. The baseline `5-gram`
counts the tokens of modernbert_mini_en in a folder of novels like those that the models read.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import kerasbert
from benchmarks.studies.official_pairs import report
from benchmarks.studies.suite.ngram_model import NgramModel
from kerasbert.metrics import minimal_pairs
from pipelines.reading.minimal_pairs import read_minimal_pairs

RESULTS = Path(__file__).with_name("rows.jsonl")
MODELS = ("modernbert_mini_en", "bert_mini_en", "gpt2_mini_en")
BASELINE = "5-gram"

Scorer = Callable[[list[str]], np.ndarray]


def scorer(name: str, novels: Path | None, folder: Path | None = None) -> Scorer:
    """Returns the function that scores sentences, float (number of sentences,), higher for better ones."""
    if name == BASELINE:
        return ngram_scorer(novels)
    folder = folder or Path("saved_models") / name
    model = kerasbert.load(folder if folder.is_dir() else name, dtype="float32")
    return lambda texts: np.array([answer["score"] for answer in model.score(texts, batch_size=256)])


def ngram_scorer(novels: Path) -> Scorer:
    """The scorer of the baseline. The separator is on both sides of each sentence, and of each line of a novel."""
    tokenizer = kerasbert.load("saved_models/modernbert_mini_en").require_tokenizer()
    end = np.array([tokenizer.sep_id], "int32")

    def stream(texts: list[str]) -> np.ndarray:
        rows = tokenizer.encode(texts, add_special_tokens=False)
        return np.concatenate([end] + [part for row in rows for part in (row, end)])

    lines = [
        line for file in sorted(novels.glob("*.txt")) for line in file.read_text("utf-8").splitlines() if line.strip()
    ]
    model = NgramModel(stream(lines), tokenizer.vocabulary_size)
    return lambda texts: np.array([model.log_probabilities(stream([text])[1:]).sum() for text in texts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blimp", type=Path, help="folder of the .jsonl files")
    parser.add_argument("--zorro", type=Path, help="folder of the .txt files")
    parser.add_argument("--novels", type=Path, help="folder of .txt files, for the baseline")
    parser.add_argument("--only", nargs="*", default=[BASELINE, *MODELS], help="models")
    parser.add_argument("--folder", type=Path, help="folder of the only model, if it is not in saved_models")
    parser.add_argument("--report", action="store_true", help="only write the table")
    options = parser.parse_args()
    if options.folder and len(options.only) != 1:
        parser.error(f"--folder needs --only with the name of its model. Received: {', '.join(options.only)}.")
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    done = {(row["model"], row["suite"], row["paradigm"]) for row in rows}
    folders = {} if options.report else {"BLiMP": options.blimp, "Zorro": options.zorro}
    for name in options.only if any(folders.values()) else []:
        if name == BASELINE and options.novels is None:
            continue
        score = scorer(name, options.novels, options.folder)
        for suite, folder in folders.items():
            for file in sorted(folder.iterdir()) if folder else []:
                if (name, suite, file.stem) not in done:
                    rows.append(measured(name, score, suite, file))
                    with RESULTS.open("a") as results:
                        results.write(json.dumps(rows[-1]) + "\n")
    report.write(rows, RESULTS.with_name("report.md"))


def measured(name: str, score: Scorer, suite: str, file: Path) -> dict:
    """The row of a model and a paradigm."""
    start, pairs = time.process_time(), read_minimal_pairs(file)
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores = dict(zip(texts, score(texts), strict=True))
    good, bad = [scores[pair.good] for pair in pairs], [scores[pair.bad] for pair in pairs]
    row = {"model": name, "suite": suite, "paradigm": file.stem, "phenomenon": pairs[0].phenomenon}
    accuracy = round(float(minimal_pairs(good, bad)), 4)
    seconds = round(time.process_time() - start, 1)
    print(f"{name}, {file.stem}: {accuracy:.3f}, {seconds} s", flush=True)
    return row | {"pairs": len(pairs), "accuracy": accuracy, "cpu_seconds": seconds}


if __name__ == "__main__":
    main()
