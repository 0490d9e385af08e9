"""The suite starts with every version of jaxlib."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from tests.xla_flags import fast_compilation_flags

ISA, EMITTERS = "--xla_cpu_max_isa=AVX", "--xla_cpu_use_fusion_emitters=false"


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.9.2", {ISA, EMITTERS}),
        ("0.10.2", {ISA, EMITTERS}),
        ("0.11.0", {ISA, EMITTERS}),
        ("0.12.0", {ISA}),
        ("0.12.1rc1", {ISA}),
        ("0.12.0.dev20261101", {ISA}),
        ("1.0", {ISA}),
    ],
)
def test_flags_that_a_version_knows(version, flags):
    assert set(fast_compilation_flags(version).split()) == flags


@pytest.mark.one_backend
def test_the_installed_version_starts_with_its_flags():
    """XLA reads the flags when the first program is compiled, and aborts for one that it does not know."""
    flags = fast_compilation_flags(importlib.metadata.version("jaxlib"))
    code = "import jax; print(int(jax.numpy.arange(4).sum()))"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (run.returncode, run.stdout.strip()) == (0, "6"), run.stderr
