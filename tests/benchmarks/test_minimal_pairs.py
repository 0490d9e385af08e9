"""Twenty paradigms of minimal pairs, whose words have equal frequencies, and how models are scored on them."""

import hashlib
import random
from collections import Counter
from operator import attrgetter

import numpy as np
import pytest

from benchmarks.studies.suite.lexicon import CLASSES, OBJECTS
from benchmarks.studies.suite.minimal_pairs import (
    accuracy,
    generate,
    minimal_pairs,
    sentence_scores,
    write_pairs,
)
from benchmarks.studies.suite.ngram_model import Unigrams, words
from benchmarks.studies.suite.paradigms import PARADIGMS
from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config
from kerasbert.objectives import CausalLM, MaskedLM
from pipelines.reading.minimal_pairs import MinimalPair, read_minimal_pairs

GOOD, BAD = attrgetter("good"), attrgetter("bad")


@pytest.fixture(scope="module")
def pairs():
    return generate()


def by_paradigm(pairs):
    return {name: [pair for pair in pairs if pair.paradigm == name] for name in PARADIGMS}


@pytest.mark.one_backend
def test_twenty_paradigms_of_two_hundred_pairs(pairs):
    assert len(PARADIGMS) == 20 and len(pairs) == 4000
    for name, rows in by_paradigm(pairs).items():
        assert len({row.good for row in rows}) == len({(row.good, row.bad) for row in rows}) == 200, name
    assert not {row.good for row in pairs} & {row.bad for row in pairs}


@pytest.mark.one_backend
def test_the_pairs_are_frozen(pairs):
    """A suite that changes cannot be compared with earlier results."""
    text = "\n".join(f"{pair.paradigm}\t{pair.good}\t{pair.bad}" for pair in pairs)
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST
    assert generate(seed=0) == pairs != generate(seed=1)
    assert generate(pairs=10)[:10] == pairs[:10], "fewer pairs are the first ones"


@pytest.mark.one_backend
def test_pairs_differ_in_one_word_or_in_the_order(pairs):
    for pair in pairs:
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) == len(bad) and pair.good[0].isupper() and pair.bad[0].isupper(), pair
        good, bad = Counter(words(pair.good)), Counter(words(pair.bad))
        assert (good - bad).total() == (bad - good).total() <= 1, pair
        assert pair.good[-1] == pair.bad[-1] and pair.good[-1] in ".?", pair


@pytest.mark.one_backend
def test_every_form_is_right_as_often_as_it_is_wrong(pairs):
    for name, rows in by_paradigm(pairs).items():
        good, bad = (Counter(word for row in rows for word in words(text(row))) for text in (GOOD, BAD))
        assert good == bad, name


@pytest.mark.one_backend
def test_unigrams_score_one_half(pairs):
    """Whatever the frequencies are."""
    draw = random.Random(0)
    vocabulary = sorted({word for pair in pairs for word in words(pair.good)})
    for _ in range(3):
        counts = {word: int(draw.paretovariate(0.5)) for word in vocabulary}
        found = accuracy(Unigrams(counts), pairs)
        assert set(found) == {*PARADIGMS, "overall"} and set(found.values()) == {0.5}


DIGEST = "cc3f5230a2199d052f86976b290d16897ea91837d830f57e6d521b06f7061279"
FIRST = {
    "agreement_simple": "The tall woman hates the boat. / The tall woman hate the boat.",
    "agreement_prepositional_phrase": "The girl behind the doors admires the castle. / "
    "The girl behind the doors admire the castle.",
    "agreement_relative_clause": "The girl who helped the priests hates the church. / "
    "The girl who helped the priests hate the church.",
    "agreement_question": "Why has the tall king returned? / Why have the tall king returned?",
    "determiner_noun": "The brother noticed that boat again. / The brother noticed that boats again.",
    "determiner_noun_adjective": "The neighbour loved this small ship yesterday. / "
    "The neighbour loved this small ships yesterday.",
    "determiner_noun_irregular": "The poet admired that leaf again. / The poet admired those leaf again.",
    "reflexive_gender": "The boy comforted himself that day. / The boy comforted herself that day.",
    "reflexive_number": "The lady excused herself at last. / The lady excused themselves at last.",
    "binding": "The son of the princess despised himself. / The son of the princess despised herself.",
    "pronoun_case": "After that I saw the farmer. / After that me saw the farmer.",
    "irregular_verb": "The clever friend stole the sword yesterday. / The clever friend stolen the sword yesterday.",
    "auxiliary_form": "Why has the good clerk written the story? / Why did the good clerk written the story?",
    "transitivity": "The tall prisoner mentioned the letter in the evening. / "
    "The tall prisoner paused the letter in the evening.",
    "wh_vs_that": "The gentleman guessed what the brother destroyed. / "
    "The gentleman guessed that the brother destroyed.",
    "island_coordinate": "What should the lawyer and the guest take? / What should the lawyer take and the guest?",
    "island_adjunct": "What could the child describe after finding the ring? / "
    "What could the child describe the ring after finding?",
    "ellipsis_n_bar": "The girl bought six fine cups and the visitor bought five. / "
    "The girl bought six cups and the visitor bought five fine.",
    "npi_licensing": "At that time no stranger that the cousin met had ever been happy. / "
    "At that time the stranger that no cousin met had ever been happy.",
    "existential_there": "There were two chairs in most churches. / There were most chairs in two churches.",
}


@pytest.mark.one_backend
@pytest.mark.parametrize("name", PARADIGMS)
def test_the_first_pair(pairs, name):
    first = by_paradigm(pairs)[name][0]
    assert f"{first.good} / {first.bad}" == FIRST[name]


def all_words():
    text = " ".join([*CLASSES.values(), *OBJECTS.values()])
    found = {word.lower() for word in text.replace("/", " ").replace("_", " ").split()}
    return found | {word for pair in generate(pairs=20) for word in words(f"{pair.good} {pair.bad}")}


@pytest.mark.one_backend
def test_rare_words_are_not_used(pairs):
    counts = dict.fromkeys(all_words(), 50)
    assert generate(counts) == pairs
    counts |= {"boys": 49, "broken": 49, "apple": 0, "ill": 0}
    found = generate(counts)
    used = {word for pair in found for word in words(f"{pair.good} {pair.bad}")}
    # The singular is left out together with its plural, except where no plural is needed.
    assert not used & {"boys", "broken", "break", "breaking", "broke", "apple", "ill"} and used < all_words()
    assert generate(counts, minimum=49) != found


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "options, message",
    [
        (dict(counts={"boy": 100}), "Two entries of every class of words must occur .*0 of the class 'people'"),
        (dict(pairs=3), "an even number of different pairs. Received: pairs=3, but agreement_simple has 2"),
        (dict(pairs=100_000), "pairs=100000, but agreement_simple has"),
        (dict(missing="himself"), "words of the templates must occur 50 times or more in the text. Received: himself,"),
    ],
)
def test_texts_that_are_too_short(options, message, monkeypatch):
    monkeypatch.setattr("benchmarks.studies.suite.minimal_pairs.ATTEMPTS", 1 if options.get("pairs", 0) > 1000 else 50)
    if missing := options.pop("missing", None):
        options["counts"] = dict.fromkeys(all_words() - {missing}, 50)
    with pytest.raises(ValueError, match=message):
        generate(**options)


@pytest.mark.one_backend
def test_a_tie_counts_one_half():
    class Lengths:
        def score(self, texts):
            return [len(text) for text in texts]

    rows = [MinimalPair("a", "xx", "x"), MinimalPair("a", "xx", "xx"), MinimalPair("b", "x", "xx")]
    assert accuracy(Lengths(), rows) == {"a": 0.75, "b": 0.0, "overall": 0.375}


@pytest.fixture(scope="module")
def tokenizer(pairs):
    return Tokenizer.train("wordpiece", [pair.good for pair in pairs[::10]], 120, lowercase=True)


SIZES = dict(vocabulary_size=120, num_layers=1, num_heads=2, hidden_dim=8, max_length=40)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def masked_lm(tokenizer, sentence_pair):
    model = MaskedLM(Bert(BertConfig(feed_forward_dim=16, **SIZES)), sentence_pair, tokenizer)
    for variable in model.trainable_variables:  # with the initial weights, which are small, all scores are alike
        variable.assign(variable * 10)
    return model


def test_pseudo_log_likelihoods(pairs, tokenizer):
    model = masked_lm(tokenizer, sentence_pair=False)
    texts = [pair.good for pair in pairs[::500]]
    for method, within_words in (("pll", False), ("within_words", True)):
        expected = [answer["score"] for answer in model.score(texts, within_words)]
        np.testing.assert_allclose(sentence_scores(model, texts, method), expected, rtol=1e-6)
    assert sentence_scores(model, texts, "pll") != sentence_scores(model, texts, "within_words")
    with pytest.raises(ValueError, match="`method` must be one of pll, within_words, unmasked. Received: 'mean'"):
        accuracy(model, pairs[:2], method="mean")


@pytest.mark.parametrize("sentence_pair", [False, True])
def test_scores_without_masks(pairs, tokenizer, sentence_pair):
    model = masked_lm(tokenizer, sentence_pair)
    texts = [pair.good for pair in pairs[::300]]
    found = sentence_scores(model, texts, "unmasked", batch_size=2)
    for text, score in zip(texts, found, strict=True):
        (ids,) = tokenizer.encode([text])
        logits = model.predict({"token_ids": ids[None]}, verbose=0)
        logits = log_softmax((logits["tokens"] if sentence_pair else logits)[0])
        assert score == pytest.approx(logits[np.arange(len(ids)), ids][1:-1].sum(), rel=1e-5)


def test_scores_of_a_causal_language_model(pairs, tokenizer):
    model = CausalLM(GPT2(GPT2Config(**SIZES)), tokenizer=tokenizer)
    rows = [*pairs[:4], *pairs[-2:]]
    good, bad = ([answer["score"] for answer in model.score(list(map(text, rows)))] for text in (GOOD, BAD))
    right = np.array(good) > np.array(bad)
    expected = {"agreement_simple": right[:4].mean(), "existential_there": right[4:].mean()}
    assert accuracy(model, rows) == expected | {"overall": np.mean(list(expected.values()))}


@pytest.mark.one_backend
def test_the_command(tmp_path, capsys):
    folder = tmp_path / "novels"
    folder.mkdir()
    (folder / "first.txt").write_text("\n\n".join(" ".join(sorted(all_words())) for _ in range(3)), encoding="utf-8")
    (folder / "second.txt").write_text("unknown words " * 9, encoding="utf-8")
    output = tmp_path / "pairs.jsonl"
    rows = minimal_pairs((folder,), output, pairs=4, minimum=3, exclude=("second",), order=2)
    assert rows == generate(pairs=4) == read_minimal_pairs(output)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["paradigm", "pairs", "unigrams", "2-grams"] and len(lines) == 22
    assert lines[1].split()[:3] == ["agreement_simple", "4", "50.0"]
    assert lines[-1].split()[:3] == ["overall", "80", "50.0"]
    with pytest.raises(ValueError, match="`exclude` must name files of the text. Received: third"):
        minimal_pairs((folder,), output, exclude=("third",))


@pytest.mark.one_backend
def test_files_have_the_columns_of_blimp(tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", [MinimalPair("a", "Good.", "Bad.")])
    text = (tmp_path / "pairs.jsonl").read_text(encoding="utf-8")
    assert text == '{"paradigm": "a", "sentence_good": "Good.", "sentence_bad": "Bad."}\n'
