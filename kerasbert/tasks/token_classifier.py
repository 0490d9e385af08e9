"""Token classification: predicts a label for every word, for example named entities or parts of speech."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..data.batches.bucketing import BucketedBatches, Widths
from ..data.tasks.answers import tagged
from ..data.tasks.labels import indices_of, names_of
from ..data.tasks.tagging import TaggedRows
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..training.convert import class_numbers, read_texts
from .features import FeatureHead, feature_options, hidden_states
from .task import Task, label_names, with_stored_labels


@keras.saving.register_keras_serializable("kerasbert")
class TokenAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """The fraction of tokens with the correct label, over all tokens.

    Keras's metric is a mean over rows, which would give tokens of short rows more weight.
    """

    def update_state(self, y_true, y_pred, sample_weight=None):
        if len(y_true.shape) == len(y_pred.shape):
            y_true = ops.argmax(y_true, axis=-1)  # convert one-hot rows to integers
        labels, scores = ops.reshape(y_true, (-1,)), ops.reshape(y_pred, (-1, y_pred.shape[-1]))
        super().update_state(labels, scores, None if sample_weight is None else ops.reshape(sample_weight, (-1,)))


@keras.saving.register_keras_serializable("kerasbert")
class TokenClassifier(Task):
    """Predicts a label for each word, with a dense layer on its first token.

    Devlin et al. 2018, arXiv 1810.04805, section 5.3.

    Args:
        backbone: a backbone with a `tagger` head.
        labels: the label names in the order of the outputs, or their number. For entities, the names follow a scheme
            such as BIO: O, B-PER, I-PER, ...
        max_length: maximum number of tokens per row; longer sentences are split into windows. Default: the maximum
            length of the backbone, at most 512.
        features: "mix", "concatenate", or a dict of `combine`, `layers` and `lstm_dim`. If given, the backbone is
            frozen, and its hidden states are the features of a `FeatureHead`. To train the backbone as well, set
            `model.trains_backbone = True` before `compile`.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. Targets are int32 (b, s); tokens without a label have sample_weight 0.

    Returns: logits, float (b, s, number of labels).

    Raises:
        ValueError: if `labels` are not different names of one type, `max_length` exceeds the positions of the backbone,
            `features` is unknown, or the backbone has no `tagger` head.

    Example:
        >>> from kerasbert.tasks import TokenClassifier
        >>> model = TokenClassifier.from_preset("bert_mini_en", labels=["O", "B-PER", "B-LOC"])
        >>> sentences = [["Ann", "lives", "in", "Rome", "."], ["Tom", "is", "in", "Oslo", "."]] * 8
        >>> history = model.fit(sentences, [["B-PER", "O", "O", "B-LOC", "O"]] * 16, batch_size=4, epochs=5, verbose=0)
        >>> answer = model.tag("Tom lives in Rome.")
        >>> [(entity["type"], entity["text"]) for entity in answer["entities"]]
        [('PER', 'Tom'), ('LOC', 'Rome')]
    """

    SAVES = ("labels", "max_length", "features")

    hub_task = "token-classification"
    example_call = 'model.tag(["A first text.", "A second text."])'
    label_head = "tagger"
    pads_as_tokenizer = False  # windows are padded on the right

    def __init__(
        self,
        backbone: Backbone,
        labels: int | Sequence | Mapping = 2,
        max_length: int | None = None,
        features: str | dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.labels = names_of(labels)
        self.max_length = self.row_length(max_length, self.longest_row())
        self.features = feature_options(features) if features else None
        self.trains_backbone = not features
        if self.features:
            options: dict[str, Any] = dict(name="feature_head", dtype=self.dtype_policy)
            self.feature_head = FeatureHead(len(self.labels), **self.features, **options)
        else:
            self.tagger = backbone.make_head("tagger", num_labels=len(self.labels))
        self.build_now()

    def call(self, inputs, training=None):
        if self.features:
            return self.feature_head(*hidden_states(self.backbone, inputs, training, not self.trains_backbone))
        return self.tagger(self.backbone(inputs))

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self):
        return [TokenAccuracy(name="accuracy")]

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of sentences.

        Args:
            x: lists of words, or texts, which `data.tasks.tagging.words_of` splits into words.
            y: for each sentence, a list with the label of each word.
        """
        if sample_weight is not None:
            raise ValueError(
                "`sample_weight` is not supported for sentences. Received: sample_weight. Leave out sentences instead."
            )
        rows = TaggedRows(self.require_tokenizer(), list(x), self.max_length)
        weights = None
        if y is not None:
            y, weights = rows.targets(self.encode_labels(y))
        return self.bucketed_batches(rows.x, y, weights, batch_size, epochs, seed, shuffle, tagged=True)

    def _batches(self, x, y, sample_weight, *args, class_weight=None, **kwargs):
        """Like `Fitting._batches`, but in arrays, tokens that are padding or have the label -100 get weight 0."""
        if isinstance(x, dict) and y is not None:
            y = np.asarray(self.targets_of(y))
            if np.ndim(sample_weight) < 2:
                rows = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
                lengths = np.asarray(x.get("lengths", np.full(len(y), y.shape[1])))
                real = np.asarray(x.get("padding_mask", np.arange(y.shape[1]) < lengths[:, None]), bool)
                labeled = y != -100 if y.ndim == 2 else y.sum(axis=-1) > 0
                sample_weight = (real & labeled) * rows[:, None].astype("float32")
            if y.ndim == 2:
                unused = 0 if isinstance(self.labels[0], str) and y.dtype.kind in "iufb" else self.labels[0]
                y = np.where(np.asarray(sample_weight) > 0, y, unused)
        batches = super()._batches(x, y, sample_weight, *args, **kwargs)
        if class_weight is not None:
            class_weight = class_numbers(class_weight, self.labels)
            of_label = np.array([class_weight.get(i, 1.0) for i in range(len(self.labels))], "float32")
            batches.sample_weight = batches.sample_weight * of_label[batches.y]
        return batches

    def encode_labels(self, labels):
        """Converts lists of label names or indices to lists of int32 arrays; encoded arrays are returned unchanged.

        Raises:
            ValueError: if a sentence has no list of labels, or a label is unknown.
        """
        labels = self.targets_of(labels)
        if isinstance(labels, np.ndarray):
            return labels
        for number, sentence in enumerate(labels):
            if isinstance(sentence, str) or not hasattr(sentence, "__len__"):
                raise ValueError(
                    "Every sentence needs a list of labels, one for each word. Received: "
                    f"{sentence!r:.60}, for sentence {number}."
                )
        return [indices_of(self.labels, sentence) for sentence in labels]

    def array_targets(self, y):
        """Converts names (b, s) beside arrays to indices. Indices and one-hot rows are returned unchanged."""
        y = self.targets_of(y)
        if isinstance(y, np.ndarray) and (y.ndim != 2 or isinstance(self.labels[0], str)):
            return y
        return np.stack([indices_of(self.labels, row) for row in y])

    def predict_words(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], batch_size: int = 32
    ) -> tuple[TaggedRows, list[np.ndarray]]:
        """Computes the logits of every word.

        Returns: (`TaggedRows`, list with a float64 array (words, labels) for each sentence). The logits of words
            without tokens are NaN. Words within a token of another word have the logits of that word.

        Raises:
            ValueError: if a sentence is neither a str nor a list of words, or the model has no tokenizer.
        """
        rows = TaggedRows(self.require_tokenizer(), list(sentences), self.max_length)
        feed = BucketedBatches(rows.x, batch_size=batch_size, shuffle=False, widths=Widths(self.max_length))
        return rows, list(rows.read(self.predict(feed, verbose=0)))

    @overload
    def tag(self, sentences: str, batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def tag(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], batch_size: int = ...
    ) -> list[dict[str, Any]]: ...

    def tag(self, sentences: str | Sequence[str] | Sequence[Sequence[str]], batch_size: int = 32):
        """Predicts a label for every word, and the entities that the labels form.

        Args:
            sentences: a text, or a list of sentences, each of which is a text or a list of words. A single sentence of
                words must be in a list, too: [["John", "Smith"]].
            batch_size: number of rows per batch.

        Returns: for each sentence, a dict {"words", "labels", "scores", "entities": [{"type", "text", "start", "stop",
            "score"}]}, where scores are probabilities. For a text, start and stop of an entity are character offsets,
            `text[start:stop]`; for a list, they are word indices. A word without tokens (only control characters) gets
            the label O, or the first label if there is no O, and score 0. A word within a token of another word
            continues the label of that word. For example, two ideographs in one token can be B-LOC and I-LOC.

        Raises:
            ValueError: if a sentence is neither a str nor a list of words, or the model has no tokenizer.
        """
        sentences = read_texts(sentences, "tag", "a sentence")
        if isinstance(sentences, str):
            return self.tag([sentences], batch_size)[0]
        if not len(sentences):
            return []
        rows, logits = self.predict_words(sentences, batch_size)
        return tagged(rows, sentences, logits, self.labels)

    # === Checks and configuration ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None:
            return
        if tuple(y.shape) not in ((shape := tuple(x["token_ids"].shape)), (*shape, len(self.labels))):
            raise ValueError(f"`y` must have the shape of `token_ids`, {shape}. Received: shape {tuple(y.shape)}.")
        counted = np.asarray(y) if sample_weight is None else np.asarray(y)[np.asarray(sample_weight) > 0]
        if counted.size and not (counted.min() >= 0 and counted.max() < len(self.labels)):
            wrong = counted.max() if counted.max() >= len(self.labels) else counted.min()
            raise ValueError(
                f"Labels must be between 0 and {len(self.labels) - 1}, or have weight 0. Received: {wrong}."
            )

    def variant(self):
        return "Backbone" if self.features else super().variant()

    def config_extras(self):
        return label_names(self.labels)

    @classmethod
    def arguments_from_config(cls, stored, settings):
        return with_stored_labels(stored, settings)
