"""Training steps of whole models on the device: fused calls, memory, time and utilization.

    KERAS_BACKEND=jax python -m benchmarks.devices.steps --model bert --results runs/gpu_check/check.jsonl

The dropout is that of the papers. The program is compiled while other parts of the check use the device; its memory and
its time are measured alone. Memory is the most that the device has given this process, against what the compiler
expects the step to take.
"""

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.berts import encoding_flops, head_flops
from benchmarks.devices.parts import WRONG, parser
from benchmarks.devices.programs import Step, attention_calls, peak_memory
from benchmarks.devices.results import Results, device_name, peak_of, sharing_device

MODELS = ("bert", "bert_packed", "modernbert")
STEPS = 10
MASKED = 0.15
MOST_MEMORY = 1.25  # times the expected memory


def config_of(name: str, tiny: bool):
    from kerasbert.models import BertConfig, ModernBertConfig

    if name == "modernbert":
        sizes = dict(num_layers=4, num_heads=2, hidden_dim=128, feed_forward_dim=192, vocabulary_size=500)
        return ModernBertConfig(max_length=8_192, **(sizes if tiny else {}))
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=128, feed_forward_dim=256, vocabulary_size=500)
    return BertConfig(**(sizes if tiny else {}))


def batch_of(name: str, vocabulary: int, tiny: bool) -> tuple[dict, np.ndarray]:
    """Returns (x, y) of random tokens: BERT 64 rows of 512, ModernBERT 4 rows of 8,192."""
    rows, length = (4, 8_192) if name == "modernbert" else (64, 512)
    rows, length = (2, 128) if tiny else (rows, length)
    random = np.random.default_rng(0)
    slots = round(MASKED * length)
    ids = random.integers(4, vocabulary, (rows, length), "int32")
    chosen = np.stack([np.sort(random.permutation(length)[:slots]) for _ in range(rows)]).astype("int32")
    x = {"token_ids": ids, "masked_positions": chosen}
    if name == "bert_packed":
        cuts = np.sort(random.integers(1, length, (rows, 3)), axis=1)
        sequences = 1 + (np.arange(length)[None, :, None] >= cuts[:, None]).sum(-1)
        starts = np.where(np.diff(sequences, axis=1, prepend=0) != 0, np.arange(length), 0)
        x["sequence_ids"] = sequences.astype("int32")
        x["position_ids"] = (np.arange(length) - np.maximum.accumulate(starts, axis=1)).astype("int32")
    return x, np.take_along_axis(ids, chosen, axis=1)


def flops_of(name: str, config, x: dict) -> float:
    """Of the model's own arithmetic in a step: forward, and twice as much backward."""
    (rows, length), slots = x["token_ids"].shape, x["masked_positions"].shape[1]
    width, inner, layers = config.hidden_dim, config.feed_forward_dim, config.num_layers
    shape = dict(hidden_dim=width, vocabulary_size=config.vocabulary_size)
    if name != "modernbert":
        forward = encoding_flops(rows * length, length, dict(shape, num_layers=layers, feed_forward_dim=inner))
    else:
        whole = len(range(0, layers, config.global_every))
        keys = whole * length + (layers - whole) * min(config.local_attention + 1, length)
        forward = rows * length * (layers * 2 * (4 * width**2 + 3 * width * inner) + 4 * width * keys)
    return 3.0 * (forward + rows * slots * head_flops(shape))


def step_of(name: str, tiny: bool) -> tuple[Step, float, int]:
    """Returns a compiled step, its floating point operations, and the number of layers."""
    from kerasbert.backend import seed_everything
    from kerasbert.models import Bert, ModernBert
    from kerasbert.objectives import MaskedLM
    from kerasbert.training import adamw

    seed_everything(0)
    config = config_of(name, tiny)
    cls = ModernBert if name == "modernbert" else Bert
    model = MaskedLM(cls(config, dtype="mixed_bfloat16"), dtype="mixed_bfloat16")
    model.compile(adamw(learning_rate=1e-4))
    data = batch_of(name, config.vocabulary_size, tiny)
    return Step(model, data), flops_of(name, config, data[0]), config.num_layers


def fused(step: Step, layers: int, on_gpu: bool) -> tuple[bool, str, dict]:
    """Whether every layer calls fused attention, forward and backward."""
    calls = attention_calls(step.program.as_text())
    found = [sum(calls[f"{kernel}_{way}"] for kernel in ("cudnn", "flash")) for way in ("forward", "backward")]
    right = not on_gpu or min(found) >= layers
    text = f"{found[0]} calls forward and {found[1]} backward in {layers} layers: {calls}"
    return right, f"{text}; compiled in {step.compile_seconds:.0f} s", {"calls": calls}


def timed(step: Step, flops: float, tokens: int, device: str) -> tuple[bool, str, dict]:
    """Time and utilization of a step."""
    step.run(2)
    seconds, loss = step.run(STEPS)
    rate, peak = flops / seconds / 1e12, peak_of(device)
    share = "" if peak is None else f", {rate / peak:.1%} of {peak} TFLOP/s"
    text = f"{seconds * 1e3:.1f} ms, {tokens / seconds:,.0f} tokens/s, {rate:.1f} TFLOP/s{share}; loss {loss:.3f}"
    return bool(np.isfinite(loss)), text, {"milliseconds": seconds * 1e3, "tflops": rate}


def memory(step: Step) -> tuple[bool, str, dict]:
    """The peak of this process against what the compiler expects."""
    expected, peak = step.memory() / 2**30, peak_memory()
    if peak is None:
        return True, f"expected {expected:.2f} GiB; this device does not tell its peak", {"expected": expected}
    peak = peak / 2**30
    text = f"peak {peak:.2f} GiB, expected {expected:.2f} GiB: {peak / expected:.2f} times"
    return peak <= MOST_MEMORY * expected, text, {"expected": expected, "peak": peak}


def profiled(step: Step, on_gpu: bool) -> tuple[bool, str, dict]:
    """Which kernels a step really runs."""
    with tempfile.TemporaryDirectory() as folder:
        attention, longest = step.profile(Path(folder))
    return attention > 0 or not on_gpu, f"{attention} kernels of attention; {'; '.join(longest)}", {"kernels": longest}


def measure(name: str, results: Results, tiny: bool) -> bool:
    """Measures a model, unless all of its cells are done."""
    cells = [f"step {name} {what}" for what in ("fused calls", "time", "memory", "profile")]
    if all(map(results.is_done, cells)):
        return True
    folder, on_gpu = results.path.parent, results.device != "CPU"
    step, flops, layers = step_of(name, tiny)
    tokens = step.data[0]["token_ids"].size
    functions = [
        functools.partial(fused, step, layers, on_gpu),
        functools.partial(timed, step, flops, tokens, results.device),
        functools.partial(memory, step),
        functools.partial(profiled, step, on_gpu),
    ]
    right = [results.measure(cells[0], functions[0])]
    with sharing_device(folder, alone=True):
        right += [results.measure(*pair) for pair in zip(cells[1:], functions[1:], strict=True)]
    return all(right)


if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--model", choices=MODELS, required=True)
    options = arguments.parse_args()
    sys.exit(0 if measure(options.model, Results(options.results, device_name()), options.tiny) else WRONG)
