"""Damaged files against the readers: seeded, resumable, in a child process with limits of memory and time.

    python -m tests.fuzz.fuzz --cases 5000 --seed 1 --log fuzz.jsonl

Case n of a seed is always the same damage. The same command with a longer `--cases` continues behind the last case of
the log; `--only n` repeats one and shows its traceback. What counts as a failure:

- a reader that dies, or is stuck;
- an error of another kind than the package's own: a ValueError or FileNotFoundError that one of its files raises;
- a case of more than 1 second of processor time, or 100 MB over the size of its files;
- a file that is accepted with other values than its oracle finds in it.
"""

import argparse
import contextlib
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = tuple(f"{ROOT / name}{os.sep}" for name in ("kerasbert", "pipelines"))
MOST_SECONDS, MOST_BYTES = 1.0, 100_000_000
PRELOADED = ("torch", "kerasbert.checkpoints.presets", "kerasbert.data", "kerasbert.objectives", "kerasbert.tasks")
STUCK_SECONDS = 30  # of wall-clock time, for a case that holds the processor or waits
ADDRESS_SPACE = 4_000_000_000  # beyond what the child has at its start; a guard for the machine


def damage(kind, name, folder, seed, number):
    """Damages a file of `folder` for case `number`; returns the names of the files and what is to be put back."""
    rng = random.Random(f"{seed}/{number}")
    files = list(kind.files)
    changed = {}
    for file in rng.sample(files, 1 if len(files) == 1 or rng.random() < 0.85 else 2):
        path = folder / file
        changed[path] = path.read_bytes()
        path.write_bytes(kind.files[file](changed[path], rng))
    return changed


def run_case(kind, folder, valid):
    """(outcome, detail) of one case: "refused", "accepted", or what is wrong."""
    from .kinds import Corrupt

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = kind.read(folder)
            kind.check(folder, found, valid)
    except Corrupt as error:
        return "corrupt", str(error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = type(error) in (ValueError, FileNotFoundError) or type(error).__module__.startswith("kerasbert")
        if ours and frames[-1].filename.startswith(OURS):
            return "refused", str(error)[:300]
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-4:]]
        return "error", f"{type(error).__name__}: {error!s:.300} ({' '.join(places)})"
    return "accepted", ""


# === Memory ===


def peak_memory(reset=False):
    """The largest resident size so far, in bytes, or since the last reset; 0 where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    field = "VmRSS:" if reset else "VmHWM:"
    return int(text.split(field)[1].split()[0]) * 1024


# === The child ===


def child(numbers, names, seed, workplace, report):
    """Runs cases one after another; a line before and one after each."""
    from .kinds import KINDS

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
    valid = {}
    for number in numbers:
        name = names[number % len(names)]
        kind, folder = KINDS[name], workplace / name
        if name not in valid:
            restore(workplace, name)
            valid[name] = kind.read(folder)  # imports what the reader needs, so that it does not count
            kind.check(folder, valid[name], valid[name])
        changed = damage(kind, name, folder, seed, number)
        os.write(report, json.dumps({"case": number, "kind": name}).encode() + b"\n")
        size = sum(path.stat().st_size for path in changed)
        before, start = peak_memory(reset=True), time.process_time()
        outcome, detail = run_case(kind, folder, valid[name])
        seconds, memory = time.process_time() - start, peak_memory() - before
        if outcome in ("refused", "accepted"):
            if seconds > MOST_SECONDS:
                outcome = "slow"
            elif memory > MOST_BYTES + size:
                outcome = "large"
        line = {"case": number, "kind": name, "outcome": outcome, "detail": detail}
        line |= {"seconds": round(seconds, 3), "megabytes": round(memory / 1e6, 1)}
        os.write(report, json.dumps(line).encode() + b"\n")
        for path, content in changed.items():
            path.write_bytes(content)


def restore(workplace, name):
    """The valid files of a kind, as they were made."""
    shutil.rmtree(workplace / name, ignore_errors=True)
    shutil.copytree(workplace / "valid" / name, workplace / name)


def make_valid(names, workplace):
    """Writes the valid files, in a child of its own: models are computed, which a process that forks must not do."""
    from .kinds import KINDS

    for name in names:
        (workplace / "valid" / name).mkdir(parents=True)
        KINDS[name].make(workplace / "valid" / name)


def forked(function, *arguments):
    """The process id of a child that runs a function and ends."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            if not os.environ.get("FUZZ_STDERR"):
                os.dup2(nothing.fileno(), 2)
        function(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


# === The parent ===


def run(numbers, names, seed, workplace):
    """Yields the result of each case; a child that dies or is stuck is one, and the next child goes on behind it."""
    numbers = list(numbers)
    made = forked(make_valid, names, workplace)
    if os.waitpid(made, 0)[1]:
        raise RuntimeError("The valid files could not be made; FUZZ_STDERR=1 shows why.")
    while numbers:
        reading, writing = os.pipe()
        process = forked(child, numbers, names, seed, workplace, writing)
        os.close(writing)
        done, started = 0, None
        for line in _lines(reading, process):
            if "outcome" in line:
                done, started = done + 1, None
                yield line
            else:
                started = line
        os.close(reading)
        status = os.waitpid(process, 0)[1]
        if status and started is None:
            raise RuntimeError(f"The child ended with {status} between two cases; FUZZ_STDERR=1 shows why.")
        if started is not None:
            ended = signal.Signals(status & 127).name if status & 127 else f"exit code {status >> 8}"
            yield {**started, "outcome": "stuck" if ended == "SIGKILL" else "crash", "detail": ended}
            done += 1
        numbers = numbers[done:]


def _lines(reading, process):
    rest = b""
    while True:
        if not select.select([reading], [], [], STUCK_SECONDS if rest or rest == b"" else None)[0]:
            os.kill(process, signal.SIGKILL)
        data = os.read(reading, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", help="default: all")
    parser.add_argument("--log", type=Path, help="a line of json for each case; continued if it is there")
    parser.add_argument("--only", type=int, help="one case, run in this process")
    options = parser.parse_args(arguments)
    os.environ.setdefault("KERAS_BACKEND", "jax")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from .kinds import KINDS

    names = options.kinds or list(KINDS)
    with tempfile.TemporaryDirectory() as folder:
        workplace = Path(folder)
        if options.only is not None:
            return repeat(options, names, workplace)
        for module in PRELOADED:  # before the fork: each child has them from here
            importlib.import_module(module)
        first, counts, failures = _resumed(options.log)
        log = open(options.log, "a") if options.log else contextlib.nullcontext()
        start = time.perf_counter()
        with log as file:
            for line in run(range(first, options.cases), names, options.seed, workplace):
                counts[line["outcome"]] = counts.get(line["outcome"], 0) + 1
                if line["outcome"] not in ("refused", "accepted"):
                    failures.append(line)
                    print(json.dumps(line), flush=True)
                if file:
                    print(json.dumps(line), file=file, flush=True)
    seconds = time.perf_counter() - start
    print(json.dumps({"cases": options.cases, "seed": options.seed, "seconds": round(seconds, 1), **counts}))
    return 1 if failures else 0


def _resumed(log):
    """(first case, counts, failures) of a log that is there."""
    counts, failures, first = {}, [], 0
    if log and log.exists():
        for line in map(json.loads, log.read_text().splitlines()):
            counts[line["outcome"]] = counts.get(line["outcome"], 0) + 1
            first = line["case"] + 1
            if line["outcome"] not in ("refused", "accepted"):
                failures.append(line)
    return first, counts, failures


def repeat(options, names, workplace):
    """One case, with its traceback."""
    from .kinds import KINDS

    name = names[options.only % len(names)]
    make_valid([name], workplace)
    restore(workplace, name)
    valid = KINDS[name].read(workplace / name)
    for path, content in damage(KINDS[name], name, workplace / name, options.seed, options.only).items():
        print(f"{path.name}: {content[:2000]!r}\n  -> {path.read_bytes()[:2000]!r}")
    KINDS[name].check(workplace / name, KINDS[name].read(workplace / name), valid)
    print("accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
