"""GPT-BERT's objective against masked language modeling alone."""

import math

import pytest

from benchmarks.studies.causal_rows import run as causal_rows
from kerasbert.data import Tokenizer

pytestmark = pytest.mark.one_backend


def test_losses_are_compared_seed_by_seed():
    """Losses of 5.0, 5.2, 5.4 and 4.9, 5.0, 5.3: the differences are -0.1, -0.2, -0.1, with t = -4 and p = 0.0572."""
    losses = {0.0: (5.0, 5.2, 5.4), 1 / 16: (4.9, 5.0, 5.3)}
    rows = [
        {"share": share, "seed": seed, "perplexity": math.exp(loss)}
        for share, found in losses.items()
        for seed, loss in enumerate(found)
    ]
    first, second = causal_rows.comparison(rows).splitlines()
    assert first == "0% causal rows: 5.200 ± 0.115 nats a masked token"
    assert second == "6% causal rows: 5.067 ± 0.120 nats a masked token, -0.133 ± 0.033 (p = 0.0572)"


def test_all_shares_have_equally_many_targets():
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"] * 5, vocabulary_size=21, lowercase=True)
    for share in causal_rows.SHARES:
        recipe = causal_rows.recipe_of(share, 3, 100, tokenizer)
        assert (recipe.data.causal_share, recipe.data.causal_targets, recipe.seed) == (share, 20, 3)
        assert recipe.data.noise.noise.random_from == 5  # after the special tokens


def test_a_finished_cell_is_not_run_again(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran home\n" * 400)
    calls = []
    monkeypatch.setattr(causal_rows, "VOCABULARY", 30)
    monkeypatch.setattr(causal_rows, "run", lambda recipe, *_: calls.append(recipe) or {"perplexity": 2.0})
    for _ in range(2):
        causal_rows.main(text, text, seeds=2, updates=10, results=tmp_path / "rows.jsonl")
    assert [(recipe.data.causal_share, recipe.seed) for recipe in calls] == [(0, 0), (1 / 16, 0), (0, 1), (1 / 16, 1)]
    assert "0.693 ± 0.000" in capsys.readouterr().out
