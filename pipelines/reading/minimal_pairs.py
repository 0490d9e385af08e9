"""Reads minimal pairs, an acceptable and an unacceptable sentence each, in the layouts of BLiMP and Zorro."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kerasbert.data.text.tables import TABLES, is_gzip, suffix_of

from .labeled import GUESSED, Columns
from .tables import Reading, read_rows

# Columns of BLiMP (Warstadt et al. 2020, arXiv 1912.00582).
GOOD, BAD = "sentence_good", "sentence_bad"
PARADIGM, PHENOMENON, FIELD = ("UID", "paradigm"), ("linguistics_term", "phenomenon"), ("field",)


@dataclass(frozen=True)
class MinimalPair:
    """An acceptable and an unacceptable sentence.

    Args:
        paradigm: name of the contrast that the pair belongs to, or "".
        good: the acceptable sentence.
        bad: the unacceptable sentence.
        phenomenon: name of the group of paradigms, or "".
        field: name of the group of phenomena, such as "syntax", or "".
    """

    paradigm: str
    good: str
    bad: str
    phenomenon: str = ""
    field: str = ""


def read_minimal_pairs(
    source: str | Path, reading: Reading | None = None, columns: Columns = GUESSED
) -> list[MinimalPair]:
    """Reads the pairs of a table, a text file, a data set on the hub, or all such files of a folder.

    A table has the columns of BLiMP: sentence_good, sentence_bad and, where given, UID, linguistics_term and field. In
    a text file, two lines are a pair. As in Zorro (Huebner et al. 2021, BabyBERTa), the first of them is unacceptable,
    and the name of the file is that of the paradigm, phenomenon-case.txt. Files of a folder whose rows do not name a
    paradigm are a paradigm each.

    Args:
        source: file, folder, or hf://name.
        reading: how files are read.
        columns: the column of the acceptable sentence (`text`), and of the unacceptable one (`pair`). In text files, 0
            is the first of two lines and 1 the second.

    Raises:
        ValueError: there are no pairs, or a sentence is missing.
    """
    reading = reading or Reading()
    files = [source]
    if not str(source).startswith("hf://") and Path(source).is_dir():
        files = sorted(file for file in Path(source).iterdir() if suffix_of(file) in (*TABLES, ".txt"))
        if (Path(source) / "corpus.json").is_file():
            raise ValueError(
                f"A language model is evaluated on pairs of sentences. Received: {source}, a corpus. Use --corpus "
                "instead of --data."
            )
    pairs = [pair for file in files for pair in _pairs_of(file, reading, columns, named=len(files) > 1)]
    if not pairs:
        folders = sorted(path.name for path in Path(source).iterdir() if path.is_dir()) if Path(source).is_dir() else []
        within = f" It has the folders {', '.join(folders)}: name one of them." if folders else ""
        raise ValueError(
            f"Minimal pairs are read from {', '.join((*TABLES, '.txt'))}. Received: {source} without any.{within}"
        )
    return pairs


def _pairs_of(file: str | Path, reading: Reading, columns: Columns, named: bool) -> Iterator[MinimalPair]:
    is_text = not str(file).startswith("hf://") and reading.format_of(file, "text") in ("text", "label-text")
    if is_text:
        good, bad = columns.text or "1", columns.pair or "0"
        paradigm = _stem(file)
        phenomenon = paradigm.rpartition("-")[0]
        rows = _rows_of_lines(Path(file), reading)
    else:
        good, bad = columns.text or GOOD, columns.pair or BAD
        phenomenon, paradigm = "", _stem(file) if named else ""
        rows = read_rows(file, replace(reading, header=not columns.are_numbers))
    for number, row in enumerate(rows, start=1):
        for name in (good, bad):
            if not isinstance(row.get(name), str) or not row[name]:
                raise ValueError(
                    f"A minimal pair must have two sentences. Received: {file} row {number} without {name!r}. It "
                    f"has: {', '.join(map(str, row))}. Name the columns with --columns.text and --columns.pair."
                )
        yield MinimalPair(
            _named(row, PARADIGM, paradigm),
            row[good],
            row[bad],
            _named(row, PHENOMENON, phenomenon),
            _named(row, FIELD, ""),
        )


def _named(row: dict, columns: tuple[str, ...], default: str) -> str:
    """The name in the first of the columns that a row has."""
    return next((str(row[name]) for name in columns if row.get(name) not in (None, "")), default)


def _stem(file: str | Path) -> str:
    """The name of a file without its suffixes: "wh.jsonl.gz" -> "wh"."""
    name = Path(file).name
    name = name[:-3] if is_gzip(file) else name
    return Path(name).stem


def _rows_of_lines(path: Path, reading: Reading) -> Iterator[dict]:
    """Yields two lines at a time, as columns 0 and 1. Empty lines are left out."""
    lines = [line.strip() for line in reading.lines(path) if line.strip()]
    if len(lines) % 2:
        raise ValueError(f"A text file of minimal pairs must have two lines a pair. Received: {path}: {len(lines)}.")
    return ({"0": first, "1": second} for first, second in zip(lines[::2], lines[1::2], strict=True))
