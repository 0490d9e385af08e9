"""The minimal pairs with the words of English novels, and what counting words scores on them."""

import hashlib

import pytest

from benchmarks.studies.suite.minimal_pairs import accuracy, generate
from benchmarks.studies.suite.ngram_model import NgramModel, Ngrams, Unigrams, Words
from benchmarks.studies.suite.paradigms import PARADIGMS
from kerasbert.data import read_documents

HELD_OUT = ("Chesterton_Thursday_1908", "Doyle_Hound_1902")
DIGEST = "a72a9a81b7e788f54262e23f4c10c97f1a2385ee700d1a922f5ae51cda09a64f"


@pytest.fixture(scope="module")
def novels(shared_data):
    files = sorted((shared_data / "pretraining" / "en_novels").glob("*.txt"))
    return Words(read_documents([file for file in files if file.stem not in HELD_OUT], documents="file"))


def test_counting_words(novels):
    counts = novels.counts()
    pairs = generate(counts)
    text = "\n".join(f"{pair.paradigm}\t{pair.good}\t{pair.bad}" for pair in pairs)
    assert len(pairs) == 4000 and hashlib.sha256(text.encode()).hexdigest() == DIGEST
    found = accuracy(Unigrams(counts), pairs)
    assert all(abs(found[name] - 0.5) <= 0.03 for name in PARADIGMS) and found["overall"] == 0.5

    model = NgramModel(novels.ids, len(novels.vocabulary), order=5)  # half a minute, and 3 GB
    found = accuracy(Ngrams(model, novels), pairs)
    assert found["overall"] == pytest.approx(0.633, abs=0.002)
    assert found["pronoun_case"] > 0.95, "what adjacent words decide"
    assert found["agreement_prepositional_phrase"] < 0.4, "the nearest noun has the other number"
    exact = ("agreement_question", "binding", "auxiliary_form", "wh_vs_that")
    assert [found[name] for name in exact] == pytest.approx([0.5] * 4, abs=0.01), "what 5 words cannot decide"
