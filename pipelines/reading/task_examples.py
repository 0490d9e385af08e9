"""Reads the examples of a task that is known by name."""

from collections.abc import Callable
from dataclasses import replace

from .examples import Examples, read_examples
from .tables import ColumnsRead, Format
from .tasks import TaskSpec


def read_task(
    spec: TaskSpec,
    path: str,
    encoding: str = "utf-8",
    format: Format = "auto",
    limit: int | None = None,
    training: bool = False,
    say: Callable[[ColumnsRead], object] | None = None,
) -> Examples:
    """Reads the examples of a task. The prefix of a text-to-text task is added to the texts. See `read_examples`."""
    keep = spec.impossible or not training
    examples = read_examples(spec.kind, path, spec.columns, encoding, keep, format, spec.layouts, say)
    if spec.prefix:
        examples = replace(examples, x=[spec.prefix + text for text in examples.x])
    return examples if limit is None else first_of(examples, limit)


def first_of(examples: Examples, limit: int) -> Examples:
    """Returns the first `limit` examples. For questions, the data set is reduced accordingly."""
    kept: list = []
    for article in examples.dataset:
        for paragraph in article["paragraphs"]:
            questions = paragraph["qas"][: limit - len(kept)]
            kept += [{"paragraphs": [{**paragraph, "qas": [question]}]} for question in questions]
    return Examples(examples.x[:limit], examples.y[:limit], kept)
