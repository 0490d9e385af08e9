"""Parallel streams: every token once, rows that go on where they ended, replay and shards."""

import numpy as np
import pytest

from kerasbert.data import Corpus, StreamBatches, Tokenizer
from tests.data.batches.test_causal_lm import stream_of

from ..batches.test_batches import same, sliced

pytestmark = pytest.mark.one_backend


def test_the_example_of_the_docstring(tmp_path):
    roles = {"unk": "<unk>", "pad": "<pad>"}
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g"] * 9, 16, special_tokens=roles)
    ids = [tokenizer.id(letter) for letter in "abcdefg"]
    batches = StreamBatches(Corpus.write(tmp_path, ["a b c d e f g"], tokenizer), batch_size=2, length=2)
    (first, y, weight), (second, later, last) = batches
    assert first["token_ids"].tolist() == [ids[:2], ids[3:5]] and y.tolist() == [ids[1:3], ids[4:6]]
    assert weight.tolist() == [[1, 1], [1, 1]]
    assert first["stream_start"].tolist() == [True, True] and second["stream_start"].tolist() == [False, False]
    assert second["token_ids"][:, 0].tolist() == [ids[2], ids[5]] and later[:, 0].tolist() == [ids[3], ids[6]]
    assert last.tolist() == [[1, 0], [1, 0]]
    assert first["token_ids"].dtype == y.dtype == np.int32 and first["stream_start"].dtype == bool


@pytest.mark.parametrize(("batch_size", "length"), [(4, 16), (7, 31), (1, 50)])
def test_every_row_is_a_piece_of_the_stream_and_together_they_are_all_of_it(corpus, batch_size, length):
    stream = stream_of(corpus, corpus.tokenizer_info["sep_id"])
    batches = StreamBatches(corpus, batch_size, length)
    targets, inputs = [[] for _ in range(batch_size)], [[] for _ in range(batch_size)]
    for number, (x, y, weight) in enumerate(batches):
        assert x["token_ids"].shape == y.shape == (batch_size, length)
        assert (x["stream_start"] == (number == 0)).all()
        for row in range(batch_size):
            real = weight[row] > 0
            inputs[row] += x["token_ids"][row][real].tolist()
            targets[row] += y[row][real].tolist()
    assert sum(inputs, []) == stream[:-1] and sum(targets, []) == stream[1:]
    assert max(map(len, inputs)) == -(-(len(stream) - 1) // batch_size)


def test_passes_replay_resume_and_shards(corpus):
    batches = StreamBatches(corpus, 6, 20, steps=1000)
    count = batches.steps_per_pass
    same(batches[3], batches[3 + count])
    assert [batches[step][0]["stream_start"].all() for step in (0, 1, count, 2 * count)] == [True, False, True, True]
    same(batches[count + 2], StreamBatches(Corpus.open(corpus.folder), 6, 20, steps=900).starting_at(count)[2])
    for index in range(3):
        same(batches.shard(index, 3)[count + 1], sliced(batches[count + 1], 2 * index, 2 * index + 2))
    assert (
        batches.recipe() == StreamBatches(corpus, 6, 20).recipe() != StreamBatches(corpus, 6, 20, lines=True).recipe()
    )


def test_bad_arguments(corpus):
    for options, message in (
        ({"length": 0}, "`length` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            StreamBatches(corpus, **{"batch_size": 8, "length": 32, **options})
    with pytest.raises(ValueError, match="must know its tokenizer"):
        StreamBatches(Corpus.open(corpus.folder / "corpus.bin"), 8, 32)
