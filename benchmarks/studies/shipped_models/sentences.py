"""Writes the text of books with one sentence, or one paragraph, in each line, and blank lines between them.

    python -m benchmarks.studies.shipped_models.sentences --source novels/*.txt --output sentences/
    python -m pipelines.prepare_corpus --source sentences/ --documents blank-line --tokenizer T --output corpora/s

Every sentence then becomes a document; with `--documents file`, every book does, and sentences are its lines.

Lines that were wrapped are joined, and the underscores that Project Gutenberg writes for italics are dropped.
"""

import re
from pathlib import Path

import tyro

MINIMUM_WORDS = 3  # as in BabyBERTa (Huebner et al. 2021)
# The end of a sentence, with closing quotes, before a capital letter or an opening quote.
END = re.compile(r"""(?<=[.?!])(["'”’)\]]*)\s+(?=["'“‘(\[]*[A-Z])""")
# A full stop after a title or an initial ends no sentence.
TITLES = "Mr|Mrs|Ms|Dr|St|Messrs|Mme|Mlle|Capt|Col|Gen|Lieut|Rev|Hon|No|vs"
ABBREVIATION = re.compile(rf"(?:^|[\s\"'“‘(])(?:{TITLES}|[A-Z])\.$")


def main(source: tuple[Path, ...], output: Path, whole_paragraphs: bool = False) -> None:
    """Writes a file for every book.

    Args:
        source: text files.
        output: folder for the files, which have the names of the books.
        whole_paragraphs: do not split paragraphs into sentences.
    """
    output.mkdir(parents=True, exist_ok=True)
    for path in source:
        found = paragraphs(path.read_text(encoding="utf-8-sig"))
        if not whole_paragraphs:
            found = [one for paragraph in found for one in sentences(paragraph)]
        (output / path.name).write_text("\n\n".join(found) + "\n", encoding="utf-8")


def paragraphs(text: str) -> list[str]:
    """The paragraphs, each in one line. Without blank lines, every line is a paragraph."""
    text = text.replace("_", "")
    blocks = re.split(r"\n\s*\n", text)
    if len(blocks) < 10:
        blocks = text.splitlines()
    return [" ".join(block.split()) for block in blocks if block.strip()]


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph that have at least MINIMUM_WORDS words.

    Mr. Holmes rose. "Come at once!" said he. -> [Mr. Holmes rose., "Come at once!" said he.]
    """
    found, begin = [], 0
    for end in END.finditer(paragraph):
        one = paragraph[begin : end.end(1)]
        if not ABBREVIATION.search(one):
            found.append(one)
            begin = end.end()
    found.append(paragraph[begin:])
    return [one for one in found if len(re.findall(r"[A-Za-z]+", one)) >= MINIMUM_WORDS]


if __name__ == "__main__":
    tyro.cli(main)
