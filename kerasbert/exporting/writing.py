"""Has another process write exports of model folders."""

import importlib.util
import json
from pathlib import Path

import keras

from ..checkpoints.folder import is_replaced, read_saved
from ..core.family import FAMILIES
from ..data.processes import DEVNULL, PIPE, start_python
from ..data.text.folders import replaced_together
from ..data.text.json_files import read_json
from ..runtime.cache import PACKAGES

# Format -> (Keras backend of the exporter, packages that it needs, file or folder of the artifact).
FORMATS = {
    "onnx": ("torch", PACKAGES, "model.onnx"),
    "onnxruntime": ("torch", PACKAGES, "model.onnx"),
    "openvino": ("torch", (*PACKAGES, "openvino"), "model.xml"),
    "tf_saved_model": ("tensorflow", ("tensorflow",), "saved_model"),
    "litert": ("tensorflow", ("tensorflow",), "model.tflite"),
}
# Package -> extra of kerasbert that installs it, or None.
EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "openvino": None}
EXTRAS |= dict.fromkeys(("onnx", "onnxscript", "onnxruntime"), "export")
LONGEST_MESSAGE = 1_500
ENDINGS = (".onnx", ".data", ".xml", ".bin", ".tflite")  # of the files of a program


def check_packages(format):
    """Raises an ImportError that names the command which installs the packages that are missing for a format."""
    missing = [name for name in FORMATS[format][1] if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(dict.fromkeys(EXTRAS[name] for name in missing if EXTRAS[name]))
        others = [name for name in missing if not EXTRAS[name]]
        command = " ".join(["pip install", *([f'"kerasbert[{extras}]"'] if extras else []), *others])
        raise ImportError(f"The format {format!r} needs {', '.join(missing)}. Install it with: {command}")


def write_export(path, model, format, model_class=None, **order):
    """Writes an export to `path`. If that fails, nothing is left behind, and an earlier export stays.

    Args:
        path: the folder to write. The files of an earlier export in it are replaced.
        model: the model, or its folder.
        format: a key of `FORMATS`.
        model_class: the class whose `from_preset` loads the model. Default: the class that the folder names.
        **order: the other arguments of `exporting.worker.export_folder`.
    """
    check_packages(format)
    with replaced_together(path, stale=lambda new: earlier_files(path)) as written:
        folder = written.with_name("model")
        if isinstance(model, Path):
            folder = model.resolve()
        else:
            model.save_to_preset(folder)
        classes = classes_in(folder)
        if model_class is not None:
            classes.append(model_class)
            order["model_class"] = [model_class.__module__, model_class.__qualname__]
        order |= dict(folder=str(folder), output=str(written), format=format, modules=modules_of_users(classes))
        run_exporter(order)


def earlier_files(path):
    """Returns the names of the files of an export: its programs, the model's description, the tokenizer, the example.

    A program may consist of several files with the same stem, or of a folder.
    """
    programs = (read_saved(path).get("export") or {}).get("programs") or {}
    names = {str(program.get("file")) for program in programs.values() if isinstance(program, dict)}
    stems = {name.partition(".")[0] for name in names}
    found = []
    for file in path.rglob("*"):
        name = file.relative_to(path)
        of_program = name.parts[0] in names or (
            len(name.parts) == 1 and name.name.partition(".")[0] in stems and file.suffix in ENDINGS
        )
        if of_program or name.as_posix() == "example.py" or is_replaced(name.as_posix()):
            found.append(name.as_posix())
    return found


def run_exporter(order):
    """Runs `exporting.worker` in another process, and raises its error as a ValueError.

    The process ends if this one is interrupted or killed.
    """
    environment = {"KERAS_BACKEND": FORMATS[order["format"]][0], "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = "-m", "kerasbert.exporting.worker", json.dumps(order)
    pipes = dict(stdin=PIPE, stdout=DEVNULL, stderr=PIPE, text=True, encoding="utf-8")
    with start_python(*command, modules=order.get("modules", ()), environment=environment, **pipes) as process:
        try:
            said = process.stderr.read()
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = said.strip().splitlines() or [f"the process ended with status {process.returncode}"]
        raise ValueError(lines[-1][:LONGEST_MESSAGE])


def modules_of_users(classes):
    """Returns the modules outside this package that define classes. Raises a ValueError for those of a script."""
    own = {cls.__module__: cls.__name__ for cls in classes if cls.__module__.partition(".")[0] != "kerasbert"}
    if "__main__" in own:
        raise ValueError(
            "Models are exported by another process, which must be able to import their classes. Received: a "
            f"{own['__main__']}, which is defined in the script or notebook itself. Move it to a module and import it."
        )
    return sorted(own)


def classes_in(folder):
    """Returns the classes of the model in a folder that are known to Keras and to `register_family`."""
    saved, config = read_saved(folder), folder / "config.json"
    names = [saved.get("class"), saved.get("backbone_class")]
    found = [keras.saving.get_registered_object(name) for name in names if name and ">" in name]
    found.append(FAMILIES.get(read_json(config).get("model_type")) if config.is_file() else None)
    return [cls for cls in found if cls is not None]
