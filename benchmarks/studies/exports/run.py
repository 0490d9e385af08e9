"""Exports tiny models of every family with every head, and compares the artifacts with `predict`.

    python -m benchmarks.studies.exports.run --formats onnx            the cells that are not in rows.jsonl yet
    python -m benchmarks.studies.exports.run --only BERT,T5 --origins jax,tensorflow,torch
    python -m benchmarks.studies.exports.run --report                  writes report.md

A cell is a family, a head, a format and the backend on which the model was made. The models are saved by a process on
that backend, together with what `predict` gives there. Another process, on the backend that the exporter needs, writes
the artifacts as `kerasbert.export` does. Each artifact runs in the runtime of its format, for 1 and 8 rows of 7, 64 and
512 tokens. The latency is the median of 20 runs for one row of 64 tokens, with one thread. What fails has its message
in the table.
"""

import argparse
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("rows.jsonl")
REPORT = RESULTS.with_name("report.md")
SHAPES = [(rows, columns) for columns in (7, 64, 512) for rows in (1, 8)]
TIMED = (1, 64)
RUNS = 20
LONGEST = 300  # seconds for an export
TOLERANCE = 1e-4
KEY = ("family", "head", "format", "origin")


def inputs_of(model, rows: int, columns: int) -> dict[str, np.ndarray]:
    """A batch of random tokens with padding; every row has a [SEP], which some heads look for."""
    from kerasbert.exporting.signatures import input_names

    generator = np.random.default_rng(rows * columns)
    vocabulary = model.tokenizer.vocabulary_size
    shape = (rows, 3, columns) if type(model).__name__ == "MultipleChoice" else (rows, columns)
    names = ["", "decoder_"] if type(model).__name__ == "Seq2SeqLM" else [""]
    x = {}
    for prefix in names:
        x[f"{prefix}token_ids"] = generator.integers(4, vocabulary, shape, dtype="int32")
        real = np.ones(shape, bool)
        real[-1, ..., columns * 3 // 4 :] = False
        x[f"{prefix}padding_mask"] = real
        x[f"{prefix}token_ids"][..., 0] = model.tokenizer.id("[CLS]")
        x[f"{prefix}token_ids"][..., columns // 2] = model.tokenizer.id("[SEP]")
    if "segment_ids" in input_names(model):
        x["segment_ids"] = np.zeros(shape, "int32")
        if getattr(model.backbone.config, "num_segments", 1) > 1:
            x["segment_ids"][..., columns // 2 + 1 :] = 1
    return x


def save(folder: Path, wanted: list[list[str]]) -> None:
    """Saves models, and the inputs and outputs with which their artifacts are compared.

    Args:
        folder: gets a folder for each model.
        wanted: pairs (family, head).
    """
    from benchmarks.studies.exports.models import build

    for family, head in wanted:
        model, place = build(family, head), folder / f"{family} {head}"
        model.save_to_preset(place / "model")
        for rows, columns in SHAPES:
            x = inputs_of(model, rows, columns)
            y = model.predict(x, batch_size=rows, verbose=0)
            y = y if isinstance(y, dict) else {"": y}
            arrays = {f"x.{name}": array.astype("int32") for name, array in x.items()}
            np.savez(place / f"{rows}x{columns}.npz", **arrays, **{f"y.{name}": array for name, array in y.items()})


def measured(folder: Path, format: str) -> dict:
    """Exports the saved model, compares the artifact with the outputs of `predict`, and times it."""
    import kerasbert
    from kerasbert.exporting.runners import runner
    from kerasbert.exporting.worker import write

    started, export = time.perf_counter(), folder / f"export.{format}"
    export.mkdir()
    write(kerasbert.load(folder / "model"), export, format, names="kerasbert")
    seconds = time.perf_counter() - started
    described = json.loads((export / "kerasbert.json").read_text())["export"]
    run = runner(format, export / described["file"])
    worst, times = 0.0, []
    for rows, columns in SHAPES:
        arrays = np.load(folder / f"{rows}x{columns}.npz")
        x = {name: arrays[f"x.{name}"] for name in described["inputs"]}
        expected = {name[2:]: arrays[name] for name in arrays.files if name.startswith("y.")}
        found = run(x)
        for name, array in expected.items():
            theirs = found[name] if name in found else next(iter(found.values()))
            if theirs.shape != array.shape:
                raise ValueError(f"shape {theirs.shape} instead of {array.shape} for {rows} rows of {columns} tokens")
            real = x["decoder_padding_mask" if "decoder_padding_mask" in x else "padding_mask"] > 0
            if array.shape[: real.ndim] == real.shape:  # outputs at padding have no meaning
                theirs, array = theirs[real], array[real]
            worst = max(worst, float(np.abs(theirs - array).max()))
        if (rows, columns) == TIMED:
            for _ in range(RUNS + 3):
                started = time.perf_counter()
                run(x)
                times.append(time.perf_counter() - started)
    file = export / described["file"]
    files = [file] if file.is_file() else list(file.rglob("*"))
    files += [export / "model.bin"] if format == "openvino" else []
    size = sum(path.stat().st_size for path in files if path.is_file())
    if not worst <= TOLERANCE:
        return {"failed": f"the outputs differ by {worst:.2g}", "difference": worst}
    milliseconds = round(1000 * statistics.median(times[3:]), 3)
    return {"difference": worst, "bytes": size, "milliseconds": milliseconds, "seconds": round(seconds, 1)}


def measure(folder: Path, format: str, origin: str, wanted: list[list[str]]) -> None:
    """Exports the saved models in this process, and appends a row for each."""
    signal.signal(signal.SIGALRM, _too_slow)
    for family, head in wanted:
        row = dict(zip(KEY, (family, head, format, origin), strict=True))
        signal.alarm(LONGEST)
        try:
            row |= measured(folder / f"{family} {head}", format)
        except Exception as error:  # what fails is in the table, too
            row["failed"] = " ".join(str(error).split())[:600]
        signal.alarm(0)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def _too_slow(*_) -> None:
    raise TimeoutError(f"the export takes longer than {LONGEST} seconds")


def child(*arguments: str, backend: str) -> None:
    """Runs this script on a backend, with one thread."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, *arguments]
    subprocess.run(command, env=environment, check=True)


def run(families: list[str], formats: list[str], origin: str) -> None:
    """Measures the cells that have no results yet."""
    from benchmarks.studies.exports.models import cells

    done = {tuple(row[name] for name in KEY) for row in rows()}
    pairs = [(family, head) for family, head in cells() if not families or family in families]
    wanted = {f: [pair for pair in pairs if (*pair, f, origin) not in done] for f in formats}
    missing = [pair for pair in pairs if any(pair in found for found in wanted.values())]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        child("--save", folder, json.dumps(missing), backend=origin)
        for format, found in wanted.items():
            backend = "tensorflow" if format in ("tf_saved_model", "litert") else "torch"
            child("--measure", folder, format, origin, json.dumps(found), backend=backend)


def rows() -> list[dict]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--formats", default="onnx")
    arguments.add_argument("--only", default="", help="families, separated by commas")
    arguments.add_argument("--origins", default="torch", help="backends of the models, separated by commas")
    arguments.add_argument("--report", action="store_true", help="write the table")
    arguments.add_argument("--save", nargs=2, help=argparse.SUPPRESS)
    arguments.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.save:
        save(Path(options.save[0]), json.loads(options.save[1]))
    elif options.measure:
        folder, format, origin, wanted = options.measure
        measure(Path(folder), format, origin, json.loads(wanted))
    elif options.report:
        importlib.import_module("benchmarks.studies.exports.report").write(rows(), REPORT)
    else:
        for origin in options.origins.split(","):
            run([name for name in options.only.split(",") if name], options.formats.split(","), origin)


if __name__ == "__main__":
    main()
