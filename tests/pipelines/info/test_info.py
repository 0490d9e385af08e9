"""`info`: weights, operations and memory against arithmetic and real models, and what it says of files."""

import json
import re

import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import Reranker, TextClassifier, TextEmbedder
from pipelines.info.command import info
from pipelines.info.uses import FINETUNED, uses
from pipelines.reading.tasks import TASKS

pytestmark = pytest.mark.one_backend

D, F, L, V = 128, 512, 64, 30522  # width, feed-forward width, length and vocabulary of bert_tiny
FLOAT32 = ("float32",)


def test_weights_of_bert_base_are_those_of_the_paper():
    """110 M with the pooler and next-sentence prediction, 109.5 M without them."""
    found = info("bert_base", length=128, dtypes=FLOAT32)
    assert found["weights"]["total"] == found["weights"]["trained"] == 109_514_298
    block = 12 * 768**2 + 13 * 768
    assert found["weights"]["parts"]["12 blocks"] == 12 * block
    assert sum(found["weights"]["parts"].values()) == 109_514_298


def test_an_objective_that_calls_its_layers_in_two_ways():
    """The decoder of TSDAE reads the tokens with the layers of the encoder, so that there are more than two passes."""
    decoding, encoding = (
        info(name, length=32, dtypes=FLOAT32)["operations"]["forward"] for name in ("tsdae.tiny", "bert.tiny")
    )
    assert decoding["per_row"] > 1.5 * encoding["per_row"]


@pytest.mark.parametrize("size", ["electra_small", "t5_small"])
def test_weights_are_counted_without_creating_them(size):
    backbone = kerasbert.models.Backbone.from_preset(size, load_weights=False)
    assert info(size, "Backbone", length=8, dtypes=FLOAT32)["weights"]["total"] == backbone.count_params()


def test_operations_of_an_encoder():
    """Two operations for each multiplication and addition; training takes three times as many."""
    found = info("bert_tiny", "Backbone", length=L, batch_size=3, dtypes=FLOAT32)["operations"]
    projections, feed_forward, attention = 4 * D * D, 2 * D * F, 2 * L * D
    row = 2 * (2 * L * (projections + feed_forward + attention) + D * D)  # the pooler reads one token
    assert found["forward"] == {"per_row": row, "per_batch": 3 * row, "per_token": row / L}
    assert found["training"]["per_batch"] == 9 * row


def test_memory():
    found = info("bert_tiny", length=L, batch_size=2, dtypes=("float32", "mixed_bfloat16", "bfloat16"))
    weights, memory = found["weights"]["total"], found["memory"]
    assert weights == V * D + 512 * D + 2 * D + 2 * D + 2 * (12 * D * D + 13 * D) + D * D + D + 2 * D + V
    full, mixed, half = (memory[dtype]["train"] for dtype in memory)
    assert full["weights"] == full["gradients"] == mixed["weights"] == 4 * weights
    assert half["weights"] == mixed["half_weights"] == 2 * weights and full["half_weights"] == 0
    assert 0 <= full["optimizer"] - 8 * weights < 64  # two moments of AdamW, and its counters
    assert half["activations"] < full["activations"] and full["attention_weights"] >= 2 * 2 * 2 * L * L * 4
    for use in ("train", "serve"):
        parts = memory["float32"][use]
        assert parts["total"] == sum(value for name, value in parts.items() if name != "total")


@pytest.mark.parametrize("size", ["bert_tiny", "deberta_v3_small", "modernbert_base", "t5_small", "xlnet_base"])
def test_half_precision_halves_the_activations(size):
    found = info(size, length=64, batch_size=2, dtypes=("float32", "mixed_bfloat16"))["memory"]
    full, mixed = (found[dtype]["train"]["activations"] for dtype in found)
    assert 0.5 * full <= mixed < 0.75 * full  # some are computed in full precision


def test_rows_are_as_long_as_those_of_the_model():
    assert info("modernbert_mini_en", dtypes=FLOAT32)["batch"]["length"] == 128


def test_tasks_are_names_of_finetune():
    assert all(task in TASKS for tasks in FINETUNED.values() for task in tasks)


def test_a_folder(tmp_path, tokenizer_folder, capsys):
    tokenizer = Tokenizer.load(tokenizer_folder)
    config = BertConfig(vocabulary_size=tokenizer.vocabulary_size, num_layers=1, hidden_dim=16, num_heads=2)
    model = TextClassifier(Bert(config), labels=["bad", "good"], tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    found = info(str(tmp_path / "model"), length=16, dtypes=FLOAT32, json=True)
    assert json.loads(capsys.readouterr().out) == found
    assert (found["kind"], found["class"], found["backbone"]) == ("folder", "TextClassifier", "Bert")
    assert found["arguments"]["labels"] == ["bad", "good"] and found["weights"]["total"] == model.count_params()
    assert found["configs"][""]["num_layers"] == {"value": 1, "default": 12}
    assert found["uses"]["methods"] == ["classify"] and found["uses"]["serve"] == ["classify", "attention"]
    assert found["tokenizer"]["hash"] == tokenizer.hash and found["tokenizer"]["lowercases"]
    assert found["tokenizer"]["row"].split()[::2] == ["[CLS]", "[SEP]"]
    with pytest.raises(ValueError, match="have at most 512 tokens. Received: length=513"):
        info(str(tmp_path / "model"), length=513)


def test_a_recipe(capsys):
    found = info("bert.base", dtypes=FLOAT32)
    run = found["run"]
    assert (run["objective"], run["updates"]) == ("MaskedLM", 1_000_000)
    assert run["data"] == "MaskedLMData(rows=SegmentPairs, static_masks=10)"
    assert run["recipe"]["optimizer"]["schedule"]["warmup"] == 10_000
    assert [(part["rows"], part["length"], part["updates"]) for part in run["phases"]] == [
        (256, 128, 900_000), (256, 512, 100_000),
    ]  # fmt: skip
    assert run["tokens"] == 256 * (128 * 900_000 + 512 * 100_000)
    # 3.3 billion words 40 times are about 1.3e11 tokens; six operations per weight and token are a lower bound.
    assert run["operations"] > 6 * 85_054_464 * run["tokens"] * 0.9
    printed = capsys.readouterr().out
    assert "42.6 Gtokens" in printed
    count = int(re.search(r"All (\d+) settings, with their names for --set: --settings", printed)[1])
    assert "optimizer.beta_1" not in printed
    info("bert.base", dtypes=FLOAT32, settings=True)
    printed = capsys.readouterr().out
    settings = dict(re.findall(r"^  (\S+) +(\S+)$", printed.partition("--set NAME=VALUE")[2], flags=re.MULTILINE))
    assert (settings["optimizer.schedule.warmup"], settings["phases.1.length"]) == ("10000", "512")
    assert printed.partition("--set NAME=VALUE")[2].partition("\n\n")[0].count("\n") == count
    assert max(map(len, printed.splitlines())) <= 120
    changed = info("bert.tiny", set=("steps=10", "batch_size=4", "warmup=1"), dtypes=FLOAT32)
    assert changed["run"]["tokens"] == 10 * 4 * 64


def test_the_config_is_what_differs_and_sizes(capsys):
    info("modernbert_mini_en", dtypes=FLOAT32)
    short = capsys.readouterr().out
    assert re.search(r"^ \* num_layers +6  \(default 22\)$", short, flags=re.MULTILINE)
    assert re.search(r"^ \* classifier_pooling +mean", short, flags=re.MULTILINE) and "vocabulary_bias" not in short
    count = int(re.search(r"and (\d+) more, which have their defaults \(--settings\)", short)[1])
    info("modernbert_mini_en", dtypes=FLOAT32, settings=True)
    whole = capsys.readouterr().out
    assert len(whole.splitlines()) == len(short.splitlines()) + count - 1 and "vocabulary_bias" in whole


def test_a_corpus_and_the_installation(corpora, capsys):
    found = info(str(corpora[0]))
    assert found["kind"] == "corpus" and found["documents"] == 54
    assert found["bytes"] > 2 * found["tokens"] > 0 and 0 < found["unigram_entropy"] < 5
    found = info()
    assert found["kerasbert"] == kerasbert.__version__ and found["packages"]["keras"]
    assert f"kerasbert {kerasbert.__version__}" in " ".join(capsys.readouterr().out.split())


def test_commands_of_a_model():
    """Those that take its folder; a reranker of classes has several scores for a pair, and does not order documents."""
    tokenizer = Tokenizer.train("wordpiece", ["the cat sat"] * 3, 20)
    bert = Bert(BertConfig(vocabulary_size=20, num_layers=1, hidden_dim=16, num_heads=2, feed_forward_dim=16))
    usual = ["predict", "evaluate", "finetune", "serve", "show"]
    for model, methods, more in (
        (TextClassifier(bert, labels=2, tokenizer=tokenizer), ["classify"], ["export"]),
        (TextClassifier(bert, labels=2), ["classify"], []),  # an export carries the tokenizer
        (TextEmbedder(bert, tokenizer=tokenizer), ["embed"], ["embed", "search", "mine", "export"]),
        (Reranker(bert, tokenizer=tokenizer), ["score", "rank"], ["search", "mine", "export"]),
        (Reranker(bert, labels=3, tokenizer=tokenizer), ["score"], ["export"]),
        (bert, [], []),
    ):
        found = uses(model)
        expected = [*usual, *more] if model is not bert else ["finetune", "serve", "show"]
        assert (found["methods"], found["commands"]) == (methods, expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("bert_bas",), "Received: 'bert_bas'. Did you mean bert_base?"),
        (("bert_base", "TextClasifier"), "`model_class` must be one of .* Did you mean TextClassifier?"),
        (("bert.base", "TextClassifier"), "`model_class` is for sizes"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        info(*arguments)


def test_hours_of_a_recipe(capsys):
    found = info("bert.tiny", set=("steps=100", "warmup=1"), dtypes=FLOAT32, teraflops=0.5)["run"]
    assert found["hours"] == found["operations"] / 0.5e12 / 3600
    assert f"{found['hours']:,.3g} hours at 0.5 TFLOP/s" in capsys.readouterr().out
    for name, rate in (("bert_tiny", 1.0), ("bert.tiny", 0.0)):
        with pytest.raises(ValueError, match="^`teraflops` (is for recipes|must be above 0)"):
            info(name, dtypes=FLOAT32, teraflops=rate)


def test_overrides_are_for_recipes():
    with pytest.raises(ValueError, match="`set` is for recipes. Received: 'bert_base' with set=steps=3"):
        info("bert_base", set=("steps=3",))


def test_a_masked_language_model_computes_its_head_at_masked_tokens():
    """The output layer has V columns: it dominates a small model, so its share shows where it is computed."""
    row = info("bert_tiny", length=L, dtypes=FLOAT32)["operations"]["forward"]["per_row"]
    slots = round(0.15 * L)
    assert (
        slots * 2 * D * V
        < row
        < slots * 2 * D * V + 2 * 2 * L * (4 * D * D + 2 * D * F + 2 * L * D) + slots * 4 * D * D
    )


def test_a_shipped_model_is_the_model_and_not_its_recipe(repository):
    """`bert_mini_en` is also how the recipe bert.mini_en may be written."""
    shipped, folder = info("bert_mini_en"), info(str(repository / "saved_models" / "bert_mini_en"))
    assert shipped["kind"] == "folder" and shipped["weights"] == folder["weights"]
    assert shipped["configs"][""]["num_layers"]["value"] == 6
    assert info("bert.mini_en")["kind"] == "recipe"
