"""The search for what leaves the plateau, and the budgets: cells, comparisons, divided text, operations."""

import math

import keras
import numpy as np
import pytest

from benchmarks.speed.throughput import training_operations
from benchmarks.studies.plateau.arms import ARMS, joined, recipe_of
from benchmarks.studies.plateau.divided_corpus import divided
from benchmarks.studies.plateau.report import above, by_cell, gains, left_at, report, section_of, winners
from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import FAMILIES, Bert, BertConfig
from kerasbert.objectives import MaskedLM

pytestmark = pytest.mark.one_backend

SIZE = dict(vocabulary_size=17, num_layers=2, num_heads=2, hidden_dim=8, feed_forward_dim=12, initializer_range=0.5)
TEXT = "She met Mr. Smith there. Why?\nHe said, it is late! so he left"


def row(cell: str, seed: int, *losses: float) -> dict:
    curve = [[10.0 * (i + 1), i, [loss, loss - 1], 0.1] for i, loss in enumerate(losses)]
    shared = {"seconds": 10.0 * len(losses), "set": [], "corpus": "c", "corpus_tokens": 9, "vocabulary": 5}
    return {
        "cell": cell,
        "seed": seed,
        "unigram_losses": [6.0, 5.0],
        "updates": 4,
        "tokens": 8,
        "curve": curve,
        **shared,
    }


def test_a_cell_is_named_in_the_order_of_the_arms():
    assert joined(["no dropout", "8 rows"]) == joined(["8 rows", "no dropout"]) == "8 rows + no dropout"
    assert joined([]) == "base"
    with pytest.raises(ValueError, match="at most one arm of a group. Received: 8 rows \\+ 16 rows"):
        joined(["8 rows", "16 rows"])


def output(outputs: dict) -> np.ndarray:
    return keras.ops.convert_to_numpy(outputs["sequence_output"])


@pytest.fixture
def switchable():
    """The family of `plateau_models`, registered for one test."""
    from benchmarks.studies.plateau import models as plateau_models

    FAMILIES["switchable_bert"] = plateau_models.SwitchableBert
    yield lambda **switches: plateau_models.SwitchableBert(plateau_models.SwitchableBertConfig(**SIZE, **switches))
    del FAMILIES["switchable_bert"]


def test_arms_change_the_recipe_of_the_base(switchable):
    base = vars(recipe_of("base", 3))
    schedule = base["optimizer"].schedule
    assert base["seed"] == 3 and schedule.peak == schedule.final == 1e-3
    for name in ARMS:
        now, later = (vars(recipe_of(name, 3, later=half)) for half in (False, True))
        changed = {key for key in base if base[key] != now[key]}
        assert len(changed) == (0 if ARMS[name].sinusoids or ARMS[name].text == "lines" else 1)
        assert (now != later) == bool(ARMS[name].later)
    rate = recipe_of("rate 2e-3", 0).optimizer.schedule
    assert rate.peak == rate.final == 2e-3


def test_the_time_at_which_the_plateau_is_left():
    found = row("base", 0, 6.2, 5.5, 5.3)
    assert above(found, 20) == -0.5 and above(found, 20, width=32) == -0.5
    assert math.isnan(above(found, 40))
    assert left_at(found) == 30.0 and left_at(row("base", 0, 6.2, 5.5)) is None


def test_winners_help_with_every_seed():
    rows = [row("base", 0, 6.0), row("base", 1, 6.0), row("8 rows", 0, 5.5), row("8 rows", 1, 5.7)]
    rows += [row("16 rows", 0, 5.6), row("16 rows", 1, 5.8), row("rate 2e-3", 0, 5.0), row("rate 2e-3", 1, 6.1)]
    rows += [row("pre-norm", 0, 4.0), row("no dropout", 0, 5.99), row("8 rows + no dropout", 1, 5.0)]
    cells = by_cell(rows, section_of(rows[0]))
    np.testing.assert_allclose(gains(cells, "8 rows", "base", 10), [0.5, 0.3])
    assert winners(cells, 10) == ["8 rows"]
    page = report(rows)
    assert "| 8 rows | base | +0.400 ± 0.141 | 2 |" in page and "| no dropout | 8 rows | +0.700 | 1 |" in page


def test_text_is_divided_at_sentences_and_lines(tmp_path):
    tokenizer = Tokenizer.train("wordpiece", [TEXT] * 20, 60, lowercase=True)
    corpus = Corpus.write(tmp_path / "corpus", [TEXT], tokenizer)
    expected = {
        "lines": ["she met mr. smith there. why?", "he said, it is late! so he left"],
        "sentences": ["she met mr. smith there.", "why?", "he said, it is late!", "so he left"],
    }
    for unit, texts in expected.items():
        found = divided(corpus, unit, tmp_path)
        starts = np.append(found.sequence_starts, found.num_tokens)[found.document_starts]
        pieces = [
            tokenizer.decode(found.tokens[a:b].astype("int32")) for a, b in zip(starts[:-1], starts[1:], strict=True)
        ]
        assert [piece.replace(" ", "") for piece in pieces] == [text.replace(" ", "") for text in texts]
        assert divided(corpus, unit, tmp_path).num_documents == len(texts)


def test_without_switches_the_model_is_bert(switchable):
    bert, other = Bert(BertConfig(**SIZE), pooler=False), switchable()
    bert.segment_embedding.embeddings.assign(np.zeros((2, 8)))
    weights = {variable.path.split("/", 1)[1]: variable for variable in bert.variables}
    for variable in other.trainable_variables:
        variable.assign(weights[variable.path.split("/", 1)[1]])
    x = {"token_ids": np.arange(10, dtype="int32").reshape(2, 5), "lengths": np.array([5, 3], "int32")}
    wanted, found = (output(model(x)) for model in (bert, other))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    some = output(other(x, output_positions=np.array([[3], [1]], "int32")))
    np.testing.assert_allclose(some[:, 0], found[[0, 1], [3, 1]], atol=1e-5)


def test_switches_move_the_norms_and_rotate(switchable):
    ids = np.arange(10, dtype="int32").reshape(2, 5)
    shifted = [{"token_ids": ids, "position_ids": np.tile(np.arange(5, dtype="int32") + by, (2, 1))} for by in (0, 3)]
    rotary, learned = switchable(rotary=True, norm_first=True), switchable(norm_first=True)
    near, far = (output(rotary(x)) for x in shifted)
    np.testing.assert_allclose(far, near, atol=1e-4)
    assert np.abs(near[:, ::-1] - output(rotary({"token_ids": ids[:, ::-1].copy()}))).max() > 0.01
    near, far = (output(learned(x)) for x in shifted)
    assert np.abs(far - near).max() > 0.01
    np.testing.assert_allclose(near.mean(-1), 0, atol=1e-5)  # the last norm


def test_operations_of_an_update():
    size = dict(vocabulary_size=10, num_layers=2, num_heads=1, hidden_dim=4, feed_forward_dim=6)
    model = MaskedLM(Bert(BertConfig(**size), pooler=False))
    x = {"token_ids": np.zeros((3, 5), "int32"), "masked_positions": np.zeros((3, 2), "int32")}
    token = 4 * 4 + 4 * 4 + 2 * 4 * 6 + 2 * 5 * 4  # query, output, feed-forward, attention
    block, last = 5 * (2 * 4 * 4 + token), 5 * 2 * 4 * 4 + 3 * token
    assert training_operations(model, x) == 3 * 6 * (block + last + 2 * (4 * 4 + 4 * 10))
