"""Programs that are kept on disk: by default, in the user's cache, and nowhere else once the user has said so."""

import os
import subprocess
import sys

import keras
import pytest

SCRIPT = """
import jax, sys
from kerasbert.backend import keep_programs
keep_programs(*sys.argv[1:])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: (x @ x).sum())(jax.numpy.ones((7, 7))).block_until_ready()
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX keeps programs")
def test_programs_are_kept_where_the_user_wants_them(tmp_path):
    def folder_of(*arguments, **environment):
        others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment = {**others, "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment}
        command = [sys.executable, "-c", SCRIPT, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    folder = folder_of()
    assert folder.startswith(str(tmp_path / "cache" / "kerasbert" / "programs"))
    assert os.listdir(folder)
    assert folder_of(str(tmp_path / "given")) == str(tmp_path / "given")
    own = str(tmp_path / "own")
    assert folder_of(JAX_COMPILATION_CACHE_DIR=own) == own and os.listdir(own)
