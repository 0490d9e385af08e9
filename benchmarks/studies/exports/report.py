"""The table of `run.py`: which models export to which format, and what the artifacts cost."""

from pathlib import Path

from benchmarks.studies.exports.models import cells

FORMATS = ("onnx", "onnxruntime", "openvino", "tf_saved_model", "litert")
NAMES = {
    "onnx": "ONNX", "onnxruntime": "ONNX, fused", "openvino": "OpenVINO", "tf_saved_model": "SavedModel",
    "litert": "LiteRT",
}  # fmt: skip
INTRODUCTION = """# Exports

Written by `python -m benchmarks.studies.exports.run --report` from `rows.jsonl`. Tiny models with random weights: two
layers of width 24, 61 tokens. A cell has the largest difference of the artifact's outputs to those of `predict`, for 1
and 8 rows of 7, 64 and 512 tokens with padding; the size of the artifact; and the median latency of one row of 64
tokens with one thread. The latency was measured while other programs ran on the machine, so it shows the order of
magnitude only. In an empty cell, nothing has been measured yet; `python -m benchmarks.studies.exports.run --formats
...` continues with those.

"""

# Part of an exporter's message -> where its developers discuss it.
UPSTREAM = {
    "'tf.TensorListReserve' op requires element_shape to be static during TF Lite transformation pass": (
        "[TensorFlow #62849](https://github.com/tensorflow/tensorflow/issues/62849)"
    ),
}
EXPORTERS = """
## Limits of the exporters

The families without a row for a head do not have it. Three limits of the exporters would concern many rows, and are
avoided by `kerasbert.backend.exporting`:

- Recurrent models (ELMo, attention seq2seq). On PyTorch, Keras's scan is a Python loop, which is exported for one
  length only ([Keras #23058](https://github.com/keras-team/keras/pull/23058), [PyTorch
  #115092](https://github.com/pytorch/pytorch/issues/115092)). The loop is replaced by PyTorch's scan operator, a
  prototype ([PyTorch #146674](https://github.com/pytorch/pytorch/issues/146674)).
- LiteRT, new axes. `x[:, None, None, :]` with free sizes is a `tf.StridedSlice` that the converter refuses ("neither a
  custom op nor a flex op"); the axes are added by `tf.expand_dims` ([TensorFlow
  #48018](https://github.com/tensorflow/tensorflow/issues/48018)).
- LiteRT has no `tf.Roll` ([TensorFlow #51459](https://github.com/tensorflow/tensorflow/issues/51459)); the decoder
  inputs of T5's classifiers are shifted by slices. The converter from PyTorch to LiteRT, which Keras uses on that
  backend, takes no free sizes at all ([Keras #22996](https://github.com/keras-team/keras/issues/22996)).
"""


def write(rows: list[dict], path: Path) -> None:
    """Writes the table.

    Args:
        rows: the rows of the results; of several with the same key, the last one counts.
        path: of the Markdown file.
    """
    latest = {(row["origin"], row["family"], row["head"], row["format"]): row for row in rows}
    formats = [name for name in FORMATS if any(key[3] == name for key in latest)]
    text, failures = INTRODUCTION, []
    good = [row for row in latest.values() if "failed" not in row]
    text += f"{len(good)} of {len(latest)} cells work; the largest difference is "
    text += f"{max(row['difference'] for row in good):.1g}.\n"
    for origin in sorted({key[0] for key in latest}, key="torch jax tensorflow".split().index):
        text += f"\n## Models of the backend {origin}\n\n"
        text += f"| family | head | {' | '.join(NAMES[name] for name in formats)} |\n|{'---|' * (len(formats) + 2)}\n"
        pairs = dict.fromkeys([*(cells() if origin == "torch" else []), *(k[1:3] for k in latest if k[0] == origin)])
        for family, head in pairs:
            columns = []
            for name in formats:
                row = latest.get((origin, family, head, name))
                if row and "failed" in row:
                    reason = _reason(row["failed"])
                    failures += [] if reason in failures else [reason]
                    columns.append(f"fails ({failures.index(reason) + 1})")
                else:
                    columns.append(_cell(row))
            text += f"| {family} | {head} | {' | '.join(columns)} |\n"
    text += EXPORTERS
    if failures:
        text += "\n## What fails\n\n"
        text += "".join(f"{number}. {reason}\n" for number, reason in enumerate(failures, 1))
    path.write_text(text, encoding="utf-8")


def _reason(message: str) -> str:
    """The message of a failure, without the places in the program if it is one of `UPSTREAM`."""
    for part, thread in UPSTREAM.items():
        if part in message:
            return f"{message.partition(' Received:')[0]} Received: {part}. See {thread}."
    return message


def _cell(row: dict | None) -> str:
    if row is None:
        return ""
    return f"{row['difference']:.0e}, {row['bytes'] / 1e3:,.0f} kB, {row['milliseconds']:.2f} ms"
