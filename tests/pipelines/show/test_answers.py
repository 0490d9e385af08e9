"""Answers on a terminal: what the tables and lines hold."""

import io

import pytest

from pipelines.show.answers import print_answer
from pipelines.show.console import PrintableConsole


def printed(answer, width=80):
    """The lines that are printed, without spaces at the end."""
    file = io.StringIO()
    print_answer(answer, PrintableConsole(file=file, width=width, highlight=False, markup=False))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    "answer, expected",
    [
        (
            {"input": "hello", "label": "good", "score": 0.51398, "scores": {"good": 0.51398, "bad": 0.48602}},
            ["hello", "  label  good", "  score  0.514", "  scores  good 0.514, bad 0.486"],
        ),
        ({"input": ("who?", "he"), "score": 2}, ["who?", "he", "  score  2"]),
        (
            {"input": ["a", "b"], "words": ["a", "b"], "labels": ["O", "B-X"], "entities": []},
            ["a b", "  words  labels", "  a      O", "  b      B-X", "  entities  none"],
        ),
        (
            {"input": "a [MASK]", "masks": [[{"token": "cat", "score": 0.25, "id": 7}]]},
            ["a [MASK]", "  token  score  id", "  cat    0.25   7"],
        ),
        (
            {"input": "[MASK] [MASK]", "masks": [[{"token": "a", "id": 1}], [{"token": "b", "id": 2}]]},
            [
                "[MASK] [MASK]",
                "  mask 1 of 2",
                "  token  id",
                "  a      1",
                "  mask 2 of 2",
                "  token  id",
                "  b      2",
            ],
        ),
        ({"input": "a", "vector": [0.5] * 32}, ["a", "  vector  0.5 0.5 0.5 0.5 ... (32 numbers)"]),
        ({"input": "a", "vectors": [[0.5] * 32] * 3}, ["a", "  vectors  3 of 32 numbers"]),
        ({"input": "a", "masks": [[]], "vectors": []}, ["a", "  masks  none", "  vectors  none"]),
        ({"input": "[red]a", "text": "[bold]b"}, ["[red]a", "  text  [bold]b"]),  # no markup
        ({"input": "a\x1b[5A", "label": "\x1b[31mbad"}, [r"a\u001b[5A", r"  label  \u001b[31mbad"]),
    ],
)
def test_lines(answer, expected):
    assert printed(answer) == expected


def test_long_texts_stay_in_their_column():
    lines = printed({"input": "q", "documents": [{"id": "d1", "text": "word " * 30}]}, width=40)
    assert all(len(line) <= 40 for line in lines) and sum(line.count("word") for line in lines) == 30
