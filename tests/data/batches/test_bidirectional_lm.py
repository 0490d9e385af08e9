"""Rows for two language models: targets on both sides, at the ends of rows and of the text, and tokens as bytes."""

import numpy as np
import pytest

from kerasbert.data import BidirectionalLMBatches, Corpus, Tokenizer, character_ids

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    documents = ["one two three four five", "six seven\neight nine", "ten"]
    tokenizer = Tokenizer.train("wordpiece", documents, 34)
    return Corpus.write(tmp_path_factory.mktemp("corpus"), documents, tokenizer)


def stream_of(corpus):
    """All tokens, the end token behind every document."""
    bounds = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    end = corpus.tokenizer_info["sep_id"]
    parts = [np.append(corpus.tokens[a:b], end) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    return np.concatenate(parts).astype(int)


@pytest.mark.parametrize("length", [4, 5, 7])
def test_both_neighbors_are_targets(corpus, length):
    stream = stream_of(corpus)
    batches = BidirectionalLMBatches(corpus, 2, length, seed=3)
    seen = {"forward": [], "backward": []}
    for x, y, weights in batches:
        for row in range(2):
            count = x["lengths"][row]
            if not count:
                assert not any(weights[side][row].any() for side in weights)
                continue
            places = np.flatnonzero(
                [np.array_equal(stream[i : i + count], x["token_ids"][row, :count]) for i in range(len(stream))]
            )
            start = next(p for p in places if p % length == 0)
            for side, shift in (("forward", 1), ("backward", -1)):
                for column in np.flatnonzero(weights[side][row]):
                    assert y[side][row, column] == stream[start + column + shift]
                    seen[side].append(start + column)
    assert sorted(seen["forward"]) == list(range(len(stream) - 1))
    assert sorted(seen["backward"]) == [place for place in range(len(stream)) if place % length]


def test_characters_of_tokens(corpus):
    batches = BidirectionalLMBatches(corpus, 2, 6, characters=True, steps=3)
    x, _, _ = batches[0]
    tokenizer = corpus.tokenizer()
    assert x["character_ids"].shape == (2, 6, 50)
    words = [[tokenizer.token(int(i)) for i in row] for row in x["token_ids"]]
    expected = character_ids(words)["character_ids"]
    ends = x["token_ids"] == tokenizer.sep_id
    real = np.arange(6) < x["lengths"][:, None]
    np.testing.assert_array_equal(x["character_ids"][real & ~ends], expected[real & ~ends])
    marks = character_ids([[]], marks=True)["character_ids"][0, 1]
    assert all((row == marks).all() for row in x["character_ids"][real & ends])
    assert not x["character_ids"][~real].any()
    assert batches.recipe()["characters"] is True


def test_replay_and_resume(corpus):
    batches = BidirectionalLMBatches(corpus, 2, 4, steps=9, seed=5)
    for step, batch in enumerate(batches.starting_at(4)):
        again = BidirectionalLMBatches(corpus, 2, 4, steps=9, seed=5)[step + 4]
        np.testing.assert_array_equal(batch[0]["token_ids"], again[0]["token_ids"])
        np.testing.assert_array_equal(batch[1]["backward"], again[1]["backward"])
