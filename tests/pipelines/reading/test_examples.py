"""Examples of every kind of task, from every form of file, and through fine-tuning, evaluation and answers."""

import json
import sys
from types import SimpleNamespace

import pytest

import kerasbert
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.reading.examples import read_examples
from pipelines.reading.inputs import read_inputs, read_line
from pipelines.reading.labeled import Columns
from pipelines.reading.tables import read_rows
from pipelines.reading.task_examples import first_of
from pipelines.runs.scores import question_scores
from pipelines.runs.task_options import Optimizer, Start, Training

pytestmark = pytest.mark.one_backend


def write(folder, name, text):
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def squad(*questions):
    return {
        "version": "2.0",
        "data": [{"title": "t", "paragraphs": [{"context": "the cat sat", "qas": list(questions)}]}],
    }


ANSWERED = {"id": "a", "question": "who sat", "answers": [{"text": "cat", "answer_start": 4}], "is_impossible": False}
OPEN = {"id": "b", "question": "who ran", "answers": [], "is_impossible": True}


def test_tags_from_columns_and_rows(tmp_path):
    columns = write(tmp_path, "a.conll", "-DOCSTART- X O\n\nAnn NNP B-PER\nran VBD O\n\n\nBonn NNP B-LOC\n")
    found = read_examples("tags", columns)
    assert (found.x, found.y) == ([["Ann", "ran"], ["Bonn"]], [["B-PER", "O"], ["B-LOC"]])
    assert read_examples("tags", columns, Columns(label="1")).y == [["NNP", "VBD"], ["NNP"]]
    tabs = write(tmp_path, "a.annotated", "a b\tO\nc\u00a0d\tB-X\r\n\t\ne\tO")
    assert read_examples("tags", tabs).x == [["a b", "c\u00a0d"], ["e"]]
    rows = write(tmp_path, "a.jsonl", '{"tokens": ["Ann", "\u2028"], "ner_tags": [1, 0]}\n')
    assert read_examples("tags", rows).y == [["1", "0"]]
    with pytest.raises(ValueError, match="row 1 of 2 words with 1 tags"):
        read_examples("tags", write(tmp_path, "b.jsonl", '{"tokens": ["Ann", "ran"], "tags": ["O"]}'))
    with pytest.raises(ValueError, match="word and a tag. Received: .* line 1: 'Ann'"):
        read_examples("tags", write(tmp_path, "b.conll", "Ann\n"))
    with pytest.raises(ValueError, match="has no examples"):
        read_examples("tags", write(tmp_path, "c.conll", "\n\n"))


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.conll", "\ufeffAnn\tB-PER\r\n#\tO\r\n \r\nBob B-PER\r\n"),
        ("a.conll", "# id 1\tdomain=en\nAnn\t_\t_\tB-PER\n#\t_\t_\tO\n\n# id 2\tdomain=en\nBob\t_\t_\tB-PER\n"),
        ("a.csv", 'Tag,Word\nB-PER,Ann\nO,"#"\n\nB-PER,Bob\n'),
        ("a.tsv", "token\tpos\tner_tag\nAnn\tX\tB-PER\n#\tX\tO\n\nBob\tX\tB-PER\n"),
    ],
)
def test_columns_with_names_and_comments(tmp_path, name, text):
    found = read_examples("tags", write(tmp_path, name, text))
    assert (found.x, found.y) == ([["Ann", "#"], ["Bob"]], [["B-PER", "O"], ["B-PER"]])


KAGGLE = [
    ("a.csv", 'Sentence #,Word,POS,Tag\nSentence: 1,Ann,NNP,B-PER\n,"""",``,O\nSentence: 2,Bob,NNP,B-PER\n'),
    ("a.csv", 'sentence_id,word,tag\n7,Ann,B-PER\n7,"""",O\n9,Bob,B-PER\n'),
    ("a.tsv", 'Sentence #\tWord\tTag\r\nSentence: 1\tAnn\tB-PER\r\n\t"\tO\r\nSentence: 2\tBob\tB-PER\r\n'),
    ("a.tsv", 'word\tsentence_idx\ttag\nAnn\t1.0\tB-PER\n"\t1.0\tO\n\nBob\t1.0\tB-PER\n'),
    ("a.csv", 'sentence,token,label\n1,Ann,B-PER\n1,"""",O\n2,Bob,B-PER\n'),
    ("a.conll", 'sentence_id word tag\n1 Ann B-PER\n1 " O\n2 Bob B-PER\n'),
]


@pytest.mark.parametrize("name, text", KAGGLE)
def test_a_column_that_says_which_sentence(tmp_path, name, text):
    """Kaggle's form has no blank lines, and may name a sentence at its first word only."""
    path = write(tmp_path, name, text)
    found = read_examples("tags", path)
    assert (found.x, found.y) == ([["Ann", '"'], ["Bob"]], [["B-PER", "O"], ["B-PER"]])
    assert [item.x for item in read_inputs(path, "words", Columns())] == found.x


def test_questions_from_squad_and_rows(tmp_path):
    found = read_examples("questions", write(tmp_path, "a.json", squad(ANSWERED, OPEN)))
    assert found.x == [("who sat", "the cat sat"), ("who ran", "the cat sat")] and found.y == [("cat", 4), None]
    assert read_examples("questions", tmp_path / "a.json", impossible=False).y == [("cat", 4)]
    row = {
        "id": "a",
        "question": "who sat",
        "context": "the cat sat",
        "answers": {"text": ["cat"], "answer_start": [4]},
    }
    found = read_examples("questions", write(tmp_path, "a.jsonl", row))
    assert found.y == [("cat", 4)] and "is_impossible" not in json.dumps(found.dataset)
    found = read_examples("questions", write(tmp_path, "b.jsonl", {"question": "q", "context": "a b", "answer": "b"}))
    assert found.y == [("b", 2)]
    bare = squad(
        {"id": "a", "question": "q", "answers": [{"text": "cat"}]}, {"id": "b", "question": "q", "answers": []}
    )
    found = read_examples("questions", write(tmp_path, "b.json", bare))
    assert found.y == [("cat", 4), None]
    assert [q["is_impossible"] for q in found.dataset[0]["paragraphs"][0]["qas"]] == [False, True]
    table = write(tmp_path, "a.csv", "question,context,answers\nq,a b,\"{'text': ['b'], 'answer_start': [2]}\"\nr,c,\n")
    assert read_examples("questions", table).y == [("b", 2), None]
    table = write(tmp_path, "b.csv", "question,context,answer,answer_start\nq,a b b,b,4\nr,a b b,b,\n")
    assert read_examples("questions", table).y == [("b", 4), ("b", 2)], "the second b, and the first one"
    wrong = squad({**ANSWERED, "answers": [{"text": "dog", "answer_start": 0}]})
    with pytest.raises(ValueError, match="part of its context. Received: .* question a: 'dog'"):
        read_examples("questions", write(tmp_path, "c.json", wrong))
    assert len(first_of(read_examples("questions", tmp_path / "a.json"), 1).dataset) == 1


def test_impossible_questions_have_no_answer(tmp_path):
    """Whatever answers stand there: plausible ones, perhaps of another context."""
    plausible = {**OPEN, "answers": [{"text": "dog", "answer_start": 0}]}
    found = read_examples("questions", write(tmp_path, "a.json", squad(ANSWERED, plausible)))
    assert found.y == [("cat", 4), None]
    assert [q["answers"] for q in found.dataset[0]["paragraphs"][0]["qas"]] == [ANSWERED["answers"], []]
    row = {"question": "who ran", "context": "the cat sat", "answers": ["cat"], "is_impossible": True}
    assert read_examples("questions", write(tmp_path, "a.jsonl", row)).y == [None]
    table = write(tmp_path, "a.csv", "question,context,answer,is_impossible\nq,a b,b,True\nr,a b,b,False\n")
    assert read_examples("questions", table).y == [None, ("b", 2)]


def test_tables_without_a_header(tmp_path):
    """Numbers of columns say that the first line is an example, whatever the kind."""
    table = write(tmp_path, "a.tsv", "ja\tyes\nnein\tno\n")
    found = read_examples("sequences", table, Columns(text="0", label="1"))
    assert (found.x, found.y) == (["ja", "nein"], ["yes", "no"])
    table = write(tmp_path, "b.tsv", "who sat\tthe cat sat\tcat\n")
    found = read_examples("questions", table, Columns("0", "1", "2"))
    assert (found.x, found.y) == ([("who sat", "the cat sat")], [("cat", 4)])


@pytest.mark.parametrize(
    "name, text, example, answer",
    [
        ("a.csv", "Why?,a,b,c,B\n", ("Why?", ["a", "b", "c"]), 1),
        ("a.jsonl", {"sent1": "A", "sent2": "B", "ending0": "x", "ending1": "y", "label": 1}, ("A", ["B x", "B y"]), 1),
        (
            "a.jsonl",
            {"article": "P", "question": "Q _", "options": ["x", "y"], "answer": "A"},
            ("P", "Q _", ["x", "y"]),
            0,
        ),
        (
            "a.jsonl",
            {"question": "Q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"},
            ("Q", ["x", "y"]),
            1,
        ),
        ("a.jsonl", {"premise": "P", "choice1": "x", "choice2": "y", "label": 0}, ("P", ["x", "y"]), 0),
        ("a.csv", "premise,choice1,choice2,label\nP,x,y,1\n", ("P", ["x", "y"]), 1),
        ("a.csv", "article,question,options,answer\nP,Q,\"['x', 'y']\",B\n", ("P", "Q", ["x", "y"]), 1),
        ("a.csv", "question,A,B,C,answer\nQ,x,y,,B\n", ("Q", ["x", "y"]), 1),
        ("a.csv", "Which letter is next?,A,B,B\n", ("Which letter is next?", ["A", "B"]), 1),
        ("a.jsonl", {"ctx": "C", "endings": ["x", "y"], "label": "1"}, ("C", ["x", "y"]), 1),
        (
            "a.jsonl",
            {"question_stem": "Q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
            ("Q", ["x", "y"]),
            1,
        ),
        ("a.jsonl", {"question": "Q", "options": {"A": "x", "B": "y"}, "answer": "B"}, ("Q", ["x", "y"]), 1),
        (
            "a.jsonl",
            {"context": "P", "question": "Q", "choices": ["x", "y"], "label": 1},
            ("P", "Q", ["x", "y"]),
            1,
        ),
    ],
)
def test_choices_of_every_form(tmp_path, name, text, example, answer):
    found = read_examples("choices", write(tmp_path, name, text))
    assert (found.x, found.y) == ([example], [answer])


def test_bad_choices(tmp_path):
    with pytest.raises(ValueError, match="right one of 2 choices .* row 1: 'C'"):
        read_examples("choices", write(tmp_path, "a.csv", "Why?,a,b,C\n"))
    with pytest.raises(ValueError, match="must have choices in the form of"):
        read_examples("choices", write(tmp_path, "b.jsonl", {"text": "a"}))
    with pytest.raises(ValueError, match="right one of 2 choices must be a number from 0.* row 2: '3'"):
        read_examples("choices", write(tmp_path, "c.csv", "Why?,a,b,1\nHow?,a,b,3\n"))
    with pytest.raises(ValueError, match="right one of 2 choices must be a number from 0.* row 2: '2'"):
        read_examples("choices", write(tmp_path, "c.csv", "Why?,a,b,0\nHow?,a,b,2\n"))
    with pytest.raises(ValueError, match=r"lists of the same length. Received: .*d.json with \['Q', 'R'\]"):
        read_examples("choices", write(tmp_path, "d.json", {**RACE, "answers": ["A"]}))


RACE = {
    "article": "P",
    "questions": ["Q", "R"],
    "options": [["x", "y"], ["v", "w"]],
    "answers": ["B", "A"],
    "id": "high1.txt",
}


def test_race_as_it_comes(tmp_path):
    """A file a passage with all its questions, in `.txt` or `.json`, and folders of such files."""
    expected = [("P", "Q", ["x", "y"]), ("P", "R", ["v", "w"])]
    for folder, name in (("high", "1.txt"), ("middle", "2.json")):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder, name, RACE)
        found = read_examples("choices", path)
        assert (found.x, found.y) == (expected, [1, 0])
        assert [(item.x, item.id) for item in read_inputs(path, "choices", Columns())] == [
            (x, "high1.txt") for x in expected
        ]
    found = read_examples("choices", tmp_path)
    assert (found.x, found.y) == (expected * 2, [1, 0] * 2)
    assert [item.x for item in read_inputs(tmp_path, "choices", Columns())] == found.x


def test_choices_inside_of_questions(tmp_path):
    """The files of ARC and of CommonsenseQA."""
    choices = [{"text": "x", "label": "1"}, {"label": "2", "text": "y"}]
    row = {"id": "q", "question": {"stem": "Q", "question_concept": "c", "choices": choices}, "answerKey": "2"}
    path = write(tmp_path, "a.jsonl", row)
    found = read_examples("choices", path)
    assert (found.x, found.y) == ([("Q", ["x", "y"])], [1])
    assert [item.x for item in read_inputs(path, "choices", Columns())] == found.x


def test_choices_are_counted_from_0_or_from_1(tmp_path):
    """A file that names its last choice by their number, and none by 0, counts from 1; letters say for themselves."""
    for text, y in (("Q,a,b,c,1\nR,a,b,c,3\n", [0, 2]), ("Q,a,b,c,1\nR,a,b,c,2\n", [1, 2])):
        assert read_examples("choices", write(tmp_path, "a.csv", text)).y == y
    rows = "question,choice1,choice2,choice3,label\nQ,a,b,,2\nR,a,b,c,2\n"
    assert read_examples("choices", write(tmp_path, "a.csv", rows)).y == [1, 1]


def test_choices_that_are_lost(tmp_path):
    path = write(tmp_path, "a.csv", "Who?,,,,,3\nWhy?,a,b,c,d,E\nHow?,a,b,c,d,B\n")
    with pytest.warns(UserWarning, match="^2 of 3 rows are skipped. The right one of 0 choices .* row 1: '3'"):
        found = read_examples("choices", path)
    assert (found.x, found.y) == ([("How?", ["a", "b", "c", "d"])], [1])


def test_sequences(tmp_path):
    sources, targets = write(tmp_path, "a.txt", "ein Hund\neine Katze\n"), write(tmp_path, "b.txt", "a dog\na cat\n")
    found = read_examples("sequences", f"{sources},{targets}")
    assert (found.x, found.y) == (["ein Hund", "eine Katze"], ["a dog", "a cat"])
    for side in ("x.de", "x.en"):
        write(tmp_path, side, "ja\r\nno")
    assert read_examples("sequences", f"{tmp_path}/x.de,{tmp_path}/x.en").y == ["ja", "no"]
    assert read_examples("sequences", write(tmp_path, "a,b.csv", "source,target\na,b\n")).x == ["a"]
    rows = write(tmp_path, "a.jsonl", {"source": ["One.\n", "Two."], "target": ["first", "second"]})
    assert (read_examples("sequences", rows).x, read_examples("sequences", rows).y) == (["One. Two."], ["first"])
    pairs = write(tmp_path, "b.jsonl", {"translation": {"de": "ja", "en": "yes"}})
    assert read_examples("sequences", pairs).y == ["yes"]
    assert read_examples("sequences", pairs, Columns(text="en", label="de")).y == ["ja"]
    with pytest.raises(ValueError, match="the same number of lines. Received: .* of 2 lines, .* of 1 lines"):
        read_examples("sequences", f"{sources},{write(tmp_path, 'c.txt', 'one')}")
    with pytest.raises(ValueError, match="sources cannot be guessed"):
        read_examples("sequences", write(tmp_path, "c.jsonl", {"a": "b"}))


def test_several_labels_and_lists_of_the_hub(tmp_path, monkeypatch):
    found = read_examples("labels", write(tmp_path, "a.csv", "text,label\nfine,good|new\nold,new\n"))
    assert found.y == [["good", "new"], ["new"]]
    found = read_examples("labels", write(tmp_path, "b.csv", "text,labels\nfine,good | new\nold,\n"))
    assert found.y == [["good", "new"], []]
    lists = write(tmp_path, "a.jsonl", '{"text": "a", "labels": ["good", "new"]}\n{"text": "b", "labels": []}')
    assert read_examples("labels", lists).y == found.y

    class Found(list):
        features = {"ner_tags": SimpleNamespace(feature=SimpleNamespace(names=["O", "B-X"])), "tokens": object()}

    asked = []

    def load_dataset(*name, split, streaming):
        asked.append((*name, split))
        return Found([{"tokens": ["a", "b"], "ner_tags": [0, 1]}])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert list(read_rows("hf://org/tags:small#test")) == [{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}]
    assert read_examples("tags", "hf://org/tags").y == [["O", "B-X"]] and asked[0] == ("org/tags", "small", "test")


def test_lines_of_predict():
    assert read_line("a\tb\n", 1) == ("a", "b") and read_line(" a ", 1) == "a"
    assert read_line('{"words": ["a", "b"]}', 1) == ["a", "b"]
    assert read_line('{"question": "q", "context": "c"}', 1) == ("q", "c")
    assert read_line('{"passage": "p", "question": "q", "choices": ["a", "b"]}', 1) == ("p", "q", ["a", "b"])
    assert read_line('{"text": "a", "pair": "b"}', 1) == ("a", "b")
    with pytest.raises(ValueError, match="^input line 3 is not valid JSON"):
        read_line("{oops", 3)
    with pytest.raises(ValueError, match="input line 2 that holds the text cannot be guessed .* Received: a, b"):
        read_line('{"a": 1, "b": 2}', 2)


FILES = {
    "ner": ("a.conll", "the O\ncat B-PET\nsat O\n\nthe O\ndog B-PET\nran O\n\n" * 4),
    "questions": ("a.json", squad(*({**ANSWERED, "id": str(i)} for i in range(8)))),
    "choices": ("a.csv", "the cat,sat,house,A\nthe dog,tree,ran,B\n" * 4),
}


@pytest.mark.parametrize("task", FILES)
def test_from_files_to_answers(task, finished_run, tmp_path, capsys):
    data = write(tmp_path, *FILES[task])
    options = dict(
        training=Training(epochs=12, batch_size=8), optimizer=Optimizer(learning_rate=0.01), start=Start(max_length=16)
    )
    metrics = finetune(str(finished_run[0] / "model"), str(data), tmp_path / "m", str(data), task, **options)
    best = metrics["f1" if task != "choices" else "accuracy"]
    assert best == (100.0 if task == "questions" else 1.0)
    answers = [json.loads(line) for line in (tmp_path / "m" / "predictions.jsonl").read_text().splitlines()]
    assert len(answers) == 8 and {"input", "expected", "answer"} < set(answers[0])
    assert {"score", "scores"} & set(answers[0]), "how sure the model is"
    assert (tmp_path / "m" / "logs" / "seed_0" / "curves.png").exists()

    found = evaluate(str(tmp_path / "m"), str(data), answers=tmp_path / "answers.jsonl")
    assert found == {name: metrics[name] for name in found}
    line = {
        "ner": "the cat sat",
        "questions": "who sat\tthe cat sat",
        "choices": {"context": "the dog", "choices": ["tree", "ran"]},
    }
    predict(str(tmp_path / "m"), write(tmp_path, "in.txt", line[task]), tmp_path / "out.jsonl")
    (answer,) = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {
        "ner": lambda: answer["entities"][0]["text"] == "cat",
        "questions": lambda: answer["answers"][0]["text"] == "cat",
        "choices": lambda: answer["text"] == "ran",
    }[task]()
    assert type(kerasbert.load(tmp_path / "m")).__name__ != "MaskedLM"


def test_unknown_tasks_and_missing_data(tmp_path):
    with pytest.raises(ValueError, match="`task` must be one of classes, .*Received: 'clases'. Did you mean classes"):
        finetune("model", task="clases")
    with pytest.raises(ValueError, match="no --data"):
        finetune("model", task="ner")


def test_scores_of_answerable_questions_have_no_total(tmp_path):
    """Of a file of version 2.0 whose questions all have answers, too."""
    found = read_examples("questions", write(tmp_path, "a.json", squad(ANSWERED)))
    model = SimpleNamespace(answer=lambda x, batch_size: [{"text": "cat", "null_odds": 0.0}])
    scores, _ = question_scores(model, found, 1)
    assert scores["exact"] == 100.0 and "total" not in scores


@pytest.mark.parametrize(
    "kind, name, content, said",
    [
        ("classes", "a.csv", "id,sentence,label\n1,a,x\n", "text in sentence, label in label"),
        ("score", "a.csv", "sentence1,sentence2,score\na,b,1\n", "text in sentence1, sentence2, label in score"),
        ("sequences", "a.csv", "summary,document\na,b\n", "text in document, target in summary"),
        (
            "questions",
            "a.csv",
            "question,context,answers\nwho?,he,he\n",
            "text in question, context, answers in answers",
        ),
        ("tags", "a.conll", "a X O\nb X B-P\n", "text in column 0, tags in column 2"),
        ("tags", "a.tsv", "word\ttag\na\tO\n", "text in word, tags in tag"),
        ("tags", "a.jsonl", '{"tokens": ["a"], "ner_tags": ["O"]}\n', "text in tokens, tags in ner_tags"),
    ],
)
def test_the_columns_that_are_read_are_said(kind, name, content, said, tmp_path):
    lines = []
    (tmp_path / name).write_text(content)
    read_examples(kind, tmp_path / name, say=lines.append)
    assert [str(line) for line in lines] == [f"{tmp_path / name}: {said}"]
