"""What `predict` asks of a model: the form of its inputs, and a function that answers them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.data.tasks.answers import sparse_weights
from kerasbert.runtime import open_export

from .cutting import cut_sentence, longest_rows
from .task_options import Generation

# {class: form of its inputs}; see `inputs.read_line`. The classes of other models are those of `model_answers`.
FORMS = {
    **{"TextClassifier": "pairs", "Reranker": "pairs", "MaskedLM": "pairs", "TokenClassifier": "words"},
    **{"QuestionAnswerer": "questions", "TextEmbedder": "texts", "SparseEmbedder": "texts"},
}


@dataclass(frozen=True)
class Options:
    """How inputs are answered; see `predict`."""

    top: int = 5
    batch_size: int = 32
    null_threshold: float | None = None
    prefix: str = ""
    generation: Generation = Generation()


@dataclass(frozen=True)
class Answers:
    """A model that answers inputs.

    Args:
        form: form of its inputs; see `inputs.read_line`.
        answer: function from a list of inputs to a list of answers.
        chunk: number of inputs that are answered at a time. Large chunks are batched by length.
        labels: the labels of a classifier, with which the lines of its inputs may begin.
        limit: number of tokens after which the model cuts an input. None if it does not cut any.
        lengths: function from a list of inputs to their numbers of tokens. None if the model does not cut any.
    """

    form: str
    answer: Callable[[list], list[dict]]
    chunk: int
    labels: Sequence = ()
    limit: int | None = None
    lengths: Callable[[list], np.ndarray] | None = None


class CountedAnswers:
    """Answers inputs, and counts those that are longer than the model reads.

    Args:
        answers: the `Answers` of the model.
    """

    def __init__(self, answers: Answers):
        self.answers, self.total, self.cut = answers, 0, 0

    def answer(self, inputs: list) -> list[dict]:
        """Answers a list of inputs."""
        found, answers = self.answers.answer(inputs), self.answers
        if answers.lengths is not None and answers.limit is not None:
            self.total += len(inputs)
            self.cut += int((answers.lengths(inputs) > answers.limit).sum())
        return found

    def sentence(self) -> str | None:
        """Says how many inputs were cut; None if there were none."""
        return None if self.answers.limit is None else cut_sentence(self.cut, self.total, self.answers.limit, "inputs")


def exported_answers(folder: Path, options: Options) -> Answers:
    """The answers of an export, for which Keras is not imported."""
    model = open_export(folder)
    name, top = model.saved["class"], options.top

    def answer(inputs, **further):
        return model.answer(inputs, options.batch_size, **further)

    def best(questions):
        found = answer(questions, n_best=top, null_threshold=options.null_threshold)
        return [{"answers": answers} for answers in found]

    def token_weights(texts):
        tokens = model.tokenizer.tokens
        return [weights_of(sparse_weights(tokens, ids, weights, top)) for ids, weights in answer(texts)]

    functions: dict[str, Callable[[list], list[dict]]] = {
        "MaskedLM": lambda texts: [{"masks": masks} for masks in answer(texts, top_k=top)],
        "QuestionAnswerer": best,
        "TextEmbedder": lambda texts: [{"vector": vector} for vector in answer(texts).tolist()],
        "SparseEmbedder": token_weights,
        "Reranker": lambda pairs: scored(answer(pairs), model.labels or ()),
    }
    labels = model.labels or () if model.saved["export"].get("problem") == "classes" else ()
    chunk = options.batch_size * chunks_of(name)
    limit, lengths = None if model.splits else model.max_length, texts_lengths(model.reader)
    return Answers(FORMS[name], functions.get(name, answer), chunk, labels, limit, lengths)


def texts_lengths(tokenizer: Any) -> Callable[[list], np.ndarray]:
    """Returns a function from texts and pairs to their numbers of tokens."""
    return lambda inputs: longest_rows(tokenizer, [[x] for x in inputs])


def scored(scores: np.ndarray, labels: Sequence) -> list[dict[str, Any]]:
    """The answers of a reranker with scores (n,), or for several labels (n, labels)."""
    if scores.ndim == 1:
        return [{"score": score} for score in scores.tolist()]
    return [{"scores": dict(zip(labels, row, strict=True))} for row in scores.tolist()]


def weights_of(pairs: list[tuple]) -> dict[str, Any]:
    """The answer of a sparse embedder."""
    return {"weights": [{"token": token, "weight": weight} for token, weight in pairs]}


def chunks_of(name: str) -> int:
    """Number of batches per chunk, for a class of models. Filling masks gives a score for every token of each text."""
    return {"MaskedLM": 1, "TextClassifier": 64}.get(name, 8)
