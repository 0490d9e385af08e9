"""The settings of a whole model of sentence-transformers: `config_sentence_transformers.json`."""

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...data.tasks.prompts import Prompts
from ...data.text.json_files import check_types, read_json, shortened
from .modules import Module, read_modules, write_json

FILE = "config_sentence_transformers.json"
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
VERSION = "6.2.0"  # whose files are written


@dataclasses.dataclass(frozen=True)
class Model:
    """A folder of sentence-transformers.

    Args:
        folder: the folder.
        modules: its modules, in order.
        model_type: the class of the model, such as SentenceTransformer, SparseEncoder or MultiVectorEncoder.
        prompts: the prompts. Their `pooled` is a setting of the pooling module, which is not read here.
        similarity: the name of the similarity, or None for the default of the class.
        truncate_dim: number of components that are kept of a vector, or None for all.
        content: the whole content of the file.
    """

    folder: Path
    modules: list[Module]
    model_type: str
    prompts: Prompts
    similarity: str | None
    truncate_dim: int | None
    content: dict[str, Any]

    @property
    def kinds(self) -> list[str]:
        """The classes of the modules."""
        return [module.kind for module in self.modules]


@dataclasses.dataclass(frozen=True)
class _Fields:
    model_type: str | None
    prompts: dict[str, str | None] | None
    default_prompt_name: str | None
    similarity_fn_name: str | None
    truncate_dim: int | None


def read_model(folder: Path, foreign: Mapping[str, str] = {}, similarities: tuple[str, ...] = SIMILARITIES) -> Model:
    """Reads the two files that describe a whole model.

    Args:
        folder: the folder, which has a `modules.json`.
        foreign: {type of a module of another package: the class here}.
        similarities: the similarities that the class of the model has.
    """
    path = folder / FILE
    content = read_json(path) if path.is_file() else {}
    check_types(content, typing.get_type_hints(_Fields), path)
    similarity, dim = content.get("similarity_fn_name"), content.get("truncate_dim")
    if similarity not in (None, *similarities):
        raise ValueError(
            f"`similarity_fn_name` in {path} must be one of {', '.join(similarities)}. "
            f"Received: {shortened(similarity)}."
        )
    if dim is not None and dim < 1:
        raise ValueError(f"`truncate_dim` in {path} must be at least 1. Received: {dim}.")
    return Model(
        folder,
        read_modules(folder, foreign),
        content.get("model_type") or "SentenceTransformer",
        _read_prompts(content, path),
        similarity,
        dim,
        content,
    )


def _read_prompts(content, path):
    """The prompts in a file. sentence-transformers 6 has empty ones for queries and documents if there are none.

    They are added where they count: where the prompts would otherwise have been others, such as the default one.
    """
    texts = {name: text or "" for name, text in (content.get("prompts") or {}).items()}
    default = content.get("default_prompt_name")
    if default is not None and default not in {*texts, "query", "document"}:
        raise ValueError(
            f"`default_prompt_name` in {path} must be one of {sorted(texts)}. Received: {shortened(default)}."
        )
    prompts = Prompts(texts if default is None else {default: "", **texts}, default)
    for name, text in (("query", prompts.text(prompts.for_queries)), ("document", prompts.text(prompts.for_documents))):
        if text and name not in texts:
            prompts = dataclasses.replace(prompts, texts={**prompts.texts, name: ""})
    return prompts


def _written_prompts(prompts):
    """The texts of prompts, with those of queries and documents under the names that sentence-transformers 6 reads."""
    uses = {"query": prompts.text(prompts.for_queries), "document": prompts.text(prompts.for_documents)}
    return {**{name: text for name, text in uses.items() if text}, **prompts.texts}


def write_model(folder: Path, model_type: str, prompts: Prompts, similarity: str | None, **further: Any) -> None:
    """Writes the file.

    Args:
        folder: the folder of the model.
        model_type, prompts, similarity: as in `Model`.
        **further: more fields; those that are None are left out.
    """
    content = {
        "model_type": model_type,
        "__version__": {"sentence_transformers": VERSION},
        "prompts": _written_prompts(prompts),
        "default_prompt_name": prompts.default,
        "similarity_fn_name": similarity,
        **{name: value for name, value in further.items() if value is not None},
    }
    write_json(folder / FILE, content)
