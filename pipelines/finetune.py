"""Fine-tunes a pretrained model for a task, evaluates it, and saves it with its scores and predictions.

python -m pipelines.finetune bert_mini_en --data train.csv --held-out test.csv --output saved_models/mine
python -m pipelines.finetune saved_models/mine --task ner --data train.conll --held-out test.conll --output ...
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kerasbert.checkpoints.folder import read_saved
from kerasbert.data.text.files import digest_of
from kerasbert.data.text.locks import locked

from .command_line.command import Command
from .reading.examples import Examples
from .reading.label_names import check_labels, counted_labels, label_names
from .reading.labeled import GUESSED, Columns
from .reading.splits import count_repeated, named_sources, split_tenth
from .reading.tables import ColumnsRead, Reading
from .reading.task_examples import read_task
from .reading.tasks import TaskSpec, task_of
from .reading.text_columns import expanded, read_text_columns, read_texts_or_searches
from .runs.adapting import WHOLE_MODEL, Lora
from .runs.facts import data_facts, training_facts
from .runs.finetuning import FineTuning, TaskData, flat, summary
from .runs.losses import EMBEDDERS, KINDS, Objective, check_examples, updates_of
from .runs.model_card import public, write_card
from .runs.outputs import check_model_folder, check_outputs, counted, score_table, write_json
from .runs.reports import MOST_ROWS, few_enough, validation_rows
from .runs.task_options import Files, Generation, Optimizer, Start, Training
from .runs.text_scores import check_evaluable
from .runs.text_to_text import Wording
from .runs.trackers import Tracker
from .runs.trained_columns import named_columns

TITLES = {
    "classes": "a text classifier", "labels": "a text classifier", "score": "a text regression model",
    "tags": "a token classifier", "questions": "a question answerer", "choices": "a multiple-choice model",
    "sequences": "a sequence-to-sequence model", "embed": "a text embedder", "sparse": "a sparse embedder",
    "multivector": "a late-interaction embedder", "rerank": "a reranker",
}  # fmt: skip


def in_locked_folder(function: Callable) -> Callable:
    """Decorator that checks the folder `output`, and locks it for this process."""

    @functools.wraps(function)
    def locking(*arguments, **options):
        bound = inspect.signature(function).bind(*arguments, **options)
        bound.apply_defaults()
        check_model_folder(bound.arguments["output"])
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
    training: Training = Training(),
    optimizer: Optimizer = Optimizer(),
    start: Start = Start(),
    files: Files = Files(),
    columns: Columns = GUESSED,
    generation: Generation = Generation(),
    objective: Objective = Objective(),
    lora: Lora = WHOLE_MODEL,
    log: Tracker | None = None,
) -> dict:
    """Fine-tunes a model, and saves it with its scores.

    Args:
        model: folder of a pretrained model, a shipped model such as bert_mini_en, or hf://org/name.
        data: examples: CSV, TSV, JSON, JSONL, Parquet, or hf://name:configuration#split. Also CoNLL's columns, SQuAD's
            JSON, a folder of RACE's files, lines of `label text`, and two parallel files `train.de,train.en`; for
            embedders and rerankers, rows of texts, maybe with a label. Default: the data set of the task on the hub.
        output: folder for the fine-tuned model, metrics.json, predictions.jsonl, curves and a model card.
        held_out: examples to evaluate on. Several data sets, for example in different languages, are evaluated
            separately, and reported by name (en=test.en.tsv de=test.de.tsv) or by file name. During training, the loss
            and the scores on examples of the first data set (at most 1000) are reported. Embedders and rerankers are
            also evaluated on folders in BEIR format.
        task: classes, labels, score, ner, questions, choices, sequences, embed, sparse, multivector, rerank, or the
            name of a data set. The official files of a data set are supported: sst2, cola, mrpc, stsb, qqp, mnli, qnli,
            rte, wnli, trec, ag_news, squad, squad_v2, conll2003, wnut17, race, swag, summarization and others.
        columns: names of the columns that cannot be guessed: text, pair (second text, or context) and label.
        lora: train low-rank products instead of the whole model (LoRA): --lora.rank 8.
        log: also send the metrics to wandb, tensorboard or mlflow, if this package is installed.
    """
    spec = _checked_task(task, columns, objective, start)
    if data is None:
        data, hub_held_out = spec.sources()
        held_out = held_out or (hub_held_out,)
    sources = named_sources(held_out)
    answer_files = {name: output / f"predictions{name and '_'}{name}.jsonl" for name in sources}
    check_outputs({f"--output {output}": file for file in answer_files.values()}, {"--data": data, **sources})
    lora.check_folder(output)
    if spec.kind in KINDS:
        found = read_texts(spec, model, data, sources, files, objective, training)
    else:
        found = read_data(spec, task, data, sources, files, start.text_to_text, training)
    tuning = FineTuning(model, output, task, found, start, training, optimizer, generation, lora)
    runs, kept, recipe, facts = [], (), {}, {}
    for seed in training.seeds:
        trained, scores = tuning.run(seed, log)
        measured, answers = tuning.measure(trained)
        runs.append({**scores, **flat(measured)})
        print(score_table(runs[-1]), flush=True)
        if seed == training.seeds[0]:
            tuning.save(trained, answers, answer_files)
            kept = tuning.describe(trained), tuning.measured(sources, measured, answers)
            recipe, facts = tuning.recipe(trained), training_facts(tuning, trained)
    _write_card(tuning, TITLES[spec.kind], "" if start.from_scratch else model, str(data), recipe | facts, runs, kept)
    return _finished(tuning, {"runs": runs, **summary(runs)}, recipe, answer_files)


def _checked_task(task: str, columns: Columns, objective: Objective, start: Start) -> TaskSpec:
    """Returns a task, or raises a ValueError for options that it does not read."""
    spec = task_of(task).with_columns(columns)
    objective.check_kind(spec.kind)
    if spec.kind in KINDS and start.text_to_text:
        raise ValueError(f"--text-to-text is for tasks with labels or answers. Received: --task {task}. Leave it out.")
    return spec


def _write_card(
    tuning: FineTuning, title: str, start: str, source: str, facts: dict, runs: list[dict], kept: tuple
) -> None:
    """Writes the card of the model of the first seed. Means over several seeds are part of its evaluation."""
    title = f"This is {title}" + (f", fine-tuned from `{public(start).removeprefix('hf://')}`" if start else "")
    scores = summary(runs)
    log = {name: scores.pop(name) for name in [*scores] if name.startswith(("train_loss", "epochs"))}
    write_card(
        tuning.output,
        title,
        data_facts(source, tuning.data),
        facts,
        {"seeds": len(runs), **scores} if len(runs) > 1 else {},
        *kept,
        log=log,
        start=start,
    )


def _finished(tuning: FineTuning, metrics: dict, recipe: dict, answer_files: dict[str, Path]) -> dict:
    """Writes metrics.json, with the columns of the data, and the save that these are the metrics of. Returns them."""
    output, columns = tuning.output, named_columns(tuning.data.columns)
    save = {"id": read_saved(output).get("save", {}).get("id")}
    save["files"] = {file.name: digest_of(file) for file in answer_files.values()}
    write_json(output / "metrics.json", {**metrics, "recipe": recipe, "columns": columns, "save": save})
    tuning.remove_checkpoints()
    print(f"saved {output}; curves of the training: kerasbert show curves {output}")
    return metrics


def read_data(
    spec: TaskSpec, task: str, data: str, sources: dict[str, str], files: Files, text_to_text: bool, options: Training
) -> TaskData:
    """Reads the examples of a fine-tuning, checks their labels, and chooses those to validate on.

    Args:
        spec, task: the task and its name.
        data: the training examples.
        sources: {name: held-out examples}.
        files: how files are read.
        text_to_text: whether the model generates labels and answers.
        options: see `finetune`.
    """
    reading = dict(encoding=files.encoding, format=files.format, limit=options.limit)
    columns: list[ColumnsRead] = []
    training = read_task(spec, data, training=True, say=columns.append, **reading)
    print(*columns, sep="\n", end="\n" * len(columns))
    testing = {name: read_task(spec, path, **reading) for name, path in sources.items()}
    labels = label_names(spec.kind, training, order=spec.labels, where=f" in {data}")
    if labels:
        for name, path in sources.items():
            check_labels(labels, testing[name], path)
    wording = Wording(task, spec, labels) if text_to_text else None
    first = next(iter(testing.values()), None)
    shown, validation = split_tenth(training) if options.chooses else (training, first)
    said = _said_examples(training, shown)
    print(said + (f", labels {counted_labels(labels, training)}" if labels else ""))
    rows = validation_rows(len(shown) * options.epochs, options.epochs, options.chooses)
    rows = MOST_ROWS if options.validate_every else rows
    repeated = count_repeated(training, testing)
    _say_repeated(repeated, testing, data, sources)
    if validation and (few := few_enough(validation, rows)) is not validation:
        print(f"validation during training on {len(few):,} of {len(validation):,} examples, evenly spaced")
        validation = few
    kind = "sequences" if wording else spec.kind
    more = dict(columns=next(iter(columns), None), repeated=repeated)
    return TaskData(kind, labels, shown, validation, testing, len(training), wording, **more)


def _say_repeated(repeated: dict[str, int], testing: dict[str, Examples], data: str, sources: dict[str, str]) -> None:
    """Prints how many held-out examples are trained on."""
    for name, count in repeated.items():
        if count:
            print(
                f"{count:,} of the {counted(len(testing[name]), 'example')} of {sources[name]} are also in {data}, so "
                "they do not show how well the model does on new ones"
            )


def _said_examples(examples: Examples, shown: Examples) -> str:
    """Says how many examples there are, and how many of them are not trained on."""
    others = len(examples) - len(shown)
    return counted(len(examples), "example") + (f", {others:,} of them only for validation" if others else "")


def read_texts(
    spec: TaskSpec,
    model: str,
    data: str,
    sources: dict[str, str],
    files: Files,
    objective: Objective,
    options: Training,
) -> TaskData:
    """Reads the examples of an embedder or a reranker, mines negatives, and checks that the examples fit the loss.

    Args:
        spec: the task.
        model: the model that is trained, which may find the negatives.
        data, sources: the training examples, and {name: held-out examples}.
        files, objective, options: see `finetune`.
    """
    reading = Reading(files.encoding, files.format)
    columns: list[ColumnsRead] = []
    saying = replace(reading, say=columns.append)
    training = read_text_columns(data, spec.columns, objective.text_columns, saying, options.limit)
    print(*columns, sep="\n")
    testing = {
        name: read_texts_or_searches(path, spec.columns, objective.text_columns, reading, options.limit)
        for name, path in sources.items()
    }
    repeated = count_repeated(training, testing)
    if spec.kind in EMBEDDERS:
        training = expanded(training, data)
    for name, path in sources.items():
        check_evaluable(testing[name], path)
    training = objective.mined(spec.kind, model, training, reading, options.batch_size)
    shown, validation = split_tenth(training) if options.chooses else (training, None)
    loss = objective.loss_for(spec.kind, training, updates_of(len(shown), options.batch_size, options.epochs))
    if spec.kind in EMBEDDERS:
        check_examples(loss, shown, options.batch_size, data)
    print(_said_examples(training, shown))
    _say_repeated(repeated, testing, data, sources)
    more = dict(columns=next(iter(columns), None), repeated=repeated)
    return TaskData(spec.kind, [], shown, validation, testing, len(training), objective=loss, **more)


main = Command(finetune, groups={"model": ("model", "output"), "data": ("data", "held_out", "task")}, first=("model",))

if __name__ == "__main__":
    main()
