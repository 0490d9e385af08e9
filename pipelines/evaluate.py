"""Evaluates a saved model: a task model on examples, a language model on a corpus or on minimal pairs.

python -m pipelines.evaluate saved_models/mine --data test.csv
python -m pipelines.evaluate saved_models/quickstart --corpus corpora/held_out
python -m pipelines.evaluate saved_models/gpt2_mini_en --task minimal-pairs --data blimp/data
python -m pipelines.evaluate saved_models/reranker --task retrieval --data scifact --first-stage bm25
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import kerasbert
from kerasbert.checkpoints.folder import find_folder
from kerasbert.data import Batches, CausalLMBatches, Corpus, MaskedLMBatches
from kerasbert.models import Backbone
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier

from .command_line.command import Command
from .pretrain import open_corpora
from .reading.examples import Examples
from .reading.label_names import check_labels, label_names, typed
from .reading.labeled import GUESSED, Columns
from .reading.minimal_pairs import read_minimal_pairs
from .reading.splits import named_sources
from .reading.tables import Reading
from .reading.task_examples import read_task
from .reading.tasks import TASKS, TaskSpec, task_of
from .reading.text_columns import read_texts_or_searches
from .recipes.recipe import Evaluation, Recipe, read_recipe
from .runs.building import evaluation_batches
from .runs.cutting import say_cut
from .runs.finetuning import flat
from .runs.losses import KINDS as KINDS_OF_TEXTS
from .runs.losses import kind_of_texts
from .runs.outputs import check_outputs, score_table, write_results
from .runs.scores import language_model_scores, pair_scores
from .runs.searching import RETRIEVAL, Stages, score_searches
from .runs.task_models import cut_texts, score
from .runs.task_options import Files, Generation
from .runs.text_to_text import Wording
from .runs.trained_columns import columns_for

# {class: kind of examples that it is evaluated on}. For a TextClassifier, the kind is its `problem`.
KINDS = {TokenClassifier: "tags", QuestionAnswerer: "questions", MultipleChoice: "choices", Seq2SeqLM: "sequences"}
MINIMAL_PAIRS = "minimal-pairs"  # the task of a language model


def evaluate(
    model: str,
    data: tuple[str, ...] = (),
    corpus: tuple[str, ...] = (),
    output: Path | None = None,
    answers: Path | None = None,
    batch_size: int | None = None,
    length: int | None = None,
    steps: int | None = None,
    task: str | None = None,
    files: Files = Files(),
    columns: Columns = GUESSED,
    generation: Generation = Generation(),
    stages: Stages = Stages(),
    json: bool = False,
) -> dict:
    """Evaluates a saved model, and prints the scores.

    Args:
        model: folder of a model, a shipped one such as bert_mini_en, or hf://org/name; for --task retrieval also bm25.
        data: examples for a task model, in the formats of `finetune`; several data sets can be named as there. For
            --task retrieval, folders in BEIR format. For a language model, minimal pairs: the files of BLiMP
            (rows of `sentence_good` and `sentence_bad`) or of Zorro (an unacceptable and an acceptable line in turns),
            one of them or their folder.
        corpus: folder that `prepare-corpus` wrote, for a language model. Several corpora can be named as in `pretrain`.
            If the model has a recipe of `pretrain`, rows, masks and length are those of the validation of its run.
        output: file for the scores.
        answers: file for the answers, one line per example; for several data sets, one file each with its name added.
        batch_size: texts, or rows of a corpus, per step. Default: the value in the recipe, or 32.
        length: tokens in a row of the corpus. Default: the value in the recipe, or 128.
        steps: maximum number of batches of the corpus. Default: those in the validation of the run, or all.
        task: name of the data set that the data belongs to, as in `finetune`, which determines how its files are read;
            retrieval or minimal-pairs; or for a model that generates text, the task that it was trained for, whose
            prefix, such as `summarize: `, and format (`finetune --text-to-text`) it needs.
        columns: names of the columns of a table. Default: those that `finetune` read, or else guessed.
        json: print the scores as JSON, in full precision, instead of a table.
    """
    sources = named_sources(data)
    answer_files = _answer_files(output, answers, sources, corpus)
    if task == RETRIEVAL:
        return _written(*score_searches(model, sources, stages, batch_size or 32), output, answer_files, json)
    wanted = _wanted_kind(task, stages)
    recipe = _recipe_of(model) if corpus else None
    loaded = kerasbert.load(model, **(recipe.evaluation.config if recipe else {}))
    kind = _checked_kind(loaded, task, wanted)
    if sources and (kind is not None or isinstance(loaded, MaskedLM | CausalLM)):
        if task != MINIMAL_PAIRS:
            columns = columns_for(model, columns, task_of(task).columns)
        found = [
            _scored(loaded, kind, path, task, batch_size or 32, columns, files, generation) for path in sources.values()
        ]
        scores = flat({name: scores for name, (scores, _) in zip(sources, found, strict=True)})
    elif kind is None and corpus:
        scores, found = score_language_model(loaded, model, corpus, batch_size, length, steps), []
    else:
        raise ValueError(
            "A task model needs --data FILE. A language model needs --corpus FOLDER for its loss, or --task "
            f"{MINIMAL_PAIRS} --data FOLDER. Received: a {type(loaded).__name__} with {_given(data, corpus)}."
        )
    return _written(scores, [given for _, given in found], output, answer_files, json)


def _given(data: Sequence[str], corpus: Sequence[str]) -> str:
    """Names the options that say what a model is evaluated on."""
    given = [f"{name} {' '.join(values)}" for name, values in (("--data", data), ("--corpus", corpus)) if values]
    return " and ".join(given) or "neither"


def _answer_files(
    output: Path | None, answers: Path | None, sources: dict[str, str], corpora: Sequence[str]
) -> dict[str, Path | None]:
    """Returns {name of a data set: file for its answers}, after a check that no file is read and written."""
    if answers is not None and corpora and not sources:
        raise ValueError("--answers needs examples. Received: --answers with --corpus. Leave it out.")
    files = {name: answers and (answers.with_stem(f"{answers.stem}_{name}") if name else answers) for name in sources}
    outputs = {"--output": output, **{f"--answers {name}".strip(): file for name, file in files.items()}}
    check_outputs(outputs, {f"--data {name}".strip(): path for name, path in sources.items()})
    return files


def _written(scores: dict, found: Sequence, output: Path | None, files: dict[str, Path | None], as_json: bool) -> dict:
    """Prints scores, and writes them with the answers of each data set, (examples, answers) or None. Returns them."""
    print(json.dumps(scores) if as_json else score_table(scores))
    written = zip(files.values(), found, strict=False)
    write_results(output, scores, {file: given for file, given in written if file and given})
    return scores


def _wanted_kind(task: str | None, stages: Stages) -> str | None:
    """Returns the kind of examples of a task without stages, None if there is none.

    Raises:
        ValueError: if stages are given.
    """
    if stages.given:
        raise ValueError(
            "--first-stage, --top-k and --split are for searches of folders in BEIR format. Received: "
            f"{', '.join(stages.given)} without --task {RETRIEVAL}. Add --task {RETRIEVAL}."
        )
    return None if task in (None, MINIMAL_PAIRS) else task_of(task).kind


def _checked_kind(model, task: str | None, wanted: str | None) -> str | None:
    """Returns the kind of examples that a model is evaluated on, None for a language model.

    Raises:
        ValueError: if the task, whose examples have the kind `wanted`, is not one for the model.
    """
    kind = model.problem if isinstance(model, TextClassifier) else KINDS.get(type(model), kind_of_texts(model))
    fits = isinstance(model, MaskedLM | CausalLM) if task == MINIMAL_PAIRS else kind in (wanted, "sequences")
    if task is not None and not fits:
        raise ValueError(
            f"`task` must match the model. Received: {task!r}{f', of kind {wanted},' if wanted else ''} for a "
            f"{type(model).__name__}{f' of kind {kind}' if kind else ''}."
        )
    return kind


def _scored(
    model,
    kind: str | None,
    path: str,
    task: str | None,
    batch_size: int,
    columns: Columns,
    files: Files,
    generation: Generation,
) -> tuple[dict, tuple[Examples, list]]:
    """Evaluates a task model on examples, or a language model on minimal pairs.

    Returns: the scores, and the examples with the answers to them.
    """
    if kind is None:
        pairs = read_minimal_pairs(path, Reading(files.encoding, files.format), columns or GUESSED)
        scores, examples, answers = pair_scores(model, pairs, batch_size)
        return scores, (examples, answers)
    if kind in KINDS_OF_TEXTS:
        examples = read_texts_or_searches(path, columns, (), Reading(files.encoding, files.format), None)
        scores, answers = score(model, examples, batch_size)
        say_cut(cut_texts(model, kind, examples))
        return scores, (examples, answers)
    writing = asdict(generation) if kind == "sequences" else {}
    scores, answers, examples = score_task(model, kind, path, task, batch_size, columns, asdict(files), **writing)
    return scores, (examples, answers)


def score_task(
    model, kind: str, path: str, task: str | None, batch_size: int, columns: Columns | None, files: dict, **writing
) -> tuple[dict, list, Examples]:
    """Evaluates a task model, or a text-to-text model on `task`. Returns (scores, answers, examples).

    Args:
        files: encoding and format of the files.
        writing: options of `generate`, for a model that generates text.
    """
    spec = (TaskSpec(kind) if task is None else TASKS[task]).with_columns(columns)
    examples = read_task(spec, path, **files)
    if spec.kind == kind:
        if kind in ("classes", "labels", "tags"):
            examples = _unnamed(examples, model.labels) if kind == "classes" else examples
            check_labels(list(map(str, model.labels)), examples, path)
            examples = replace(examples, y=typed(examples.y, model.labels)) if kind != "tags" else examples
        say_cut(cut_texts(model, kind, examples))
        return *score(model, examples, batch_size, **writing), examples
    labels = list(spec.labels)
    if not labels or not set(examples.y) <= set(labels):
        labels = label_names(spec.kind, examples, where=f" in {path}")
    wording = Wording(task, spec, labels)
    say_cut(cut_texts(model, kind, examples, wording))
    return *wording.score(model, examples, batch_size, **writing), examples


def _unnamed(examples: Examples, labels: list[str]) -> Examples:
    """Renames numeric labels for a model whose labels are named LABEL_0, LABEL_1, ...: "1" -> "LABEL_1"."""
    numbers = [str(number) for number in range(len(labels))]
    if labels != [f"LABEL_{number}" for number in numbers] or not set(examples.y) <= set(numbers):
        return examples
    return replace(examples, y=[f"LABEL_{number}" for number in examples.y])


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
    if isinstance(model, Backbone):
        raise ValueError(
            f"The loss of a language model needs a head. Received: a {type(model).__name__} without one. Load it as a "
            "MaskedLM or a CausalLM, or fine-tune it and use --data."
        )
    if model.TRAINING_ONLY:
        raise ValueError(
            f"The losses of {type(model).__name__} need layers that only training has, and that a folder does not "
            f"contain: {', '.join(model.TRAINING_ONLY)}. `kerasbert pretrain --held-out` reports them in the log of a "
            "run. Fine-tune the model as an embedder, and evaluate that."
        )
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
        "data": ("data", "task"),
        "corpus": ("corpus", "length", "steps"),
        "results": ("output", "answers", "json"),
    },
    first=("model",),
)

if __name__ == "__main__":
    main()
