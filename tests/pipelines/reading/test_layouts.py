"""The files of well-known data sets, as their authors give them, are read alike by all commands."""

import json

import pytest

from pipelines.reading.examples import read_examples
from pipelines.reading.inputs import read_inputs
from pipelines.reading.labeled import Columns
from pipelines.reading.tasks import TASKS

pytestmark = pytest.mark.one_backend

FORMS = {"classes": "pairs", "score": "pairs", "choices": "choices"}


def both(path, task, labels=(), **options):
    """(x, y) as training and evaluation read a file, after a look at whether predictions read the same x."""
    spec = TASKS[task]
    found = read_examples(spec.kind, path, spec.columns, layouts=spec.layouts, **options)
    inputs = read_inputs(path, FORMS[spec.kind], spec.columns, layouts=spec.layouts, labels=labels, **options)
    assert [item.x for item in inputs] == found.x
    return found.x, found.y


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["train.tsv", "msr_paraphrase_train.txt"])
def test_mrpc(tmp_path, name):
    """A byte order mark, CRLF, and quotes that are never closed."""
    text = (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t702876\t702977\tAmrozi called him "the witness.\tHe "said" so.\r\n'
        '0\t2108705\t2108831\t"Yucaipa owned it\tIt, sold.\r\n'
    )
    assert both(write(tmp_path, name, text), "mrpc") == (
        [('Amrozi called him "the witness.', 'He "said" so.'), ('"Yucaipa owned it', "It, sold.")],
        ["1", "0"],
    )
    assert both(tmp_path / name, "classes")[1] == ["1", "0"], "by its header, without the name of the task"
    test = "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\ta\tb\n"
    spec = TASKS["mrpc"]
    assert [item.x for item in read_inputs(write(tmp_path, "test.tsv", test), "pairs", spec.columns)] == [("a", "b")]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_cola(tmp_path, newline):
    """Four columns without a header; the first row is an example. The test set has a header and no labels."""
    lines = ["gj04\t1\t\tOur friends won't buy this.", 'gj04\t0\t*\tThe "more, the\ufeffbest.', "cj99\t0\t??\tWho?"]
    path = write(tmp_path, "in_domain_train.tsv", "\ufeff" + newline.join(lines) + newline)
    assert both(path, "cola") == (
        ["Our friends won't buy this.", 'The "more, the\ufeffbest.', "Who?"],
        ["1", "0", "0"],
    )
    test = write(tmp_path, "test.tsv", "index\tsentence\n0\tBill ran.\n")
    assert [item.x for item in read_inputs(test, "pairs", TASKS["cola"].columns, layouts=TASKS["cola"].layouts)] == [
        "Bill ran."
    ]
    named = write(tmp_path, "named.tsv", "source\tlabel\tmark\tsentence\ngj04\t1\t\tBill ran.\n")
    assert both(named, "cola") == (["Bill ran."], ["1"])


def test_sst2(tmp_path):
    table = write(tmp_path, "train.tsv", 'sentence\tlabel\nhide new "secretions \t0\ncontains no wit \t0\n')
    assert both(table, "sst2") == (['hide new "secretions ', "contains no wit "], ["0", "0"])
    lines = '1 a stirring , "funny film\r\n0 in his first stab at\u00a0it .\r\n\r\n'
    for name in ("stsa.binary.train", "stsa.txt"):
        assert both(write(tmp_path, name, lines), "sst2") == (
            ['a stirring , "funny film', "in his first stab at\u00a0it ."],
            ["1", "0"],
        )
    assert both(tmp_path / "stsa.txt", "classes", labels=["0", "1"])[1] == ["1", "0"], "labels of the model tell"


@pytest.mark.parametrize("name", ["train_5500.label", "TREC.train.all", "trec", "trec.txt"])
def test_trec(tmp_path, name):
    """Latin-1 under any ending; the coarse label is in front of the colon."""
    text = "DESC:manner How did serfdom develop in and then leave Russia ?\nENTY:cremat What films featured \xe9 ?\n"
    texts = ["How did serfdom develop in and then leave Russia ?", "What films featured \xe9 ?"]
    for encoding in ("latin-1", "utf-8"):
        path = write(tmp_path, name, text.encode(encoding))
        assert both(path, "trec") == (texts, ["DESC", "ENTY"])
        assert both(path, "trec_fine") == (texts, ["DESC:manner", "ENTY:cremat"])


def test_ag_news(tmp_path):
    """Three quoted columns without a header; the text is the title and the description."""
    text = '"3","Wall St. ""Bears""","Reuters - Short-sellers, \\band\nmore."\r\n"4","Title","Described."\r\n'
    expected = ['Wall St. "Bears" Reuters - Short-sellers, \\band\nmore.', "Title Described."], ["3", "4"]
    assert both(write(tmp_path, "train.csv", text), "ag_news") == expected
    assert both(write(tmp_path, "named.csv", "Class Index,Title,Description\n" + text), "ag_news") == expected
    with pytest.raises(ValueError, match="begins at line 2. A quote"):
        both(write(tmp_path, "open.csv", '"3","a","b"\n"4","c,"d"\n'), "ag_news")


def test_race(tmp_path):
    passage = {"article": "P", "questions": ["Q", "R _"], "options": [["x", "y"], ["v", "w"]], "answers": ["B", "A"]}
    for folder, name in (("high", "1.txt"), ("middle", "2.txt")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, name, "\ufeff" + json.dumps(passage) + "\r\n")
    x, y = both(tmp_path, "race")
    assert x == [("P", "Q", ["x", "y"]), ("P", "R _", ["v", "w"])] * 2 and y == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="A folder of questions needs JSON files"):
        (tmp_path / "none").mkdir()
        read_examples("choices", tmp_path / "none")


def test_lines_of_label_and_text_for_predictions(tmp_path):
    """A label in front is no part of the text where all lines begin with one; a text may begin with a label's name."""

    def texts(content, labels, **options):
        path = write(tmp_path, "a.txt", content)
        return [item.x for item in read_inputs(path, "pairs", Columns(), labels=labels, **options)]

    assert texts("1 good\n0 bad\n", ["0", "1"]) == ["good", "bad"]
    assert texts("1 good\n" * 10, ["0", "1"]) == ["good"] * 10
    assert texts("1 good\n" * 9, ["0", "1"]) == ["1 good"] * 9, "too few to tell"
    assert texts("cat sat\n", ["cat", "dog"]) == ["cat sat"]
    assert texts("1 good\n0 bad\nfine\n", ["0", "1"]) == ["1 good", "0 bad", "fine"]
    assert texts("1 good\n0 bad\n", ["0", "1"], format="text") == ["1 good", "0 bad"]
    assert texts("x good\n", [], format="label-text") == ["good"]
    assert [x.x for x in read_inputs(["a good\n"], "pairs", Columns(), format="label-text")] == ["good"]
    with pytest.raises(ValueError, match="Standard input must be lines .* Received: --format csv. Give a file"):
        read_inputs(["a"], "pairs", Columns(), format="csv")


def test_formats_that_endings_do_not_tell(tmp_path):
    path = write(tmp_path, "data.dat", "text,label\nfine,1\ndull,0\n")
    with pytest.raises(ValueError, match="one of the extensions .csv, .*data.dat. .* --format"):
        read_examples("classes", path)
    assert both(path, "classes", format="csv") == (["fine", "dull"], ["1", "0"])
    words = write(tmp_path, "eng.testa", "Ann B-PER\nran O\n")
    assert read_examples("tags", words, format="conll").x == [["Ann", "ran"]]
    assert [item.x for item in read_inputs(words, "words", Columns(), format="conll")] == [["Ann", "ran"]]
    snli = write(tmp_path, "snli_1.0_train.txt", "gold_label\tsentence1\tsentence2\nneutral\ta\tb\n")
    assert both(snli, "snli") == ([("a", "b")], ["neutral"])
    remarks = write(tmp_path, "b.csv", "remark,label\nfine,1\n")
    assert both(remarks, "classes") == (["fine"], ["1"]), "of two columns, the other one"
