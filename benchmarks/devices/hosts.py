"""Runs of two processes with four simulated devices each, compared with one process of one device.

    KERAS_BACKEND=jax python -m benchmarks.devices.hosts --work runs/hosts

The processes are real ones, which find each other at a port of this machine as those of two hosts would; their devices
are parts of its processor. For each family and layout: the rows that each process reads, the losses of `--steps` steps,
and those of a run that loses a process by SIGKILL, ends, and is started again, by two processes, and by one process of
four devices and of one. A cell that is done is a line of WORK/cells.jsonl, and the same command goes on with the rest.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("batch_size=8", "length=16", "warmup=2", "model.hidden_dim=32", "model.num_heads=4")
SMALL += ("model.feed_forward_dim=64", "model.num_layers=2", "model.dropout=0.1")
ELECTRA = (
    "model.embedding_dim=16",
    "model.objective.generator.embedding_dim=16",
    "model.objective.generator.num_layers=1",
)
ELECTRA += (
    "model.objective.generator.hidden_dim=16",
    "model.objective.generator.num_heads=2",
    "model.objective.generator.feed_forward_dim=32",
)
FAMILIES = {
    "bert": ("bert.tiny", "wordpiece", ("data.rows.passes=2", "data.static_masks=2")),
    "bert_accumulated": (
        "bert.tiny",
        "wordpiece",
        ("data.rows.passes=2", "data.static_masks=2", "batch_size=16", "accumulation=2"),
    ),
    "bert_packed": (
        "bert.tiny",
        "wordpiece",
        ("data.rows=packed",),
    ),
    "t5": ("t5.tiny", "unigram", ("model.head_dim=8",)),
    "electra": ("electra.tiny", "wordpiece", ELECTRA),
    "transformer_xl": (
        "transformer_xl.tiny",
        "wordpiece",
        ("model.head_dim=8", "model.cutoffs=()", "model.memory_length=16"),
    ),
    "xlnet": (
        "xlnet.tiny",
        "wordpiece",
        ("model.memory_length=8", "data.reuse_length=8"),
    ),
}


def recipe_of(family: str, steps: int):
    from pipelines.recipes.recipe import find_recipe

    name, _, settings = FAMILIES[family]
    return find_recipe(name).with_settings([*SMALL, f"steps={steps}", *settings])


def documents() -> list[str]:
    """Documents of random words."""
    words = "the cat dog sat ran big small house tree red".split() + [f"word{i}" for i in range(30)]
    draw = random.Random(0)
    return ["\n".join(" ".join(draw.choices(words, k=8)) for _ in range(4)) for _ in range(200)]


def corpus_of(kind: str):
    from kerasbert.data import Corpus, Tokenizer

    size, family = {"wordpiece": (90, None), "unigram": (140, "t5")}[kind]
    return Corpus.in_memory(documents(), Tokenizer.train(kind, documents(), size, family=family))


# === One process ===


def train(family: str, layout: str, steps: int, folder: Path, stop: int | None = None) -> dict:
    """Trains, and returns the losses of the steps, and the numbers of rows that this process has read of a batch.

    Args:
        layout: "alone", or the layout of all devices.
        folder: for checkpoints, which are saved after every step, if its name is "kept".
        stop: after this step, the last process of several kills itself.
    """
    import keras

    from kerasbert.backend import connect, layouts, parallel, seed_everything
    from kerasbert.backend.hosts import is_first_process, num_processes
    from kerasbert.training import Checkpoints
    from pipelines.runs.building import make_batches, make_model, make_optimizer

    connect()
    layouts.SMALLEST = 2**8  # the weights are small
    if layout != "alone":
        keras.distribution.set_distribution(parallel(layout))
    recipe, corpus = recipe_of(family, steps), corpus_of(FAMILIES[family][1])
    batches = make_batches(recipe, {"text": corpus})
    seed_everything(recipe.seed)
    model = make_model(recipe, corpus)
    model.compile(make_optimizer(recipe))
    if family == "electra":  # samples differ where two tokens are equally likely up to rounding error
        model._sample = lambda logits, training: given_samples(logits)
    losses, read = {}, set()

    class Notes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            losses[epoch + 1] = logs["loss"]
            if epoch + 1 == stop and not is_first_process():
                os.kill(os.getpid(), signal.SIGKILL)

    check = model.check_batch
    model.check_batch = lambda x, *rest: (read.add(len(x["token_ids"])), check(x, *rest))
    kept = [Checkpoints(folder / "checkpoints", keep=2)] if folder.name == "kept" else []
    model.fit(batches, steps_per_epoch=recipe.accumulation, callbacks=[*kept, Notes()], verbose=0)
    return {"losses": losses, "read": sorted(read), "rows": batches.rows, "processes": num_processes()}


def child(family: str, layout: str, steps: str, folder: str, stop: str = "") -> None:
    """`train`, whose result the first process writes to FOLDER."""
    sys.path.insert(0, str(ROOT))
    from kerasbert.backend.hosts import is_first_process

    result = train(family, layout, int(steps), Path(folder), int(stop) if stop else None)
    if is_first_process():
        Path(folder, "losses.json").write_text(json.dumps(result))


def given_samples(logits):
    """Tokens that depend on the place only."""
    from keras import ops

    rows, slots, vocabulary = logits.shape
    return ops.reshape(ops.arange(rows * slots, dtype="int32") * 7 % vocabulary, (rows, slots))


# === All processes of a run ===


def start(commands: list[list[str]], folder: Path, devices: int) -> list[subprocess.Popen]:
    """Starts the processes of a run, which find each other if there are several.

    Args:
        commands: the command of each process.
        folder: for the output of process n, in process_n.txt.
        devices: number of simulated devices of each process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    # A collective blocks a thread on each simulated device. With as many threads as cores, they can block each other.
    environment["PJRT_NPROC"] = "32"
    if len(commands) > 1:
        environment["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = f"127.0.0.1:{port}"
        environment["KERAS_DISTRIBUTION_NUM_PROCESSES"] = str(len(commands))
    started = []
    for index, command in enumerate(commands):
        environment["KERAS_DISTRIBUTION_PROCESS_ID"] = str(index)
        with open(folder / f"process_{index}.txt", "w") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT))
    return started


def wait(started: list[subprocess.Popen], folder: Path) -> list[tuple[int, str]]:
    """Waits for the processes that `start` has started, at most an hour. Returns [(exit status, output)]."""
    deadline = time.monotonic() + 3_600
    codes = [process.wait(max(1, deadline - time.monotonic())) for process in started]
    return [(code, (folder / f"process_{index}.txt").read_text()) for index, code in enumerate(codes)]


def run(
    family: str, layout: str, steps: int, folder: Path, processes: int = 2, devices: int = 4, stop: int | None = None
) -> list[tuple[int, str]]:
    """Trains in several processes: `train` with these arguments. Returns [(exit status, output)]."""
    command = [sys.executable, "-m", __spec__.name, "child", family, layout, str(steps), str(folder)]
    command += [] if stop is None else [str(stop)]
    return wait(start([command] * processes, folder, devices), folder)


def result_of(folder: Path) -> dict:
    """The result of `train` that the first process has written; its losses are a list."""
    found = json.loads((folder / "losses.json").read_text())
    return {**found, "losses": [found["losses"][key] for key in sorted(found["losses"], key=int)]}


# === The comparison ===


def cell(work: Path, family: str, layout: str, steps: int) -> dict:
    """One family and layout: two processes, beside one; then the same with a process that is killed."""
    alone, both, kept = (work / family / name for name in ("alone", layout, f"{layout}_killed/kept"))
    if not (alone / "losses.json").exists():
        run(family, "alone", steps, alone, processes=1, devices=1)
    expected = result_of(alone)["losses"]
    outputs = run(family, layout, steps, both)
    if any(code for code, _ in outputs):
        return {"error": outputs[0][1][-2_000:]}
    found = result_of(both)
    killed = run(family, layout, steps, kept, stop=steps // 2)
    newest = max(int(path.stem[5:]) for path in kept.glob("checkpoints/step_*.json")) // accumulation_of(family)
    result = {
        "read": found["read"],
        "rows": found["rows"],
        "difference_10": difference(found["losses"][:10], expected[:10]),
        "difference": difference(found["losses"], expected),
        "steps": steps,
        "exit_statuses": [code for code, _ in killed],
        "names_the_host": "process 1 on" in killed[0][1].rpartition("HostLost: ")[2].partition(" has ended")[0],
        "resumes_at": newest,
    }
    checkpoints = kept / "checkpoints"
    for name, processes, devices, how in (("2x4", 2, 4, layout), ("1x4", 1, 4, layout), ("1x1", 1, 1, "alone")):
        folder = work / family / f"{layout}_resumed_{name}" / "kept"
        shutil.copytree(checkpoints, folder / "checkpoints", dirs_exist_ok=True)
        if any(code for code, _ in run(family, how, steps, folder, processes, devices)):
            return {**result, "error": f"see {folder}"}
        result[f"resumed_{name}"] = difference(result_of(folder)["losses"], expected[newest:])
    return result


def accumulation_of(family: str) -> int:
    return 2 if "accumulation=2" in FAMILIES[family][2] else 1


def difference(losses: list[float], expected: list[float]) -> float:
    """The largest relative difference."""
    assert len(losses) == len(expected) > 0, (len(losses), len(expected))
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/hosts"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["bert", "t5", "electra", "transformer_xl"])
    parser.add_argument("--layouts", nargs="+", default=["data", "fsdp"])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.work / "cells.jsonl"
    done = {cell["cell"] for cell in map(json.loads, path.read_text().splitlines())} if path.exists() else set()
    for family in options.families:
        for layout in options.layouts:
            name = f"{family} {layout} {options.steps}"
            if name not in done:
                found = {"cell": name, **cell(options.work.resolve(), family, layout, options.steps)}
                with open(path, "a") as file:
                    file.write(json.dumps(found) + "\n")
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
