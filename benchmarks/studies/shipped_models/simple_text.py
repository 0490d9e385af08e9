"""Writes ten million words of modern and simple English and of novels, for `modernbert.mini_en_simple`.

    python -m benchmarks.studies.shipped_models.simple_text --source simple_en --novels novels --output mixed \
        --held-out mixed_held_out
    python -m pipelines.prepare_corpus --source mixed/ --documents blank-line --tokenizer saved_models/bert_mini_en \
        --output corpora/mixed

Of the modern text, only the files are read whose licenses allow weights to be shared under other terms than the text:
no license that excludes commercial use. Every 50th of their documents is held out. Novels, which the model has read
before, make up the rest of the ten million words: every second one, and then some of the others. Their documents are
paragraphs. Sentences are lines, and two thirds of the documents are split into sentences, which are documents then,
because minimal pairs are single sentences.
"""

from pathlib import Path

import tyro

from benchmarks.studies.shipped_models.sentences import paragraphs, sentences

# Name of a file -> its license.
LICENSES = {
    "books_standardebooks": "CC0",
    "childes_ud": "CC BY-SA 4.0",
    "dialogue_sgd": "CC BY-SA 4.0",
    "meetings_mrda": "CC BY 4.0",
    "news_onestop": "CC BY-SA 4.0",
    "news_wikinews": "CC BY 2.5",
    "sentences_tatoeba": "CC BY 2.0 FR",
    "stories_fairytaleqa": "Apache-2.0",
    "web_ewt": "CC BY-SA 4.0",
    "wikipedia_wikisplit": "CC BY-SA 4.0",
}
HELD_OUT_EVERY = 50  # documents of a file
WHOLE_EVERY = 3  # documents
WORDS = 10_000_000  # of both kinds of text together


def main(source: Path, novels: Path, output: Path, held_out: Path) -> None:
    """Writes a file for every source, whose documents are separated by blank lines.

    Args:
        source: folder of the modern text: files whose documents are separated by blank lines.
        novels: folder of text files with one book each.
        output: folder for the text to train on.
        held_out: folder for the documents that are held out.
    """
    total = 0
    for name in LICENSES:
        documents = (source / f"{name}.txt").read_text(encoding="utf-8").split("\n\n")
        lines = [[one for line in document.splitlines() for one in sentences(line)] for document in documents]
        total += write(output / f"{name}.txt", [one for number, one in enumerate(lines) if number % HELD_OUT_EVERY])
        write(held_out / f"{name}.txt", lines[::HELD_OUT_EVERY], whole_every=1)
    books = sorted(novels.glob("*.txt"))
    for path in books[::2] + books[1::2]:
        if total < WORDS:
            found = paragraphs(path.read_text(encoding="utf-8-sig"))
            total += write(output / path.name, [sentences(paragraph) for paragraph in found])


def write(path: Path, documents: list[list[str]], whole_every: int = WHOLE_EVERY) -> int:
    """Writes documents, which are lists of sentences, and returns the number of words.

    Every document of the file but each `whole_every`-th one is split: each of its sentences becomes a document.
    """
    parts = []
    for number, lines in enumerate(documents):
        parts += [lines] if number % whole_every == 0 else [[one] for one in lines]
    text = "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return len(text.split())


if __name__ == "__main__":
    tyro.cli(main)
