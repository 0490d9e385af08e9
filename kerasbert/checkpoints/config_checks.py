"""Checks `config.json`: types against the annotations of the family's config, and numbers against fixed limits."""

import dataclasses
import typing

from ..data.text.json_files import check_types, shortened

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


def check_config_file(stored, path):
    """Raises a ValueError if a `config.json` contains something that no family supports.

    Args:
        stored: the content of the file.
        path: path of the file, for messages.
    """
    check_types(stored, typing.get_type_hints(ConfigFile), path)
    quantized = stored.get("quantization_config")
    if quantized is not None and quantized != OWN_QUANTIZATION:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise ValueError(
            f"Weights must not be quantized. Received: weights quantized by {shortened(method)}, according to {path}. "
            "Use the checkpoint from which the quantized one was made."
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


def check_sizes_of(config):
    """Raises a ValueError if a number in a config that was made in Python is outside the limits of its field."""
    for field in dataclasses.fields(config) if dataclasses.is_dataclass(config) else ():
        _check_size(field.name, field.name, getattr(config, field.name), type(config).__name__)


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
