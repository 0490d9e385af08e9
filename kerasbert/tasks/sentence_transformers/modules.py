"""The modules of a folder of sentence-transformers: `modules.json`, and the settings in the folder of each module."""

import dataclasses
import json
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...data.text.files import write_text
from ...data.text.json_files import check_types, inside, read_json, shortened

# All spellings of the types: `models.Pooling` (until 5.3), `models.Pooling.Pooling`, and `base.modules.dense.Dense` or
# `sentence_transformer.modules.pooling.Pooling` (since 5.4).
_TYPE = re.compile(
    r"sentence_transformers\.(models|base\.modules"
    r"|(sentence_transformer|sparse_encoder|multi_vector_encoder|cross_encoder)\.(models|modules))(\.\w+)?\.(\w+)"
)
# Classes that were renamed: the name that the same module has now.
_RENAMED = {"Asym": "Router", "MLMTransformer": "Transformer"}
# The types that are written: those of the first versions, which all later ones read, too.
OLD_TYPE = "sentence_transformers.models.{}"
SPARSE_TYPE = "sentence_transformers.sparse_encoder.models.{}"


@dataclasses.dataclass(frozen=True)
class Module:
    """A module of a folder.

    Args:
        kind: name of the class in sentence-transformers 6, or the whole type if the class is not one of its own.
        path: the folder of the module.
        type: the type in the file.
    """

    kind: str
    path: Path
    type: str

    def settings(self, fields: Mapping[str, Any], file: str = "config.json", required: Iterable[str] = ()) -> dict:
        """Reads the settings of the module, {} without a file. Raises a ValueError for wrong types.

        Args:
            fields: {name: type of the value}. Other names are refused, because they would change the outputs.
            file: name of the file.
            required: names that the file must have.
        """
        path = self.path / file
        content = read_json(path) if path.is_file() else {}
        check_types(content, dict(fields), path)
        unknown, missing = sorted({*content} - {*fields}), [name for name in required if content.get(name) is None]
        if unknown or missing:
            what = f"unknown settings {shortened(unknown)}" if unknown else f"no {', '.join(missing)}"
            raise ValueError(f"{path} must have the settings of a {self.kind}: {', '.join(fields)}. Received: {what}.")
        return content


@dataclasses.dataclass(frozen=True)
class _Row:
    """The fields of an entry of `modules.json` that are read."""

    type: str
    path: str


def kind_of(type_name: str, foreign: Mapping[str, str] = {}) -> str:
    """Returns the class that a type in a file names, such as Pooling, or the type itself if it is of another package.

    Args:
        type_name: the type.
        foreign: {type of another package: the class here}.
    """
    found = _TYPE.fullmatch(type_name)
    kind = found.groups()[-1] if found else foreign.get(type_name, type_name)
    return _RENAMED.get(kind, kind)


def read_modules(folder: Path, foreign: Mapping[str, str] = {}) -> list[Module]:
    """Reads `modules.json`.

    Args:
        folder: the folder of a model.
        foreign: see `kind_of`.
    """
    path = folder / "modules.json"
    modules = []
    for row in read_json(path, list):
        if not isinstance(row, dict):
            raise ValueError(f"{path} must be a list of modules, each a JSON object. Received: {shortened(row)}.")
        check_types({"type": None, "path": None, **row}, typing.get_type_hints(_Row), path)
        modules.append(Module(kind_of(row["type"], foreign), inside(folder, row["path"], path), row["type"]))
    if not modules:
        raise ValueError(f"{path} must list the modules of a model. Received: none.")
    return modules


def refuse(folder: Path, modules: Iterable[Module], wanted: str) -> ValueError:
    """Returns the error for a folder whose modules are not supported.

    Args:
        folder: the folder.
        modules: its modules.
        wanted: the modules that are supported.
    """
    return ValueError(f"{wanted} Received: {folder} with {', '.join(shortened(module.kind) for module in modules)}.")


def write_modules(folder: Path, rows: Iterable[tuple[str, str]]) -> None:
    """Writes `modules.json`.

    Args:
        folder: the folder of a model.
        rows: (type, name of the folder) of each module.
    """
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (kind, path) in enumerate(rows)]
    write_json(folder / "modules.json", rows)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, in a folder that is created if it does not exist."""
    path.parent.mkdir(exist_ok=True)
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
