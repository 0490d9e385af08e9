"""Inputs for predictions out of every form of file, read as they come."""

import gzip
import io
import json

import pytest

from kerasbert.objectives import CausalLM, Seq2SeqLM
from pipelines.predict import answers_of
from pipelines.reading.examples import read_examples
from pipelines.reading.inputs import EmptyLines, read_inputs, read_line
from pipelines.reading.labeled import Columns
from pipelines.runs.model_answers import FORMS

pytestmark = pytest.mark.one_backend


def read(folder, name, content, form, columns=None, encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return list(read_inputs(path, form, columns or Columns(), encoding))


def test_lines_by_what_a_model_takes():
    """A tab separates parts only where a model takes parts."""
    assert [read_line("a\tb", 1, form) for form in ("words", "texts", "pairs")] == ["a\tb", "a\tb", ("a", "b")]
    assert read_line("c\tx\ty", 1, "choices") == ("c", ["x", "y"])
    assert read_line('{"context": "c", "question": "q", "choices": ["x", "y"]}', 1) == ("c", "q", ["x", "y"])
    assert read_line('{"premise": "a", "hypothesis": "b", "label": 0}', 1, "pairs") == ("a", "b")
    assert read_line('{"text": "a", "pair": null}', 1, "pairs") == "a"
    assert read_line('{"translation": {"de": "ja", "en": "yes"}}', 1, "texts") == "ja"
    assert read_line('{"translation": {"de": "ja", "en": "yes"}}', 1, "texts", Columns("en")) == "yes"
    assert read_line('{"tokens": ["a", "b"]}', 1, "words") == ["a", "b"]
    assert read_line('{"article": ["One.", "Two."], "highlights": "x"}', 1, "texts") == "One. Two."


@pytest.mark.parametrize(
    "name, content, form, expected",
    [
        ("a.txt", "\ufeffone\r\n\r\n two\n", "pairs", [("one", "line 1"), ("two", "line 3")]),
        ("a.csv", '\ufefftext,label\r\n"a, ""b""\nc",\r\n"",1\r\n', "pairs", [('a, "b"\nc', "row 1"), ("", "row 2")]),
        ("a.tsv", 'question\tsentence\nq\t"a\n', "pairs", [(("q", '"a'), "row 1")]),
        ("a.csv", "question,A,B,C\nq,x,y,\n", "choices", [(("q", ["x", "y"]), "row 1")]),
        ("a.csv", "question,context\nq,c\n", "questions", [(("q", "c"), "row 1")]),
        ("a.json", '[{"text": "a"},\n {"text": "b"}]', "texts", [("a", "row 1"), ("b", "row 2")]),
        ("a.conll", "# id 1\tx\nAnn\tX\nran\n\n\nBob\tX", "words", [(["Ann", "ran"], "line 2"), (["Bob"], "line 6")]),
        ("a.txt.gz", gzip.compress("é\n".encode(), mtime=0), "texts", [("é", "line 1")]),
        ("a.csv.gz", gzip.compress(b"text\na\n", mtime=0), "texts", [("a", "row 1")]),
    ],
)
def test_files(tmp_path, name, content, form, expected):
    found = read(tmp_path, name, content, form)
    assert [(item.x, item.where) for item in found] == [(x, f"{tmp_path / name} {where}") for x, where in expected]


@pytest.mark.parametrize(
    "content, columns",
    [
        ("Tag Word\nB-PER Ann\nO #\n\nB-PER Bob\n", Columns()),
        ("Tag Word\nB-PER Ann\nO #\n\nB-PER Bob\n", Columns("Word")),
        ("# id = 1\n# text = Ann # ...\nAnn\tX\t_\t_\n#\tY\t_\t_\n\n# id = 2\nBob\tX\t_\t_", Columns()),
        ("# one two\n\nAnn O\n# O\n\nBob O", Columns()),
    ],
)
def test_words_are_those_that_are_measured(tmp_path, content, columns):
    """Names of columns and comments are read as `read_examples` reads them."""
    found = [item.x for item in read(tmp_path, "a.conll", content, "words", columns)]
    assert found == read_examples("tags", tmp_path / "a.conll", columns).x == [["Ann", "#"], ["Bob"]]


@pytest.mark.parametrize(
    "content, columns",
    [
        ("-DOCSTART- -X- -X- O\n\nAnn NNP I-NP B-PER\nran VBD I-VP O\n\nBob NNP I-NP B-PER\n", Columns()),
        ("# id 1\nAnn\tB-PER\r\nran\tO\r\n\r\nBob\tS-PER\r\n", Columns()),
        ("-DOCSTART-\n\nAnn NN\nran VB\n\nBob NN", Columns()),
        ("NN Ann\nVB ran\n\nNN Bob", Columns("1", label="0")),
    ],
)
def test_text_files_that_show_columns(tmp_path, content, columns):
    """CoNLL-2003 is a `test.txt`: its words are those that are measured."""
    found = [item.x for item in read(tmp_path, "test.txt", content, "words", columns)]
    assert found == read_examples("tags", tmp_path / "test.txt", columns).x == [["Ann", "ran"], ["Bob"]]


@pytest.mark.parametrize(
    "content",
    ["Vitamin B-12\nVitamin B-6", "Ann ran to O\nAnn O", "Ann ran\nBob sat", '{"text": "a O"}', "O\nO", "", "a O\nb x"],
)
def test_text_files_without_columns(tmp_path, content):
    found = [item.x for item in read(tmp_path, "a.txt", content, "words")]
    assert found == [line if line[:1] != "{" else "a O" for line in content.split("\n") if line]


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.csv", 'word,tag\nAnn,B-PER\n"""",O\n\nBob,B-PER\n'),
        ("a.tsv", 'word\ttag\nAnn\tB-PER\n"\tO\n\nBob\tB-PER\n'),
        ("a.csv", 'Ann,B-PER\n"""",O\n\nBob,B-PER\n'),
        ("a.tsv", 'Ann\tB-PER\n"\tO\n\nBob\tB-PER\n'),
    ],
)
def test_tables_of_words(tmp_path, name, content):
    """A word a row, as `finetune` reads it."""
    found = [item.x for item in read(tmp_path, name, content, "words")]
    assert found == read_examples("tags", tmp_path / name).x == [["Ann", '"'], ["Bob"]]


@pytest.mark.parametrize(
    "content, expected",
    [
        ("sentence,label\nAnn ran,1\nBob,0\n", ["Ann ran", "Bob"]),
        ("tokens,ner_tags\n\"['Ann', 'ran']\",\"['O', 'O']\"\n", [["Ann", "ran"]]),
        ("text\n" + '"a\nb"\n' * 60, ["a\nb"] * 60),
        ("text,label\nAnn,O\nBob,O\n", ["Ann", "Bob"]),
    ],
)
def test_tables_of_texts_for_taggers(tmp_path, content, expected):
    assert [item.x for item in read(tmp_path, "a.csv", content, "words")] == expected


def test_sentences_of_a_column_are_read_as_they_come(tmp_path):
    """No blank line is between them: memory holds one sentence, whatever the file."""
    path = tmp_path / "a.csv"
    path.write_text("sentence_id,word\n" + "".join(f"{i // 3},w{i}\n" for i in range(3_000)))
    found = read_inputs(path, "words", Columns())
    assert next(found).x == ["w0", "w1", "w2"]
    with open(path, "a") as file:
        file.write("1000,late\n")
    rest = list(found)
    assert len(rest) == 1_000 and rest[-1] == (["late"], f"{path} line 3002", None)


@pytest.mark.parametrize(
    "row, text",
    [
        ({"text": "a b", "source": "CNN", "summary": "a"}, "CNN"),
        ({"sentence": "a b", "document": "c d", "summary": "c"}, "c d"),
        ({"text": "a b", "summary": "a"}, "a b"),
    ],
)
def test_sources_are_those_that_a_model_learns_from(tmp_path, row, text):
    """What `finetune` takes for the source, `predict` takes, too; for other models the text is the text."""
    (found,) = read(tmp_path, "a.jsonl", json.dumps(row), "sources")
    assert [found.x] == read_examples("sequences", tmp_path / "a.jsonl").x == [text]
    assert read_line(json.dumps(row), 1, "texts") == (row["text"] if "text" in row else row["sentence"])


def test_forms_of_models():
    """A Seq2SeqLM is asked for sources, before it is a language model."""
    forms = [form for cls, form in FORMS.items() if issubclass(Seq2SeqLM, cls)]
    assert forms[0] == "sources" and [form for cls, form in FORMS.items() if issubclass(CausalLM, cls)][0] == "texts"


def test_ids_come_along(tmp_path):
    question = {"id": "7", "question": "q"}  # a test set has no answers
    content = json.dumps({"data": [{"paragraphs": [{"context": "c", "qas": [question]}]}]}, indent=1)
    (found,) = read(tmp_path, "a.json", content, "questions")
    assert (found.x, found.id) == (("q", "c"), "7")
    assert [item.id for item in read(tmp_path, "a.txt", 'b\n{"id": 3, "text": "a"}', "pairs")] == [None, 3]


def test_parquet(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    parquet.write_table(arrow.table({"tokens": [["a", "b"], ["c"]], "id": [1, 2]}), tmp_path / "a.parquet")
    found = list(read_inputs(tmp_path / "a.parquet", "words", Columns()))
    assert [(item.x, item.id) for item in found] == [(["a", "b"], 1), (["c"], 2)]


def test_columns_are_named_or_told(tmp_path):
    assert read(tmp_path, "a.csv", "x,y\na,b\n", "pairs", Columns("y", "x"))[0].x == ("b", "a")
    assert read(tmp_path, "a.tsv", "a\tb\n", "pairs", Columns("1"))[0].x == "b"
    assert read(tmp_path, "a.conll", "1 Ann\n2 ran\n", "words", Columns("1"))[0].x == ["Ann", "ran"]
    for content, columns, message in (
        ("x,y\na,b\n", None, "The column of .*a.csv row 1 that holds the text .*Received: x, y. Pass --columns.text"),
        ("x,y\na,b\n", Columns("z"), "a.csv row 1 has no column 'z'. It has: x, y"),
        ("text\na\nb,c\n", None, "a.csv row 2 has 2 cells"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, "a.csv", content, "pairs", columns)
    with pytest.raises(ValueError, match="a.txt is not valid utf-8: line 1, byte 3 .0xe9.*Give the encoding of"):
        read(tmp_path, "a.txt", b"caf\xe9\n", "pairs")
    with pytest.raises(ValueError, match="a.txt is not valid utf-8: .* such as --encoding utf-16"):
        read(tmp_path, "a.txt", "a\n".encode("utf-16"), "pairs")
    with pytest.raises(ValueError, match=r"'text'. Received: .*a.jsonl row 2 without it"):
        read(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": null}', "pairs")
    with pytest.raises(
        ValueError, match=r"'text'. Received: .*a.jsonl row 2 with 5. Put numbers that are texts in quo"
    ):
        read(tmp_path, "a.jsonl", '{"text": "a"}\n{"text": 5}', "pairs")
    with pytest.raises(ValueError, match=r"JSONL must be an object. Received: .*a.jsonl line 2 with '\[\"b\"\]'\."):
        read(tmp_path, "a.jsonl", '{"text": "a"}\n["b"]', "pairs")
    with pytest.raises(FileNotFoundError, match=r"no file .*none.csv\.$"):
        read_inputs(tmp_path / "none.csv", "pairs", Columns())
    with pytest.raises(FileNotFoundError, match=r"no file .*ab.csv. Did you mean .*/a.csv\?"):
        read_inputs(tmp_path / "ab.csv", "pairs", Columns())
    with pytest.raises(FileNotFoundError, match="no file .*none/a.csv, and no folder .*none."):
        read_inputs(tmp_path / "none" / "a.csv", "pairs", Columns())


@pytest.mark.parametrize("form", ["pairs", "questions"])
def test_a_line_has_at_most_two_texts(form):
    """The second would else have a tab inside."""
    lines = ["a\tb\n", "a\tb\tc\n"]
    with pytest.raises(ValueError, match="with a tab between them. Received: input line 2 with 3. Write tabs within"):
        list(read_inputs(lines, form, Columns()))
    for other, expected in (("texts", "a\tb\tc"), ("choices", ("a", ["b", "c"]))):
        assert list(read_inputs(lines, other, Columns()))[1].x == expected


@pytest.mark.parametrize("labeled", [False, True])
def test_empty_lines_are_counted(labeled, tmp_path):
    """In files and streams, of texts and of labels and texts."""
    lines = ["x a\n", "\n", "x b\n", " \t\n", "\n"]
    (tmp_path / "a.txt").write_text("".join(lines))
    format = "label-text" if labeled else "text"
    for source in (lines, tmp_path / "a.txt"):
        empty = EmptyLines()
        found = read_inputs(source, "pairs", Columns(), format=format, empty=empty)
        assert [item.x for item in found] == (["a", "b"] if labeled else ["x a", "x b"])
        assert empty.sentence() == "3 empty lines have no answer: 2, 4, 5"
    empty = EmptyLines()
    assert empty.sentence() is None
    empty.add(7)
    assert empty.sentence() == "1 empty line has no answer: 7"
    for number in range(8, 1_007):
        empty.add(number)
    assert empty.sentence() == "1,000 empty lines have no answer: 7, 8, 9, 10, 11, ..."


def test_answers_come_in_order_while_inputs_are_read():
    taken = []

    def lines():
        for number in range(1_000):
            taken.append(number)
            yield f"text {number}\n"

    answers = answers_of(read_inputs(lines(), "texts", Columns()), lambda texts: [{"length": len(t)} for t in texts], 8)
    assert next(answers) == {"input": "text 0", "length": 6} and len(taken) == 8
    assert [answer["input"] for answer in answers] == [f"text {number}" for number in range(1, 1_000)]


def test_the_mark_at_the_start_is_no_text():
    assert [item.x for item in read_inputs(["\ufeffa\n", '{"text": "b"}'], "pairs", Columns())] == ["a", "b"]
    assert [item.x for item in read_inputs(['\ufeff{"text": "b"}'], "pairs", Columns())] == ["b"]


def test_what_a_model_does_not_take_is_told_by_its_place():
    def answer(texts):
        if "bad" in texts:
            raise ValueError("It is bad.")
        return [{} for _ in texts]

    answers = answers_of(read_inputs(["a", "b", "", "bad", "c"], "texts", Columns()), answer, 2)
    assert [next(answers)["input"], next(answers)["input"]] == ["a", "b"]
    with pytest.raises(ValueError, match="^input line 4: It is bad."):
        next(answers)


@pytest.mark.parametrize(
    "content, place, likely",
    [
        (b"one\ncaf\xe9\n", "line 2, byte 7", "latin-1"),
        ("a\n".encode("utf-16"), "line 1, byte 0", "utf-16"),
        ("a\n".encode("utf-32"), "line 1, byte 0", "utf-32"),
        (b"x\n" * 240 + b"\xe9", "line 241, byte 480", "latin-1"),
    ],
)
def test_standard_input_in_another_encoding(content, place, likely):
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^the input is not valid utf-8: {place} .* such as --encoding {likely}"):
        list(read_inputs(lines, "pairs", Columns()))
