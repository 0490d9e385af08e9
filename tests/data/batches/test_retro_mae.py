"""Batches of RetroMAE: the encoder's masked rows, and what each position of the decoder sees of the whole rows."""

import numpy as np
import pytest

from kerasbert.data import Corpus, MaskedLMBatches, RateSchedule, RetroMAEBatches, Tokenizer, WholeWords
from tests.data.batches.test_batches import same

pytestmark = pytest.mark.one_backend


def test_the_encoder_reads_masked_rows_and_the_decoder_whole_ones(corpus):
    plain = MaskedLMBatches(corpus, 6, 32, seed=3, steps=4, noise=WholeWords(0.3))
    batches, seen = RetroMAEBatches(corpus, 6, 32, seed=3, steps=4), []
    for (x, y, weights), (expected, targets, used) in zip(batches, plain, strict=True):
        same({key: x[key] for key in expected}, expected)
        same((y["tokens"], weights["tokens"]), (targets, used))
        row, slot = np.nonzero(used)
        whole = x["decoder_token_ids"].copy()
        np.testing.assert_array_equal(whole[row, expected["masked_positions"][row, slot]], targets[row, slot])
        masked = np.zeros(whole.shape, bool)
        masked[row, expected["masked_positions"][row, slot]] = True
        np.testing.assert_array_equal(whole[~masked], x["token_ids"][~masked])
        same(y["decoder"], whole)
        columns = np.arange(32)
        text = (columns > 0) & (columns < x["lengths"][:, None] - 1)
        same(weights["decoder"], text.astype("float32"))
        visible, real = x["decoder_visible"], columns < x["lengths"][:, None]
        assert visible.dtype == bool and not visible[:, columns, columns].any()
        assert not (visible & ~real[:, None]).any()
        special = real & ~text
        assert (visible | np.eye(32, dtype=bool))[np.broadcast_to(special[:, None], visible.shape)].all()
        hidden = ~visible & text[:, None]
        assert (hidden.sum(2) <= np.rint(x["lengths"] * 0.5)[:, None] + 1).all()
        seen.append(np.corrcoef(hidden.mean(1)[text], masked[text])[0, 1])
    assert abs(np.mean(seen)) < 0.15  # the decoder does not know the encoder's masks


@pytest.mark.parametrize("noise", [None, RateSchedule(WholeWords(0.5), 0.2)])
def test_rows_do_not_depend_on_how_they_are_split(noise, corpus):
    def make():
        return RetroMAEBatches(corpus, 4, 24, steps=3, noise=noise, decoder_rate=0.7)

    whole, parts = make(), make().accumulated(2)
    for step in range(3):
        same(whole[step], make().starting_at(step)[0] if noise is None else whole[step])
        halves = [parts[2 * step], parts[2 * step + 1]]
        hosts = [make().shard(index, 2)[step] for index in range(2)]
        for key in whole[step][0]:
            for split in (halves, hosts):
                np.testing.assert_array_equal(np.concatenate([part[0][key] for part in split]), whole[step][0][key])
        total = {name: 4 * halves[0][0]["loss_normalizer"][name][0] for name in ("tokens", "decoder")}
        assert total == pytest.approx({name: whole[step][2][name].sum() for name in total})


def test_texts_of_one_token(wordpiece):
    batches = RetroMAEBatches(Corpus.in_memory(["e", "t"], wordpiece), 2, 8)
    x, y, weights = batches[0]
    assert (weights["tokens"].sum(1) == 1).all() and (weights["decoder"].sum(1) == 1).all()
    assert not x["decoder_visible"][:, :, 1].any()


def test_bad_input(corpus, documents):
    with pytest.raises(ValueError, match="rate must be above 0 and below 1. Received: 1.5"):
        RetroMAEBatches(corpus, 4, 24, decoder_rate=1.5)
    for rows, message in (
        ("segment_pairs", "has no sentence-pair label"),
        ("packed", "one text with padding on the right. Received: rows with .*sequence_ids"),
        ("stream", r"begin with a special token.* Received: rows with the template \[\]"),
    ):
        with pytest.raises(ValueError, match=message):
            RetroMAEBatches(corpus, 4, 24, rows=rows)
    plain = Tokenizer.train("byte_bpe", documents, 300, family="gpt2")
    with pytest.raises(ValueError, match="must have a token for: mask, pad. It lacks: mask"):
        RetroMAEBatches(Corpus.in_memory(documents, plain), 4, 24)
