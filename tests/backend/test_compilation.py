"""Programs that are kept on disk (by default in the user's cache, and nowhere else once the user has said so), and the
memory that making them takes."""

import os
import stat
import subprocess
import sys
import types

import numpy as np
import pytest

from kerasbert.backend.compilation import compiles_shapes
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier

SCRIPT = """
import jax, os, sys
from kerasbert.backend import keep_programs
keep_programs(*sys.argv[1:])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((7, 7))).block_until_ready()
assert jax.config.jax_compilation_cache_max_size == (-1 if "JAX_COMPILATION_CACHE_DIR" in os.environ else 2 << 30)
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.backends("jax")
def test_programs_are_kept_where_the_user_wants_them(tmp_path):
    def folder_of(*arguments, **environment):
        others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment = {**others, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment}
        command = [sys.executable, "-c", SCRIPT, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "given").mkdir(mode=0o755)
    folder = folder_of()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert folder.startswith(str(tmp_path / "cache" / "kerasbert" / "programs"))
    assert os.listdir(folder)
    assert folder_of(str(tmp_path / "given")) == str(tmp_path / "given")
    assert stat.S_IMODE(os.stat(tmp_path / "given").st_mode) == 0o755  # a folder of the user is left as it is
    settings = str(tmp_path / "own")
    assert folder_of(JAX_COMPILATION_CACHE_DIR=settings) == settings and os.listdir(settings)


@pytest.mark.parametrize("found", [True, False])
def test_memory_of_compiling_is_given_back_once(found, monkeypatch):
    """Where the C library is another, nothing happens."""
    calls = []

    def library(name):
        if not found:
            raise OSError(name)
        return types.SimpleNamespace(malloc_trim=calls.append)

    monkeypatch.setattr("ctypes.CDLL", library)
    sizes = dict(vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12)
    model = TextClassifier(Bert(BertConfig(**sizes)), labels=2)
    model.fit({"token_ids": np.ones((6, 5), "int32")}, np.zeros(6, "int32"), batch_size=2, epochs=2, verbose=0)
    assert calls == ([0] if found and compiles_shapes() else [])
