"""Folders of late-interaction models: of sentence-transformers 6, PyLate, and Stanford's ColBERT.

PyLate and Stanford insert the id of a marker after [CLS]. A text with the marker before it has the same tokens if the
tokenizer knows the marker as one token, so that markers become prompts, as in sentence-transformers.
"""

import dataclasses
import json
import string
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.folder import ModelFolder
from ..checkpoints.tensor_files import TensorFiles
from ..core.quantization import has_integers
from ..data.tasks.prompts import Prompts
from ..data.text.json_files import check_types, read_json
from ..data.tokenizers.tokenizer import Tokenizer
from .dense_modules import OF_TOKENS, OF_VECTORS, check_width, layer_of, settings_of
from .sentence_transformers.encoder import read_encoder
from .sentence_transformers.model import Model, read_model
from .sentence_transformers.modules import Module, refuse, write_json, write_modules
from .sentence_transformers.weights import read_tensors, write_tensors
from .token_rules import QueryExpansion, TokenRules
from .vector_layers import Dense, Normalize, VectorLayer, width_after

SIMILARITIES = {"max_sim": "maxsim", "mean_max_sim": "meanmaxsim"}
_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
}
_FOREIGN = {"pylate.models.Dense.Dense": "Dense"}
_STANFORD = "HF_ColBERT"  # the architecture in its config.json
_PUNCTUATION = tuple(string.punctuation)
_LENGTHS = {"query_length": int | None, "document_length": int | None, "query_expansion": dict | None}
_MASK = {
    "skiplist_words": list[str] | None,
    "skiplist_tasks": str | list[str] | None,
    "keep_only_token_ids": list[int] | None,
}
_PYLATE = {
    "query_prefix": str | None,
    "document_prefix": str | None,
    "query_length": int | None,
    "document_length": int | None,
    "do_query_expansion": bool | None,
    "attend_to_expansion_tokens": bool | None,
    "skiplist_words": list[str] | None,
}
# How a tokenizer recognizes a marker: before its normalization.
_MARKER = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_ARTIFACT = {
    "query_token_id": str | None,
    "doc_token_id": str | None,
    "query_maxlen": int | None,
    "doc_maxlen": int | None,
    "attend_to_mask_tokens": bool | None,
    "mask_punctuation": bool | None,
}


def read_late_folder(folder: Path, arguments: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Returns (folder of the encoder, constructor arguments of a `MultiVectorEmbedder`), for any folder of an encoder.

    Args:
        folder: the folder.
        arguments: the constructor arguments that the caller gave.
    """
    markers = []
    if (folder / "modules.json").exists():
        model = _open(folder)
        encoder = read_encoder(model.modules[0], late=True)
        found = {"max_length": encoder.max_length, "lowercase": encoder.lowercase, "prompts": model.prompts}
        found |= {"projection": [record for record, _ in _layers(model)], "tokens": _rules(model, encoder.content)}
        ours = {name: ours for ours, name in SIMILARITIES.items()}
        # The similarity of a model of text vectors has no meaning here.
        found["similarity"] = ours.get(model.similarity, "max_sim")
        if _is_of_pylate(model):
            further, markers = _pylate(model)
            found |= further
        folder = encoder.folder
    elif is_stanford(folder):
        found, markers = _stanford(folder)
    else:
        return folder, arguments
    if markers and "tokenizer" not in arguments:
        found["tokenizer"] = with_markers(Tokenizer.load(folder), markers)
    return folder, {**found, **arguments}


def is_stanford(folder: Path) -> bool:
    """Whether a folder is that of Stanford's ColBERT."""
    return _STANFORD in (ModelFolder(folder).config.get("architectures") or [])


def read_projections(folder: Path) -> list[tuple[VectorLayer, Path, dict[str, np.ndarray]]]:
    """Reads the weights of the projections in a folder: (record, folder, {name: array}) of each."""
    found = []
    if (folder / "modules.json").exists():
        for record, module in _layers(_open(folder)):
            if module is not None:
                tensors = read_tensors(module.path)
                check_width(module, tensors)
                found.append((record, module.path, tensors))
    elif is_stanford(folder):
        weight = _stanford_weight(folder)
        found.append((_projection(len(weight)), folder, {"linear.weight": weight}))
    return found


# === sentence-transformers ===


def _is_of_pylate(model):
    return model.model_type == "ColBERT" or any(module.type in _FOREIGN for module in model.modules)


def _open(folder):
    similarities = (*SIMILARITIES.values(), "MaxSim", "cosine", "dot", "euclidean", "manhattan")
    return read_model(folder, _FOREIGN, similarities)


def _layers(model: Model) -> list[tuple[VectorLayer, Module | None]]:
    """The layers of tokens of a model, each with its module if that has weights.

    A model of text vectors loses its pooling, and its layers of vectors become layers of tokens.
    """
    late = model.model_type == "MultiVectorEncoder" or _is_of_pylate(model)
    known = ("Dense", "Normalize", "MultiVectorMask") if late else ("Pooling", "Dense", "Normalize")
    modules = model.modules[1:]
    if any(module.kind not in known for module in modules):
        raise refuse(model.folder, model.modules, f"The modules after the encoder must be {', '.join(known)}.")
    place, found = OF_TOKENS, []
    for module in modules:
        if module.kind == "Pooling":
            place = OF_VECTORS
        elif module.kind == "Dense" or (module.kind == "Normalize" and late):
            # A Dense of an older folder does not say that it reads tokens.
            record = layer_of(module, place, OF_TOKENS if late and module.kind == "Dense" else OF_VECTORS)
            found.append((record, module if module.kind == "Dense" else None))
    if not late and not found:
        found.append((_projection(), None))
    if not late or _is_of_pylate(model):
        found.append((Normalize(), None))
    return found


def _projection(units=128):
    return Dense(units, "identity", bias=False)


def _rules(model, content):
    """The rules in the settings of the encoder, and of the MultiVectorMask."""
    check_types(content, _LENGTHS, model.folder)
    mask = next((module for module in model.modules if module.kind == "MultiVectorMask"), None)
    settings = {} if mask is None else mask.settings(_MASK)
    tasks = settings.get("skiplist_tasks")
    tasks = "document" if tasks is None else tasks
    expansion = content.get("query_expansion")
    if expansion is not None and mask is None:
        raise refuse(model.folder, model.modules, "Query expansion needs a MultiVectorMask, which scores its tokens.")
    return TokenRules(
        content.get("query_length"),
        content.get("document_length"),
        expansion,
        tuple(settings.get("skiplist_words") or ()),
        (tasks,) if isinstance(tasks, str) else tuple(tasks),
        settings.get("keep_only_token_ids"),
    )


def late_settings(rules: TokenRules) -> dict[str, Any]:
    """The settings of the encoder for rules; those that are not set are left out."""
    found = {"query_length": rules.query_length, "document_length": rules.document_length}
    found["query_expansion"] = None if rules.expansion is None else dataclasses.asdict(rules.expansion)
    return {name: value for name, value in found.items() if value is not None}


def _mask_settings(rules):
    keep = None if rules.keep_ids is None else list(rules.keep_ids)
    words, tasks = list(rules.skip_words), list(rules.skip_in)
    return {"skiplist_words": words, "skiplist_tasks": tasks, "keep_only_token_ids": keep}


def write_projections(model: Any, folder: Path) -> None:
    """Writes the `modules.json` of a `MultiVectorEmbedder`, and the folders of its modules.

    The weights are left out if the model is quantized, because a file of its own then has them.
    """
    rows, width = [(_TYPES["Transformer"], "")], model.encoder_width
    layers = zip(model.records, model.projection.layers_in_order, strict=True)
    for record, layer in (*layers, (model.tokens, None)):
        kind = "MultiVectorMask" if layer is None else type(record).__name__
        path = folder / f"{len(rows)}_{kind}"
        rows.append((_TYPES[kind], path.name))
        write_json(
            path / "config.json", _mask_settings(record) if layer is None else settings_of(record, width, OF_TOKENS)
        )
        if layer is None:
            continue
        if isinstance(record, Dense) and not has_integers(model):
            write_tensors(path, layer.stored())
        width = width_after([record], width)
    write_modules(folder, rows)


# === PyLate, Stanford ===


def _pylate(model):
    """(Arguments of a folder of PyLate, markers). Settings that are missing are the defaults of PyLate."""
    content = {name: value for name, value in model.content.items() if value is not None}
    check_types(content, _PYLATE, model.folder)
    expansion = None
    if content.get("do_query_expansion", True):
        attend = content.get("attend_to_expansion_tokens", False)
        expansion = QueryExpansion(content.get("query_length", 32), attend=attend)
    markers = {
        name: content.get(f"{name}_prefix", marker) for name, marker in (("query", "[Q] "), ("document", "[D] "))
    }
    texts = dict(model.prompts.texts)
    texts |= {name: marker + texts.get(name, "").removeprefix(marker) for name, marker in markers.items()}
    length = None if expansion else content.get("query_length", 32)
    words = tuple(content.get("skiplist_words", _PUNCTUATION))
    rules = TokenRules(length, content.get("document_length", 180), expansion, words)
    return {"tokens": rules, "prompts": dataclasses.replace(model.prompts, texts=texts)}, [*markers.values()]


def _stanford(folder):
    """(Arguments of a folder of Stanford's ColBERT, markers)."""
    path = folder / "artifact.metadata"
    content = read_json(path) if path.is_file() else {}
    check_types(content, _ARTIFACT, path)
    content = {name: value for name, value in content.items() if value is not None}
    expansion = QueryExpansion(content.get("query_maxlen", 32), attend=content.get("attend_to_mask_tokens", False))
    words = _PUNCTUATION if content.get("mask_punctuation", True) else ()
    markers = [content.get("query_token_id", "[unused0]"), content.get("doc_token_id", "[unused1]")]
    arguments = {
        "projection": [_projection(len(_stanford_weight(folder))), Normalize()],
        "tokens": TokenRules(document_length=content.get("doc_maxlen"), expansion=expansion, skip_words=words),
        "prompts": Prompts({"query": f"{markers[0]} ", "document": f"{markers[1]} "}),
    }
    return arguments, markers


def _stanford_weight(folder):
    """The projection in the root of a folder of Stanford's ColBERT, float (units, inputs)."""
    files = TensorFiles(folder)
    if "linear.weight" not in files.keys():
        raise ValueError(
            f"A folder of ColBERT must have a linear.weight, the projection. Received: {folder} without it."
        )
    return files.read("linear.weight")


def with_markers(tokenizer: Tokenizer, markers: list[str]) -> Tokenizer:
    """Returns a tokenizer that reads each marker of the vocabulary as one token, whatever it does to texts.

    A marker may have a space at the end, which can be part of the token. Markers that are not in the vocabulary, such
    as "query: ", are read as text.
    """
    content = json.loads(tokenizer.to_json())
    added = content["tokenizer"].setdefault("added_tokens", [])
    for marker in filter(str.split, markers):
        for token in (marker, marker.split(None, 1)[0]):
            index = tokenizer.backend.token_to_id(token)
            if index is None:
                continue
            if [row.tolist() for row in tokenizer.encode([token], add_special_tokens=False)] != [[index]]:
                added[:] = [entry for entry in added if entry["id"] != index]
                added.append({"id": index, "content": token, **_MARKER})
            break
    content["tokenizer"]["added_tokens"] = sorted(added, key=lambda entry: entry["id"])
    return Tokenizer.from_json(json.dumps(content))
