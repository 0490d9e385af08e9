"""A masking rule of one's own, in one class, for any batches of masked rows."""

import dataclasses

import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus, MaskedLMBatches, Noise, SpanMaskBatches, Tokenizer, positions_of
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from tests.extending.small import SIZES

DOCUMENTS = ["a b c d e f g\nb c d e f g a", "c d e f g a b\nd e f g a b c"] * 20


@dataclasses.dataclass(frozen=True)
class EveryNth(Noise):
    """Masks one token in n, from a random place on, and never keeps or replaces one."""

    n: int = 3
    shares = (1.0, 0.0)

    def num_slots(self, length, num_special):
        return -(-length // self.n)

    def choice_draws(self, length, num_slots):
        return 1

    def choose(self, rows, draws):
        places = np.arange(rows.token_ids.shape[1])
        return positions_of(rows.text & ((places + draws[:, :1]) % self.n == 0), rows.num_slots)


@pytest.mark.parametrize("cls", [MaskedLMBatches, SpanMaskBatches])
def test_own_noise(cls, tmp_path):
    tokenizer = Tokenizer.train("wordpiece", DOCUMENTS, 19)
    corpus = Corpus.write(tmp_path / "corpus", DOCUMENTS, tokenizer)
    batches = cls(corpus, 8, 16, noise=EveryNth(4), steps=12)
    x, y, weights = batches[3]
    used = (x["masked_positions"] >= 0).sum(axis=1)
    assert used.max() == 4 and (np.diff(x["masked_positions"][used == 4], axis=1) == 4).all()
    assert (x["token_ids"] == tokenizer.mask_id).sum() == used.sum()
    assert batches.recipe()["noise"] == {"class": "EveryNth", "n": 4}
    if cls is MaskedLMBatches:
        model = MaskedLM(
            Bert(BertConfig(**{**SIZES, "vocabulary_size": tokenizer.vocabulary_size})), tokenizer=tokenizer
        )
        model.compile(kerasbert.training.adamw(3e-3, warmup=2, steps=12))
        before = model.evaluate(batches, verbose=0, return_dict=True)["loss"]
        model.fit(batches, verbose=0)
        assert model.evaluate(batches, verbose=0, return_dict=True)["loss"] < before
