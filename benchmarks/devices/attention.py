"""Fused attention on the device against attention written out, with the same dropout masks: outputs and gradients.

    KERAS_BACKEND=jax python -m benchmarks.devices.attention --results runs/gpu_check/check.jsonl

Results are in bfloat16. They may differ from those in float32 by twice as much as the results of the reference
implementation in bfloat16 do. On a CPU, the kernel of this package is interpreted, and cuDNN's is left out.
"""

import contextlib
import functools

import numpy as np

from benchmarks.devices.parts import measure_all, parser
from benchmarks.devices.programs import attention_calls

ROWS, HEADS, WIDTH, RATE, SCALE = 4, 4, 64, 0.1, 0.125
LENGTH, TINY_LENGTH = 301, 37  # odd
CLOSE = 2  # times the error of the reference implementation
# {kind: whether cuDNN computes it without dropout}
KINDS = {
    "full": True,
    "lengths": True,
    "padding": False,
    "causal": True,
    "causal window": True,
    "window": False,
    "packed": False,
    "packed window": False,
    "prefix": False,
    "bias": True,
    "bias, causal": True,
    "allowed": False,
    "fewer queries": True,
}


def arguments_of(kind: str, length: int):
    """Returns (mask, bias, number of queries) of a kind of attention."""
    import jax.numpy as jnp

    from kerasbert.layers.masks import AttentionMask

    random = np.random.default_rng(1)
    place, ends = np.arange(length), np.array([length, length - 9, length // 2, 3])
    ids = np.where(place < ends[:, None], 1 + (place > ends[:, None] // 3), 0).astype("int32")
    bias = jnp.asarray(random.normal(size=(1, HEADS, length, length)), "float32")
    masks = {
        "lengths": dict(lengths=jnp.asarray(ends, "int32")),
        "padding": dict(padding_mask=jnp.asarray(ids > 0)),
        "causal": dict(causal=True),
        "causal window": dict(causal=True, window=16),
        "window": dict(window=16),
        "packed": dict(sequence_ids=jnp.asarray(ids)),
        "packed window": dict(sequence_ids=jnp.asarray(ids), window=16),
        "prefix": dict(causal=True, prefix_mask=jnp.asarray(np.broadcast_to(place < length // 4, (ROWS, length)))),
        "bias, causal": dict(causal=True),
        "allowed": dict(allowed=jnp.asarray(random.random((ROWS, 1, length, length)) < 0.5)),
    }
    mask = AttentionMask(**masks[kind]) if kind in masks else None
    return mask, bias if kind.startswith("bias") else None, 77 if kind == "fewer queries" else length


def reference(query, key, value, mask, bias, scale, dropout):
    """Attention written out, as in `attend` without kernels."""
    import keras

    from kerasbert.layers.attention import attention_scores

    weights = keras.ops.softmax(attention_scores(query, key, mask, bias, scale))
    weights = weights if dropout is None else dropout(weights, training=True)
    return keras.ops.einsum("bhqk,bkhd->bqhd", weights.astype(value.dtype), value)


def gradients_of(attention, mask, seen, layer):
    """A compiled function of ((query, key, value), bias) that returns outputs and gradients."""
    import jax
    import keras

    seed = None if layer is None else layer.seed_generator.state.value

    def loss(parts, bias, weights):
        state = [] if layer is None else [(layer.seed_generator.state, seed)]
        with keras.StatelessScope(state):
            y = attention(*parts, mask, bias, SCALE, layer)
        y = jax.numpy.where(seen, y.astype("float32"), 0)
        return (y * weights).sum(), y

    return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))


def compare(kind: str, rate: float, length: int) -> tuple[bool, str, dict]:
    """Compares fused attention of a kind with the reference."""
    import jax
    import jax.numpy as jnp

    from kerasbert.layers.dropout import Dropout

    mask, bias, queries = arguments_of(kind, length)
    random = np.random.default_rng(0)
    parts = [jnp.asarray(random.normal(size=(ROWS, n, HEADS, WIDTH)), "bfloat16") for n in (queries, length, length)]
    weights = jnp.asarray(random.normal(size=(ROWS, queries, HEADS, WIDTH)), "float32")
    shown = None if mask is None else mask.dense(queries, length)
    seen = np.ones((1, queries), bool) if shown is None else np.asarray(shown).any(-1).all(1)
    layer = Dropout(rate, seed=3) if rate else None
    attentions = (_fused(), reference, reference)
    single = [x.astype("float32") for x in parts]
    found, calls = [], {}
    for number, (attention, inputs) in enumerate(zip(attentions, (parts, parts, single), strict=True)):
        with jax.default_matmul_precision("highest" if number == 2 else "default"), _interpreted():
            program = gradients_of(attention, mask, seen[..., None, None], layer).lower(inputs, bias, weights).compile()
        calls = calls or attention_calls(program.as_text())
        (_, y), gradients = program(inputs, bias, weights)
        found.append([np.asarray(x, "float32") for x in (y, *jax.tree.leaves(gradients))])
    errors = [[_error(x, exact) for x, exact in zip(one, found[2], strict=True)] for one in found[:2]]
    names = ("output", "query", "key", "value", "bias")
    text = ", ".join(f"{n} {a:.2%}/{b:.2%}" for n, a, b in zip(names, *errors, strict=False))
    close = all(np.isfinite(a) and a <= CLOSE * b + 1e-4 for a, b in zip(*errors, strict=True))
    wanted = "cudnn" if KINDS[kind] and not rate else "flash"
    on_cpu = jax.default_backend() == "cpu"
    taken = on_cpu or all(calls[f"{wanted}_{way}"] for way in ("forward", "backward"))
    said = "flash interpreted" if on_cpu else f"{wanted} called" if taken else f"{wanted} NOT called: {calls}"
    text = f"errors of ours/reference: {text}; {said}"
    return close and taken, text, {"errors": errors, "calls": calls}


def _error(x: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(x - exact) / np.linalg.norm(exact))


def _fused():
    """The attention that models call. On a CPU, it is the kernel of this package."""
    import jax

    from kerasbert.backend.flash_attention import flash_attention
    from kerasbert.layers.attention import attend

    return flash_attention if jax.default_backend() == "cpu" else attend


@contextlib.contextmanager
def _interpreted():
    """Traces the kernels for a GPU, and interprets them where there is none."""
    import jax

    if jax.default_backend() != "cpu":
        yield
        return
    from jax.experimental import pallas

    from kerasbert.backend import compiling_for

    call = pallas.pallas_call
    pallas.pallas_call = functools.partial(call, interpret=True)
    try:
        with compiling_for("gpu"):
            yield
    finally:
        pallas.pallas_call = call


def cells(tiny: bool) -> dict:
    length = TINY_LENGTH if tiny else LENGTH
    found = {
        f"attention {kind}, {f'dropout {rate}' if rate else 'no dropout'}": functools.partial(
            compare, kind, rate, length
        )
        for kind in KINDS
        for rate in (RATE, 0.0)
    }
    return dict(list(found.items())[::9]) if tiny else found


if __name__ == "__main__":
    options = parser(__doc__.splitlines()[0]).parse_args()
    raise SystemExit(measure_all(options, cells(options.tiny)))
