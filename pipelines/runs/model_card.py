"""Writes the README.md of a model folder: how to use the model, its scores, and how it was trained."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import keras
from huggingface_hub import EvalResult, metadata_load, try_to_load_from_cache

import kerasbert
from kerasbert import metrics
from kerasbert.checkpoints.folder import find_folder, shipped_folder
from kerasbert.checkpoints.model_card import Description, card
from kerasbert.data.text.files import write_text

from .outputs import counted

MOST_CLASSES = (
    20  # maximum size of a confusion matrix; with more classes, this many of the most frequent confusions are listed
)
# {score: its name among the metrics of the Hub}; other names are those of the Hub
METRICS = {
    "macro_f1": "f1",
    "micro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "mean_squared_error": "mse",
}
INHERITED = ("language", "license", "license_name", "license_link")
PATHS = ("model", "source", "sources", "teacher", "init_from")  # keys with paths; only the last component is published
ONE_F1 = r"(?<!macro_)(?<!micro_)f1(_deviation)?$"
# The code of a card is run in any folder.
PLACE = "Replace `{name}` by the path of this folder, unless you run the code beside it."


@dataclass(frozen=True)
class Measured:
    """The data that a model was evaluated on, and the results.

    Args:
        source: the file, data set or corpus.
        scores: scores by name.
        examples: number of examples.
        expected: for a model with labels, the right answer to each example: a label, a list of labels, or a list of
            tags.
        answers: the answers of the model.
        repeated: number of the examples that the model was trained on.
    """

    source: str
    scores: dict = field(default_factory=dict)
    examples: int | None = None
    expected: Sequence | None = None
    answers: Sequence | None = None
    repeated: int = 0


def write_card(
    folder: Path,
    title: str,
    data: dict,
    recipe: dict,
    scores: dict,
    description: Description,
    measured: Sequence[Measured] = (),
    log: dict | None = None,
    start: str = "",
) -> None:
    """Writes a model card: what the model is for, how to use it, its scores on each data set, and how it was trained.

    Curves of the training in the folder are shown. Settings that were left at None, False or empty are not listed. The
    scores of examples that were also trained on are not in the metadata, which the Hub compares with those of others.

    Args:
        folder: folder of the model. The card is its README.md.
        title: the beginning of a sentence about what the model is.
        data: what it was trained on.
        recipe: how it was trained.
        scores: scores that do not belong to a single data set.
        description: see `describe`.
        measured: the data sets that it was evaluated on.
        log: the last values in the log of the training.
        start: the model that training started from, or "" for random weights. The card has its license and language,
            and points to its limits.
    """
    folder = Path(folder)
    name, labels = folder.resolve().name, description.labels
    evaluation = [*_evaluation(measured, description), *_table("metric", _of_label(scores, description))]
    limits = [*description.limits, *_limits_of(start)]
    limits += [] if evaluation else ["It has not been evaluated on held-out data."]
    usage = f"{PLACE}\n\n{description.usage}"
    description = dataclasses.replace(description, limits=tuple(limits), usage=usage)
    curves = sorted(path.relative_to(folder).as_posix() for path in folder.glob("**/curves.png"))[:1]
    training = [f"![Loss and scores during training]({curve})\n" for curve in curves] + _table("setting", recipe)[1:]
    training += _table("at the end", log or {})
    inherited = _inherited(start)
    made = f"Made with kerasbert {kerasbert.__version__} on Keras {keras.__version__}, {keras.backend.backend()}."
    sections = [
        ("Labels", [", ".join(_label_names(labels))] if labels else []),
        ("Evaluation", evaluation[1:]),
        ("Data", _table("data", data)[1:]),
        ("Training", [*training, "", made]),
        ("License", _license(inherited, start)),
    ]
    text = card(
        name,
        title,
        description,
        sections,
        base_model=_base_of(start),
        datasets=sorted({found for each in data.values() for found in _hub_names(each)}),
        eval_results=_results(measured, description),
        **inherited,
    )
    write_text(folder / "README.md", text)


def _license(inherited: dict, start: str) -> list[str]:
    if "license" not in inherited:
        return []
    name = public(start).removeprefix("hf://")
    return [f"`{inherited['license']}`, as `{name}`. Check that the terms of the training data allow it."]


def _inherited(start: str) -> dict:
    """License and languages of the model that training started from, as far as its own card says so."""
    known = _metadata_of(start)
    return {name: known[name] for name in INHERITED if name in known}


def _metadata_of(start: str) -> dict:
    """The metadata of the card of the model that training started from; {} if there are none."""
    from yaml import YAMLError  # a dependency of huggingface_hub, which reads the metadata

    found = _card_of(start)
    try:
        known = None if found is None else metadata_load(found)
    except (OSError, ValueError, YAMLError):  # there is no metadata in it
        return {}
    return known if isinstance(known, dict) else {}


def _card_of(start: str) -> Path | None:
    """The card of the model that training started from, or None if it has none."""
    try:
        if start.startswith("hf://"):  # its card was downloaded with the model
            found = try_to_load_from_cache(start.removeprefix("hf://"), "README.md")
        else:
            found = find_folder(start) / "README.md" if start else None
    except (OSError, ValueError):  # there is no such folder any more
        return None
    found = Path(found) if isinstance(found, (str, Path)) else None
    return found if found is not None and found.is_file() else None


def _limits_of(start: str) -> list[str]:
    """A sentence about the limits of the model that training started from, if its card has a section of them."""
    found = _card_of(start)
    if found is None or not re.search(r"^#+ +Limit", found.read_text(encoding="utf-8", errors="replace"), re.MULTILINE):
        return []
    name = public(start).removeprefix("hf://")
    where = f"on https://huggingface.co/{name}" if start.startswith("hf://") else "in the README.md of that model"
    return [f"It inherits the limits of `{name}`, which are {where}."]


def _base_of(start: str) -> str | list[str] | None:
    """The name under which others know the model that training started from, or what that one started from.

    It is a name on the Hub, or of a model that comes with kerasbert. The name of any other folder means nothing to
    others, or another model.
    """
    if start.startswith("hf://"):
        return start.removeprefix("hf://")
    found = _card_of(start)
    if found is None:
        return None
    shipped = shipped_folder(found.parent.resolve().name)
    if shipped is not None and shipped.samefile(found.parent):
        return shipped.name
    base = _metadata_of(start).get("base_model")
    return base if isinstance(base, (str, list)) else None


def _results(measured: Sequence[Measured], description: Description) -> list[EvalResult]:
    """The scores in the form of the Hub, for models with a task there, on examples that were not trained on."""
    task = description.task
    return [
        EvalResult(
            task,
            metric_type=METRICS.get(score, score),
            metric_name=name,
            metric_value=value,
            **_data_set(each.source),
        )
        for each in measured
        for (score, value), name in zip(each.scores.items(), _of_label(each.scores, description), strict=True)
        if task and value is not None and not each.repeated
    ]


def _data_set(source: str) -> dict[str, str]:
    """Names a data set as the Hub does: "hf://glue:sst2#validation" -> its type, config and split."""
    if not str(source).startswith("hf://"):
        return {"dataset_type": public(source), "dataset_name": public(source)}
    name, _, split = str(source).removeprefix("hf://").partition("#")
    name, _, config = name.partition(":")
    parts = {"dataset_config": config, "dataset_split": split}
    shown = f"{name} ({config})" if config else name
    return {"dataset_type": name, "dataset_name": shown} | {key: value for key, value in parts.items() if value}


def _baseline(expected: Sequence | None) -> dict[str, float]:
    """The accuracy of always giving the most frequent label, for a classifier."""
    if not expected or not all(isinstance(label, str) for label in expected):
        return {}
    return {"accuracy of the most frequent label": Counter(expected).most_common(1)[0][1] / len(expected)}


def _evaluation(measured: Sequence[Measured], description: Description) -> list[str]:
    """Formats the scores on each data set, below its name."""
    lines: list[str] = []
    for each in measured:
        count = "" if each.examples is None else f", {counted(each.examples, 'example')}"
        baseline = _baseline(each.expected) if "accuracy" in each.scores and description.labels else {}
        lines += ["", f"### {public(each.source)}{count}"]
        if each.repeated:
            lines += ["", _said_repeated(each.repeated)]
        lines += _table("metric", _of_label(each.scores, description) | baseline)
        lines += _one_sided(description, each.answers)
        if description.labels and each.expected:
            lines += _by_class(description.task, description.labels, each.expected, each.answers)
    return lines


def _said_repeated(count: int) -> str:
    return (
        f"{count:,} of these examples {'is' if count == 1 else 'are'} also in the training data, so these scores do "
        "not show how well the model does on new ones."
    )


def _of_label(scores: dict, description: Description) -> dict:
    """Says in the names of F1 scores with two labels which of them they are about: the second one."""
    if description.task != "text-classification" or len(description.labels) != 2:
        return scores
    its = f" of `{description.labels[1]}`"  # "f1", "de_f1" and "f1_deviation", but not "macro_f1"
    return {name + its if re.search(ONE_F1, name) else name: value for name, value in scores.items()}


def _one_sided(description: Description, answers: Sequence | None) -> list[str]:
    """Says if nearly all answers of a classifier are the same label."""
    if not description.labels or not answers or not all(isinstance(answer, str) for answer in answers):
        return []
    label, count = Counter(answers).most_common(1)[0]
    if count < 0.9 * len(answers) or len(answers) < 10:
        return []
    return ["", f"{count / len(answers):.0%} of the answers are `{label}`."]


def _label_names(labels: Sequence[str]) -> list[str]:
    return [f"`{label}`" for label in labels[:100]] + [f"and {len(labels) - 100} more"] * (len(labels) > 100)


def _hub_names(value) -> list[str]:
    """Returns the names of data sets on the Hub in a value of a card, such as `hf://glue:sst2#train`."""
    if isinstance(value, (list, tuple)):
        return [name for each in value for name in _hub_names(each)]
    return re.findall(r"^hf://([^:#]+)", value) if isinstance(value, str) else []


def _by_class(task: str, labels: Sequence[str], expected: Sequence, answers: Sequence) -> list[str]:
    """Formats precision, recall and F1 of every class, and the confusions between classes."""
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
    """Formats the confusion matrix or, if there are many classes, the most frequent confusions."""
    counts = Counter(zip(expected, answers, strict=True))
    if len(labels) > MOST_CLASSES:
        wrong = [(pair, count) for pair, count in counts.most_common() if pair[0] != pair[1]][:MOST_CLASSES]
        lines = ["", "The most frequent confusions:", "", "| right class | predicted | examples |", "|---|---|---|"]
        return lines + [f"| {_shown(a)} | {_shown(b)} | {count:,} |" for (a, b), count in wrong]
    lines = ["", "Rows are the right classes, columns the predicted ones:", ""]
    lines += ["| right class | " + " | ".join(map(_shown, labels)) + " |", "|---" * (len(labels) + 1) + "|"]
    for right in labels:
        lines.append(f"| {_shown(right)} | " + " | ".join(f"{counts[right, given]:,}" for given in labels) + " |")
    return lines


def _table(what: str, values: dict) -> list[str]:
    """Formats values as a table after an empty line; [] if there are none."""
    rows = [
        f"| {key} | {_shown(value)} |"
        for key, value in without_folders(values).items()
        if value is not None and value is not False and value not in ("", [], (), {})
    ]
    return ["", f"| {what} | value |", "|---|---|", *rows] if rows else []


def without_folders(values: dict) -> dict:
    """Returns the values with paths of files and folders reduced to their last component."""
    return {key: public(value) if key in PATHS else value for key, value in values.items()}


def public(value):
    """Reduces a path to its last component, so that a card does not reveal the folders of its author."""
    if isinstance(value, dict):
        return {key: public(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [public(each) for each in value]
    if not isinstance(value, (str, PurePath)) or str(value).startswith("hf://"):
        return value
    return ",".join(PurePath(part).name or part for part in str(value).split(","))


def _shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
