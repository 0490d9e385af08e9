"""Reads the golden cases of retrieval, and computes many losses with their gradients at once."""

import json
import re
from pathlib import Path

import keras
import numpy as np
from keras import ops

from tests.models.reference import to_numpy

FOLDER = Path(__file__).resolve().parent.parent / "goldens"


def R(seed, *shape):
    """The random arrays of the golden files."""
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


def cases(kind, *names):
    """The cases of a file, of the given names or all."""
    found = json.loads((FOLDER / f"retrieval_{kind}.json").read_text())["cases"]
    return [case for case in found if not names or case["name"] in names]


def embedder_arrays():
    content = json.loads((FOLDER / "retrieval_embedder.json").read_text())["arrays"]
    arrays = {}
    for name, text in content.items():
        base, numbers = re.fullmatch(r"(?:(\w+) \+ )?R\(([\d,]+)\)", text).groups()
        array = R(*map(int, numbers.split(",")))
        arrays[name] = array + arrays[base] if base else array
    return arrays


def losses_and_gradients(problems):
    """Computes [(loss, gradients)] of problems (function of tensors that returns a scalar, list of arrays)."""
    counts = [len(arrays) for _, arrays in problems]
    flat = [np.asarray(array, "float32") for _, arrays in problems for array in arrays]

    def total(*arrays):
        losses, start = [], 0
        for (function, _), count in zip(problems, counts, strict=True):
            losses.append(ops.cast(function(*arrays[start : start + count]), "float32"))
            start += count
        return sum(losses), losses

    if keras.backend.backend() == "jax":
        import jax

        everything = jax.value_and_grad(total, argnums=tuple(range(len(flat))), has_aux=True)
        (_, losses), gradients = jax.jit(everything)(*flat)
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tensors = [tf.constant(array) for array in flat]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value, losses = total(*tensors)
        gradients = tape.gradient(value, tensors, unconnected_gradients="zero")
    else:
        import torch

        tensors = [torch.tensor(array, requires_grad=True) for array in flat]
        value, losses = total(*tensors)
        gradients = torch.autograd.grad(value, tensors, allow_unused=True, materialize_grads=True)
    losses, gradients, start, results = list(map(to_numpy, losses)), list(map(to_numpy, gradients)), 0, []
    for loss, count in zip(losses, counts, strict=True):
        results.append((loss, gradients[start : start + count]))
        start += count
    return results


def check(cases, problems, norms=("grad_norms",)):
    """Asserts that the losses and the gradients, or their norms, are those of the cases."""
    for case, (loss, gradients) in zip(cases, losses_and_gradients(problems), strict=True):
        message = f"{case['name']} {case['settings']} {case.get('columns', '')}"
        np.testing.assert_allclose(loss, case["loss"], rtol=1e-5, atol=1e-5, err_msg=message)
        if "grad" in case:
            np.testing.assert_allclose(gradients[0], padded(case["grad"]), rtol=1e-5, atol=1e-5, err_msg=message)
        for key in norms:
            if key in case:
                found = [np.linalg.norm(gradient) for gradient in gradients]
                np.testing.assert_allclose(found, case[key], rtol=1e-5, atol=1e-5, err_msg=message)


def padded(rows, value=0.0):
    """A float32 array of rows of different lengths."""
    if not isinstance(rows[0], list):
        return np.float32(rows)
    width = max(map(len, rows))
    return np.float32([row + [value] * (width - len(row)) for row in rows])
