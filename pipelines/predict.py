"""Answers for lines of text or files of examples, as JSON lines.

echo "Return the [MASK] of the list." | python -m pipelines.predict --model saved_models/quickstart
echo '{"question": "Who sat?", "context": "The cat sat."}' | python -m pipelines.predict --model saved_models/answerer
python -m pipelines.predict --model saved_models/mine --input test.csv --output answers.jsonl
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import kerasbert
from kerasbert.objectives import MaskedLM, Seq2SeqLM
from kerasbert.objectives.next_token import NextToken
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

from .command import command
from .inputs import Input, read_inputs
from .labelled import GUESSED, Columns

# What each class takes; see `inputs.read_line`.
FORMS = {
    TokenClassifier: "words", QuestionAnswerer: "questions", MultipleChoice: "choices", TextClassifier: "pairs",
    MaskedLM: "pairs", TextEmbedder: "texts", Seq2SeqLM: "sources", NextToken: "texts",
}  # fmt: skip


def predict(
    model: str,
    input: Path | None = None,
    output: Path | None = None,
    top: int = 5,
    batch_size: int = 32,
    max_new_tokens: int = 64,
    num_beams: int = 1,
    null_threshold: float | None = None,
    prefix: str = "",
    encoding: str = "utf-8",
    columns: Columns = GUESSED,
) -> None:
    """Reads an input a line, or a row, and writes an answer a line; any number of them in constant memory, in order.

    A line is a text; for models that take pairs a tab separates the two, a question from its context, or a context and
    choices. Empty lines are left out. A line that begins with { is JSON: {"text"}, {"text", "pair"}, {"words": [...]},
    {"question", "context"} or {"context", "choices": [...]}; an "id" in it comes back with the answer. Of tables (CSV,
    TSV, Parquet), JSON, SQuAD's json and CoNLL's columns the texts are read as by `finetune`, and no labels.

    Args:
        model: folder of a model, or hf://org/name.
        input: file. Default: lines of standard input.
        output: file for the answers, in UTF-8. Default: standard output.
        top: candidates for each mask, or answers to a question.
        batch_size: texts a step.
        max_new_tokens: of generated text.
        num_beams: of generated text.
        null_threshold: odds of no answer above which a question has none (SQuAD 2.0). Default: it always has one.
        prefix: put in front of every text that a model continues or answers, such as "summarize: ".
        encoding: of the input.
        columns: names of the columns, where they cannot be guessed: text, and pair of texts.
    """
    loaded = kerasbert.load(model)
    form = form_of(loaded)
    writing = dict(max_new_tokens=max_new_tokens, num_beams=num_beams)
    answer = answerer(loaded, top, batch_size, null_threshold, prefix, **writing)
    for stream, name in ((sys.stdin, encoding), (sys.stdout, "utf-8")):
        if hasattr(stream, "reconfigure"):  # the encoding of a terminal is not that of the text
            stream.reconfigure(encoding=name)
    inputs = read_inputs(input or sys.stdin, form, columns or GUESSED, encoding)
    answers = open(output, "w", encoding="utf-8") if output else sys.stdout
    try:
        # The scores of masks are over the whole vocabulary: there, few at once.
        for found in answers_of(inputs, answer, batch_size * (1 if isinstance(loaded, MaskedLM) else 8)):
            answers.write(json.dumps(found, ensure_ascii=False) + "\n")
            answers.flush()
    finally:
        if output:
            answers.close()


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
