"""ELECTRA's examples: what a row takes of a document, and how it is split."""

import numpy as np
import pytest

from kerasbert.data import MaskedLMBatches
from kerasbert.data.batches.replaced_token import ReplacedTokenBatches
from kerasbert.data.corpus import segments
from kerasbert.data.sampling import PLAN, Uniform
from tests.data.batches.objects import batches_of

from ..batches.test_batches import same, sliced

pytestmark = pytest.mark.one_backend


def slow_split(sizes, goal, coins, length, special):
    """The official builder's loop for one example: (sentence, tokens of it that stay) of both segments."""
    filled, chosen = [0, 0], [[], []]
    for number, (size, coin) in enumerate(zip(sizes, coins, strict=True)):
        to_first = filled[0] == 0 or filled[0] + size < goal or (filled[1] == 0 and filled[0] < goal and coin < 0.5)
        chosen[not to_first].append((number, size))
        filled[not to_first] += size
    rooms = [length - special[0]]
    rooms.append(max(0, length - min(filled[0], rooms[0]) - special[1]))
    cut = [[], []]
    for segment, max_tokens in enumerate(rooms):
        for number, size in chosen[segment]:
            cut[segment] += [(number, min(size, max_tokens))] if max_tokens else []
            max_tokens -= min(size, max_tokens)
    return cut


def test_segments_are_those_of_a_loop():
    random = np.random.default_rng(0)
    sizes, length, special = random.integers(1, 15, 400), 40, (2, 3)
    sentences = np.append(0, np.cumsum(sizes))
    documents = np.append(0, np.sort(random.choice(np.arange(1, 400), 20, replace=False)))
    documents = np.append(documents, 400)
    runs, rows = segments.joined_segments(sentences, documents, length, special, seed=3, short_rate=0.3)

    draw = Uniform(3, PLAN)
    examples = segments._examples(sentences, documents, length, 0.3, draw)
    single = draw(len(rows)) < 0.1
    coins = [[] for _ in range(len(rows))]
    for turn in range(int((examples[1] - examples[0]).max())):
        lanes = np.flatnonzero(examples[1] - examples[0] > turn)
        for lane, coin in zip(lanes, draw(len(lanes)), strict=True):
            coins[lane].append(coin)
    jumps = 0
    for number, (first, stop, target) in enumerate(zip(*examples, strict=True)):
        goal = 100_000 if single[number] else (target - 3) // 2
        expected = slow_split(sizes[first:stop], goal, coins[number], length, special)
        begin, *counts = rows[number]
        for segment, count in zip(expected, counts, strict=True):
            tokens = [t for start, size in runs[begin : begin + count] for t in range(start, start + size)]
            assert tokens == [sentences[first + n] + t for n, size in segment for t in range(size)]
            jumps += count > 1
            begin += count
    assert jumps > 5  # short sentences that go back to the first segment


def test_examples_end_with_their_target_or_their_document():
    sentences = np.append(0, np.cumsum(np.full(5_000, 3)))
    documents = np.array([0, 7, 5_000])
    first, stop, target = segments._examples(sentences, documents, 30, 0.05, Uniform(0, PLAN))
    assert first[0] == 0 and stop[-1] == 5_000 and (first[1:] == stop[:-1]).all() and 7 in stop
    tokens = 3 * (stop - first)
    assert (tokens - 3 < target).all()
    assert ((tokens >= target) | np.isin(stop, documents)).all()
    short = target < 30
    assert target[short].min() >= 5 and abs(short.mean() - 0.05 * 25 / 26) < 4 * np.sqrt(0.05 / len(target))


def test_a_tenth_is_one_segment_and_the_first_holds_half():
    sentences = np.append(0, np.cumsum(np.full(60_000, 4)))
    _, rows = segments.joined_segments(sentences, np.array([0, 60_000]), 128, (2, 3), 1, short_rate=0)
    assert abs((rows[:, 2] == 0).mean() - 0.1) < 4 * np.sqrt(0.09 / len(rows))


def test_rows_of_segments(corpus, wordpiece):
    batches = batches_of(MaskedLMBatches, corpus, 64, 32, seed=5, rows="segments", mask_rate=0.01)
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)
    lines = {tuple(corpus.tokens[a:b].tolist()) for a, b in zip(starts[:-1], starts[1:], strict=True)}
    singles, full = 0, 0
    for x, y, _ in batches:
        ids = x["token_ids"].copy()
        rows, slots = np.nonzero(x["masked_positions"] >= 0)
        ids[rows, x["masked_positions"][rows, slots]] = y[rows, slots]
        for row, count, segment in zip(ids, x["lengths"], x["segment_ids"], strict=True):
            if not count:
                continue
            ends = np.flatnonzero(row[:count] == wordpiece.sep_id)
            assert row[0] == wordpiece.cls_id and ends[-1] == count - 1 and len(ends) in (1, 2)
            assert segment.tolist() == [0] * (ends[0] + 1) + [1] * (count - 1 - ends[0]) + [0] * (32 - count)
            text = tuple(row[1 : ends[0]].tolist())
            assert any(text[: len(line)] == line[: len(text)] for line in lines)  # it begins with a line
            singles += len(ends) == 1
            full += count == 32
    assert 0.05 < singles / batches.num_rows < 0.8 and full / batches.num_rows > 0.5


def test_replay_resume_shards_and_accumulation(corpus):
    form = dict(length=32, steps=200, seed=4, rows="segments")
    batches = batches_of(ReplacedTokenBatches, corpus, 6, **form)
    parts = batches_of(ReplacedTokenBatches, corpus, 6, **form).accumulated(2)
    for step in (150, 3):
        same(batches[step], batches_of(ReplacedTokenBatches, corpus, 6, **form).starting_at(step)[0])
        same(batches.shard(1, 3)[step], sliced(batches[step], 2, 4))
        micro = parts[2 * step + 1]
        del micro[0]["loss_normalizer"]
        same(micro, sliced(batches[step], 3, 6))
