"""Reads and writes the JSON files of a sentence-transformers folder. The types of all values are checked."""

import dataclasses
import json
import typing

from ..data.text.files import write_text
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
    truncate_dim: int | None = None


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
    path = folder / "config_sentence_transformers.json"
    prompts = _read(path, Prompts)
    if prompts.get("truncate_dim") is not None and prompts["truncate_dim"] < 1:
        raise ValueError(f"`truncate_dim` in {path} must be at least 1. Received: {prompts['truncate_dim']}.")
    return settings, prompts


def read_pooling(path, flags):
    """Reads the settings of a pooling module. The values of the fields in `flags` must be bool."""
    return _read(path, Pooling, dict.fromkeys(flags, bool | None))


def _read(path, record, further=()):
    content = read_json(path) if path.is_file() else {}
    check_types(content, {**typing.get_type_hints(record), **dict(further)}, path)
    return content


def write_embedder(folder, normalize, pooling, lengths, prompts):
    """Writes the files of a sentence-transformers folder, except those of the encoder.

    Args:
        folder: the folder of the whole model, which is also that of the encoder.
        normalize: whether there is a Normalize module.
        pooling, lengths, prompts: contents of the settings of the pooling module, of `sentence_bert_config.json` and of
            `config_sentence_transformers.json`, dicts.
    """
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    _write(folder / "modules.json", modules)
    _write(folder / "1_Pooling" / "config.json", pooling)
    _write(folder / "sentence_bert_config.json", lengths)
    _write(folder / "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine"})


def _write(path, value):
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
