"""Backbones of every family in bfloat16 against the same weights in float32, on the device.

KERAS_BACKEND=jax python -m benchmarks.devices.parity --results runs/gpu_check/check.jsonl
"""

import contextlib
import dataclasses
import functools

import numpy as np

from benchmarks.devices.parts import measure_all, parser

TOLERANCE = 0.05  # relative error of the outputs; bfloat16 has eight bits
ROWS, LENGTH = 2, 96
# Heads of 64, which kernels support. Weights are five times as large as in papers, so that attention is not uniform.
SIZES = dict(
    vocabulary_size=200,
    num_layers=2,
    num_heads=2,
    head_dim=64,
    hidden_dim=128,
    embedding_dim=128,
    bottleneck_dim=128,
    feed_forward_dim=256,
    max_length=LENGTH,
    cell_dim=128,
    output_dim=64,
    alignment_dim=64,
    memory_length=16,
    cutoffs=(),
    characters=False,
    distance_buckets=32,
    initializer_range=0.1,
)


def backbones() -> dict[str, type]:
    """{model type: backbone} with one model type for each family."""
    import kerasbert.models  # noqa: F401  (registers the families)
    from kerasbert.core.family import FAMILIES

    found = {}
    for model_type, backbone in FAMILIES.items():
        if backbone not in found.values():
            found[model_type] = backbone
    return found


def tiny_config(backbone: type):
    fields = {field.name for field in dataclasses.fields(backbone.family.config)}
    return backbone.family.config(**{name: size for name, size in SIZES.items() if name in fields})


def batch_of(backbone, vocabulary: int, length: int) -> dict[str, np.ndarray]:
    """Rows of random tokens. The second row has padding on the right, where the family supports it."""
    random = np.random.default_rng(0)
    example, real = backbone.example_inputs(), np.arange(length) < np.array([[length], [length - 23]])
    batch = {}
    for prefix in ("", "decoder_"):
        if f"{prefix}token_ids" in example:
            batch[f"{prefix}token_ids"] = random.integers(10, vocabulary, (ROWS, length), "int32")
            batch[f"{prefix}padding_mask"] = real
    return batch


def relative_errors(half: dict, single: dict, real: np.ndarray) -> dict[str, float]:
    """{output: relative error} of the real tokens."""
    found = {}
    for name, expected in single.items():
        expected, got = (np.asarray(x, "float32") for x in (expected, half[name]))
        if expected.ndim > 2 and expected.shape[:2] == real.shape:
            expected, got = expected[real], got[real]
        if expected.size:
            found[name] = float(np.linalg.norm(got - expected) / max(np.linalg.norm(expected), 1e-30))
    return found


def parity(make, length: int = LENGTH) -> tuple[bool, str, dict]:
    """Compares outputs in mixed_bfloat16 and float32.

    Args:
        make: function of a dtype that returns a backbone.
        length: tokens of a row.
    """
    import keras

    single, half = make("float32"), make("mixed_bfloat16")
    half.set_weights(single.get_weights())
    batch = batch_of(single, min(200, single.config.vocabulary_size), length)
    with _exact_products():
        expected = single.predict_on_batch(batch)
    found = half.predict_on_batch(batch)
    errors = relative_errors(*({k: _array(v) for k, v in x.items()} for x in (found, expected)), batch["padding_mask"])
    finite = all(np.isfinite(error) for error in errors.values())
    text = ", ".join(f"{name} {error:.2%}" for name, error in errors.items())
    right = bool(errors) and finite and max(errors.values()) <= TOLERANCE
    return right, f"{text} (at most {TOLERANCE:.0%}, {keras.backend.backend()})", {"errors": errors}


def _array(x) -> np.ndarray:
    import keras

    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


@contextlib.contextmanager
def _exact_products():
    """JAX may compute products of float32 in TensorFloat-32, which has ten bits."""
    import keras

    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    with jax.default_matmul_precision("highest"):
        yield


def _cells(tiny: bool) -> dict:
    import keras

    from kerasbert.backend import seed_everything
    from kerasbert.models import Bert, BertConfig

    seed_everything(0)
    name = f"parity {keras.backend.backend()}"
    made = {
        f"{name} {model_type}": lambda dtype, cls=cls: cls(tiny_config(cls), dtype=dtype)
        for model_type, cls in backbones().items()
    }
    cells = {cell: functools.partial(parity, make) for cell, make in made.items()}
    if tiny:
        return dict(list(cells.items())[::6])
    cells[f"{name} bert_base"] = functools.partial(parity, lambda dtype: Bert(BertConfig(), dtype=dtype), 512)
    return cells


if __name__ == "__main__":
    options = parser(__doc__.splitlines()[0]).parse_args()
    raise SystemExit(measure_all(options, _cells(options.tiny)))
