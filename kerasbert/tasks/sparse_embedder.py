"""Sparse embeddings: a weight for each token of the vocabulary (SPLADE). Reads and writes sentence-transformers."""

import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.batches.bucketing import resized
from ..data.counts import check_counts
from ..data.tasks.answers import sparse_weights
from ..data.tasks.prompts import Prompts
from ..data.text.json_files import check_types, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.composite import Layer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..retrieval.loss import Loss
from ..retrieval.sparse import ACTIVATIONS, STRATEGIES, activated
from . import sparse_modules
from .embedder import Embedder
from .sentence_transformers.model import read_model
from .unmarked import encode_unmarked, unmarked_rows

TOKENS_AT_A_TIME = 512  # whose logits over the vocabulary are computed together in prediction


@dataclasses.dataclass(frozen=True)
class QueryWeights:
    """Queries without an encoder: each token of a query has a weight of its own, wherever it stands.

    Papers: Formal et al. 2021, arXiv 2107.05720, section 3.3; Geng et al. 2024, arXiv 2411.04403.

    Args:
        trainable: whether the weights are trained. Otherwise they stay, such as inverse document frequencies.
        default: whether `embed` computes the vectors of queries, and not those of documents.
        max_length: maximum number of tokens per query, without special tokens. Default: the model's `max_length`.

    Raises:
        ValueError: if a value has the wrong type, or `max_length` is below 1.
    """

    trainable: bool = True
    default: bool = False
    max_length: int | None = None

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(QueryWeights)
        check_types(dataclasses.asdict(self), hints, "QueryWeights")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"`max_length` of QueryWeights must be at least 1. Received: {self.max_length}.")


def _queries_of(queries):
    """Returns a `QueryWeights`, from one or from the dict of its fields, or None."""
    if queries is None or isinstance(queries, QueryWeights):
        return queries
    known = [field.name for field in dataclasses.fields(QueryWeights)]
    if not isinstance(queries, Mapping) or not set(queries) <= set(known):
        raise ValueError(
            f"`queries` must be a QueryWeights, with the fields {', '.join(known)}. Received: {queries!r:.100}."
        )
    return QueryWeights(**queries)


class TokenWeights(Layer):
    """A weight for each token of the vocabulary.

    Args:
        vocabulary_size: number of tokens v.

    Call:
        ids: int32 (b, s), without special tokens.
        real: bool (b, s), or None, True at tokens that are not padding.

    Returns: float32 (b, v), the weights of the tokens that occur in a row, and 0 elsewhere.
    """

    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.vocabulary_size = vocabulary_size

    def build(self, ids_shape=None, real_shape=None):
        self.weight = self.add_weight(name="weight", shape=(self.vocabulary_size,), initializer="ones")

    def call(self, ids, real=None):
        size = ops.shape(ids)
        ids = ops.cast(ids, "int32")
        ids = ids if real is None else ops.where(real, ids, self.vocabulary_size)  # a column that is left out
        rows = ops.broadcast_to(ops.arange(size[0], dtype="int32")[:, None], size)
        places = ops.reshape(ops.stack([rows, ids], axis=-1), (-1, 2))
        present = ops.zeros((size[0], self.vocabulary_size + 1))
        present = ops.scatter_update(present, places, ops.ones(ops.shape(places)[:1]))[:, :-1]
        return ops.where(present > 0, ops.convert_to_tensor(self.weight), 0.0)


@keras.saving.register_keras_serializable("kerasbert")
class SparseEmbedder(Embedder):
    """Maps texts to sparse vectors, which have a weight for each token of the vocabulary.

        w_v = max over tokens i of log(1 + relu(logit_iv))

    The logits are those of a masked language model. Papers: Formal et al. 2021, arXiv 2107.05720 and arXiv 2109.10086
    (SPLADE). `from_preset` and `save_to_preset` read and write folders of sentence-transformers' `SparseEncoder`.
    `from_preset` also reads any folder with a masked language model.

    Args:
        backbone: an encoder with a `masked_lm` head.
        pooling: "max" or "sum" over the tokens, special ones included.
        activation: "relu" is the formula above; "log1p_relu" applies the logarithm twice.
        max_length: maximum number of tokens per text; longer texts are truncated. Default: the maximum length of the
            backbone and the tokenizer, at most 512.
        prompts: {name: text to put before each text}, or a `Prompts`.
        objective: the training objective of `fit`, whose examples are tuples of a query and documents. It is usually a
            `kerasbert.retrieval.Splade` around a loss on dot products.
        queries: a `QueryWeights` for queries without an encoder. Default: queries are encoded as documents are.
        max_active_dims: number of weights that `embed` keeps of each vector. As in sentence-transformers, they are the
            weights with the largest absolute values. Default: all.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        **kwargs: `name`, `dtype`, `lowercase` and `similarity`. `lowercase` is whether texts are converted to lower
            case before tokenization. `similarity` is how the method `similarity` compares vectors: "dot" (the default),
            "cosine", or the negated distances "euclidean" and "manhattan".

    Call:
        inputs: a batch. `token_ids` may be (b, c, s) for examples of a query and c - 1 documents.

    Returns: float32 (b, vocabulary_size), or (b, c, vocabulary_size), at least 0.

    Raises:
        ValueError: if the backbone has no `masked_lm` head, `pooling`, `activation`, `objective` or `similarity` is
            unknown, `queries` is no `QueryWeights`, or `max_length` or `max_active_dims` is below 1.

    Example:
        >>> from kerasbert.tasks import SparseEmbedder
        >>> model = SparseEmbedder.from_preset("bert_mini_en", max_active_dims=8)
        >>> vectors = model.embed(["a storm is coming", "she baked a cake"])  # a CSR matrix of scipy
        >>> vectors.shape, vectors.nnz
        ((2, 8192), 16)
        >>> model.decode(vectors, top_k=3)[1][0][0]
        'she'
    """

    SAVES = (*Embedder.SAVES, "activation", "max_active_dims")
    SAVED_AS = {
        "pooling": Saved(str),
        "activation": Saved(str),
        "max_active_dims": Saved(int | None, 1),
        "queries": Saved(dict[str, bool | int | None] | None),
    }
    similarity_name = "dot"
    KEPT_APART = ("query_weights",)
    extra_inputs = ()
    reads_discriminators = False
    needs_mask_decoder = True

    hub_task = "feature-extraction"
    hub_purpose = "maps a text to a weight for each token of the vocabulary"
    in_sentence_transformers = ("SparseEncoder", 'encode(["A first text.", "A second text."]).shape')
    example_call = 'model.embed(["A first text.", "A second text."])'

    def __init__(
        self,
        backbone: Backbone,
        pooling: str = "max",
        activation: str = "relu",
        max_length: int | None = None,
        prompts: Prompts | dict[str, str] | None = None,
        objective: Loss | str | dict[str, Any] | None = None,
        queries: QueryWeights | dict[str, Any] | None = None,
        max_active_dims: int | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        texts: dict[str, Any] = dict(max_length=max_length, prompts=prompts, objective=objective, tokenizer=tokenizer)
        super().__init__(backbone, **texts, **kwargs)
        for name, value, known in (
            ("pooling", pooling, STRATEGIES),
            ("activation", activation, ACTIVATIONS),
        ):
            if value not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}. Received: {value!r:.80}.")
        check_counts(or_none=True, max_active_dims=max_active_dims)
        self.strategy, self.activation, self.max_active_dims = pooling, activation, max_active_dims
        self.queries = _queries_of(queries)
        self.masked_lm = backbone.make_head("masked_lm")
        self.query_weights = None
        if self.queries is not None:
            self.query_weights = TokenWeights(self.embedding_dim, name="query_weights")
            self.query_weights.trainable = self.queries.trainable
        self.build_now()

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector: the size of the vocabulary."""
        return self.backbone.config.vocabulary_size

    @property
    def narrows_texts(self) -> bool:
        """Whether the texts of an example may be computed in different widths."""
        return self.query_weights is None

    def call(self, inputs, training=None):
        if self.query_weights is not None and not self.query_weights.built:
            self.query_weights(inputs["token_ids"])  # `build_now` has one text per row
        if self.query_weights is None or len(inputs["token_ids"].shape) == 2:
            return super().call(inputs, training=training)
        inputs = {name: array for name, array in inputs.items() if array is not None}
        query, documents = ({n: a[:, part] for n, a in inputs.items()} for part in (0, slice(1, None)))
        query = self.query_weights(query["token_ids"], real_tokens(query))[:, None]
        if inputs["token_ids"].shape[1] == 1:
            return query
        return ops.concatenate([query, super().call(documents, training=training)], axis=1)

    def vectors_of_rows(self, rows, training=False):
        options = self.backbone.prediction_arguments
        x = self.outputs_of_backbone(self.inputs_of_backbone(rows), training, **options)["sequence_output"]
        real = real_tokens(rows)
        if training or not all(type(size) is int for size in x.shape[:2]):  # traced for an export, or unknown
            vectors = self._pooled(x, real)
        else:
            step = max(1, TOKENS_AT_A_TIME // max(1, x.shape[0]))
            parts = [slice(start, start + step) for start in range(0, x.shape[1], step)]
            combine = ops.maximum if self.strategy == "max" else ops.add
            pooled = (self._pooled(x[:, part], None if real is None else real[:, part]) for part in parts)
            vectors = functools.reduce(combine, pooled)
        # The largest logit has the largest weight.
        return activated(vectors, self.activation) if self.strategy == "max" else vectors

    def _pooled(self, x, real):
        """The largest logits of tokens, or the sum of their weights, float32 (b, v), for hidden states (b, s, m)."""
        logits = ops.cast(self.masked_lm(x, self.backbone.token_table), "float32")
        if real is not None:
            logits = ops.where(real[:, :, None], logits, 0.0)
        if self.strategy == "sum":
            return ops.sum(activated(logits, self.activation), axis=1)
        return ops.max(logits, axis=1)

    # === Text ===

    def encode_columns(self, examples):
        if self.query_weights is None or len(examples[0]) == 1:
            return super().encode_columns(examples)
        columns = [self.encode([texts[0] for texts in examples], query=True)]
        columns.append(self.encode([text for texts in examples for text in texts[1:]]))
        width = max(column["token_ids"].shape[-1] for column in columns)
        left = self.tokenizer.padding_side == "left"
        found = {}
        for name in columns[1]:
            query, documents = (
                resized(column[name], width, left) if column[name].ndim == 2 else column[name] for column in columns
            )
            documents = documents.reshape(len(examples), -1, *documents.shape[1:])
            found[name] = np.concatenate([query[:, None], documents], axis=1)
        return found

    def encode(self, texts, query=False):
        if not query or self.query_weights is None:
            return super().encode(texts)
        return encode_unmarked(self.tokenizer_of_texts(), list(texts), self._query_length())

    def _query_length(self):
        return self.queries.max_length or self.max_length

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> Any:
        """Computes the vectors of texts. The order of the texts is kept.

        Args:
            texts: a str, or a list of str.
            batch_size: number of texts per batch, for texts of 64 tokens.
            prompt: the name of one of the prompts. Default: the default of `prompts`.

        Returns: scipy CSR matrix, float32 (number of texts, vocabulary_size).

        Raises:
            ValueError: if a text is no str, `prompt` has the name of no prompt, or the model has no tokenizer.
            ImportError: if scipy is not installed.
        """
        is_query = self.queries is not None and self.queries.default
        return self._embedded(texts, batch_size, prompt, is_query)

    def embed_queries(self, texts, batch_size=32):
        return self._embedded(texts, batch_size, self.prompts.for_queries, self.queries is not None)

    def embed_documents(self, texts, batch_size=32):
        return self._embedded(texts, batch_size, self.prompts.for_documents, False)

    def _embedded(self, texts, batch_size, prompt, is_query):
        scipy_sparse = sparse_modules.scipy_sparse()
        texts, _ = self._checked_texts([texts] if isinstance(texts, str) else texts, prompt)
        if not texts:
            return scipy_sparse.csr_matrix((0, self.embedding_dim), dtype="float32")
        if is_query:
            if self.engine is not None:
                raise ValueError(
                    "An export has the encoder of documents. Received: queries with weights of their own. Load the "
                    "model without `engine`."
                )
            weights = np.asarray(ops.convert_to_numpy(self.query_weights.weight), "float32")
            rows = unmarked_rows(self.tokenizer_of_texts(), texts, self._query_length())
            return sparse_modules.with_largest(sparse_modules.weighted_presence(rows, weights), self.max_active_dims)
        parts, places = [], []
        for examples, computed in self._computed(self.encode(texts), batch_size):
            parts.append(scipy_sparse.csr_matrix(np.asarray(computed, "float32")))
            places.append(examples)
        vectors = scipy_sparse.vstack(parts, format="csr")[np.argsort(np.concatenate(places))]
        return sparse_modules.with_largest(vectors, self.max_active_dims)

    def similarity(self, queries: Any, documents: Any) -> np.ndarray:
        """Compares vectors of queries with vectors of documents by the similarity of this model.

        Args:
            queries, documents: results of `embed`, (a, v) and (b, v).

        Returns: numpy float32 (a, b). Distances are negated.

        Raises:
            ValueError: if the vectors of queries and documents have different widths.
            ImportError: if scipy is not installed.
        """
        scipy_sparse = sparse_modules.scipy_sparse()
        queries, documents = (scipy_sparse.csr_matrix(x, dtype="float32") for x in (queries, documents))
        if queries.shape[1] != documents.shape[1]:
            return super().similarity(queries.toarray(), documents.toarray())  # raises
        return sparse_modules.compared(queries, documents, self.similarity_name)

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Lists the tokens with the largest weights of each vector.

        Args:
            vectors: result of `embed`, (n, v).
            top_k: number of tokens, at least 1. Default: all whose weights are not 0.

        Returns: for each vector a list of (token, weight), with the largest weight first.

        Raises:
            ValueError: if `top_k` is below 1, or the model has no tokenizer.
            ImportError: if scipy is not installed.
        """
        check_counts(or_none=True, top_k=top_k)
        vectors, tokens = sparse_modules.scipy_sparse().csr_matrix(vectors), self.require_tokenizer().tokens
        rows = [slice(start, stop) for start, stop in zip(vectors.indptr, vectors.indptr[1:], strict=False)]
        return [sparse_weights(tokens, vectors.indices[row], vectors.data[row], top_k) for row in rows]

    def set_query_weights(self, weights: Any) -> None:
        """Sets the weights of tokens in queries, for a model with `queries`.

        Args:
            weights: float (v,), or {token: weight}, where all other tokens have the weight 0.

        Raises:
            ValueError: if the model has no `queries`, the weights are not finite or not one per token, or tokens are
                given that are not in the vocabulary, or without a tokenizer.
        """
        if self.query_weights is None:
            raise ValueError("`set_query_weights` needs a model with `queries`. Received: a model without.")
        if isinstance(weights, Mapping):
            tokenizer = self.require_tokenizer()
            unknown = [token for token in weights if tokenizer.backend.token_to_id(token) is None]
            if unknown:
                raise ValueError(
                    f"`weights` must be those of tokens of the vocabulary. Received: {shortened(unknown)}, which are "
                    "not in it. Leave them out."
                )
            weights = sparse_modules.weights_of_tokens(weights, tokenizer, self.embedding_dim)
        weights = np.asarray(weights, "float32")
        if weights.shape != (self.embedding_dim,) or not np.isfinite(weights).all():
            raise ValueError(
                f"`weights` must be finite numbers, one for each of the {self.embedding_dim} tokens. Received: "
                f"{weights.shape if np.isfinite(weights).all() else weights[~np.isfinite(weights)][0]}."
            )
        self.query_weights.weight.assign(weights)

    # === Folders ===

    def variant(self):
        return "MaskedLM"

    def arguments(self):
        queries = None if self.queries is None else dataclasses.asdict(self.queries)
        return {**super().arguments(), "pooling": self.strategy, "queries": queries}

    @classmethod
    def open_folder(cls, folder, constructor_arguments):
        """Reads files of sentence-transformers, if any. Returns (folder of the encoder, constructor arguments)."""
        if not (folder / "modules.json").exists():
            return folder, constructor_arguments
        model = read_model(folder)
        found = sparse_modules.read_parts(model)
        stored = {
            "pooling": found.strategy,
            "activation": found.activation,
            "max_length": found.encoder.max_length,
            "lowercase": found.encoder.lowercase,
            "prompts": model.prompts,
            "queries": None if found.queries is None else QueryWeights(**found.queries),
            "similarity": model.similarity or "dot",
            "max_active_dims": sparse_modules.max_active_dims(model),
        }
        return found.encoder.folder, {**stored, **constructor_arguments}

    @classmethod
    def read_apart(cls, folder):
        return sparse_modules.read_query_weights(folder) if (folder / "modules.json").exists() else None

    def fill_apart(self, found, allow_nan):
        sparse_modules.fill(self, found, allow_nan)

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except those of the encoder."""
        sparse_modules.write(self, folder)
