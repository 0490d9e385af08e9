"""A way of doing the work of a benchmark, in a process of its own, with its backend, its threads and its Python."""

import dataclasses
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("jax", "tensorflow", "torch", "keras", "keras-hub", "transformers", "sentence-transformers", "onnxruntime")
# JAX keeps its programs: compiling is no part of what is timed, but takes longer than all of it.
PROGRAMS = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / "runs" / "compilation_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


@dataclasses.dataclass
class Work:
    """What a contender does once it has loaded everything.

    Args:
        run: does the work once, and comes back when it is done.
        outputs: {name: array} to be compared with those of others.
        units: of a run, such as real tokens.
        flops: of a run, of the model's own arithmetic; 0 where nothing is to be said.
        notes: what else the row of results should say.
        tries: how often it is done before it is timed; the first time compiles.
        parts: the work of `run` in parts. The contenders take turns after each part, and a round is the sum of its
            parts, so that a machine whose speed changes within a round is fair to all of them.
    """

    run: Callable[[], Any]
    outputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    units: float = 1.0
    flops: float = 0.0
    notes: dict = dataclasses.field(default_factory=dict)
    tries: int = 2
    parts: Sequence[Callable[[], Any]] = ()


@dataclasses.dataclass(frozen=True)
class Contender:
    """`make(folder)` gives its `Work`, or raises an ImportError where a package is missing.

    Args:
        make: see above; it runs in a process of its own.
        peer: whether that may be another Python, the one of `--peer-python`.
        environment: variables of the process.
    """

    make: Callable[[Path], Work]
    peer: bool = False
    environment: dict = dataclasses.field(default_factory=dict)


# === The process of a contender ===


def work(contender: Contender, folder: Path) -> None:
    """Answers the lines of the parent: the number of a part by seconds, "peak" by bytes."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not belong into the answers

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=channel, flush=True)

    start = time.perf_counter()
    try:
        done = contender.make(folder)
    except ImportError as error:
        answer(skipped=str(error))
        return
    ready = 0.0
    for number in range(done.tries if done.run else 0):
        done.run()
        if number == 0:
            ready = time.perf_counter() - start
            reset_peak_memory()
    np.savez(folder / f"{os.getpid()}.npz", **done.outputs)
    versions = {name: version for name in PACKAGES if (version := version_of(name))}
    parts = done.parts or [done.run]
    facts = dict(units=done.units, flops=done.flops, notes=done.notes, parts=len(parts))
    answer(pid=os.getpid(), versions=versions, seconds_to_first=ready, **facts)
    for line in sys.stdin:
        if line.strip() == "peak":
            answer(bytes=peak_memory())
        else:
            start = time.perf_counter()
            parts[int(line)]()
            answer(seconds=time.perf_counter() - start)


def reset_peak_memory() -> None:
    """Linux forgets the peak of this process so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def peak_memory() -> int:
    """Most bytes of physical memory that this process has had since `reset_peak_memory`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def matrix_product(folder: Path) -> Work:
    """The fastest float32 product that is at hand, at sizes of a feed-forward layer."""
    rows, inner, columns, times = 2_048, 1_024, 1_024, 20
    try:
        import torch

        a, b = torch.rand(rows, inner), torch.rand(inner, columns)
        out = torch.empty(rows, columns)

        def run() -> None:
            for _ in range(times):
                torch.mm(a, b, out=out)
    except ImportError:
        a, b = np.random.rand(rows, inner).astype("float32"), np.random.rand(inner, columns).astype("float32")
        out = np.empty((rows, columns), "float32")

        def run() -> None:
            for _ in range(times):
                np.matmul(a, b, out=out)

    return Work(run, flops=2.0 * rows * inner * columns * times)


class Process:
    """A contender in its process, seen from the parent."""

    def __init__(self, name: str, contender: Contender, folder: Path, python: str, module: str):
        environment = {**os.environ, "KERAS_BACKEND": os.environ.get("KERAS_BACKEND", "jax")}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", **PROGRAMS, **contender.environment}
        self.name, self.folder = name, folder
        self.log = (folder / f"{name.replace(' ', '_').replace('/', '_')}.log").open("w+")
        self.process = subprocess.Popen(
            [python, "-m", module, *sys.argv[1:], "--worker", name, "--folder", str(folder)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=ROOT,
        )
        self.facts, self.outputs = {}, {}

    def ready(self) -> "Process":
        """Waits until it has loaded everything, and reads its outputs."""
        self.facts = self._answer()
        if "pid" in self.facts:
            with np.load(self.folder / f"{self.facts['pid']}.npz") as file:
                self.outputs = dict(file)
        return self

    def ask(self, question: str) -> dict:
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.log.seek(0)
        return {"failed": "".join(self.log.readlines()[-12:])}

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.log.close()
