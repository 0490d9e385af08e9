"""Writes the answers of a model to lines of text, or to files of examples, as JSON lines.

python -m pipelines.predict saved_models/quickstart "Return the [MASK] of the list."
echo '{"question": "Who sat?", "context": "The cat sat."}' | python -m pipelines.predict --model saved_models/answerer
python -m pipelines.predict --model saved_models/mine --input test.csv --output answers.jsonl
"""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from json import dumps
from pathlib import Path
from typing import Literal

from kerasbert.data.text.files import text_written_whole
from kerasbert.runtime import is_export

from .command_line.command import Command
from .reading.inputs import EmptyLines, Input, read_inputs
from .reading.labeled import GUESSED, Columns
from .reading.tasks import task_of
from .runs.answers import Answers, CountedAnswers, Options, exported_answers
from .runs.cutting import say_cut
from .runs.outputs import check_outputs, cleaning_up, counted
from .runs.task_options import Files, Generation
from .runs.trained_columns import columns_for
from .serve.exports import find_export


@cleaning_up()
def predict(
    model: str,
    input: str | None = None,
    output: Path | None = None,
    task: str | None = None,
    top: int = 5,
    batch_size: int = 32,
    null_threshold: float | None = None,
    prefix: str = "",
    files: Files = Files(),
    columns: Columns = GUESSED,
    generation: Generation = Generation(),
    engine: Literal["keras", "onnx"] = "keras",
    json: bool = False,
    texts: tuple[str, ...] = (),
) -> None:
    """Runs a model on texts or files: one answer for each row, or line that is not empty, in order.

    The answers are JSON lines, and tables in a terminal. They take constant memory.

    A line is a text. A tab separates the texts of a pair, a question from its context, or a context and its choices.
    Empty lines have no answer; their numbers are printed at the end. A line that begins with { is JSON: {"text"},
    {"text", "pair"}, {"words": [...]}, {"question", "context"} or {"context", "choices": [...]}. If it has an "id", the
    id is returned with the answer. All other file formats of `finetune` and `evaluate` are supported, with or without
    labels. If all lines begin with a label of the model (`label text`), the labels are dropped.

    Args:
        model: folder of a model, a shipped model such as bert_mini_en, or hf://org/name.
        input: file, folder of RACE's files, or hf://name:configuration#split. Default: lines of standard input.
        output: file for the answers, in UTF-8. It is replaced once all answers are written. Default: standard output.
        task: data set that the input belongs to, as in `finetune`, which determines how its files are read.
        top: number of candidates for each mask, or of answers to each question.
        batch_size: texts per step.
        null_threshold: null odds above which the answer to a question is empty (SQuAD 2.0). Default: the answer is
            never empty.
        prefix: text prepended to the inputs of a model that generates, such as "summarize: ".
        columns: names of the columns of a table: text, and pair of texts. Default: those that `finetune` read, or else
            guessed.
        engine: "onnx" computes with ONNX Runtime, which is the fastest on a CPU. The model is exported the first
            time, and the export is kept in the user's cache folder. A folder that already is an export in ONNX is
            always run by ONNX Runtime.
        json: print JSON lines in a terminal, too.
        texts: texts to run the model on, instead of a file or standard input.
    """
    _check_texts(texts, input)
    check_outputs({"--output": output}, {"--input": input})
    answers = answers_with(model, engine, Options(top, batch_size, null_threshold, prefix, generation))
    spec = task_of(task)
    spec = spec.with_columns(columns_for(model, columns, spec.columns))
    measured, empty = CountedAnswers(answers), EmptyLines()
    inputs = read_inputs(
        *(texts or input or sys.stdin, answers.form, spec.columns),
        *(files.encoding, files.format, spec.layouts, answers.labels, empty),
    )
    inputs = at_least_one(inputs, input or "standard input")
    if not texts and input is None and sys.stdin.isatty():
        print("Type one input per line. Ctrl-D ends the input.", file=sys.stderr)
    write(answers_of(inputs, measured.answer, answers.chunk), output, as_json=json)
    for sentence in (empty.sentence(), measured.sentence()):
        say_cut(sentence)


def answers_with(model: str, engine: str, options: Options) -> Answers:
    """Opens a model. Exports are answered without importing Keras, which takes seconds, where that is possible."""
    folder = find_export(model) if engine == "onnx" else Path(model)
    if is_export(folder):
        return exported_answers(folder, options)
    from .runs.model_answers import model_answers

    return model_answers(folder if engine == "onnx" else model, options)


def write(answers: Iterable[dict], output: Path | None, as_json: bool) -> None:
    """Writes answers as JSON lines to a file or to standard output, or prints tables if that is a terminal."""
    if output is None and not as_json and sys.stdout.isatty():
        from .show.answers import print_answer

        for answer in answers:
            print_answer(answer)
        return
    if hasattr(sys.stdout, "reconfigure"):  # the encoding of the terminal may differ from that of the text
        sys.stdout.reconfigure(encoding="utf-8")
    with text_written_whole(output) if output else contextlib.nullcontext(sys.stdout) as file:
        for answer in answers:
            file.write(dumps(answer, ensure_ascii=False) + "\n")
            file.flush()
    if output:
        print(f"wrote {output}")


def _check_texts(texts: tuple[str, ...], input: str | None) -> None:
    """Raises an error for texts beside a file, for an empty text, and for one that is the name of a file."""
    if texts and input is not None:
        raise ValueError(f"Inputs are texts, or a file. Received: {counted(len(texts), 'text')} and --input {input}.")
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise ValueError(f"Texts must not be empty. Received: {text!r}, as text {number}. Leave it out.")
        if len(text) < 256 and Path(text).is_file():
            raise ValueError(f"Texts must not be names of files. Received: {text!r}. Use --input {text}.")


def at_least_one(inputs: Iterable[Input], source: str) -> Iterator[Input]:
    """Yields the inputs of a source.

    Raises:
        ValueError: at the end, if there was none.
    """
    item = None
    for item in inputs:
        yield item
    if item is None:
        raise ValueError(f"There must be a line or a row to answer. Received: {source} without any.")


def answers_of(inputs: Iterable[Input], answer: Callable[[list], list[dict]], size: int) -> Iterator[dict]:
    """Yields the answer to every input, in order. Inputs are read in chunks of `size`.

    Raises:
        ValueError: if the model does not accept an input. The message names its place.
    """
    inputs = iter(inputs)
    while chunk := list(itertools.islice(inputs, size)):
        try:
            found = answer([item.x for item in chunk])
        except ValueError:
            for item in chunk:
                try:
                    answer([item.x])
                except ValueError as error:
                    raise ValueError(f"{item.where}: {error}") from None
            raise
        for item, one in zip(chunk, found, strict=True):
            yield {**({} if item.id is None else {"id": item.id}), "input": item.x, **one}


main = Command(
    predict,
    groups={
        "model": ("model", "batch_size", "engine"),
        "data": ("texts", "input", "output", "task"),
        "answers": ("top", "null_threshold", "json"),
        "generation": ("prefix",),
    },
    first=("model", "texts"),
)

if __name__ == "__main__":
    main()
