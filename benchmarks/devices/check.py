"""Checks of this package on the GPU of this machine: see `gpu_check.sh`."""

import argparse
import os
from pathlib import Path

from benchmarks.devices.parts import Part, Runner
from benchmarks.devices.results import Results, device_name

SECONDS = 350  # of the whole check
# Several processes share the memory of the device.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
JAX, TORCH = {"KERAS_BACKEND": "jax", **SHARED}, {"KERAS_BACKEND": "torch"}


STEPS = ("bert", "bert_packed", "modernbert")


def parts(tiny: bool) -> list[list[Part]]:
    """The groups of parts. Each of the parts that measure speed alone is a group of its own."""
    patience = 4 if tiny else 1  # times the limits: a CPU takes longer

    def part(name: str, environment: dict, limit: float, *arguments: str) -> Part:
        module, *_ = name.split()
        return Part(name, (f"benchmarks.devices.{module}", *arguments), patience * limit, environment)

    several = [f"{number}/3" for number in range(3)] if not tiny else ["0/1"]
    together = [part(f"steps {name}", JAX, 200, "--model", name) for name in STEPS]
    for module in ("parity", "attention"):
        together += [part(f"{module} jax {share}", JAX, 150, "--share", share) for share in several]
    together.append(part("parity torch", TORCH, 120))
    alone = [part("transformers_step jax", JAX, 130), part("transformers_step torch", TORCH, 130)]
    return [together, *([part] for part in alone)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the results, which a repeated command reads")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--at-once", type=int, default=min(12, os.cpu_count() or 1), help="processes at the same time")
    parser.add_argument("--tiny", action="store_true", help="sizes for trying the script on a CPU")
    options = parser.parse_args()
    options.folder = options.folder.resolve()  # parts run in another folder
    device = device_name()
    print(f"{device}; results in {options.folder}", flush=True)
    results = Results(options.folder / f"check{'_tiny' if options.tiny else ''}.jsonl", device)
    runner = Runner(results, options.seconds, ["--tiny"] if options.tiny else [])
    status = runner.run(parts(options.tiny), options.at_once)
    rows = results.rows()
    failed = [cell for cell, row in rows.items() if not row["ok"]]
    print(
        f"{len(rows) - len(failed)} results are right, {len(failed)} failed: {', '.join(failed) or 'none'}", flush=True
    )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
