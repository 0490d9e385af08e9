"""Validates the JSON files of a model folder: types against annotations, and numbers against fixed limits."""

import contextlib
import dataclasses
import inspect
import types
import typing

from ..data.text.files import digest_of
from ..data.text.json_files import check_types, read_json, shortened
from .tensor_files import EXTRA_WEIGHTS, save_ids

# Limits of the sizes in a file, all far above the sizes of published models.
_LARGEST = {"vocabulary_size": 10_000_000, "max_length": 10_000_000}
_MOST_LAYERS = 10_000  # limit of all fields that begin with num_: layers, heads, groups, segments, buckets
_WIDEST = 1_000_000  # limit of all other integers in a config
_MAY_BE_ZERO = {"num_segments", "num_highways", "memory_length", "convolution_width"}

# `quantization_config` of folders in the layout of `quantized`.
OWN_QUANTIZATION = {"quant_method": "kerasbert"}


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """The fields of a `config.json` that are the same for all families."""

    model_type: str | None = None
    architectures: list[str] | None = None
    id2label: dict[str, str | int] | None = None
    num_labels: int | None = None
    problem_type: str | None = None


@dataclasses.dataclass(frozen=True)
class SavedModel:
    """The fields of a `kerasbert.json`.

    `class_name` is stored as "class". It is the name under which the class is registered with Keras, without the prefix
    "kerasbert>".
    """

    class_name: str | None = None
    backbone_class: str | None = None
    backbone: dict | None = None
    arguments: dict | None = None
    quantization: dict | None = None
    save: dict | None = None  # id of the save, and digests of the small files
    export: dict | None = None  # describes the program of an export, which has no weights


@dataclasses.dataclass(frozen=True)
class SavedArguments:
    """The types of all arguments that this package's objectives, tasks and backbones save in `kerasbert.json`."""

    pooler: bool
    sentence_pair: bool
    masked_lm: bool
    labels: int | list[str | int | float | bool]
    problem: str
    max_length: int | None
    answer_steps: int | None
    classifier_dropout: float | None
    features: str | dict[str, str | int | None] | None
    stride: int
    max_question_length: int
    max_answer_length: int
    pooling: str | list[str]
    normalize: bool
    lowercase: bool
    prompts: dict[str, str | dict[str, str] | None] | None
    truncate_dim: int | None
    objective: str | dict | None
    tasks: dict[str, dict]
    label_smoothing: float
    z_loss: float
    max_targets: int
    boundary_weight: float
    discriminator_weight: float | None
    embedding_sharing: str
    temperature: float
    seed: int


def check_config_file(stored, path):
    """Raises a ValueError if a `config.json` contains something that no family supports.

    Args:
        stored: the content of the file.
        path: path of the file, for messages.
    """
    check_types(stored, typing.get_type_hints(ConfigFile), path)
    quantised = stored.get("quantization_config")
    if quantised is not None and quantised != OWN_QUANTIZATION:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise ValueError(
            f"Weights must not be quantised. Received: weights quantised by {shortened(method)}, according to {path}. "
            "Use the checkpoint from which the quantised one was made."
        )
    count = stored.get("num_labels")
    if count is not None and not 0 <= count <= _WIDEST:
        raise ValueError(f"`num_labels` in {path} must be from 0 to {_WIDEST:,}. Received: {count}.")
    names = stored.get("id2label") or {}
    if set(names) != {str(i) for i in range(len(names))}:
        raise ValueError(
            f"`id2label` in {path} must number its labels from 0. Received: {shortened(sorted(names), 200)}."
        )


def checked_config(cls, values, source, names=None):
    """Creates a config from the values in a file, and checks their types and sizes.

    Args:
        cls: the config class.
        values: {config field: value}.
        source: path of the file, for messages.
        names: {config field: its name in the file}, for fields whose names differ.

    Raises: ValueError if a value has the wrong type or size, or if the values are inconsistent.
    """
    annotations, names = typing.get_type_hints(cls), names or {}
    named = {field: names[field] if isinstance(names.get(field), str) else field for field in values}
    for field, value in values.items():
        if value is None and field.endswith("_id"):
            continue  # a special token that the model does not have; configs that need the token refuse None
        check_types({named[field]: value}, {named[field]: annotations[field]}, source)
        _check_size(field, named[field], value, source)
    values = {field: tuple(v) if annotations[field] is tuple else v for field, v in values.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    except (TypeError, ZeroDivisionError, IndexError) as error:
        raise ValueError(
            f"The fields of {source} must be consistent. Received: fields for which {cls.__name__} raised {error!r}."
        ) from error


def _check_size(field, name, value, source):
    """Raises a ValueError if a number, or a number in a list, is outside the limits of its config field."""
    if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple)):
        return
    if isinstance(value, (list, tuple)):
        flat = [part for item in value for part in (item if isinstance(item, (list, tuple)) else [item])]
        if len(flat) > _MOST_LAYERS:
            raise ValueError(f"`{name}` in {source} must have at most {_MOST_LAYERS} items. Received: {len(flat)}.")
        for part in flat:
            if not isinstance(part, (str, int)):
                raise ValueError(f"`{name}` in {source} must hold numbers or names. Received: {shortened(part)}.")
            _check_size(f"{field}_item", f"an item of {name}", part, source)
        return
    lowest, highest = 0, _WIDEST
    if field.endswith("_id"):
        lowest, highest = -1, _LARGEST["vocabulary_size"]
    elif field.startswith("num_"):
        lowest, highest = int(field not in _MAY_BE_ZERO), _MOST_LAYERS
    elif isinstance(value, int) and field.endswith(("_dim", "_size", "_length", "_heads", "_every", "_groups")):
        lowest = int(field not in _MAY_BE_ZERO)
        highest = _LARGEST.get(field, _WIDEST)
    elif "dropout" in field:
        highest = 1
    elif field.endswith("_item"):
        highest = _LARGEST["vocabulary_size"]
    elif field.endswith("theta"):
        lowest, highest = 1, 10**12
    if not lowest <= value <= highest:
        raise ValueError(f"`{name}` in {source} must be from {lowest} to {highest:,}. Received: {shortened(value)}.")


def read_saved(folder):
    """Reads and checks the `kerasbert.json` in a folder. Returns its content, or {} if there is none for this model."""
    saved = read_record(folder)
    return {} if is_superseded(folder, saved) else saved


def read_record(folder):
    """Reads and checks the `kerasbert.json` in a folder, even if another program has saved a model there since."""
    path = folder / "kerasbert.json"
    if not path.is_file():
        return {}
    saved = read_json(path)
    hints = typing.get_type_hints(SavedModel)
    check_types(saved, {"class": hints.pop("class_name"), **hints}, path)
    check_types(saved.get("save") or {}, {"id": str, "files": dict[str, str]}, path)
    return saved


def is_superseded(folder, saved):
    """Whether another program has written both the config and the weights of a folder since its `kerasbert.json`."""
    config, files = folder / "config.json", (saved.get("save") or {}).get("files") or {}
    if "config.json" not in files or not config.is_file() or digest_of(config) == files["config.json"]:
        return False
    ids = [save_id for name, save_id in save_ids(folder).items() if name != EXTRA_WEIGHTS]
    return bool(ids) and not any(ids)


def check_arguments(cls, arguments, path):
    """Raises a ValueError if a saved constructor argument has the wrong type for a class, or is outside its limits.

    Arguments that a class of this package defines are checked against `SavedArguments` and fixed limits. Arguments that
    a user's class defines are checked against the annotations of its `__init__`, unless the annotation is missing or is
    a type that JSON cannot represent.

    Args:
        cls: a backbone, objective or task.
        arguments: {name: value}.
        path: path of the file, for messages.
    """
    annotations = _users_annotations(cls)
    check_types(arguments, {name: a for name, a in annotations.items() if _is_json_type(a)}, path)
    _check_ours({name: value for name, value in arguments.items() if name not in annotations}, path)


@contextlib.contextmanager
def accepting_arguments(cls, arguments, path):
    """Context manager that converts errors of the constructor of `cls` to a ValueError that names the file.

    Args:
        cls: the class.
        arguments: {name: value}, the arguments that the file contains.
        path: path of the file.
    """
    try:
        yield
    except (TypeError, AttributeError, LookupError) as error:
        if not arguments:
            raise
        raise ValueError(
            f"`arguments` in {path} must be arguments that {cls.__name__} accepts. Received: "
            f"{shortened(arguments, 200)}, for which its constructor raised {type(error).__name__}: {error}."
        ) from error


def _users_annotations(cls):
    """Returns {argument: annotation} for the constructor arguments that classes outside this package define.

    The annotation is `inspect.Parameter.empty` if the class does not annotate the argument.
    """
    found = {}
    for base in reversed(cls.__mro__):
        if "__init__" not in vars(base):
            continue
        is_ours = base.__module__.partition(".")[0] == "kerasbert"
        try:
            hints = typing.get_type_hints(base.__init__)
        except (NameError, TypeError):  # annotations with names that are only imported for type checkers
            hints = {}
        for name in inspect.signature(base.__init__).parameters:
            if is_ours:
                found.pop(name, None)
            elif name in hints or name not in _arguments_of(base.__mro__[1:]):
                found[name] = hints.get(name, inspect.Parameter.empty)
    return found


def _arguments_of(classes):
    """Returns the names of all arguments that the constructors of these classes define."""
    return {name for cls in classes if "__init__" in vars(cls) for name in inspect.signature(cls.__init__).parameters}


def _is_json_type(annotation):
    """Whether all values of a type are values that `json` reads, so that `check_types` can check it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal or annotation is Ellipsis:
        return True
    if origin in (types.UnionType, typing.Union, list, tuple, dict):
        return all(map(_is_json_type, typing.get_args(annotation)))
    return annotation in (bool, int, float, str, list, tuple, dict, type(None))


def _check_ours(arguments, path):
    """Checks the arguments that classes of this package define, and ignores all others."""
    check_types(arguments, typing.get_type_hints(SavedArguments), path)
    for name, value in arguments.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            lowest = 1 if name in ("labels", "max_length", "stride", "max_targets", "truncate_dim") else 0
            share = name in ("classifier_dropout", "label_smoothing")
            highest = 1 if share else 10_000 if name in ("labels", "answer_steps", "max_targets") else _WIDEST
            if not lowest <= value <= highest:
                received = shortened(value)
                raise ValueError(f"`{name}` in {path} must be from {lowest} to {highest:,}. Received: {received}.")
    sizes = arguments.get("features")
    for name, value in sizes.items() if isinstance(sizes, dict) else ():
        if isinstance(value, int) and not 0 <= value <= 10_000:
            raise ValueError(f"`features` in {path} must have sizes from 0 to 10,000. Received: {name}={value}.")
    if isinstance(arguments.get("objective"), dict):
        _check_ours(arguments["objective"], f"`objective` of {path}")
    for name, spec in (arguments.get("tasks") or {}).items():
        _check_ours(spec, f"{path}, task {shortened(name)}")
