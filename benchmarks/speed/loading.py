"""Time and memory to load a folder of the size of BERT-base, and to compute a first output, against transformers.

    KERAS_BACKEND=torch python -m benchmarks.speed.loading --rounds 7

The folder has random weights in float32. Each load is a process of its own, and the libraries take turns. The time
begins after the imports; the memory is the peak from then on, less what the process has at that moment.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("kerasbert", "transformers")
CLASSES = {"Backbone": "BertModel", "MaskedLM": "BertForMaskedLM"}  # {ours: theirs}
IDS = [[101, 7592, 2088, 102]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model-class", choices=CLASSES, default="MaskedLM")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(loaded(*options.worker, options.model_class)))
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", WRITE, folder, options.model_class, str(options.layers)], check=True)
        measured: dict[str, list[dict]] = {library: [] for library in LIBRARIES}
        for turn in range(options.rounds + 1):
            for library in LIBRARIES[:: 1 if turn % 2 else -1]:
                command = [sys.executable, "-m", "benchmarks.speed.loading", "--model-class", options.model_class]
                run = subprocess.run(
                    [*command, "--worker", library, folder], capture_output=True, text=True, check=True, cwd=ROOT
                )
                if turn:  # the first turn brings the file into the cache of the system
                    measured[library].append(json.loads(run.stdout.splitlines()[-1]))
    print(json.dumps(summary(measured), indent=1))


WRITE = """
import sys
from kerasbert.models import Bert
from kerasbert.objectives import MaskedLM

sizes = dict(pooler=sys.argv[2] == "Backbone", num_layers=int(sys.argv[3]))
backbone = Bert.from_preset("bert_base", load_weights=False, **sizes)
(backbone if sys.argv[2] == "Backbone" else MaskedLM(backbone)).save_to_preset(sys.argv[1])
"""


def loaded(library: str, folder: str, model_class: str) -> dict:
    """Loads the folder with one library. Returns seconds and bytes, and a number from the output."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    load, call = _kerasbert(model_class) if library == "kerasbert" else _transformers(model_class)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.perf_counter()
    model = load(folder)
    seconds, peak = time.perf_counter() - start, _status("VmHWM")
    output = call(model)
    return {
        "load_seconds": seconds,
        "output_seconds": time.perf_counter() - start,
        "load_bytes": peak - before,
        "output_bytes": _status("VmHWM") - before,
        "output": output,
    }


def _kerasbert(model_class):
    import keras
    import numpy as np

    import kerasbert

    def call(model):
        found = model({"token_ids": np.array(IDS, "int32")})
        found = found["sequence_output"] if isinstance(found, dict) else found
        return float(keras.ops.sum(keras.ops.abs(found)))

    cls = {"Backbone": kerasbert.models.Backbone, "MaskedLM": kerasbert.objectives.MaskedLM}[model_class]
    return cls.from_preset, call


def _transformers(model_class):
    import torch
    import transformers

    cls = getattr(transformers, CLASSES[model_class])

    def call(model):
        with torch.no_grad():
            return float(model(torch.tensor(IDS))[0].abs().sum())

    return lambda folder: cls.from_pretrained(folder).eval(), call


def _status(name):
    """A figure of /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def summary(measured: dict[str, list[dict]]) -> dict:
    """The medians of each library, and the median, lowest and highest of the ratios of the turns."""
    ours, theirs = (measured[library] for library in LIBRARIES)
    found = {}
    for name in ("load_seconds", "output_seconds", "load_bytes", "output_bytes"):
        ratios = sorted(one[name] / other[name] for one, other in zip(ours, theirs, strict=True))
        medians = {key: round(statistics.median(row[name] for row in rows), 3) for key, rows in measured.items()}
        found[name] = {**medians, "ratio": [round(r, 3) for r in (statistics.median(ratios), ratios[0], ratios[-1])]}
    return {**found, "outputs": [rows[0]["output"] for rows in measured.values()]}


if __name__ == "__main__":
    main()
