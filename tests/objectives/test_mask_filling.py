"""Candidates for mask tokens are the likeliest tokens by the model's logits at the masks."""

import json

import numpy as np
import pytest
import tokenizers as hf

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from tests.models.reference import randomize, to_numpy

pytestmark = pytest.mark.one_backend

LINES = ["a fine film", "dull and cold", "a warm play"]
TEXTS = ["a [MASK] film", "dull and cold [MASK]", "[MASK] [MASK]"]
SIZES = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=16)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", LINES * 20, vocabulary_size=50)


def model_of(tokenizer, **options):
    config = BertConfig(**SIZES, vocabulary_size=tokenizer.vocabulary_size + 3)  # the table may have unused rows
    return randomize(MaskedLM(Bert(config), tokenizer=tokenizer, **options), 0.5)


@pytest.mark.parametrize("sentence_pair", [False, True])
def test_candidates_are_the_likeliest_tokens(sentence_pair, tokenizer):
    model = model_of(tokenizer, sentence_pair=sentence_pair)
    answers = model.fill_mask(TEXTS, top_k=3)
    assert [len(masks) for masks in answers] == [1, 1, 2]
    for text, masks in zip(TEXTS, answers, strict=True):
        ids = tokenizer.encode([text])[0]
        logits = model({"token_ids": ids[None]})
        logits = to_numpy(logits["tokens"] if sentence_pair else logits)[0, ids == tokenizer.mask_id]
        logits = logits[:, : tokenizer.vocabulary_size].astype("float64")
        scores = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        for candidates, expected in zip(masks, scores, strict=True):
            assert [one["id"] for one in candidates] == np.argsort(-expected)[:3].tolist()
            assert [one["token"] for one in candidates] == [tokenizer.token(one["id"]) for one in candidates]
            np.testing.assert_allclose([one["score"] for one in candidates], np.sort(expected)[:-4:-1], rtol=1e-4)
    alone = model.fill_mask(TEXTS[0], top_k=3)
    assert [one["id"] for one in alone[0]] == [one["id"] for one in answers[0][0]]
    assert model.fill_mask([]) == []


def test_errors(tokenizer):
    model = model_of(tokenizer)
    with pytest.raises(ValueError, match=r"must have the mask token \[MASK\] within its first 16.*'no mask here'"):
        model.fill_mask(["a [MASK]", "no mask here"])
    for top_k in (-1, 0, 1.5):
        with pytest.raises(ValueError, match=f"`top_k` must be an integer of at least 1. Received: {top_k}"):
            model.fill_mask("a [MASK]", top_k=top_k)
    model.tokenizer = None
    with pytest.raises(ValueError, match="Text needs a tokenizer"):
        model.fill_mask("a [MASK]")


def test_ids_without_a_token_are_no_candidates(tokenizer):
    """A vocabulary may have holes: here, the ids from 50 to 52."""
    content = json.loads(tokenizer.backend.to_str())
    content["model"]["vocab"]["late"] = 53
    holed = Tokenizer(hf.Tokenizer.from_str(json.dumps(content)), tokenizer.roles)
    assert holed.vocabulary_size == 54 and holed.tokens[50:] == ["", "", "", "late"]
    model = model_of(holed)
    for top_k in (5, 51, 99):
        (found,) = model.fill_mask("a [MASK] film", top_k=top_k)
        assert len(found) == min(top_k, 51) and not {50, 51, 52} & {one["id"] for one in found}
    assert sum(one["score"] for one in found) == pytest.approx(1)
    ids = holed.encode(["a [MASK] film"])[0]
    logits = to_numpy(model({"token_ids": ids[None]}))[0, ids == holed.mask_id][0]
    assert found[0]["id"] == max((*range(50), 53), key=lambda index: logits[index])
