"""`info` says which files of a folder were read, and why the others were not."""

import json

import pytest

from pipelines.info.command import info
from pipelines.info.files import files_of
from tests.checkpoints.fleet.folders import write_checkpoint
from tests.checkpoints.fleet.records import CHECKPOINTS

pytestmark = pytest.mark.one_backend


def record_of(name):
    return next(record for record in CHECKPOINTS if record.name.startswith(name))


@pytest.fixture
def folder(tmp_path):
    """The folder of an embedder with weights twice, and files of other programs."""
    write_checkpoint(record_of("BAAI/bge-large-en"), tmp_path)
    (tmp_path / "onnx").mkdir()
    for name in ("README.md", "tf_model.h5", "onnx/model.onnx", "training_args.bin", "added_tokens.json", "x.dat"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_an_embedder(folder, capsys):
    found = info(str(folder), length=8, dtypes=("float32",))["files"]
    assert found["read"] == {
        "1_Pooling/config.json": "settings of the module Pooling",
        "config.json": "sizes, classes and labels",
        "config_sentence_transformers.json": "prompts and similarity",
        "model.safetensors": "weights",
        "modules.json": "modules around the encoder",
        "sentence_bert_config.json": "length and case of texts",
        "tokenizer.json": "tokenizer",
        "tokenizer_config.json": "special tokens and limits of the tokenizer",
    }
    assert found["ignored"] == {
        "README.md": "documentation",
        "added_tokens.json": "tokenizer_config.json lists the added tokens",
        "onnx/model.onnx": "the model for another program",
        "pytorch_model.bin": "other files of weights come first",
        "tf_model.h5": "the model for another program",
        "training_args.bin": "a training run",
        "vocab.txt": "tokenizer.json has the vocabulary",
        "x.dat": "not known to kerasbert",
    }
    text = capsys.readouterr().out
    assert "Files that were not read" in text and "tokenizer.json has the vocabulary" in text


def test_files_that_kerasbert_wrote(tmp_path):
    """By `finetune` with LoRA, two seeds, trackers and several data sets, and by `pretrain`."""
    write_checkpoint(record_of("dslim/bert-base-NER"), tmp_path)
    expected = {
        **dict.fromkeys(("logs/seed_0/log.csv", "logs/seed_0/log.jsonl"), "the log of a training run"),
        **dict.fromkeys(("logs/seed_1/log.1.csv", "logs/tensorboard/events.1"), "the log of a training run"),
        **dict.fromkeys(("logs/seed_0/curves.png", "progress.jsonl", "log.jsonl"), "the log of a training run"),
        "metrics.json": "scores, and the columns that evaluate and predict read",
        **dict.fromkeys(("predictions.jsonl", "predictions_de.jsonl"), "answers to held-out examples"),
        "recipe.json": "how the model was pretrained, for evaluate",
        "adapter/adapter_model.safetensors": "the adapter alone, for PEFT",
        **dict.fromkeys(("checkpoints/seed_0/step_4.npz", "checkpoint-500/trainer_state.json"), "a training run"),
        "README.md": "documentation",
    }
    for name in expected:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    ignored = files_of(tmp_path)["ignored"]
    assert {name: ignored[name] for name in expected} == expected


def test_other_folders(tmp_path):
    def of(name):
        write_checkpoint(record_of(name), tmp_path / name.partition("/")[2])
        return files_of(tmp_path / name.partition("/")[2])

    shards = of("intfloat/multilingual-e5-large")["read"]
    assert shards["model-00002-of-00002.safetensors"] == shards["model.safetensors.index.json"] == "weights"
    tagger = of("dslim/bert-base-NER")
    assert tagger["read"]["added_tokens.json"] == "added tokens of the tokenizer"
    dense = of("sentence-transformers/LaBSE")["read"]
    assert dense["2_Dense/model.safetensors"] == "weights of the module Dense"
    embedder = of("BAAI/bge-m3")
    assert embedder["read"]["pytorch_model.bin"] == "weights"
    assert embedder["ignored"]["sparse_linear.pt"] == "heads for other kinds of vectors"
    assert embedder["ignored"]["sentencepiece.bpe.model"] == "tokenizer.json has the vocabulary"


@pytest.mark.parametrize(
    "architecture, found", [("GPT2LMHeadModel", "read"), ("GPT2ForSequenceClassification", "ignored")]
)
def test_settings_of_generation(architecture, found, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": [architecture]}))
    (tmp_path / "generation_config.json").write_text('{"num_beams": 4}')
    assert files_of(tmp_path)[found]["generation_config.json"].startswith("settings of generate")
