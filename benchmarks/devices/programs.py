"""Compiled training steps on the device: their attention kernels, memory and time."""

import re
import time
from pathlib import Path

CUDNN = re.compile(r'custom_call_target="__cudnn\$fmha(\w*)"')
PALLAS = re.compile(r'custom_call_target="[^"]*triton[^"]*".*')
# Names of kernels in a profile: cuDNN's, and those of this package.
ATTENTION_KERNELS = re.compile(r"fmha|sdpa|flash|_forward_kernel|_backward_kernel", re.IGNORECASE)


def attention_calls(text: str) -> dict[str, int]:
    """Counts the calls of fused attention in a compiled program: cuDNN's, and those of this package (`flash`)."""
    found = dict.fromkeys(("cudnn_forward", "cudnn_backward", "flash_forward", "flash_backward"), 0)
    for name in CUDNN.findall(text):
        found["cudnn_backward" if "Backward" in name else "cudnn_forward"] += 1
    for call in PALLAS.findall(text):
        found["flash_backward" if "backward_kernel" in call else "flash_forward"] += 1
    return found


class Step:
    """The training step that `fit` runs on JAX, compiled for one shape of batches.

    Args:
        model: a compiled objective.
        data: a batch: (x, y).
    """

    def __init__(self, model, data):
        import jax

        model.optimizer.build(model.trainable_variables)
        variables = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
        variables = (*variables, model.metrics_variables)
        self.state = tuple([variable.value for variable in group] for group in variables)
        self.data = jax.tree.map(jax.numpy.asarray, data)
        start = time.perf_counter()
        step = jax.jit(model.train_step, donate_argnums=0)
        self.program = step.lower(self.state, self.data).compile()
        self.compile_seconds = time.perf_counter() - start

    def memory(self) -> int:
        """Bytes that the compiler expects the step to take."""
        found = self.program.memory_analysis()
        used = found.argument_size_in_bytes + found.temp_size_in_bytes
        return used + found.output_size_in_bytes - found.alias_size_in_bytes

    def run(self, steps: int) -> tuple[float, float]:
        """Runs steps, and returns the seconds of one, and the loss of the last."""
        import jax

        start = time.perf_counter()
        for _ in range(steps):
            logs, self.state = self.program(self.state, self.data)
        jax.block_until_ready(self.state)
        return (time.perf_counter() - start) / steps, float(logs["loss"])

    def profile(self, folder: Path) -> tuple[int, list[str]]:
        """Profiles a step. Returns how many kernels of attention ran, and the kernels that took the most time."""
        import jax

        with jax.profiler.trace(str(folder)):
            self.run(1)
        newest = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
        times, attention = {}, 0
        for plane in jax.profiler.ProfileData.from_file(str(newest)).planes:
            if "GPU" not in plane.name:
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    times[event.name] = times.get(event.name, 0) + event.duration_ns
                    attention += bool(ATTENTION_KERNELS.search(event.name))
        longest = sorted(times, key=times.get, reverse=True)[:5]
        return attention, [f"{name[:60]} {times[name] / 1e6:.2f} ms" for name in longest]


def peak_memory() -> int | None:
    """The most bytes of device memory that this process has used so far, or None if the device does not tell."""
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
