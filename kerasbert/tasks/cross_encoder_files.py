"""Reads and writes the files by which sentence-transformers describes a `CrossEncoder`, in each of its layouts."""

from pathlib import Path
from typing import Any

from ..data.tasks.prompts import Prompts
from ..data.text.json_files import check_types, read_json, shortened
from .activations import activation_of, torch_path
from .sentence_transformers.encoder import read_encoder
from .sentence_transformers.model import FILE, VERSION
from .sentence_transformers.modules import read_modules, write_json

_TASK = "sequence-classification"
_FIELDS = {
    "model_type": str | None,
    "activation_fn": str | None,
    "prompts": dict[str, str | None] | None,
    "default_prompt_name": str | None,
}


def read_cross_encoder(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Reads the files that version 6 writes beside those of the classifier.

    Returns: (folder of the classifier, constructor arguments of a `Reranker` that the files state). In older layouts,
        for classifiers of transformers, and for the encoder of an embedder, there are no arguments.
    """
    if not (folder / "modules.json").exists():
        return folder, {}
    modules, path = read_modules(folder), folder / FILE
    model = read_json(path) if path.is_file() else {}
    check_types(model, _FIELDS, path)
    is_ours = model.get("model_type") == "CrossEncoder"
    if not is_ours:
        return modules[0].path, {}
    kinds = [module.kind for module in modules]
    if kinds != ["Transformer"]:
        raise ValueError(
            "The folder of a CrossEncoder must have a Transformer module alone, which is a sequence classifier. "
            f"Received: {folder} with {shortened(kinds)}."
        )
    encoder, prompts = read_encoder(modules[0], _TASK), model.get("prompts") or {}
    texts = {name: text for name, text in prompts.items() if text is not None}
    default = model.get("default_prompt_name")
    activation = model.get("activation_fn")
    return encoder.folder, {
        "max_length": encoder.max_length,
        "lowercase": encoder.lowercase,
        "prompts": Prompts(texts, None if default in {*prompts} - {*texts} else default),
        **({"activation": activation_of(activation, path)} if activation else {}),
    }


def stored_activation(config: dict[str, Any]) -> str | None:
    """Returns the activation that versions before 6 have written into a config.json, or None.

    Args:
        config: the content of config.json.
    """
    block = config.get("sentence_transformers")
    path = block.get("activation_fn") if isinstance(block, dict) else None
    path = config.get("sbert_ce_default_activation_function") if path is None else path
    if path is not None and not isinstance(path, str):
        raise ValueError(f"The activation in config.json must be a str. Received: {shortened(path)}.")
    return path and activation_of(path, "config.json")


def write_cross_encoder(folder: Path, activation: str, prompts: Prompts, lowercase: bool) -> None:
    """Writes the files of version 6, except those of the classifier, and the activation where versions 4 and 5 read it.

    Args:
        folder: the folder of the model, which is also that of the classifier, with its config.json.
        activation: a name such as "identity", "tanh", "gelu" or "sigmoid"; see `activations.ACTIVATIONS`.
        prompts: the prompts.
        lowercase: whether texts are converted to lower case before tokenization.
    """
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    settings = {
        "transformer_task": _TASK,
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
        **({"do_lower_case": True} if lowercase else {}),
    }
    model = {
        "model_type": "CrossEncoder",
        "__version__": {"sentence_transformers": VERSION},
        "activation_fn": torch_path(activation),
        "prompts": prompts.texts,
        "default_prompt_name": prompts.default,
    }
    for name, content in (("modules.json", [module]), ("sentence_bert_config.json", settings), (FILE, model)):
        write_json(folder / name, content)
    config = read_json(folder / "config.json")
    config["sentence_transformers"] = {"activation_fn": torch_path(activation), "version": VERSION}
    write_json(folder / "config.json", config)
