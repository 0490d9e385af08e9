"""Fine-tunes a model to classify texts or pairs of texts, or to score them.

python -m pipelines.finetune --model saved_models/quickstart --data train.csv --output saved_models/mine
"""

import json
import warnings
from pathlib import Path
from typing import Literal

import numpy as np

from kerasbert.backend import seed_everything
from kerasbert.tasks import TextClassifier
from kerasbert.training import StopOnNaN, adamw

from .command import command
from .labelled import Columns, Labelled, read_labelled
from .model_card import write_card
from .scores import classification_scores, regression_scores


def finetune(
    model: str,
    data: str,
    output: Path,
    held_out: str | None = None,
    problem: Literal["classes", "score"] = "classes",
    epochs: int = 3,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup_share: float = 0.1,
    weight_decay: float = 0.01,
    max_length: int | None = None,
    seeds: tuple[int, ...] = (0,),
    from_scratch: bool = False,
    dtype: str | None = None,
    encoding: str = "utf-8",
    columns: Columns | None = None,
) -> dict:
    """Fine-tunes a classifier and saves it with its scores.

    Args:
        model: folder of a pretrained model, or hf://org/name.
        data: labelled texts: CSV, TSV, JSON, JSONL, Parquet, lines of `label text`, or hf://name#split.
        output: folder for the fine-tuned model, metrics.json and a model card.
        held_out: labelled texts to measure on.
        problem: a label out of several, or a number.
        epochs: passes over the data.
        batch_size: texts a step.
        learning_rate: after the warm-up; it then falls to 0.
        warmup_share: of the steps.
        weight_decay: of AdamW.
        max_length: tokens to which texts are cut. Default: as many as the model takes, up to 512.
        seeds: one training each; the model of the first is saved.
        from_scratch: start from random weights, to compare.
        dtype: such as mixed_bfloat16.
        encoding: of the files.
        columns: names of the columns, where they cannot be guessed.
    """
    training = read_labelled(data, columns, encoding)
    testing = read_labelled(held_out, columns, encoding) if held_out else None
    labels = label_names(training, testing) if problem == "classes" else None
    print(f"{len(training):,} examples" + (f", labels {', '.join(labels)}" if labels else ""))
    runs = []
    for seed in seeds:
        seed_everything(seed)
        options = {"labels": labels} if labels else {}
        classifier = new_classifier(
            model, load_weights=not from_scratch, dtype=dtype, problem=problem, max_length=max_length, **options
        )
        steps = -(-len(training) // batch_size) * epochs
        classifier.compile(
            adamw(learning_rate, warmup=round(warmup_share * steps), steps=steps, weight_decay=weight_decay)
        )
        history = classifier.fit(
            training.texts,
            targets_of(classifier, training),
            batch_size=batch_size,
            epochs=epochs,
            seed=seed,
            callbacks=[StopOnNaN()],
        )
        scores = {"seed": seed, "train_loss": float(history.history["loss"][-1])}
        if testing:
            scores |= score(classifier, testing, batch_size)
        runs.append(scores)
        print(json.dumps(scores))
        if seed == seeds[0]:
            classifier.save_to_preset(output)
    recipe = dict(
        model=model, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, warmup_share=warmup_share,
        weight_decay=weight_decay, max_length=max_length, from_scratch=from_scratch,
    )  # fmt: skip
    metrics = {"runs": runs, **summary(runs)}
    (output / "metrics.json").write_text(json.dumps({**metrics, "recipe": recipe}, indent=2))
    write_card(output, "Text classifier", {"source": str(data), "examples": len(training)}, recipe, summary(runs))
    print(f"saved {output}")
    return metrics


def new_classifier(folder: str | Path, **options) -> TextClassifier:
    """A pretrained body with a head that is new, as it has to be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*made new, to be trained")
        return TextClassifier.from_preset(folder, **options)


def label_names(training: Labelled, testing: Labelled | None = None) -> list[str]:
    """The labels of the training data: numbers in their order, names in alphabetical order."""
    names = set(training.labels)
    unknown = sorted(set(testing.labels) - names) if testing else []
    if unknown:
        raise ValueError(f"Held-out labels must occur in the training data ({sorted(names)}). Received: {unknown}.")
    if len(names) < 2:
        raise ValueError(f"A classifier needs two or more labels. Received: {sorted(names)}.")
    return sorted(names, key=int) if all(name.lstrip("-").isdecimal() for name in names) else sorted(names)


def targets_of(classifier: TextClassifier, data: Labelled) -> np.ndarray:
    """Labels as the classifier takes them."""
    if classifier.problem != "score":
        return classifier.encode_labels(data.labels)
    try:
        return classifier.encode_labels([float(label) for label in data.labels])
    except ValueError as error:
        raise ValueError(f"Scores must be numbers ({error}). For names use --problem classes.") from None


def score(classifier: TextClassifier, data: Labelled, batch_size: int = 32) -> dict[str, float]:
    """What the classifier's answers on labelled texts are worth."""
    targets = targets_of(classifier, data)
    outputs = classifier.predict(data.texts, batch_size=batch_size, verbose=0)
    return (regression_scores if classifier.problem == "score" else classification_scores)(outputs, targets)


def summary(runs: list[dict]) -> dict[str, float]:
    """Mean and standard deviation over the seeds of every score."""
    names = [name for name in runs[0] if name != "seed"]
    means = {name: float(np.mean([run[name] for run in runs])) for name in names}
    deviations = {f"{name}_deviation": float(np.std([run[name] for run in runs])) for name in names}
    return means | (deviations if len(runs) > 1 else {})


if __name__ == "__main__":
    command(finetune)
