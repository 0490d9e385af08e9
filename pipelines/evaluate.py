"""Evaluates a saved model: a task model on examples, a language model on a corpus or on a suite of tasks.

python -m pipelines.evaluate --model saved_models/mine --data test.csv
python -m pipelines.evaluate --model saved_models/quickstart --corpus corpora/held_out
python -m pipelines.evaluate --model saved_models/quickstart --suite small --data datasets --output results
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import kerasbert
from kerasbert.checkpoints.folders import find_folder
from kerasbert.data import Batches, CausalLMBatches, Corpus, MaskedLMBatches
from kerasbert.metrics import minimal_pairs
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier

from .command_line.command import Command
from .finetune import check_labels, label_names, read, score
from .pretrain import open_corpora
from .reading.examples import Examples
from .reading.label_names import typed
from .reading.labelled import GUESSED, Columns
from .reading.splits import named_sources
from .reading.tables import Format, Reading, read_rows
from .reading.tasks import TASKS, TaskSpec, task_of
from .recipes.recipe import Evaluation, Recipe, read_recipe
from .runs.building import evaluation_batches
from .runs.outputs import check_outputs, write_results
from .runs.scores import language_model_scores
from .runs.text_to_text import Wording
from .suite import SuiteOptions, run_suite

# {class: kind of examples that it is evaluated on}. For a TextClassifier, the kind is its `problem`.
KINDS = {TokenClassifier: "tags", QuestionAnswerer: "questions", MultipleChoice: "choices", Seq2SeqLM: "sequences"}


def evaluate(
    model: str,
    data: tuple[str, ...] = (),
    corpus: tuple[str, ...] = (),
    output: Path | None = None,
    batch_size: int | None = None,
    length: int | None = None,
    steps: int | None = None,
    task: str | None = None,
    format: Format = "auto",
    encoding: str = "utf-8",
    columns: Columns = GUESSED,
    answers: Path | None = None,
    max_new_tokens: int = 64,
    num_beams: int = 1,
    suite: Literal["small"] | None = None,
    text: tuple[Path, ...] = (),
    reference: str | None = None,
    seeds: tuple[int, ...] = SuiteOptions.seeds,
    examples: int = SuiteOptions.examples,
    learning_rate: float = SuiteOptions.learning_rate,
    reference_learning_rate: float | None = None,
    epochs: int = SuiteOptions.epochs,
    dtype: str | None = None,
    parts: tuple[str, ...] = (),
) -> dict:
    """Evaluates a saved model, and prints the scores as JSON, or as a table for a suite.

    Args:
        model: folder of a model, or hf://org/name.
        data: examples for a task model, in the formats of `finetune`; several data sets can be named as there. For a
            language model, minimal pairs: rows with `sentence_good` and `sentence_bad`.
        corpus: folder that `prepare_corpus` wrote, for a language model. Several corpora can be named as in `pretrain`.
            If the model has a recipe of `pretrain`, rows, masks and length are the same as in the validation of its
            run.
        output: file for the scores, or folder for the results of a suite.
        batch_size: texts, or rows of a corpus, per step. Default: the value in the recipe, or 32.
        length: tokens in a row of the corpus. Default: the value in the recipe, or 128.
        steps: maximum number of batches of the corpus. Default: as many as in the validation of the run, or all.
        task: name of the data set that the data belongs to, as in `finetune`, which determines how its files are read.
            For a model that generates text, the task that it was trained for, which determines the prefix, such as
            `summarize: `, and the format of `finetune --text-to-text`.
        format: format of the data. Default: by file extension and, for .txt, by content.
        encoding: encoding of the data.
        columns: names of the columns that cannot be guessed.
        answers: file for the answers, one line per example; for several data sets, one file each with its name added.
        max_new_tokens: maximum length of generated answers, in tokens.
        num_beams: number of beams for generating answers.
        suite: evaluate a pretrained encoder or causal language model on a suite of small tasks; see `pipelines.suite`.
            `data` is then the folder of the data sets (without it, only minimal pairs are measured), and `output` a
            folder for the results. Results that it already contains are not measured again. The following options are
            only for suites.
        text: text files, or folders of them, that the model was trained on. If given, minimal pairs consist of words
            that are frequent in this text, and the scores of an n-gram model are reported, too.
        reference: folder of another model to compare with.
        seeds: seeds for fine-tuning on each task. Significance tests compare models that were trained with the same
            seed.
        examples: maximum number of examples to train on.
        learning_rate: peak learning rate.
        reference_learning_rate: peak learning rate for the reference. Default: `learning_rate`.
        epochs: passes over the training examples.
        dtype: dtype policy of the models that are fine-tuned, such as mixed_bfloat16.
        parts: parts of the suite: minimal_pairs, cloze, vectors, wnut17, squad, qnli, stsb, summaries, reviews.
            Default: all.
    """
    if suite is not None:
        folders = [data] if isinstance(data, (str, Path)) else list(data)
        if len(folders) > 1 or corpus or task or answers:
            raise ValueError(
                "`suite` needs one folder of data sets, and cannot be combined with `corpus`, `task` or `answers`. "
                "Received: "
                f"data={data}, corpus={corpus}, task={task}, answers={answers}."
            )
        settings = dict(learning_rate=learning_rate, reference_learning_rate=reference_learning_rate)
        settings |= dict(epochs=epochs, dtype=dtype, parts=tuple(parts))
        options = SuiteOptions(reference, tuple(seeds), examples, **settings)
        return run_suite(model, output, Path(folders[0]) if folders else None, tuple(text), options)
    sources = named_sources(data)
    answer_files = {
        name: answers and (answers.with_stem(f"{answers.stem}_{name}") if name else answers) for name in sources
    }
    outputs = {"--output": output, **{f"--answers {name}".strip(): file for name, file in answer_files.items()}}
    check_outputs(outputs, {f"--data {name}".strip(): path for name, path in sources.items()})
    corpora = [str(corpus)] if isinstance(corpus, (str, Path)) else [str(folder) for folder in corpus]
    spec = task_of(task)
    recipe = _recipe_of(model) if corpora else None
    loaded = kerasbert.load(model, **(recipe.evaluation.config if recipe else {}))
    kind = loaded.problem if isinstance(loaded, TextClassifier) else KINDS.get(type(loaded))
    if task is not None and kind not in (spec.kind, "sequences"):
        raise ValueError(
            f"`task` must match the model. Received: {task!r}, of kind {spec.kind}, for a "
            f"{type(loaded).__name__}{f' of kind {kind}' if kind else ''}."
        )
    scores, answered = {}, {}
    if kind is not None and sources:
        for name, path in sources.items():
            writing = dict(max_new_tokens=max_new_tokens, num_beams=num_beams) if kind == "sequences" else {}
            files = dict(encoding=encoding, format=format)
            found, given, examples = score_task(loaded, kind, path, task, batch_size or 32, columns, files, **writing)
            scores |= {f"{name}_{key}" if name else key: value for key, value in found.items()}
            if answers:
                answered[answer_files[name]] = examples, given
    elif isinstance(loaded, MaskedLM | CausalLM) and sources:
        for name, path in sources.items():
            reading = Reading(encoding, format)
            found = score_pairs(loaded, path, batch_size or 32, reading, columns or GUESSED)
            scores |= {f"{name}_{key}" if name else key: value for key, value in found.items()}
    elif kind is None and corpora:
        scores = score_language_model(loaded, model, corpora, batch_size, length, steps)
    else:
        raise ValueError(
            "A task model is evaluated on --data, a language model on --corpus, and a MaskedLM or a CausalLM on "
            f"--data, too. Received: a {type(loaded).__name__} with data={data}, corpus={corpus}."
        )
    print(json.dumps(scores))
    write_results(output, scores, answered)
    return scores


def score_task(
    model, kind: str, path: str, task: str | None, batch_size: int, columns: Columns | None, files: dict, **writing
) -> tuple[dict, list, Examples]:
    """Evaluates a task model, or a text-to-text model on `task`. Returns (scores, answers, examples).

    Args:
        files: encoding and format of the files.
        writing: options of `generate`, for a model that generates text.
    """
    spec = (TaskSpec(kind) if task is None else TASKS[task]).with_columns(columns)
    examples = read(spec, path, **files)
    if spec.kind == kind:
        if kind in ("classes", "labels", "tags"):
            examples = _unnamed(examples, model.labels) if kind == "classes" else examples
            check_labels(list(map(str, model.labels)), examples, path)
            examples = replace(examples, y=typed(examples.y, model.labels)) if kind != "tags" else examples
        return *score(model, examples, batch_size, **writing), examples
    labels = list(spec.labels)
    if not labels or not set(examples.y) <= set(labels):
        labels = label_names(spec.kind, examples, where=f" in {path}")
    return *Wording(task, spec, labels).score(model, examples, batch_size, **writing), examples


def _unnamed(examples: Examples, labels: list[str]) -> Examples:
    """Renames numeric labels for a model whose labels are named LABEL_0, LABEL_1, ...: "1" -> "LABEL_1"."""
    numbers = [str(number) for number in range(len(labels))]
    if labels != [f"LABEL_{number}" for number in numbers] or not set(examples.y) <= set(numbers):
        return examples
    return replace(examples, y=[f"LABEL_{number}" for number in examples.y])


def score_pairs(
    model: MaskedLM | CausalLM, path: str, batch_size: int, reading: Reading, columns: Columns
) -> dict[str, float]:
    """Accuracy on minimal pairs (as in BLiMP): how often a language model prefers the acceptable sentence."""
    rows = list(read_rows(path, replace(reading, header=not columns.are_numbers)))
    if not rows:
        raise ValueError(f"{path} has no rows.")
    names = (columns.text or "sentence_good", columns.pair or "sentence_bad")
    for number, row in enumerate(rows, start=1):
        missing = [name for name in names if not isinstance(row.get(name), str) or not row[name]]
        if missing:
            raise ValueError(
                f"A minimal pair must have two sentences. Received: {path} row {number} without {missing[0]!r}. It "
                f"has: {', '.join(map(str, row))}. Name the columns with --columns.text and --columns.pair."
            )
    good, bad = (model.score([row[name] for row in rows], batch_size=batch_size) for name in names)
    return {"accuracy": minimal_pairs(good, bad), "pairs": len(rows)}


def score_language_model(
    model,
    folder: str,
    corpora: Sequence[str],
    batch_size: int | None = None,
    length: int | None = None,
    steps: int | None = None,
) -> dict[str, float]:
    """Computes loss and metrics of a language model on a corpus, as in the validation of its run.

    For a model with a perplexity, the loss is in nats per predicted token. The unigram entropy of the corpus is
    reported, too. It is the lowest loss of any model that uses only token frequencies. It does not include end tokens
    of documents, which a causal model also predicts, or special tokens, which a masked model never predicts.

    Args:
        model: the language model.
        folder: folder of the model. Its recipe is in this folder or in the parent folder. Without a recipe, only a
            MaskedLM or a CausalLM can be evaluated, and only on one whole corpus.
        corpora: folders, or name=folder.
        batch_size, length, steps: override the values in the recipe.
    """
    texts = open_corpora(corpora, model.require_tokenizer())
    batches = _batches_of_recipe(folder, texts, batch_size, length, steps)
    if batches is None:
        length = length or min(128, getattr(model.backbone.config, "max_length", None) or 128)
        batches = _batches_without_recipe(model, folder, texts, batch_size or 32, length, steps)
    model.compile("sgd")
    if "stream_start" in batches[0][0]:
        model.start_memory(len(batches[0][0]["stream_start"]), False)
    found = model.evaluate(batches, verbose=0, return_dict=True)
    if "perplexity" not in found or len(texts) > 1:
        return found
    (text,) = texts.values()
    return {**found, **language_model_scores(math.log(found["perplexity"]), text.unigram_entropy())}


def _batches_of_recipe(
    folder: str, texts: dict[str, Corpus], batch_size: int | None, length: int | None, steps: int | None
) -> Batches | None:
    """Recreates the validation batches of the run that trained a model. Returns None if there is no recipe."""
    recipe = _recipe_of(folder)
    if recipe is None:
        return None
    changes = recipe.evaluation | Evaluation(batch_size, length)
    most = steps or json.loads(_recipe_path(folder).read_text(encoding="utf-8")).get("held_out_steps", 100)
    return evaluation_batches(recipe, texts, most, changes)


def _recipe_path(folder: str) -> Path | None:
    """The recipe.json in or next to the folder of a model."""
    found = find_folder(folder)
    return next((path for path in (found / "recipe.json", found.parent / "recipe.json") if path.is_file()), None)


def _recipe_of(folder: str) -> Recipe | None:
    path = _recipe_path(folder)
    return None if path is None else read_recipe(path)


def _batches_without_recipe(
    model, folder: str, texts: dict[str, Corpus], batch_size: int, length: int, steps: int | None
) -> Batches:
    if not isinstance(model, MaskedLM | CausalLM) or len(texts) > 1:
        generator = Path(folder) / "generator"
        raise ValueError(
            "Without recipe.json in or next to its folder, only a MaskedLM or a CausalLM can be evaluated, on one "
            f"corpus. Received: a {type(model).__name__}, {len(texts)} corpora. Use the folder that pretrain wrote"
            + (f", or {generator}, which is a MaskedLM." if generator.is_dir() else ".")
        )
    (text,) = texts.values()
    if isinstance(model, MaskedLM):
        batches = MaskedLMBatches(text, batch_size, length, rows=model.rows)
        return batches if steps is None else MaskedLMBatches(text, batch_size, length, rows=model.rows, steps=steps)
    batches = CausalLMBatches(text, batch_size, length)
    return batches if steps is None else CausalLMBatches(text, batch_size, length, steps=steps)


main = Command(
    evaluate,
    groups={
        "model": ("model", "batch_size"),
        "data": ("data", "task", "format", "encoding"),
        "corpus": ("corpus", "length", "steps"),
        "results": ("output", "answers"),
        "generation": ("max_new_tokens", "num_beams"),
        "suite": ("suite", "text", "reference", "seeds", "examples", "learning_rate", "reference_learning_rate")
        + ("epochs", "dtype", "parts"),
    },
)

if __name__ == "__main__":
    main()
