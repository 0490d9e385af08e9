"""Writes the README.md of a model folder: how to use the model, its scores, and how it was trained."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import keras
from huggingface_hub import EvalResult, ModelCard, ModelCardData

import kerasbert
from kerasbert import metrics
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection, Seq2SeqLM
from kerasbert.objectives.next_token import NextToken
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

MOST_CLASSES = 20  # in a confusion matrix; with more classes, the number of most frequent confusions to list
PATHS = ("model", "source", "sources", "teacher", "init_from")  # keys with paths; only the last component is published

# Class -> the hub's name for the task, and an example call.
USES = {
    TextClassifier: ("text-classification", 'model.classify(["A first text.", "A second text."])'),
    TokenClassifier: ("token-classification", 'model.tag(["A first text.", "A second text."])'),
    QuestionAnswerer: ("question-answering", 'model.answer([("Who sat?", "The cat sat on the mat.")])'),
    MultipleChoice: ("multiple-choice", 'model.choose([("The cat", ["sat.", "barked."])])'),
    TextEmbedder: ("sentence-similarity", 'model.embed(["A first text.", "A second text."])'),
    MaskedLM: ("fill-mask", 'model.fill_mask("The cat {mask} on the mat.")'),
    ReplacedTokenDetection: (None, 'model.discriminator.score_tokens("The cat sat on the mat.")'),
    Seq2SeqLM: ("text2text-generation", 'model.generate(["A first text.", "A second text."], max_new_tokens=64)'),
    NextToken: ("text-generation", 'model.generate("The cat", max_new_tokens=20)'),
}
PAIRS = 'model.classify([("A first text.", "Its pair.")])'
HALVES = """
Where one model is expected, here and in `transformers`, the folder loads as the discriminator. The generator, which
fills masks, is in `{name}/generator`.

```python
kerasbert.tasks.TextClassifier.from_preset("{name}", labels=["bad", "good"])
kerasbert.load("{name}/generator")
```"""


@dataclass(frozen=True)
class Measured:
    """The data that a model was evaluated on, and the results.

    Args:
        source: the file, data set or corpus.
        scores: scores by name.
        examples: number of examples.
        expected: for a model with labels, the right answers: a label, a list of labels or a list of tags each.
        answers: the answers of the model.
    """

    source: str
    scores: dict = field(default_factory=dict)
    examples: int | None = None
    expected: Sequence | None = None
    answers: Sequence | None = None


@dataclass(frozen=True)
class Description:
    """The part of a card that depends on the model alone; see `describe`."""

    task: str | None
    family: str
    usage: str
    labels: Sequence[str]


def describe(model, pairs: bool = False) -> Description:
    """Collects what a card needs from a model, so that the model can be freed before the card is written.

    Args:
        model: an objective or a task model.
        pairs: whether a classifier takes pairs of texts.
    """
    task, call = next((use for cls, use in USES.items() if isinstance(model, cls)), (None, ""))
    if pairs and isinstance(model, TextClassifier):
        call = PAIRS
    mask = model.tokenizer.roles.get("mask", "[MASK]") if model.tokenizer is not None else "[MASK]"
    usage = f'```python\nimport kerasbert\n\nmodel = kerasbert.load("{{name}}")\n{call.replace("{mask}", mask)}\n```'
    if isinstance(model, ReplacedTokenDetection):
        usage += HALVES
    labels = [] if getattr(model, "problem", None) == "score" else getattr(model, "labels", [])
    return Description(task, type(model.backbone).__name__, usage, list(labels))


def write_card(
    folder: Path,
    title: str,
    data: dict,
    recipe: dict,
    scores: dict,
    description: Description,
    measured: Sequence[Measured] = (),
) -> None:
    """Writes a model card: what the model is, its labels, its scores on each data set, the data, and the recipe.

    Args:
        folder: folder of the model. The card is its README.md.
        title: what the model is.
        data: what it was trained on.
        recipe: how it was trained; `model` is what training started from.
        scores: scores that do not belong to a single data set.
        description: see `describe`.
        measured: the data sets that it was evaluated on.
    """
    name, labels = Path(folder).resolve().name, description.labels
    backend = keras.backend.backend()
    body = [f"# {title}", "", f"Made with kerasbert {kerasbert.__version__} on Keras {keras.__version__}, {backend}."]
    body += ["", "## Usage", "", description.usage.replace("{name}", name)]
    if labels:
        shown = [f"`{label}`" for label in labels[:100]] + [f"and {len(labels) - 100} more"] * (len(labels) > 100)
        body += ["", "## Labels", "", ", ".join(shown)]
    for each in measured:
        count = "" if each.examples is None else f", {each.examples:,} examples"
        body += ["", f"## Measured on {_public(each.source)}{count}", *_table(each.scores)]
        if labels and each.expected:
            body += _by_class(description.task, labels, each.expected, each.answers)
    for heading, values in (("Metrics", scores), ("Data", data), ("Recipe", recipe)):
        body += ["", f"## {heading}", *_table(values)] if values else []
    source = str(recipe.get("model", ""))
    results = [
        EvalResult(description.task, _public(each.source), _public(each.source), score, value)
        for each in measured
        for score, value in each.scores.items()
        if description.task and value is not None
    ]
    card = ModelCardData(
        library_name="kerasbert",
        tags=["keras", description.family.lower()],
        pipeline_tag=description.task,
        base_model=source.removeprefix("hf://") if source.startswith("hf://") else None,
        **(dict(model_name=name, eval_results=results) if results else {}),
    )
    ModelCard(f"---\n{card.to_yaml()}\n---\n" + "\n".join(body) + "\n").save(Path(folder) / "README.md")


def _by_class(task: str, labels: Sequence[str], expected: Sequence, answers: Sequence) -> list[str]:
    """Precision, recall and F1 of every class, and the confusions between classes."""
    if task == "token-classification":
        return _class_table(metrics.entities(expected, answers)["types"], "entity")
    lines = _class_table(metrics.by_class(labels, expected, answers), "label")
    return [*lines, *_confusions(labels, expected, answers)] if isinstance(expected[0], str) else lines


def _class_table(found: dict[str, dict], what: str) -> list[str]:
    lines = ["", f"| {what} | precision | recall | F1 | examples |", "|---|---|---|---|---|"]
    for name, each in found.items():
        numbers = " | ".join(f"{each[key]:.4g}" for key in ("precision", "recall", "f1"))
        lines.append(f"| {_shown(name)} | {numbers} | {each['support']:,} |")
    return lines


def _confusions(labels: Sequence[str], expected: Sequence[str], answers: Sequence[str]) -> list[str]:
    """The confusion matrix or, if there are many classes, the most frequent confusions."""
    counts = Counter(zip(expected, answers, strict=True))
    if len(labels) > MOST_CLASSES:
        wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]][:MOST_CLASSES]
        lines = ["", "The most frequent confusions:", "", "| right class | predicted | examples |", "|---|---|---|"]
        return lines + [f"| {_shown(a)} | {_shown(b)} | {count:,} |" for (a, b), count in wrong]
    lines = ["", "Rows are the right classes, columns the predicted ones:", ""]
    lines += ["| | " + " | ".join(map(_shown, labels)) + " |", "|---" * (len(labels) + 1) + "|"]
    for right in labels:
        lines.append(f"| {_shown(right)} | " + " | ".join(f"{counts[right, given]:,}" for given in labels) + " |")
    return lines


def _table(values: dict) -> list[str]:
    lines = ["", "| | |", "|---|---|"]
    for key, value in without_folders(values).items():
        if value is not None:
            lines.append(f"| {key} | {_shown(value)} |")
    return lines


def without_folders(values: dict) -> dict:
    """The values with the paths of files and folders reduced to their last component."""
    return {key: _public(value) if key in PATHS else value for key, value in values.items()}


def _public(value):
    """Reduces a path to its last component, so that a card does not reveal the folders of its author."""
    if isinstance(value, dict):
        return {key: _public(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_public(each) for each in value]
    if not isinstance(value, (str, PurePath)) or str(value).startswith("hf://"):
        return value
    return ",".join(PurePath(part).name or part for part in str(value).split(","))


def _shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
