"""Late interaction: one vector per token, compared by MaxSim. Reads and writes sentence-transformers folders."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..core.caller import warn_caller
from ..data.batches.bucketing import resized
from ..data.counts import check_counts
from ..data.tasks.examples import encode_texts
from ..data.tasks.prompts import Prompts
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..retrieval.late_interaction import max_sim_of_texts
from ..retrieval.loss import Loss
from ..training.convert import read_texts
from .embedder import Embedder, in_training
from .late_folders import SIMILARITIES, late_settings, read_late_folder, read_projections, write_projections
from .sentence_transformers.encoder import write_encoder
from .sentence_transformers.model import write_model
from .sentence_transformers.weights import fill
from .token_rules import TokenRules, rules_of
from .vector_layers import Dense, VectorLayer, VectorLayers, token_layers, width_after


@keras.saving.register_keras_serializable("kerasbert")
class MultiVectorEmbedder(Embedder):
    """Maps a text to one vector per token, for late interaction (ColBERT).

    Khattab, Zaharia 2020, arXiv 2004.12832. Texts are compared by MaxSim: the score of a query and a document is the
    sum over the query's tokens of the largest dot product with a token of the document. Queries and documents differ in
    their prompts, in their lengths, and in which tokens are scored; see `TokenRules`. Prompts are also added in
    training, where the first text of an example is the query, and the others are documents.

    Args:
        backbone: an encoder.
        projection: number of components of a vector. A dense layer without bias maps the hidden states to them, and
            the vectors are then scaled to length 1. A list of layers, such as [Dense(128, "identity", bias=False),
            Normalize()], is accepted, too; see `tasks.Dense` and `Normalize`.
        tokens: `TokenRules`, or a dict of its fields.
        similarity: "max_sim", or "mean_max_sim", which divides the score by the number of the query's tokens.
        max_length: maximum number of tokens per text, where `tokens` has no other. Default: the maximum length of the
            backbone and the tokenizer, at most 512.
        lowercase: whether texts are converted to lower case before tokenization.
        prompts: {name: text}, such as {"query": "[Q] ", "document": "[D] "}, or a `Prompts`.
        objective: a loss of `kerasbert.retrieval` with one of the two similarities, such as
            MultipleNegatives(scale=1.0, similarity="max_sim"), or a dict of its name and options.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch of documents, or with `token_ids` (b, c, s), of examples with a query and c - 1 documents.
            `lengths` includes the tokens of a query's expansion. `attended`, bool (b, s), is False at tokens to which
            no token attends.

    Returns: a dict of `vectors`, float32 (b, s, m) or (b, c, s, m), and `scored`, bool (b, s) or (b, c, s), True at the
        tokens that are scored.

    Raises:
        ValueError: if `similarity`, `tokens` or a layer is unknown, the objective does not compare token vectors, the
            expansion exceeds the positions of the backbone, or the tokenizer lacks its token or pads on the left.

    Example:
        >>> from kerasbert.tasks import MultiVectorEmbedder
        >>> model = MultiVectorEmbedder.from_preset("bert_mini_en", projection=64)
        >>> documents = ["The team won the match.", "Snow fell last night."]
        >>> [vectors.shape for vectors in model.embed_documents(documents)]
        [(9, 64), (7, 64)]
        >>> model.rank("The team won the match.", documents, top_k=1)[0]["text"]
        'The team won the match.'
    """

    SAVED_AS = {"projection": Saved(int | list[dict], 1), "tokens": Saved(dict | None), "similarity": Saved(str)}
    KEPT_APART = ("projection",)

    hub_task = "sentence-similarity"
    hub_purpose = "maps a text to a vector for each of its tokens, for search by late interaction"
    in_sentence_transformers = ("MultiVectorEncoder", 'encode_document(["A first text."])[0].shape')
    example_call = 'model.rank("A query.", ["A first document.", "A second document."])'
    extra_inputs = (*Embedder.extra_inputs, "attended")
    narrows_texts = False  # queries have a width of their own

    def __init__(
        self,
        backbone: Backbone,
        projection: int | Sequence[VectorLayer | dict[str, Any]] = 128,
        tokens: TokenRules | dict[str, Any] | None = None,
        similarity: str = "max_sim",
        max_length: int | None = None,
        lowercase: bool = False,
        prompts: Prompts | dict[str, str] | None = None,
        objective: Loss | str | dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, max_length, lowercase, prompts, objective, tokenizer, **kwargs)
        if similarity not in SIMILARITIES:
            raise ValueError(f"`similarity` must be one of {', '.join(SIMILARITIES)}. Received: {similarity!r:.40}.")
        self.tokens, self.similarity_name = rules_of(tokens), similarity
        self._check_tokens()
        self.records = token_layers(projection)
        self.projection = VectorLayers([record.config() for record in self.records], name="projection")
        self.build_now()

    def check_objective(self, objective: Loss) -> None:
        name = getattr(objective, "similarity", None)
        if name not in SIMILARITIES:
            raise ValueError(
                "Late interaction is trained by a loss that compares token vectors. Received: "
                f"{objective.name}{f' with {name!r}' if name else ''}. Use a loss with an option `similarity`, "
                'such as MultipleNegatives(scale=1.0, similarity="max_sim").'
            )

    def _check_tokens(self):
        expansion, limit = self.tokens.expansion, self.backbone.position_limit
        if expansion is not None and limit and expansion.length > limit:
            raise ValueError(
                f"The length of the query expansion must be at most the {limit} positions of the model. Received: "
                f"{expansion.length}."
            )
        lengths = (self.tokens.query_length, self.tokens.document_length)
        self._lengths = [self.row_length(length, self.max_length, shorten=True) for length in lengths]
        if self.tokenizer is None:
            return
        if expansion is not None:
            expansion.token_id(self.tokenizer)
            if self.tokenizer.padding_side == "left":
                raise ValueError(
                    "Query expansion needs a tokenizer that pads on the right. Received: one that pads on the left."
                )
        unknown = self.tokens.unknown_words(self.tokenizer)
        if unknown:
            warn_caller(f"`skip_words` must be tokens of the vocabulary. Received: {unknown}, which have no effect.")

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector."""
        return width_after(self.records, self._encoder_width)

    @property
    def encoder_width(self) -> int:
        """Number of components of a hidden state."""
        return self._encoder_width

    # === The network ===

    def call(self, inputs, training=None):
        if len(inputs["token_ids"].shape) == 2 or inputs["token_ids"].shape[1] == 1:
            return {"vectors": super().call(inputs, training), "scored": self._scored(inputs, query=False)}
        queries, documents = self._query_and_documents(inputs)
        vectors = [super(MultiVectorEmbedder, self).call(part, training) for part in (queries, documents)]
        scored = [self._scored(part, part is queries) for part in (queries, documents)]
        missing = ops.shape(vectors[1])[2] - ops.shape(vectors[0])[2]
        vectors[0] = ops.pad(vectors[0], [(0, 0), (0, 0), (0, missing), (0, 0)])
        scored[0] = ops.pad(scored[0], [(0, 0), (0, 0), (0, missing)], constant_values=False)
        return {"vectors": ops.concatenate(vectors, axis=1), "scored": ops.concatenate(scored, axis=1)}

    def _query_and_documents(self, inputs):
        """Splits a batch (b, c, s) into that of its queries, which may be narrower, and that of its documents."""
        inputs = {key: array for key, array in inputs.items() if array is not None}
        queries, documents = (
            {key: array[:, part] for key, array in inputs.items()} for part in (slice(1), slice(1, None))
        )
        width = self._query_width(inputs)
        return {key: a if key == "lengths" else a[:, :, :width] for key, a in queries.items()}, documents

    def _query_width(self, inputs):
        """The number of columns that the queries of a batch (b, c, s) may need."""
        width, most = inputs["token_ids"].shape[-1], self.tokens.most_query_tokens
        return width if most is None or "lengths" not in inputs else min(width, most)

    def vectors_of_rows(self, rows, training=False):
        inputs = self.inputs_of_backbone(rows)
        if rows.get("attended") is not None:
            inputs = {**inputs, "lengths": None, "padding_mask": rows["attended"]}
        expansion = self.tokens.expansion
        if expansion is not None and self.backbone.counts_real_tokens:
            # RoBERTa counts the added tokens, too, unless they are the padding token.
            real = ops.cast(inputs["token_ids"] != self.backbone.config.pad_id, "int32")
            inputs = {**inputs, "position_ids": ops.cumsum(real, axis=-1) * real - 1}
        x = self.outputs_of_backbone(inputs, training)["sequence_output"]
        self._encoder_width = x.shape[-1]  # in ELMo, twice hidden_dim because of the two directions
        return ops.cast(self.projection(x, **in_training(training)), "float32")

    def _scored(self, inputs, query):
        """Which tokens of a batch of queries or documents are scored, bool in the shape of its `token_ids`."""
        ids = inputs["token_ids"]
        flat = {key: inputs[key] for key in ("padding_mask", "lengths") if inputs.get(key) is not None}
        if "lengths" in flat:
            real = ops.arange(ops.shape(ids)[-1], dtype="int32") < ops.cast(flat["lengths"], "int32")[..., None]
        else:
            real = ops.cast(flat.get("padding_mask", ops.ones_like(ids)), "bool")
        table = self._scored_ids(query)
        return real if table is None else real & ops.take(ops.convert_to_tensor(table), ids, axis=0)

    def _scored_ids(self, query):
        return self.tokens.scored(self.tokenizer, self.backbone.config.vocabulary_size, query)

    def columns(self, vectors, x):
        """The columns that the objective reads: pairs of vectors (b, s, m) and which of them are scored, (b, s)."""
        columns = [(vectors["vectors"][:, i], vectors["scored"][:, i]) for i in range(vectors["scored"].shape[1])]
        width = self._query_width(x)
        columns[0] = tuple(array[:, :width] for array in columns[0])
        return columns

    # === Text ===

    def encode(self, texts, query=False):
        """Encodes queries or documents as a batch. `lengths` includes the tokens of a query's expansion."""
        tokenizer, expansion = self.tokenizer_of_texts(), self.tokens.expansion if query else None
        batch = encode_texts(tokenizer, texts, self._row_length(query))
        return batch if expansion is None else _expanded(batch, expansion, expansion.token_id(tokenizer))

    def _row_length(self, query):
        """The largest number of tokens of a query or a document."""
        length, expansion = self._lengths[0 if query else 1], self.tokens.expansion if query else None
        if expansion is None:
            return length
        return expansion.length if expansion.strategy == "fixed" else max(length, expansion.length)

    def encode_columns(self, examples):
        if len(examples[0]) == 1:
            before = self.prompts.text(self.prompts.for_documents)
            return self.encode([before + text for (text,) in examples])
        batches = []
        for number, texts in enumerate(zip(*examples, strict=True)):
            before = self.prompts.text(self.prompts.for_documents if number else self.prompts.for_queries)
            batches.append(self.encode([before + text for text in texts], query=number == 0))
        if any("attended" in batch for batch in batches):
            batches = [{"attended": _real(batch), **batch} for batch in batches]
        width, left = max(batch["token_ids"].shape[1] for batch in batches), "padding_mask" in batches[0]
        return {
            key: np.stack([b[key] if b[key].ndim == 1 else resized(b[key], width, left) for b in batches], axis=1)
            for key in batches[0]
        }

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> Any:
        """Computes the token vectors of documents. The order of the texts is kept.

        Args:
            texts: a str, or a list of str.
            batch_size: number of texts per batch, for texts of 64 tokens. Batches of shorter texts are larger, and
                those of longer texts are smaller.
            prompt: the name of one of the prompts. Default: the default of `prompts`.

        Returns: numpy float32 (tokens, m) with the vectors of the scored tokens, or a list of them.

        Raises:
            ValueError: if a text is no str, `prompt` has the name of no prompt, or the model has no tokenizer.
        """
        return self._embed(texts, batch_size, prompt, query=False)

    def embed_queries(self, texts: str | Sequence[str], batch_size: int = 32) -> Any:
        """Computes the token vectors of queries, with their prompt, length and expansion; see `embed`.

        Raises:
            ValueError: if a text is no str, or the model has no tokenizer.
        """
        return self._embed(texts, batch_size, self.prompts.for_queries, query=True)

    def _embed(self, texts, batch_size, prompt, query):
        if isinstance(texts, str):
            return self._embed([texts], batch_size, prompt, query)[0]
        texts, _ = self._checked_texts(texts, prompt)
        found: list[Any] = [None] * len(texts)
        if not texts:
            return found
        encoded = self.encode(texts, query)
        scored, table = _real(encoded), self._scored_ids(query)
        scored = scored if table is None else scored & table[encoded["token_ids"]]
        for examples, vectors in self._computed(encoded, batch_size):
            masks = resized(scored[examples], vectors.shape[1], "padding_mask" in encoded)
            for example, mask, rows in zip(examples, masks, vectors, strict=True):
                found[example] = rows[mask]
        return found

    def _vectors_of(self, batch):
        if self.engine is not None and "attended" in batch:
            batch = {**batch, "padding_mask": batch["attended"]}
            batch.pop("lengths", None)
        return super()._vectors_of(batch)["vectors"]

    def similarity(self, queries: Any, documents: Any) -> np.ndarray:
        """Computes the MaxSim of all queries with all documents.

        Args:
            queries, documents: results of `embed_queries` and `embed_documents`: lists of float (tokens, m).

        Returns: numpy float32 (a, b). A document without scored tokens has the score -1e9.

        Raises:
            ValueError: if the vectors are no arrays (tokens, m), or have different widths.
        """
        return max_sim_of_texts(queries, documents, mean=self.similarity_name == "mean_max_sim")

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """Sorts documents by their score for a query, the best first. Equal scores keep the order of the documents.

        Args:
            query: a str.
            documents: a list of str.
            top_k: number of documents to return. Default: all.
            batch_size: see `embed`.

        Returns: a list of {"index": place in `documents`, "score": float, "text": the document}.

        Raises:
            ValueError: if `query` or a document is no str, `documents` is a single str, `top_k` is below 1, or the
                model has no tokenizer.
        """
        if not isinstance(query, str):
            raise ValueError(f"`query` must be a str. Received: {query!r:.60}.")
        check_counts(or_none=True, top_k=top_k)
        documents = read_texts(documents, "rank", "a query and a list of documents")
        if isinstance(documents, str):
            raise ValueError("`documents` must be a list of str. Received: one str. Use [document].")
        if not len(documents):
            return []
        scores = self.similarity([self.embed_queries(query)], self.embed_documents(documents, batch_size))[0]
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"index": int(i), "score": float(scores[i]), "text": documents[i]} for i in order]

    def late_interaction(self) -> dict[str, Any]:
        """What a program needs to know to prepare queries and documents for an export, as values of JSON."""
        expansion = self.tokens.expansion
        if expansion is not None:
            token_id = expansion.token_id(self.require_tokenizer())
            expansion = {"length": expansion.length, "attend": expansion.attend, "token_id": token_id}
        table = self._scored_ids(query=True)
        return {
            "prompts": [self.prompts.text(self.prompts.for_queries), self.prompts.text(self.prompts.for_documents)],
            "lengths": [self._row_length(query=True), self._row_length(query=False)],
            "expansion": expansion,
            "skipped_in_queries": [] if table is None else np.flatnonzero(~table).tolist(),
            "mean": self.similarity_name == "mean_max_sim",
        }

    # === Folders ===

    def arguments(self):
        records = [record.config() for record in self.records]
        own = {"projection": records, "tokens": dataclasses.asdict(self.tokens), "similarity": self.similarity_name}
        return {**own, **super().arguments()}

    @classmethod
    def open_folder(cls, folder, constructor_arguments):
        """Reads files of sentence-transformers, PyLate or Stanford's ColBERT, if any."""
        return read_late_folder(folder, constructor_arguments)

    @classmethod
    def read_apart(cls, folder):
        return read_projections(folder)

    def fill_apart(self, found, allow_nan):
        layers = [layer for layer in self.projection.layers_in_order if hasattr(layer, "stored")]
        if [record for record in self.records if isinstance(record, Dense)] == [record for record, _, _ in found]:
            for layer, (_, folder, tensors) in zip(layers, found, strict=True):
                fill(layer.stored(), tensors, folder, allow_nan)
        elif layers:
            warn_caller("The folder has no weights for the projection: new head; expected when fine-tuning.")

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except those of the encoder."""
        write_encoder(folder, self.max_length, self.lowercase, **late_settings(self.tokens))
        write_model(folder, "MultiVectorEncoder", self.prompts, SIMILARITIES[self.similarity_name])
        write_projections(self, folder)


def _real(batch):
    """Which tokens of an encoded batch are not padding, numpy bool (b, s)."""
    if "padding_mask" in batch:
        return batch["padding_mask"]
    return np.arange(batch["token_ids"].shape[1]) < batch["lengths"][:, None]


def _expanded(batch, expansion, token_id):
    """Fills the padding of an encoded batch of queries up to the length of the expansion."""
    width = max(batch["token_ids"].shape[1], expansion.length)
    batch = {key: array if array.ndim == 1 else resized(array, width) for key, array in batch.items()}
    attended = _real(batch)
    added = ~attended & (np.arange(width) < expansion.length)
    batch["token_ids"] = np.where(added, np.int32(token_id), batch["token_ids"])
    batch["lengths"] = np.maximum(batch["lengths"], np.int32(expansion.length))
    return batch if expansion.attend else {**batch, "attended": attended}
