import numpy as np
import pytest

from kerasbert.data import CausalLMBatches, Corpus, Tokenizer

from .test_batches import same, sliced

pytestmark = pytest.mark.one_backend


def stream_of(corpus, end):
    """All documents, each with the end token behind it."""
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    return [
        token
        for start, stop in zip(starts[:-1], starts[1:], strict=True)
        for token in [*corpus.tokens[start:stop].tolist(), *([] if end is None else [end])]
    ]


def test_the_example_of_the_docstring(tmp_path):
    roles = {"unk": "<unk>", "pad": "<pad>", "eos": "</s>"}
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e"] * 9, 13, special_tokens=roles)
    a, b, c, d, e = (tokenizer.id(letter) for letter in "abcde")
    batches = CausalLMBatches(Corpus.write(tmp_path, ["a b", "c d e"], tokenizer), batch_size=2, length=3)
    assert len(batches) == 1
    x, y, weight = batches[0]
    order = np.argsort(x["token_ids"][:, 0] != a)
    assert x["token_ids"][order].tolist() == [[a, b, tokenizer.eos_id], [c, d, e]]
    assert y[order].tolist() == [[b, tokenizer.eos_id, c], [d, e, tokenizer.eos_id]]
    assert weight.tolist() == [[1] * 3] * 2
    assert x["token_ids"].dtype == y.dtype == np.int32 and weight.dtype == np.float32


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "no_end"])
def test_a_pass_holds_every_token_of_the_stream_once_as_a_target(kind, documents, tmp_path, request):
    if kind == "no_end":
        tokenizer = Tokenizer.train("wordpiece", documents, 150, special_tokens={"unk": "<unk>"})
        end = None
    else:
        tokenizer = request.getfixturevalue(kind)
        end = tokenizer.sep_id
    corpus = Corpus.write(tmp_path, documents, tokenizer)
    stream = stream_of(corpus, end)
    batches = CausalLMBatches(corpus, batch_size=8, length=31)
    assert len(batches) == -(-batches.num_rows // 8)
    rows = []
    for x, y, weight in batches:
        for ids, targets, weights in zip(x["token_ids"], y, weight, strict=True):
            count = int(weights.sum())
            assert (weights[:count] == 1).all() and not targets[count:].any()
            assert ids[1:count].tolist() == targets[: max(count - 1, 0)].tolist()
            if count:
                rows.append((ids[:count].tolist(), targets[:count].tolist()))
    expected = [
        (stream[i : min(i + 31, len(stream) - 1)], stream[i + 1 : i + 32]) for i in range(0, len(stream) - 1, 31)
    ]
    assert sorted(rows) == sorted(expected)
    assert rows != expected


def test_replay_resume_shards_and_accumulation(corpus):
    batches = CausalLMBatches(corpus, 6, 32, steps=3000, seed=4)
    again = CausalLMBatches(Corpus.open(corpus.folder), 6, 32, steps=2500, seed=4)
    for step in (2000, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
    assert (CausalLMBatches(corpus, 6, 32, steps=9, seed=5)[3][0]["token_ids"] != batches[3][0]["token_ids"]).any()
    parts = CausalLMBatches(corpus, 6, 32, steps=9, seed=4).accumulated(3)
    x, y, weight = parts[4]
    np.testing.assert_allclose(x.pop("loss_normalizer"), np.full(2, batches[1][2].sum() / 6), rtol=1e-6)
    same((x, y, weight), sliced(batches[1], 2, 4))
    assert parts.recipe() != again.recipe() == batches.recipe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "`length` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        CausalLMBatches(corpus, **{"batch_size": 8, "length": 32, **options})


def test_bad_corpora(corpus):
    with pytest.raises(ValueError, match="must know its tokenizer"):
        CausalLMBatches(Corpus.open(corpus.folder / "corpus.bin"), 8, 32)


def test_an_end_behind_every_line_and_a_language(corpus, wordpiece):
    batches = CausalLMBatches(corpus, 4, 16, lines=True, language=3)
    rows = []
    for x, y, weight in batches:
        assert (x["language_ids"] == 3).all() and x["language_ids"].shape == (4, 16)
        rows += [target[: int(w.sum())].tolist() for target, w in zip(y, weight, strict=True)]
    stream = []
    for start, length in zip(corpus.sequence_starts, corpus.lengths, strict=True):
        stream += [*corpus.tokens[start : start + length].tolist(), wordpiece.sep_id]
    assert sorted(filter(None, rows)) == sorted(stream[i + 1 : i + 17] for i in range(0, len(stream) - 1, 16))
    assert batches.recipe()["lines"] is True and batches.recipe()["language"] == 3
