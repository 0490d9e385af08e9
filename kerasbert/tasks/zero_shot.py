"""Classification without examples: a model for natural language inference says which label a text entails."""

import logging
from collections.abc import Sequence
from os import PathLike
from typing import Any, Self, overload

import numpy as np

from ..data.columns import values_of
from ..retrieval.few_labels import entailment_of, entailment_scores
from ..training.convert import read_texts
from .text_classifier import TextClassifier

log = logging.getLogger(__name__)


class ZeroShotClassifier:
    """Assigns labels that a model was not trained on (Yin, Hay, Roth 2019, arXiv 1909.00161).

    The text is the premise, and each label makes a hypothesis, such as "This example is politics.". The probabilities
    of the labels come from those of entailment, as in the zero-shot pipeline of transformers.

    Args:
        model: a `TextClassifier` for natural language inference. The label of entailment is the first one whose name
            begins with "entail", or else the last one, with a warning.
        template: the hypothesis, in which {} stands for the label.

    Raises:
        ValueError: if `model` is no `TextClassifier` with problem="classes", or `template` has no place for the label.

    Example:
        >>> from kerasbert.tasks import TextClassifier, ZeroShotClassifier
        >>> nli = TextClassifier.from_preset("bert_mini_en", labels=["entailment", "contradiction"])
        >>> pairs = [("It rains.", "This text is about weather."), ("It rains.", "This text is about food.")]
        >>> history = nli.fit(pairs * 8, ["entailment", "contradiction"] * 8, batch_size=4, epochs=4, verbose=0)
        >>> model = ZeroShotClassifier(nli, template="This text is about {}.")
        >>> model.classify("It rains.", ["food", "weather"])["label"]
        'weather'
    """

    def __init__(self, model: TextClassifier, template: str = "This example is {}."):
        if not isinstance(model, TextClassifier) or model.problem != "classes":
            what = f'problem="{model.problem}"' if isinstance(model, TextClassifier) else type(model).__name__
            raise ValueError(
                "A ZeroShotClassifier needs a TextClassifier for natural language inference, with classes. Received: "
                f"{what}."
            )
        _check_template(template)
        self.model, self.template = model, template
        entailment = entailment_of(model.labels)
        if not str(model.labels[entailment]).lower().startswith("entail"):
            log.warning(
                "No label of the model begins with 'entail': %s. The last one, %r, is taken for entailment.",
                model.labels,
                model.labels[entailment],
            )

    @classmethod
    def from_preset(cls, path: str | PathLike, template: str = "This example is {}.", **overrides: Any) -> Self:
        """Creates a classifier from the folder of a model for natural language inference.

        Args:
            path, **overrides: see `TextClassifier.from_preset`.
            template: see the class.

        Raises:
            FileNotFoundError: if there is no such folder or model.
            ValueError: as in `TextClassifier.from_preset`, or if `template` has no place for the label.
        """
        return cls(TextClassifier.from_preset(path, **overrides), template)

    @overload
    def classify(
        self,
        texts: str,
        labels: Sequence[str],
        multi_label: bool = ...,
        template: str | None = ...,
        batch_size: int = ...,
    ) -> dict[str, Any]: ...

    @overload
    def classify(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        multi_label: bool = ...,
        template: str | None = ...,
        batch_size: int = ...,
    ) -> list[dict[str, Any]]: ...

    def classify(
        self,
        texts: Any,
        labels: Sequence[str],
        multi_label: bool = False,
        template: str | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Computes the probabilities of labels.

        Args:
            texts: a str, or a list of str.
            labels: the candidates, different str.
            multi_label: whether any number of labels may be right. Each label then has a probability of its own, which
                is the probability of entailment rather than contradiction. A single candidate is treated in the same
                way.
            template: the hypothesis. Default: that of the classifier.
            batch_size: number of pairs per batch.

        Returns: a dict for each text, as `TextClassifier.classify` returns it: {"label", "score", "scores"}, or with
            `multi_label` {"labels", "scores"}, the labels with a probability above 0.5.

        Raises:
            ValueError: if a text is no str, `labels` are empty or not different, `template` has no place for the label,
                or the model has no tokenizer.
        """
        texts = read_texts(texts, "classify")
        labels, template = _checked_labels(labels), self.template if template is None else template
        _check_template(template)
        if isinstance(texts, str):
            return self.classify([texts], labels, multi_label, template, batch_size)[0]
        wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"Each text must be a str. Received: {texts[wrong]!r:.60}, as text {wrong}.")
        if not len(texts):
            return []
        pairs = [(text, template.format(label)) for text in texts for label in labels]
        logits = self.model.predict(pairs, batch_size=batch_size, verbose=0)
        answers = []
        for rows in np.reshape(logits, (len(texts), len(labels), -1)):
            scores = entailment_scores(rows, self.model.labels, multi_label)
            named = dict(zip(labels, scores.tolist(), strict=True))
            best = max(named, key=named.__getitem__)
            one = {"label": best, "score": named[best], "scores": named}
            several = {"labels": [label for label in named if named[label] > 0.5], "scores": named}
            answers.append(several if multi_label else one)
        return answers


def _check_template(template):
    try:
        one, other = template.format("a"), template.format("b")
    except (AttributeError, LookupError, ValueError):
        one = other = None
    if one == other:
        raise ValueError(f"`template` must contain {{}}, the place of the label. Received: {template!r:.80}.")


def _checked_labels(labels):
    labels = labels if isinstance(labels, str) else list(values_of(labels))
    if isinstance(labels, str) or not labels or not all(isinstance(name, str) and name.strip() for name in labels):
        raise ValueError(f"`labels` must be a list of one or more str that are not empty. Received: {labels!r:.80}.")
    if len(set(labels)) < len(labels):
        raise ValueError(f"`labels` must be different. Received: {labels!r:.80}.")
    return labels
