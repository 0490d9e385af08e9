"""Classification, multi-label classification and regression for texts and pairs of texts."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import keras
import numpy as np

from ..checkpoints.arguments import Saved
from ..data.columns import table_names
from ..data.tasks.answers import classified
from ..data.tasks.examples import encode_texts
from ..data.tasks.labels import names_of, naming_advice
from ..data.tasks.targets import encoded_classes, encoded_scores, encoded_sets, rows_of_table
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .answer_network import AnswerNetwork
from .features import FeatureHead, feature_options, hidden_states
from .task import Task, label_names, with_stored_labels, zipped_columns

_PROBLEMS = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "score": "regression",
}


@keras.saving.register_keras_serializable("kerasbert")
class TextClassifier(Task):
    """Predicts a label, several labels or a score for a text or a pair of texts.

    Devlin et al. 2018, arXiv 1810.04805, section 4.1.

    Args:
        backbone: a backbone with a `classifier` head.
        labels: the label names in the order of the outputs (str, numbers or bools), their number, or a dict of names
            and indices. If the names are str, an int among the targets is an index. If they are numbers, it is a name.
            In `from_preset`, a single label stands for problem="score", as `num_labels=1` does in transformers.
        problem: `"classes"` (each text has one label), `"labels"` (each text has any number of labels) or `"score"`
            (regression with one output).
        max_length: maximum number of tokens per row; longer texts are truncated. Default: the maximum length of the
            backbone, at most 512.
        answer_steps: if given, an `AnswerNetwork` with this many steps replaces the head of the family. It reads pairs
            of texts (hypothesis, premise). MT-DNN uses 5.
        classifier_dropout: dropout rate before the output layer. Default: the rate in the backbone's config.
        features: "mix", "concatenate", or a dict of `combine`, `layers` and `lstm_dim`. If given, the backbone is
            frozen. Its hidden states, averaged over the tokens, are the features of a `FeatureHead`. To train the
            backbone as well, set `model.trains_backbone = True` before `compile`.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch.

    Returns: logits, float (b, number of labels), or the score, float (b, 1).

    Raises:
        ValueError: if `problem` or `features` is unknown, `labels` are not two or more different names, `max_length`
            exceeds the positions of the backbone, `answer_steps` is combined with another problem or with `features`,
            or the backbone has no `classifier` head.

    Example:
        >>> from kerasbert.tasks import TextClassifier
        >>> model = TextClassifier.from_preset("bert_mini_en", labels=["bad", "good"])
        >>> texts = ["What a lovely day!", "They laughed with joy.", "I hated every hour.", "He was angry and cruel."]
        >>> history = model.fit(texts * 4, ["good", "good", "bad", "bad"] * 4, batch_size=4, epochs=4, verbose=0)
        >>> model.classify("What a lovely evening!")["label"]
        'good'
        >>> model.save_to_preset("saved_models/mood")
    """

    SAVES = ("labels", "problem", "max_length", "answer_steps", "classifier_dropout", "features")
    SAVED_AS = {"answer_steps": Saved(int | None, 0, 10_000), "classifier_dropout": Saved(float | None, 0, 1)}

    hub_task = "text-classification"
    example_call = 'model.classify(["A first text.", "A second text."])'
    label_head = "classifier"

    def __init__(
        self,
        backbone: Backbone,
        labels: int | Sequence | Mapping = 2,
        problem: str = "classes",
        max_length: int | None = None,
        answer_steps: int | None = None,
        classifier_dropout: float | None = None,
        features: str | dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        if problem not in _PROBLEMS:
            raise ValueError(f"`problem` must be one of {', '.join(_PROBLEMS)}. Received: {problem!r}.")
        if problem == "score":
            labels = ["score"]
        self.labels = names_of(labels)
        if problem == "classes" and len(self.labels) < 2:
            raise ValueError(f"`labels` must be two or more different names. Received: {self.labels}.")
        self.problem = problem
        self.max_length = self.row_length(max_length, self.longest_row())
        if answer_steps and (problem != "classes" or features):
            raise ValueError(
                '`answer_steps` needs problem="classes", and cannot be combined with `features`. Received: '
                f"answer_steps={answer_steps}, problem={problem!r}, features={features!r}."
            )
        self.answer_steps = answer_steps
        self.classifier_dropout = classifier_dropout
        self.features = feature_options(features) if features else None
        self.trains_backbone = not features
        settings: dict[str, Any] = dict(dtype=self.dtype_policy)
        if answer_steps:
            rate = getattr(backbone.config, "dropout", 0.1) if classifier_dropout is None else classifier_dropout
            sizes = (len(self.labels), backbone.config.hidden_dim, answer_steps, rate)
            initializer = backbone.config.kernel_initializer()
            self.answer_network = AnswerNetwork(*sizes, initializer, name="answer_network", **settings)
        elif self.features:
            settings |= {} if classifier_dropout is None else dict(dropout=classifier_dropout)
            self.feature_head = FeatureHead(
                len(self.labels), pool=True, name="feature_head", **self.features, **settings
            )
        else:
            self.classifier = backbone.make_head("classifier", classifier_dropout, num_labels=len(self.labels))
        self.build_now()

    def example_inputs(self):
        inputs = super().example_inputs()
        return {**inputs, "segment_ids": np.array([[0, 1]], "int32")} if self.answer_steps else inputs

    def call(self, inputs, training=None):
        if self.answer_steps:
            return self.answer_network(self.backbone(inputs)["sequence_output"], inputs, training=training)
        if self.features:
            return self.feature_head(*hidden_states(self.backbone, inputs, training, not self.trains_backbone))
        return self.classifier(self.backbone.summarize(inputs))

    # === Loss and metrics ===

    def default_loss(self):
        if self.problem == "classes":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if self.problem == "labels":
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()

    def default_metrics(self):
        if self.problem == "classes":
            return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        if self.problem == "labels":
            return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]
        return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]

    # === Text ===

    def examples_of(self, x):
        return zipped_columns(x)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        encoded = encode_texts(self.require_tokenizer(), list(x), self.max_length)
        y = None if y is None else self.encode_labels(y)
        return self.bucketed_batches(encoded, y, sample_weight, batch_size, epochs, seed, shuffle)

    def encode_labels(self, labels):
        """Converts labels to targets of the loss.

        Args:
            labels: with problem="classes", a name or index for each text, or a row of probabilities, one per label.
                With problem="labels", a list of names or indices for each text, or a row with 0 or 1 for every label.
                With problem="score", a number for each text.

        Returns: int32 (n,), float32 (n, number of labels), or float32 (n, 1) for scores.

        Raises:
            ValueError: if a label is unknown, a row does not have one value per label, or a score is not finite.
        """
        if self.problem == "score":
            return encoded_scores(labels)
        return encoded_classes(self.labels, labels) if self.problem == "classes" else encoded_sets(self.labels, labels)

    def targets_of(self, y):
        if self.problem == "labels" and table_names(y) is not None:
            return rows_of_table(self.labels, y)
        return super().targets_of(y)

    def array_targets(self, y):
        return self.encode_labels(y)

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None:
            return
        if self.problem != "score" and y.ndim == 2 and y.shape[1] not in (1, len(self.labels)):
            raise ValueError(
                f"Rows of targets must have one value for each of the {len(self.labels)} labels. Received: "
                f"{y.shape[1]}."
            )
        if self.problem == "classes" and y.ndim == 2 and y.shape[1] == len(self.labels):
            if not (np.isfinite(y).all() and y.min(initial=0) >= 0 and y.max(initial=0) <= 1):
                raise ValueError(
                    "Rows of targets must have values between 0 and 1. Received: values from "
                    f"{y.min(initial=0)} to {y.max(initial=0)}."
                )
            return
        if self.problem == "classes" and y.size and not (y.min() >= 0 and y.max() < len(self.labels)):
            wrong = y.max() if y.max() >= len(self.labels) else y.min()
            raise ValueError(
                f"Targets must be indices from 0 to {len(self.labels) - 1}, for {self.labels}. Received: {wrong}."
                f"{naming_advice(self.labels)}"
            )
        if self.problem != "classes" and not np.isfinite(y).all():
            raise ValueError("Targets must be finite numbers. Received: NaN or infinity.")
        if self.problem == "labels" and y.size and not (y.min() >= 0 and y.max() <= 1):
            wrong = y.max() if y.max() > 1 else y.min()
            raise ValueError(f"Targets must lie between 0 and 1. Received: {wrong}.")

    @overload
    def classify(self, texts: str | tuple[str, str], batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def classify(
        self, texts: Sequence[str] | Sequence[tuple[str, str]], batch_size: int = ...
    ) -> list[dict[str, Any]]: ...

    def classify(self, texts: str | tuple[str, str] | Sequence[str] | Sequence[tuple[str, str]], batch_size: int = 32):
        """Predicts labels or scores.

        Args:
            texts: a str, a pair (tuple of two str), or a list of them.
            batch_size: number of texts per batch.

        Returns: a dict for each text. With problem="classes", {"label", "score", "scores"}: the best label, its
            probability, and {label: probability}. With problem="labels", {"labels", "scores"}: the labels with a
            probability above 0.5, and {label: probability}. With problem="score", {"score"}.

        Raises:
            ValueError: if an input is neither a str nor a pair of str, or the model has no tokenizer.
        """
        texts = read_texts(texts, "classify", "a text or a pair")
        texts = self.examples_of(texts)
        if isinstance(texts, (str, tuple)):
            return self.classify([texts], batch_size)[0]
        if not len(texts):
            return []
        return classified(self.predict(texts, batch_size=batch_size, verbose=0), self.labels, self.problem)

    # === Checks and configuration ===

    def variant(self):
        return "Backbone" if self.answer_steps or self.features else super().variant()

    def config_extras(self):
        return {**label_names(self.labels), "problem_type": _PROBLEMS[self.problem]}

    @classmethod
    def arguments_from_config(cls, stored, settings):
        given, settings = "labels" in settings, dict(with_stored_labels(stored, settings))
        stated = {theirs: ours for ours, theirs in _PROBLEMS.items()}.get(stored.get("problem_type"))
        count = len(names_of(settings["labels"])) if "labels" in settings else None
        if stated == "score" and count is not None and count > 1 and "problem" not in settings:
            if not given:
                raise ValueError(
                    "A regression must have one output. Received: a config.json with problem_type='regression' and "
                    f"{count} labels. To read them as independent labels, pass problem='labels'."
                )
            stated = None  # it is that of the head that the labels of the caller replace
        if stated is not None or count == 1:
            settings.setdefault("problem", stated or "score")
        return settings

    @classmethod
    def needs_pooler(cls, family, settings):
        replaces_head = settings.get("answer_steps") or settings.get("features")
        return not replaces_head and "classifier" in family.pooled_heads
