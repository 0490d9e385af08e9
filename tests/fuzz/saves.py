"""Kills saves, exports and fine-tunings after every file, and lets two writers and a reader share a folder.

python tests/fuzz/saves.py --work runs/saves --kills 200 --seconds 30

A folder with an old model gets a new one in a process that is killed after it has renamed a number of files, or after a
random time. The folder must then have the old model, the new one, or be refused; never labels, tokens and weights of
both, and never scores or predictions of another model. The results are printed, and the script ends with 1 for any
mixture. It takes a few minutes.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are forked
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import kerasbert  # noqa: E402
from kerasbert.data import Tokenizer  # noqa: E402
from kerasbert.data.text.files import digest_of  # noqa: E402
from kerasbert.exporting import writing  # noqa: E402
from kerasbert.exporting.worker import export_folder  # noqa: E402
from kerasbert.models import Bert, BertConfig  # noqa: E402
from kerasbert.tasks import TextClassifier  # noqa: E402
from pipelines.finetune import finetune  # noqa: E402
from pipelines.runs.task_options import Training  # noqa: E402

REFUSED = (ValueError, FileNotFoundError)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/saves"), help="folder for the models; removed first")
    parser.add_argument("--kills", type=int, default=200, help="of saves, exports and fine-tunings together")
    parser.add_argument("--seconds", type=float, default=30, help="of two writers and a reader")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    draw, models = random.Random(options.seed), {"old": model(0), "new": model(1)}
    shares = {Saves: 0.6, Exports: 0.25, FineTunings: 0.15}
    failed = False
    for kind, share in shares.items():
        found = kills(kind(options.work / kind.__name__, models), round(share * options.kills), draw)
        print(f"{kind.__name__}: {sum(found.values())} kills, {dict(found)}", flush=True)
        failed |= bool(found["mixture"])
    found = together(options.work / "together", models, options.seconds)
    print(f"two writers and a reader: {dict(found)}")
    sys.exit(failed or bool(found["mixture"]))


def model(seed):
    """A tiny classifier with its own words, labels and weights."""
    draw = np.random.default_rng(seed)
    words = " ".join("".join(letters) for letters in draw.choice(list("abcdefgh"), (60, 4)))
    tokenizer = Tokenizer.train("wordpiece", [words] * 5, 48)
    sizes = dict(num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=32)
    made = TextClassifier(Bert(BertConfig(48, **sizes)), labels=[f"{seed}a", f"{seed}b"], tokenizer=tokenizer)
    for weight in made.weights:
        if weight.dtype.startswith("float"):
            weight.assign(draw.normal(0, 0.2, weight.shape).astype("float32"))
    return made


def facts(folder):
    """What must be of one model: labels, tokens, and an answer that depends on all weights."""
    loaded = kerasbert.load(folder)
    answer = loaded.predict(["abcd efgh abab"], verbose=0)
    return loaded.labels, loaded.tokenizer.tokens, np.round(np.asarray(answer, "float64"), 4).tolist()


# === Kills ===


class Saves:
    """`save_to_preset` over another model."""

    def __init__(self, work, models):
        self.models, self.whole = models, {}
        for name in models:
            models[name].save_to_preset(work / name)
            self.whole[name] = facts(work / name)
        self.work = work

    def write(self, folder):
        self.models["new"].save_to_preset(folder)

    def state(self, folder):
        try:
            found = facts(folder)
        except REFUSED:
            return "refused"
        return next((name for name, whole in self.whole.items() if whole == found), "mixture")


class Exports(Saves):
    """`export` over another export. The exporter copies a program that was made before, which takes less time."""

    def __init__(self, work, models):
        self.work, self.models, self.whole, self.made = work, models, {}, work / "made"
        writing.run_exporter = lambda order: export_folder(**json.loads(json.dumps(order)))
        for name in models:
            kerasbert.export(models[name], work / name)
            self.whole[name] = facts(work / name)
        shutil.copytree(work / "new", self.made)
        writing.run_exporter = lambda order: shutil.copytree(self.made, order["output"], dirs_exist_ok=True)

    def write(self, folder):
        kerasbert.export(self.models["new"], folder)


class FineTunings(Saves):
    """`finetune` over the results of another fine-tuning, which are a model, scores, predictions and a card."""

    def __init__(self, work, models):
        super().__init__(work, models)
        for name, labels in (("old", "xy"), ("new", "uv")):
            rows = [f"abcd {i % 2} efgh,{labels[i % 2]}" for i in range(8)]
            (work / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
        shutil.rmtree(work / "old")
        self.write(work / "old", "old")
        self.labels = {"old": ["x", "y"], "new": ["u", "v"]}

    def write(self, folder, name="new"):
        data, base = str(self.work / f"{name}.csv"), str(self.work / "new")
        sys.stdout = open(os.devnull, "w")
        try:
            finetune(base, data, folder, held_out=(data,), training=Training(epochs=1, batch_size=8))
        finally:
            sys.stdout = sys.__stdout__

    def state(self, folder):
        metrics = folder / "metrics.json"
        answers = list(folder.glob("predictions*.jsonl"))
        expected = {json.loads(line)["expected"] for path in answers for line in path.read_text().splitlines()}
        try:
            labels = kerasbert.load(folder).labels
        except REFUSED:
            return "refused"
        name = next((name for name, known in self.labels.items() if known == labels), None)
        same = name is not None and expected <= set(labels)
        if same and metrics.exists():
            save, saved = json.loads(metrics.read_text())["save"], json.loads((folder / "kerasbert.json").read_text())
            same = save["id"] == saved["save"]["id"]
            same &= all(digest_of(folder / file) == digest for file, digest in save["files"].items())
        return name if same else "mixture"


def kills(kind, count, draw):
    """Counts the states of folders after processes that were killed."""
    found, started, folder = collections.Counter(), time.perf_counter(), kind.work / "folder"
    shutil.copytree(kind.work / "old", folder)
    forked(lambda: kind.write(folder))
    seconds, number = time.perf_counter() - started, 0
    for _ in range(count):
        shutil.rmtree(folder)
        shutil.copytree(kind.work / "old", folder)
        if draw.random() < 0.8:
            number += 1
            killed = forked(lambda: kind.write(folder), after_files=number)
            if not killed:  # there are no more files
                number = 0
        else:
            forked(lambda: kind.write(folder), after_seconds=draw.uniform(0, seconds))
        state = kind.state(folder)
        found[state] += 1
        if state == "mixture":
            shutil.copytree(folder, kind.work / f"mixture_{found[state]}")
    kind.write(folder)
    assert kind.state(folder) == "new" and not list(folder.rglob(".*")), list(folder.rglob(".*"))
    return found


def forked(function, after_files=None, after_seconds=None):
    """Calls a function in another process, which is killed. Returns whether it was."""
    process = os.fork()
    if not process:
        try:
            if after_files is not None:
                die_after(after_files)
            if after_seconds is not None:
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, max(after_seconds, 1e-3))
            function()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    status = os.waitpid(process, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def die_after(files):
    """Kills this process after it has renamed a number of files."""
    replace, left = os.replace, iter(range(files - 1))

    def counted(*arguments, **options):
        replace(*arguments, **options)
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = counted


# === Two writers and a reader ===


def together(folder, models, seconds):
    """Two processes save different models to one folder, over and over, while this one loads it."""
    saves = Saves(folder, models)
    shared, found, writers = folder / "shared", collections.Counter(), []
    models["old"].save_to_preset(shared)
    for name in models:
        process = os.fork()
        if not process:
            while True:
                models[name].save_to_preset(shared)
        writers.append(process)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found[saves.state(shared)] += 1
    for process in writers:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    models["old"].save_to_preset(shared)
    assert saves.state(shared) == "old" and not list(shared.rglob(".*"))
    return found


if __name__ == "__main__":
    main()
