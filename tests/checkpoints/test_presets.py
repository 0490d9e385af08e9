"""Folders of models: which files are read, what is reported, and what is refused."""

import json
import logging
import shutil

import numpy as np
import pytest

import kerasbert
from kerasbert.checkpoints.tensor_files import TensorFiles, write_tensors
from kerasbert.data import Tokenizer
from kerasbert.data.text import files, json_files
from kerasbert.models import Albert, Backbone, Bert, BertConfig, Roberta
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import randomize, to_numpy

CONFIG = BertConfig(
    vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, num_segments=3
)
IDS = {"token_ids": np.array([[1, 5, 60, 7], [2, 3, 4, 0]], "int32"), "lengths": np.array([4, 3], "int32")}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A MaskedLM with sentence pairs, and the folder it wrote."""
    model = randomize(MaskedLM(Bert(CONFIG), sentence_pair=True))
    folder = tmp_path_factory.mktemp("pretrained")
    model.save_to_preset(folder)
    return model, folder


def changed(folder, target, change):
    """A copy of a folder whose dict of tensors went through `change`."""
    shutil.copytree(folder, target)
    files = TensorFiles(folder)
    tensors = {name: files.read(name) for name in files.keys()}
    change(tensors)
    write_tensors(target, tensors)
    return target


def assert_same_weights(one, other):
    found = {v.path.split("/", 1)[1]: to_numpy(v) for v in other.weights if "seed" not in v.path}
    for variable in one.weights:
        if "seed" not in variable.path:
            np.testing.assert_array_equal(to_numpy(variable), found[variable.path.split("/", 1)[1]])


@pytest.mark.one_backend
def test_shards_are_read_by_us_and_by_transformers(pretrained, tmp_path):
    model, _ = pretrained
    model.save_to_preset(tmp_path, max_shard_size=20_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2 and not (tmp_path / "model.safetensors").exists()
    assert_same_weights(model, kerasbert.load(tmp_path))
    import transformers

    theirs, report = transformers.BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    name = "bert.encoder.layer.1.output.dense.weight"
    np.testing.assert_array_equal(theirs.state_dict()[name].numpy(), TensorFiles(tmp_path).read(name))


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_files_of_transformers_4(pretrained, zipped, tmp_path):
    """Such files hold every alias and buffer, and names of the norms that were old even then."""
    import torch

    model, folder = pretrained
    files = TensorFiles(folder)
    state = {name: torch.from_numpy(np.array(files.read(name))) for name in files.keys()}
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]
    state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"]
    state["bert.embeddings.position_ids"] = torch.arange(23)[None]
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in state.items()
    }
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    shutil.copy(folder / "config.json", tmp_path)
    assert_same_weights(model, MaskedLM.from_preset(tmp_path, sentence_pair=True))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_files_are_widened(pretrained, dtype, tmp_path):
    import torch

    _, folder = pretrained
    from safetensors.torch import load_file, save_file

    state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(folder / "config.json", tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    found = to_numpy(backbone.get_layer("token_embedding").embeddings)
    np.testing.assert_array_equal(found, state["bert.embeddings.word_embeddings.weight"].float().numpy())
    assert found.dtype == "float32"


@pytest.mark.parametrize(
    ("kept", "dropped"),
    [
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
def test_tied_tensors_are_filled_from_either_name(pretrained, kept, dropped, tmp_path):
    model, folder = pretrained
    target = changed(folder, tmp_path / "x", lambda tensors: tensors.update({kept: tensors.pop(dropped)}))
    assert_same_weights(model, kerasbert.load(target))


@pytest.mark.one_backend
@pytest.mark.parametrize("cls", [Roberta, Albert])
def test_a_tied_bias_is_written_under_both_names(cls, tmp_path):
    """transformers 4 takes the bias of these families from the decoder, whatever else the file holds."""
    sizes = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23)
    model = randomize(MaskedLM(cls(cls.family.config(**sizes), pooler=False)))
    model.save_to_preset(tmp_path)
    files = TensorFiles(tmp_path)
    names = [name for name in files.keys() if name.startswith(("lm_head", "predictions")) and "dense" not in name]
    written = {name.partition(".")[2]: files.read(name) for name in names if "orm" not in name}
    assert set(written) == {"bias", "decoder.bias"}
    for array in written.values():
        np.testing.assert_array_equal(array, to_numpy(model.masked_lm.bias))
    assert_same_weights(model, kerasbert.load(tmp_path))


@pytest.mark.one_backend
def test_a_folder_of_transformers_is_the_last_class_that_has_its_name(pretrained, tmp_path, caplog):
    _, folder = pretrained
    shutil.copytree(folder, tmp_path / "x")
    (tmp_path / "x" / "kerasbert.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    for name in ("BertForMaskedLM", "BertForPreTraining"):
        (tmp_path / "x" / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
        loaded = kerasbert.load(tmp_path / "x")
        assert type(loaded) is MaskedLM and loaded.arguments()["sentence_pair"] == (name == "BertForPreTraining")
    for names, cls in ((["OwnModel", "BertForMaskedLM"], MaskedLM), (["OwnModel"], Bert)):
        assert not caplog.records
        (tmp_path / "x" / "config.json").write_text(json.dumps({**config, "architectures": names}))
        assert type(kerasbert.load(tmp_path / "x")) is cls
    assert "['OwnModel'], which name no class of Bert: loaded as a backbone without a head" in caplog.text


@pytest.mark.one_backend
def test_untied_tensors_are_an_error_where_the_head_shares_them(pretrained, tmp_path):
    model, folder = pretrained
    untied = {"cls.predictions.decoder.weight": np.ones((61, 24), "float32")}
    target = changed(folder, tmp_path / "x", lambda tensors: tensors.update(untied))
    with pytest.raises(ValueError, match="untied: cls.predictions.decoder.weight"):
        kerasbert.load(target)
    assert_same_weights(Backbone.from_preset(target), model.backbone)


@pytest.mark.one_backend
def test_tensors_of_no_head_of_the_family_are_named(pretrained, tmp_path, caplog):
    model, folder = pretrained
    strange = {"gate.weight": np.ones((3, 3), "float32")}
    assert_same_weights(kerasbert.load(changed(folder, tmp_path / "x", lambda t: t.update(strange))), model)
    said = [record for record in caplog.records if "weights that MaskedLM does not use" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"] and "['gate.weight']" in caplog.text


@pytest.mark.one_backend
def test_what_does_not_fit_is_listed(pretrained, tmp_path):
    _, folder = pretrained

    def damage(tensors):
        tensors["bert.encoder.layer.0.output.dense.weight"] = np.zeros((24, 41), "float32")
        tensors["bert.encoder.layer.7.output.dense.weight"] = np.zeros((24, 40), "float32")
        del tensors["bert.embeddings.LayerNorm.bias"]

    target = changed(folder, tmp_path / "x", damage)
    with pytest.raises(ValueError) as error:
        Backbone.from_preset(target)
    message = str(error.value)
    assert "wrong shape: encoder.layer.0.output.dense.weight" in message
    assert "expected (40, 24), found (41, 24)" in message
    assert "not in the file: embeddings.LayerNorm.bias" in message
    assert "not used by Bert: bert.encoder.layer.7.output.dense.weight" in message


@pytest.mark.one_backend
def test_unused_heads_are_logged_and_new_ones_warned_of(pretrained, caplog):
    _, folder = pretrained
    with caplog.at_level(logging.INFO, logger="kerasbert"):
        Backbone.from_preset(folder)
    assert len(caplog.records) == 1 and "cls.predictions.transform.dense.weight" in caplog.text
    with pytest.warns(UserWarning, match="no weights for classifier/dense: new head") as caught:
        TextClassifier.from_preset(folder, labels=3)
    assert sum(warning.category is UserWarning for warning in caught) == 1


@pytest.mark.one_backend
def test_folders_of_other_families_and_unsupported_values_are_refused(pretrained, tmp_path):
    _, folder = pretrained

    def with_config(**changes):
        target = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(folder, target)
        config = json.loads((folder / "config.json").read_text())
        (target / "config.json").write_text(json.dumps({**config, **changes}))
        return target

    with pytest.raises(ValueError, match="model_type.*Received: 'llama'"):
        Backbone.from_preset(with_config(model_type="llama"))
    with pytest.raises(ValueError, match="Received: None. Early configs do not have it: add it"):
        Backbone.from_preset(with_config(model_type=None, architectures=None))
    assert Bert.from_preset(with_config(model_type=None, architectures=None)).config == CONFIG
    assert type(Backbone.from_preset(with_config(model_type=None))) is Bert  # known by its architecture
    with pytest.raises(ValueError, match="only with position_embedding_type='absolute'.*'relative_key'"):
        Backbone.from_preset(with_config(position_embedding_type="relative_key"))
    with pytest.raises(ValueError, match="(?i)activation"):
        Backbone.from_preset(with_config(hidden_act="snake"))
    with pytest.raises(ValueError, match="must be JSON"):
        target = with_config()
        (target / "config.json").write_text("{")
        Backbone.from_preset(target)
    with pytest.raises(FileNotFoundError, match="config.json"):
        target = with_config()
        (target / "config.json").unlink()
        Backbone.from_preset(target)
    with pytest.raises(FileNotFoundError, match="There is no folder .*nowhere$"):
        Backbone.from_preset(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no folder org/name. For a model on the hub, use hf://org/name"):
        Backbone.from_preset("org/name")
    with pytest.raises(FileNotFoundError, match="bert_base"):
        Backbone.from_preset("bert_bse")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "wrapped",
    [
        *(lambda name, prefix=prefix: prefix + name for prefix in ("module.", "_orig_mod.", "module._orig_mod.")),
        lambda name: name.replace("bert.", "bert._orig_mod.", 1),
        lambda name: "_orig_mod.module." + name.replace("encoder.", "encoder._fsdp_wrapped_module.", 1),
    ],
)
def test_prefixes_of_wrappers_are_removed(wrapped, pretrained, tmp_path, caplog):
    def wrap(tensors):
        for name in list(tensors):
            tensors[wrapped(name)] = tensors.pop(name)

    folder = changed(pretrained[1], tmp_path / "wrapped", wrap)
    with caplog.at_level(logging.WARNING, "kerasbert"):
        assert_same_weights(pretrained[0], kerasbert.load(folder))
        assert_same_weights(pretrained[0].backbone, Backbone.from_preset(folder))
    assert "names without the prefixes of wrappers, as in" in caplog.text


@pytest.mark.one_backend
def test_a_tokenizer_larger_than_the_model(tmp_path):
    """Texts without the further tokens are read as by transformers; other texts, and models in memory, are refused."""
    tokenizer = Tokenizer.train("wordpiece", ["a fine film and a warm play"] * 9, 40)
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, feed_forward_dim=8, max_length=16)
    config = BertConfig(vocabulary_size=40, **sizes)
    randomize(MaskedLM(Bert(config), tokenizer=tokenizer)).save_to_preset(tmp_path)
    tokenizer.backend.add_tokens(["<entity>"])
    larger = Tokenizer(tokenizer.backend, tokenizer.roles)
    larger.save(tmp_path)
    with pytest.warns(UserWarning, match="a tokenizer with 41 tokens, a backbone with 40. .*'<entity>'"):
        model = kerasbert.load(tmp_path)
    assert len(model.fill_mask("a [MASK] film", top_k=40)[0]) == 40
    with pytest.raises(ValueError, match="40"):
        model.fill_mask("a [MASK] <entity>")
    with pytest.raises(ValueError, match="must all be in the backbone's vocabulary"):
        MaskedLM(Bert(config), tokenizer=larger)
    model.save_to_preset(tmp_path / "again")
    with pytest.warns(UserWarning, match="a tokenizer with 41 tokens"):
        TextClassifier.from_preset(tmp_path / "again", labels=["a", "b"])


@pytest.mark.one_backend
def test_a_folder_is_opened_once(pretrained, monkeypatch):
    """Everything that loading does is a function of one record of the files."""
    _, folder = pretrained
    opened = []

    def noting(function):
        return lambda path, *args, **kwargs: (opened.append(path), function(path, *args, **kwargs))[1]

    monkeypatch.setattr(files, "open", noting(open), raising=False)
    monkeypatch.setattr(json_files.Path, "read_text", noting(json_files.Path.read_text))
    for load in (kerasbert.load, MaskedLM.from_preset, Backbone.from_preset):
        opened.clear()
        load(folder)
        names = [str(path).rpartition("/")[2] for path in opened]
        assert names.count("kerasbert.json") == 1
        assert names.count("config.json") == 2  # its content, and its digest
