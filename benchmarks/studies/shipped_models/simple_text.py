"""Writes modern and simple English and novels, one sentence in each line, for `modernbert.mini_en_simple`.

    python -m benchmarks.studies.shipped_models.simple_text --source simple_en --novels novels --output mixed \
        --held-out mixed_held_out
    python -m pipelines.prepare_corpus --source mixed/ --documents blank-line --tokenizer saved_models/bert_mini_en \
        --output corpora/mixed

Of the modern text, only the files are read whose licenses allow weights to be shared under other terms than the text:
no license that excludes commercial use. Every 50th of their documents is held out. Of the novels, which the model has
read before, every fourth one is included, so that it does not forget them.
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
NOVELS_EVERY = 4


def main(source: Path, novels: Path, output: Path, held_out: Path) -> None:
    """Writes a file for every source, whose documents are separated by blank lines.

    Args:
        source: folder of the modern text: files whose documents are separated by blank lines.
        novels: folder of text files with one book each.
        output: folder for the text to train on.
        held_out: folder for the documents that are held out.
    """
    for name in LICENSES:
        documents = (source / f"{name}.txt").read_text(encoding="utf-8").split("\n\n")
        lines = [[one for line in document.splitlines() for one in sentences(line)] for document in documents]
        write(output / f"{name}.txt", [one for number, one in enumerate(lines) if number % HELD_OUT_EVERY])
        write(held_out / f"{name}.txt", lines[::HELD_OUT_EVERY])
    for path in sorted(novels.glob("*.txt"))[::NOVELS_EVERY]:
        found = paragraphs(path.read_text(encoding="utf-8-sig"))
        write(output / path.name, [[one for paragraph in found for one in sentences(paragraph)]])


def write(path: Path, documents: list[list[str]]) -> None:
    """Writes documents, which are lists of sentences."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join("\n".join(lines) for lines in documents if lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main)
