"""Reranking: scores of pairs of a query and a document. Reads and writes folders of sentence-transformers."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..backend.chunks import in_chunks
from ..backend.distribution import num_replicas
from ..checkpoints.arguments import Saved
from ..data.batches.document_lists import DocumentLists, Lists
from ..data.counts import check_counts
from ..data.tasks.examples import encode_texts
from ..data.tasks.labels import indices_of, names_of
from ..data.tasks.prompts import Prompts, prompts_of
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..retrieval.labels import check_not_empty
from ..retrieval.loss import loss_of
from ..retrieval.reranking import SampledNegatives, ScoreLoss
from ..training.convert import read_texts
from ..training.sources import is_text
from .activations import ACTIVATIONS
from .cross_encoder_files import read_cross_encoder, stored_activation, write_cross_encoder
from .task import Task, as_rows, check_texts_together, label_names, with_stored_labels, zipped_columns


@keras.saving.register_keras_serializable("kerasbert")
class Reranker(Task):
    """A cross-encoder: reads a query and a document together, and scores the pair.

    Nogueira, Cho 2019, arXiv 1901.04085. `from_preset` reads any sequence classifier, and the folders of
    sentence-transformers' `CrossEncoder`. `save_to_preset` writes such folders. In training, an example has one of
    three forms:

    - a pair (query, document)
    - a query, its positive and negatives
    - a query with a list of any number of documents, (query, [documents])

    Args:
        backbone: a backbone with a `classifier` head.
        labels: the names of the outputs, or their number. Rerankers have one output. Models of natural language
            inference have one per class.
        activation: the function of the outputs that `score` applies: a name from `activations.ACTIVATIONS`. Losses have
            their own. Default: "sigmoid" for one output, "identity" for several.
        max_length: maximum number of tokens per pair. Longer pairs are truncated, the longer text first. Default: the
            maximum length of the tokenizer and the backbone.
        lowercase: whether texts are converted to lower case before tokenization.
        prompts: {name: text to put before the query}. A `Prompts` also says which of them `score` and `rank` use by
            default. In training, and in `predict`, there are none.
        objective: the loss of `fit`. It is a `ScoreLoss` of `kerasbert.retrieval`, such as LambdaLoss(k=10), or its
            name, or a dict of its name and options. Default: BinaryCrossEntropy for one output, CrossEntropy for
            several.
        classifier_dropout: dropout rate before the output layer. Default: the rate in the backbone's config.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch of pairs, or with `token_ids` (b, c, s), of lists of documents. Rows without tokens are no
            documents.

    Returns: the scores before the activation, float32 (b, number of outputs), or for lists (b, c).

    Raises:
        ValueError: if `activation` is unknown, `labels` are not different names, `objective` is no loss on scores or
            does not fit the number of outputs, or the backbone has no `classifier` head.

    Example:
        >>> from kerasbert.tasks import Reranker
        >>> model = Reranker.from_preset("bert_mini_en", max_length=32)
        >>> documents = ["Horses live in barns.", "Cats eat fish."]
        >>> pairs = [("What do cats eat?", document) for document in documents]
        >>> history = model.fit(pairs * 8, [0, 1] * 8, batch_size=4, epochs=5, verbose=0)
        >>> model.rank("What do cats eat?", documents, top_k=1)[0]["text"]
        'Cats eat fish.'
    """

    SAVES = ("labels", "activation", "max_length", "lowercase", "classifier_dropout")
    SAVED_AS = {
        "activation": Saved(str | None),
        "classifier_dropout": Saved(float | None, 0, 1),
        "prompts": Saved(dict[str, str | dict[str, str] | bool | None] | None),
        "objective": Saved(str | dict | None, highest=10_000),
    }

    default_learning_rate = 5e-5  # as that of embedders
    hub_task = "text-ranking"
    hub_purpose = "scores how well a document answers a query"
    in_sentence_transformers = ("CrossEncoder", 'rank("A query.", ["A first document.", "A second document."])')
    example_call = 'model.rank("A query.", ["A document.", "Another document."])'
    # What cards say of a model with several outputs, which cannot rank.
    OF_CLASSES = {
        "hub_task": "text-classification",
        "hub_purpose": "assigns {labels} to a pair of texts",
        "in_sentence_transformers": ("CrossEncoder", 'predict([("A first text.", "Its pair.")])'),
        "example_call": 'model.score([("A first text.", "Its pair.")])',
    }
    label_head = "classifier"
    needs_targets = False  # the order of the documents may be the target

    def __init__(
        self,
        backbone: Backbone,
        labels: int | Sequence[str] = 1,
        activation: str | None = None,
        max_length: int | None = None,
        lowercase: bool = False,
        prompts: Prompts | dict[str, str] | None = None,
        objective: ScoreLoss | str | dict[str, Any] | None = None,
        classifier_dropout: float | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.labels = names_of(labels)
        several = len(self.labels) > 1
        if several:
            vars(self).update(self.OF_CLASSES)
        self.activation = activation or ("identity" if several else "sigmoid")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"`activation` must be one of {', '.join(ACTIVATIONS)}. Received: {activation!r}.")
        longest = min(filter(None, (self.longest_text, backbone.position_limit)))
        self.max_length = self.row_length(max_length, longest, shorten=True)
        self.lowercase = lowercase
        self.prompts = prompts_of(prompts)
        self.objective: Any = loss_of(objective or self._default_objective, reads="scores")
        if self.objective.of_classes != several:
            raise ValueError(
                f"{self.objective.name} needs {'several scores' if self.objective.of_classes else 'one score'} per "
                f"pair. Received: a Reranker with {len(self.labels)} outputs. Change `labels` or `objective`."
            )
        self.classifier_dropout = classifier_dropout
        self.classifier = backbone.make_head("classifier", classifier_dropout, num_labels=len(self.labels))
        self.build_now()

    def call(self, inputs, training=None):
        several = len(inputs["token_ids"].shape) == 3
        rows, count = (as_rows(inputs), ops.shape(inputs["token_ids"])[1]) if several else (inputs, 1)
        if training:
            chunk = self.objective.chunk and self.objective.chunk * count
            scores = in_chunks(lambda part: self._scores(part, training=True), rows, chunk, self)
        else:
            scores = self._scores(rows, training=False)
        return ops.reshape(scores, (-1, count)) if several else scores

    def _scores(self, rows, training):
        outputs = self.backbone.summarize(rows, training=training)
        return ops.cast(self.classifier(outputs, training=training), "float32")

    def inputs_of_backbone(self, x):
        if not isinstance(x, dict) or len(getattr(x.get("token_ids"), "shape", ())) != 3:
            return x
        check_texts_together(x, "(b, c, s), for queries with c documents")
        if len(self.labels) > 1:
            raise ValueError(f"Lists of documents need one score per pair. Received: {len(self.labels)} outputs.")
        return as_rows(x)

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None or not self.objective.of_classes or not np.size(y):
            return
        wrong = y.max() if y.max() >= len(self.labels) else y.min()
        if not 0 <= wrong < len(self.labels):
            raise ValueError(
                f"Targets must be indices from 0 to {len(self.labels) - 1}, for {self.labels}. Received: {wrong}."
            )

    # === Training ===

    @property
    def _default_objective(self):
        return "CrossEntropy" if len(self.labels) > 1 else "BinaryCrossEntropy"

    def compile(
        self, optimizer: str | keras.optimizers.Optimizer | None = None, loss: Any = None, **kwargs: Any
    ) -> None:
        """Like Keras's `compile`. The loss is the `objective` of the model.

        Raises:
            ValueError: if a `loss` is given.
        """
        if loss is not None:
            raise ValueError(
                "The loss of a Reranker is its `objective`. Received: a `loss`. Use Reranker(..., objective=...); a "
                "loss of your own is a subclass of kerasbert.retrieval.ScoreLoss."
            )
        super().compile(optimizer, **kwargs)

    @property
    def problem(self):
        """What the outputs are, for metrics."""
        return "score" if len(self.labels) == 1 else "classes"

    def default_loss(self):
        return None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = _weights(x, y_pred, sample_weight)
        return self.objective(y_pred, y, weights) / num_replicas()

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred, _weights(x, y_pred, sample_weight))

    # === Text ===

    def examples_of(self, x):
        return zipped_columns(x)

    def encode(self, pairs):
        return encode_texts(self.tokenizer_of_texts(), pairs, self.max_length)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of pairs or of lists, as the objective requires.

        Args:
            x: pairs (query, document); or (query, positive, negatives...); or (query, [documents]).
            y: the labels of the objective, if it has any: one per pair, or a list for each list of documents.
        """
        queries, lists, y = self._read(x, y)
        y = np.zeros(len(queries), "float32") if y is None else y
        options = (y, sample_weight, batch_size, epochs, seed, shuffle)
        if self.objective.max_texts == 2:
            return self.bucketed_batches(self.encode(_together(queries, lists)), *options)
        choose = self.objective.documents if isinstance(self.objective, SampledNegatives) else None
        return DocumentLists(Lists(self.tokenizer_of_texts(), queries, lists, self.max_length, choose), *options)

    def check_training(self, x, y, batch_size):
        queries, lists, y = self._read(x, y)
        texts = _together(queries, lists)
        self.objective.check_texts(texts, batch_size)
        _check_training(self.objective, texts, y, [len(documents) for documents in lists])

    def _read(self, x, y):
        """Returns (queries, lists of documents, labels as an array or None), or raises a ValueError."""
        loss, (queries, lists) = self.objective, _listed(x)
        counts = [len(documents) for documents in lists]
        if not loss.is_list or isinstance(loss, SampledNegatives):
            wrong = next((number for number, count in enumerate(counts) if count != counts[0]), None)
            if wrong is not None:
                raise ValueError(
                    f"{loss.name} needs examples with the same number of documents. Received: {counts[0]} in example "
                    f"0, but {counts[wrong]} in example {wrong}."
                )
        loss.check_columns(1 + counts[0])
        if loss.targets == "classes" and y is not None:
            return queries, lists, indices_of(self.labels, y)
        return queries, lists, loss.read_labels(y, len(queries), counts if loss.is_list else 1 + counts[0])

    def batches_for_prediction(self, x, batch_size):
        """Returns the batches of pairs that `predict` scores. No documents of other rows are added."""
        if isinstance(x, dict):
            return super().batches_for_prediction(x, batch_size)
        return self.bucketed_batches(self.encode(list(x)), None, None, batch_size, 1, 0, False)

    def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> Any:
        """Computes the scores before the activation, as `fit` reads them.

        Returns: numpy float32 (b, number of outputs) for pairs; (b, c) for lists of at most c documents, with zeros in
            the places without a document.

        Raises:
            ValueError: if an example has another form, a query has no documents, lists are passed to a model with
                several outputs, or the model has no tokenizer.
        """
        x = self.examples_of(x)
        if not is_text(x) or all(len(example) == 2 and isinstance(example[1], str) for example in x):
            return super().predict(x, batch_size, **kwargs)
        queries, lists = _listed(x)
        if len(self.labels) > 1:
            raise ValueError(f"Lists of documents need one score per pair. Received: {len(self.labels)} outputs.")
        pairs = [(query, text) for query, texts in zip(queries, lists, strict=True) for text in texts]
        counts = np.array([len(texts) for texts in lists])
        scores = np.zeros((len(lists), counts.max()), "float32")
        scores[np.arange(counts.max()) < counts[:, None]] = super().predict(pairs, batch_size, **kwargs)[:, 0]
        return scores

    def array_targets(self, y):
        return indices_of(self.labels, y) if self.objective.targets == "classes" else y

    @overload
    def score(self, pairs: tuple[str, str], batch_size: int = ..., prompt: str | None = ...) -> np.floating: ...

    @overload
    def score(
        self, pairs: Sequence[tuple[str, str]], batch_size: int = ..., prompt: str | None = ...
    ) -> np.ndarray: ...

    def score(self, pairs: Any, batch_size: int = 32, prompt: str | None = None) -> Any:
        """Computes the scores of pairs, with the activation of the model.

        Args:
            pairs: (query, document), or a list of them.
            batch_size: number of pairs per batch.
            prompt: the name of one of the prompts. Default: the default of `prompts`.

        Returns: numpy float32 (number of pairs,), or for several outputs (number of pairs, outputs). For a single pair,
            its score.

        Raises:
            ValueError: if a pair is not two str, `prompt` has the name of no prompt, or the model has no tokenizer.
        """
        before = self.prompts.text(prompt)
        pairs = self.examples_of(read_texts(pairs, "score", "a pair (query, document)"))
        if isinstance(pairs, tuple):
            return self.score([pairs], batch_size, prompt)[0]
        for number, pair in enumerate(pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(p, str) for p in pair):
                raise ValueError(
                    f"Every pair must be (query, document), two str. Received: {pair!r:.60}, as pair {number}."
                )
        shape = (len(pairs),) if len(self.labels) == 1 else (len(pairs), len(self.labels))
        if not len(pairs):
            return np.zeros(shape, "float32")
        outputs = self.predict([(before + query, text) for query, text in pairs], batch_size=batch_size, verbose=0)
        activated = ACTIVATIONS[self.activation][1](ops.convert_to_tensor(outputs, "float32"))
        return ops.convert_to_numpy(activated).reshape(shape)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        batch_size: int = 32,
        prompt: str | None = None,
    ) -> list[dict[str, Any]]:
        """Sorts documents by their scores for a query, from the highest. Documents with equal scores keep their order.

        Args:
            query: the query.
            documents: a list of str.
            top_k: number of documents that are returned. Default: all.
            batch_size, prompt: as in `score`.

        Returns: a dict {"index", "score", "text"} for each document: its place in `documents`, its score and itself.

        Raises:
            ValueError: if the model has several outputs, `query` or a document is no str, `documents` is a single str,
                `top_k` is below 1, or `prompt` has the name of no prompt.
        """
        if len(self.labels) > 1:
            raise ValueError(f"`rank` needs one score per pair. Received: a model with {len(self.labels)} outputs.")
        if not isinstance(query, str):
            raise ValueError(f"`query` must be a str. Received: {query!r:.60}.")
        check_counts(or_none=True, top_k=top_k)
        documents = read_texts(documents, "rank", "a query and a list of documents")
        if isinstance(documents, str):
            raise ValueError("`documents` must be a list of str. Received: one str. Use [document].")
        scores = self.score([(query, text) for text in documents], batch_size, prompt)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"index": int(i), "score": float(scores[i]), "text": documents[i]} for i in order]

    # === Folders ===

    def variant(self):
        return "TextClassifier"  # as which the layouts of the families know it

    def arguments(self):
        is_default = self.objective == loss_of(self._default_objective)
        objective = None if is_default else self.objective.config()
        return {**super().arguments(), "prompts": dataclasses.asdict(self.prompts), "objective": objective}

    def config_extras(self):
        return label_names(self.labels)

    @classmethod
    def arguments_from_config(cls, stored, settings):
        classifies = any(name.endswith("ForSequenceClassification") for name in stored.get("architectures") or ())
        settings: dict[str, Any] = dict(with_stored_labels(stored, settings) if classifies else settings)
        if settings.get("activation") is None:
            settings["activation"] = stored_activation(stored)
        return settings

    @classmethod
    def open_folder(cls, folder, settings):
        encoder, stored = read_cross_encoder(Path(folder))
        return encoder, {**stored, **settings}

    def write_extras(self, folder):
        write_cross_encoder(folder, self.activation, self.prompts, self.lowercase)

    @classmethod
    def needs_pooler(cls, family, settings):
        return "classifier" in family.pooled_heads


def _weights(x, y_pred, sample_weight):
    """The weights of the scores: float32 (b,), or for lists (b, c) with 0 where there is no document; or None."""
    if len(x["token_ids"].shape) == 2:
        return sample_weight
    weights = ops.ones(ops.shape(y_pred)) if sample_weight is None else ops.cast(sample_weight, "float32")
    weights = weights[:, None] if len(weights.shape) == 1 else weights
    real = real_tokens(as_rows(x))
    if real is None:
        return ops.broadcast_to(weights, ops.shape(y_pred))
    return weights * ops.cast(ops.reshape(ops.any(real, axis=-1), ops.shape(y_pred)), "float32")


def _listed(examples):
    """Converts examples to (queries, lists of documents), or raises a ValueError."""
    queries, lists = [], []
    for number, example in enumerate(examples):
        parts = list(example) if isinstance(example, (tuple, list)) else []
        documents = parts[1] if len(parts) == 2 and isinstance(parts[1], (tuple, list)) else parts[1:]
        if len(parts) < 2 or not all(isinstance(text, str) for text in (parts[0], *documents)):
            raise ValueError(
                "An example must be (query, document), (query, positive, negatives...) or (query, [documents]), all "
                f"str. Received: {example!r:.60}, as example {number}."
            )
        if not documents:
            raise ValueError(f"A query needs a document or more. Received: none, in example {number}.")
        queries.append(parts[0])
        lists.append(list(documents))
    return queries, lists


def _together(queries, lists):
    return [(query, *documents) for query, documents in zip(queries, lists, strict=True)]


def _check_training(loss, examples, labels, counts):
    """Raises a ValueError for examples from which nothing can be learned."""
    check_not_empty(examples)
    if loss.is_list and not isinstance(loss, SampledNegatives) and max(counts) == 1:
        raise ValueError(f"{loss.name} compares the documents of a query. Received: one document for every query.")
    loss.check_labels(labels, counts if loss.is_list and labels is not None else None)
