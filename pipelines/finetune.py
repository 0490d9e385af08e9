"""Fine-tunes a pretrained model for a task, evaluates it, and saves it with its scores and predictions.

python -m pipelines.finetune --model saved_models/quickstart --data train.csv --output saved_models/mine
python -m pipelines.finetune --model saved_models/mine --task ner --data train.conll --held-out test.conll --output ...
"""

import dataclasses
import functools
import inspect
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from kerasbert.backend import seed_everything
from kerasbert.checkpoints.folder import read_saved
from kerasbert.checkpoints.model_card import describe
from kerasbert.checkpoints.saves import replaced_model
from kerasbert.data.text.files import digest_of
from kerasbert.data.text.locks import locked
from kerasbert.objectives import Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from kerasbert.training import RunLog, StopOnNaN, adamw, plot_curves

from .command_line.command import Command
from .reading.examples import Examples, read_examples
from .reading.label_names import check_labels, label_names
from .reading.labelled import GUESSED, Columns
from .reading.splits import named_sources, split_tenth
from .reading.tables import Format
from .reading.tasks import TaskSpec, task_of
from .runs.adapting import WHOLE_MODEL, Lora
from .runs.model_card import Measured, write_card
from .runs.outputs import check_outputs, write_answers, write_json
from .runs.reports import (
    MOST_ROWS,
    BestWeights,
    EpochProgress,
    HeldOut,
    plan_reports,
    spread,
    validation_rows,
)
from .runs.scores import choice_scores, question_scores, sequence_scores, tag_scores, text_scores
from .runs.text_to_text import Wording
from .runs.trackers import Tracker, tracked

TITLES = {
    "classes": "Text classifier", "labels": "Text classifier", "score": "Text regression", "tags": "Token classifier",
    "questions": "Question answerer", "choices": "Multiple choice", "sequences": "Sequence to sequence",
}  # fmt: skip
FEW_UPDATES = 50  # with fewer, a new head has hardly been trained


# Of an earlier fine-tuning in the same folder; they would not describe the new model.
EARLIER = ("metrics.json", "README.md", "predictions*.jsonl", "adapter_config.json", "adapter_model.safetensors")
EARLIER += ("adapter/adapter_config.json", "adapter/adapter_model.safetensors")


def in_locked_folder(function: Callable) -> Callable:
    """Decorator that locks the folder `output` for this process."""

    @functools.wraps(function)
    def locking(*arguments, **options):
        bound = inspect.signature(function).bind(*arguments, **options)
        bound.apply_defaults()
        with locked(bound.arguments["output"]):
            return function(*arguments, **options)

    return locking


@in_locked_folder
def finetune(
    model: str,
    data: str | None = None,
    output: Path = Path("saved_models/fine_tuned"),
    held_out: tuple[str, ...] = (),
    task: str = "classes",
    epochs: int = 3,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup_share: float = 0.1,
    weight_decay: float = 0.01,
    layer_decay: float | None = None,
    max_length: int | None = None,
    seeds: tuple[int, ...] = (0,),
    patience: int | None = None,
    keep_best: bool = False,
    balanced: bool = False,
    text_to_text: bool = False,
    from_scratch: bool = False,
    max_new_tokens: int = 64,
    num_beams: int = 1,
    limit: int | None = None,
    dtype: str | None = None,
    less_memory: bool = False,
    format: Format = "auto",
    encoding: str = "utf-8",
    columns: Columns = GUESSED,
    lora: Lora = WHOLE_MODEL,
    accumulation: int = 1,
    validate_every: int | None = None,
    log: Tracker | None = None,
) -> dict:
    """Fine-tunes a model, and saves it with its scores.

    Args:
        model: folder of a pretrained model, or hf://org/name.
        data: examples: CSV, TSV, JSON, JSONL, Parquet, CoNLL's columns, SQuAD's JSON, a folder of RACE's files, lines
            of `label text`, two parallel files `train.de,train.en`, or hf://name:configuration#split. Default: the
            data set of the task on the hub.
        output: folder for the fine-tuned model, metrics.json, predictions.jsonl, curves and a model card.
        held_out: examples to evaluate on. Several data sets, for example in different languages, are evaluated
            separately, and reported by name (en=test.en.tsv de=test.de.tsv) or by file name. During training, the loss
            and the scores on examples of the first data set (at most 1000) are reported.
        task: a kind (classes, labels, score, ner, questions, choices, sequences), or the name of a data set, whose
            official files are supported: sst2, cola, mrpc, stsb, qqp, mnli, qnli, rte, wnli, trec, ag_news, squad,
            squad_v2, conll2003, wnut17, race, swag, arc_easy, translation, summarization, ...
        epochs: passes over the data.
        batch_size: examples per step.
        learning_rate: peak learning rate. The rate reaches it after the warm-up, and then decays to 0.
        warmup_share: length of the warm-up, as a share of all steps.
        weight_decay: weight decay of AdamW.
        layer_decay: ratio of a layer's learning rate to the learning rate of the layer above, such as 0.8 for ELECTRA's
            base model.
        max_length: maximum number of tokens in texts, targets and windows. Default: the maximum of the model, but at
            most 512.
        seeds: seeds. One model is trained for each of them. The model of the first seed is saved.
        patience: stop training when the validation loss has not fallen for this many epochs, and restore the weights
            with the lowest loss. A tenth of the training examples is then used for validation only.
        keep_best: train to the end, then restore the weights with the lowest validation loss. A tenth of the training
            examples is then used for validation only.
        balanced: give all classes the same total weight in the loss.
        text_to_text: train an encoder-decoder to generate the labels or answers, in the format of T5.
        from_scratch: start from random weights, for comparison.
        max_new_tokens: maximum length of generated answers, in tokens.
        num_beams: number of beams for generating answers.
        limit: use at most this many training and held-out examples each.
        dtype: dtype policy, such as mixed_bfloat16.
        less_memory: recompute activations in the backward pass instead of storing them, which saves memory, but makes
            steps about a third slower.
        format: format of the files. Default: by file extension and, for .txt, by content.
        encoding: encoding of the files.
        columns: names of the columns that cannot be guessed: text, pair (second text, or context) and label.
        lora: train low-rank products instead of the whole model (LoRA): --lora.rank 8.
        accumulation: split each batch into this many parts, whose gradients are averaged, to save memory.
        validate_every: number of updates between validations during training, each on at most 1000 examples, rounded
            to a part of an epoch. Default: at least once per epoch, on so few examples that validation takes a tenth
            of the time.
        log: also send the metrics to wandb, tensorboard or mlflow, if this package is installed.
    """
    spec = task_of(task).with_columns(columns)
    for name, number in (
        ("epochs", epochs),
        ("batch_size", batch_size),
        ("limit", limit),
        ("seeds", len(seeds)),
        ("accumulation", accumulation),
        ("validate_every", validate_every),
        ("lora.rank", lora.rank),
    ):
        if number is not None and number < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {number}.")
    check_rates(learning_rate, warmup_share, weight_decay, layer_decay)
    if data is None:
        data, hub_held_out = spec.sources()
        held_out = held_out or (hub_held_out,)
    sources = named_sources(held_out)
    answer_files = {name: output / f"predictions{name and '_'}{name}.jsonl" for name in sources}
    check_outputs({f"--output {output}": file for file in answer_files.values()}, {"--data": data, **sources})
    lora.check_folder(output)
    training = read(spec, data, encoding, limit, training=True, format=format)
    testing = {name: read(spec, path, encoding, limit, format=format) for name, path in sources.items()}
    labels = label_names(spec.kind, training, order=spec.labels, where=f" in {data}")
    if labels:
        for name, path in sources.items():
            check_labels(labels, testing[name], path)
    print(f"{len(training):,} examples" + (f", labels {', '.join(labels)}" if labels else ""))
    wording = Wording(task, spec, labels) if text_to_text else None
    kind = "sequences" if wording else spec.kind
    writing = dict(max_new_tokens=max_new_tokens, num_beams=num_beams) if kind == "sequences" else {}
    kept_out = patience is not None or keep_best
    shown, validation = split_tenth(training) if kept_out else (training, next(iter(testing.values()), None))
    rows = MOST_ROWS if validate_every else validation_rows(len(shown) * epochs, epochs, kept_out)
    validation = validation and spread(validation, rows)
    recipe = dict(
        model=model, task=task, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate,
        warmup_share=warmup_share, weight_decay=weight_decay, layer_decay=layer_decay, max_length=max_length,
        patience=patience, keep_best=keep_best, balanced=balanced, text_to_text=text_to_text,
        from_scratch=from_scratch, accumulation=accumulation if accumulation > 1 else None,
        **({} if lora.rank is None else {"lora": dataclasses.asdict(lora)}), **writing,
    )  # fmt: skip
    runs = []
    for seed in seeds:
        seed_everything(seed)
        trained = new_model(kind, model, labels, max_length, load_weights=not from_scratch, dtype=dtype)
        if less_memory:
            trained.backbone.rematerialize()
        lora.start(trained)
        batches = batches_of(trained, kind, shown, wording, balanced, batch_size, epochs, seed)
        batches, interval, validated = plan_reports(batches, epochs, validation, validate_every)
        updates, batches, interval = len(batches), batches.accumulated(accumulation), interval * accumulation
        steps, per_epoch = len(batches), len(batches) // epochs
        options = dict(warmup=round(warmup_share * updates), weight_decay=weight_decay, layer_decay=layer_decay)
        trained.compile(adamw(learning_rate, steps=updates, accumulation=accumulation, **options))
        if updates < FEW_UPDATES and seed == seeds[0]:
            print(f"{updates} updates are few. If scores are low, use more --epochs or a higher --learning-rate.")
        run_log, watched = RunLog(output / "logs" / f"seed_{seed}", steps_per_pass=per_epoch), None
        callbacks = [StopOnNaN()]
        if validation is not None:
            watched = batches_of(trained, kind, validation, wording, False, batch_size, shuffle=False)
            if kind != "sequences":  # skipped for sequences, because generating answers takes long
                callbacks.append(HeldOut(lambda model: score(model, validation, batch_size)[0], validated))
        callbacks += [run_log, EpochProgress(steps, per_epoch, epochs)]
        if kept_out:
            callbacks.append(BestWeights(None if patience is None else patience * len(validated) // epochs))
        with tracked(log, output / "logs", f"{output.name} seed {seed}", recipe) as more:
            history = trained.fit(
                batches,
                steps_per_epoch=interval,
                callbacks=[*callbacks, *more],
                validation_data=watched,
                validation_freq=validated,
            )
        scores = {"seed": seed, "train_loss": float(history.history["loss"][-1])}
        if kept_out:
            scores["epochs"] = -(-len(history.history["loss"]) * interval // per_epoch)
        found, answers = {}, {}
        for name, examples in testing.items():
            measure = wording.score if wording else score
            found[name], answers[name] = measure(trained, examples, batch_size, **writing)
            scores |= {f"{name}_{key}" if name else key: value for key, value in found[name].items()}
        runs.append(scores)
        print(json.dumps(scores))
        if seed == seeds[0]:
            with replaced_model(output, also=EARLIER) as folder:
                lora.save(trained, folder, model)
                for name, examples in testing.items():
                    write_answers(folder / answer_files[name].name, examples, answers[name])
            plot_curves(run_log.folder)
            description = describe(trained, pairs=isinstance(training.x[0], tuple))
            measured = [
                Measured(str(sources[name]), found[name], len(examples), examples.y, plain(answers[name]))
                for name, examples in testing.items()
            ]
    metrics = {"runs": runs, **summary(runs)}
    source = {"source": str(data), "examples": len(training)}
    means = {"seeds": len(runs), **summary(runs)}
    write_card(output, TITLES[spec.kind], source, recipe, means, description, measured)
    save = {"id": read_saved(output).get("save", {}).get("id")}  # which model these are the metrics of
    save["files"] = {file.name: digest_of(file) for file in answer_files.values()}
    write_json(output / "metrics.json", {**metrics, "recipe": recipe, "save": save})
    print(f"saved {output}")
    return metrics


# === Parts ===


def check_rates(learning_rate: float, warmup_share: float, weight_decay: float, layer_decay: float | None) -> None:
    """Raises a ValueError for numbers with which the optimizer would do nothing, or harm."""
    for name, number, is_right, bounds in (
        ("learning_rate", learning_rate, 0 < learning_rate < math.inf, "above 0"),
        ("warmup_share", warmup_share, 0 <= warmup_share <= 1, "between 0 and 1"),
        ("weight_decay", weight_decay, 0 <= weight_decay < math.inf, "at least 0"),
        ("layer_decay", layer_decay, layer_decay is None or 0 < layer_decay <= 1, "above 0 and at most 1"),
    ):
        if not is_right:
            raise ValueError(f"`{name}` must be {bounds}. Received: {number}.")


def plain(answers: list) -> list:
    """Drops the scores of answers."""
    return [answer["answer"] if isinstance(answer, dict) else answer for answer in answers]


def batches_of(
    model,
    kind: str,
    examples: Examples,
    wording: Wording | None = None,
    balanced: bool = False,
    batch_size: int = 32,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = True,
):
    """Creates the batches of all epochs. For a text-to-text model, examples are first converted to text."""
    weights = None
    if balanced:
        if kind != "classes":
            raise ValueError(f"`balanced` is only for tasks of kind classes. Received: {kind}. Leave out --balanced.")
        names, numbers, counts = np.unique(examples.y, return_inverse=True, return_counts=True)
        weights = (len(numbers) / (len(names) * counts))[numbers].astype("float32")
    examples = wording(examples) if wording else examples
    targets = encoded_targets(model, kind, examples) if kind == "score" else examples.y
    return model.text_batches(examples.x, targets, weights, batch_size, epochs, seed, shuffle)


def read(
    spec: TaskSpec,
    path: str,
    encoding: str,
    limit: int | None = None,
    training: bool = False,
    format: Format = "auto",
) -> Examples:
    """Reads the examples of a task. The prefix of a text-to-text task is added to the texts."""
    keep = spec.impossible or not training
    examples = read_examples(spec.kind, path, spec.columns, encoding, keep, format, spec.layouts)
    if spec.prefix:
        examples = replace(examples, x=[spec.prefix + text for text in examples.x])
    return examples if limit is None else first_of(examples, limit)


def first_of(examples: Examples, limit: int) -> Examples:
    """Returns the first `limit` examples. For questions, the data set is reduced accordingly."""
    kept: list = []
    for article in examples.dataset:
        for paragraph in article["paragraphs"]:
            questions = paragraph["qas"][: limit - len(kept)]
            kept += [{"paragraphs": [{**paragraph, "qas": [question]}]} for question in questions]
    return Examples(examples.x[:limit], examples.y[:limit], kept)


def new_model(kind: str, folder: str | Path, labels: list | None = None, max_length: int | None = None, **options):
    """Creates a task model from a pretrained backbone, with a newly initialised head.

    For a sequence-to-sequence model, `max_length` sets the maximum length of the tokenizer, which truncates sources.
    """
    if max_length is not None and kind != "sequences":
        options["max_length"] = max_length
    if kind in ("classes", "labels", "score"):
        cls, options = TextClassifier, {**options, "problem": kind, **({"labels": labels} if labels else {})}
    elif kind == "tags":
        cls, options = TokenClassifier, {**options, "labels": labels}
    else:
        cls = {"questions": QuestionAnswerer, "choices": MultipleChoice, "sequences": Seq2SeqLM}[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*newly initialised, train before use")
        model = cls.from_preset(folder, **options)
    if kind == "sequences":
        limit = model.backbone.position_limit
        if max_length and limit and max_length > limit:
            raise ValueError(
                f"`max_length` must be at most the {limit} positions of the model. Received: {max_length}."
            )
        limits = (model.require_tokenizer().max_length, getattr(model.backbone.config, "max_length", None), 512)
        model.tokenizer.max_length = max_length or min(filter(None, limits))
    return model


def encoded_targets(model, kind: str, examples: Examples) -> np.ndarray | list:
    """Converts the targets to the form that the model's `fit` accepts."""
    if kind != "score":
        return examples.y if kind in ("questions", "choices", "sequences") else model.encode_labels(examples.y)
    try:
        return model.encode_labels([float(label) for label in examples.y])
    except ValueError as error:
        raise ValueError(f"Scores must be numbers ({error}). For names use --task classes.") from None


def score(model, examples: Examples, batch_size: int = 32, **writing) -> tuple[dict[str, float], list]:
    """Evaluates a task model. Returns (scores, answers). `writing` are options of `generate`."""
    if isinstance(model, TextClassifier):
        targets = encoded_targets(model, model.problem, examples)
        return text_scores(model, examples, targets, batch_size)
    for cls, function in (
        (TokenClassifier, tag_scores),
        (QuestionAnswerer, question_scores),
        (MultipleChoice, choice_scores),
        (Seq2SeqLM, sequence_scores),
    ):
        if isinstance(model, cls):
            return function(model, examples, batch_size, **writing)
    raise ValueError(f"Scores on examples need a task model. Received: a {type(model).__name__}.")


def summary(runs: list[dict]) -> dict[str, float]:
    """Computes the mean and standard deviation of every score over the seeds."""
    names = [name for name in runs[0] if name != "seed"]
    means = {name: float(np.mean([run[name] for run in runs])) for name in names}
    deviations = {f"{name}_deviation": float(np.std([run[name] for run in runs])) for name in names}
    return means | (deviations if len(runs) > 1 else {})


main = Command(
    finetune,
    groups={
        "data": ("data", "held_out", "task", "format", "encoding", "limit"),
        "model": ("model", "output", "max_length", "text_to_text", "from_scratch", "dtype", "less_memory"),
        "training": ("epochs", "batch_size", "seeds", "validate_every", "patience", "keep_best", "balanced", "log"),
        "optimizer": ("learning_rate", "warmup_share", "weight_decay", "layer_decay", "accumulation"),
        "generation": ("max_new_tokens", "num_beams"),
    },
)

if __name__ == "__main__":
    main()
