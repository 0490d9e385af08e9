"""Comparisons that can be trusted: the same work, the same weights, the same minute.

Every contender is a process of its own, so that each has its backend, its threads and, if need be, its Python. All of
them load the same weights from the same folder, do the work once, and hand over their outputs: a comparison of
contenders whose outputs differ is void. Then they work in turns, back and forth (A B B A ...), while the others wait.
Long work has parts, with a turn for each part. A ratio is the median of the ratios of the rounds, with the lowest and
the highest. In the same rounds a matrix product is timed: the share of that rate is what a model makes of the machine.

A script has a function that writes the folder, a `Contender` a way of doing the work, and the `Comparison`s that are
wanted; `compare` does the rest and appends a JSON row a comparison to the results.
"""

import argparse
import dataclasses
import inspect
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.contenders import ROOT, Contender, Process, Work, matrix_product, work

MATRIX = "matrix product"
TOGETHER = 2  # processes that load at the same time


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One row: how many times as fast as `theirs` `ours` is.

    Args:
        ours, theirs: names of contenders.
        goal: of the ratio.
        tolerance: of the outputs that both have; None for contenders that do different work.
        what: "speed", or "memory" for the share of the peak of `theirs`, or "cost" for the time a unit; of the latter
            two, less is better.
    """

    ours: str
    theirs: str
    goal: float | None = None
    tolerance: float | None = 1e-4
    what: str = "speed"


# === The comparison ===


def compare(
    title: str,
    prepare: Callable[[Path, argparse.Namespace], None],
    contenders: dict[str, Contender],
    comparisons: list[Comparison],
    unit: str = "runs",
    alone: bool = False,
    options: argparse.Namespace | None = None,
) -> list[dict]:
    """Runs contenders in turns, prints tables, appends rows to the results, and returns them.

    Args:
        title: names the benchmark in the results.
        prepare: writes what the contenders load, in a process of its own.
        contenders: {name: Contender}.
        comparisons: the rows that are wanted.
        unit: of `Work.units`.
        alone: one process after another, each with all its rounds: for what does not fit into memory together.
        options: of the script's `parser`; read from the command line by default.
    """
    options = options or parser(title).parse_args()
    contenders = {MATRIX: Contender(matrix_product), **contenders}
    if options.worker:
        everyone = {"prepare": Contender(lambda folder: Work(prepare(folder, options))), **contenders}
        work(everyone[options.worker], Path(options.folder))
        sys.exit()
    module = inspect.stack()[1].frame.f_globals["__spec__"].name
    wanted = {name for c in comparisons for name in (c.ours, c.theirs)} | {MATRIX}
    if options.only:
        wanted = {name for name in wanted if name == MATRIX or any(part in name for part in options.only)}
    times, facts, outputs, peaks = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = Process("prepare", Contender(prepare), folder, sys.executable, module).ready()
        if "pid" not in first.facts:
            reason = first.facts.get("failed") or first.facts["skipped"]
            raise RuntimeError(f"The folder could not be prepared:\n{reason}")
        first.stop()

        def started(names: list[str]) -> list[Process]:
            found = []
            for name in names:
                python = options.peer_python if contenders[name].peer else sys.executable
                found.append(Process(name, contenders[name], folder, python, module))
                if len(found) >= TOGETHER:
                    found[-TOGETHER].ready()
            for process in found[max(0, len(found) - TOGETHER + 1) :]:
                process.ready()
            for process in found:
                facts[process.name], outputs[process.name], times[process.name] = process.facts, process.outputs, []
            return found

        def measured(processes: list[Process]) -> None:
            running = [process for process in processes if "pid" in process.facts]
            turns = 0
            for _ in range(options.rounds):
                for process in running:
                    times[process.name].append(0.0)
                for part in range(max(process.facts["parts"] for process in running)):
                    for process in running[:: 1 if turns % 2 == 0 else -1]:
                        if part < process.facts["parts"]:
                            times[process.name][-1] += process.ask(str(part))["seconds"]
                    turns += 1
            for process in running:
                peaks[process.name] = process.ask("peak")["bytes"]
            for process in processes:
                process.stop()

        names = [name for name in contenders if name in wanted]
        for group in [[name] for name in names] if alone else [names]:
            measured(started(group))
    _print_contenders(title, names, facts, times, peaks, unit)
    rows = [_row(title, c, facts, times, outputs, peaks) for c in comparisons if {c.ours, c.theirs} <= set(names)]
    _print_rows(rows)
    append(options.results, rows)
    return rows


def parser(title: str) -> argparse.ArgumentParser:
    """The options that all comparisons have."""
    arguments = argparse.ArgumentParser(description=title)
    arguments.add_argument("--rounds", type=int, default=5, help="every contender works so often, in turns")
    arguments.add_argument("--only", nargs="*", help="contenders whose names hold one of these")
    arguments.add_argument(
        "--peer-python",
        default=os.environ.get("PEER_PYTHON", sys.executable),
        help="a Python that has keras-hub; default: PEER_PYTHON, or this one",
    )
    arguments.add_argument("--results", type=Path, default=ROOT / "runs" / "benchmarks.jsonl")
    arguments.add_argument("--worker", help=argparse.SUPPRESS)
    arguments.add_argument("--folder", help=argparse.SUPPRESS)
    return arguments


def ratio(numerators: list[float], denominators: list[float]) -> dict:
    """The ratio of the medians, and the lowest and the highest ratio of a round."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    medians = statistics.median(numerators) / statistics.median(denominators)
    found = {"ratio": medians, "lowest": min(ratios), "highest": max(ratios)}
    return {name: round(value, 3) for name, value in found.items()}


def difference(ours: dict, theirs: dict) -> float:
    """The largest difference of the outputs that both have; infinite where none is comparable."""
    shared = [name for name in ours if name in theirs]
    if not shared or any(ours[name].shape != theirs[name].shape for name in shared):
        return float("inf")
    return max(float(np.abs(ours[name].astype("float64") - theirs[name]).max(initial=0)) for name in shared)


def _row(title: str, c: Comparison, facts: dict, times: dict, outputs: dict, peaks: dict) -> dict:
    row = {"benchmark": title, "ours": c.ours, "theirs": c.theirs, "what": c.what, "goal": c.goal, **machine()}
    for name in (c.ours, c.theirs):
        if "pid" not in facts[name]:
            reason = facts[name].get("skipped") or facts[name].get("failed")
            return {**row, "skipped": f"{name}: {reason}"}
    if c.tolerance is not None:
        row["difference"] = difference(outputs[c.ours], outputs[c.theirs])
    if c.tolerance is not None and not row["difference"] <= c.tolerance:
        return {**row, "void": f"outputs differ by {row['difference']:.3g}, more than {c.tolerance:.3g}"}
    if c.what == "memory":
        row |= ratio([peaks[c.ours]], [peaks[c.theirs]])
    else:
        theirs = [seconds / facts[c.theirs]["units"] for seconds in times[c.theirs]]
        ours = [seconds / facts[c.ours]["units"] for seconds in times[c.ours]]
        row |= ratio(ours, theirs) if c.what == "cost" else ratio(theirs, ours)
    row |= {"ours_seconds": statistics.median(times[c.ours]), "theirs_seconds": statistics.median(times[c.theirs])}
    row |= {name: facts[c.ours][name] for name in ("units", "flops", "notes")}
    row |= {"their_notes": facts[c.theirs]["notes"]}
    row |= {"peak_bytes": [peaks[c.ours], peaks[c.theirs]]}
    if facts[c.ours]["flops"] and times.get(MATRIX):
        row["share_of_matrix_rate"] = round(statistics.median(_shares(c.ours, facts, times)), 3)
    return {**row, "versions": {**facts[c.theirs]["versions"], **facts[c.ours]["versions"]}}


def _shares(name: str, facts: dict, times: dict) -> list[float]:
    """What share of the rate of the matrix product a contender's own arithmetic reaches, by rounds."""
    rates = [facts[MATRIX]["flops"] / seconds for seconds in times[MATRIX]]
    return [facts[name]["flops"] / seconds / rate for seconds, rate in zip(times[name], rates, strict=True)]


def machine() -> dict:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "backend": os.environ.get("KERAS_BACKEND", "jax"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _print_contenders(title: str, names: list, facts: dict, times: dict, peaks: dict, unit: str) -> None:
    print(f"\n{title}, {machine()['backend']}")
    columns = ("median ms", "lowest", "highest", f"{unit}/s", "GFLOP/s", "share", "peak GB", "first s")
    print(f"{'':34}" + "".join(f"{column:>14}" for column in columns))
    for name in names:
        if not times[name]:
            reason = facts[name].get("skipped") or facts[name].get("failed") or "stopped"
            print(f"{name:34} skipped: {reason.strip()[-800:]}")
            continue
        middle, units, flops = statistics.median(times[name]), facts[name]["units"], facts[name]["flops"]
        share = statistics.median(_shares(name, facts, times)) if flops and times.get(MATRIX) else 0.0
        values = [f"{1000 * seconds:.2f}" for seconds in (middle, min(times[name]), max(times[name]))]
        values += [f"{units / middle:,.0f}", f"{flops / middle / 1e9:.1f}" if flops else "", f"{share:.0%}"]
        values += [f"{peaks[name] / 1e9:.2f}", f"{facts[name]['seconds_to_first']:.1f}"]
        print(f"{name:34}" + "".join(f"{value:>14}" for value in values))


def _print_rows(rows: list[dict]) -> None:
    for row in rows:
        pair = f"{row['ours']} against {row['theirs']}"
        if "ratio" not in row:
            print(f"{pair}: {'void' if 'void' in row else 'skipped'} ({(row.get('void') or row['skipped'])[-300:]})")
            continue
        most = "" if row["what"] == "speed" else "at most "
        goal = "" if row["goal"] is None else f", goal {most}{row['goal']:.3g}x"
        share = f", {row['share_of_matrix_rate']:.0%} of the matrix rate" if "share_of_matrix_rate" in row else ""
        spread = f"{row['lowest']:.2f} to {row['highest']:.2f}"
        print(f"{pair}, {row['what']}: {row['ratio']:.2f}x ({spread}){goal}{share}")


def append(path: Path, rows: list[dict]) -> None:
    """Adds rows to a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
