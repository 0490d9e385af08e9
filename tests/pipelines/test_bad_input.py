"""Whatever is wrong with a file is said with its name, the row and what to do."""

import json

import pytest

from pipelines.reading.examples import read_examples
from pipelines.reading.labeled import Columns

pytestmark = pytest.mark.one_backend


def squad(*questions, context="It was Ann."):
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]})


def question(**changes):
    return {"id": "7", "question": "who", "answers": [{"text": "Ann", "answer_start": 7}], **changes}


LINES = {
    "classes": [
        ("text,foo,bar\na,b,c\n", "The column of .*file.csv that holds the label cannot.*--columns.label"),
        ("text,label\nx,1\n  ,1\n", "file.csv row 2 without 'text'"),
        ("text,text,label\nx,y,1\n", "file.csv must have different names. Received: 'text' twice"),
        ("text,label\ncafé,1\n".encode() + "naïve,0\n".encode("latin-1"), "csv is not valid utf-8: line 3, byte 21"),
        ("text,label\n", "file.csv has no rows"),
        ('{"text": "x", "label": NaN}', "file.jsonl row 1 without 'label'"),
        ('{"text": "x", "label": "1"}\n{"text": "x"}', "file.jsonl row 2 without 'label'"),
        ('{"text": ["x"], "label": "1"}', "Texts must be strings. Received: .*row 1, column 'text'"),
        ('{"text": 5, "label": "1"}', "must be strings. Received: .*row 1, column 'text': 5. Put numbers that are"),
        ('{"text": "x", "label": "1"}\n\n[2, 3]', "one JSON object per example. Received: line 3 with 2. Write {"),
        ('{"data": [{"text": "x", "label": "1"}, "y"]}', "one JSON object per example. Received: item 2 with 'y'."),
        ('{"text": "x", "label": "1"}\n{"text"', "file.jsonl line 2 is not valid JSON"),
        ('{"text": "x", "label": ["a", "b"]}', "A label must be one name. Received: .*row 1.*--task labels"),
        ('label,text\n1,"a\n0,b\n', "file.csv is not valid CSV: unexpected end of data, at line 3. .*closed"),
        ('label,text\n1,"a" b\n', "file.csv is not valid CSV: .*, at line 2. .*doubled"),
        ("text,label\nx,1\ny,nan\n", "Labels must not be NaN. Received: .*file.csv row 2: 'nan'"),
        ("text,label\nx,1\n".encode("utf-16"), "file.csv is not valid utf-8: .*--encoding utf-16"),
    ],
    "labels": [
        ('{"text": "x", "labels": ["a", null]}', "row 1 without 'labels'"),
        ('{"text": "x", "labels": ["a"]}\n{"text": "x"}', "row 2 without 'labels'"),
    ],
    "score": [
        ("text,score\nx,1\ny,nan\n", "Scores must be finite. Received: .*file.csv row 2: 'nan'"),
        ("text,score\nx,1\ny,good\n", "Scores must be numbers. Received: .*file.csv row 2: 'good'. .*--task classes"),
    ],
    "tags": [
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "row 1 of 2 words with 1 tags"),
        ('{"tokens": "a b", "tags": "O O"}', "needs words, a list, in 'tokens'. Received: .*row 1 with 'a b'"),
        ('{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["a"]}', "needs tags, a list.* row 2 with None"),
        ('{"tokens": ["a", null], "tags": ["O", "O"]}', "needs words.* row 1"),
        ('{"tokens": ["a", 7], "tags": [0, 1]}', r"needs words, a list, .* row 1 with \['a', 7\]"),
    ],
    "questions": [
        (squad(question(answers=[{"answer_start": 7}])), "An answer needs a text. Received: .*file.json question 7"),
        (squad(question(answers=[{"text": "Bob"}])), "part of its context. Received: .*question 7: 'Bob'"),
        (squad(question(), context=""), "A question needs a context. Received: .*question 7"),
        (squad({"id": "7", "answers": []}), "A question needs a question. Received: .*question 7"),
        (squad(question(), question()), "a unique id. Received: .*question 7: the id occurs twice"),
        (squad({"question": "who", "answers": []}), "a unique id. Received: .*no id in"),
        (json.dumps({"data": [{"title": "x"}]}), "list of paragraphs. Received: .*file.json article 0"),
        (json.dumps({"data": [{"paragraphs": [{"context": "x"}]}]}), "list of questions, qas. Received: .*article 0"),
        ('{"question": 3, "context": "a", "answers": ["a"]}', "needs a question in 'question'.*row 1 with 3. Put"),
        ('{"question": "q", "answers": ["a"]}', "The column of .*file.jsonl that holds the contexts"),
        ('{"question": "q", "context": null, "answer": "a"}', "needs a context in 'context'.*row 1 without it"),
        ('{"question": "q", "context": "a", "answers": {"answer_start": [0]}}', "texts of answers.*row 1"),
        ('{"question": "q", "context": "a", "answers": {"text": ["a"], "answer_start": [0, 1]}}', "must have a start"),
        (squad(question(answers="Ann")), "An answer needs a text. Received: .*question 7 with 'Ann'"),
        (squad(question(answers=[{"text": "Ann", "answer_start": "x"}])), "a character index. Received: .*7: 'x'"),
        (json.dumps({"data": [{"paragraphs": ["x"]}]}), "list of questions, qas. Received: .*article 0"),
        (squad("who"), "list of questions, qas. Received: .*article 0"),
    ],
    "choices": [
        ('{"question": null, "choices": ["a", "b"], "label": 0}', "be texts. Received: .*file.jsonl row 1 with None"),
        ('{"question": "q", "choices": ["a", "b"], "label": NaN}', "a number from 0.*row 1: 'nan'"),
        ('{"article": "p", "question": "q", "options": "a, b", "answer": "A"}', "must be a list. .*row 1 with 'a"),
        ('{"ending0": "x", "ending1": "y", "label": 0}', "The column of .* that holds the contexts.* in row 1: end"),
        ('{"question": "q", "choices": ["a", "b"]}', "holds the right choices.*--columns.label"),
        ('{"question": "q", "choices": ["a", "b"], "label": 0}\n{"question": "q", "label": 0}', "form of SWAG.* row 2"),
        ('{"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "label": "A"}', "have a label.*row 1"),
    ],
    "sequences": [
        ('{"source": "a", "target": "b"}\n{"source": "a"}', "needs a target in 'target'.*row 2 without it"),
        ('{"source": " ", "target": "b"}', "needs a source in 'source'.*row 1 without it"),
        ('{"source": "a", "target": []}', r"needs a target.*row 1 with \[\]"),
        ('{"source": 2, "target": 3}', "needs a source in 'source'.*row 1 with 2. Put numbers that are texts"),
        ('{"translation": {"de": "a", "en": "b"}}\n{"translation": {"de": "a"}}', "needs a target in 'en'.*row 2"),
    ],
}  # fmt: skip


def written(folder, text):
    data = text if isinstance(text, bytes) else text.encode()
    suffix = "csv" if not data.startswith(b"{") else "json" if data.startswith(b'{"data"') else "jsonl"
    path = folder / f"file.{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("kind", "text", "message"), [(kind, *line) for kind in LINES for line in LINES[kind]])
def test_files(tmp_path, kind, text, message):
    with pytest.raises(ValueError, match=message):
        read_examples(kind, written(tmp_path, text))


def test_lines_of_other_widths(tmp_path):
    (tmp_path / "a.conll").write_text("Ann B-PER\nNew York B-LOC\n")
    with pytest.raises(ValueError, match="number of columns. Received: .*a.conll line 2: 'New York B-LOC', with 3"):
        read_examples("tags", tmp_path / "a.conll")


def test_files_that_are_not_gzip(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(b"text,label")
    with pytest.raises(ValueError, match="a.csv.gz is not a complete gzip file"):
        read_examples("classes", tmp_path / "a.csv.gz")


def test_columns_that_are_not_there(tmp_path):
    (tmp_path / "a.conll").write_text("Ann B-PER\n\nBob B-PER\n")
    for columns, message in (
        (Columns(label="5"), "must have 6 columns. Received: .*a.conll line 1"),
        (Columns(label="ner"), "have numbers. Received: --columns.label ner. Pass an index"),
    ):
        with pytest.raises(ValueError, match=message):
            read_examples("tags", tmp_path / "a.conll", columns)
    path = written(tmp_path, '{"question": "q", "choices": ["a", "b"], "label": 0}')
    with pytest.raises(ValueError, match="has no column 'right'"):
        read_examples("choices", path, Columns(label="right"))
    with pytest.raises(ValueError, match="`encoding` must be one that Python knows.*'utf-99'"):
        read_examples("classes", written(tmp_path, "text,label\na,1\n"), encoding="utf-99")


def test_pairs_of_files(tmp_path):
    (tmp_path / "a.de").write_text("ja\nnein\n")
    (tmp_path / "a.en").write_text("yes\n\n")
    with pytest.raises(ValueError, match="Every line needs a text. Received: .*a.en line 2"):
        read_examples("sequences", f"{tmp_path}/a.de,{tmp_path}/a.en")
    with pytest.raises(FileNotFoundError, match="no file .*b.en"):
        read_examples("sequences", f"{tmp_path}/a.de,{tmp_path}/b.en")


def test_what_is_not_wrong(tmp_path):
    """Numbers in a CSV file are texts, a mark at the start of a file is none, and answers come in four forms."""
    assert read_examples("classes", written(tmp_path, "text,label\n5,1\n")).x == ["5"]
    assert read_examples("classes", written(tmp_path, "\ufefftext,label\na,1\n")).x == ["a"]
    assert read_examples("choices", written(tmp_path, '{"question": "q", "choices": ["a", "b"], "label": 1.0}')).y == [
        1
    ]
    for answer in (
        '"Ann"',
        '["Ann"]',
        '{"text": ["Ann"], "answer_start": [7]}',
        '[{"text": "Ann", "answer_start": 7}]',
    ):
        line = f'{{"question": "who", "context": "It was Ann.", "answers": {answer}}}'
        assert read_examples("questions", written(tmp_path, line)).y == [("Ann", 7)]
    for answer in ('""', "[]", "null", '{"text": [], "answer_start": []}'):
        line = f'{{"question": "who", "context": "It was Ann.", "answers": {answer}}}'
        assert read_examples("questions", written(tmp_path, line)).y == [None]
