"""What every test shares: one backend, seeds, and the path of the shared data."""

import os
import platform
import random
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two test processes with all cores each take longer than two with one each.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Compiling small programs takes longer than running them, so XLA is told to take less trouble.
if os.environ["KERAS_BACKEND"] == "jax":
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX")
# The tests compile the same small programs over and over: JAX keeps them, within a run and for the next one.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent


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


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real texts beside the repository; tests that use it skip where it is absent."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data is not on this machine")
    return folder
