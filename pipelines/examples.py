"""Examples of every kind of task out of files: texts with labels, tagged words, questions, choices, pairs of texts."""

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from .labelled import Columns, read_labelled
from .tables import open_text, read_rows, suffix_of

KINDS = ("classes", "labels", "score", "tags", "questions", "choices", "sequences")


@dataclass(frozen=True)
class Examples:
    """Inputs as a task takes them, with its targets.

    Args:
        x: texts or pairs; lists of words; (question, context); (context, choices); sources.
        y: labels as str; lists of tags; (answer, first character) or None; numbers of choices; targets.
        dataset: of questions, the articles as `metrics.squad` wants them.
    """

    x: list
    y: list
    dataset: list = field(default_factory=list)

    def __len__(self):
        return len(self.x)


def read_examples(
    kind: str,
    path: str | Path,
    columns: Columns | None = None,
    encoding: str = "utf-8",
    impossible: bool = True,
) -> Examples:
    """Reads a file, or a data set of the hub (`hf://name:configuration#split`), as examples of a kind.

    Args:
        kind: one of `KINDS`.
        path: "classes", "labels", "score": see `read_labelled`; several labels stand in one cell, with "|" between.
            "tags": columns of words and tags with blank lines between sentences, or rows with lists.
            "questions": SQuAD's json, or rows. "choices": rows in the form of SWAG, RACE or ARC.
            "sequences": rows, or two files of as many lines, `train.de,train.en`.
        columns: names, where they cannot be guessed.
        encoding: of the files.
        impossible: keep questions without an answer.
    """
    columns = columns or Columns()
    if kind in ("classes", "labels", "score"):
        found = read_labelled(path, columns, encoding)
        labels = [[n for n in label.split("|") if n] for label in found.labels] if kind == "labels" else found.labels
        return Examples(found.texts, labels)
    reader = {"tags": _tags, "questions": _questions, "choices": _choices, "sequences": _sequences}[kind]
    examples = reader(path, columns, encoding)
    if kind == "questions" and not impossible:
        kept = [i for i, answer in enumerate(examples.y) if answer is not None]
        examples = Examples([examples.x[i] for i in kept], [examples.y[i] for i in kept], examples.dataset)
    if not len(examples):
        raise ValueError(f"{path} has no examples.")
    return examples


def _column(row: dict, names: tuple[str, ...], given: str | None, path, what: str) -> str:
    """The name of the column that holds `what`."""
    if given is not None and given not in row:
        raise ValueError(f"{path} has no column {given!r}. It has: {', '.join(map(str, row))}.")
    found = given or next((name for name in names if name in row), None)
    if found is None:
        raise ValueError(
            f"Which column of {path} holds the {what} cannot be told from its name. Known are: {', '.join(names)}. "
            f"It has: {', '.join(map(str, row))}."
        )
    return found


# === Tagged words ===


def _tags(path, columns: Columns, encoding: str) -> Examples:
    if suffix_of(path) not in ("", ".json", ".jsonl", ".ndjson", ".parquet"):
        return _tag_columns(Path(path), columns, encoding)
    rows = read_rows(path, encoding)
    words = _column(rows[0], ("tokens", "words", "sentence"), columns.text, path, "words") if rows else ""
    tags = _column(rows[0], ("ner_tags", "tags", "labels", "pos_tags"), columns.label, path, "tags") if rows else ""
    for number, row in enumerate(rows, start=1):
        if len(row[words]) != len(row[tags]):
            raise ValueError(
                f"Every word must have a tag. Received: {path} row {number} of {len(row[words])} words with "
                f"{len(row[tags])} tags."
            )
    return Examples([list(row[words]) for row in rows], [[str(tag) for tag in row[tags]] for row in rows])


def _tag_columns(path: Path, columns: Columns, encoding: str) -> Examples:
    """CoNLL's form: a word a line, its tag in the last column, a blank line behind a sentence."""
    word, tag = int(columns.text or 0), int(columns.label or -1)
    x: list[list[str]] = [[]]
    y: list[list[str]] = [[]]
    for number, line in enumerate(open_text(path, encoding).split("\n"), start=1):
        line = line.rstrip("\r")
        # Words may be any character but the one that separates columns, such as a no-break space.
        cells = line.split("\t") if "\t" in line else line.split(" ")
        cells = [cell for cell in cells if cell]
        if not cells or cells[0] == "-DOCSTART-":
            if x[-1]:
                x.append([])
                y.append([])
            continue
        if len(cells) < 2:
            raise ValueError(f"A line must have a word and a tag. Received: {path} line {number}: {line[:60]!r}.")
        x[-1].append(cells[word])
        y[-1].append(cells[tag])
    return Examples(x, y) if x[-1] else Examples(x[:-1], y[:-1])


# === Questions ===


def _questions(path, columns: Columns, encoding: str) -> Examples:
    if suffix_of(path) == ".json":
        content = json.loads(open_text(Path(path), encoding))
        if isinstance(content, dict) and "data" in content:
            return _squad(content["data"], path)
    rows = read_rows(path, encoding)
    articles = []
    for number, row in enumerate(rows):
        question = row[_column(row, ("question",), columns.text, path, "questions")]
        context = row[_column(row, ("context", "passage"), columns.pair, path, "contexts")]
        answers = row[_column(row, ("answers", "answer"), columns.label, path, "answers")]
        if isinstance(answers, dict):
            starts = answers.get("answer_start") or [None] * len(answers["text"])
            answers = [dict(text=t, answer_start=s) for t, s in zip(answers["text"], starts, strict=True)]
        elif isinstance(answers, str):
            answers = [dict(text=answers, answer_start=None)] if answers else []
        entry = {"id": str(row.get("id", number)), "question": question, "answers": list(answers)}
        entry["is_impossible"] = not entry["answers"]
        articles.append({"paragraphs": [{"context": context, "qas": [entry]}]})
    entries = [article["paragraphs"][0]["qas"][0] for article in articles]
    if all(entry["answers"] for entry in entries):  # version 1.1 does not say of any that it is possible
        for entry in entries:
            del entry["is_impossible"]
    return _squad(articles, path)


def _squad(articles: list, path) -> Examples:
    x, y = [], []
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question.get("answers") or []
                x.append((question["question"], paragraph["context"]))
                y.append(None)
                if not answers:
                    continue
                text, start = answers[0]["text"], answers[0].get("answer_start")
                place = paragraph["context"].find(text) if start is None else start
                if text not in paragraph["context"]:
                    raise ValueError(
                        f"An answer must be a part of its context. Received: {path} question {question.get('id')}: "
                        f"{text!r:.60}. Drop the question, or correct the answer."
                    )
                y[-1] = (text, place)
    return Examples(x, y, articles)


# === Choices ===


class IncompleteRow(ValueError):
    """A row without the choice that is said to be right: tables of ARC have some that lost their choices."""


def _choices(path, columns: Columns, encoding: str) -> Examples:
    suffix = suffix_of(path)
    rows = read_rows(path, encoding)
    if suffix in (".csv", ".tsv") and not (rows and _choice_columns(rows[0])):
        rows = read_rows(path, encoding, header=False)
    x, y, incomplete = [], [], []
    for number, row in enumerate(rows, start=1):
        try:
            context, choices, answer = _choice_row(row, path, number, columns)
        except IncompleteRow as error:
            incomplete.append(error)
            continue
        x.append((*context, choices))
        y.append(answer)
    if incomplete and not x:
        raise incomplete[0]
    if incomplete:
        warnings.warn(f"{len(incomplete)} of {len(rows)} rows are left out. {incomplete[0]}", stacklevel=4)
    return Examples(x, y)


def _choice_columns(row: dict) -> bool:
    return any(name in row for name in ("ending0", "ending_0", "options", "choices", "choice1", "answerKey"))


def _choice_row(row: dict, path, number: int, columns: Columns) -> tuple[tuple, list[str], int]:
    """(context or (passage, question), the choices, the number of the right one) of SWAG, RACE, ARC or a bare table."""
    names = list(row)
    letters = None
    if "ending0" in row:  # SWAG: the choices go on with the second sentence
        context = (row["sent1"],) if "sent1" in row else (row.get("ctx") or row["startphrase"],)
        second = row.get("sent2", "")
        choices = [f"{second} {row[name]}".strip() for name in names if name.startswith("ending")]
    elif "options" in row:  # RACE
        context, choices = (row["article"], row["question"]), list(row["options"])
    elif isinstance(row.get("choices"), dict):  # ARC as the hub has it
        context, choices, letters = (row["question"],), list(row["choices"]["text"]), list(row["choices"]["label"])
    elif isinstance(row.get("choices"), list):
        context, choices = (row[_column(row, ("context", "question"), columns.text, path, "contexts")],), row["choices"]
    elif "choice1" in row:  # COPA
        context = (row[_column(row, ("premise", "context", "question"), columns.text, path, "contexts")],)
        choices = [row[name] for name in names if name.startswith("choice")]
    elif names[0] == "0" and len(names) > 3:  # a table without a header: context, choices, answer
        context, choices = (row["0"],), [row[name] for name in names[1:-1] if row[name] != ""]
    else:
        raise ValueError(
            "A row must have choices in the form of SWAG (ending0...), RACE (options), ARC (choices) or COPA "
            f"(choice1...). Received: {path} with {', '.join(map(str, names))}."
        )
    key = columns.label or next((n for n in ("label", "answerKey", "answer", "gold", names[-1]) if n in row), None)
    said = str(row[key]).strip()
    answer = _choice_number(said, len(choices), letters)
    if answer is None:
        lost = len(choices) < 2 or said in ("C", "D", "E")
        raise (IncompleteRow if lost else ValueError)(
            f"The right one of {len(choices)} choices must be a number from 0, or a letter from A. Received: {path} "
            f"row {number}: {said!r}."
        )
    return context, [str(choice) for choice in choices], answer


def _choice_number(answer: str, count: int, letters: list | None) -> int | None:
    if letters and answer in letters:
        return letters.index(answer)
    number = int(answer) if answer.isdecimal() else ord(answer) - ord("A") if len(answer) == 1 else -1
    return number if 0 <= number < count else None


# === Pairs of texts ===


def _sequences(path, columns: Columns, encoding: str) -> Examples:
    if "," in str(path) and not str(path).startswith("hf://"):
        files = [Path(part) for part in str(path).split(",")]
        sides = [open_text(file, encoding).removesuffix("\n").split("\n") for file in files]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]):
            raise ValueError(
                "Sources and targets are two files of as many lines. Received: "
                + ", ".join(f"{file} of {len(side)} lines" for file, side in zip(files, sides, strict=True))
            )
        return Examples(*sides)
    rows = read_rows(path, encoding)
    if not rows:
        return Examples([], [])
    if isinstance(rows[0].get("translation"), dict):
        rows = [row["translation"] for row in rows]
        first, second = list(rows[0])[:2]
        columns = Columns(text=columns.text or first, label=columns.label or second)
    sources = ("source", "document", "article", "text", "input", "dialogue")
    targets = ("target", "summary", "highlights", "output", "abstract")
    source = _column(rows[0], sources, columns.text, path, "sources")
    target = _column(rows[0], targets, columns.label, path, "targets")

    def text(value) -> str:  # sentences in a list; of several targets the first
        return value if isinstance(value, str) else " ".join(" ".join(map(str, value)).split())

    def first(value) -> str:
        return value if isinstance(value, str) else str(value[0])

    return Examples([text(row[source]) for row in rows], [first(row[target]) for row in rows])
