"""Answers for lines of text or files of examples, as JSON lines.

echo "Return the [MASK] of the list." | python -m pipelines.predict --model saved_models/quickstart
echo '{"question": "Who sat?", "context": "The cat sat."}' | python -m pipelines.predict --model saved_models/answerer
python -m pipelines.predict --model saved_models/mine --input test.csv --output answers.jsonl
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import kerasbert
from kerasbert.data.text.files import text_written_whole
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection, Seq2SeqLM
from kerasbert.objectives.next_token import NextToken
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

from .command import command
from .inputs import Input, read_inputs
from .labelled import GUESSED, Columns
from .outputs import check_outputs
from .tables import Format
from .tasks import task_of

# What each class takes; see `inputs.read_line`.
FORMS = {
    TokenClassifier: "words", QuestionAnswerer: "questions", MultipleChoice: "choices", TextClassifier: "pairs",
    MaskedLM: "pairs", Discriminator: "texts", TextEmbedder: "texts", Seq2SeqLM: "sources", NextToken: "texts",
}  # fmt: skip


def predict(
    model: str,
    input: str | None = None,
    output: Path | None = None,
    task: str | None = None,
    top: int = 5,
    batch_size: int = 32,
    max_new_tokens: int = 64,
    num_beams: int = 1,
    null_threshold: float | None = None,
    prefix: str = "",
    format: Format = "auto",
    encoding: str = "utf-8",
    columns: Columns = GUESSED,
) -> None:
    """Reads an input a line, or a row, and writes an answer a line; any number of them in constant memory, in order.

    A line is a text; for models that take pairs a tab separates the two, a question from its context, or a context and
    choices. Empty lines are left out. A line that begins with { is JSON: {"text"}, {"text", "pair"}, {"words": [...]},
    {"question", "context"} or {"context", "choices": [...]}; an "id" in it comes back with the answer. All other forms
    of files are read as by `finetune` and `evaluate`, and no labels; lines that all begin with a label of the model
    (`label text`) are read without it.

    Args:
        model: folder of a model, or hf://org/name.
        input: file, folder of RACE's files, or hf://name:configuration#split. Default: lines of standard input.
        output: file for the answers, in UTF-8. It is replaced when all of them are written. Default: standard output.
        task: data set that the input is of, as in `finetune`: how its files are read.
        top: candidates for each mask, or answers to a question.
        batch_size: texts a step.
        max_new_tokens: of generated text.
        num_beams: of generated text.
        null_threshold: odds of no answer above which a question has none (SQuAD 2.0). Default: it always has one.
        prefix: put in front of every text that a model continues or answers, such as "summarize: ".
        format: of the input. Default: by the ending of the file, and of .txt by what it holds.
        encoding: of the input.
        columns: names of the columns, where they cannot be guessed: text, and pair of texts.
    """
    check_outputs({"--output": output}, {"--input": input})
    loaded = kerasbert.load(model)
    if isinstance(loaded, ReplacedTokenDetection):
        print(f"{model}: its discriminator answers; {model}/generator fills masks", file=sys.stderr)
        loaded = loaded.discriminator
    form = form_of(loaded)
    spec = task_of(task).with_columns(columns)
    writing = dict(max_new_tokens=max_new_tokens, num_beams=num_beams)
    answer = answerer(loaded, top, batch_size, null_threshold, prefix, **writing)
    if hasattr(sys.stdout, "reconfigure"):  # the encoding of a terminal is not that of the text
        sys.stdout.reconfigure(encoding="utf-8")
    labels = loaded.labels if isinstance(loaded, TextClassifier) and loaded.problem == "classes" else ()
    inputs = read_inputs(input or sys.stdin, form, spec.columns, encoding, format, spec.layouts, labels)
    # The scores of masks are over the whole vocabulary: there, few at once. Of many, texts of like length are together.
    size = batch_size * (1 if isinstance(loaded, MaskedLM) else 64 if isinstance(loaded, TextClassifier) else 8)
    with text_written_whole(output) if output else contextlib.nullcontext(sys.stdout) as answers:
        for found in answers_of(inputs, answer, size):
            answers.write(json.dumps(found, ensure_ascii=False) + "\n")
            answers.flush()


def answers_of(inputs: Iterable[Input], answer: Callable[[list], list[dict]], size: int) -> Iterator[dict]:
    """The answer to every input, in order; `size` of them are read at once.

    Raises:
        ValueError: an input that the model does not take, with where it stands.
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


def form_of(model) -> str:
    """What a model takes."""
    for cls, form in FORMS.items():
        if isinstance(model, cls):
            return form
    raise ValueError(f"Predictions need the model of a task or a language model. Received: a {type(model).__name__}.")


def answerer(
    model, top: int, batch_size: int, null_threshold: float | None = None, prefix: str = "", **writing
) -> Callable[[list], list[dict]]:
    """What gives a dict for each of a list of inputs; `writing` are options of `generate`."""

    def best(questions):
        found = model.answer(questions, n_best=top, null_threshold=null_threshold, batch_size=batch_size)
        return [{"answers": answers if top > 1 else [answers]} for answers in found]

    def written(texts):
        answers = model.generate([prefix + text for text in texts], batch_size=batch_size, **writing)
        return [{"text": text} for text in answers]

    functions = {
        MaskedLM: lambda texts: [{"masks": masks} for masks in model.fill_mask(texts, top_k=top)],
        Discriminator: lambda texts: [{"tokens": tokens} for tokens in model.score_tokens(texts)],
        TextClassifier: lambda texts: model.classify(texts, batch_size=batch_size),
        TokenClassifier: lambda texts: model.tag(texts, batch_size=batch_size),
        QuestionAnswerer: best,
        MultipleChoice: lambda examples: model.choose(examples, batch_size=batch_size),
        TextEmbedder: lambda texts: [{"vector": v.tolist()} for v in model.embed(texts, batch_size=batch_size)],
        NextToken: written,
    }
    return next(function for cls, function in functions.items() if isinstance(model, cls))


if __name__ == "__main__":
    command(predict)
