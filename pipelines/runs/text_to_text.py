"""Puts classification, regression and question answering into text-to-text form, as in T5."""

from dataclasses import dataclass, replace

import numpy as np

from kerasbert import metrics
from kerasbert.data.tasks import text_to_text

from ..reading.examples import Examples
from ..reading.tasks import TaskSpec
from .scores import classification_scores, regression_scores

KINDS = ("classes", "score", "questions")


@dataclass(frozen=True)
class Wording:
    """Formats a task for a `Seq2SeqLM`, and scores its answers.

    Args:
        task: name of the task, such as rte. Its texts begin with this name.
        spec: specification of the task.
        labels: class names in the data. For the tasks of T5, numbers are replaced by T5's names.
    """

    task: str
    spec: TaskSpec
    labels: list[str] | None = None

    def __post_init__(self):
        if self.spec.kind not in KINDS:
            raise ValueError(
                f"Only tasks of kind {', '.join(KINDS)} have a text-to-text form. "
                f"Received: {self.task!r}, of {self.spec.kind}. "
                "Leave out --text-to-text."
            )

    @property
    def name(self) -> str:
        """The name with which texts of the task begin. It is the same for both held-out sets of MNLI."""
        return "mnli" if self.task == "mnli_mismatched" else self.task

    @property
    def targets(self) -> list[str]:
        """The text to be generated for each label."""
        names = {str(number): name for number, name in enumerate(text_to_text.LABELS.get(self.name, ()))}
        return [names.get(label, label) for label in self.labels]

    def __call__(self, examples: Examples) -> Examples:
        """Returns the examples with texts as x and y."""
        word = {"classes": self._classified, "score": self._scored, "questions": self._asked}[self.spec.kind]
        pairs = [word(x, y) for x, y in zip(examples.x, examples.y, strict=True)]
        return replace(examples, x=[source for source, _ in pairs], y=[target for _, target in pairs])

    def _classified(self, text: str | tuple, label: str) -> tuple[str, str]:
        names = (self.spec.columns.text, self.spec.columns.pair)
        if isinstance(text, str):
            text, defaults = (text,), ("sentence",)
        else:
            defaults = ("sentence1", "sentence2")
        features = {name or default: part for name, default, part in zip(names, defaults, text, strict=False)}
        return text_to_text.classification_text(
            self.name, {**features, "label": self.labels.index(label)}, self.targets
        )

    def _scored(self, pair: str | tuple, label: str) -> tuple[str, str]:
        if isinstance(pair, str):
            raise ValueError(
                f"A score in text must be that of a pair, as in STS-B. Received: one text, {pair[:60]!r}. Leave out "
                "--text-to-text, or name the second column with --columns.pair."
            )
        return text_to_text.similarity_text(dict(sentence1=pair[0], sentence2=pair[1], label=_number(label)), self.task)

    def _asked(self, pair: tuple, answer: tuple | None) -> tuple[str, str]:
        answers = [answer[0] if answer else ""]
        return text_to_text.question_text(dict(question=pair[0], context=pair[1], answers=answers))

    def score(self, model, examples: Examples, batch_size: int = 32, **options) -> tuple[dict, list]:
        """Evaluates a model. Returns its scores, and the answers that it generates. `options` are passed to `generate`.

        An answer that is not a label (for classes) or not a number (for scores) is wrong.
        """
        answers = model.generate(self(examples).x, batch_size=batch_size, **options)
        if self.spec.kind == "questions":
            answers = [text_to_text.span_of(text, pair[1]) for text, pair in zip(answers, examples.x, strict=True)]
            ids = [q["id"] for article in examples.dataset for p in article["paragraphs"] for q in p["qas"]]
            scores = metrics.squad(examples.dataset, dict(zip(ids, answers, strict=True)))
            return {name: float(value) for name, value in scores.items() if name != "total"}, answers
        if self.spec.kind == "score":
            found = np.array([[text_to_text.score_of(answer)] for answer in answers])
            return regression_scores(found, np.array([[_number(y)] for y in examples.y])), answers
        right = np.array([self.labels.index(label) for label in examples.y])
        found = np.array([text_to_text.label_of(answer, self.targets) for answer in answers])
        # As in T5's code, an answer that is not a label counts as a wrong label in F1, but as an additional class in
        # the Matthews correlation, where counting it as the opposite label would give an untrained model a negative
        # score.
        matthews = metrics.matthews(right, found)
        found = np.where(found < 0, (right + 1) % len(self.labels), found)
        return {**classification_scores(np.eye(len(self.labels))[found], right), "matthews": matthews}, answers


def _number(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        raise ValueError(f"Scores must be numbers. Received: {label!r}. For names use --task classes.") from None
