"""Examples of every kind of task out of files: texts with labels, tagged words, questions, choices, pairs of texts."""

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .cells import column, is_missing, list_of, number_of, text_of
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
        if kind == "score":
            _check_scores(found.labels, path)
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


def _check_scores(labels: list[str], path) -> None:
    for number, label in enumerate(labels, start=1):
        try:
            finite = math.isfinite(float(label))
        except ValueError:
            raise ValueError(
                f"Scores must be numbers. Received: {path} row {number}: {label!r}. For names use --task classes."
            ) from None
        if not finite:
            raise ValueError(f"Scores must be finite. Received: {path} row {number}: {label!r}. Drop the row.")


# === Tagged words ===


def _tags(path, columns: Columns, encoding: str) -> Examples:
    if suffix_of(path) not in ("", ".json", ".jsonl", ".ndjson", ".parquet"):
        return _tag_columns(Path(path), columns, encoding)
    rows = read_rows(path, encoding)
    if not rows:
        return Examples([], [])
    words = column(rows[0], ("tokens", "words", "sentence"), columns.text, path, "words")
    tags = column(rows[0], ("ner_tags", "tags", "labels", "pos_tags"), columns.label, path, "tags")
    x = [list_of(row, words, path, number, "words") for number, row in enumerate(rows, start=1)]
    y = [list_of(row, tags, path, number, "tags") for number, row in enumerate(rows, start=1)]
    for number, (sentence, labels) in enumerate(zip(x, y, strict=True), start=1):
        if len(sentence) != len(labels):
            raise ValueError(
                f"Every word must have a tag. Received: {path} row {number} of {len(sentence)} words with "
                f"{len(labels)} tags."
            )
    return Examples(x, y)


def _tag_columns(path: Path, columns: Columns, encoding: str) -> Examples:
    """CoNLL's form: a word a line, its tag in the last column, a blank line behind a sentence."""
    word, tag = number_of(columns, "text", 0, path), number_of(columns, "label", -1, path)
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
        if len(cells) < max(2, word + 1, tag + 1):
            wanted = "a word and a tag" if max(word, tag) < 2 else f"{max(word, tag) + 1} columns"
            raise ValueError(f"A line must have {wanted}. Received: {path} line {number}: {line[:60]!r}.")
        x[-1].append(cells[word])
        y[-1].append(cells[tag])
    return Examples(x, y) if x[-1] else Examples(x[:-1], y[:-1])


# === Questions ===


def _questions(path, columns: Columns, encoding: str) -> Examples:
    if suffix_of(path) == ".json":
        text = open_text(Path(path), encoding)
        try:
            content = json.loads(text)
        except json.JSONDecodeError:
            content = None  # lines of JSON, or a mistake that `read_rows` tells
        if isinstance(content, dict) and "data" in content:
            return _squad(content["data"], path)
    rows = read_rows(path, encoding)
    articles = []
    for number, row in enumerate(rows, start=1):
        question = text_of(row, column(row, ("question",), columns.text, path, "questions"), path, number, "a question")
        name = column(row, ("context", "passage"), columns.pair, path, "contexts")
        context = text_of(row, name, path, number, "a context")
        answers = _answers(row, column(row, ("answers", "answer"), columns.label, path, "answers"), path, number)
        entry = {"id": str(row.get("id", number - 1)), "question": question, "answers": answers}
        entry["is_impossible"] = not answers
        articles.append({"paragraphs": [{"context": context, "qas": [entry]}]})
    entries = [article["paragraphs"][0]["qas"][0] for article in articles]
    if all(entry["answers"] for entry in entries):  # version 1.1 does not say of any that it is possible
        for entry in entries:
            del entry["is_impossible"]
    return _squad(articles, path)


def _answers(row: dict, name: str, path, number: int) -> list[dict]:
    """A cell of answers: one text, a list of them, SQuAD's list of dicts, or a dict of lists as the hub has it."""
    value = row[name]
    if is_missing(value) or value == []:
        return []
    if isinstance(value, dict):
        texts = list_of(value, "text", path, number, "the texts of answers")
        starts = value.get("answer_start")
        starts = [None] * len(texts) if starts is None or not len(starts) else list(starts)
        if len(starts) != len(texts):
            raise ValueError(f"Every answer has a start, or none. Received: {path} row {number} with {value!r:.80}.")
        return [dict(text=text, answer_start=start) for text, start in zip(texts, starts, strict=True)]
    value = value if isinstance(value, (list, tuple)) else [value]
    return [answer if isinstance(answer, dict) else dict(text=str(answer), answer_start=None) for answer in value]


def _squad(articles: list, path) -> Examples:
    x, y, seen = [], [], set()
    for paragraph, question in _entries(articles, path):
        key = question.get("id")
        where = f"{path} question {key}"
        if key is None or key in seen:
            said = "a second one of this id" if key in seen else f"none in {question!r:.60}"
            raise ValueError(f"Every question needs an id of its own. Received: {where}: {said}.")
        seen.add(key)
        for part, name in ((question, "question"), (paragraph, "context")):
            if not isinstance(part.get(name), str) or not part[name].strip():
                raise ValueError(f"A question needs a {name}. Received: {where} without it. Drop it.")
        answers, context = question.get("answers") or [], paragraph["context"]
        x.append((question["question"], context))
        y.append(None)
        for number, answer in enumerate(answers):
            if not isinstance(answer.get("text"), str) or not answer["text"].strip():
                raise ValueError(
                    f"An answer needs a text. Received: {where} with {answer!r:.60}. Give it, or an empty list of "
                    "answers where there is none."
                )
            if number == 0 and answer["text"] not in context:
                raise ValueError(
                    f"An answer must be a part of its context. Received: {where}: {answer['text']!r:.60}. Drop the "
                    "question, or correct the answer."
                )
        if answers:
            text, start = answers[0]["text"], answers[0].get("answer_start")
            y[-1] = (text, context.find(text) if start is None else start)
    return Examples(x, y, articles)


def _entries(articles: list, path):
    """(paragraph, question) of every question of a SQuAD file."""
    for number, article in enumerate(articles):
        if not isinstance(article, dict) or not isinstance(article.get("paragraphs"), list):
            raise ValueError(f"An article has a list of paragraphs. Received: {path} article {number} without it.")
        for paragraph in article["paragraphs"]:
            if not isinstance(paragraph.get("qas"), list):
                raise ValueError(
                    f"A paragraph has a list of questions, qas. Received: {path} article {number} with one without it."
                )
            yield from ((paragraph, question) for question in paragraph["qas"])


# === Choices ===


class IncompleteRow(ValueError):
    """A row without the choice that is said to be right: tables of ARC have some that lost their choices."""


def _choices(path, columns: Columns, encoding: str) -> Examples:
    is_table = suffix_of(path) in (".csv", ".tsv")
    rows = read_rows(path, encoding, header=not is_table)
    if is_table and rows and _choice_columns(rows[0].values()):  # the first row is a header
        rows = read_rows(path, encoding)
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


def _choice_columns(names: Iterable[str]) -> bool:
    return any(name in names for name in ("ending0", "ending_0", "options", "choices", "choice1", "answerKey"))


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
        context, choices = (row[column(row, ("context", "question"), columns.text, path, "contexts")],), row["choices"]
    elif "choice1" in row:  # COPA
        context = (row[column(row, ("premise", "context", "question"), columns.text, path, "contexts")],)
        choices = [row[name] for name in names if name.startswith("choice")]
    elif names[0] == "0" and len(names) > 3:  # a table without a header: context, choices, answer
        context, choices = (row["0"],), [row[name] for name in names[1:-1] if row[name] != ""]
    else:
        raise ValueError(
            "A row must have choices in the form of SWAG (ending0...), RACE (options), ARC (choices) or COPA "
            f"(choice1...). Received: {path} with {', '.join(map(str, names))}."
        )
    for text in (*context, *choices):
        if text is None or isinstance(text, (list, dict)):
            raise ValueError(f"Contexts and choices are texts. Received: {path} row {number} with {text!r:.60}.")
    if columns.label is not None and columns.label not in row:
        raise ValueError(f"{path} has no column {columns.label!r}. It has: {', '.join(map(str, names))}.")
    key = columns.label or next((n for n in ("label", "answerKey", "answer", "gold", names[-1]) if n in row), None)
    value = row[key]
    said = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    answer = _choice_number(said, len(choices), letters)
    if answer is None:
        lost = len(choices) < 2 or said in ("C", "D", "E")
        raise (IncompleteRow if lost else ValueError)(
            f"The right one of {len(choices)} choices must be a number from 0, or a letter from A. Received: {path} "
            f"row {number}: {said!r}."
        )
    return tuple(map(str, context)), [str(choice) for choice in choices], answer


def _choice_number(answer: str, count: int, letters: list | None) -> int | None:
    if letters and answer in letters:
        return letters.index(answer)
    number = int(answer) if answer.isdecimal() else ord(answer) - ord("A") if len(answer) == 1 else -1
    return number if 0 <= number < count else None


# === Pairs of texts ===


def _sequences(path, columns: Columns, encoding: str) -> Examples:
    if "," in str(path) and not str(path).startswith("hf://"):
        files = [Path(part) for part in str(path).split(",")]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"There is no file {file}.")
        sides = [open_text(file, encoding).removesuffix("\n").split("\n") for file in files]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]):
            raise ValueError(
                "Sources and targets are two files of as many lines. Received: "
                + ", ".join(f"{file} of {len(side)} lines" for file, side in zip(files, sides, strict=True))
            )
        for file, side in zip(files, sides, strict=True):
            empty = next((number for number, line in enumerate(side, start=1) if not line.strip()), None)
            if empty is not None:
                raise ValueError(f"Every line needs a text. Received: {file} line {empty} without it. Drop the pair.")
        return Examples(*sides)
    rows = read_rows(path, encoding)
    if not rows:
        return Examples([], [])
    if isinstance(rows[0].get("translation"), dict):
        first, second = list(rows[0]["translation"])[:2]
        rows = [row.get("translation") or {} for row in rows]
        columns = Columns(text=columns.text or first, label=columns.label or second)
    sources = ("source", "document", "article", "text", "input", "dialogue")
    targets = ("target", "summary", "highlights", "output", "abstract")
    source = column(rows[0], sources, columns.text, path, "sources")
    target = column(rows[0], targets, columns.label, path, "targets")
    x, y = [], []
    for number, row in enumerate(rows, start=1):
        x.append(_joined(row, source, path, number))
        several = isinstance(row.get(target), list) and row[target]
        y.append(text_of({target: row[target][0]} if several else row, target, path, number, "a target"))
    return Examples(x, y)


def _joined(row: dict, name: str, path, number: int) -> str:
    """A source, or its sentences in a list."""
    if isinstance(row.get(name), list) and row[name]:
        return " ".join(" ".join(list_of(row, name, path, number, "a source")).split())
    return text_of(row, name, path, number, "a source")
