"""Next sentence and sentence order on long documents, against the majority of the labels.

    KERAS_BACKEND=torch python -m benchmarks.studies.sentence_pairs.run --text books.txt news.txt
    KERAS_BACKEND=torch python -m benchmarks.studies.sentence_pairs.run --text books.txt news.txt --only "next, trained"

The question is whether models of a few million weights learn the objectives for pairs of segments: BERT's next sentence
prediction (Devlin et al. 2018, arXiv 1810.04805) and ALBERT's sentence order (Lan et al. 2019, arXiv 1909.11942). A
cell is an objective, a start and a seed. The model is a BERT of the size of `bert_mini_en`, which starts with its
weights ("trained") or with random ones ("random"), and is trained with masked language modeling and the label together:
`--updates` batches of 16 rows of 128 tokens, which hold two segments of about 60 tokens, with AdamW, a warm-up of 10%
and linear decay, in bfloat16.

The files have one document per block of lines. Every fourth document is held out, and PAIRS pairs of these documents
are scored. Their text overlaps, so the standard error of the accuracy is that of the mean over documents (a ratio of
sums), and a model counts as better than the majority from 5 standard errors on.

A finished cell is a row of `rows.jsonl`. The same command continues with the others.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import append, machine
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, MaskedLMBatches, SegmentPairs, SentenceOrder, Tokenizer
from kerasbert.objectives import MaskedLM
from kerasbert.training import adamw

RESULTS = Path(__file__).with_name("rows.jsonl")
MODEL = "bert_mini_en"
OBJECTIVES = {"next": SegmentPairs(passes=8), "order": SentenceOrder(passes=8)}
STARTS = ("trained", "random")
SEEDS = 2
PAIRS = 20_000
HELD_OUT = 4  # every fourth document
ROWS, LENGTH = 16, 128
RATE = 5e-4
CLEAR = 5.0  # standard errors


def cells() -> list[str]:
    """All cells, in the order in which they are run: "next, trained, seed 0"."""
    return [f"{name}, {start}, seed {seed}" for seed in range(SEEDS) for name in OBJECTIVES for start in STARTS]


def corpora(files: list[Path]) -> tuple[Corpus, Corpus]:
    """The documents to train on, and those that are held out."""
    documents = [block for file in files for block in file.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    documents = [document for document in documents if "\n" in document.strip()]  # of two lines or more
    tokenizer = Tokenizer.from_preset(MODEL)
    held_out = documents[::HELD_OUT]
    del documents[::HELD_OUT]
    return Corpus.in_memory(documents, tokenizer), Corpus.in_memory(held_out, tokenizer)


def trained(name: str, start: str, seed: int, corpus: Corpus, updates: int) -> MaskedLM:
    seed_everything(seed)
    model = MaskedLM.from_preset(MODEL, sentence_pair=True)
    if start == "random":
        model = MaskedLM(type(model.backbone)(model.backbone.config), sentence_pair=True, tokenizer=model.tokenizer)
    model.compile(adamw(RATE, updates // 10, updates))
    model.fit(MaskedLMBatches(corpus, ROWS, LENGTH, seed=seed, steps=updates, rows=OBJECTIVES[name]), verbose=0)
    return model


def right_and_documents(model: MaskedLM, name: str, corpus: Corpus) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether the model is right about each held-out pair, the labels, and the document of the first segment."""
    layout = OBJECTIVES[name](corpus, LENGTH, 0)
    lines = np.random.default_rng(0).permutation(len(layout.plan))[:PAIRS]
    logits = []
    for first in range(0, len(lines), 64):
        x = layout.fill(lines[first : first + 64])
        x["masked_positions"] = np.full((len(x["token_ids"]), 1), -1, np.int32)  # no token is predicted
        logits.append(np.asarray(model.predict_on_batch(x)["sentence_pair"], np.float32))
    labels = layout.labels(lines)
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts[:-1]]
    documents = np.searchsorted(starts, np.asarray(layout.plan)[lines, 0], side="right")
    return np.concatenate(logits).argmax(-1) == labels, labels, documents


def gain(right: np.ndarray, baseline: np.ndarray, documents: np.ndarray) -> tuple[float, float]:
    """The difference of two accuracies, and its standard error over documents (Cochran 1977, ratio estimators)."""
    difference = right.astype(float) - baseline
    mean = difference.mean()
    residuals = np.bincount(documents, difference - mean)[np.unique(documents)]
    count = len(residuals)
    return float(mean), float(np.sqrt(count / (count - 1) * (residuals**2).sum()) / len(difference))


def is_clear(difference: float, error: float) -> bool:
    """Whether a gain is above CLEAR standard errors. A model that always gives the majority has a gain of 0 ± 0."""
    return difference > max(0.0, CLEAR * error)


def run_cell(cell: str, train: Corpus, held_out: Corpus, updates: int) -> dict:
    name, start, seed = cell.split(", ")
    begin = time.process_time()
    model = trained(name, start, int(seed.removeprefix("seed ")), train, updates)
    seconds = time.process_time() - begin
    right, labels, documents = right_and_documents(model, name, held_out)
    most = np.bincount(labels).argmax()
    difference, error = gain(right, labels == most, documents)
    row = {"cell": cell, "updates": updates, "pairs": len(right), "documents": len(np.unique(documents))}
    row |= {"accuracy": float(right.mean()), "majority": float((labels == most).mean())}
    row |= {"gain": difference, "error": error, "clear": is_clear(difference, error)}
    return row | {"seconds": round(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, nargs="+", required=True, help="files, with an empty line between documents"
    )
    parser.add_argument("--only", nargs="*", default=[], help="cells whose names begin so; default: all")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the rows")
    options = parser.parse_args()
    import keras  # behind kerasbert, which picks the backend

    keras.config.set_dtype_policy("mixed_bfloat16")
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {row["cell"] for row in map(json.loads, lines) if row["updates"] == options.updates}
    train, held_out = corpora(options.text)
    for cell in cells():
        if cell not in done and (not options.only or cell.startswith(tuple(options.only))):
            row = run_cell(cell, train, held_out, options.updates)
            append(options.results, [{**row, "text": [file.name for file in options.text], **machine()}])
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
