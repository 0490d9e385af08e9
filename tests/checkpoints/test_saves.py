"""Folders whose files are not of one save: interrupted and concurrent saves, mixtures, files of an earlier model."""

import json
import logging
import os
import re
import shutil
import threading

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import kerasbert
from benchmarks.studies.exports.models import build
from kerasbert.checkpoints import presets
from kerasbert.checkpoints.folder import ModelFolder
from kerasbert.checkpoints.tensor_files import SAVE_ID
from kerasbert.data import Tokenizer
from kerasbert.data.text import folders
from kerasbert.models import Backbone
from kerasbert.objectives import ReplacedTokenDetection
from kerasbert.tasks import TextClassifier, TextEmbedder
from tests.models.reference import randomize, to_numpy

pytestmark = pytest.mark.one_backend

TEXTS = ["the cat sat on a mat", "who ran home"]


class Killed(BaseException):
    """Raised in place of the end of the process."""


def trained(kind, size=48, seed=0):
    words = ["".join(letters) for letters in np.random.default_rng(seed).choice(list("abcdefgh"), (60, 4))]
    return Tokenizer.train(kind, [" ".join(words)] * 5, size)


def small(family="BERT", head="classifier", seed=0):
    model = build(family, head, num_layers=1)
    return randomize(model, seed=seed)


@pytest.fixture(scope="module")
def models():
    """{name: (model, options of its save)} of one folder at different times."""
    other = small(seed=1)
    other = TextClassifier(other.backbone, labels=["good", "bad", "so so"], tokenizer=trained("wordpiece"))
    integers = small(seed=2)
    integers.quantize("int8")
    generator, discriminator = small("ELECTRA", "masked LM", 3), small("ELECTRA", "discriminator", 4)
    pair = ReplacedTokenDetection(generator, discriminator, tokenizer=generator.tokenizer)
    bare = TextClassifier(small(seed=5).backbone, labels=["x", "y"])
    return {
        "classifier": (small(), {}),
        "other labels": (other, {}),
        "shards": (small(seed=6), {"max_shard_size": 5_000}),
        "integers": (integers, {}),
        "embedder": (small("ModernBERT", "embedder", 7), {}),
        "ELECTRA": (pair, {}),
        "no tokenizer": (bare, {}),
    }


def facts(model):
    """What must be of one model: its class, labels, tokens and weights."""
    tokens = model.tokenizer and tuple(model.tokenizer.tokens)
    values = [
        np.asarray(variable.numpy(), "float64").sum() for variable in model.weights if "seed" not in variable.path
    ]
    return type(model).__name__, getattr(model, "labels", None), tokens, round(float(sum(map(abs, values))), 3)


class Kills:
    """Moves `count` files, and then does nothing any more, as if the process had been killed."""

    def __init__(self, patch, count):
        self.left = count
        for module, name in ((os, "replace"), (shutil, "rmtree")):
            patch.setattr(module, name, self.stopped(getattr(module, name), counted=name == "replace"))

    def stopped(self, function, counted):
        def call(*arguments, **options):
            if self.left <= 0:
                raise Killed
            self.left -= counted
            return function(*arguments, **options)

        return call


PAIRS = [
    ("classifier", "shards"),
    ("shards", "other labels"),
    ("classifier", "integers"),
    ("embedder", "no tokenizer"),
    ("ELECTRA", "embedder"),
]


@pytest.mark.parametrize("before, after", PAIRS)
def test_a_save_that_is_killed_after_any_file(models, before, after, tmp_path, monkeypatch):
    """The folder has the earlier model, the new one, or is refused. The next save completes it and leaves nothing."""
    monkeypatch.setattr(folders, "ATTEMPTS", 1)
    (old, options), (new, more) = models[before], models[after]
    old.save_to_preset(tmp_path / "old", **options)
    new.save_to_preset(tmp_path / "new", **more)
    whole = facts(kerasbert.load(tmp_path / "old")), facts(kerasbert.load(tmp_path / "new"))
    assert whole[0] != whole[1]
    found = []
    for count in range(200):
        folder = tmp_path / str(count)
        shutil.copytree(tmp_path / "old", folder)
        with monkeypatch.context() as patch:
            kills = Kills(patch, count)
            try:
                new.save_to_preset(folder, **more)
                killed = False
            except Killed:
                killed = True
        try:
            found.append(whole.index(facts(kerasbert.load(folder))))
        except (ValueError, FileNotFoundError) as error:
            assert re.search("must all be in place.* in which a save was interrupted", str(error))
            found.append(None)
        if not killed and kills.left > 0:
            break
    assert found == sorted(found, key=[0, None, 1].index) and set(found) == {0, None, 1}
    new.save_to_preset(tmp_path / str(found.index(None)), **more)
    assert facts(kerasbert.load(tmp_path / str(found.index(None)))) == whole[1]
    assert not list((tmp_path / str(found.index(None))).rglob(".*"))


def test_a_file_that_cannot_be_moved_leaves_the_earlier_model(models, tmp_path, monkeypatch):
    """Such as on Windows, if another program has opened it."""
    models["classifier"][0].save_to_preset(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    replace, moved = os.replace, []

    def fails(source, target):
        if os.path.basename(os.path.dirname(source)) == "new" and target == tmp_path / "model.safetensors":
            raise PermissionError("in use")
        moved.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(PermissionError, match="in use"):
        models["other labels"][0].save_to_preset(tmp_path)
    assert tmp_path / "kerasbert.json" in moved
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_every_file_of_weights_has_the_id(models, tmp_path):
    ids = set()
    for name, (model, options) in models.items():
        for number in range(2):
            folder = tmp_path / f"{name} {number}"
            model.save_to_preset(folder, **options)
            for path in folder.rglob("kerasbert.json"):
                record = json.loads(path.read_text())["save"]
                assert re.fullmatch("[0-9a-f]{32}", record["id"]) and record["id"] not in ids
                ids.add(record["id"])
                assert {"config.json"} | {p.name for p in path.parent.glob("tok*.json")} <= record["files"].keys()
                weights = list(path.parent.glob("*.safetensors"))
                assert len(weights) > 1 or name != "shards"
                for file in weights:
                    assert safe_open(file, "numpy").metadata() == {"format": "pt", SAVE_ID: record["id"]}


def mixed(models, one, other, folder):
    """Folders with all files of one model but some of the other; each is (names of the files, folder)."""
    for name in (one, other):
        model, options = models[name]
        model.save_to_preset(folder / name, **options)
    for path in sorted((folder / other).iterdir()):
        copy = folder / f"{path.name} of {other}"
        shutil.copytree(folder / one, copy)
        shutil.copy(path, copy / path.name)
        yield path.name, copy


@pytest.mark.parametrize("one, other", [("classifier", "other labels"), ("other labels", "classifier")])
def test_mixtures_of_two_saves(models, one, other, tmp_path, caplog):
    """Weights and kerasbert.json of two saves are an error; another small file is used, and a line names it."""
    for name, folder in mixed(models, one, other, tmp_path):
        caplog.clear()
        if name in ("model.safetensors", "kerasbert.json"):
            with pytest.raises(ValueError, match="must be of one save.* model.safetensors is of another one than kera"):
                kerasbert.load(folder)
            with pytest.raises(ValueError, match=rf"kerasbert.load\('{re.escape(str(folder))}', allow_mixed=True"):
                TextClassifier.from_preset(folder)
            with pytest.raises(ValueError, match="must be of one save"):
                Backbone.from_preset(folder)
            kerasbert.load(folder, allow_mixed=True).save_to_preset(folder)
            caplog.clear()
            kerasbert.load(folder)
            assert not caplog.records
        else:
            kerasbert.load(folder)
            lines = [record.getMessage() for record in caplog.records]
            same = (folder / name).read_bytes() == (tmp_path / one / name).read_bytes()
            assert len(lines) == (not same)
            line = f"{folder} was changed by another program since the model was saved: {name}. This is used"
            assert same or lines[0].startswith(line)


def test_shards_of_two_saves(models, tmp_path):
    model, options = models["shards"]
    for name in "ab":
        model.save_to_preset(tmp_path / name, **options)
    shard = sorted(path.name for path in (tmp_path / "a").glob("model-*"))[1]
    shutil.copy(tmp_path / "b" / shard, tmp_path / "a" / shard)
    with pytest.raises(ValueError, match=f"must be of one save.*{shard} is of another one than kerasbert.json"):
        kerasbert.load(tmp_path / "a")
    (tmp_path / "a" / "kerasbert.json").unlink()
    with pytest.raises(ValueError, match="must be of one save"):
        kerasbert.load(tmp_path / "a")
    path = tmp_path / "b" / shard
    save_file(load_file(path), path, {"format": "pt"})
    with pytest.raises(ValueError, match=f"must be of one save.*{shard} is of another one than the other shards"):
        kerasbert.load(tmp_path / "b")


def test_halves_of_two_saves(models, tmp_path):
    model, _ = models["ELECTRA"]
    for name in "ab":
        model.save_to_preset(tmp_path / name)
    shutil.rmtree(tmp_path / "a" / "generator")
    shutil.copytree(tmp_path / "b" / "generator", tmp_path / "a" / "generator")
    with pytest.raises(ValueError, match="must be of one save.*generator/ is of another one"):
        kerasbert.load(tmp_path / "a")
    assert facts(kerasbert.load(tmp_path / "a", allow_mixed=True)) == facts(model)
    assert facts(kerasbert.load(tmp_path / "a" / "generator")) == facts(kerasbert.load(tmp_path / "b" / "generator"))


def test_an_edited_config_is_used_and_named(models, tmp_path, caplog):
    models["classifier"][0].save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": {"0": "u", "1": "v", "2": "w"}}))
    model = kerasbert.load(tmp_path)
    assert model.labels == ["u", "v", "w"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "saved: config.json. This is used" in line and f"load('{tmp_path}').save_to_preset('{tmp_path}')" in line
    model.save_to_preset(tmp_path)
    caplog.clear()
    assert kerasbert.load(tmp_path).labels == ["u", "v", "w"] and not caplog.records


def test_folders_that_transformers_wrote(models, tmp_path, caplog):
    """Into ours, into an empty one, and the tokenizer alone: never an error."""
    import transformers

    caplog.set_level(logging.WARNING, "kerasbert")
    model = models["classifier"][0]
    model.save_to_preset(tmp_path / "ours")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    assert facts(kerasbert.load(tmp_path / "theirs"))[1:] == facts(model)[1:] and not caplog.records
    shutil.copytree(tmp_path / "ours", tmp_path / "tokenizer")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    assert facts(kerasbert.load(tmp_path / "tokenizer")) == facts(model)
    theirs.classifier.bias.data += 1.0
    theirs.save_pretrained(tmp_path / "ours")
    tokenizer.save_pretrained(tmp_path / "ours")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").id2label == {0: "a", 1: "b", 2: "c"}
    loaded = kerasbert.load(tmp_path / "ours")
    shift = loaded.predict(TEXTS, verbose=0) - model.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(shift, 1.0, atol=1e-4)
    models["other labels"][0].save_to_preset(tmp_path / "ours")
    assert facts(kerasbert.load(tmp_path / "ours")) == facts(models["other labels"][0])


# === Files of an earlier model ===


def test_a_model_without_a_tokenizer_has_none(models, tmp_path):
    models["classifier"][0].save_to_preset(tmp_path)
    models["no tokenizer"][0].save_to_preset(tmp_path)
    assert kerasbert.load(tmp_path).tokenizer is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "kerasbert.json", "model.safetensors"]


@pytest.mark.parametrize("before", ["wordpiece", "byte_bpe", "unigram"])
@pytest.mark.parametrize("after", ["wordpiece", "byte_bpe", "unigram", "moses"])
def test_a_tokenizer_replaces_every_other(before, after, tmp_path):
    """XLM has no tokenizer.json, which would be read first."""

    def of_kind(kind):
        if kind != "moses":
            return trained(kind, 300 if kind == "byte_bpe" else 48)
        folder = tmp_path / "xlm"
        folder.mkdir()
        tokens = ["<s>", "</s>", "<pad>", "<unk>", *"abc", "a</w>", "b</w>"]
        (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
        (folder / "merges.txt").write_text("")
        (folder / "config.json").write_text('{"model_type": "xlm"}')
        return Tokenizer.load(folder)

    one, other = of_kind(before), of_kind(after)
    one.save(tmp_path / "folder")
    other.save(tmp_path / "folder")
    other.save(tmp_path / "new")
    assert Tokenizer.load(tmp_path / "folder").hash == Tokenizer.load(tmp_path / "new").hash
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("folder", "new")]
    assert names[0] == names[1] and ("tokenizer.json" in names[0]) == (after != "moses")


@pytest.mark.parametrize("before", ["classifier", "shards", "integers", "embedder", "ELECTRA"])
@pytest.mark.parametrize("after", ["other labels", "no tokenizer", "ELECTRA"])
def test_every_model_replaces_every_other(models, before, after, tmp_path):
    """Also for classes that read other files: `TextEmbedder` reads modules.json, a backbone the weights' index."""
    for name in (before, after):
        model, options = models[name]
        model.save_to_preset(tmp_path / "folder", **options)
    models[after][0].save_to_preset(tmp_path / "new")
    assert facts(kerasbert.load(tmp_path / "folder")) == facts(models[after][0])
    for cls in (Backbone, TextEmbedder):
        found = [cls.from_preset(tmp_path / name) for name in ("folder", "new")]
        assert found[0].get_config()["name"] and getattr(found[0], "poolings", 0) == getattr(found[1], "poolings", 0)
        for one, other in zip(found[0].weights, found[1].weights, strict=True):
            if "seed" not in one.path:
                np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_settings_of_an_earlier_model_that_transformers_and_evaluate_read(models, tmp_path):
    for name in ("generation_config.json", "recipe.json", "added_tokens.json"):
        (tmp_path / name).write_text("{}")
    for name in ("README.md", "notes.json", "model_old.safetensors", "train.csv"):
        (tmp_path / name).write_text("mine")
    models["classifier"][0].save_to_preset(tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.read_bytes() in (b"{}", b"mine")}
    assert left == {"README.md", "notes.json", "model_old.safetensors", "train.csv"}


# === Several processes ===


@pytest.mark.parametrize("moment", ["class_of", "backbone_class", "tokenizer", "open_weights"])
def test_a_save_during_a_load(models, tmp_path, monkeypatch, moment):
    """A reader that has read files of the earlier model does not go on with those of the new one, but starts again."""
    old, new = models["classifier"][0], models["other labels"][0]
    old.save_to_preset(tmp_path)
    function, saves = getattr(ModelFolder, moment), iter([new] * 3)

    def load(*arguments):
        found = function(*arguments)
        if (model := next(saves, None)) is not None:
            model.save_to_preset(tmp_path)
        return found

    monkeypatch.setattr(ModelFolder, moment, load)
    if moment != "class_of":
        with pytest.raises(ValueError, match="into which another process has saved in the meantime. Load it again"):
            TextClassifier.from_preset(tmp_path)
    assert facts(kerasbert.load(tmp_path)) == facts(new) and next(saves, None) is None


def test_weights_that_were_opened_are_those_of_the_model(models, tmp_path, monkeypatch):
    """A save after all files have been opened does not matter."""
    old, new = models["classifier"][0], models["shards"][0]
    old.save_to_preset(tmp_path)
    read = presets.huggingface.load_weights

    def saved_in_between(*arguments):
        new.save_to_preset(tmp_path)
        read(*arguments)

    monkeypatch.setattr(presets.huggingface, "load_weights", saved_in_between)
    found = facts(kerasbert.load(tmp_path))
    monkeypatch.undo()
    assert found == facts(old) != facts(kerasbert.load(tmp_path))


def test_writers_wait_for_each_other(models, tmp_path):
    saved = [models[name] for name in ("classifier", "other labels", "shards")]
    threads = [
        threading.Thread(target=lambda m=model, o=options: [m.save_to_preset(tmp_path, **o) for _ in range(4)])
        for model, options in saved
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert facts(kerasbert.load(tmp_path)) in [facts(model) for model, _ in saved]
    assert not list(tmp_path.glob(".*"))


def test_what_killed_processes_left_is_removed(models, tmp_path):
    """A folder of a save that was killed before it moved files, and single files of processes that have ended."""
    left = tmp_path / ".saving.abc" / "new"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"0" * 1000)
    (tmp_path / ".saving.lock").write_text("")
    models["classifier"][0].save_to_preset(tmp_path)
    assert not list(tmp_path.glob(".*"))
