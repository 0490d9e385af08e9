"""The rows on which n-grams and a language model are compared."""

import pytest

from benchmarks.studies.shipped_models.ngram_loss import held_out_rows
from kerasbert.data import CausalLMBatches, Corpus, Tokenizer

pytestmark = pytest.mark.one_backend


def test_every_token_but_the_first_is_a_target_once():
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"], 21)
    corpus = Corpus.in_memory(["a b c d e", "f g h"], tokenizer)
    rows, targets = held_out_rows(CausalLMBatches(corpus, batch_size=2, length=3, seed=0))
    ids = [tokenizer.id(token) for token in "a b c d e [SEP] f g h [SEP]".split()]
    expected = [ids[:4], ids[3:7], ids[6:]]
    assert sorted(map(list, rows)) == sorted(expected)
    assert len(targets) == len(ids) - 1
