"""The modules of sentence-transformers' sparse encoders, and sparse matrices of scipy."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.caller import warn_caller
from ..core.quantization import has_integers
from ..data.tasks.answers import largest_weights
from ..data.text.json_files import check_types, inside, read_json, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from ..retrieval.sparse import ACTIVATIONS, STRATEGIES
from .sentence_transformers.encoder import NO_LIMIT, Encoder, read_encoder, write_encoder
from .sentence_transformers.model import FILE, Model, read_model, write_model
from .sentence_transformers.modules import (
    OLD_TYPE,
    SPARSE_TYPE,
    Module,
    kind_of,
    refuse,
    write_json,
    write_modules,
)
from .sentence_transformers.weights import fill as fill_variables
from .sentence_transformers.weights import read_tensors, write_tensors

WANTED = (
    "A sparse encoder must be a Transformer and a SpladePooling, or a Router with a SparseStaticEmbedding for queries "
    "and these two for documents."
)
QUERY, ENCODER, POOLING = "query_0_SparseStaticEmbedding", ".", "document_1_SpladePooling"
_POOLING = {
    "pooling_strategy": str | None,
    "activation_function": str | None,
    "embedding_dimension": int | None,
    "word_embedding_dimension": int | None,
}
_ROUTER = {"types": dict[str, str], "structure": dict[str, list[str]], "parameters": dict | None}
_PARAMETERS = {"default_route": str | None, "allow_empty_key": bool | None, "route_mappings": dict | None}


def scipy_sparse() -> Any:
    """Returns `scipy.sparse`. Raises an ImportError with the command that installs it."""
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError('Sparse vectors need scipy. Install it: pip install "kerasbert[retrieval]"') from None
    return scipy.sparse


# === Folders ===


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the files of a sparse encoder say.

    Args:
        encoder: the masked language model.
        strategy, activation: the arguments `pooling` and `activation` of a `SparseEmbedder`.
        queries: the fields of its `queries`, or None.
        query_module: the module with the weights of queries, or None.
    """

    encoder: Encoder
    strategy: str
    activation: str
    queries: dict[str, Any] | None = None
    query_module: Module | None = None


def read_parts(model: Model) -> Parts:
    """Reads the modules of a sparse encoder. Raises a ValueError if one of them is not supported."""
    if model.kinds == ["Transformer", "SpladePooling"]:
        return Parts(read_encoder(model.modules[0], "fill-mask"), *_pooling(model.modules[1]))
    if model.kinds != ["Router"]:
        raise refuse(model.folder, model.modules, WANTED)
    routes, default = _read_router(model.modules[0])
    kinds = {name: [module.kind for module in modules] for name, modules in routes.items()}
    if kinds != {"query": ["SparseStaticEmbedding"], "document": ["Transformer", "SpladePooling"]}:
        raise refuse(model.folder, [module for modules in routes.values() for module in modules], WANTED)
    encoder = read_encoder(routes["document"][0], "fill-mask")
    query = routes["query"][0]
    settings = query.settings({"frozen": bool | None, "path": str | None})
    length = _query_length(query, encoder)
    queries = {"trainable": not settings.get("frozen"), "default": default == "query"}
    queries |= {"max_length": None if length == encoder.max_length else length}
    return Parts(encoder, *_pooling(routes["document"][1]), queries, query)


def max_active_dims(model: Model) -> int | None:
    """The number of weights of a vector that are kept, or None for all."""
    path, found = model.folder / FILE, model.content.get("max_active_dims")
    check_types({"max_active_dims": found}, {"max_active_dims": int | None}, path)
    if found is not None and found < 1:
        raise ValueError(f"`max_active_dims` in {path} must be at least 1. Received: {found}.")
    return found


def _pooling(module):
    settings = module.settings(_POOLING)
    strategy, activation = settings.get("pooling_strategy") or "max", settings.get("activation_function") or "relu"
    if strategy not in STRATEGIES or activation not in ACTIVATIONS:
        raise ValueError(
            f"{module.path / 'config.json'} must have a pooling_strategy of {', '.join(STRATEGIES)} and an "
            f"activation_function of {', '.join(ACTIVATIONS)}. Received: {shortened((strategy, activation))}."
        )
    return strategy, activation


def _read_router(module):
    """Returns ({route: its modules}, the default route) of a Router, whose file was `config.json` in older versions."""
    paths = (module.path / "router_config.json", module.path / "config.json")
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"A Router needs a router_config.json. Received: {module.path} without it.")
    content = read_json(path)
    check_types({**dict.fromkeys(_ROUTER), **content}, _ROUTER, path)
    parameters = content.get("parameters") or {}
    check_types(parameters, _PARAMETERS, path)
    types, structure = content["types"], content["structure"]
    unknown = [name for names in structure.values() for name in names if name not in types]
    if unknown or parameters.get("route_mappings"):
        what = f"{shortened(unknown)} without a type" if unknown else "route_mappings"
        raise ValueError(f"{path} must route by `structure` to modules that are in `types`. Received: {what}.")
    default = parameters.get("default_route")
    if default is None and parameters.get("allow_empty_key", True):
        default = next(iter(structure), None)
    modules = {name: Module(kind_of(kind), inside(module.path, name, path), kind) for name, kind in types.items()}
    return {route: [modules[name] for name in names] for route, names in structure.items()}, default


def _query_length(module, encoder):
    """The limit of the tokenizer of queries, which must be the tokenizer of documents."""
    tokenizers = [Tokenizer.load(path) for path in (module.path, encoder.folder)]
    if tokenizers[0].hash != tokenizers[1].hash:
        raise ValueError(
            "Queries and documents must have the same tokenizer. Received: two tokenizers, in "
            f"{module.path} and {encoder.folder}."
        )
    return min(tokenizers[0].max_length or NO_LIMIT, NO_LIMIT)


def read_query_weights(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Returns (folder, {name: array}) for the weights of queries, or None if there are none.

    A file of {token: weight} is returned in place of the arrays as {"tokens": content}.
    """
    module = read_parts(read_model(folder)).query_module
    if module is None:
        return None
    name = module.settings({"frozen": bool | None, "path": str | None}).get("path")
    if name is None:
        return module.path, read_tensors(module.path)
    path = next(
        (p for p in (inside(module.path, name, module.path), inside(folder, name, folder)) if p.is_file()), None
    )
    if path is None:
        raise FileNotFoundError(f"{module.path} names a file of weights that is missing: {shortened(name)}.")
    tokens = read_json(path)
    check_types({"weights": tokens}, {"weights": dict[str, float]}, path)
    return module.path, {"tokens": tokens}


def fill(model: Any, found: tuple[Path, dict[str, Any]] | None, allow_nan: bool) -> None:
    """Sets the weights of queries of a `SparseEmbedder` to the result of `read_query_weights`."""
    if model.query_weights is None:
        return
    if found is None:
        warn_caller("The folder has no weights of queries: they are 1, train before use.")
    elif "tokens" in found[1]:
        tokens = weights_of_tokens(found[1]["tokens"], model.require_tokenizer(), model.embedding_dim)
        model.set_query_weights(tokens)
    else:
        fill_variables({"weight": (model.query_weights.weight, False)}, found[1], found[0], allow_nan)


def weights_of_tokens(weights: Mapping[str, float], tokenizer: Tokenizer, size: int) -> np.ndarray:
    """Converts {token: weight} to float32 (size,).

    Tokens that are not in the vocabulary stand for the unknown one, as in sentence-transformers.
    """
    found = np.zeros(size, "float32")
    for token, weight in weights.items():
        number = tokenizer.backend.token_to_id(token)
        number = tokenizer.unk_id if number is None else number
        if number is not None:
            found[number] = weight
    return found


def write(model: Any, folder: Path) -> None:
    """Writes the files of a sparse encoder, in the layout that versions 5 and 6 read, except those of the encoder.

    Args:
        model: a `SparseEmbedder`.
        folder: the folder of the model, which is also that of the encoder.
    """
    write_encoder(folder, model.max_length, model.lowercase)
    dims = {"max_active_dims": model.max_active_dims}
    write_model(folder, "SparseEncoder", model.prompts, model.similarity_name, **dims)
    pooling = {
        "pooling_strategy": model.strategy,
        "activation_function": model.activation,
        "word_embedding_dimension": model.embedding_dim,
    }
    encoder, splade = SPARSE_TYPE.format("MLMTransformer"), SPARSE_TYPE.format("SpladePooling")
    if model.query_weights is None:
        write_json(folder / "1_SpladePooling" / "config.json", pooling)
        write_modules(folder, [(encoder, ""), (splade, "1_SpladePooling")])
        return
    write_json(folder / POOLING / "config.json", pooling)
    write_json(folder / QUERY / "config.json", {"frozen": not model.queries.trainable})
    if not has_integers(model):
        write_tensors(folder / QUERY, {"weight": (model.query_weights.weight, False)})
    if model.tokenizer is not None:
        model.tokenizer.save(folder / QUERY, False, model.queries.max_length or model.max_length)
    router = {
        "types": {QUERY: SPARSE_TYPE.format("SparseStaticEmbedding"), ENCODER: encoder, POOLING: splade},
        "structure": {"query": [QUERY], "document": [ENCODER, POOLING]},
        "parameters": {"default_route": "query" if model.queries.default else "document", "allow_empty_key": True},
    }
    write_json(folder / "router_config.json", router)
    write_modules(folder, [(OLD_TYPE.format("Router"), "")])


def weighted_presence(rows: Sequence[np.ndarray], weights: np.ndarray) -> Any:
    """The weights of the tokens that occur in each row, each once: a CSR matrix, float32 (n, v)."""
    columns = [np.unique(row) for row in rows]
    starts = np.cumsum([0, *map(len, columns)])
    indices = np.concatenate(columns).astype("int32")
    found = scipy_sparse().csr_matrix((weights[indices], indices, starts), shape=(len(rows), len(weights)))
    found.eliminate_zeros()
    return found


def with_largest(vectors: Any, count: int | None) -> Any:
    """Keeps the `count` weights with the largest absolute values in each row of a CSR matrix; None keeps all."""
    if count is None:
        return vectors
    spans = zip(vectors.indptr, vectors.indptr[1:], strict=False)
    rows = [largest_weights(vectors.indices[a:b], vectors.data[a:b], count) for a, b in spans]
    indices, data = (np.concatenate([part[i] for part in rows]) for i in range(2))
    starts = np.cumsum([0, *(len(ids) for ids, _ in rows)])
    return scipy_sparse().csr_matrix((data, indices, starts), shape=vectors.shape)


# === Comparison ===


def compared(queries: Any, documents: Any, similarity: str) -> np.ndarray:
    """The similarities of the rows of two CSR matrices, float32 (a, b)."""
    if similarity == "manhattan":
        scores = np.zeros((queries.shape[0], documents.shape[0]), "float32")
        for number in range(queries.shape[0]):
            query = queries[number].toarray()
            for start in range(0, documents.shape[0], 64):
                part = documents[start : start + 64].toarray()
                scores[number, start : start + 64] = -np.abs(part - query).sum(axis=1)
        return scores
    queries, documents = queries.astype("float64"), documents.astype("float64")
    norms = [np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel()) for x in (queries, documents)]
    scores = (queries @ documents.T).toarray()
    if similarity == "cosine":
        scores = scores / np.maximum(norms[0], 1e-12)[:, None] / np.maximum(norms[1], 1e-12)
    if similarity == "euclidean":
        scores = -np.sqrt(np.maximum(norms[0][:, None] ** 2 - 2 * scores + norms[1] ** 2, 0))
    return scores.astype("float32")
