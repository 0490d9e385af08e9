"""Worker processes, which apply a function to items. The results have the order of the items.

The processes do not import anything from the program that starts them, not even its main module, and end with it.
"""

import contextlib
import io
import os
import pickle
import queue
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from .processes import PIPE, start_python


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(function: Callable, items: Iterable, workers: int = 1) -> Iterator:
    """Yields function(item) for every item, in order, like `map`.

    Args:
        function: a function that can be pickled, such as an importable function. Items and results are pickled, too.
        items: the items. Only a few per process are held in memory at a time.
        workers: number of processes. With 1, the function is called in this process, and libraries may use all cores.

    Raises:
        RuntimeError: a process ended before its work was done.
    """
    if workers == 1:
        yield from map(function, items)
        return
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        idle: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(workers):
            idle.put(stack.enter_context(_Worker(function)))

        def run(item):
            worker = idle.get()
            try:
                return worker(item)
            finally:
                idle.put(worker)

        waiting: deque = deque()
        stack.callback(lambda: [future.cancel() for future in waiting])
        for item in items:
            waiting.append(threads.submit(run, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Pickler(pickle.Pickler):
    """Notes the names of the modules that unpickling imports."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.modules: set[str] = set()

    def reducer_override(self, value):
        name = getattr(value if callable(value) else type(value), "__module__", None)
        if isinstance(name, str):
            self.modules.add(name)
        return NotImplemented


class _Worker:
    """A process that applies a function to one item at a time."""

    def __init__(self, function: Callable):
        # One core each: the libraries that the function calls start no threads of their own.
        alone = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        content = io.BytesIO()
        pickler = _Pickler(content, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dump(function)
        command = "-c", f"from {__name__} import serve; serve()"
        pipes = dict(stdin=PIPE, stdout=PIPE)
        self._process = start_python(*command, modules=sorted(pickler.modules), environment=alone, **pipes)
        self._process.stdin.write(content.getvalue())
        self._process.stdin.flush()

    def __call__(self, item):
        try:
            self._send(item)
            succeeded, result = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            status = self._process.wait()
            raise RuntimeError(
                f"A worker process ended with status {status} before its work was done. Status -9 can mean "
                "that memory ran out: use fewer workers."
            ) from None
        if not succeeded:
            raise result
        return result

    def _send(self, value) -> None:
        pickle.dump(value, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *error) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if error[0] is not None:
            self._process.terminate()
        self._process.stdout.close()
        self._process.wait()


def serve() -> None:
    """The main loop of a worker process: reads a function, then items, and writes a result for each item."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints must not come between the results
    function = pickle.load(source)
    while True:
        try:
            item = pickle.load(source)
        except EOFError:
            return
        try:
            result = True, function(item)
        except Exception as error:
            result = False, error
        pickle.dump(result, target, protocol=pickle.HIGHEST_PROTOCOL)
        target.flush()
