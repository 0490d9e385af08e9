"""Kills pretraining runs at seeded moments of their whole course, continues them, and compares with a run left alone.

python tests/fuzz/kills.py --kills 100 --work runs/kills

A cell is one run of one family that is killed `--each` times before it may end. Every kill falls after a step that the
seed draws, from the start of the process to the end of the run, and a moment later: within a step, a checkpoint, a row
of the log, or the saving of the model. What must be equal to the bit: all variables of the last checkpoint, the files
of the saved model, and the rows of log.jsonl and log.csv but for what a clock says. A cell that is done is a line of
WORK/cells.jsonl, and the same command goes on with the others; it ends with 1 if a cell differs.

With `--devices fsdp`, weights are divided among four simulated devices, and their checkpoints are written while the
next steps are computed.
"""

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

RUN = ("steps=12", "batch_size=4", "length=16", "warmup=2", "model.num_layers=1", "model.hidden_dim=16")
RUN += ("model.num_heads=2", "model.feed_forward_dim=24")
DROPOUT = ("model.dropout=0.1",)
FAMILIES = {
    "bert": ("bert.tiny", "wordpiece", (*DROPOUT, "data.rows.passes=2")),
    "electra": (
        "electra.tiny",
        "wordpiece",
        (
            *(
                "accumulation=2",
                "batch_size=8",
                *DROPOUT,
                "model.embedding_dim=8",
                "model.objective.generator.embedding_dim=8",
            ),
            *(
                "model.objective.generator.num_layers=1",
                "model.objective.generator.hidden_dim=8",
                "model.objective.generator.feed_forward_dim=12",
            ),
        ),
    ),
    "t5": ("t5.tiny", "unigram", (*DROPOUT, "model.head_dim=8")),
    "transformer_xl": (
        "transformer_xl.tiny",
        "wordpiece",
        (*DROPOUT, "model.head_dim=8", "model.cutoffs=(40,)", "model.memory_length=16"),
    ),
    "xlnet": (
        "xlnet.tiny",
        "wordpiece",
        (
            *(*DROPOUT, "model.memory_length=8", "data.reuse_length=8"),
            "held_out.batch_size=2",
        ),
    ),
}
STEPS = {name: 24 if "accumulation=2" in options else 12 for name, (_, _, options) in FAMILIES.items()}
PAUSE = 0.05  # seconds before every step: the steps of such small models are too short to be hit
CLOCK = ("seconds", "tokens_per_second")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=Path("runs/kills"), help="folder for corpora, runs and cells.jsonl"
    )
    parser.add_argument("--kills", type=int, default=100, help="of all families together")
    parser.add_argument("--each", type=int, default=4, help="kills of one run")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--signal", choices=("SIGKILL", "SIGINT", "SIGTERM"), default="SIGKILL")
    parser.add_argument("--devices", choices=("data", "fsdp", "tensor=2"), help="a layout of four simulated devices")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.devices:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"
        # A collective blocks a thread on each simulated device. With few threads, they can block each other.
        os.environ["PJRT_NPROC"] = "32"
        os.environ["KILLED_RUN_DEVICES"] = options.devices
    write_corpora(options.work)
    path = options.work / "cells.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {cell["cell"]: cell for cell in done}
    found = []
    for number in range(-(-options.kills // options.each)):
        family = options.families[number % len(options.families)]
        kills = min(options.each, options.kills - number * options.each)
        name = f"{family}-{options.signal}-{options.seed}-{number}-{kills}"
        name += f"-{options.devices}" if options.devices else ""
        if name not in done:
            done[name] = {"cell": name, **cell(options, family, name, kills)}
            with open(path, "a") as file:
                file.write(json.dumps(done[name]) + "\n")
        found.append(done[name])
        print(json.dumps(done[name]), flush=True)
    differing = [each["cell"] for each in found if each["differs"]]
    kills = sum(kill["killed"] for each in found for kill in each["kills"])
    print(
        f"{kills} kills in {len(found)} runs; {len(differing)} runs differ{': ' if differing else ''}{differing or ''}"
    )
    sys.exit(bool(differing))


def write_corpora(work):
    """A corpus and a held-out one for each kind of tokenizer: documents of random words."""
    from kerasbert.data import Corpus, Tokenizer

    words = [
        "the",
        "cat",
        "dog",
        "sat",
        "ran",
        "big",
        "small",
        "house",
        "tree",
        "red",
        *(f"word{i}" for i in range(30)),
    ]
    draw = random.Random(0)
    documents = ["\n".join(" ".join(draw.choices(words, k=8)) for _ in range(4)) for _ in range(60)]
    for kind, size, family in (("wordpiece", 90, None), ("unigram", 140, "t5")):
        tokenizer = Tokenizer.train(kind, documents, size, family=family)
        for name, part in (("corpus", documents[6:]), ("held_out", documents[:6])):
            if not (work / kind / name / "corpus.json").exists():
                Corpus.write(work / kind / name, part, tokenizer)


def cell(options, family, name, kills):
    """Kills and continues one run, and compares it with the run of its family that nobody disturbs."""
    whole, run = options.work / f"whole_{options.devices or ''}" / family, options.work / "runs" / name
    if not (whole / "model" / "kerasbert.json").exists():
        assert train(options.work, family, whole).returncode == 0, f"see {whole.with_suffix('.txt')}"
    draw = random.Random(f"{options.seed} {name}")
    steps = sorted(draw.randint(0, STEPS[family]) for _ in range(kills))
    found = []
    for step in steps:
        delay = round(draw.uniform(0, 6.0 if step == 0 else 4 * PAUSE), 3)  # at step 0 the process is starting
        process = train(options.work, family, run, step, delay, options.signal)
        killed = process.returncode in (-signal.SIGKILL, -signal.SIGINT, 130, -signal.SIGTERM, 143)
        if not killed and process.returncode:
            return {"kills": found, "differs": f"a process failed: {run.with_suffix('.txt')}"}
        found.append({"step": step, "delay": delay, "killed": killed, "resumes_at": newest(run)})
    if train(options.work, family, run).returncode:
        return {"kills": found, "differs": f"the last process failed: {run.with_suffix('.txt')}"}
    return {"kills": found, "differs": differences(run, whole)}


def newest(run):
    steps = [int(path.stem[5:]) for path in run.glob("checkpoints/step_*.json")]
    return max(steps, default=0)


def train(work, family, run, *kill):
    """One process of a run; its output is appended to RUN.txt."""
    command = [sys.executable, __file__, "child", str(work.resolve()), family, str(run.resolve()), *map(str, kill)]
    run.parent.mkdir(parents=True, exist_ok=True)
    with open(run.with_suffix(".txt"), "a") as log:
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)


def child(work, family, run, step=None, delay="0", name="SIGKILL"):
    """`pretrain`, in a process that gets a signal so many seconds after a step of the run."""

    def fire():
        time.sleep(float(delay))
        os.kill(os.getpid(), getattr(signal, name))

    if step == "0":
        threading.Thread(target=fire, daemon=True).start()
    from kerasbert.backend import layouts
    from pipelines import pretrain as module
    from pipelines.command_line.command import command

    recipe, kind, options = FAMILIES[family]
    layouts.SMALLEST = 2**6  # the weights are small

    class Progress(module.Progress):
        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(PAUSE)

        def on_steps(self, logs):
            super().on_steps(logs)
            if step is not None and self.step >= int(step) and not hasattr(self, "fired"):
                self.fired = threading.Thread(target=fire, daemon=True).start()

    module.Progress = Progress
    arguments = ["--recipe", recipe, "--corpus", f"{work}/{kind}/corpus", "--held-out", f"{work}/{kind}/held_out"]
    arguments += ["--held-out-steps", "2", "--report-every", "3", "--run", run, "--set", *RUN, *options]
    if "KILLED_RUN_DEVICES" in os.environ:
        arguments += ["--devices", os.environ["KILLED_RUN_DEVICES"]]
    sys.argv[1:] = arguments
    command(module.pretrain)


def differences(run, whole):
    """What of two runs is not the same; "" if nothing."""
    import numpy as np
    from safetensors.numpy import load_file

    if arrays_of(run) != arrays_of(whole):
        return "the arrays of the sharded checkpoints differ"
    for path in sorted(whole.rglob("*")):
        name = path.relative_to(whole)
        if any(part.startswith("step_") and "." not in part for part in name.parts):  # a sharded checkpoint
            continue
        if not path.is_file() or path.suffix in (".png", ".md"):
            continue
        if not (run / name).exists():
            return f"{name} is missing"
        if path.suffix == ".safetensors":
            ours, theirs = load_file(run / name), load_file(path)
            if ours.keys() != theirs.keys() or any(not np.array_equal(ours[key], theirs[key]) for key in theirs):
                return f"{name} differs"
        elif path.suffix == ".jsonl" or path.suffix == ".csv":
            if rows(run / name) != rows(path):
                return f"{name} differs"
        elif path.name == "kerasbert.json":
            ours, theirs = ({**json.loads(file.read_text()), "save": None} for file in (run / name, path))
            if ours != theirs:  # but for the random id
                return f"{name} differs"
        elif "checkpoints" not in name.parts and (run / name).read_bytes() != path.read_bytes():
            return f"{name} differs"
    left = [path.name for path in run.rglob(".*")]
    return f"left behind: {left}" if left else ""


def arrays_of(run):
    """{(checkpoint, name): shape, dtype and bytes} of the arrays of sharded checkpoints."""
    folders = [path for path in sorted((run / "checkpoints").glob("step_*")) if path.is_dir()]
    if not folders:
        return {}
    import numpy as np
    import orbax.checkpoint as ocp

    reader = ocp.PyTreeCheckpointer()
    found = {}
    for folder in folders:
        names = reader.metadata(folder.absolute()).item_metadata.tree
        kinds = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
        arrays = reader.restore(folder.absolute(), restore_args=kinds)
        found |= {(folder.name, name): (x.shape, x.dtype.name, x.tobytes()) for name, x in arrays.items()}
    return found


def rows(path):
    with open(path, newline="") as file:
        found = list(csv.DictReader(file)) if path.suffix == ".csv" else [json.loads(line) for line in file]
    return [{key: value for key, value in row.items() if key not in CLOCK} for row in found]


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
