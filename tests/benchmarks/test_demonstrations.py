"""The small parts of the demonstrations: blanks, places of names, and probabilities of pairs."""

import numpy as np
import pytest

from benchmarks.studies.demonstrations.run import (
    CITIES,
    COUNTS,
    blanked,
    blanks_of,
    city_documents,
    masked_joint,
    pair_places,
    permutation_joint,
    shares,
    words_in,
)
from kerasbert.models import Bert, BertConfig, XLNet, XLNetConfig
from kerasbert.objectives import MaskedLM, PermutationLM

pytestmark = pytest.mark.one_backend

SIZE = dict(vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, dropout=0.0)
PAIRS = np.array([[5, 6], [7, 8]])


def test_a_blank_and_its_answer():
    words = "a b c d e".split()
    assert blanked(words, 2, 2, True) == ("2: a b <extra_id_0> e", "<extra_id_0> c d")
    assert blanked(words, 0, 1, False) == ("<extra_id_0> b c d e", "<extra_id_0> a")
    assert words_in("<extra_id_0> c d") == words_in("c<extra_id_0> d") == 2 and words_in("") == 0


def test_blanks_say_how_many_words_are_missing():
    documents = [" ".join(f"w{i}" for i in range(200)), " ".join(f"v{i}" for i in range(60))]
    sources, answers, counts = blanks_of(documents, 50, True, seed=3)
    assert set(counts) <= set(COUNTS) and len(set(counts)) > 3
    for source, answer, count in zip(sources, answers, counts, strict=True):
        assert source.startswith(f"{count}: ") and words_in(answer) == count
        missing = answer.split()[1:]
        assert not set(missing) & set(source.split())
    assert (sources, answers, counts) == blanks_of(documents, 50, True, seed=3)


def test_documents_have_a_city_a_line():
    lines = [line for document in city_documents(20, 0) for line in document.splitlines()]
    assert len(lines) == 160
    names = [" ".join(city) for city in CITIES]
    assert all(sum(name in line for name in names) == 1 for line in lines)


def test_the_last_name_of_a_row():
    ids = np.array([[5, 6, 1, 7, 8, 2], [5, 8, 7, 6, 2, 2], [1, 2, 3, 4, 5, 6]])
    assert pair_places(ids, PAIRS).tolist() == [3, -1, 4]


def test_shares_of_the_probability():
    joint = np.array([[[0.4, 0.1], [0.0, 0.2]], [[0.2, 0.1], [0.2, 0.4]]])
    assert shares(joint) == {"right": 0.6, "mixed": 0.2, "other": 0.2}


@pytest.fixture(scope="module")
def rows():
    ids = np.array([[5, 6, 1, 7, 8, 2, 3], [1, 2, 5, 6, 1, 2, 3]], "int32")
    return {"token_ids": ids}, np.array([3, 2])


def test_bert_gives_a_product(rows):
    model = MaskedLM(Bert(BertConfig(**SIZE, attention_dropout=0.0)))
    joint = masked_joint(model, *rows, PAIRS, mask_id=4)
    assert joint.shape == (2, 2, 2)
    np.testing.assert_allclose(joint[:, 0, 0] * joint[:, 1, 1], joint[:, 0, 1] * joint[:, 1, 0], rtol=1e-4)
    changed = {"token_ids": rows[0]["token_ids"].copy()}
    changed["token_ids"][0, 3:5] = [5, 6]
    np.testing.assert_allclose(masked_joint(model, changed, rows[1], PAIRS, mask_id=4), joint, rtol=1e-5)


def test_a_permutation_model_reads_the_first_word(rows):
    model = PermutationLM(XLNet(XLNetConfig(**{**SIZE, "initializer_range": 0.5})))
    special = rows[0]["token_ids"] == 3
    joint = permutation_joint(model, *rows, PAIRS, special)
    ratios = joint[:, 0, 0] * joint[:, 1, 1] / (joint[:, 0, 1] * joint[:, 1, 0])
    assert (np.abs(ratios - 1) > 1e-3).all(), "no product"
    changed = {"token_ids": rows[0]["token_ids"].copy()}
    changed["token_ids"][0, 3:5] = [5, 6]  # what is predicted is not read
    np.testing.assert_allclose(permutation_joint(model, changed, rows[1], PAIRS, special), joint, rtol=1e-5)
