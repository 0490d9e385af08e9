"""Worker processes: results in order, errors, and processes that end too early."""

import os
import signal
import time

import pytest

from kerasbert.data.workers import in_order

pytestmark = pytest.mark.one_backend


class Slowly:
    """Squares numbers, smaller ones more slowly. Knows in which process it was called."""

    def __call__(self, number):
        time.sleep(0.02 * (number % 3 == 0))
        print("printed text does not get between the results")
        return number * number, os.getpid(), os.environ.get("TOKENIZERS_PARALLELISM")


class Fails:
    """Raises an error for 5, and ends its process for 7."""

    def __call__(self, number):
        if number == 5:
            raise ValueError("five is a bad number")
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def test_results_come_in_the_order_of_the_items():
    found = list(in_order(Slowly(), range(40), workers=3))
    assert [square for square, _, _ in found] == [number * number for number in range(40)]
    processes = {process for _, process, _ in found}
    assert len(processes) == 3 and os.getpid() not in processes
    assert {threads for _, _, threads in found} == {"false"}


def test_one_worker_is_this_process():
    assert {process for _, process, _ in in_order(Slowly(), range(3))} == {os.getpid()}


def test_few_items_are_taken_ahead():
    taken = []

    def items():
        for number in range(50):
            taken.append(number)
            yield number

    results = in_order(Slowly(), items(), workers=2)
    assert next(results)[0] == 0
    assert len(taken) == 5
    results.close()
    assert len(taken) == 5


def test_errors_reach_the_caller_at_their_place():
    results, found = in_order(Fails(), range(4, 7), workers=2), []
    with pytest.raises(ValueError, match="five is a bad number"):
        for number in results:
            found.append(number)
    assert found == [4]


def test_a_worker_that_is_killed():
    with pytest.raises(RuntimeError, match="ended with status -9 before its work was done"):
        list(in_order(Fails(), [6, 7, 8, 9], workers=2))
