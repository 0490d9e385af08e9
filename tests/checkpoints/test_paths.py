"""Folders that users name: an empty name is not the current folder."""

import pytest

import kerasbert
from kerasbert.checkpoints.adapters import load_adapter
from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import Backbone, Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.retrieval import read_beir
from kerasbert.tasks import TextClassifier
from kerasbert.training import Checkpoints, RunLog, add_lora

CONFIG = dict(vocabulary_size=11, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=8, max_length=8)


@pytest.mark.one_backend
@pytest.mark.parametrize("path", ["", None, 5])
def test_folders_have_names(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = MaskedLM(Bert(BertConfig(**CONFIG)), tokenizer=Tokenizer.train("wordpiece", ["a b c"] * 9, 11))
    adapted = TextClassifier(Bert(BertConfig(**CONFIG)), labels=2)
    add_lora(adapted, rank=1)
    calls = [
        lambda: model.save_to_preset(path),
        lambda: model.backbone.save_to_preset(path),
        lambda: model.tokenizer.save(path),
        lambda: model.tokenizer.load(path),
        lambda: Tokenizer.from_preset(path),
        lambda: adapted.save_adapter(path),
        lambda: load_adapter(model, path),
        lambda: Corpus.write(path, ["a b c"], model.tokenizer),
        lambda: Corpus.open(path),
        lambda: Checkpoints(path),
        lambda: RunLog(path),
        lambda: read_beir(path),
        lambda: kerasbert.load(path),
        lambda: kerasbert.export(model, path),
        lambda: Backbone.from_preset(path),
        lambda: TextClassifier.from_preset(path, labels=2),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="A folder must be a str or a path, and not empty. Received: "):
            call()
    assert not list(tmp_path.iterdir())
    model.save_to_preset(".")  # the current folder, if that is meant
    assert type(kerasbert.load(".")).__name__ == "MaskedLM"
