"""Reads multiple-choice questions in the formats of SWAG, RACE, ARC, COPA and HellaSwag, or without a header."""

import itertools
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from .cells import column, is_missing, name_of, written_out
from .labeled import Columns
from .tables import Reading, read_rows

# Columns that hold all choices of a row as a list or a dict. RACE: options. HellaSwag: endings.
TOGETHER = ("choices", "options", "endings")
PASSAGES = ("article", "passage", "context")
CONTEXTS = (*PASSAGES, "premise", "question", "question_stem", "sent1", "ctx", "startphrase", "query", "text")
APART = re.compile(r"(choice|ending|option)_?\d+|[A-Z]")
ANSWERS = ("label", "answerkey", "answer", "gold", "correct")


def read_choices(path: str | Path, columns: Columns, reading: Reading) -> tuple[list[tuple], list[int]]:
    """Reads the inputs, (context, choices) or (passage, question, choices), and the indices of the right choices.

    Files give the right choice as a letter or a number. Numbers start at 0. They start at 1 if no row has the number 0,
    and at least one row has a number equal to its number of choices. `path` can be a folder of RACE's files, one per
    passage.
    """
    rows = list(choice_rows(path, reading))
    found, incomplete = [], []
    for number, row in enumerate(rows, start=1):
        context, choices, said, letters = _choice_row(row, path, number, columns.among(row))
        found.append((number, context, choices, said, letters))
    first = _first_number(found)
    x, y = [], []
    for number, context, choices, said, letters in found:
        answer = _choice_number(said, len(choices), letters, first)
        if answer is not None:
            x.append((*context, choices))
            y.append(answer)
            continue
        error = (
            f"The right one of {len(choices)} choices must be a number from {first} or a letter from A. Received: "
            f"{path} row {number}: {said!r}."
        )
        if len(choices) > 1 and said not in ("C", "D", "E"):
            raise ValueError(error)
        incomplete.append(error)  # some rows in tables of ARC have lost choices
    if incomplete and not x:
        raise ValueError(incomplete[0])
    if incomplete:
        warnings.warn(f"{len(incomplete)} of {len(rows)} rows are skipped. {incomplete[0]}", stacklevel=4)
    return x, y


def choice_rows(path: str | Path, reading: Reading) -> Iterator[dict]:
    """Yields the rows of a file, a data set on the hub or a folder of RACE's files, one question each."""
    if Path(path).is_dir():
        files = choice_files(path)
        if not files:
            raise ValueError(f"A folder of questions needs JSON files (.txt or .json). Received: {path} without any.")
        for file in files:
            yield from choice_rows(file, reading)
        return
    format = reading.format_of(path, "json")
    if format in ("csv", "tsv"):
        rows = read_rows(path, replace(reading, header=False))
        first = next(rows, {})
        if _names_choices(first.values()):  # the first row is a header
            rows = read_rows(path, replace(reading, header=True))
        else:
            rows = itertools.chain([first] if first else [], rows)
    else:
        rows = read_rows(path, reading if format == "auto" else replace(reading, format=format))
    for row in rows:
        yield from questions_of(row, path)


def choice_files(folder: str | Path) -> list[Path]:
    """RACE's files in a folder and its subfolders (`high` and `middle`), sorted by name."""
    return sorted(file for file in Path(folder).rglob("*") if file.suffix in (".txt", ".json") and file.is_file())


def questions_of(row: dict, path: str | Path) -> list[dict]:
    """Splits a row with all questions of a passage, as in RACE's files. Any other row is returned alone."""
    questions, options, answers = (row.get(name) for name in ("questions", "options", "answers"))
    if not isinstance(questions, list) or not isinstance(options, list):
        return [row]
    answers = [None] * len(questions) if answers is None else answers
    if not isinstance(answers, list) or not len(questions) == len(options) == len(answers):
        raise ValueError(
            "Questions, options and answers of a passage must be lists of the same length. Received: "
            f"{path} with {questions!r:.60}, {options!r:.60} and {answers!r:.60}."
        )
    rest = {name: value for name, value in row.items() if name not in ("questions", "options", "answers")}
    asked = zip(questions, options, answers, strict=True)
    return [
        {**rest, "question": question, "options": choices, **({} if answer is None else {"answer": answer})}
        for question, choices, answer in asked
    ]


def _names_choices(names: Iterable) -> bool:
    """Whether the cells of a row are column names, rather than a question whose choices may be letters."""
    names = {str(name).strip() for name in names}
    apart = sum(APART.fullmatch(name) is not None for name in names) > 1
    known = {*CONTEXTS, *ANSWERS}
    return bool(names & {"answerKey", *TOGETHER}) or (apart and bool(known & {name.lower() for name in names}))


def _choice_row(row: dict, path, number: int, columns: Columns) -> tuple[tuple, list[str], str, list | None]:
    """Returns (context or (passage, question), choices, right choice as given, letters of the choices) for a row."""
    context, choices, letters = choices_of(row, path, number, columns)
    names = list(row)
    given = columns.label or (names[-1] if _is_bare(names) else None)
    value = row[column(row, ANSWERS, given, path, "right choices", number)]
    said = name_of(value).strip()
    return context, choices, said, letters


def _first_number(found: list[tuple]) -> int:
    """Infers from all rows whether the numbers of right choices start at 0 or at 1; see `read_choices`."""
    said = [
        (int(said) if said.isdecimal() else 0, len(choices))
        for _, _, choices, said, letters in found
        if len(choices) > 1 and said not in (letters or ())
    ]
    return int(any(number == count for number, count in said) and all(0 < number <= count for number, count in said))


def _is_bare(names: list[str]) -> bool:
    """Whether these are the column numbers of a table without header."""
    return names[0] == "0" and len(names) > 3


def choices_of(row: dict, path, number: int, columns: Columns) -> tuple[tuple, list[str], list | None]:
    """Returns (context or (passage, question), choices, letters of the choices or None) for a row."""
    letters, where = None, f"{path} row {number}"
    if isinstance(row.get("question"), dict):  # the files of ARC and CommonsenseQA: {"stem", "choices"}
        row = {**row, **row["question"], "question": row["question"].get("stem")}
    names = list(row)
    is_bare = _is_bare(names)
    together = next((name for name in TOGETHER if name in row), None)
    apart = [name for name in names if APART.fullmatch(str(name))]
    if is_bare:  # a table without a header: context, choices, answer
        choices, found = _without_tail([row[name] for name in names[1:-1]]), [row["0"]]
    elif together:
        choices, letters = _listed(written_out(row[together]), where)
    elif len(apart) > 1:
        choices = _without_tail([row[name] for name in apart])
    else:
        raise ValueError(
            "A row must have choices in the form of SWAG (ending0...), RACE (options), ARC (choices), COPA "
            f"(choice1...), or columns A, B... Received: {where} with {', '.join(map(str, names))}."
        )
    if not is_bare:
        found = [row[name] for name in _context_names(row, columns, path, number)]
    if apart and row.get("sent2") is not None:  # SWAG: the choices continue the second sentence
        choices = [f"{row['sent2']} {choice}".strip() for choice in choices]
    for text in (*found, *choices):
        if text is None or isinstance(text, (list, dict)):
            raise ValueError(f"Contexts and choices must be texts. Received: {where} with {text!r:.60}.")
    return tuple(map(str, found)), [str(choice) for choice in choices], letters


def _context_names(row: dict, columns: Columns, path, number: int) -> list[str]:
    """Returns the column of the context, or the columns of a passage and its question."""
    passage = next((name for name in PASSAGES if name in row), None)
    if columns.text is None and columns.pair is None and passage and "question" in row:
        return [passage, "question"]
    context = column(row, CONTEXTS, columns.text, path, "contexts", number)
    return [context] if columns.pair is None else [context, column(row, (), columns.pair, path, "questions", number)]


def _without_tail(choices: list) -> list:
    """Drops missing choices at the end, because rows of a table may have different numbers of choices."""
    return choices[: max((i for i, choice in enumerate(choices, start=1) if not is_missing(choice)), default=0)]


def _listed(value, where: str) -> tuple[list, list | None]:
    """Returns (choices, their letters or None) for a list, a dict by letter, or ARC's dict of two lists."""
    if isinstance(value, list) and value and all(isinstance(choice, dict) and "text" in choice for choice in value):
        labels = [choice.get("label") for choice in value]
        value = {"text": [choice["text"] for choice in value], "label": None if None in labels else labels}
    if isinstance(value, list):
        return value, None
    if not isinstance(value, dict):
        raise ValueError(f"Choices must be a list. Received: {where} with {value!r:.60}.")
    if not isinstance(value.get("text"), list):
        return list(value.values()), [str(name) for name in value]
    letters = value.get("label")
    if letters is not None and len(letters) != len(value["text"]):
        raise ValueError(f"Every choice must have a label. Received: {where} with {value!r:.80}.")
    return value["text"], None if letters is None else [str(letter) for letter in letters]


def _choice_number(answer: str, count: int, letters: list | None, first: int) -> int | None:
    if letters and answer in letters:
        return letters.index(answer)
    number = int(answer) - first if answer.isdecimal() else ord(answer) - ord("A") if len(answer) == 1 else -1
    return number if 0 <= number < count else None
