"""Exports a model to a folder that runs without kerasbert."""

import os
from pathlib import Path
from typing import Any

from ..checkpoints.folder import find_folder
from ..core.quantization import has_integers
from ..data.text.folders import folder_at
from ..data.text.json_files import read_json
from .signatures import kind_of
from .writing import FORMATS, write_export

ONNX_OPSETS = range(18, 24)


def export(
    model: Any,
    path: str | os.PathLike,
    format: str = "onnx",
    quantize: str | None = None,
    opset: int | None = None,
    names: str | None = None,
) -> Path:
    """Writes a folder with the program and the weights of a model, which runs without kerasbert.

    The folder contains the artifact, the files of the tokenizer, `kerasbert.json`, which describes inputs, outputs,
    labels and lengths, and `example.py`, which runs the artifact on text. The numbers of rows and columns of the inputs
    are free. The outputs are those of `predict`.

    The artifact is written and compared with `predict` by another process, on the backend that the exporter needs, so
    the model may have been trained on any backend.

    Args:
        model: a task or an objective with a tokenizer, or the folder of one, or `"hf://org/name"`.
        path: the folder to write. It must not exist, be empty, or contain an earlier export, which is then replaced.
        format: "onnx", or "onnxruntime", whose layers are fused into operators that only ONNX Runtime has, which makes
            it faster there; "openvino"; "tf_saved_model", for TensorFlow (Serving); or "litert", for phones and small
            devices.
        quantize: "int8" stores the matrices of an ONNX file as int8, and computes their products with int8
            activations, whose scales are determined for each batch. Default: float32.
        opset: version of the ONNX operators, 18 to 23. Default: 18.
        names: "transformers": int64 inputs with the names that its tokenizers and their clients (optimum, fastembed)
            have: `input_ids`, `attention_mask` and, where the model reads them, `token_type_ids`; the outputs of an
            answer are `start_logits` and `end_logits`. "kerasbert": int32 inputs with the names of
            `kerasbert.core.Batch`: `token_ids`, `padding_mask`, `segment_ids`; the outputs are `start` and `end`.
            Default: "transformers" in ONNX and OpenVINO, for families that transformers has.

    Returns: the folder, a `Path`.

    Raises:
        ValueError: if the model cannot be exported, an option is invalid, or `path` has other files.
        NotADirectoryError: if `path` is a file.
        ImportError: if a package is missing.

    Example:
        >>> from kerasbert.exporting import export
        >>> from kerasbert.runtime import open_export
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder")
        >>> folder = export(model, "exports/embedder")
        >>> exported = open_export(folder)  # runs without Keras
        >>> bool(abs(exported.answer(["A cat sat."]) - model.embed(["A cat sat."])).max() < 1e-4)
        True
    """
    path = folder_at(path)
    check_options(format, quantize, opset, names)
    check_free(path)
    if isinstance(model, (str, os.PathLike)):
        model = find_folder(model)
    else:
        check_model(model)
    write_export(path, model, format, quantize=quantize, opset=opset, names=names)
    return path


def check_options(format, quantize, opset, names=None):
    """Raises a ValueError for an unknown format or name, or for options that the format does not have."""
    if names not in ("transformers", "kerasbert", None):
        raise ValueError(f'`names` must be "transformers", "kerasbert" or None. Received: {names!r}.')
    if format not in FORMATS:
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}. Received: {format!r}.")
    if quantize not in (None, "int8"):
        raise ValueError(f'`quantize` must be "int8" or None. Received: {quantize!r}.')
    if format not in ("onnx", "onnxruntime") and quantize is not None:
        raise ValueError(f'Only format="onnx" can be quantized. Received: quantize={quantize!r} with {format!r}.')
    if opset is not None and format not in ("onnx", "onnxruntime", "openvino"):
        raise ValueError(f"`opset` is a version of ONNX. Received: opset={opset} with format={format!r}. Omit it.")
    if opset is not None and opset not in ONNX_OPSETS:
        raise ValueError(
            f"`opset` must be from {ONNX_OPSETS[0]} to {ONNX_OPSETS[-1]}: older versions lack operators that the "
            f"models need, and PyTorch cannot write newer ones. Received: {opset}."
        )


def check_free(path):
    """Raises an error if a folder must not be replaced, because it contains something other than an export."""
    if not path.exists():
        return
    if not path.is_dir():
        raise NotADirectoryError(f"An export is a folder. Received: the file {path}. Choose another path.")
    if any(path.iterdir()) and "export" not in saved_description(path):
        raise ValueError(
            f"An export must not replace other files. Received: {path}, which is a folder with other content. Choose "
            "another path."
        )


def saved_description(folder):
    """The content of `kerasbert.json` in a folder, or an empty dict."""
    file = Path(folder) / "kerasbert.json"
    return read_json(file) if file.is_file() else {}


def check_model(model):
    """Raises a ValueError if a model cannot be exported in any format."""
    kind_of(model)
    if has_integers(model):
        raise ValueError(
            "Weights must be floats to be exported: the programs have other int8 operations. Received: a quantized "
            'model. Export the model of full precision, with quantize="int8" for ONNX.'
        )
    if model.tokenizer is None:
        raise ValueError(
            f"An export carries the tokenizer of the model. Received: a {type(model).__name__} without a tokenizer. "
            "Set model.tokenizer = Tokenizer.load(...), or save its files in the folder."
        )
