"""The data sets of the evaluation suite, reduced so that fine-tuning takes minutes on one core."""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.reading.examples import Examples, read_examples
from pipelines.reading.labeled import Columns
from pipelines.runs.reports import spread

TESTING = 1_400  # maximum number of held-out examples
CONTEXT = 40  # maximum number of words in the context of a question


@dataclass(frozen=True)
class SuiteTask:
    """A data set, and how the suite uses it.

    Args:
        kind: kind of its examples; see `examples.KINDS`.
        files: files with the training and the held-out examples, in the folder of the data sets. If there is only one
            file, a tenth of its examples (at most 1,000) is held out: the last examples in the order of their hashes.
        metrics: the scores to report. Differences of the first one are tested.
        read: function that reads the examples of a file.
        length: maximum number of tokens in an example.
    """

    kind: str
    files: tuple[str, ...]
    metrics: tuple[str, ...]
    read: Callable[[Path], Examples]
    length: int = 64

    def examples(self, folder: Path) -> tuple[Examples, Examples]:
        """Reads all training examples, and at most `TESTING` held-out examples, evenly spaced among all."""
        found = [self.read(folder / file) for file in self.files]
        training, testing = found if len(found) == 2 else _split_by_hash(*found)
        return training, spread(testing, TESTING)

    @property
    def head(self) -> str:
        """The kind of head that the backbone must have."""
        return {"tags": "tagger", "questions": "span"}.get(self.kind, "classifier")

    @property
    def scale(self) -> int:
        """Factor that converts scores to per cent."""
        return 1 if self.kind == "questions" else 100


def _split_by_hash(examples: Examples) -> tuple[Examples, Examples]:
    def hashed(i: int) -> bytes:
        return hashlib.sha256(f"{examples.y[i]} {examples.x[i]}".encode()).digest()

    order = sorted(range(len(examples)), key=hashed)
    first = len(order) - min(1_000, max(1, len(order) // 10))
    return some(examples, order[:first]), some(examples, order[first:])


def some(examples: Examples, numbers: Sequence[int]) -> Examples:
    """Selects the examples with these indices, for kinds other than questions, or for training."""
    return Examples([examples.x[i] for i in numbers], [examples.y[i] for i in numbers])


def short_contexts(examples: Examples, most: int = CONTEXT) -> Examples:
    """Shortens the context of each question to at most `most` words, in which the answer is at a random place.

    Other answers to the question are kept if they are in the shortened context. Questions without an answer, or with an
    answer of more than `most` words, are dropped.
    """
    draw = np.random.Generator(np.random.Philox(0)).random(len(examples))
    entries = [entry for article in examples.dataset for p in article["paragraphs"] for entry in p["qas"]]
    x, y, dataset = [], [], []
    for (question, context), answer, entry, share in zip(examples.x, examples.y, entries, draw, strict=True):
        if answer is None:
            continue
        text, start = answer
        words = [match.span() for match in re.finditer(r"\S+", context)]
        inside = [i for i, (left, right) in enumerate(words) if right > start and left < start + len(text)]
        lowest, highest = max(0, inside[-1] - most + 1), min(inside[0], max(0, len(words) - most))
        if lowest > highest:
            continue
        first = lowest + int(share * (highest - lowest + 1))
        left, right = words[first][0], words[min(first + most, len(words)) - 1][1]
        context = context[left:right]
        answers = [{"text": a["text"], "answer_start": context.find(a["text"])} for a in entry["answers"]]
        kept = [a for a in answers if a["answer_start"] >= 0]
        x.append((question, context))
        y.append((text, start - left))
        dataset.append({"paragraphs": [{"context": context, "qas": [{**entry, "answers": kept}]}]})
    return Examples(x, y, dataset)


def summary_pairs(path: Path) -> Examples:
    """Makes pairs of one-sentence summaries by different writers, labeled "same" if they summarize the same paper.

    Every summary is in one pair with each label, at the same position, so that neither summary alone reveals the label.

    Args:
        path: JSON lines with a list of summaries as "target", as in SciTLDR (Cachola et al. 2020, arXiv 2004.15011).
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    papers = [json.loads(line)["target"] for line in lines]
    pairs = [pair for summaries in papers for pair in zip(summaries, summaries[1:], strict=False)]
    half = len(pairs) // 2  # as far away as possible, so that the paper is never the same
    others = [second for _, second in pairs[half:] + pairs[:half]]
    x = [
        pair for (first, second), other in zip(pairs, others, strict=True) for pair in ((first, second), (first, other))
    ]
    return Examples(x, ["same", "different"] * len(pairs))


def _questions(path: Path) -> Examples:
    return short_contexts(read_examples("questions", path))


def _reader(kind: str, *columns: str, **options) -> Callable[[Path], Examples]:
    return functools.partial(read_examples, kind, columns=Columns(*columns) if columns else None, **options)


FINE_TUNING = {
    # Entities of 6 types in English tweets and comments (Derczynski et al. 2017).
    "wnut17": SuiteTask(
        kind="tags",
        files=("tagging/wnut17train.conll", "tagging/emerging.test.annotated"),
        metrics=("f1", "precision", "recall"),
        read=_reader("tags"),
    ),
    # Answers to questions on Wikipedia (Rajpurkar et al. 2016).
    "squad": SuiteTask(
        kind="questions",
        files=("qa/squad11_train.json", "qa/squad11_dev.json"),
        metrics=("f1", "exact_match"),
        read=_questions,
        length=96,
    ),
    # Whether a sentence answers a question (Wang et al. 2018, GLUE).
    "qnli": SuiteTask(
        kind="classes",
        files=("classification/qnli_train.tsv", "classification/qnli_dev.tsv"),
        metrics=("accuracy",),
        read=_reader("classes", "question", "sentence", "label"),
        length=96,
    ),
    # How similar two sentences are, from 0 to 5 (Cer et al. 2017).
    "stsb": SuiteTask(
        kind="score",
        files=("similarity/stsb-en-train.csv", "similarity/stsb-en-test.csv"),
        metrics=("spearman", "pearson"),
        read=_reader("score", "0", "1", "2"),
    ),
    # Whether two sentences summarize the same paper.
    "summaries": SuiteTask(
        kind="classes",
        files=("summarization/dev.jsonl", "summarization/test.jsonl"),
        metrics=("accuracy",),
        read=summary_pairs,
        length=96,
    ),
    # Whether a sentence of a review of a film is positive (Pang, Lee 2005).
    "reviews": SuiteTask(
        kind="classes",
        files=("classification/movie_reviews.latin1.txt",),
        metrics=("accuracy",),
        read=_reader("classes", encoding="latin-1"),
    ),
}
