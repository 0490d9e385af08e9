"""Fine-tuning by options: other languages, restarts, early stopping, balance, and tasks as text in and text out."""

import json
from unittest import mock

import keras
import numpy as np
import pytest
import safetensors.numpy

from kerasbert.data import Tokenizer
from kerasbert.models import T5, Bert, BertConfig, T5Config
from kerasbert.objectives import MaskedLM, Seq2SeqLM
from kerasbert.training import read_log
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.reading.examples import Examples, read_examples
from pipelines.reading.label_names import label_names
from pipelines.reading.splits import count_repeated, named_sources, split_tenth
from pipelines.reading.tasks import TASKS
from pipelines.runs import finetuning
from pipelines.runs.adapting import WHOLE_MODEL, Lora
from pipelines.runs.reports import EpochProgress
from pipelines.runs.task_options import Generation, Optimizer, Start, Training
from pipelines.runs.text_to_text import Wording

pytestmark = pytest.mark.one_backend

ENGLISH, GERMAN = {"good": "fine warm", "bad": "dull cold"}, {"good": "fein warm", "bad": "fad kalt"}


def rows(words, count=20):
    """A table of short reviews; `warm` is a word of both languages."""
    draw = np.random.default_rng(0)
    labels = ["good", "bad"] * (count // 2)
    lines = [f"{' '.join(draw.choice(words[label].split(), 3))} film\t{label}" for label in labels]
    return "text\tlabel\n" + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of two languages and a model that has read both."""
    folder = tmp_path_factory.mktemp("languages")
    (folder / "train.en.tsv").write_text(rows(ENGLISH, 80))
    for language, words in (("en", ENGLISH), ("de", GERMAN)):
        (folder / f"test.{language}.tsv").write_text(rows(words))
    words = " ".join([*ENGLISH.values(), *GERMAN.values(), "film", "rte cola sentence question context : mnli"])
    tokenizer = Tokenizer.train("wordpiece", [words] * 20, vocabulary_size=80)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=32, initializer_range=0.2)
    model = MaskedLM(Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes)), tokenizer=tokenizer)
    model.save_to_preset(folder / "model")
    return folder


def test_trained_on_one_language_measured_on_two(folder, tmp_path):
    sources = (f"en={folder}/test.en.tsv", f"de={folder}/test.de.tsv")
    metrics = finetune(
        str(folder / "model"), str(folder / "train.en.tsv"), tmp_path, sources,
        training=Training(epochs=30, batch_size=8, seeds=(0, 1), patience=6, balanced=True),
        optimizer=Optimizer(learning_rate=0.003),
    )  # fmt: skip
    assert metrics["en_accuracy"] == 1.0
    assert {"de_accuracy", "de_macro_f1", "de_accuracy_deviation", "en_accuracy_deviation"} <= set(metrics)
    assert all(3 < run["epochs"] <= 30 for run in metrics["runs"])
    answers = [json.loads(line) for line in (tmp_path / "predictions_de.jsonl").read_text().splitlines()]
    assert len(answers) == 20
    right = np.mean([line["expected"] == line["answer"] for line in answers])
    assert right == metrics["runs"][0]["de_accuracy"]
    card = (tmp_path / "README.md").read_text()
    assert "de_accuracy" in card and "en_accuracy" in card
    found = evaluate(str(tmp_path), data=sources, answers=tmp_path / "answers.jsonl")
    assert found["de_accuracy"] == right and found["en_accuracy"] == 1.0
    assert len((tmp_path / "answers_de.jsonl").read_text().splitlines()) == 20


def test_early_stopping_goes_back_to_the_best_epoch(folder, tmp_path):
    """A rate at which training falls apart: what is saved is the first epoch that was best."""
    data = str(folder / "train.en.tsv")
    metrics = finetune(
        str(folder / "model"),
        data,
        tmp_path,
        training=Training(epochs=12, batch_size=8, patience=2),
        optimizer=Optimizer(learning_rate=0.5),
    )
    assert metrics["runs"][0]["epochs"] < 12
    rows = [json.loads(line) for line in (tmp_path / "logs/seed_0/log.jsonl").read_text().splitlines()]
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    shown, kept_out = split_tenth(read_examples("classes", data))
    from kerasbert.tasks import TextClassifier

    model = TextClassifier.from_preset(tmp_path)
    model.compile("sgd")
    assert len(shown) == 72 and len(kept_out) == 8
    assert model.evaluate(kept_out.x, kept_out.y, verbose=0, return_dict=True)["loss"] == pytest.approx(
        min(losses), rel=1e-4
    )


class Interrupted(Exception):
    pass


class Interrupting(EpochProgress):
    """Stops a run in its middle, as a machine does that is taken away."""

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if self.step > 12:
            raise Interrupted


def weights_of(folder):
    return safetensors.numpy.load_file(folder / "model.safetensors")


def test_an_interrupted_fine_tuning_continues(folder, tmp_path, monkeypatch):
    """The same command again gives the weights and the log of a run without interruption."""

    def tuned(name, **changed):
        options = dict(epochs=4, batch_size=16, checkpoints=True) | changed
        data, held_out = str(folder / "train.en.tsv"), (f"{folder}/test.en.tsv",)
        return finetune(str(folder / "model"), data, tmp_path / name, held_out, training=Training(**options))

    whole = tuned("whole")
    assert not (tmp_path / "whole" / "checkpoints").exists()
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(finetuning, "EpochProgress", Interrupting)
        tuned("stopped")
    assert (tmp_path / "stopped" / "checkpoints" / "seed_0").is_dir()
    with pytest.raises(ValueError, match="epochs"):  # another run
        tuned("stopped", epochs=5)
    steps = []
    monkeypatch.setattr(finetuning.StopOnNaN, "on_epoch_end", lambda callback, epoch, logs=None: steps.append(epoch))
    assert tuned("stopped")["runs"] == whole["runs"]
    assert 0 < len(steps) < len(read_log(tmp_path / "whole/logs/seed_0"))
    assert not (tmp_path / "stopped" / "checkpoints").exists()
    expected, found = weights_of(tmp_path / "whole"), weights_of(tmp_path / "stopped")
    assert all(np.array_equal(expected[name], found[name]) for name in expected) and expected.keys() == found.keys()
    rows = [[row["loss"] for row in read_log(tmp_path / name / "logs/seed_0")] for name in ("whole", "stopped")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    "task, header, row, lora",
    [
        ("embed", "anchor,positive", "{word} film,film {number}", WHOLE_MODEL),
        ("score", "text,label", "{word} film,{number}", Lora(rank=2)),
    ],
)
def test_other_interrupted_fine_tunings_continue(folder, tmp_path, monkeypatch, task, header, row, lora):
    rows = [row.format(word=word, number=number) for number, word in enumerate(["fine", "warm", "dull", "cold"] * 10)]
    (tmp_path / "train.csv").write_text("\n".join([header, *rows]))

    def tuned(name):
        options = dict(task=task, lora=lora, training=Training(epochs=4, batch_size=8, checkpoints=True))
        return finetune(str(folder / "model"), str(tmp_path / "train.csv"), tmp_path / name, **options)["runs"]

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(finetuning, "EpochProgress", Interrupting)
        tuned("stopped")
    assert tuned("stopped") == tuned("whole")


def test_an_interrupted_evaluation_continues(folder, tmp_path, monkeypatch):
    data, training = str(folder / "train.en.tsv"), Training(epochs=2, batch_size=16, checkpoints=True)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(finetuning.FineTuning, "measure", mock.Mock(side_effect=Interrupted))
        finetune(str(folder / "model"), data, tmp_path / "stopped", training=training)
    found = finetune(str(folder / "model"), data, tmp_path / "stopped", training=training)
    assert found["runs"] == finetune(str(folder / "model"), data, tmp_path / "whole", training=training)["runs"]


def test_checkpoints_do_not_hold_the_best_weights():
    with pytest.raises(ValueError, match="`checkpoints` cannot be combined with `patience` or `keep_best`"):
        Training(checkpoints=True, patience=2)


def test_tags_that_are_numbers_are_no_entities():
    """Their scores would count words outside entities as entities, and this is said."""
    with pytest.warns(UserWarning, match="Tags are numbers in a.jsonl: .* Write their names"):
        assert label_names("tags", Examples([["a", "b"]], [["1", "0"]]), where=" in a.jsonl") == ["0", "1"]
    assert label_names("tags", Examples([["a", "b"]], [["B-1", "O"]])) == ["O", "B-1"]


@pytest.mark.parametrize("classes", [2, 5])
def test_what_is_kept_out_has_classes_that_take_turns(classes):
    examples = Examples([str(i) for i in range(100)], [str(i % classes) for i in range(100)])
    shown, kept_out = split_tenth(examples)
    assert len(kept_out) == 10 and len(set(kept_out.y)) > 1
    assert sorted(map(int, shown.x + kept_out.x)) == list(range(100))
    assert split_tenth(examples) == (shown, kept_out)


def test_held_out_inputs_that_are_also_trained_on():
    held_out = {"a": Examples(["x", "z"], ["1", "0"]), "b": Examples(["y", "x", "y"], ["0"] * 3)}
    assert count_repeated(Examples(["x", "y"], ["0", "1"]), held_out) == {"a": 1, "b": 3}
    words, pairs = Examples([["a", "b"]], [["O", "O"]]), Examples([("a", "b"), ("b", "a")], ["0", "1"])
    assert count_repeated(words, {"": Examples([["a", "b"], ["a b"]], [["O", "O"], ["O"]])}) == {"": 1}
    assert count_repeated(pairs, {"": Examples([("a", "b"), ("a", "c")], ["0", "1"])}) == {"": 1}
    assert count_repeated(pairs, {"queries": Examples(["a", "c"], [["d1"], ["d2"]])}) == {"queries": 1}


def test_balance_gives_every_class_the_same_weight(folder):
    from pipelines.runs.task_models import batches_of, new_model

    model = new_model("classes", folder / "model", ["bad", "good"])
    examples = Examples(["warm film"] * 6 + ["dull film"] * 2, ["good"] * 6 + ["bad"] * 2)
    (batch,) = batches_of(model, "classes", examples, balanced=True, batch_size=8)
    _, y, weights = batch
    assert weights[y == 0].sum() == pytest.approx(4.0) and weights[y == 1].sum() == pytest.approx(4.0)
    with pytest.raises(ValueError, match="`balanced` is only for tasks of kind classes"):
        batches_of(model, "score", examples, balanced=True)


def test_names_of_held_out_data(tmp_path):
    (tmp_path / "a=b.tsv").write_text("")
    assert named_sources("test.tsv") == {"": "test.tsv"}
    assert named_sources(["en=x/test.tsv"]) == {"en": "x/test.tsv"}
    assert named_sources(("x/de.tsv", "hf://org/xnli:fr#test")) == {
        "de": "x/de.tsv", "xnli:fr_test": "hf://org/xnli:fr#test",
    }  # fmt: skip
    assert named_sources([str(tmp_path / "a=b.tsv")]) == {"": str(tmp_path / "a=b.tsv")}
    assert named_sources(["x/test.de,x/test.en"]) == {"": "x/test.de,x/test.en"}
    assert named_sources(["en/test.tsv", "de/test.tsv"]) == {"en_test": "en/test.tsv", "de_test": "de/test.tsv"}
    assert list(named_sources(["test.tsv", "test.csv"])) == ["test.tsv", "test.csv"]
    assert list(named_sources(["/a/x/test.tsv", "/b/x/test.tsv", "dev.tsv"])) == ["a_x_test", "b_x_test", "dev"]
    with pytest.raises(ValueError, match="Received twice: 'test'. Write name=path"):
        named_sources(["test.tsv", "test.tsv"])


def test_labels_of_data_sets_keep_their_order():
    examples = Examples(["a", "b"], ["not_equivalent", "equivalent"])
    assert label_names("classes", examples, order=TASKS["mrpc"].labels) == ["not_equivalent", "equivalent"]
    assert label_names("classes", examples) == ["equivalent", "not_equivalent"]


# === Text to text ===


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """A small T5 with a tokenizer over characters, which writes whatever it is taught."""
    folder = tmp_path_factory.mktemp("t5")
    words = "rte sentence1 sentence2 entailment not_entailment a b c d question context : ? . who what 0 1 2 3 4 5 stsb"
    tokenizer = Tokenizer.train("unigram", [words] * 30, vocabulary_size=145, family="t5")
    keras.utils.set_random_seed(0)
    sizes = dict(num_layers=1, num_heads=4, hidden_dim=64, head_dim=16, feed_forward_dim=96, dropout=0.0)
    ids = dict(pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id, decoder_start_id=tokenizer.pad_id)
    model = Seq2SeqLM(T5(T5Config(vocabulary_size=tokenizer.vocabulary_size, **sizes, **ids)), tokenizer=tokenizer)
    model.save_to_preset(folder)
    return str(folder)


def test_a_task_of_glue_as_text(text_model, tmp_path):
    lines = [f"{x} {x} {x} {x}\t{x} d\t{int(x == 'b')}" for x in "ab"] * 8
    (tmp_path / "rte.tsv").write_text("sentence1\tsentence2\tlabel\n" + "\n".join(lines))
    source = str(tmp_path / "rte.tsv")
    metrics = finetune(
        text_model, source, tmp_path / "model", source, task="rte", start=Start(text_to_text=True),
        training=Training(epochs=40, batch_size=8), optimizer=Optimizer(learning_rate=0.005),
    )  # fmt: skip
    answers = [json.loads(line) for line in (tmp_path / "model/predictions.jsonl").read_text().splitlines()]
    assert metrics["accuracy"] == 1.0 and set(metrics) >= {"f1", "matthews", "train_loss"}
    assert {(line["expected"], line["answer"]) for line in answers} == {("0", "entailment"), ("1", "not_entailment")}
    assert evaluate(str(tmp_path / "model"), data=(source,), task="rte")["accuracy"] == 1.0
    with pytest.raises(ValueError, match="`task` must be one of classes, .*Received: .other"):
        evaluate(str(tmp_path / "model"), data=(source,), task="other")


def test_a_task_with_a_prefix(text_model, tmp_path):
    """Training, measuring and answering read the same text, cut at the same length."""
    from pipelines.predict import predict

    lines = [f"{x} {x} {x}{' c' * 50}\t{x}" for x in "ab"] * 4
    (tmp_path / "a.tsv").write_text("document\tsummary\n" + "\n".join(lines))
    source = str(tmp_path / "a.tsv")
    options = dict(
        task="summarization",
        training=Training(epochs=30, batch_size=8),
        optimizer=Optimizer(learning_rate=0.005),
        start=Start(max_length=24),
        generation=Generation(max_new_tokens=4),
    )
    metrics = finetune(text_model, source, tmp_path / "model", source, **options)
    assert metrics["rouge1"] == 100.0
    answers = [json.loads(line) for line in (tmp_path / "model/predictions.jsonl").read_text().splitlines()]
    assert answers[0]["input"].startswith("summarize: a a a")
    found = evaluate(
        str(tmp_path / "model"), data=(source,), task="summarization", generation=Generation(max_new_tokens=4)
    )
    assert found == {name: metrics[name] for name in found}
    model = Seq2SeqLM.from_preset(tmp_path / "model")
    (batch, *_) = model.text_batches(["a " * 99], ["b " * 99], None, 1, 1, 0, False)[0]
    assert batch["token_ids"].shape == batch["decoder_token_ids"].shape == (1, 24)
    assert [len(ids) for ids in model.encode_prompts(["a " * 99])] == [24]
    predict(
        str(tmp_path / "model"),
        tmp_path / "a.tsv",
        tmp_path / "out.jsonl",
        generation=Generation(max_new_tokens=4),
        prefix="summarize: ",
    )
    said = [json.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert said == [answer["answer"] for answer in answers] == ["a", "b"] * 4


def test_one_class_of_a_text_to_text_task(text_model, tmp_path):
    (tmp_path / "rte.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tentailment\n")
    found = evaluate(text_model, data=(str(tmp_path / "rte.tsv"),), task="rte", generation=Generation(max_new_tokens=2))
    assert found["accuracy"] == 0.0  # a model that knows nothing writes no label


class Writer:
    """Stands for a model: says what it is told, and keeps what it was asked."""

    def __init__(self, answers):
        self.answers = answers

    def generate(self, texts, batch_size):
        self.asked = texts
        return self.answers


def test_scores_of_what_is_written():
    examples = Examples([("a", "b"), ("c", "d"), ("e", "f")], ["entailment", "not_entailment", "not_entailment"])
    mismatched = Wording("mnli_mismatched", TASKS["mnli_mismatched"], ["0", "1", "2"])
    assert mismatched(Examples([("P.", "H.")], ["2"])).x == ["mnli hypothesis: H. premise: P."]
    assert mismatched(Examples([("P.", "H.")], ["2"])).y == ["contradiction"]
    wording = Wording("rte", TASKS["rte"], ["entailment", "not_entailment"])
    writer = Writer(["entailment", "hello", "not_entailment"])
    scores, answers = wording.score(writer, examples)
    assert writer.asked[0] == "rte sentence1: a sentence2: b" and answers == writer.answers
    assert scores["accuracy"] == pytest.approx(2 / 3)  # no label is wrong whatever was asked
    scores, _ = wording.score(Writer(["hello"] * 3), examples)
    assert scores["accuracy"] == scores["f1"] == scores["matthews"] == 0, "what says nothing has no correlation"

    examples = Examples([("a", "b"), ("c", "d")], ["2.5", "5"])
    writer = Writer(["2.4", "many"])
    scores, _ = Wording("stsb", TASKS["stsb"]).score(writer, examples)
    assert writer.asked[0] == "stsb sentence1: a sentence2: b"
    assert Wording("stsb", TASKS["stsb"])(examples).y == ["2.4", "5.0"]
    assert scores["mean_squared_error"] == pytest.approx((0.1**2 + 6**2) / 2)

    context = "It was Ann's cat (Tom)."
    dataset = [{"paragraphs": [{"context": context, "qas": [
        {"id": "1", "question": "Whose cat?", "answers": [{"text": "Ann's", "answer_start": 7}]},
        {"id": "2", "question": "Who?", "answers": [{"text": "Tom", "answer_start": 18}]},
    ]}]}]  # fmt: skip
    examples = Examples([("Whose cat?", context), ("Who?", context)], [("Ann's", 7), ("Tom", 18)], dataset)
    writer = Writer(["Ann ' s", "( Tom )"])
    scores, answers = Wording("squad", TASKS["squad"]).score(writer, examples)
    assert writer.asked[0] == "question: Whose cat ?  context: It was Ann ' s cat ( Tom ) . "
    assert answers == ["Ann's", "(Tom)"] and scores == {"exact_match": 100.0, "f1": 100.0}
    with pytest.raises(ValueError, match="that of a pair, as in STS-B. Received: one text, 'alone'"):
        Wording("score", TASKS["score"])(Examples(["alone"], ["1"]))
    with pytest.raises(ValueError, match="classes, score, questions have a text-to-text form.*of tags"):
        Wording("ner", TASKS["ner"])


def test_minimal_pairs_by_a_language_model(folder, tmp_path):
    lines = [
        {"sentence_good": "warm film", "sentence_bad": "film dull"},
        {"sentence_good": "fad", "sentence_bad": "fein"},
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = evaluate(str(folder / "model"), data=(str(tmp_path / "pairs.jsonl"),))
    model = MaskedLM.from_preset(folder / "model")
    good, bad = ([model.score(line[key])["score"] for line in lines] for key in ("sentence_good", "sentence_bad"))
    assert found == {"accuracy": np.mean(np.array(good) > np.array(bad)), "pairs": 2}
    evaluate(str(folder / "model"), data=(str(tmp_path / "pairs.jsonl"),), answers=tmp_path / "answers.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [row["input"] for row in rows] == [
        {"acceptable": line["sentence_good"], "unacceptable": line["sentence_bad"], "paradigm": ""} for line in lines
    ]
    np.testing.assert_allclose([row["scores"] for row in rows], np.transpose([good, bad]), atol=1e-4)
    preferred = ["acceptable" if a > b else "unacceptable" for a, b in zip(good, bad, strict=True)]
    assert [row["answer"] for row in rows] == preferred and {row["expected"] for row in rows} == {"acceptable"}
    with pytest.raises(ValueError, match="--answers needs examples"):
        evaluate(str(folder / "model"), corpus=(str(tmp_path),), answers=tmp_path / "answers.jsonl")
    (tmp_path / "pairs.jsonl").write_text('{"sentence_good": "a"}')
    with pytest.raises(ValueError, match="row 1 without 'sentence_bad'"):
        evaluate(str(folder / "model"), data=(str(tmp_path / "pairs.jsonl"),))


def test_folders_of_minimal_pairs_are_scored_by_paradigm(folder, tmp_path):
    """Two paradigms of one phenomenon, in the files of BLiMP and of Zorro."""
    sentences = {"a": [("warm film", "film dull"), ("fad", "fein")], "b": [("dull", "gut")]}
    blimp, zorro = tmp_path / "blimp", tmp_path / "zorro"
    for made in (blimp, zorro):
        made.mkdir()
    for name, pairs in sentences.items():
        rows = [dict(sentence_good=x, sentence_bad=y, UID=name, linguistics_term="t", field="f") for x, y in pairs]
        (blimp / f"file_{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (zorro / f"many-words-{name}.txt").write_text("".join(f"{y}\n{x}\n" for x, y in pairs))
    model = MaskedLM.from_preset(folder / "model")
    right = {
        name: float(np.mean([model.score(x)["score"] > model.score(y)["score"] for x, y in pairs]))
        for name, pairs in sentences.items()
    }
    mean = np.mean(list(right.values()))
    found = evaluate(str(folder / "model"), data=(f"blimp={blimp}", f"zorro={zorro}"), task="minimal-pairs")
    expected = {"accuracy": mean, "pairs": 3, "paradigms": right}
    assert found == {
        **{f"blimp_{key}": v for key, v in (expected | {"phenomena": {"t": mean}, "fields": {"f": mean}}).items()},
        **{
            f"zorro_{key}": value
            for key, value in {
                **expected,
                "paradigms": {f"many-words-{name}": value for name, value in right.items()},
                "phenomena": {"many-words": mean},
            }.items()
        },
    }
    with pytest.raises(ValueError, match="`task` must match the model. Received: 'cola', of kind classes, for a Maske"):
        evaluate(str(folder / "model"), data=(str(blimp),), task="cola")


def test_other_models_refuse_minimal_pairs(text_model, tmp_path):
    with pytest.raises(ValueError, match="Received: 'minimal-pairs' for a Seq2SeqLM of kind sequences"):
        evaluate(text_model, data=(str(tmp_path),), task="minimal-pairs")
