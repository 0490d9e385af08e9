"""Answers for lines of text, as JSON lines: labels of a classifier, filled masks of a masked language model.

echo "Return the [MASK] of the list." | python -m pipelines.predict --model saved_models/quickstart
"""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import kerasbert
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier

from .command import command


def predict(
    model: str,
    input: Path | None = None,
    output: Path | None = None,
    top: int = 5,
    batch_size: int = 32,
    encoding: str = "utf-8",
) -> None:
    """Reads a text a line, writes an answer a line.

    Args:
        model: folder of a model, or hf://org/name.
        input: file of texts; a tab separates the two texts of a pair. Default: standard input.
        output: file for the answers. Default: standard output.
        top: candidates for each mask.
        batch_size: texts a step.
        encoding: of the input file.
    """
    loaded = kerasbert.load(model)
    if not isinstance(loaded, MaskedLM | TextClassifier):
        raise ValueError(f"Predictions need a MaskedLM or a TextClassifier. Received: a {type(loaded).__name__}.")
    lines = open(input, encoding=encoding) if input else sys.stdin
    answers = open(output, "w", encoding="utf-8") if output else sys.stdout
    try:
        for answer in answers_of(loaded, lines, top, batch_size):
            answers.write(json.dumps(answer, ensure_ascii=False) + "\n")
            answers.flush()
    finally:
        for file in (lines, answers):
            if file not in (sys.stdin, sys.stdout):
                file.close()


def answers_of(model: MaskedLM | TextClassifier, lines: Iterable[str], top: int, batch_size: int) -> Iterator[dict]:
    """An answer for every line that is not empty, in order."""
    texts = (line.strip() for line in lines)
    texts = (tuple(text.split("\t", 1)) if "\t" in text else text for text in texts if text)
    while chunk := list(itertools.islice(texts, batch_size * 8)):
        if isinstance(model, MaskedLM):
            found = [{"masks": masks} for masks in model.fill_mask(chunk, top_k=top)]
        else:
            found = model.classify(chunk, batch_size=batch_size)
        for text, answer in zip(chunk, found, strict=True):
            yield {"text": text, **answer}


if __name__ == "__main__":
    command(predict)
