"""The settings of the module that encodes texts: `sentence_bert_config.json`, and the limits of its tokenizer."""

import dataclasses
import typing
from pathlib import Path
from typing import Any

from ...checkpoints.folder import ModelFolder
from ...checkpoints.huggingface_config import read_config
from ...core.family import FAMILIES
from ...data.text.json_files import check_types, read_json, shortened
from .modules import Module, refuse, write_json

FILE = "sentence_bert_config.json"
# Versions before 2 named the file after the class of the encoder.
_FILES = (FILE, *(f"sentence_{name}_config.json" for name in (
    "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"
)))  # fmt: skip
NO_LIMIT = 1_000_000  # tokens: the length where neither the tokenizer nor the model has a limit
# What the outputs of an encoder are called for each task.
_OUTPUTS = {"feature-extraction": "last_hidden_state", "fill-mask": "logits", "sequence-classification": "logits"}
# Settings that differ between queries and documents.
_OF_ROLES = ("query_length", "document_length", "query_expansion")
# Options of transformers' loading functions that do not change the outputs.
_HARMLESS = {
    "add_pooling_layer", "attn_implementation", "device_map", "dtype", "low_cpu_mem_usage", "torch_dtype", "use_cache",
    "use_fast", "use_safetensors", "trust_remote_code",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The module that encodes texts.

    Args:
        folder: the folder of the encoder.
        task: what its head does: feature-extraction (there is none), fill-mask or sequence-classification.
        max_length: the number of tokens to which texts are truncated.
        lowercase: whether texts are converted to lower case.
        content: the whole content of the file.
    """

    folder: Path
    task: str
    max_length: int
    lowercase: bool
    content: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Fields:
    max_seq_length: int | None
    do_lower_case: bool | None
    transformer_task: str | None
    module_output_name: str | None
    modality_config: dict[str, dict] | None
    processing_kwargs: dict | None
    model_args: dict | None
    model_kwargs: dict | None
    tokenizer_args: dict | None
    processor_kwargs: dict | None
    config_args: dict | None
    config_kwargs: dict | None


def read_encoder(module: Module, task: str = "feature-extraction", late: bool = False) -> Encoder:
    """Reads the settings of a Transformer module.

    Args:
        module: the module.
        task: the task that the module must have, or by default has.
        late: whether it is that of a late-interaction model, which may have other lengths for queries than for
            documents. The caller reads them from the `content`.
    """
    if module.kind != "Transformer":
        raise refuse(module.path, [module], "The first module must be a Transformer.")
    path = next((module.path / name for name in _FILES if (module.path / name).is_file()), module.path / FILE)
    content = read_json(path) if path.is_file() else {}
    check_types(content, typing.get_type_hints(_Fields), path)
    default = "fill-mask" if "MLMTransformer" in module.type else "feature-extraction"
    _check(content, {"transformer_task": default, **content}["transformer_task"], task, path)
    given = [] if late else [name for name in _OF_ROLES if content.get(name) is not None]
    if given:
        raise ValueError(
            f"Only late-interaction models have lengths of their own for queries and documents. Received: "
            f"{', '.join(given)} in {path}. Remove the settings to use `max_seq_length` for all texts."
        )
    longest = content.get("max_seq_length") or _tokenizer_arguments(content).get("model_max_length")
    if longest is not None and longest < 1:
        raise ValueError(f"`max_seq_length` in {path} must be at least 1. Received: {longest}.")
    return Encoder(module.path, task, longest or _limit(module.path), content.get("do_lower_case") or False, content)


def _check(content, found, task, path):
    """Raises a ValueError for settings under which texts would be read, or hidden states chosen, in other ways."""
    if found != task:
        raise ValueError(f"`transformer_task` in {path} must be {task!r}. Received: {shortened(found)}.")
    texts = (content.get("modality_config") or {"text": {}}).get("text")
    method = None if texts is None else {"method": "forward", "method_output_name": _OUTPUTS[task], **texts}
    if method is None or (method["method"], method["method_output_name"]) != ("forward", _OUTPUTS[task]):
        raise ValueError(
            f"`modality_config` in {path} must read texts by `forward`, as {_OUTPUTS[task]}. "
            f"Received: {shortened(method)}."
        )
    groups = ("processing_kwargs", "model_args", "model_kwargs", "config_args", "config_kwargs")
    unknown = {name for group in groups for name in content.get(group) or {}}
    unknown |= {*_tokenizer_arguments(content)} - {"model_max_length"}
    if unknown - _HARMLESS:
        raise ValueError(
            f"{path} must leave the model and the tokenizer as they are in their own files. Received: "
            f"{', '.join(sorted(unknown - _HARMLESS))}."
        )


def _tokenizer_arguments(content):
    return {**(content.get("tokenizer_args") or {}), **(content.get("processor_kwargs") or {})}


def _limit(folder):
    """The length of a folder without `max_seq_length`: the tokenizer's limit, bounded by the positions of the model."""
    path = folder / "tokenizer_config.json"
    stored = read_json(path) if path.is_file() else {}
    limits = [stored.get("model_max_length", stored.get("max_len"))]
    config = ModelFolder(folder).config
    family = FAMILIES.get(config.get("model_type"))
    if family is not None:
        limits.append(read_config(family.family, config, folder / "config.json").get("max_length"))
    numbers = [limit for limit in limits if isinstance(limit, (int, float)) and not isinstance(limit, bool)]
    return int(min([NO_LIMIT, *(limit for limit in numbers if limit >= 1)]))


def write_encoder(folder: Path, max_length: int, lowercase: bool, **further: Any) -> None:
    """Writes the settings of a Transformer module, with more fields in `further`."""
    write_json(folder / FILE, {"max_seq_length": max_length, "do_lower_case": lowercase, **further})
