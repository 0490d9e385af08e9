"""Neighbors of words in a table and in a model."""

import io

import numpy as np
import pytest
from rich.console import Console

from kerasbert.models import T5, Bert, BertConfig, T5Config, WordVectors, WordVectorsConfig
from pipelines.show.neighbors import SENTENCES, nearest_in_table, neighbors, neighbors_page, print_neighbors
from pipelines.show.words import word_tokenizer

SIZE = dict(num_layers=2, num_heads=2, hidden_dim=8, feed_forward_dim=12)


@pytest.fixture(scope="module")
def bert():
    tokenizer = word_tokenizer(SENTENCES, "bert", further=())
    return Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **SIZE)), tokenizer


@pytest.fixture(scope="module")
def vectors():
    """cat, dog and car with the angles 0, 30 and 90 degrees; all other tokens point the other way."""
    tokenizer = word_tokenizer(["cat dog car"], "bert", further=())
    table = np.full((tokenizer.vocabulary_size, 2), -1.0, "float32")
    for word, angle in (("cat", 0), ("dog", 30), ("car", 90)):
        table[tokenizer.id(word)] = 3 * np.cos(np.radians(angle)), 3 * np.sin(np.radians(angle))
    backbone = WordVectors(WordVectorsConfig(vocabulary_size=tokenizer.vocabulary_size, hidden_dim=2))
    backbone.token_embedding.set_weights([table])
    return backbone, tokenizer


def test_nearest_in_the_table(vectors):
    bars = nearest_in_table(*vectors, "cat", 2)
    assert list(bars.names) == ["dog", "car"] and bars.values == pytest.approx([3**0.5 / 2, 0.0], abs=1e-6)
    assert bars.title == "cat in the table of WordVectors"
    with pytest.raises(ValueError, match="The word must be in the vocabulary of the table. Received: 'horse'"):
        nearest_in_table(*vectors, "horse", 2)


def test_a_table_has_one_vector_for_all_contexts(vectors):
    found = neighbors(*vectors, "cat", ("cat dog", "Car cat"), top=2)
    np.testing.assert_allclose(found.cosines, np.ones((2, 2)), atol=1e-6)


def test_contextual_neighbors_are_from_other_sentences(bert):
    found = neighbors(*bert, "bank", top=4)
    assert found.sentences == [f"{n}: {SENTENCES[n - 1]}" for n in (1, 2, 4, 5)]
    for bars, sentence in zip(found.contextual, found.sentences, strict=True):
        assert bars.text[slice(*bars.marked)] == "bank"
        assert len(bars.names) == 4 and sentence not in bars.notes
        assert bars.values == sorted(bars.values, reverse=True)
        assert not any(name in (".", "[CLS]", "[SEP]") for name in bars.names)
    np.testing.assert_allclose(np.diag(found.cosines), 1, atol=1e-5)
    assert found.cosines.shape == (4, 4) and -1 <= found.mean < 1


def test_without_context_all_occurrences_are_alike():
    """At the same place the embeddings are equal; the output of the blocks depends on the other words."""
    same_place = ("a bank lent it", "the bank had it")
    tokenizer = word_tokenizer(same_place, "bert", further=())
    backbone = Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, initializer_range=0.5, **SIZE))
    static = neighbors(backbone, tokenizer, "bank", same_place, layer=0).cosines
    np.testing.assert_allclose(static, 1, atol=1e-5)
    assert neighbors(backbone, tokenizer, "bank", same_place).cosines[0, 1] < 0.999


def test_the_encoder_of_an_encoder_decoder():
    tokenizer = word_tokenizer(SENTENCES, "t5", further=())
    backbone = T5(T5Config(vocabulary_size=tokenizer.vocabulary_size, **SIZE))
    assert neighbors(backbone, tokenizer, "bank").cosines.shape == (4, 4)


def test_a_word_in_pieces_has_their_mean():
    tokenizer = word_tokenizer(["the bankers sat"], "bert", pieces=4, further=())
    backbone = Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **SIZE))
    found = neighbors(backbone, tokenizer, "BANKERS", ("the bankers sat", "sat the bankers"), top=2)
    assert found.static.title == "bankers in the table of Bert, mean of 2 pieces"
    assert [bars.text[slice(*bars.marked)] for bars in found.contextual] == ["bankers", "bankers"]


def test_another_table(bert, vectors):
    with pytest.raises(ValueError, match="The word must be in the vocabulary of the table. Received: 'bank'"):
        neighbors(*bert, "bank", table=vectors)


def test_terminal_and_page(bert):
    found = neighbors(*bert, "bank", top=3)
    console = Console(file=io.StringIO(), width=120)
    print_neighbors(found, console)
    text = console.file.getvalue()
    assert "bank in the table of Bert" in text and f"(mean of all pairs of words: {found.mean:.2f})" in text
    page = neighbors_page("Neighbors", found)
    assert page.count("<section>") == 6 and "http" not in page
    assert f"{found.cosines[0, 1]:.2f}</td>" in page


def test_errors(bert):
    with pytest.raises(ValueError, match="A sentence must contain the word 'cat'. Received: 6 sentences without it"):
        neighbors(*bert, "cat")
    with pytest.raises(ValueError, match="`layer` must be from 0 to 2, or -1 for the last. Received: 3"):
        neighbors(*bert, "bank", layer=3)
    with pytest.raises(ValueError, match="`top` must be at least 1"):
        neighbors(*bert, "bank", top=0)
