"""Reads examples for every kind of task: labeled texts, tagged words, questions, choices, and pairs of texts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .cells import column, is_missing, list_of, text_of, written_out
from .choices import read_choices
from .labeled import Columns, read_labeled
from .tables import ColumnsRead, Format, Layout, Reading, json_values, no_file, read_rows
from .tagged import read_tags

KINDS = ("classes", "labels", "score", "tags", "questions", "choices", "sequences")


@dataclass(frozen=True)
class Examples:
    """The inputs and targets of a task.

    Args:
        x: depending on the kind of task: texts or pairs; lists of words; (question, context); (context, choices); or
            sources.
        y: accordingly: labels as str; lists of tags; (answer, first character) or None; indices of choices; or targets.
        dataset: for questions, the articles in the format of `metrics.squad`.
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
    format: Format = "auto",
    layouts: tuple[Layout, ...] = (),
    say: Callable[[ColumnsRead], object] | None = None,
) -> Examples:
    """Reads the examples of a file or of a data set on the hub (`hf://name:configuration#split`).

    Args:
        kind: one of `KINDS`.
        path: for "classes", "labels" and "score", see `read_labeled`. "tags": columns of words and tags with blank
            lines between sentences, or rows with lists. "questions": SQuAD's JSON, or rows. "choices": see `choices`.
            "sequences": rows, or two files with equally many lines, `train.de,train.en`.
        columns: names of the columns that cannot be guessed.
        encoding: encoding of the files.
        impossible: whether to keep questions without an answer.
        format: format of the files. "auto" infers it from the extension and, for `.txt`, from the content.
        layouts: layouts of the official files of the task.
        say: function that gets the columns that are read, such as `print`.
    """
    columns, reading = columns or Columns(), Reading(encoding, format, layouts, say=say)
    if kind in ("classes", "labels", "score"):
        found = read_labeled(path, columns, reading, several=kind == "labels")
        _check_numbers(found.labels, path, kind)
        return Examples(found.texts, found.labels)
    readers = {"tags": read_tags, "questions": _questions, "choices": read_choices, "sequences": _sequences}
    examples = Examples(*readers[kind](path, columns, reading))
    if kind == "questions" and not impossible:
        kept = [i for i, answer in enumerate(examples.y) if answer is not None]
        examples = Examples([examples.x[i] for i in kept], [examples.y[i] for i in kept], examples.dataset)
    if not len(examples):
        raise ValueError(f"{path} has no examples.")
    return examples


def _check_numbers(labels: list, path, kind: str) -> None:
    """Checks that scores are finite and that no label is "nan"."""
    for number, label in enumerate(labels, start=1):
        if kind != "score":
            if "nan" in (name.lower() for name in ([label] if kind == "classes" else label)):
                raise ValueError(f"Labels must not be NaN. Received: {path} row {number}: {label!r}. Drop the row.")
            continue
        try:
            finite = math.isfinite(float(label))
        except ValueError:
            raise ValueError(
                f"Scores must be numbers. Received: {path} row {number}: {label!r}. For names use --task classes."
            ) from None
        if not finite:
            raise ValueError(f"Scores must be finite. Received: {path} row {number}: {label!r}. Drop the row.")


# === Questions ===


def squad_articles(path, reading: Reading) -> list | None:
    """Returns the articles of a file in SQuAD's format, or None if the file has another format."""
    if reading.format_of(path, "json") != "json":
        return None
    values = json_values(reading.lines(Path(path)), path)
    articles = values[0].get("data") if len(values) == 1 and isinstance(values[0], dict) else None
    if not isinstance(articles, list) or any(isinstance(entry, dict) and "question" in entry for entry in articles):
        return None
    return articles


def _questions(path, columns: Columns, reading: Reading) -> tuple[list, list, list]:
    articles = squad_articles(path, reading)
    if articles is not None:
        return _squad(articles, path)
    articles = []
    for number, row in enumerate(read_rows(path, replace(reading, header=not columns.are_numbers)), start=1):
        names = columns.among(row)
        name = column(row, ("question",), names.text, path, "questions", number)
        question, asked = text_of(row, name, path, number, "a question"), [name]
        name = column(row, ("context", "passage"), names.pair, path, "contexts", number)
        context = text_of(row, name, path, number, "a context")
        asked.append(name)
        name = column(row, ("answers", "answer"), names.label, path, "answers", number)
        answers = _answers(row, name, path, number)
        if number == 1:
            reading.say_columns(path, asked, name, "answers")
        entry = {"id": str(row.get("id", number - 1)), "question": question, "answers": answers}
        if _is_impossible(row):
            entry["is_impossible"] = True
        articles.append({"paragraphs": [{"context": context, "qas": [entry]}]})
    return _squad(articles, path)


def _answers(row: dict, name: str, path, number: int) -> list[dict]:
    """Reads a cell of answers: a text, a list of texts, SQuAD's list of dicts, or a dict of lists as on the hub."""
    value = row[name]
    if isinstance(value, str) and value.lstrip().startswith(("{'", '{"')):
        value = written_out(value)
    if is_missing(value) or value == []:
        return []
    if isinstance(value, dict):
        texts = list_of(value, "text", path, number, "the texts of answers", numbers=True)
        starts = value.get("answer_start")
        starts = [None] * len(texts) if starts is None or not len(starts) else list(starts)
        if len(starts) != len(texts):
            raise ValueError(
                f"Either all answers or none must have a start. Received: {path} row {number} with {value!r:.80}."
            )
        return [dict(text=text, answer_start=start) for text, start in zip(texts, starts, strict=True)]
    if not isinstance(value, (list, tuple)):
        start = row.get("answer_start")  # some tables have a column for it
        return [dict(text=str(value), answer_start=None if is_missing(start) else start)]
    return [answer if isinstance(answer, dict) else dict(text=str(answer), answer_start=None) for answer in value]


def _is_impossible(question: dict) -> bool:
    """Whether a question is marked as unanswerable. In tables, the mark may be text."""
    return str(question.get("is_impossible")).strip().lower() in ("true", "1", "1.0")


def _squad(articles: list, path) -> tuple[list, list, list]:
    """Returns (pairs, answers, articles) in the format of SQuAD 1.1 if all questions have answers, otherwise of 2.0.

    As in BERT's code, the answers of a question that is marked as impossible are ignored.
    """
    x, y, seen, entries = [], [], set(), list(squad_questions(articles, path))
    for paragraph, question in entries:
        key = question.get("id")
        where = f"{path} question {key}"
        if key is None or key in seen:
            said = "the id occurs twice" if key in seen else f"no id in {question!r:.60}"
            raise ValueError(f"Every question needs a unique id. Received: {where}: {said}.")
        seen.add(key)
        for part, name in ((question, "question"), (paragraph, "context")):
            if not isinstance(part.get(name), str) or not part[name].strip():
                raise ValueError(f"A question needs a {name}. Received: {where} without it. Drop the question.")
        answers = question["answers"] = [] if _is_impossible(question) else question.get("answers") or []
        x.append((question["question"], paragraph["context"]))
        y.append(_first_answer(answers, paragraph["context"], where))
    if None in y:
        for (_, question), answer in zip(entries, y, strict=True):
            question["is_impossible"] = answer is None
    return x, y, articles


def _first_answer(answers: list, context: str, where: str) -> tuple[str, int] | None:
    """Returns (text, first character) of the first answer, or None without answers. Every answer must have a text."""
    for answer in answers if isinstance(answers, list) else [answers]:
        if not isinstance(answer, dict) or not isinstance(answer.get("text"), str) or not answer["text"].strip():
            raise ValueError(
                f"An answer needs a text. Received: {where} with {answer!r:.60}. Add it, or give an empty list if "
                "there is no answer."
            )
    if not answers:
        return None
    text, start = answers[0]["text"], answers[0].get("answer_start")
    if text not in context:
        raise ValueError(
            f"An answer must be a part of its context. Received: {where}: {text!r:.60}. Drop the question, or correct "
            "the answer."
        )
    try:
        return text, context.find(text) if start is None else int(start)
    except (TypeError, ValueError):
        raise ValueError(f"`answer_start` must be a character index. Received: {where}: {start!r:.60}.") from None


def squad_questions(articles: list, path):
    """Yields (paragraph, question) for every question of a SQuAD file."""
    for number, article in enumerate(articles):
        if not isinstance(article, dict) or not isinstance(article.get("paragraphs"), list):
            raise ValueError(f"An article needs a list of paragraphs. Received: {path} article {number} without it.")
        for paragraph in article["paragraphs"]:
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
                raise ValueError(
                    f"Paragraphs need a list of questions, qas. Received: {path} article {number}, where one has none."
                )
            yield from ((paragraph, question) for question in questions)


# === Pairs of texts ===

SOURCES = ("source", "document", "article", "text", "input", "dialogue")
TARGETS = ("target", "summary", "highlights", "output", "abstract")


def _sequences(path, columns: Columns, reading: Reading) -> tuple[list[str], list[str]]:
    if "," in str(path) and not str(path).startswith("hf://") and not Path(path).is_file():
        files = [Path(part) for part in str(path).split(",")]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(no_file(file))
        texts = [reading.text(file).removesuffix("\n") for file in files]
        sides = [[line.removesuffix("\r") for line in text.split("\n")] for text in texts]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]):
            raise ValueError(
                "The files of sources and targets must have the same number of lines. Received: "
                + ", ".join(f"{file} of {len(side)} lines" for file, side in zip(files, sides, strict=True))
            )
        for file, side in zip(files, sides, strict=True):
            empty = next((number for number, line in enumerate(side, start=1) if not line.strip()), None)
            if empty is not None:
                raise ValueError(f"Every line needs a text. Received: {file} line {empty} without it. Drop the pair.")
        return tuple(sides)
    rows = list(read_rows(path, replace(reading, header=not columns.are_numbers)))
    if not rows:
        return [], []
    if isinstance(rows[0].get("translation"), dict):
        rows = [row.get("translation") or {} for row in rows]
        first, second = (*rows[0], None, None)[:2]
        columns = columns.among(rows[0])
        columns = Columns(text=columns.text or first, label=columns.label or second)
    columns = columns.among(rows[0])
    source = column(rows[0], SOURCES, columns.text, path, "sources")
    target = column(rows[0], TARGETS, columns.label, path, "targets")
    reading.say_columns(path, [source], target, "target")
    x, y = [], []
    for number, row in enumerate(rows, start=1):
        x.append(joined(row, source, path, number))
        several = isinstance(row.get(target), list) and row[target]
        cells = {target: row[target][0]} if several else row
        y.append(text_of(cells, target, path, number, "a target", numbers=True))
    return x, y


def joined(row: dict, name: str, path, number: int, empty: bool = False) -> str:
    """Returns a source text. A list of sentences is joined."""
    if isinstance(row.get(name), list) and row[name]:
        return " ".join(" ".join(list_of(row, name, path, number, "a source")).split())
    return text_of(row, name, path, number, "a source", empty)
