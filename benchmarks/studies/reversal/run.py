"""Strings reversed and copied: what attention is for.

    python -m benchmarks.studies.reversal.run train
    python -m benchmarks.studies.reversal.run train --tasks reverse --models additive none --steps 1000
    python -m benchmarks.studies.reversal.run plot

Random strings of 1 to 60 of eight symbols. A recurrent model whose decoder has one vector of the source fails as they
grow longer; with attention, additive or multiplicative, it does not, and neither does a Transformer of two layers.
Every training is a cell: its row is appended to RESULTS once it is finished, a cell that is there is not run again, and
a cell that was cut off continues from its checkpoint. `plot` draws the accuracy by length and the learned alignments.
"""

import itertools
import json
import time
from pathlib import Path
from typing import Literal

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import keras
import numpy as np
import tyro

from kerasbert.backend import seed_everything
from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout
from kerasbert.models import Seq2SeqAttention, Seq2SeqAttentionConfig, Transformer, TransformerConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.training import Checkpoints, Progress, adamw

RESULTS = Path(__file__).with_name("rows.jsonl")
PICTURE = Path(__file__).with_name("report.png")
RUNS = Path("runs/reversal")
END, FIRST, SYMBOLS = 1, 2, 8  # ids: 0 pads and starts, 1 ends
LONGEST = 60

RECURRENT = dict(embedding_dim=16, alignment_dim=64, output_dim=64, initializer_range=0.1, alignment_range=0.1)
MODELS = {
    "additive": dict(RECURRENT, attention="additive", hidden_dim=64),
    "multiplicative": dict(RECURRENT, attention="multiplicative", hidden_dim=64),
    "none": dict(RECURRENT, attention="none", hidden_dim=128),
    "none, source reversed": dict(
        RECURRENT, attention="none", hidden_dim=128, bidirectional=False, reverse_source=True
    ),
    "transformer": dict(num_layers=2, num_heads=4, hidden_dim=64, feed_forward_dim=128, dropout=0.0),
}
TASKS = {"reverse": lambda string: string[::-1], "copy": lambda string: string}


def strings(count: int, shortest: int, longest: int, seed: int) -> list[np.ndarray]:
    """Random strings of symbols, int32, without their end."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, count)
    return [rng.integers(FIRST, FIRST + SYMBOLS, length).astype("int32") for length in lengths]


def make_model(name: str) -> Seq2SeqLM:
    settings = dict(MODELS[name], vocabulary_size=FIRST + SYMBOLS)
    if name == "transformer":
        return Seq2SeqLM(Transformer(TransformerConfig(**settings)))
    return Seq2SeqLM(Seq2SeqAttention(Seq2SeqAttentionConfig(**settings)))


def make_batches(
    task: str, steps: int, longest: int = LONGEST, batch_size: int = 64, buckets: int = 4, seed: int = 0
) -> Seq2SeqBatches:
    """A run over 20,000 strings and their answers."""
    sources = strings(20_000, 1, longest, seed)
    targets = [TASKS[task](source) for source in sources]
    layout = Seq2SeqLayout(num_buckets=buckets, end_id=END)
    return Seq2SeqBatches(sources, targets, batch_size=batch_size, layout=layout, steps=steps, seed=seed)


def accuracy(model: Seq2SeqLM, task: str, length: int, count: int = 100) -> dict:
    """Of new strings of one length: the share that is right to the end, and the share of symbols that are."""
    sources = strings(count, length, length, seed=1_000 + length)
    answers = model.generate(sources, max_new_tokens=length + 1, stop_ids=END, batch_size=count)
    right = [
        (answer[:length] == expected[: len(answer)]).mean() if len(answer) >= length else 0.0
        for answer, expected in zip(answers, map(TASKS[task], sources), strict=True)
    ]
    ended = [len(answer) == length + 1 and answer[-1] == END for answer in answers]
    exact = [share == 1 and end for share, end in zip(right, ended, strict=True)]
    return {"length": length, "exact": float(np.mean(exact)), "symbols": round(float(np.mean(right)), 4)}


def alignment(model: Seq2SeqLM, task: str, length: int = 20) -> np.ndarray | None:
    """Where the decoder looks in one string, (length + 1, length); the mean of heads of a Transformer's last layer."""
    source = strings(1, length, length, seed=7)[0]
    inputs = {"token_ids": source[None], "decoder_token_ids": np.append(0, TASKS[task](source))[None].astype("int32")}
    if getattr(model.backbone.config, "attention", None) == "none":
        return None
    weights = model.backbone(inputs, attention_weights=True)["attention_weights"]["cross"][-1]
    return keras.ops.convert_to_numpy(weights)[0].mean(axis=0)


def finished() -> dict:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def folder_of(key: str) -> str:
    return key.replace(", ", "_").replace(" ", "_")


def cell(task: str, name: str, steps: int) -> dict:
    """One training; its row of RESULTS."""
    key = f"{task}, {name}, {steps} steps"
    if row := finished().get(key):
        return row
    seed_everything(0)
    model = make_model(name)
    model.compile(adamw(5e-3 if name == "transformer" else 3e-3, warmup=steps // 10, steps=steps, weight_decay=0.0))
    folder = RUNS / folder_of(key)
    clock = folder / "seconds.json"  # spent before an interruption
    before, begin = json.loads(clock.read_text()) if clock.exists() else 0.0, time.perf_counter()
    write = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: clock.write_text(json.dumps(before + time.perf_counter() - begin))
    )
    callbacks = [Checkpoints(folder, keep=1, recipe={"cell": key}), write, Progress(quiet=True)]
    history = model.fit(make_batches(task, steps), callbacks=callbacks, steps_per_epoch=steps // 10)
    model.save_to_preset(folder / "model")
    row = {
        "cell": key,
        "parameters": model.count_params(),
        "loss": round(float(history.history["loss"][-1]), 4) if history.history else None,
        "seconds": round(json.loads(clock.read_text())),
        "by_length": [accuracy(model, task, length) for length in range(5, LONGEST + 1, 5)],
    }
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def train(
    tasks: tuple[Literal["reverse", "copy"], ...] = ("reverse", "copy"),
    models: tuple[str, ...] = tuple(MODELS),
    steps: int = 2_000,
) -> None:
    """Trains every model on every task and prints how many strings of each length come out right."""
    for task in tasks:
        for name in models:
            row = cell(task, name, steps)
            shown = " ".join(f"{found['length']}:{found['exact']:.0%}" for found in row["by_length"])
            print(f"{row['cell']:44} {row['seconds']:5} s  {shown}", flush=True)


def plot(runs: Path = RUNS) -> None:
    """Draws the accuracy by length of the cells that are there, and the alignments that their models learned."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = finished()
    names = {key: key.rpartition(",")[0] for key in rows}  # without the steps
    found = {}
    for key, name in names.items():
        model = Seq2SeqLM.from_preset(runs / folder_of(key) / "model")
        weights = alignment(model, name.partition(", ")[0])
        if weights is not None:
            found[name] = weights
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(4, 4))
    for axis, task in zip(above.subplots(1, len(TASKS), sharey=True), TASKS, strict=True):
        for key, name in names.items():
            if name.startswith(f"{task}, "):
                lengths, right = zip(*((p["length"], p["symbols"]) for p in rows[key]["by_length"]), strict=True)
                axis.plot(lengths, right, label=name.partition(", ")[2])
        axis.set(title=task, xlabel="length", ylabel="symbols that are right", ylim=(0, 1.02))
        axis.legend()
    columns = -(-len(found) // 2)
    axes = below.subplots(2, columns, squeeze=False).flat
    for axis, (name, weights) in itertools.zip_longest(axes, found.items(), fillvalue=(None, None)):
        if name is None:
            axis.remove()
            continue
        axis.imshow(weights, cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(name, fontsize=8)
        axis.set(xlabel="source", ylabel="target", xticks=[], yticks=[])
    figure.savefig(PICTURE, dpi=120)
    print(PICTURE)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "plot": plot})
