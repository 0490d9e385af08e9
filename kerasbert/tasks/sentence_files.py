"""Reads the JSON files of a sentence-transformers folder and checks the types of their values."""

import dataclasses
import typing

from ..data.text.json_files import check_types, read_json, shortened


@dataclasses.dataclass(frozen=True)
class Module:
    """An entry of `modules.json`: the class of a module, and the folder with its settings."""

    type: str
    path: str


@dataclasses.dataclass(frozen=True)
class Settings:
    """The fields of `sentence_bert_config.json`."""

    max_seq_length: int | None = None
    do_lower_case: bool | None = None


@dataclasses.dataclass(frozen=True)
class Prompts:
    """The fields of `config_sentence_transformers.json`."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None


@dataclasses.dataclass(frozen=True)
class Pooling:
    """The fields of a pooling module's `config.json`, other than its `pooling_mode_...` flags."""

    pooling_mode: str | list[str] | None = None
    include_prompt: bool | None = None


def read_modules(folder):
    """Reads the entries of `modules.json`."""
    path = folder / "modules.json"
    modules = read_json(path, list)
    for module in modules:
        if not isinstance(module, dict):
            raise ValueError(f"{path} must be a list of modules, each a JSON object. Received: {shortened(module)}.")
        check_types({"type": None, "path": None, **module}, typing.get_type_hints(Module), path)
    return modules


def read_settings(encoder, folder):
    """Reads two optional files: `sentence_bert_config.json` and `config_sentence_transformers.json`.

    Args:
        encoder: the folder of the encoder, which may contain the first file.
        folder: the folder of the whole model, which may contain the second file.

    Returns: (content of the first file, content of the second file), two dicts. A missing file gives an empty dict.
    """
    settings = _read(encoder / "sentence_bert_config.json", Settings)
    longest = settings.get("max_seq_length")
    if longest is not None and longest < 1:
        raise ValueError(
            f"`max_seq_length` in {encoder / 'sentence_bert_config.json'} must be at least 1. Received: {longest}."
        )
    return settings, _read(folder / "config_sentence_transformers.json", Prompts)


def read_pooling(path, flags):
    """Reads the settings of a pooling module. The values of the fields in `flags` must be bool."""
    return _read(path, Pooling, dict.fromkeys(flags, bool | None))


def _read(path, record, further=()):
    content = read_json(path) if path.is_file() else {}
    check_types(content, {**typing.get_type_hints(record), **dict(further)}, path)
    return content
