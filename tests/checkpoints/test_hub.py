"""Models on the Hugging Face Hub: one format is downloaded, and models are uploaded with a card; on a local server."""

import json
import os
import subprocess
import sys

import httpx
import pytest
from huggingface_hub import ModelCard

import kerasbert
from kerasbert.checkpoints import hub as our_hub
from kerasbert.checkpoints.hub import needed_files
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from tests.checkpoints.hub_server import serving
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

SMALL = ["config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
OTHERS = ["flax_model.msgpack", "tf_model.h5", "rust_model.ot", "onnx/model.onnx", "onnx/config.json", ".gitattributes"]


@pytest.mark.parametrize(
    "needed, other",
    [
        (["model.safetensors"], ["pytorch_model.bin", "model.fp16.safetensors", "pytorch_model.bin.index.json"]),
        (
            ["model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"],
        ),
        (["pytorch_model.bin"], ["training_args.bin", "optimizer.pt"]),
        (["kerasbert.json", "kerasbert.safetensors"], []),
        (
            ["modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"]
            + ["model.safetensors"],
            ["2_Dense/pytorch_model.bin", "pytorch_model.bin", "openvino/openvino_model.bin", "openvino/config.json"],
        ),
        (
            ["model.safetensors.index.json", "generator/config.json", "generator/model.safetensors"]
            + ["discriminator/config.json", "discriminator/model.safetensors"],
            ["generator/pytorch_model.bin"],
        ),
        (["metadata.json", "model.weights.h5", "assets/tokenizer/vocabulary.txt"], []),
    ],
)
def test_one_format_is_needed(needed, other):
    assert needed_files([*SMALL, *OTHERS, *needed, *other]) == sorted([*SMALL, *needed])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(the Hub after the script, what the script printed, the size of the needed files)."""
    folder = tmp_path_factory.mktemp("hub")
    sizes = dict(vocabulary_size=400, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=40, max_length=8)
    TextClassifier(Bert(BertConfig(**sizes)), labels=["bad", "good"]).save_to_preset(folder / "model")
    files = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
    with serving() as hub:
        weights = files["model.safetensors"]
        others = dict.fromkeys(["pytorch_model.bin", "tf_model.h5", "onnx/model.onnx"], weights)
        hub.files["them/many_formats"] = {**files, **others, "notes/long.txt": weights}
        variables = {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "cache"), "HF_TOKEN": "hf_none"}
        process = subprocess.run(
            [sys.executable, "-m", "tests.checkpoints.hub_script"],
            cwd=REPOSITORY,
            env={**os.environ, **variables, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"},
            capture_output=True,
            text=True,
        )
    assert process.returncode == 0, process.stderr[-3000:]
    return hub, json.loads(process.stdout), sum(len(content) for content in files.values())


def test_downloads_are_the_size_of_one_format(run):
    hub, _, needed = run
    names = set(hub.files["them/many_formats"])
    assert needed > 40_000
    pushed = {name: sum(map(len, hub.files[name].values())) for name in hub.files if name.startswith("me/")}
    assert sum(hub.sent.values()) <= 1.05 * (needed + sum(pushed.values()))
    assert "pytorch_model.bin" in names and "pytorch_model.bin" not in hub.sent
    assert not {"tf_model.h5", "onnx/model.onnx", "notes/long.txt"} & set(hub.sent)


def test_models_come_back_as_they_were_pushed(run):
    hub, found, _ = run
    assert found["differences"] == {"me/backbone": 0.0, "me/objective": 0.0, "me/task": 0.0}
    assert found["classes"] == {"me/backbone": "Bert", "me/objective": "MaskedLM", "me/task": "TextClassifier"}
    assert found["commits"]["me/task"] == f"{hub.address}/me/task/commit/{'0' * 40}"
    assert found["missing"] == "RepositoryNotFoundError"


def test_pushed_models_have_cards(run):
    hub, *_ = run
    cards = {
        name: ModelCard(hub.files[f"me/{name}"]["README.md"].decode()) for name in ("backbone", "objective", "task")
    }
    tags = {name: card.data.pipeline_tag for name, card in cards.items()}
    assert tags == {"backbone": "feature-extraction", "objective": "fill-mask", "task": "text-classification"}
    assert all(card.data.library_name == "kerasbert" for card in cards.values())
    text = cards["task"].text
    assert "assigns one of the labels `bad`, `good` to a text" in text
    assert 'kerasbert.load("me/task")' in text
    assert 'pipeline("text-classification", model="me/task")' in text


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="need the package huggingface_hub. Install it: pip install huggingface_hub"):
        our_hub.download("org/name")


@pytest.mark.parametrize("error", [OSError("no route"), httpx.ConnectError("no name"), httpx.ReadTimeout("slow")])
def test_without_a_network_there_is_one_message(error, monkeypatch):
    def fails(*arguments, **options):
        raise error

    for name in ("model_info", "create_repo"):
        monkeypatch.setattr(f"huggingface_hub.HfApi.{name}", fails)
    with pytest.raises(ConnectionError, match=r"^The Hub could not be reached. Received: hf://me/none. Download the f"):
        kerasbert.load("hf://me/none")
    model = Bert(BertConfig(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, feed_forward_dim=4))
    with pytest.raises(ConnectionError, match=r"^The Hub could not be reached. Received: hf://me/none. Save the model"):
        model.push_to_hub("me/none")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("bert-base-uncased", "hf://google-bert/bert-base-uncased"),
        ("roberta-base", "hf://FacebookAI/roberta-base"),
        ("xlm-roberta-large", "hf://FacebookAI/xlm-roberta-large"),
        ("distilbert-base-uncased", "hf://distilbert/distilbert-base-uncased"),
        ("albert-base-v2", "hf://albert/albert-base-v2"),
        ("gpt2", "hf://openai-community/gpt2"),
        ("t5-small", "hf://google-t5/t5-small"),
        ("xlnet-base-cased", "hf://xlnet/xlnet-base-cased"),
        ("bert-mini-en", "bert_mini_en"),
    ],
)
def test_names_of_published_models_lead_to_the_hub(name, suggested):
    with pytest.raises(FileNotFoundError, match=rf"There is no model '{name}'. Did you mean {suggested}\?"):
        kerasbert.load(name)


def test_names_of_sizes_are_no_models():
    with pytest.raises(FileNotFoundError, match="'bert_mini' is a size.* Did you mean bert_mini_en"):
        kerasbert.load("bert_mini")
    with pytest.raises(FileNotFoundError, match="'bert_base' is a size, which has no weights. A model is a folder"):
        kerasbert.load("bert_base")
