"""Base class of models that map each text to a vector, or to one for each of its tokens."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend.chunks import in_chunks
from ..backend.compilation import compiled, compiles_shapes
from ..backend.distribution import num_replicas
from ..backend.keras_adapter import weigh_loss
from ..checkpoints.arguments import Saved
from ..core.inputs import checked_inputs
from ..data.batches.bucketing import batches_by_length, resized, row_lengths, text_width_key
from ..data.counts import check_counts
from ..data.tasks.examples import encode_texts
from ..data.tasks.prompts import Prompts, prompts_of
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..retrieval.labels import check_not_empty
from ..retrieval.loss import SHORT, Loss, loss_of
from ..retrieval.similarity import OF_TOKENS, SIMILARITIES
from ..training.alternating import plain_optimizers
from ..training.convert import read_texts
from .task import Task, as_rows, check_texts_together, zipped_columns

LONGEST = 2**16  # tokens of a text whose length is unknown while TensorFlow traces a step
# {whether vectors are subtracted: rows of queries and of documents that are compared at a time}
SIMILARITY_ROWS = {False: (1024, 1024), True: (8, 1024)}


class Embedder(Task):
    """Base class of embedders, whose training examples are tuples of texts: anchors, positives, negatives.

    A subclass implements `vectors_of_rows`, and where queries and documents differ, `encode`. Prompts are only added by
    `embed`, `embed_queries` and `embed_documents`, not in training.

    Args:
        backbone: an encoder.
        max_length: maximum number of tokens per text; longer texts are truncated. Default: the maximum length of the
            backbone and the tokenizer, at most 512.
        lowercase: whether texts are converted to lower case before tokenization.
        prompts: {name: text}, or a `Prompts`.
        objective: a loss of `kerasbert.retrieval`, its name, or a dict of its name and options.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        similarity: how `similarity` compares vectors. Default: `similarity_name` of the class.
        **kwargs: `name` and `dtype`.
    """

    SAVES = ("max_length", "lowercase")
    SAVED_AS = {
        "prompts": Saved(dict[str, str | dict[str, str] | bool | None] | None),
        "objective": Saved(str | dict | None, highest=10_000),
    }

    default_learning_rate = 5e-5  # that of sentence-transformers: most embedders have been trained as such before
    similarity_name = "cosine"  # how vectors are compared: a name from `retrieval.similarity.SIMILARITIES`
    similarities = ("cosine", "dot", "euclidean", "manhattan")  # those that the argument `similarity` can be
    extra_inputs = ("prompt_lengths",)
    needs_targets = False  # many objectives have no targets besides the order of the texts
    narrows_texts = True  # whether the texts of an example may be computed in different widths
    skips_prompts = False  # whether the tokens of prompts can be left out of the vectors
    TRAINING_ONLY = ("pair_classifier",)

    def __init__(
        self,
        backbone: Backbone,
        max_length: int | None = None,
        lowercase: bool = False,
        prompts: Prompts | dict[str, str] | None = None,
        objective: Loss | str | dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
        similarity: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        if similarity is not None:
            if similarity not in self.similarities:
                raise ValueError(
                    f"`similarity` must be one of {', '.join(self.similarities)}. Received: {similarity!r:.80}."
                )
            self.similarity_name = similarity
        limits = (getattr(backbone.config, "max_length", None), tokenizer and tokenizer.max_length, 512)
        self.max_length = self.row_length(max_length, min(limit for limit in limits if limit), shorten=True)
        self.lowercase = lowercase
        self.prompts = prompts_of(prompts, self.skips_prompts)
        self.objective = None if objective is None else loss_of(objective, reads="vectors")
        self._program = None
        self.pair_classifier = self.choices = None
        if self.objective is not None:
            self.check_objective(self.objective)
            self.pair_classifier = self.objective.make_layer(backbone.config.kernel_initializer())
            self.choices = keras.random.SeedGenerator(seed=0, name="choices") if self.objective.is_random else None

    def check_objective(self, objective: Loss) -> None:
        """Checks that an objective compares what this model computes.

        Raises:
            ValueError: if the objective compares vectors of tokens.
        """
        similarity = objective.similarity_name
        if similarity in OF_TOKENS:
            raise ValueError(
                f"A {type(self).__name__} has one vector for each text, and {similarity!r} compares those of tokens. "
                f'Received: {objective.name} with it. Use similarity="cosine", or a MultiVectorEmbedder.'
            )

    def example_inputs(self):
        inputs = super().example_inputs()
        if self.pair_classifier is None:
            return inputs
        return {key: np.stack([array] * self.objective.min_texts, axis=1) for key, array in inputs.items()}

    def call(self, inputs, training=None):
        if inputs.get("sequence_ids") is not None:
            raise ValueError(f"A {type(self).__name__} reads one text per row. Received: packed rows (`sequence_ids`).")
        inputs, widths = _without_widths(inputs)
        if len(inputs["token_ids"].shape) == 2:
            return self._encoded(inputs, 1, training)
        if widths:
            vectors = [self._encoded(_narrowed(inputs, i, width), 1, training) for i, width in enumerate(widths)]
            vectors = ops.stack(vectors, axis=1)
        else:
            texts = ops.shape(inputs["token_ids"])[1]
            vectors = self._encoded(as_rows(inputs), texts, training)
            vectors = ops.reshape(vectors, (-1, texts, *vectors.shape[1:]))
        if self.pair_classifier is not None and not self.pair_classifier.built:
            self.pair_classifier(self.objective.features(self.columns(vectors, inputs)))
        return vectors

    def _encoded(self, rows, texts, training):
        """The vectors of rows of texts, in training in chunks of examples with `texts` of the rows each."""
        if not training or self.objective is None:
            return self.vectors_of_rows(rows)
        chunk = self.objective.chunk and self.objective.chunk * texts
        return in_chunks(lambda part: self.vectors_of_rows(part, training=True), rows, chunk, self)

    def vectors_of_rows(self, rows: dict[str, Any], training: bool = False) -> Any:
        """Computes the vectors of texts, float32 (b, ...), for a batch with one text per row.

        Args:
            rows: the batch, with the keys in `extra_inputs`.
            training: whether the vectors are computed for the objective, with dropout.
        """
        raise NotImplementedError

    def outputs_of_backbone(self, inputs, training, **options):
        """Calls the backbone, which without `training` has the mode of the outer call."""
        return self.backbone(inputs, **in_training(training), **options)

    def columns(self, vectors, x):
        """The columns that the objective reads, for vectors (b, c, ...) of a batch x."""
        return [vectors[:, i] for i in range(vectors.shape[1])]

    def inputs_of_backbone(self, x):
        x = super().inputs_of_backbone(x)
        x = _without_widths(x)[0] if isinstance(x, dict) else x
        if not isinstance(x, dict) or len(getattr(x.get("token_ids"), "shape", ())) != 3:
            return x
        check_texts_together(x, "(b, c, s), for examples of c texts")
        return as_rows(x)

    # === Training ===

    def default_loss(self):
        if self.objective is None:
            raise ValueError(
                f"Training a {type(self).__name__} needs an objective: {', '.join(SHORT)}, or a loss of "
                f"kerasbert.retrieval. Received: None. Use {type(self).__name__}.from_preset(path, "
                'objective="ranking"), or compile(optimizer, loss=...).'
            )
        return None

    def default_metrics(self):
        return None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.objective is None:
            return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        if len(x["token_ids"].shape) == 2:  # a single column
            x = {key: array[:, None] for key, array in x.items() if array is not None}
            y_pred = y_pred[:, None]
        step = {"texts": text_keys(x["token_ids"]), "layer": self.pair_classifier}
        if training:
            step["number"] = plain_optimizers(self.optimizer)[0].iterations
            step["seed"] = self.choices
        return self.objective(self.columns(y_pred, x), y, sample_weight, **step) / num_replicas()

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.objective is None:
            return super().compute_metrics(x, y, y_pred, sample_weight)
        if (weight := self.batch_weight(x, sample_weight)) is not None:
            weigh_loss(self, weight)
        return {metric.name: metric.result() for metric in self.metrics}

    # === Text ===

    def encode(self, texts, query=False):
        """Encodes texts as a batch. Queries differ from documents only in subclasses."""
        return encode_texts(self.tokenizer_of_texts(), texts, self.max_length)

    def encode_columns(self, examples):
        """Encodes tuples of c texts as a batch with arrays (b, c, ...), or (b, ...) if c is 1."""
        encoded = self.encode([text for texts in examples for text in texts])
        if len(examples[0]) == 1:
            return encoded
        return {key: array.reshape(len(examples), -1, *array.shape[1:]) for key, array in encoded.items()}

    def examples_of(self, x):
        return zipped_columns(x)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of texts, or of tuples with as many texts as the objective requires.

        Args:
            y: the targets of the objective, if it has any.
        """
        examples = _examples(x)
        if self.objective is not None:
            self.objective.check_columns(len(examples[0]))
            y = self.objective.read_labels(y, len(examples), len(examples[0]))
            y = np.zeros(len(examples), "float32") if y is None else y
        return self.bucketed_batches(self.encode_columns(examples), y, sample_weight, batch_size, epochs, seed, shuffle)

    def check_training(self, x, y, batch_size):
        if self.objective is None:
            return
        examples = _examples(x)
        self.objective.check_texts(examples, batch_size)
        check_not_empty(examples)
        self.objective.check_labels(self.objective.read_labels(y, len(examples), len(examples[0])))

    def batches_for_prediction(self, x, batch_size):
        if isinstance(x, dict):
            return super().batches_for_prediction(x, batch_size)
        return self.bucketed_batches(self.encode_columns(_examples(x)), None, None, batch_size, 1, 0, False)

    def batch_widths(self):
        return dataclasses.replace(super().batch_widths(), by_text=self.narrows_texts)

    def array_targets(self, y):
        is_named = self.objective is not None and self.objective.targets == "classes"
        return self.objective.read_labels(y, len(y), 2) if is_named else y

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> Any:
        """Computes the vectors of texts; see the subclasses."""
        raise NotImplementedError

    def embed_queries(self, texts: str | Sequence[str], batch_size: int = 32) -> Any:
        """Like `embed`, with the prompt "query", if there is one.

        Raises:
            ValueError: if a text is no str, or the model has no tokenizer.
        """
        return self.embed(texts, batch_size, self.prompts.for_queries)

    def embed_documents(self, texts: str | Sequence[str], batch_size: int = 32) -> Any:
        """Like `embed`, with the prompt "document", "passage" or "corpus", if there is one.

        Raises:
            ValueError: if a text is no str, or the model has no tokenizer.
        """
        return self.embed(texts, batch_size, self.prompts.for_documents)

    def similarity(self, queries: Any, documents: Any) -> np.ndarray:
        """Compares vectors of queries with vectors of documents by the similarity of this model.

        Args:
            queries, documents: results of `embed` for several texts, float (a, m) and (b, m).

        Returns: numpy float32 (a, b). Distances are negated.

        Raises:
            ValueError: if the vectors are no finite numbers (n, m), or those of queries and documents have different
                widths.
        """
        queries, documents = _vectors(queries, "queries"), _vectors(documents, "documents")
        if queries.shape[1] != documents.shape[1]:
            raise ValueError(
                "Vectors of queries and documents must have the same width. Received: shapes "
                f"{queries.shape} and {documents.shape}."
            )
        measure = SIMILARITIES[self.similarity_name]
        # Products lose the digits of small distances.
        subtracts = self.similarity_name in ("euclidean", "manhattan")
        rows, columns = SIMILARITY_ROWS[subtracts]
        scores = np.zeros((len(queries), len(documents)), "float32")
        for a in range(0, len(queries), rows):
            for b in range(0, len(documents), columns):
                parts = (queries[a : a + rows], documents[b : b + columns])
                one, other = (ops.convert_to_tensor(x, "float32") for x in parts)
                found = measure.of_rows(one[:, None], other[None]) if subtracts else measure.of_all(one, other)
                scores[a : a + rows, b : b + columns] = ops.convert_to_numpy(found)
        return scores

    def _checked_texts(self, texts, prompt):
        """Returns (list of texts with the prompt before each, the prompt), or raises a ValueError."""
        before = self.prompts.text(prompt)
        texts = read_texts(texts, "embed")
        wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"Each text must be a str. Received: {texts[wrong]!r:.60}, as text {wrong}.")
        return [before + text for text in texts], before

    def _computed(self, encoded, batch_size) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Computes the vectors of a batch of texts, in batches of similar length.

        Yields: (numbers of the texts, their vectors). The program computes the next batch meanwhile.
        """
        check_counts(batch_size=batch_size)
        self.check_batch(encoded)
        left = "padding_mask" in encoded
        exact = self.engine is not None or not compiles_shapes()
        previous = None  # its vectors are fetched while the device computes the next ones
        for examples, rows, width in batches_by_length(row_lengths(encoded), batch_size, self.max_length, exact=exact):
            batch = {}
            for key, array in encoded.items():
                array = array[examples] if array.ndim == 1 else resized(array[examples], width, left)
                batch[key] = np.pad(array, [(0, rows - len(examples)), *[(0, 0)] * (array.ndim - 1)])
            computed = examples, self._vectors_of(batch)
            if previous is not None:
                yield previous[0], ops.convert_to_numpy(previous[1])[: len(previous[0])]
            previous = computed
        if previous is not None:
            yield previous[0], ops.convert_to_numpy(previous[1])[: len(previous[0])]

    def _vectors_of(self, batch):
        """Starts computing the vectors of a batch, by one program per shape, without waiting for the device."""
        if self.engine is not None:
            return self.engine(batch)
        if self._program is None:
            self._program = compiled(lambda batch: self(batch, training=False), lambda: self.weights, waits=False)
        with checked_inputs():
            return self._program(batch)

    # === Folders ===

    def arguments(self):
        objective = None if self.objective is None else self.objective.config()
        return {
            **super().arguments(),
            "prompts": dataclasses.asdict(self.prompts),
            "objective": objective,
            "similarity": self.similarity_name,
        }


def _examples(x):
    """Converts texts and tuples of texts to a list of tuples, or raises a ValueError."""
    examples = [(example,) if isinstance(example, str) else example for example in x]
    if not examples:
        raise ValueError("There must be at least one example. Received: none.")
    for number, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or not all(isinstance(text, str) for text in example):
            raise ValueError(
                "An example must be a text, or a tuple of texts such as (query, positive, negative). Received: "
                f"{example!r:.60}, as example {number}. Instead of (query, [a, b]), write (query, a, b)."
            )
        if len(example) != len(examples[0]):
            raise ValueError(
                f"All examples must have the same number of texts. Received: {len(examples[0])} texts in example 0, "
                f"but {len(example)} in example {number}."
            )
    return list(map(tuple, examples))


def _vectors(given, what):
    """Vectors that are compared, as an array (n, m)."""
    found = np.atleast_2d(given)
    if found.ndim != 2 or found.dtype.kind not in "buif" or not np.isfinite(found).all():
        raise ValueError(
            f"The vectors of {what} must be finite numbers (n, m), such as the result of `embed`. Received: "
            f"{given!r:.60}."
        )
    return found


def _without_widths(inputs):
    """Splits a batch into (its other keys, the widths of the texts of a row); see `bucketing.text_width_key`."""
    keys = [text_width_key(i) for i in range(len(inputs))]
    widths = [ops.shape(inputs[key])[1] for key in keys if inputs.get(key) is not None]
    return {key: array for key, array in inputs.items() if key not in keys}, widths


def _narrowed(inputs, text, width):
    """The batch of text number `text` of every row, without the padding that only the other texts need."""
    rows = {key: array[:, text] for key, array in inputs.items() if array is not None}
    part = slice(-width, None) if "padding_mask" in rows else slice(None, width)  # on the left, or on the right
    return {key: array if len(array.shape) == 1 else array[:, part] for key, array in rows.items()}


def in_training(training: bool) -> dict[str, bool]:
    """The argument of a call in training. Without it, a layer has the mode of the outer call."""
    return {"training": True} if training else {}


def text_keys(token_ids: Any) -> Any:
    """Two numbers for each text, which are equal for equal texts: int32 (b, c, 2) for token ids (b, c, s).

    Equal numbers for different texts have a probability of 2^-64.
    """
    ids = ops.cast(token_ids, "int32")
    longest = ids.shape[-1] or LONGEST  # TensorFlow does not know the width if batches differ in it
    factors = np.random.default_rng(0).integers(-(2**31), 2**31, (2, longest), dtype=np.int64)
    factors = ops.convert_to_tensor((factors | 1).astype("int32"))[:, : ops.shape(ids)[-1]]
    return ops.cast(ops.sum((ids[:, :, None] + 1) * factors, axis=-1), "int32")
