"""Extrapolation from shallow models, the largest batch, and the step that is written by hand."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks.devices.compiled_steps import MODELS, Model, built, extrapolated
from benchmarks.devices.gpu_compile_report import largest_batch

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("arguments", "outputs", "aliased")


@pytest.mark.one_backend
def test_deep_models_are_extrapolated():
    less, more = dict(fusions=10, name="a", compile_seconds=3), dict(fusions=16, name="b", compile_seconds=4)
    assert extrapolated(less, more, (2, 4), 12) == {"fusions": 40, "compile_seconds": 7}


@pytest.mark.one_backend
def test_the_share_of_keys():
    assert Model("a", 512, 10, 12).attended(2) == 1.0
    assert Model("a", 512, 10, 12, causal=True).attended(2) == 0.5
    assert Model("a", 1_290, 10, 12, window=64).attended(6) == pytest.approx((2 + 4 * 0.1) / 6)


@pytest.mark.one_backend
def test_the_largest_batch():
    # 1e9 + 2e8 a block for the weights; temporaries of 3e9 + 1e8 a row + 2e7 a row and block.
    def cell(layers, rows):
        weights = int(1e9 + 2e8 * layers)
        temporaries = int(3e9 + (1e8 + 2e7 * layers) * rows)
        sizes = dict(zip(KEYS, (weights, weights, weights), strict=True))
        return {**sizes, "temporaries": temporaries, "compile_seconds": 1}

    done = {
        f"bert_base h100 1x1x1 one {rows} {layers}": cell(layers, rows) for layers, rows in ((2, 32), (4, 32), (2, 64))
    }
    exact = (80e9 - 1e9 - 2e8 * 12 - 3e9) / (1e8 + 2e7 * 12)
    assert largest_batch(done, "bert_base", "h100", 32) == int(exact)
    del done["bert_base h100 1x1x1 one 64 2"]
    assert largest_batch(done, "bert_base", "h100", 32) is None


@pytest.mark.one_backend
@pytest.mark.parametrize("script", ["gpu_compile", "tpu_compile"])
def test_the_report_is_that_of_the_rows(script):
    report = (ROOT / "benchmarks" / "devices" / f"{script}.md").read_text()
    code = f"from benchmarks.devices import {script}, compiled_steps; " + (
        "print(gpu_compile.report(compiled_steps.read(gpu_compile.RESULTS)), end='')"
        if script == "gpu_compile"
        else "print(f'{tpu_compile.REPORT}\\n{tpu_compile.report()}')"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == report


@pytest.mark.backends("jax")
def test_the_step_by_hand_is_that_of_fit():
    import jax

    from benchmarks.devices.plain_jax_step import train_step

    sizes = ("hidden_dim=24", "num_heads=3", "feed_forward_dim=40", "max_length=32")
    settings = (*MODELS["bert_base"].settings, *(f"model.{size}" for size in sizes), "dtype=float32")
    keras.utils.clear_session()  # the step by hand knows the variables by their names in a new process
    model, batch = built(dataclasses.replace(MODELS["bert_base"], length=32, vocabulary=503, settings=settings), 2, 4)
    model.optimizer.learning_rate = 1e-3
    weights = {variable.path: np.array(variable.value) for variable in model.trainable_variables}
    zeros = {name: np.zeros_like(weight) for name, weight in weights.items()}
    (new, *_), (loss, accuracy, pairs) = jax.jit(train_step(2, 3, "float32"))(weights, zeros, zeros, batch, 1e-3)
    logs = model.train_on_batch(*batch, return_dict=True)
    assert float(loss) == pytest.approx(logs["loss"], abs=1e-5)
    assert float(accuracy) == pytest.approx(logs["accuracy"], abs=1e-6)
    assert float(pairs) == pytest.approx(logs["sentence_pair_accuracy"], abs=1e-6)
    for variable in model.trainable_variables:
        name, value = variable.path, keras.ops.convert_to_numpy(variable.value)
        assert np.abs(new[name] - weights[name]).max() > 0 or "key/bias" in name
        moved = np.abs(value - new[name])
        # The first update of Adam is the sign of a gradient, whatever its size.
        assert np.median(moved) < 1e-7, name
