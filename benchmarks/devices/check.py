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


def parts(tiny: bool) -> list[list[Part]]:
    """The groups of parts. Those of the second group measure speed only, one at a time."""

    def shares(module: str, count: int, environment: dict, limit: float) -> list[Part]:
        backend = environment["KERAS_BACKEND"]
        shares = [f"{number}/{count}" for number in range(count)]
        return [
            Part(f"{module} {backend} {share}", (f"benchmarks.devices.{module}", "--share", share), limit, environment)
            for share in shares
        ]

    several = 1 if tiny else 3
    first = [Part(f"steps {name}", ("benchmarks.devices.steps", "--model", name), 200, JAX) for name in STEPS]
    first += shares("parity", several, JAX, 150) + shares("attention", several, JAX, 150)
    first += shares("parity", 1, TORCH, 120)
    second = [
        Part(
            f"transformers {environment['KERAS_BACKEND']}", ("benchmarks.devices.transformers_step",), 130, environment
        )
        for environment in (JAX, TORCH)
    ]
    return [first, second]


STEPS = ("bert", "bert_packed", "modernbert")


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
