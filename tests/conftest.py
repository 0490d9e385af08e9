"""What every test shares: one backend, seeds, and the rules of the run.

A test skips for one reason only: the machine lacks an accelerator or runs another operating system. It then calls
`pytest.skip` with a reason that begins with "needs an accelerator" or "needs Linux" (or another system). Any other skip
fails the run. Tests of some backends only are marked `backends("jax")` and are deselected on the others.
"""

import importlib.metadata
import os
import platform
import random
import re
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# No test may depend on the network.
os.environ["HF_HUB_OFFLINE"] = "1"
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two test processes with all cores each take longer than two with one each.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Compiling small programs takes longer than running them, so XLA is told to take less trouble. `make test-all` runs
# the tests that are marked `optimized` once more with JAX_DISABLE_MOST_OPTIMIZATIONS=0, the options that users have.
if os.environ["KERAS_BACKEND"] == "jax":
    fast_compilation = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
    if fast_compilation and platform.machine() in ("x86_64", "AMD64"):
        from tests.xla_flags import fast_compilation_flags

        os.environ.setdefault("XLA_FLAGS", fast_compilation_flags(importlib.metadata.version("jaxlib")))
# The tests compile the same small programs over and over: JAX keeps them, within a run and for the next one.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

if os.environ.get("LINE_COVERAGE"):  # before kerasbert is imported
    from tests.line_coverage import LineCoverage

    line_coverage = LineCoverage()

import numpy as np  # noqa: E402
import pytest  # noqa: E402

if os.environ["KERAS_BACKEND"] == "torch":
    import torch

    torch.set_warn_always(True)  # by default only the first test that deserves a warning gets it

REPOSITORY = Path(__file__).resolve().parent.parent
ALLOWED_SKIP = re.compile(r"(Skipped: )?needs (an accelerator|Linux|macOS|Windows)")


def pytest_configure(config):
    """A random order changes the order only: pytest-randomly would also replace the seeds that `seeds` sets."""
    if hasattr(config.option, "randomly_reset_seed"):
        config.option.randomly_reset_seed = False


def pytest_collection_modifyitems(config, items):
    """Deselects the tests that are marked for other backends."""
    backend = os.environ["KERAS_BACKEND"]
    selected, deselected = [], []
    for item in items:
        wanted = all(backend in mark.args for mark in item.iter_markers("backends"))
        if item.get_closest_marker("one_backend") and any("torch" not in m.args for m in item.iter_markers("backends")):
            raise pytest.UsageError(f"`make test-all` would never run {item.nodeid}: one_backend means PyTorch.")
        (selected if wanted else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def skip_reason(report):
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fails a run with a skip that is not for want of an accelerator or an operating system, and lists such skips."""
    if os.environ.get("LINE_COVERAGE") and hasattr(session.config, "workerinput"):
        line_coverage.save(os.environ["LINE_COVERAGE"])
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    refused = [
        f"{report.nodeid}: {skip_reason(report)}"
        for report in reporter.stats.get("skipped", ())
        if not ALLOWED_SKIP.match(skip_reason(report))
    ]
    if refused:
        reporter.write_sep("=", "skips that are not allowed", red=True)
        reporter.write("\n".join(refused) + "\n")
        session.exitstatus = max(session.exitstatus, pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(autouse=True)
def seeds():
    """Every test starts from the same seeds, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    if "keras" in sys.modules:
        from kerasbert.backend import seed_everything

        seed_everything(0)


@pytest.fixture(scope="session")
def repository():
    """The root of this repository."""
    return REPOSITORY
