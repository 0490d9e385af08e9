"""Answers for lines of text, as JSON lines.

echo "Return the [MASK] of the list." | python -m pipelines.predict --model saved_models/quickstart
echo '{"question": "Who sat?", "context": "The cat sat."}' | python -m pipelines.predict --model saved_models/answerer
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import kerasbert
from kerasbert.objectives import MaskedLM
from kerasbert.objectives.next_token import NextToken
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

from .command import command


def predict(
    model: str,
    input: Path | None = None,
    output: Path | None = None,
    top: int = 5,
    batch_size: int = 32,
    max_new_tokens: int = 64,
    num_beams: int = 1,
    encoding: str = "utf-8",
) -> None:
    """Reads an input a line, writes an answer a line; any number of lines in constant memory.

    A line is a text; a tab separates the two of a pair, or a question from its context. A line that begins with { is
    JSON: {"text"}, {"text", "pair"}, {"words": [...]}, {"question", "context"} or {"context", "choices": [...]}.

    Args:
        model: folder of a model, or hf://org/name.
        input: file of lines. Default: standard input.
        output: file for the answers. Default: standard output.
        top: candidates for each mask, or answers to a question.
        batch_size: texts a step.
        max_new_tokens: of generated text.
        num_beams: of generated text.
        encoding: of the input file.
    """
    loaded = kerasbert.load(model)
    options = dict(top=top, batch_size=batch_size, max_new_tokens=max_new_tokens, num_beams=num_beams)
    lines = open(input, encoding=encoding) if input else sys.stdin
    answers = open(output, "w", encoding="utf-8") if output else sys.stdout
    try:
        for answer in answers_of(loaded, lines, **options):
            answers.write(json.dumps(answer, ensure_ascii=False) + "\n")
            answers.flush()
    finally:
        for file in (lines, answers):
            if file not in (sys.stdin, sys.stdout):
                file.close()


def answers_of(
    model, lines: Iterable[str], top: int = 5, batch_size: int = 32, max_new_tokens: int = 64, num_beams: int = 1
) -> Iterator[dict]:
    """An answer for every line that is not empty, in order."""
    answer = answerer(model, top, batch_size, max_new_tokens, num_beams)
    inputs = (read_line(line, number) for number, line in enumerate(lines, start=1) if line.strip())
    while chunk := list(itertools.islice(inputs, batch_size * 8)):
        for text, found in zip(chunk, answer(chunk), strict=True):
            yield {"input": text, **found}


def answerer(model, top: int, batch_size: int, max_new_tokens: int, num_beams: int) -> Callable[[list], list[dict]]:
    """What gives a dict for each of a list of inputs."""
    generation = dict(batch_size=batch_size, max_new_tokens=max_new_tokens, num_beams=num_beams)

    def best(questions):
        found = model.answer(questions, n_best=top, batch_size=batch_size)
        return [{"answers": answers if top > 1 else [answers]} for answers in found]

    for cls, function in (
        (MaskedLM, lambda texts: [{"masks": masks} for masks in model.fill_mask(texts, top_k=top)]),
        (TextClassifier, lambda texts: model.classify(texts, batch_size=batch_size)),
        (TokenClassifier, lambda texts: model.tag(texts, batch_size=batch_size)),
        (QuestionAnswerer, best),
        (MultipleChoice, lambda examples: model.choose(examples, batch_size=batch_size)),
        (TextEmbedder, lambda texts: [{"vector": v.tolist()} for v in model.embed(texts, batch_size=batch_size)]),
        (NextToken, lambda texts: [{"text": text} for text in model.generate(texts, **generation)]),
    ):
        if isinstance(model, cls):
            return function
    raise ValueError(f"Predictions need the model of a task or a language model. Received: a {type(model).__name__}.")


def read_line(line: str, number: int) -> str | tuple | list:
    """The input that a line holds."""
    line = line.strip()
    if not line.startswith("{"):
        return tuple(line.split("\t", 1)) if "\t" in line else line
    try:
        content = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"Line {number} is not valid JSON: {error}.") from None
    for names in (("words",), ("passage", "question", "choices"), ("question", "context"), ("context", "choices")):
        if all(name in content for name in names):
            return content["words"] if names == ("words",) else tuple(content[name] for name in names)
    if "text" not in content:
        raise ValueError(
            "A line of JSON must have text, words, question and context, or context and choices. Received: line "
            f"{number} with {', '.join(content)}."
        )
    return (content["text"], content["pair"]) if content.get("pair") else content["text"]


if __name__ == "__main__":
    command(predict)
