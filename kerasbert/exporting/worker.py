"""Writes an export, in a process whose backend is the one that the exporter needs; see `exporting.folders`."""

import contextlib
import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path

import keras
import numpy as np

from .. import models  # noqa: F401  registers the families
from ..backend import exporting as exporters
from ..checkpoints.description import description
from ..checkpoints.presets import load
from ..checkpoints.saves import new_id, write_record
from ..checkpoints.tensor_files import write_json
from ..data.processes import end_with_parent
from ..data.text.folders import LOCK
from ..objectives.next_token import NextToken
from ..runtime.inputs import OUR_NAMES
from ..tasks import MultiVectorEmbedder
from .folders import check_model
from .generation import generation_programs
from .runners import runner
from .signatures import default_names, kind_of, renamed, whole_program
from .writing import FORMATS

TOLERANCE = 1e-4  # of the difference to `predict`, relative to the largest output if that is above 1
CHECKED_SHAPES = ((1, 7), (3, 20))  # (rows, columns) with which an artifact is compared with `predict`
DEFAULT_OPSET = 18


def export_folder(folder, output, modules=(), model_class=None, overrides=None, **options):
    """Writes the export of the model in a folder.

    Args:
        folder: folder of the model.
        output: the folder to write, which exists and is empty.
        modules: names of the modules of users' classes.
        model_class: (module, name) of the class whose `from_preset` loads the model. Default: the class that the folder
            names.
        overrides: the other arguments of `from_preset`.
        **options: the other arguments of `write`.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(
                "Models are exported by another process, which must be able to import their classes. Received: the "
                f"module {name!r}, and {error}. Install it, or add its folder to PYTHONPATH."
            ) from None
    if model_class is None:
        model = load(folder, **(overrides or {}))
    else:
        module, name = model_class
        model = getattr(importlib.import_module(module), name).from_preset(folder, **(overrides or {}))
    write(model, output, **options)


def write(model, output, format, quantize=None, opset=None, names=None):
    """Writes the export of a model; see `kerasbert.export`.

    Args:
        model: the model, on the backend that the exporter needs.
        output: the folder to write, which exists and is empty.
    """
    output = Path(output)
    check_model(model)
    whole = whole_program(model)
    if (names or default_names(model, format)) == "transformers":
        whole = renamed(whole)
    programs = [whole, *(generation_programs(model) if format in ("onnx", "onnxruntime") else [])]
    ending = FORMATS[format][2].removeprefix("model")
    described = {}
    for program in programs:
        file = output / (f"{program.name}{ending}" if ending.startswith(".") else ending)
        WRITERS[format](model, program, file, opset or DEFAULT_OPSET)
        compare(model, program, runner(format, file))
        if quantize:
            quantize_onnx(file)
        described[program.name] = {"file": file.name, **program.described()}
        if file.is_file():
            described[program.name]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    model.save_tokenizer(output)
    config, saved = description(model)
    write_json(output / "config.json", config)
    entry = {
        "format": format,
        **described.pop("model"),
        "programs": described,
        **further_entries(model, format, quantize),
    }
    shutil.copyfile(Path(__file__).with_name("example.py"), output / "example.py")
    write_record(output, {**saved, "export": entry}, new_id())


def further_entries(model, format, quantize):
    """What `kerasbert.json` says about an export besides its files, inputs and outputs."""
    limit = getattr(model, "max_length", None) or model.backbone.position_limit
    found = {"does": kind_of(model)[0], "labels": getattr(model, "labels", None), "max_length": limit}
    found |= {"problem": getattr(model, "problem", None), "quantized": quantize}
    found |= {"tokenizer": tokenizer_entries(model.tokenizer)}
    if isinstance(model, NextToken):
        found["stop_ids"] = model.default_stop_ids()
        found["start_id"] = getattr(model.backbone.config, "decoder_start_id", None)
        found["first_id"] = model.forced_ids[0]
    if isinstance(model, MultiVectorEmbedder):
        found["late_interaction"] = model.late_interaction()
    packages = ("kerasbert", "keras", *FORMATS[format][1])
    found["versions"] = {name: importlib.import_module(name).__version__ for name in packages}
    return {name: value for name, value in found.items() if value is not None}


def tokenizer_entries(tokenizer):
    """What a script must know about a tokenizer besides its `tokenizer.json`."""
    info = tokenizer.info
    return {
        "padding_side": tokenizer.padding_side,
        "pad_id": info["pad_id"] or 0,
        "mask_id": info["mask_id"],
        "mask": None if info["mask_id"] is None else tokenizer.token(info["mask_id"]),
        "eos_id": info["eos_id"],
    }


def remove_unfinished(output):
    """Removes an export that nobody waits for any more, and its folder if that is otherwise empty."""
    staged = output.parent
    shutil.rmtree(staged, ignore_errors=True)
    (staged.parent / LOCK).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # an earlier export, or other files
        staged.parent.rmdir()


# === The formats ===


def write_onnx(model, program, file, opset):
    """Writes an ONNX file with operators of the given version."""
    import onnx

    exporters.write_onnx(model, program.function, program.inputs, list(program.outputs), file, opset)
    written = next(entry.version for entry in onnx.load(file).opset_import if entry.domain in ("", "ai.onnx"))
    if written != opset:
        raise ValueError(
            f"The operators of a {type(model).__name__} with a {type(model.backbone).__name__} must exist in the "
            f"version of ONNX that is asked for. Received: opset={opset}, which lacks one. Use opset={written}."
        )


def write_onnxruntime(model, program, file, opset):
    """Writes an ONNX file with the operators of ONNX Runtime, into which ONNX Script fuses layers."""
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    write_onnx(model, program, file, opset)
    fused, _ = optimize_for_ort(onnx_ir.load(file))
    onnx_ir.save(fused, file)


def write_openvino(model, program, file, opset):
    """Writes the two files of OpenVINO's format, converted from ONNX by OpenVINO."""
    import openvino

    onnx_file = file.with_suffix(".onnx")
    write_onnx(model, program, onnx_file, opset)
    openvino.save_model(openvino.convert_model(onnx_file), file, compress_to_fp16=False)
    onnx_file.unlink()


def write_saved_model(model, program, file, opset):
    """Writes a SavedModel."""
    exporters.write_saved_model(model, program.function, program.inputs, str(file))


def write_litert(model, program, file, opset):
    """Writes a LiteRT file."""
    exporters.write_litert(model, program.function, program.inputs, file)


WRITERS = {
    "onnx": write_onnx,
    "onnxruntime": write_onnxruntime,
    "openvino": write_openvino,
    "tf_saved_model": write_saved_model,
    "litert": write_litert,
}


def quantize_onnx(file):
    """Replaces an ONNX file by one with int8 matrices, with ONNX Runtime's dynamic quantization."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    whole = file.with_name("float.onnx")
    file.rename(whole)
    options = {"MatMulConstBOnly": True}
    quantize_dynamic(whole, file, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
    whole.unlink()


# === The comparison with `predict` ===


def compare(model, program, run):
    """Raises a ValueError unless an artifact computes the same outputs as the model.

    Args:
        run: function that runs the artifact, from {input: array} to {output: array}.
    """
    for rows, columns in CHECKED_SHAPES:
        x = random_inputs(model, program, rows, columns)
        expected = program.function({name: keras.ops.convert_to_tensor(array) for name, array in x.items()})
        found = run(x)
        for name, tensor in expected.items():
            wanted = keras.ops.convert_to_numpy(tensor)
            if wanted.dtype == bool:
                found[name], wanted = found[name].astype("int32"), wanted.astype("int32")
            if found[name].shape != wanted.shape:
                raise ValueError(
                    f"An export must compute what `predict` does. Received: a program whose output {name!r} has shape "
                    f"{found[name].shape} instead of {wanted.shape}. Please report it."
                )
            worst = np.abs(found[name] - wanted).max() / max(1.0, np.abs(wanted).max())
            if not worst <= TOLERANCE:
                raise ValueError(
                    f"An export must compute what `predict` does, up to {TOLERANCE:g}. Received: a program whose "
                    f"output {name!r} differs by {worst:.3g}, for {rows} rows of {columns} tokens. Please report it."
                )


def random_inputs(model, program, rows, columns):
    """Random inputs with padding in the last row, {name: array}."""
    generator = np.random.default_rng(0)
    sizes = {"batch": rows, "choices": 3, "length": columns, "decoder_length": 5, "source_length": 9}
    sizes["capacity"] = columns + 4
    found = {}
    for name, (example, axes) in program.inputs.items():
        shape = [sizes.get(axis, size) for axis, size in zip(axes, example.shape, strict=True)]
        if example.dtype.kind == "f":
            found[name] = generator.standard_normal(shape).astype(example.dtype)
            continue
        ours = OUR_NAMES.get(name, name)
        highest = {"segment_ids": 2, "position_ids": 4, "start": 4}.get(ours, model.tokenizer.vocabulary_size)
        found[name] = np.asarray(generator.integers(0, highest, shape), example.dtype)
        if ours.endswith("padding_mask") or ours.startswith("real"):
            found[name][:] = 1
            found[name][-1, ..., -2:] = 0
    return found


def main():
    """Writes the export that the first argument of the command line orders."""
    order = json.loads(sys.argv[1])
    end_with_parent(lambda: remove_unfinished(Path(order["output"])))
    try:
        export_folder(**order)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
