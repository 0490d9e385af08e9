"""The tiny recipes on real text: documents, which predictions count, bars on the same targets, and the page."""

import numpy as np
import pytest

from benchmarks.studies.tiny_recipes.bars import hidden_targets
from benchmarks.studies.tiny_recipes.measures import (
    Counted,
    answers,
    compare,
    cross_entropies,
    generated_mass,
    is_shown,
    originals,
    read,
    replaced,
    units_of,
)
from benchmarks.studies.tiny_recipes.run import cell_of, label, read_rows, report, tiny_recipes
from benchmarks.studies.tiny_recipes.texts import TEXTS, novel, sentences, text_of
from kerasbert.data import Corpus, Tokenizer
from pipelines.recipes.data import Languages
from pipelines.recipes.recipe import find_recipe

pytestmark = pytest.mark.one_backend

WORDS = "she saw the old house where the boy and the dog left no sign of the storm".split()


@pytest.fixture(scope="module")
def corpus():
    draw = np.random.default_rng(0)
    documents = [" ".join(WORDS[draw.integers(16) * draw.integers(2)] for _ in range(40)) for _ in range(24)]
    return Corpus.in_memory(documents, Tokenizer.train("wordpiece", documents, 60, lowercase=True))


class Counts:
    """A model that predicts what a table of log probabilities (context, token) says, or (token,) for any context."""

    def __init__(self, table):
        self.table = table

    def predict_on_batch(self, x):
        slots = x.get("masked_positions", x["token_ids"])
        return (
            np.broadcast_to(self.table, (*slots.shape, len(self.table))) if self.table.ndim == 1 else self.table[slots]
        )


# === Bars ===


def test_copies_know_the_shown_tokens():
    """A target is hidden if it occurs more often than among the inputs; -1 is no token."""
    shown, targets = np.array([[7, 8, -1], [5, 5, 6]]), np.array([[7, 7, 9, -1], [6, 5, 5, 5]])
    found = hidden_targets(shown, targets)[targets >= 0]
    assert found.tolist() == [False, True, True, False, False, False, True]


def test_a_model_that_restores_a_text_is_compared_with_copies(corpus):
    recipe = find_recipe("bart.tiny").with_settings(
        ["phases.0.batch_size=4", "phases.0.length=32", "data.noise.permute_sentences=False"]
    )
    size = corpus.tokenizer_info["vocabulary_size"]
    found = compare(recipe, Counts(np.full(size, -np.log(size))), {"": corpus}, {"": corpus})["measures"][0]
    assert found["bar"] == "copies" and 0 < found["bars"]["copies"] < found["bars"]["unigrams"] < found["value"]


# === Text ===


def test_a_novel_has_a_sentence_a_line():
    assert novel("I\n\nHe came in\nand left. Why?\n \nMr. Fox\nknew.") == "I\nHe came in and left.\nWhy?\nMr. Fox knew."
    assert sentences(["One. Two\nThree? Four."]) == ["One.\nTwo\nThree?\nFour."]


def test_every_recipe_has_a_text():
    assert "t5.tiny_multitask" in tiny_recipes() and "mobilebert.tiny_teacher" not in tiny_recipes()
    assert text_of("t5.tiny_multitask") == ("tasks", "unigram", "t5")
    assert text_of("roberta.tiny", "french", "unigram") == ("french", "unigram", None)
    assert text_of("deberta.tiny") == ("english", "wordpiece", None)
    for name in tiny_recipes():
        recipe = find_recipe(name)
        pairs = recipe.data.labeled or (recipe.teacher and find_recipe(recipe.teacher).data.labeled)
        assert not pairs or text_of(name)[0].startswith("novels"), f"{name} needs documents of sentences"
        assert not isinstance(recipe.data, Languages) or "languages" in text_of(name)[0]
    assert {name.partition(".")[0] for name in TEXTS} <= {name.partition(".")[0] for name in tiny_recipes()}


# === Predictions ===


def test_the_original_text_of_a_row():
    x = {"token_ids": np.array([[2, 4, 4, 7]]), "masked_positions": np.array([[1, 2, -1]])}
    assert originals(x, np.array([[5, 6, 0]])).tolist() == [[2, 5, 6, 7]]
    assert originals({**x, "backward": np.array([True])}, {"tokens": np.array([[5, 6, 0]])}).tolist() == [[7, 6, 5, 2]]
    x = {"token_ids": np.array([[2, 3]]), "decoder_token_ids": np.array([[0, 8]])}
    assert originals(x, np.array([[8, 9]])).tolist() == [[2, 3, 8, 9]]


def test_what_is_shown_is_no_target():
    x = {"token_ids": np.array([[2, 5, 4, 7]]), "masked_positions": np.array([[1, 2]])}
    assert is_shown(x, np.array([[5, 6]]), None).tolist() == [[True, False]]
    assert not is_shown({**x, "query_ranks": 0}, np.array([[5, 6]]), None).any()
    x = {"token_ids": np.array([[9, 4, 1]])}
    assert is_shown(x, np.array([[9, 5, 6, 1]]), "bert").tolist() == [[True, False, False, False]]
    assert not is_shown(x, np.array([[9, 5, 6, 1]]), "random_spans").any()


def test_cross_entropies():
    found = cross_entropies(np.log([[[1.0, 2.0, 5.0]], [[1.0, 1.0, 2.0]]]), np.array([[2], [0]]))
    assert found == pytest.approx(-np.log([[5 / 8], [1 / 4]]), rel=1e-6)


def test_a_whole_answer_is_a_label():
    """Three answers of two tokens; the second is wrong in its second token, and the last row is padding."""
    y = np.array([[5, 1], [6, 1], [5, 1], [0, 0]])
    weights = np.array([[1, 1], [1, 1], [1, 1], [0, 0]], np.float32)
    logits = np.full((4, 2, 8), -9.0)
    for row, column, token in ((0, 0, 5), (0, 1, 1), (1, 0, 6), (1, 1, 3), (2, 0, 5), (2, 1, 1)):
        logits[row, column, token] = 9.0
    found = answers(y, weights, logits)
    assert found["right"].tolist() == [1, 0, 1] and found["row"].tolist() == [0, 1, 2]
    assert found["label"][0] == found["label"][2] != found["label"][1]
    assert found["loss"] == pytest.approx([0, 18, 0], abs=1e-4)


def test_tokens_after_the_generator():
    """Of two slots one is filled with another token; [CLS] and [SEP], 2 and 3, are no text."""
    x = {"token_ids": np.array([[2, 4, 6, 4, 3, 0]]), "masked_positions": np.array([[1, 3]])}
    y, weights = {"tokens": np.array([[5, 7]])}, {"tokens": np.ones((1, 2)), "replaced": np.array([[1, 1, 1, 1, 1, 0]])}
    shares = np.full((1, 2, 8), 0.1)
    shares[0, 0, 5], shares[0, 1, 6] = 0.3, 0.3
    outputs = {"sampled": np.array([[5, 8]]), "replaced": np.zeros((1, 6)), "tokens": np.log(shares)}
    found = replaced(x, y, weights, outputs, np.array([0, 2, 3]))
    assert found["id"].tolist() == [5, 6, 8] and found["replaced"].tolist() == [False, False, True]
    assert found["left"].tolist() == [2, 5, 6] and found["right"].tolist() == [6, 8, 3]
    assert found["loss"] == pytest.approx(np.log(2))
    assert generated_mass(y, weights, outputs) == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.4, 0.1])


# === Bars ===


def test_a_model_that_counts_is_as_good_as_its_bar(corpus):
    counts = Counted(find_recipe("roberta.tiny"), corpus).counts + 1.0
    model = Counts(np.log(counts / counts.sum()))
    recipe = find_recipe("roberta.tiny").with_settings(["data.rows=chunks", "length=20"])
    (found,) = compare(recipe, model, {"en": corpus}, {"en": corpus})["measures"]
    assert (found["what"], found["bar"], found["units"]) == ("tokens, nats", "unigrams", 24)
    assert found["value"] == pytest.approx(found["bars"]["unigrams"], rel=1e-6)
    assert found["gain"] == pytest.approx(0, abs=1e-6) and found["kind"] == "documents"


def test_a_model_that_counts_pairs_is_as_good_as_bigrams(corpus):
    recipe = find_recipe("gpt.tiny").with_settings(["length=10"])
    model = Counted(recipe, corpus).after
    size = model.vocabulary_size
    pairs = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"), axis=-1).reshape(-1, 2)
    table = np.stack([model.log_probabilities(pair)[1:] for pair in pairs]).reshape(size, size)
    (found,) = compare(recipe, Counts(table), {"en": corpus}, {"en": corpus})["measures"]
    assert (found["bar"], set(found["bars"])) == ("bigrams", {"unigrams", "bigrams"})
    assert found["bars"]["bigrams"] < found["bars"]["unigrams"] - 0.2
    assert found["gain"] == pytest.approx(0, abs=1e-5)


def test_units_are_the_documents_of_the_rows(corpus):
    recipe = find_recipe("gpt.tiny").with_settings(["length=10"])
    units, kind = units_of(recipe, corpus)
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)
    whole = [np.asarray(corpus.tokens[starts[number] : starts[number + 1]])[None] for number in range(24)]
    assert kind == "documents" and [int(units(row)[0]) for row in whole] == list(range(24))
    tables, _ = read(recipe, Counts(np.zeros(60)), "en", corpus, 100, units)
    assert set(tables["tokens"]["unit"]) == set(range(24))


# === The page ===


def test_the_page_of_rows_with_and_without_bars(tmp_path):
    found = {"value": 4.0, "bar": "bigrams", "bars": {"unigrams": 6.0, "bigrams": 5.0}, "gain": 1.0, "error": 0.1}
    worse = {"value": 0.6, "bar": "majority", "bars": {"majority": 0.65}, "gain": -0.05, "error": 0.02}
    row = {
        **{"recipe": "gpt.tiny", "set": ["seed=1"], "text": "french", "tokenizer": "wordpiece", "seed": 1, "cores": 2},
        **{"load": [1.04, 1, 1], "load_at_end": [2.0, 1, 1], "steps": 1_000, "tokens": 12_345, "start": {}},
        **{"end": {"tokens, nats": 3.9}, "tokens_per_second": 99.5, "seconds": 150.0, "peak_mib": 800, "last": {}},
    }
    row["measures"] = [
        {"what": "tokens, nats", **found, "units": 24, "kind": "blocks"},
        {"what": "next sentence, accuracy", **worse, "units": 1_014, "kind": "pairs"},
    ]
    old = {"recipe": "bert.tiny", "set": [], "last": {"tokens": 7}, "start": {"token_loss": 9.0}, "cores": 1}
    old |= {"end": {"token_loss": 5.0}, "held_out": {"loss": 6.5}, "steps": 5, "tokens_per_second": None}
    old |= {"seconds": 60.0, "peak_mib": 1}
    page = report([row, old])
    name = "gpt.tiny, french, seed=1"
    assert label(row) == name
    line = "4.000 | bigrams 5.000 (unigrams 6.000) | +1.000 ± 0.100 | 10.0 | met | 24 blocks |\n"
    assert f"| {name} | tokens, nats | {line}" in page
    line = "0.600 | majority 0.650 | -0.050 ± 0.020 | -2.5 | not met | 1,014 pairs |\n"
    assert f"| {name} | next sentence, accuracy | {line}" in page
    assert f"| {name} |  | 3.900 | 4.000 | 1,000 | 12,345 | 100 | 800 | 2 | 2 | 1.0, 2.0 | 1 |\n" in page
    assert "| bert.tiny | 9.000 | 5.000 | 6.500 | 5 | 7 | 0 | 1 | 1 | 1 |  |  |\n" in page
    assert "to be run again: bert.tiny.\n" in page


def test_a_new_row_takes_the_place_of_the_older_one(tmp_path):
    results = tmp_path / "rows.jsonl"
    results.write_text('{"recipe": "bert.tiny", "set": []}\n{"recipe": "bert.tiny", "set": [], "text": "novels"}\n')
    (row,) = read_rows(results)
    assert row["text"] == "novels"
    assert cell_of(row) == ("bert.tiny", (), "novels", "wordpiece")
    assert cell_of({**row, "text": "english"}) != cell_of(row)
