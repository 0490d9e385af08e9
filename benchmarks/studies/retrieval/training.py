"""How the models of `run.py` start, and their training for a given time of the processor."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.studies.finetuning.baselines import minilm
from kerasbert import tasks
from kerasbert.backend import seed_everything
from kerasbert.data import Tokenizer
from kerasbert.models import Backbone
from kerasbert.retrieval import Matryoshka, MultipleNegatives, NegativeRules, Splade, mine_hard_negatives, read_beir
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw

RULES = NegativeRules(num_negatives=3, relative_margin=0.05)
SHORT, LENGTH = 128, 256  # tokens of a text in training, and in the evaluation; pairs are short in both
ROWS = 32  # examples of a batch
RATE = 5e-5
WARMUP = 20  # updates
STATIC_RATE, STATIC_PASSES = 1e-3, 10  # best of 3 x 3 on 201 training claims that were held out for this choice

Stages = tuple[Any, Any, dict[str, float]]  # the first stage, the second one, and numbers of the training


# === Data ===


def negatives(data: Path, work: Path) -> list[tuple[str, ...]]:
    """(claim, abstract, three negatives) of SciFact's training split, mined by MiniLM once."""
    file = work / "negatives.jsonl"
    if not file.exists():
        collection = read_beir(data / "scifact", "train")
        pairs = [
            (collection.queries[query], collection.documents[document])
            for query in collection.judged
            for document, grade in collection.relevant[query].items()
            if grade > 0
        ]
        model = TextEmbedder.from_preset(minilm())
        found = mine_hard_negatives(pairs, model, list(collection.documents.values()), RULES, "n-tuple")
        work.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return [tuple(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def triplets(data: Path, work: Path, seed: int) -> list[tuple[str, str, str]]:
    """The rows of `negatives` with one of their negatives: number `seed`, so that seeds differ in it."""
    return [(query, positive, others[seed % len(others)]) for query, positive, *others in negatives(data, work)]


def labeled_pairs(data: Path, work: Path) -> tuple[list[tuple[str, str]], list[float]]:
    """Pairs with 1 or 0 of the rows of `negatives`."""
    pairs, labels = [], []
    for query, positive, *others in negatives(data, work):
        pairs += [(query, text) for text in (positive, *others)]
        labels += [1.0] + [0.0] * len(others)
    return pairs, labels


# === Training ===


class Clock(keras.callbacks.Callback):
    """Ends a training after some time of the processor. Until then, the rate falls from its peak to 0.

    Args:
        seconds: of the processor.
        rate: the peak, which is reached after `WARMUP` updates.
        most: number of updates after which the training ends, even if there is time.
    """

    def __init__(self, seconds: float, rate: float = RATE, most: float = math.inf):
        super().__init__()
        self.seconds, self.rate, self.most = seconds, rate, most
        self.updates, self.begin = 0, time.process_time()

    def factor(self) -> float:
        """The share of the peak that the rate of the next update has; 0 at the end."""
        share = max((time.process_time() - self.begin) / self.seconds, self.updates / self.most)
        return min(1.0, (self.updates + 1) / WARMUP) * max(0.0, 1 - share)

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = max(self.rate * self.factor(), 1e-12)

    def on_train_batch_end(self, batch, logs=None):
        self.updates += 1
        if self.factor() == 0:
            self.model.stop_training = True

    def numbers(self, rows: int) -> dict[str, float]:
        """What the training did."""
        seconds = round(time.process_time() - self.begin)
        return {"updates": self.updates, "examples": self.updates * rows, "processor_seconds": seconds}


def fitted(
    model: keras.Model, x: Any, y: Any, minutes: float, seed: int, rate: float = RATE, passes: float = math.inf
) -> dict[str, float]:
    """Trains a model until the time or the passes over the data end. Returns the numbers of the training."""
    seed_everything(seed)
    model.compile(adamw(rate))
    clock = Clock(2 * 60 * minutes, rate, passes * (len(x) // ROWS))
    model.fit(x, y, batch_size=ROWS, epochs=1_000, callbacks=[clock], verbose=0)
    return clock.numbers(ROWS)


# === Methods ===


def bm25(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    return "bm25", None, {}


def untuned(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    return TextEmbedder.from_preset(minilm()), None, {}


def tuned(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    model = TextEmbedder.from_preset(minilm(), max_length=SHORT, objective="ranking")
    numbers = fitted(model, triplets(data, work, seed), None, minutes, seed)
    folder = work / f"tuned_{seed}"
    model.save_to_preset(folder)
    return TextEmbedder.from_preset(folder, max_length=LENGTH), None, numbers


def tuned_by_peer(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    from benchmarks.studies.retrieval import peer  # imports PyTorch and sentence-transformers

    rows, folder = triplets(data, work, seed), work / f"tuned_st_{seed}"
    clock = Clock(2 * 60 * minutes)
    peer.train_embedder(minilm(), rows, SHORT, clock, seed, folder)
    return TextEmbedder.from_preset(folder, max_length=LENGTH), None, clock.numbers(ROWS)


def reranker(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    model = tasks.Reranker.from_preset(minilm(), max_length=SHORT, objective="BinaryCrossEntropy")
    return "bm25", model, fitted(model, *labeled_pairs(data, work), minutes, seed)


def reranker_by_peer(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    from benchmarks.studies.retrieval import peer  # imports PyTorch and sentence-transformers

    pairs, folder = labeled_pairs(data, work), work / f"reranker_st_{seed}"
    clock = Clock(2 * 60 * minutes)
    peer.train_reranker(minilm(), *pairs, SHORT, clock, seed, folder)
    return "bm25", tasks.Reranker.from_preset(folder, max_length=SHORT), clock.numbers(ROWS)


def splade(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    loss = Splade(MultipleNegatives(scale=1.0, similarity="dot"), 3e-5, 5e-5, warmup=50)
    backbone = Backbone.from_preset(minilm())  # without the dense embedder around it
    tokenizer = Tokenizer.load(minilm())
    model = tasks.SparseEmbedder(backbone, max_length=SHORT, objective=loss, tokenizer=tokenizer)
    start_sparse(model, [positive for _, positive, _ in triplets(data, work, seed)[:256]])
    numbers = fitted(model, triplets(data, work, seed), None, minutes, seed)
    folder = work / f"splade_{seed}"
    model.save_to_preset(folder)
    return tasks.SparseEmbedder.from_preset(folder, max_length=LENGTH), None, numbers


def start_sparse(model: Any, texts: list[str]) -> None:
    """Gives MiniLM, which has no masked-LM head, one that compares its hidden states with its token embeddings.

    The transform of the head becomes an identity before its layer norm: the bias of 20 keeps gelu where it is linear,
    and the layer norm removes it again. The bias of a token is such that in the mean over texts, its largest logit is
    two standard deviations below 0, so that vectors are sparse from the start.
    """
    head, most = model.masked_lm, 1_000.0
    head.dense.kernel.assign(np.eye(head.dense.kernel.shape[0]))
    head.dense.bias.assign(np.full(head.dense.bias.shape, 20.0))
    head.bias.assign(np.full(head.bias.shape, most))
    logits = np.expm1(model.embed_documents(texts).toarray().astype("float64")) - most
    head.bias.assign(-(logits.mean(axis=0) + 2 * logits.std(axis=0)))


def colbert(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    loss = MultipleNegatives(scale=1.0, similarity="max_sim")
    model = tasks.MultiVectorEmbedder.from_preset(minilm(), max_length=SHORT, objective=loss)
    numbers = fitted(model, triplets(data, work, seed), None, minutes, seed)
    folder = work / f"colbert_{seed}"
    model.save_to_preset(folder)
    return tasks.MultiVectorEmbedder.from_preset(folder, max_length=LENGTH), None, numbers


def static(data: Path, work: Path, minutes: float, seed: int) -> Stages:
    loss = Matryoshka(MultipleNegatives(), dims=[256, 128, 64])
    encoder = TextEmbedder.from_preset(minilm())
    model = tasks.StaticEmbedder.distil(encoder, width=256, normalize=True, objective=loss)
    return model, None, fitted(model, triplets(data, work, seed), None, minutes, seed, STATIC_RATE, STATIC_PASSES)


METHODS: dict[str, Callable[[Path, Path, float, int], Stages]] = {
    "bm25": bm25,
    "untuned": untuned,
    "tuned": tuned,
    "tuned (ST)": tuned_by_peer,
    "reranker": reranker,
    "reranker (ST)": reranker_by_peer,
    "splade": splade,
    "colbert": colbert,
    "static": static,
}
UNTRAINED = ("bm25", "untuned")
