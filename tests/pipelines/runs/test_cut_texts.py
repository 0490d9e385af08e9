"""How many examples are longer than what the model reads."""

from types import SimpleNamespace

import pytest

from kerasbert.data import Tokenizer
from pipelines.reading.examples import Examples
from pipelines.runs import task_models
from pipelines.runs.task_models import cut_texts

pytestmark = pytest.mark.one_backend

SHORT, LONG = "a a", "a a a a a a"  # 4 and 8 tokens with [CLS] and [SEP]


@pytest.fixture(scope="module")
def model():
    tokenizer = Tokenizer.train("wordpiece", ["a b c"] * 50, 11)
    return SimpleNamespace(tokenizer=tokenizer, require_tokenizer=lambda: tokenizer, max_length=7)


@pytest.mark.parametrize(
    "kind, x, cut",
    [
        ("classes", [SHORT, SHORT], 0),
        ("classes", [SHORT, LONG, LONG], 2),
        ("classes", [(SHORT, SHORT)], 0),
        ("score", [(SHORT, "a a a")], 1),
        ("embed", [(SHORT, SHORT, SHORT), (SHORT, LONG, LONG)], 1),
        ("rerank", [(SHORT, SHORT), (SHORT, LONG)], 1),
        ("rerank", [(SHORT, [SHORT, LONG]), (SHORT, [SHORT])], 1),
        ("choices", [(SHORT, [SHORT, SHORT]), (SHORT, [SHORT, LONG, SHORT])], 1),
        ("questions", [(SHORT, LONG)], 0),
        ("tags", [LONG.split()], 0),
    ],
)
def test_examples_with_a_row_that_is_too_long_are_counted(model, kind, x, cut):
    found = cut_texts(model, kind, Examples(x, [0] * len(x)))
    verb = "example is" if cut == 1 else "examples are"
    assert found == (f"{cut} of {len(x)} {verb} longer than 7 tokens and are cut (--max-length)" if cut else None)


def test_only_a_part_of_many_examples_is_counted(model, monkeypatch):
    monkeypatch.setattr(task_models, "MEASURED", 10)
    found = cut_texts(model, "classes", Examples([SHORT, LONG] * 50, [0] * 100))
    assert found.startswith(("4 of 10", "5 of 10", "6 of 10")) and "that were looked at" in found
