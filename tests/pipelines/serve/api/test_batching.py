"""Rows of many requests are computed together; what a request is answered does not depend on the others."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from kerasbert.runtime import Job, Row
from pipelines.serve.api import batching
from pipelines.serve.api.batching import LEAST_TOKENS, Batcher, Overloaded, Speed, chosen

pytestmark = pytest.mark.one_backend


def job(*lengths):
    return Job([Row(np.full(length, length, "int32")) for length in lengths], list)


class Slow:
    """A model whose outputs are the ids of the rows, and which waits until it may go on."""

    def __init__(self):
        self.batches, self.started, self.may_go = [], threading.Semaphore(0), threading.Semaphore(0)

    def compute(self, rows):
        self.started.release()
        assert self.may_go.acquire(timeout=20)
        self.batches.append([len(row) for row in rows])
        if any(len(row) == 13 for row in rows):
            raise RuntimeError("unlucky")
        return [row.token_ids for row in rows]


@pytest.fixture
def slow():
    """(model, batcher) that computes a first row of one token until it may go on."""
    model, batcher = Slow(), Batcher(batch_tokens=64, queue_tokens=100)
    first = batcher.submit(model, job(1))
    assert model.started.acquire(timeout=20)
    yield model, batcher
    for _ in range(99):
        model.may_go.release()
    batcher.close()
    assert len(first.result()) == 1 and batcher.waiting == 0


def test_batches_have_rows_of_similar_length():
    assert chosen([3, 9, 10, 30], 1, 1_000) == (0, 4)  # few tokens: starting the engine costs more than padding
    assert chosen([3, 9, 10, 30], 1, 30) == (0, 3)
    assert chosen([3, 9, 10, 30], 3, 30) == (3, 4)
    lengths = [10] * 5 + [LEAST_TOKENS] * 3 + [2 * LEAST_TOKENS] * 3
    assert chosen(lengths, 6, 10**6) == (5, 8)
    assert chosen([500], 0, 64) == (0, 1)


def test_what_waits_is_computed_together(slow):
    model, batcher = slow
    futures = [batcher.submit(model, job(*lengths)) for lengths in ([5, 20], [6], [7, 21])]
    for _ in range(9):
        model.may_go.release()
    found = [[len(output) for output in future.result(20)] for future in futures]
    assert found == [[5, 20], [6], [7, 21]]
    assert model.batches[0] == [1] and sum(model.batches[1:], []) != [] and len(model.batches) <= 4
    assert [5, 6, 7] in model.batches


def test_batches_are_computed_at_the_same_time():
    model, batcher = Slow(), Batcher(batch_tokens=64, threads=2)
    requests = [batcher.submit(model, job(*[length] * 40)) for length in (5, 6)]
    assert model.started.acquire(timeout=20) and model.started.acquire(timeout=20)  # none of them may end yet
    assert not model.started.acquire(timeout=0.05)
    for _ in range(99):
        model.may_go.release()
    batcher.close()
    assert [[len(output) for output in request.result(0)] for request in requests] == [[5] * 40, [6] * 40]
    assert sum(model.batches, []).count(5) == sum(model.batches, []).count(6) == 40


def test_short_requests_pass_long_ones(slow):
    model, batcher = slow
    long = batcher.submit(model, job(*[4] * 24))
    short = batcher.submit(model, job(4))
    model.may_go.release()
    model.may_go.release()
    assert len(short.result(20)) == 1 and not long.done()
    for _ in range(9):
        model.may_go.release()
    assert len(long.result(20)) == 24


def test_a_full_queue_and_clients_that_leave(slow):
    model, batcher = slow
    futures = [batcher.submit(model, job(*lengths)) for lengths in ([40], [30, 30], [1])]
    with pytest.raises(Overloaded, match="Try again in 1 s"):
        batcher.submit(model, job(70))
    assert batcher.waiting == 101
    assert futures[1].cancel() and batcher.waiting == 41
    after = batcher.submit(model, job(70))
    for _ in range(9):
        model.may_go.release()
    assert len(futures[0].result(20)) == len(after.result(20)) == 1
    with pytest.raises(CancelledError):
        futures[1].result()
    assert 30 not in sum(model.batches, [])


def test_what_takes_too_long(slow, monkeypatch):
    """Requests that would wait for too long are refused, and batches that would take too long are smaller."""
    model, batcher = slow
    batcher.queue_seconds, batcher._speed.rate = 4.0, 10.0
    futures = [batcher.submit(model, job(30)), batcher.submit(model, job(25))]
    with pytest.raises(Overloaded, match="Try again in 3 s"):
        batcher.submit(model, job(30))
    monkeypatch.setattr(batching, "LEAST_TOKENS", 8)
    for _ in range(9):
        model.may_go.release()
    assert [len(future.result(20)[0]) for future in futures] == [30, 25]
    assert model.batches == [[1], [30], [25]]


def test_what_has_waited_for_too_long(slow):
    """The engine stands still: requests that it has not begun are refused, and the others are answered."""
    model, batcher = slow
    batcher.queue_tokens, batcher.queue_seconds = 1_000, 0.2
    begun = batcher.submit(model, job(60, 60))
    model.may_go.release()
    assert model.started.acquire(timeout=20)
    late = batcher.submit(model, job(5, 6))
    time.sleep(0.21)
    punctual = batcher.submit(model, job(7))
    for _ in range(9):
        model.may_go.release()
    assert len(begun.result(20)) == 2 and len(punctual.result(20)) == 1
    with pytest.raises(Overloaded):
        late.result(20)
    assert not {5, 6} & {*sum(model.batches, [])}


def test_the_speed_is_that_of_the_last_batches():
    speed = Speed()
    speed.observe(100, 1.0)
    assert speed.rate == 100.0
    speed.observe(100, 4.0)  # after two half-lives
    assert speed.rate == pytest.approx((100 / 4 + 100) / (1 / 4 + 4))


def test_an_error_reaches_only_its_request(slow):
    model, batcher = slow
    futures = [batcher.submit(model, job(length)) for length in (12, 13, 14)]
    for _ in range(9):
        model.may_go.release()
    assert [len(futures[i].result(20)[0]) for i in (0, 2)] == [12, 14]
    with pytest.raises(RuntimeError, match="unlucky"):
        futures[1].result(20)


def test_a_closing_batcher_answers_what_it_admitted(slow):
    model, batcher = slow
    admitted = batcher.submit(model, job(5))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while not batcher._closing:
        closing.join(0.01)
    with pytest.raises(Overloaded):
        batcher.submit(model, job(5))
    for _ in range(9):
        model.may_go.release()
    closing.join(20)
    assert len(admitted.result(20)) == 1
    assert batcher.submit(model, job()).result() == []
