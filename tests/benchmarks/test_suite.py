"""The suite of small tasks: its cells, their pairing by seeds, resuming, its table, and its data sets."""

import json

import numpy as np
import pytest

from benchmarks.studies.suite import run as suite
from benchmarks.studies.suite import scores as suite_scores
from benchmarks.studies.suite.minimal_pairs import generate
from benchmarks.studies.suite.report import write_report
from benchmarks.studies.suite.run import FILES, SuiteOptions, run_suite
from benchmarks.studies.suite.tasks import FINE_TUNING, short_contexts, summary_pairs
from kerasbert.data import Tokenizer
from kerasbert.models import (
    GPT2,
    Bert,
    BertConfig,
    GPT2Config,
    ModernBert,
    ModernBertConfig,
    Transformer,
    TransformerConfig,
)
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from pipelines.reading.examples import Examples

pytestmark = pytest.mark.one_backend

WORDS = "the old cat dog hen cow saw met hid led by in a house tree garden".split()
SIZES = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=64)


def sentence(draw, count=9):
    return " ".join(draw.choice(WORDS, count)).capitalize() + "."


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with small files of all data sets."""
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in {name.partition("/")[0] for files in FILES.values() for name in files}:
        (folder / name).mkdir()
    contexts = [sentence(draw, 12) for _ in range(8)]
    answers = [{"text": text.split()[4], "answer_start": text.find(text.split()[4])} for text in contexts]
    questions = [
        {"context": text, "qas": [{"id": str(i), "question": "Who met the cat?", "answers": [answer]}]}
        for i, (text, answer) in enumerate(zip(contexts, answers, strict=True))
    ]
    squad = json.dumps({"data": [{"paragraphs": questions}]})
    tags = "".join("the\tO\ncat\tB-person\nsaw\tO\nthe\tO\nhouse\tB-location\n\n" for _ in range(8))
    qnli = "question\tsentence\tlabel\n" + "".join(
        f"{sentence(draw)}\t{sentence(draw)}\t{label}\n" for label in ("entailment", "not_entailment") * 4
    )
    stsb = "".join(f"{sentence(draw, 5)},{sentence(draw, 5)},{i / 2}\n" for i in range(10))
    summaries = "".join(json.dumps({"target": [sentence(draw) for _ in range(3)]}) + "\n" for _ in range(4))
    reviews = "".join(f"{i % 2} {sentence(draw)}\n" for i in range(20))
    texts = dict(squad=squad, wnut17=tags, qnli=qnli, stsb=stsb, summaries=summaries, reviews=reviews)
    for task, text in texts.items():
        for file in FINE_TUNING[task].files:
            (folder / file).write_text(text)
    (folder / FILES["cloze"][0]).write_text("\n".join(sentence(draw) for _ in range(30)))
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [" ".join(WORDS)] * 9, vocabulary_size=70, lowercase=True)


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "bert"
    MaskedLM(Bert(BertConfig(tokenizer.vocabulary_size, **SIZES)), tokenizer=tokenizer).save_to_preset(path)
    return str(path)


def options(*parts, **changes):
    return SuiteOptions(**{**dict(seeds=(0, 1), examples=6, pairs=2, sentences=12, parts=parts), **changes})


# === Cells ===


def test_a_suite_is_measured_once_and_resumed(model, data, tmp_path, monkeypatch, capsys):
    small = options("cloze", "vectors", "stsb")
    found = run_suite(model, tmp_path, data, options=small)
    lines = (tmp_path / "cells.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["cell"]["task"], row["cell"]["start"], row["cell"]["seed"]) for row in rows] == [
        *(("cloze", "pretrained", 0), ("cloze", "unigrams", 0)),
        *(("vectors", "pretrained", 0), ("vectors", "scratch", 0)),
        *(("stsb", start, seed) for seed in (0, 1) for start in ("pretrained", "scratch")),
    ]
    assert [row["training"] for row in rows[4:]] == [6] * 4 and {row["count"] for row in rows[4:]} == {10}
    values = [row["scores"]["spearman"] for row in rows if row["cell"]["start"] == "scratch"][1:]
    assert found["stsb_scratch"] == np.mean(values)
    table = (tmp_path / "suite.md").read_text()
    assert table in capsys.readouterr().out
    assert "| task | score | pretrained | compared with |" in table and table.count("____") == 10

    with monkeypatch.context() as patched:
        patched.setattr(suite_scores, "new_model", None)  # nothing is trained again
        assert run_suite(model, tmp_path, data, options=small) == found
    (tmp_path / "cells.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert run_suite(model, tmp_path, data, options=small) == found  # the lost cell has the same score again
    run_suite(model, tmp_path, data, options=options("vectors", examples=5))
    assert (tmp_path / "cells.jsonl").read_text().count("\n") == 8  # vectors do not depend on the number of examples


def test_cells_that_another_process_measures_meanwhile_are_not_measured_again(model, data, tmp_path, monkeypatch):
    found = run_suite(model, tmp_path / "other", data, options=options("vectors"))
    lines = (tmp_path / "other" / "cells.jsonl").read_text()
    calls = []

    def measure(*arguments):
        calls.append(arguments)
        (tmp_path / "cells.jsonl").write_text(lines)
        return {key: value for key, value in json.loads(lines.splitlines()[0]).items() if key != "cell"}

    monkeypatch.setattr(suite, "vector_scores", measure)
    assert run_suite(model, tmp_path, data, options=options("vectors")) == found
    assert len(calls) == 1 < lines.count("\n")


def test_starts_are_paired_by_seeds(model, data, tmp_path, monkeypatch):
    """The same seed has the same examples in the same order for all starts, also for a reference."""
    seen = []
    original = suite_scores.batches_of

    def watched(model, kind, examples, **settings):
        batches = original(model, kind, examples, **settings)
        seen.append([batch[1].tolist() for batch in (batches[step] for step in range(len(batches)))])
        return batches

    monkeypatch.setattr(suite_scores, "batches_of", watched)
    run_suite(model, tmp_path, data, options=options("stsb", reference=model, epochs=3))
    assert len(seen) == 6 and len(seen[0]) == 3  # three passes of one batch
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5]
    scores = [json.loads(line)["scores"] for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert scores[0] == scores[2] != scores[1]  # the reference is the same model here, scratch is another
    table = (tmp_path / "suite.md").read_text()
    assert "| reference |" in table and "| +0.0 ± 0.0 | 1.000 | undecided |" in table


@pytest.mark.parametrize("task", ["wnut17", "squad", "qnli"])
def test_every_kind_of_task_can_be_trained(task, model, data, tmp_path):
    found = run_suite(model, tmp_path, data, options=options(task, seeds=(0,)))
    assert set(found) == {f"{task}_pretrained", f"{task}_scratch"}
    assert all(0 <= score <= 100 for score in found.values())
    (row, _) = map(json.loads, (tmp_path / "cells.jsonl").read_text().splitlines())
    assert tuple(row["scores"]) == FINE_TUNING[task].metrics


def test_models_are_trained_in_the_given_dtype(model, data, tmp_path, monkeypatch):
    policies = []
    original = suite_scores.new_model

    def watched(*arguments, **settings):
        policies.append(settings["dtype"])
        return original(*arguments, **settings)

    monkeypatch.setattr(suite_scores, "new_model", watched)
    for dtype in (None, "mixed_bfloat16"):
        run_suite(model, tmp_path, data, options=options("stsb", seeds=(0,), dtype=dtype))
    assert policies == [None] * 2 + ["mixed_bfloat16"] * 2
    cells = [json.loads(line)["cell"] for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [cell.get("dtype") for cell in cells] == policies
    assert "peak learning rate: 0.0005, dtype: mixed_bfloat16. A seed" in (tmp_path / "suite.md").read_text()


def test_without_data_minimal_pairs_are_measured(model, tmp_path, capsys):
    pairs = generate(pairs=40)
    (tmp_path / "text.txt").write_text("\n".join(f"{pair.good} {pair.bad}" for pair in pairs) * 50)
    found = run_suite(model, tmp_path / "out", text=(tmp_path / "text.txt",), options=options())
    assert set(found) == {f"minimal_pairs_{start}" for start in ("pretrained", "unigrams", "5-grams")}
    assert found["minimal_pairs_unigrams"] == 50.0
    table = capsys.readouterr().out
    assert "| paradigm | pretrained | unigrams | 5-grams |" in table and "| binding | " in table


def test_what_a_model_does_not_fit_is_left_out(tokenizer, data, tmp_path, capsys):
    causal = CausalLM(GPT2(GPT2Config(tokenizer.vocabulary_size, **SIZES)), tokenizer=tokenizer)
    causal.save_to_preset(tmp_path / "gpt2")
    chosen = SuiteOptions(parts=("cloze", "vectors"), seeds=(0,))
    found = run_suite(str(tmp_path / "gpt2"), tmp_path / "out", data, options=chosen)
    assert set(found) == {"vectors_pretrained", "vectors_scratch"}
    assert "- cloze of the pretrained model, a CausalLM: needs a MaskedLM\n" in capsys.readouterr().out


def test_a_backbone_shares_the_cells_from_scratch_with_a_masked_lm(tokenizer, data, tmp_path):
    """The model of such a folder has no tokenizer, but the folder does."""
    both = MaskedLM(ModernBert(ModernBertConfig(tokenizer.vocabulary_size, **SIZES)), tokenizer=tokenizer)
    both.save_to_preset(tmp_path / "masked_lm")
    both.backbone.save_to_preset(tmp_path / "backbone")
    tokenizer.save(tmp_path / "backbone")
    for name in ("masked_lm", "backbone"):
        found = run_suite(str(tmp_path / name), tmp_path / "out", data, options=options("stsb", seeds=(0,)))
        assert set(found) == {"stsb_pretrained", "stsb_scratch"}
    lines = (tmp_path / "out" / "cells.jsonl").read_text().splitlines()
    starts = [json.loads(line)["cell"]["start"] for line in lines]
    assert starts == ["pretrained", "scratch", "pretrained"]


# === Errors ===


def test_mistakes_have_plain_errors(model, data, tokenizer, tmp_path):
    def fails(error, message, output=tmp_path / "out", data=data, text=(), model=model, **changes):
        with pytest.raises(error, match=message):
            run_suite(model, output, data, text, SuiteOptions(**changes))

    fails(NotADirectoryError, "Received: .*stsb-en-test.csv, a file", output=data / FILES["vectors"][0])
    fails(NotADirectoryError, "Received: .*nowhere", data=tmp_path / "nowhere")
    fails(ValueError, "`parts` must be among minimal_pairs, .*Received: sst2", parts=("sst2",))
    fails(ValueError, "parts qnli without `data`. Add --data FOLDER", data=None, parts=("qnli",))
    fails(ValueError, "`examples` must be at least 1. Received: 0", examples=0)
    fails(ValueError, "`epochs` must be at least 1. Received: 0", epochs=0)
    fails(ValueError, "needs a `reference`. Received: 0.001 without one", reference_learning_rate=1e-3)
    fails(ValueError, "`seeds` must be at least 1. Received: 0", seeds=())
    fails(ValueError, "`seeds` must be different. Received: 1, 1", seeds=(1, 1))
    fails(FileNotFoundError, "Received: .*nothing.txt, which does not exist", text=(tmp_path / "nothing.txt",))
    (tmp_path / "empty").mkdir()
    fails(FileNotFoundError, "lacks .*qnli_train.tsv, .*qnli_dev.tsv, for qnli. .*other parts: --parts minimal_pairs",
          data=tmp_path / "empty", parts=("qnli", "minimal_pairs"))  # fmt: skip
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "cells.jsonl").write_text("{}\n")
    fails(ValueError, "in line 1: '{}'. Delete the line", output=tmp_path / "broken", parts=("vectors",))
    config = TransformerConfig(tokenizer.vocabulary_size, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24)
    Seq2SeqLM(Transformer(config), tokenizer).save_to_preset(tmp_path / "seq2seq")
    fails(ValueError, "encoders and causal language models. Received: .*a Seq2SeqLM", model=tmp_path / "seq2seq")
    assert not (tmp_path / "out").exists()


# === Table ===


def test_the_table_tests_differences(tmp_path):
    """Three tasks with t = 11.44, -4.24 and 0, so p = 0.00033, 0.0132 and 1, with Holm's factors 3, 2 and 1."""

    def rows(task, start, values, metric="accuracy"):
        rate = 1e-4 if start == "reference" else 3e-4
        cell = dict(task=task, start=start, examples=2000, learning_rate=rate, epochs=2 if task == "stsb" else 1)
        return [{"cell": {**cell, "seed": seed}, "scores": {metric: v}, "count": 9} for seed, v in enumerate(values)]

    found = [
        *rows("qnli", "pretrained", [62, 61, 63, 62, 62]),
        *rows("qnli", "scratch", [50, 51, 52, 51, 46]),
        *rows("qnli", "reference", [80, 80, 81, 80, 80]),
        *rows("reviews", "pretrained", [60, 60, 60, 60, 60]),
        *rows("reviews", "scratch", [61, 62, 63, 64, 65]),
        *rows("stsb", "pretrained", [10, 20, 30, 40, 50], "spearman"),
        *rows("stsb", "scratch", [20, 10, 40, 30, 50], "spearman"),
        {"cell": dict(task="vectors", start="pretrained", seed=0), "scores": {"spearman": 0.0}, "count": 103},
        {"cell": dict(task="cloze", start="pretrained", seed=0), "scores": {"top_1": 20.0}, "count": 400},
    ]
    text = write_report(tmp_path / "suite.md", "mine", found, ["cloze of the reference"])
    assert (tmp_path / "suite.md").read_text() == text
    assert "| qnli | accuracy | 62.0 ± 0.3 | scratch | 50.0 ± 1.0 | +12.0 ± 1.0 | < 0.001 | better |" in text
    assert "| reviews | accuracy | 60.0 ± 0.0 | scratch | 63.0 ± 0.7 | -3.0 ± 0.7 | 0.026 | worse |" in text
    assert "| stsb | spearman | 30.0 ± 7.1 | scratch | 30.0 ± 7.1 | +0.0 ± 4.5 | 1.000 | undecided |" in text
    assert "epochs:\n1 to 2, peak learning rate: 0.0003 (0.0001 for the reference)." in text
    assert "| vectors | spearman | 0.0 ± 10.0 |" in text and "| cloze | top_1 | 20.0 ± 2.0 |" in text
    assert text.endswith("## Left out\n\n- cloze of the reference\n")


def test_an_unfinished_suite_has_a_table(tmp_path):
    cell = dict(task="qnli", start="pretrained", seed=0, examples=2000, learning_rate=3e-4, epochs=4)
    row = {"cell": cell, "scores": {"accuracy": 61.0}, "count": 9}
    text = write_report(tmp_path / "suite.md", "mine", [row], [])
    assert "| qnli | accuracy | 61.0 |  |" in text and "epochs:\n4, peak" in text


# === Data sets ===


def test_contexts_are_cut_around_answers():
    words = [f"w{i}" for i in range(50)]
    context, answers = " ".join(words), ("w20 w21", "w0", "w49", " ".join(words[5:20]))
    entries = [
        {"id": str(i), "question": "?", "answers": [{"text": a}, {"text": "w21"}]} for i, a in enumerate(answers)
    ]
    dataset = [{"paragraphs": [{"context": context, "qas": entries * 10}]}]
    examples = Examples([("?", context)] * 40, [(a, context.find(a)) for a in answers] * 10, dataset)
    found = short_contexts(examples, 10)
    assert len(found) == 30  # an answer of 15 words does not fit
    places = set()
    for (_, short), (answer, start), article in zip(found.x, found.y, found.dataset, strict=True):
        assert len(short.split()) == 10 and short in context and short[start:].startswith(answer)
        (paragraph,) = article["paragraphs"]
        assert paragraph["context"] == short
        kept = [a["text"] for a in paragraph["qas"][0]["answers"]]
        assert kept == [answer, *(["w21"] if "w21" in short else [])]
        places |= {len(short[:start].split())} if answer == answers[0] else set()
    assert len(places) > 4


def test_pairs_of_summaries(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"target": t}) + "\n" for t in (["a", "b"], ["c"], ["d", "e"]))
    )
    found = summary_pairs(tmp_path / "a.jsonl")
    assert found.x == [("a", "b"), ("a", "e"), ("d", "e"), ("d", "b")]
    assert found.y == ["same", "different", "same", "different"]


def test_one_file_is_split_by_hashes(data):
    training, testing = FINE_TUNING["reviews"].examples(data)
    assert (len(training), len(testing)) == (18, 2)
    assert not set(training.x) & set(testing.x)
    assert FINE_TUNING["reviews"].examples(data)[1] == testing
