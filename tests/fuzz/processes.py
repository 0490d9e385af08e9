"""Runs `pretrain` with two real processes: a run that is stopped and continued, and mistakes that both must report.

python tests/fuzz/processes.py --work runs/processes

Each process has two simulated devices. One of them gets a SIGTERM: both must end with the exit status 143 at the same
step, and the same command must continue to the bits of a run that nobody stops. A mistake in the arguments or in the
files of one process, or of both, must be reported by both before a training step is compiled. Each case that is done is
a line of WORK/cells.jsonl, and the same command goes on with the others; it ends with 1 if a case fails.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from safetensors.numpy import load_file  # noqa: E402

from benchmarks.devices.hosts import documents, start, wait  # noqa: E402
from tests.fuzz.kills import rows  # noqa: E402

RUN = ("batch_size=8", "length=16", "warmup=2", "model.num_layers=1", "model.hidden_dim=128")
RUN += ("model.num_heads=4", "model.feed_forward_dim=256", "data.rows.passes=2", "model.dropout=0.1")
STOP_AFTER = 20  # steps, of 60
DEVICES = 2  # of a process
COMPILED = "jit(train_step)"  # what JAX says when it compiles a training step


def command(run: Path, corpus: Path, *settings: str, devices: str | None = "fsdp") -> list[str]:
    """The command line of one process."""
    arguments = ["-m", "pipelines.pretrain", "bert.tiny", "--corpus", str(corpus), "--run", str(run)]
    arguments += ["--report-every", "10", *(["--devices", devices] if devices else [])]
    return [sys.executable, *arguments, "--set", "steps=60", *RUN, *settings]


# === A run that is stopped and continued ===


def stopped(work: Path, corpora: dict[str, Path]) -> str:
    """What is wrong with a run that is stopped by a SIGTERM of one process, and continued; "" if nothing."""
    whole, run = work / "whole", work / "stopped"
    for folder in (whole, run):
        shutil.rmtree(folder, ignore_errors=True)
    ended = wait(start([command(whole, corpora["good"])] * 2, work / "whole_output", DEVICES), work / "whole_output")
    if [code for code, _ in ended] != [0, 0]:
        return f"the undisturbed run ended with {ended}"
    said = [line for line in ended[1][1].splitlines() if line.strip() and "[Gloo]" not in line]
    if said:
        return f"the second process printed {said[:3]}"

    def both() -> list:
        return start([command(run, corpora["good"])] * 2, work / "stopped_output", DEVICES)

    processes = both()
    while not (run / "log.jsonl").exists() or len((run / "log.jsonl").read_text().splitlines()) * 10 < STOP_AFTER:
        if any(process.poll() is not None for process in processes):
            return f"a process ended early: see {work / 'stopped_output'}"
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    ended = wait(processes, work / "stopped_output")
    if [code for code, _ in ended] != [143, 143]:
        return f"expected the exit statuses 143 and 143, found {ended}"
    step = re.search(r"stopped after step (\d+) of 60", ended[0][1])
    if step is None or not STOP_AFTER <= int(step[1]) < 60:
        return f"expected a stop between steps {STOP_AFTER} and 60: {ended[0][1]}"
    ended = wait(both(), work / "stopped_output")
    if [code for code, _ in ended] != [0, 0]:
        return f"the continued run ended with {ended}"
    for text in (f"continuing from step {step[1]} of 60", "goodput"):
        if text not in ended[0][1]:
            return f"the continued run does not say {text!r}: {ended[0][1]}"
    for name in ("log.jsonl", "log.csv"):
        if rows(run / name) != rows(whole / name):
            return f"{name} differs"
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (run, whole))
    if ours.keys() != theirs.keys() or any(ours[name].tobytes() != theirs[name].tobytes() for name in theirs):
        return "the model differs"
    print(f"stopped after step {step[1]}; {re.search('goodput.*', ended[0][1])[0]}", flush=True)
    return ""


# === Mistakes ===


def write_corpora(work: Path) -> dict[str, Path]:
    """Writes a corpus, another one, one of shards, and shards with mistakes. Returns their folders."""
    from kerasbert.data import Tokenizer
    from pipelines.prepare_corpus import prepare_corpus

    names = ("good", "other", "sharded", "shard_missing", "shard_of_another", "outside")
    folders = {name: work / "corpora" / name for name in names}
    shutil.rmtree(work / "corpora", ignore_errors=True)
    texts, text = documents(), work / "corpora" / "text.txt"
    text.parent.mkdir(parents=True)
    text.write_text("\n\n".join(texts))
    for size in (90, 80):
        Tokenizer.train("wordpiece", texts, size).save(work / "corpora" / f"tokenizer_{size}")

    def prepare(name: str, size: int, **options) -> None:
        prepare_corpus([str(text)], work / "corpora" / f"tokenizer_{size}", folders[name], **options)

    prepare("good", 90)
    for name, size in (("sharded", 90), ("shard_missing", 90), ("outside", 90), ("shard_of_another", 80)):
        prepare(name, size, shards=3, block_documents=40)
    text.write_text("\n\n".join(texts[:-1]))
    prepare("other", 90)
    (folders["shard_missing"] / "shard-00001.bin").unlink()
    for path in folders["sharded"].glob("shard-00001.*"):
        shutil.copy(path, folders["shard_of_another"])
    record = json.loads((folders["outside"] / "corpus.json").read_text())
    record["shards"][1]["name"] = "../sharded/shard-00001"
    (folders["outside"] / "corpus.json").write_text(json.dumps(record))
    return folders


def mistakes(run: Path, corpora: dict[str, Path]) -> dict[str, tuple[list[str], list[str], str]]:
    """{name: (command of process 0, command of process 1, pattern that both outputs must match)}."""

    def of(corpus: str, *settings: str, **options) -> list[str]:
        return command(run, corpora[corpus], *settings, **options)

    good, small = of("good"), ("model.hidden_dim=16", "model.num_heads=2", "model.feed_forward_dim=32")
    missing = command(run, corpora["good"].with_name("missing"))
    same = "All processes must have the same recipe and data"
    return {
        "rows that 4 devices do not divide": (*[of("good", "batch_size=6")] * 2, "divisible by 4.*6 rows"),
        "another corpus": (good, of("other"), same),
        "another recipe": (good, of("good", "learning_rate=0.5"), f"{same}.*optimizer.schedule.peak=0.5"),
        "no corpus on one host": (good, missing, "missing"),
        "no corpus": (missing, missing, "missing"),
        "a shard is missing on one host": (of("sharded"), of("shard_missing"), "Missing: shard-00001.bin"),
        "a shard is missing": (*[of("shard_missing")] * 2, "Missing: shard-00001.bin"),
        "a shard of another tokenizer": (*[of("shard_of_another")] * 2, "shard-00001.json with hash"),
        "a shard outside": (*[of("outside")] * 2, r"\.\./sharded/shard-00001"),
        "nothing to divide": (*[of("good", *small)] * 2, "'fsdp' would divide none of the"),
        "heads that 2 devices do not divide": (
            *[of("good", "model.num_heads=1", devices="tensor")] * 2,
            "num_heads=1 and 2 devices",
        ),
        "no layout": (*[of("good", devices=None)] * 2, "2 processes and no --devices"),
        "a wrong option of one process": (good, of("good", "batch_sise=8"), "batch_sise"),
        "another layout": (good, of("good", devices="data"), "same.*devices"),
    }


def mistaken(commands: list[list[str]], pattern: str, output: Path, run: Path) -> str:
    """What is wrong with how two processes report a mistake; "" if nothing."""
    shutil.rmtree(run, ignore_errors=True)
    ended = wait(start(commands, output, DEVICES), output)
    if any(code != 1 for code, _ in ended):
        return f"expected the exit statuses 1 and 1, found {[code for code, _ in ended]}: see {output}"
    for number, (_, text) in enumerate(ended):
        if not re.search(pattern, text):
            return f"process {number} does not say {pattern!r}: see {output}"
        if "Traceback" in text or COMPILED in text:
            return f"process {number} prints a traceback, or compiles a training step: see {output}"
    left = [path.name for path in run.rglob("*.safetensors")]
    return f"left behind: {left}" if left else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/processes"), help="folder for all files")
    options = parser.parse_args()
    work, run = options.work.resolve(), options.work.resolve() / "mistaken"
    work.mkdir(parents=True, exist_ok=True)
    corpora = write_corpora(work)
    cells = work / "cells.jsonl"
    done = [json.loads(line) for line in cells.read_text().splitlines()] if cells.exists() else []
    done = {cell["case"]: cell["wrong"] for cell in done}
    cases = {"stopped and continued": None, **mistakes(run, corpora)}
    for name, case in cases.items():
        if name not in done:
            if case:
                os.environ["JAX_LOG_COMPILES"] = "1"
                done[name] = mistaken([case[0], case[1]], case[2], work / name.replace(" ", "_"), run)
            else:
                done[name] = stopped(work, corpora)
            with open(cells, "a") as file:
                file.write(json.dumps({"case": name, "wrong": done[name]}) + "\n")
        print(f"{name}: {done[name] or 'as expected'}", flush=True)
    sys.exit(any(done.values()))


if __name__ == "__main__":
    main()
