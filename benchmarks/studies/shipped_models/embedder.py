"""Trains a small embedder on pairs of texts that belong together.

    python -m benchmarks.studies.shipped_models.embedder --data data --output runs/embedder
    python -m benchmarks.studies.shipped_models.embedder --data data --output runs/embedder --evaluate

The pairs are of sources whose licenses allow it to publish the weights (`pairs_of`). A batch has pairs of one source,
so that the other texts of the batch, which are the negatives, are not told apart by their source. `--retro-updates`
trains the encoder by RetroMAE on documents first. Settings were chosen by STSb's validation split and the training
claims of SciFact, which are not among the pairs. `--evaluate` scores a model on the test splits, also another one:
`--output saved_models/modernbert_mini_en --evaluate`.
"""

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import kerasbert  # noqa: F401  # before keras, for which it picks the backend
from benchmarks.harness import append
from kerasbert import metrics
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, RetroMAEBatches
from kerasbert.objectives import RetroMAE
from kerasbert.retrieval import MultipleNegatives, evaluate_retrieval, read_beir
from kerasbert.retrieval.search import unit_rows
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw

LENGTH = 128  # tokens of a text, the most that the encoder reads
ROWS = 16  # of a batch of RetroMAE
PAIRS = 64  # of a batch of pairs
RETRO_RATE, RATE = 3e-4, 3e-4
SCALE = 20.0
SMALL_FILES = ("wikipedia_wikisplit", "news_wikinews", "news_onestop", "web_ewt", "books_standardebooks")


# === Data ===


def sentences_of(text: str) -> list[str]:
    """Splits a text after the full stops that are followed by a space and a capital."""
    return [part for part in re.split(r"(?<=[.!?]) (?=[A-Z])", text) if part.strip()]


def abstracts(data: Path) -> list[tuple[str, str]]:
    """(title, abstract) of SciFact's documents."""
    lines = (data / "retrieval" / "scifact" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["title"], row["text"]) for row in map(json.loads, lines)]


def questions(data: Path) -> list[tuple[str, str]]:
    """(question, paragraph) of SQuAD's training file."""
    articles = json.loads((data / "qa" / "squad11_train.json").read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(one["question"], paragraph["context"]) for paragraph in paragraphs for one in paragraph["qas"]]


def summaries(data: Path) -> list[tuple[str, str]]:
    """(a summary, abstract) of SciTLDR's training file."""
    lines = (data / "summarization" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [(target, " ".join(row["source"])) for row in map(json.loads, lines) for target in row["target"][:1]]


def contradicted(data: Path) -> list[tuple[str, str, str]]:
    """(premise, a sentence that it entails, one that contradicts it) of SNLI's validation split."""
    found: dict[str, dict[str, list[str]]] = {}
    with (data / "nli" / "snli_validation.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            found.setdefault(row["premise"], {}).setdefault(row["label"], []).append(row["hypothesis"])
    return [
        (premise, *sides)
        for premise, labels in found.items()
        for sides in zip(labels.get("entailment", []), labels.get("contradiction", []), strict=False)
    ]


def conclusions(data: Path, seed: int) -> list[tuple[str, str]]:
    """(a sentence of an abstract, its title and the other sentences) of SciFact's documents."""
    random, pairs = np.random.default_rng(seed), []
    for title, text in abstracts(data):
        parts = sentences_of(text)
        if len(parts) < 3:
            continue
        chosen = int(random.integers(len(parts) // 2, len(parts)))  # results are in the second half
        pairs.append((parts[chosen], " ".join([title, *parts[:chosen], *parts[chosen + 1 :]])))
    return pairs


def halves(data: Path) -> list[tuple[str, str]]:
    """The two sentences into which WikiSplit divides a sentence of Wikipedia."""
    text = (data / "pretraining" / "simple_en" / "wikipedia_wikisplit.txt").read_text(encoding="utf-8")
    found = [sentences_of(block.replace("\n", " ")) for block in text.split("\n\n")]
    return [(parts[0], parts[1]) for parts in found if len(parts) == 2]


def pairs_of(data: Path, seed: int) -> dict[str, list[tuple[str, ...]]]:
    """{source: its pairs, or triples with a negative}."""
    return {
        "titles": abstracts(data),
        "conclusions": conclusions(data, seed),
        "questions": questions(data),
        "summaries": summaries(data),
        "inference": contradicted(data),
        "halves": halves(data),
    }


def documents(data: Path) -> list[str]:
    """The texts of RetroMAE: abstracts, paragraphs, and the free files of simple English."""
    texts = [f"{title} {text}" for title, text in abstracts(data)]
    texts += sorted({paragraph for _, paragraph in questions(data)})
    texts += [abstract for _, abstract in summaries(data)]
    for name in SMALL_FILES:
        blocks = (data / "pretraining" / "simple_en" / f"{name}.txt").read_text(encoding="utf-8").split("\n\n")
        texts += [block.replace("\n", " ") for block in blocks]
    return texts


# === Training ===


def pretrain(start: str, data: Path, folder: Path, updates: int, seed: int, bag_of_words_weight: float) -> None:
    """Trains an encoder by RetroMAE, and writes its folder."""
    seed_everything(seed)
    model = RetroMAE.from_preset(start, bag_of_words_weight=bag_of_words_weight, dtype="float32")
    corpus = Corpus.in_memory(documents(data), model.tokenizer)
    model.compile(adamw(RETRO_RATE, updates // 20, updates))
    model.fit(RetroMAEBatches(corpus, ROWS, LENGTH, seed=seed, steps=updates), verbose=2)
    model.save_to_preset(folder)


def turns(model: TextEmbedder, data: Path, seed: int) -> Iterator[Any]:
    """Batches of one source each, in random order, without an end. `conclusions` differ in each pass."""
    while True:
        sources = pairs_of(data, seed).values()
        steps = [model.text_batches(pairs, None, None, PAIRS, 1, seed, True) for pairs in sources]
        order = [(source, step) for source, batches in enumerate(steps) for step in range(len(batches))]
        for source, step in np.random.default_rng(seed).permutation(order):
            yield steps[source][int(step)]
        seed += 1


def train(start: str | Path, data: Path, folder: Path, updates: int, pooling: str, seed: int) -> None:
    """Trains an embedder on pairs, and writes its folder."""
    seed_everything(seed)
    objective = MultipleNegatives(scale=SCALE)
    model = TextEmbedder.from_preset(
        start, pooling=pooling, max_length=LENGTH, normalize=True, objective=objective, dtype="float32"
    )
    model.compile(adamw(RATE, updates // 20, updates))
    model.fit(turns(model, data, seed), steps_per_epoch=updates, verbose=2)
    model.save_to_preset(folder)


# === Evaluation ===


def similarity(model: TextEmbedder, file: Path) -> float:
    """Spearman's correlation of cosines with the scores of a file of STSb."""
    with file.open(encoding="utf-8", newline="") as lines:
        one, other, scores = zip(*csv.reader(lines), strict=True)
    sides = [unit_rows(np.asarray(model.embed(list(texts)))) for texts in (one, other)]
    cosines = (sides[0] * sides[1]).sum(axis=1)
    return round(float(metrics.spearman([float(score) for score in scores], cosines)), 4)


def validate(model: TextEmbedder, data: Path) -> dict[str, float]:
    """Scores by which settings are chosen."""
    claims = evaluate_retrieval(read_beir(data / "retrieval" / "scifact", "train"), model)
    return {"stsb, dev": similarity(model, data / "similarity" / "stsb-en-dev.csv"), "claims": claims["ndcg@10"]}


def test(model: TextEmbedder, data: Path) -> dict[str, float]:
    """Scores of the model card."""
    found = {"stsb": similarity(model, data / "similarity" / "stsb-en-test.csv")}
    for name in ("scifact", "vaswani", "cisi"):
        scores = evaluate_retrieval(read_beir(data / "retrieval" / name), model)
        found |= {f"{name}, {metric}": round(scores[metric], 4) for metric in ("ndcg@10", "recall@10")}
    return found


def main(
    data: Path,
    output: Path,
    start: str = "modernbert_mini_en",
    retro_updates: int = 0,
    bag_of_words_weight: float = 0.1,
    updates: int = 900,
    pooling: str = "mean",
    seed: int = 0,
    evaluate: bool = False,
) -> None:
    """Trains an embedder, or evaluates it.

    Args:
        data: folder with retrieval/scifact, qa, summarization, nli, similarity and pretraining/simple_en.
        output: folder of the embedder. That of the encoder before the pairs is beside it.
        start: the encoder.
        retro_updates: updates of RetroMAE; 0 for none.
        bag_of_words_weight: weight of the second loss of DupMAE.
        updates: updates on pairs.
        pooling: pooling of the embedder.
        seed: of masks, order and new weights.
        evaluate: only evaluate `output` on the test splits.
    """
    if evaluate:
        print(json.dumps(test(TextEmbedder.from_preset(output), data)))
        return
    begin, encoder = time.process_time(), output.with_name(f"{output.name}_retro")
    if retro_updates and not encoder.exists():
        pretrain(start, data, encoder, retro_updates, seed, bag_of_words_weight)
    train(encoder if retro_updates else start, data, output, updates, pooling, seed)
    scores = validate(TextEmbedder.from_preset(output), data)
    row = {"output": output.name, "start": start, "retro": retro_updates, "updates": updates, "pooling": pooling}
    append(output.parent / "rows.jsonl", [{**row, **scores, "seconds": round(time.process_time() - begin)}])
    print(json.dumps(row | scores))


if __name__ == "__main__":
    tyro.cli(main)
