"""Measures a saved model: that of a task on examples, a language model on a corpus.

python -m pipelines.evaluate --model saved_models/mine --data test.csv
python -m pipelines.evaluate --model saved_models/quickstart --corpus corpora/held_out
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import kerasbert
from kerasbert.data import CausalLMBatches, Corpus, MaskedLMBatches
from kerasbert.metrics import minimal_pairs
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier

from .command import command
from .examples import Examples
from .finetune import check_labels, label_names, read, score, write_answers
from .labelled import GUESSED, Columns
from .scores import language_model_scores
from .splits import named_sources
from .tables import read_rows
from .tasks import TASKS, TaskSpec
from .text_to_text import Wording

# Class -> kind of examples that it is measured on; a TextClassifier's is its problem.
KINDS = {TokenClassifier: "tags", QuestionAnswerer: "questions", MultipleChoice: "choices", Seq2SeqLM: "sequences"}


def evaluate(
    model: str,
    data: tuple[str, ...] = (),
    corpus: Path | None = None,
    output: Path | None = None,
    batch_size: int = 32,
    length: int = 128,
    task: str | None = None,
    encoding: str = "utf-8",
    columns: Columns = GUESSED,
    answers: Path | None = None,
    max_new_tokens: int = 64,
    num_beams: int = 1,
) -> dict:
    """Measures a saved model and prints the scores as JSON.

    Args:
        model: folder of a model, or hf://org/name.
        data: examples, for the model of a task; in the forms of `finetune`, and several by their names as there. For a
            language model, minimal pairs: rows with `sentence_good` and `sentence_bad`.
        corpus: folder of `prepare_corpus`, for a masked language model.
        output: file for the scores.
        batch_size: texts or rows a step.
        length: tokens of a row of the corpus.
        task: the task that a model which writes was trained for: its prefix, such as `summarize: `, and the form of
            `finetune --text-to-text`.
        encoding: of the data.
        columns: names of the columns of the data, where they cannot be guessed.
        answers: file for the answers, a line an example; of several data sets, one each with their names.
        max_new_tokens: of an answer that is written.
        num_beams: of an answer that is written.
    """
    loaded = kerasbert.load(model)
    kind = loaded.problem if isinstance(loaded, TextClassifier) else KINDS.get(type(loaded))
    if task is not None and (kind != "sequences" or task not in TASKS):
        raise ValueError(
            f"`task` is for text-to-text models, and must be one of {', '.join(TASKS)}. Received: {task!r} for a "
            f"{type(loaded).__name__}."
        )
    sources = named_sources(data)
    if kind is not None and sources:
        scores = {}
        for name, path in sources.items():
            writing = dict(max_new_tokens=max_new_tokens, num_beams=num_beams) if kind == "sequences" else {}
            found, given, examples = score_task(loaded, kind, path, task, batch_size, encoding, columns, **writing)
            scores |= {f"{name}_{key}" if name else key: value for key, value in found.items()}
            if answers:
                write_answers(answers.with_stem(f"{answers.stem}_{name}") if name else answers, examples, given)
    elif isinstance(loaded, MaskedLM | CausalLM) and sources:
        scores = {}
        for name, path in sources.items():
            found = score_pairs(loaded, path, batch_size, encoding, columns or GUESSED)
            scores |= {f"{name}_{key}" if name else key: value for key, value in found.items()}
    elif isinstance(loaded, MaskedLM | CausalLM) and corpus is not None:
        scores = score_language_model(loaded, Corpus.open(corpus, loaded.require_tokenizer()), batch_size, length)
    else:
        raise ValueError(
            "The model of a task is measured on --data, a MaskedLM or a CausalLM on --corpus or --data. Received: a "
            f"{type(loaded).__name__} with data={data}, corpus={corpus}."
        )
    print(json.dumps(scores))
    if output:
        output.write_text(json.dumps(scores, indent=2))
    return scores


def score_task(
    model, kind: str, path: str, task: str | None, batch_size: int, encoding: str, columns: Columns | None, **writing
) -> tuple[dict, list, Examples]:
    """(scores, answers, examples) of the model of a task, or of a text-to-text model of `task`.

    Args:
        writing: options of `generate`, for a model that writes.
    """
    spec = TaskSpec(kind, columns=columns or GUESSED) if task is None else TASKS[task]
    spec = spec if columns is None else replace(spec, columns=columns)
    examples = read(spec, path, encoding)
    if spec.kind == kind:
        if kind in ("classes", "labels", "tags"):
            examples = _unnamed(examples, model.labels) if kind == "classes" else examples
            check_labels(model.labels, examples, path)
        return *score(model, examples, batch_size, **writing), examples
    labels = list(spec.labels)
    if not labels or not set(examples.y) <= set(labels):
        labels = label_names(spec.kind, examples, where=f" in {path}")
    return *Wording(task, spec, labels).score(model, examples, batch_size, **writing), examples


def _unnamed(examples: Examples, labels: list[str]) -> Examples:
    """Examples whose labels are numbers, for a model whose labels have no names but LABEL_0, LABEL_1, ..."""
    numbers = [str(number) for number in range(len(labels))]
    if labels != [f"LABEL_{number}" for number in numbers] or not set(examples.y) <= set(numbers):
        return examples
    return replace(examples, y=[f"LABEL_{number}" for number in examples.y])


def score_pairs(
    model: MaskedLM | CausalLM, path: str, batch_size: int, encoding: str, columns: Columns
) -> dict[str, float]:
    """How often a language model finds the acceptable sentence of a minimal pair likelier (BLiMP's form)."""
    rows = read_rows(path, encoding, not columns.are_numbers)
    if not rows:
        raise ValueError(f"{path} has no rows.")
    names = (columns.text or "sentence_good", columns.pair or "sentence_bad")
    for number, row in enumerate(rows, start=1):
        missing = [name for name in names if not isinstance(row.get(name), str) or not row[name]]
        if missing:
            raise ValueError(
                f"A minimal pair has two sentences. Received: {path} row {number} without {missing[0]!r}. It has: "
                f"{', '.join(map(str, row))}. Name the columns by --columns.text and --columns.pair."
            )
    good, bad = (model.score([row[name] for row in rows], batch_size=batch_size) for name in names)
    return {"accuracy": minimal_pairs(good, bad), "pairs": len(rows)}


def score_language_model(model: MaskedLM | CausalLM, corpus: Corpus, batch_size: int, length: int) -> dict[str, float]:
    """Loss in nats a predicted token over one pass, beside the entropy of the token frequencies of this very corpus.

    No model that knows frequencies alone does better on it. Ends of documents, which a causal model predicts as well,
    are not among these tokens; nor are special tokens, which a masked one never does.
    """
    model.compile("sgd")
    if isinstance(model, MaskedLM):
        batches = MaskedLMBatches(corpus, batch_size, length, rows=model.rows)
    else:
        batches = CausalLMBatches(corpus, batch_size, length)
    found = model.evaluate(batches, verbose=0, return_dict=True)
    return {**found, **language_model_scores(math.log(found["perplexity"]), corpus.unigram_entropy())}


if __name__ == "__main__":
    command(evaluate)
