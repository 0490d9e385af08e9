"""Has another process write exports of model folders, and keeps those that `from_preset(engine="onnx")` runs."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
from pathlib import Path

import keras

from ..core.family import FAMILIES, find_size
from ..data.processes import DEVNULL, PIPE, start_python
from ..data.text.files import own_name, remove_leftovers
from ..data.text.folders import replaced_together
from ..data.text.json_files import read_json, shortened
from .fields import read_saved
from .hub import needed_files
from .saves import is_replaced

# Format -> (Keras backend of the exporter, packages that it needs, file or folder of the artefact).
FORMATS = {
    "onnx": ("torch", ("torch", "onnx", "onnxscript", "onnxruntime"), "model.onnx"),
    "onnxruntime": ("torch", ("torch", "onnx", "onnxscript", "onnxruntime"), "model.onnx"),
    "openvino": ("torch", ("torch", "onnx", "onnxscript", "onnxruntime", "openvino"), "model.xml"),
    "tf_saved_model": ("tensorflow", ("tensorflow",), "saved_model"),
    "litert": ("tensorflow", ("tensorflow",), "model.tflite"),
}
# Package -> extra of kerasbert that installs it, or None.
EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "openvino": None}
EXTRAS |= dict.fromkeys(("onnx", "onnxscript", "onnxruntime"), "export")
ENGINE_FORMAT = "onnxruntime"  # of the exports that `from_preset(engine="onnx")` runs
LONGEST_MESSAGE = 1_500
ENDINGS = (".onnx", ".data", ".xml", ".bin", ".tflite")  # of the files of a program


# === Another process writes ===


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


# === Models that run exports ===


def check_engine(engine, path, load_weights, dtype):
    """Raises a ValueError unless `from_preset` can load a model with an engine."""
    if engine != "onnx":
        raise ValueError(f'`engine` must be "onnx" or None. Received: {engine!r}.')
    if find_size(str(path)) is not None or not load_weights:
        raise ValueError(f"`engine` needs the folder of a model, with its weights. Received: {path!r} without weights.")
    if dtype not in (None, "float32"):
        raise ValueError(f'engine="onnx" computes in float32. Received: dtype={dtype!r}. Omit it.')


def check_fixed(folder, arguments, overrides):
    """Raises a ValueError for arguments that differ from those of the model that was exported."""
    changed = {n: v for n, v in overrides.items() if n not in ("name", "tokenizer") and arguments.get(n) != v}
    if changed:
        raise ValueError(
            f"The program of an export is fixed. Received: {folder}, which is an export, with {shortened(changed)}. "
            "Load the folder of the model that was exported with these arguments, and export it again."
        )


def cached_export(folder, model_class, overrides):
    """Returns the folder of a model's export for ONNX Runtime, which is written if the cache does not contain it.

    Args:
        folder: folder of the model.
        model_class: the class on which `from_preset` was called.
        overrides: the other arguments of `from_preset`.
    """
    try:
        described = json.dumps([model_class.__module__, model_class.__qualname__, overrides], sort_keys=True)
    except TypeError:
        raise ValueError(
            'With engine="onnx", another process exports the model, so that arguments must be values that JSON can '
            f"represent. Received: {shortened(sorted(overrides))}. Use kerasbert.export, and load the export."
        ) from None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kerasbert" / "exports"
    path = cache / digest(folder, described)
    if not path.is_dir():
        remove_leftovers(path, "export")
        written = own_name(path, "export")
        write_export(written, folder, ENGINE_FORMAT, model_class, overrides=overrides)
        try:
            os.replace(written, path)
        except OSError:  # another process has written the same export in the meantime, and may already read it
            shutil.rmtree(written)
            if not path.is_dir():
                raise
    return path


def digest(folder, text):
    """Returns a hash of a text, of the files of a model, and of the versions of the packages that export it."""
    found = hashlib.sha256(text.encode())
    for name in ("kerasbert", "keras", *FORMATS[ENGINE_FORMAT][1]):
        if importlib.util.find_spec(name) is not None:
            found.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in needed_files(files):
        with open(folder / name, "rb") as file:
            found.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()[:32]
