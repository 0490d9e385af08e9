"""Text, a tokenizer, corpora and a model, all so small that a run takes seconds."""

import json
import random

import pytest

from pipelines.prepare_corpus import prepare_corpus
from pipelines.pretrain import pretrain
from pipelines.train_tokenizer import train_tokenizer

SETTINGS = (
    "steps=4",
    "batch_size=4",
    "length=16",
    "warmup=1",
    "model.num_layers=1",
    "model.hidden_dim=16",
    "model.num_heads=2",
    "model.feed_forward_dim=24",
    "model.max_length=24",
    "data.rows.passes=2",
    "data.static_masks=2",
)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """60 documents of 4 lines over 40 words."""
    words = ["the", "cat", "dog", "sat", "ran", "big", "small", "house", "tree", "red"] + [
        f"word{i}" for i in range(30)
    ]
    draw = random.Random(0)
    documents = ["\n".join(" ".join(draw.choices(words, k=8)) for _ in range(4)) for _ in range(60)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents))
    return path


@pytest.fixture(scope="session")
def tokenizer_folder(text_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer([str(text_file)], folder, vocabulary_size=90, lowercase=True)
    return folder


@pytest.fixture(scope="session")
def corpora(text_file, tokenizer_folder, tmp_path_factory):
    """Folders of a corpus and of its held-out tenth."""
    folder = tmp_path_factory.mktemp("corpora")
    output, held_out = folder / "train", folder / "held_out"
    prepare_corpus([str(text_file)], tokenizer_folder, output, held_out=held_out, held_out_every=10)
    return output, held_out


@pytest.fixture(scope="session")
def finished_run(corpora, tmp_path_factory):
    """The folder of a run of four steps with two reports, and what `pretrain` returned."""
    run = tmp_path_factory.mktemp("runs") / "run"
    last = pretrain(corpora[0], run, held_out=corpora[1], report_every=2, set=SETTINGS)
    return run, last


@pytest.fixture(scope="session")
def labeled_file(tmp_path_factory):
    """24 sentences about cats and dogs, as JSON lines."""
    path = tmp_path_factory.mktemp("labeled") / "animals.jsonl"
    rows = [{"sentence": f"the {animal} sat {n}", "label": animal} for n in range(12) for animal in ("cat", "dog")]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path
