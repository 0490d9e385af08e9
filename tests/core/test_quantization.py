"""Quantization: what is quantized, that the answers stay, that files keep it, and what is refused."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.core.quantization import layers_by_path, schemes_of
from kerasbert.layers.embeddings import float_table
from kerasbert.models import Bert, BertConfig, Electra, ElectraConfig, Elmo, ElmoConfig
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection
from kerasbert.tasks import TextClassifier
from kerasbert.training import add_lora
from tests.models.reference import to_numpy

CONFIG = BertConfig(
    vocabulary_size=31,
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    feed_forward_dim=12,
    max_length=8,
    initializer_range=0.3,
)
X = {"token_ids": np.array([[3, 4, 5], [6, 7, 30]], "int32")}


def dense(model):
    return [layer for layer in layers_by_path(model).values() if isinstance(layer, keras.layers.Dense)]


def schemes(model):
    return schemes_of(layers_by_path(model))


def floats_of(layer):
    """The kernel of an int8 layer as floats."""
    return to_numpy(layer.kernel) / to_numpy(layer.kernel_scale)


@pytest.mark.parametrize("mode, tolerance", [("int8", 0.03), ("int4", 0.4)])
def test_every_dense_layer_and_table_is_quantized_and_files_keep_it(mode, tolerance, tmp_path):
    keras.utils.set_random_seed(0)
    model = MaskedLM(Bert(CONFIG), sentence_pair=True)
    before = {name: to_numpy(value) for name, value in model(X).items()}
    model.quantize(mode)
    assert all(layer.quantization_mode == mode for layer in layers_by_path(model).values())
    assert len(dense(model)) == 6 + 1 + 1 + 1  # a block, the pooler, and the two heads
    after = {name: to_numpy(value) for name, value in model(X).items()}
    for name, value in before.items():
        difference = np.abs(after[name] - value).max()
        assert 0 < difference < tolerance * np.abs(value).max()

    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "folder")
    for again in (keras.saving.load_model(tmp_path / "model.keras"), kerasbert.load(tmp_path / "folder")):
        assert schemes(again) == schemes(model)
        for name, value in after.items():
            np.testing.assert_array_equal(to_numpy(again(X)[name]), value)
    backbone = Bert.from_preset(tmp_path / "folder")
    assert all(layer.quantization_mode == mode for layer in layers_by_path(backbone).values())
    np.testing.assert_array_equal(
        to_numpy(backbone(X)["sequence_output"]), to_numpy(model.backbone(X)["sequence_output"])
    )


@pytest.mark.one_backend
def test_int8_rounds_to_a_scale_per_output():
    backbone = Bert(CONFIG)
    kernels = [to_numpy(layer.kernel) for layer in dense(backbone)]
    table = to_numpy(backbone.token_embedding.embeddings)
    backbone.quantize("int8")
    for kernel, layer in zip(kernels, dense(backbone), strict=True):
        step = np.abs(kernel).max(axis=0) / 127
        assert np.all(np.abs(floats_of(layer) - kernel) <= step / 2 + 1e-6)
    step = np.abs(table).max(axis=1, keepdims=True) / 127
    assert np.all(np.abs(to_numpy(float_table(backbone.token_embedding)) - table) <= step / 2 + 1e-6)


@pytest.mark.one_backend
def test_tied_logits_read_the_table_as_floats():
    model = MaskedLM(Bert(CONFIG))
    before = to_numpy(model(X))
    model.quantize("int8", filters="token_embedding")
    assert list(schemes(model).values()) == ["int8"]
    np.testing.assert_allclose(to_numpy(model(X)), before, atol=0.03 * np.abs(before).max())


@pytest.mark.one_backend
def test_weights_only_and_mixed_schemes_are_kept(tmp_path):
    model = TextClassifier(Bert(CONFIG), labels=["a", "b"])
    weights_only = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=4), filters=["inner", "outer"])
    model.quantize(config=weights_only)
    found = schemes(model)
    assert {path for path, scheme in found.items() if scheme == "int4/4"} == {
        "block_0/feed_forward/inner",
        "block_0/feed_forward/outer",
    }
    assert set(found.values()) == {"int4/4", "int8_weights"}
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert schemes(again) == found
    np.testing.assert_array_equal(to_numpy(again(X)), to_numpy(model(X)))
    copied = keras.models.clone_model(model)
    assert schemes(copied) == found


@pytest.mark.one_backend
def test_a_folder_is_of_no_use_to_other_programs(tmp_path):
    """transformers would read int8 as floats: it must find no weights."""
    import transformers

    model = MaskedLM(Bert(dataclasses.replace(CONFIG, vocabulary_size=2_000, hidden_dim=32)))
    model.save_to_preset(tmp_path)
    floats = (tmp_path / "model.safetensors").stat().st_size
    model.quantize("int8")
    model.save_to_preset(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "kerasbert.safetensors").stat().st_size < 0.35 * floats
    assert json.loads((tmp_path / "config.json").read_text())["quantization_config"] == {"quant_method": "kerasbert"}
    with pytest.raises(OSError, match="model.safetensors"):
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    again = MaskedLM(Bert(CONFIG))
    again.save_to_preset(tmp_path)
    assert not (tmp_path / "kerasbert.safetensors").exists()
    np.testing.assert_array_equal(to_numpy(kerasbert.load(tmp_path)(X)), to_numpy(again(X)))


@pytest.mark.one_backend
def test_a_new_head_and_lora_train_on_integers(tmp_path):
    backbone = Bert(CONFIG)
    backbone.quantize("int8")
    backbone.save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="has no weights for classifier"):
        model = TextClassifier.from_preset(tmp_path, labels=2)
    add_lora(model, rank=2)
    frozen = {v.path: to_numpy(v).copy() for v in model.backbone.weights if "lora" not in v.path}
    y = np.array([0, 1], "int32")
    model.compile(keras.optimizers.Adam(0.05))
    losses = model.fit(X, y, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    for variable in model.backbone.weights:
        if "lora" not in variable.path:
            np.testing.assert_array_equal(to_numpy(variable), frozen[variable.path])
    with pytest.raises(ValueError, match="Save its adapter with `save_adapter`"):
        model.save_to_preset(tmp_path)
    model.save_adapter(tmp_path / "adapter")
    with pytest.warns(UserWarning, match="has no weights for classifier"):
        again = TextClassifier.from_preset(tmp_path, labels=2)
    with pytest.raises(ValueError, match="cannot be merged into integers"):
        again.load_adapter(tmp_path / "adapter", merge=True)
    again.load_adapter(tmp_path / "adapter")
    np.testing.assert_array_equal(to_numpy(again(X)), to_numpy(model(X)))
    lm = MaskedLM(backbone)
    add_lora(lm, rank=2)
    with pytest.raises(ValueError, match="Freeze the head before training"):
        lm.save_adapter(tmp_path / "adapter")


def test_float8_trains_and_its_folder_holds_floats(tmp_path):
    keras.utils.set_random_seed(0)
    model = TextClassifier(Bert(CONFIG), labels=2)
    model.quantize("float8")
    assert set(schemes(model).values()) == {"float8"} and len(schemes(model)) == len(dense(model))
    query = model.backbone.blocks[0].attention.query
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(X, np.array([0, 1], "int32"), epochs=12, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert float(to_numpy(query.kernel_scale)) != 1.0 and np.any(to_numpy(query.inputs_amax_history))
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert not schemes(again)
    np.testing.assert_array_equal(to_numpy(again.backbone.blocks[0].attention.query.kernel), to_numpy(query.kernel))


@pytest.mark.one_backend
def test_what_is_refused():
    elmo = Elmo(ElmoConfig(vocabulary_size=31, characters=False, num_layers=1, hidden_dim=8, cell_dim=12))
    with pytest.raises(ValueError, match=r'are others: .* from_preset\(path, dtype="bfloat16"\)'):
        elmo.quantize("int8")
    sizes = {name: getattr(CONFIG, name) for name in ("vocabulary_size", "num_heads", "hidden_dim", "feed_forward_dim")}
    pair = ReplacedTokenDetection(*(Electra(ElectraConfig(num_layers=1, embedding_dim=8, **sizes)) for _ in range(2)))
    with pytest.raises(ValueError, match="a model with one backbone. Received: a ReplacedTokenDetection"):
        pair.quantize("int8")
    model = TextClassifier(Bert(CONFIG), labels=2)
    before = to_numpy(model(X))
    quantizer = keras.quantizers.AbsMaxQuantizer(axis=0, value_range=(-100, 100))
    with pytest.raises(ValueError, match="with Keras's default quantizers"):
        model.quantize(config=keras.quantizers.Int8QuantizationConfig(weight_quantizer=quantizer))
    with pytest.raises(ValueError, match="layers that are not quantized yet"):
        model.quantize("int8", filters="no_such_layer")
    np.testing.assert_array_equal(to_numpy(model(X)), before)
    add_lora(model, rank=2)
    with pytest.raises(ValueError, match="Keras has no LoRA in float8"):
        model.quantize("float8")
    with pytest.raises(ValueError, match="float16"):
        Bert(CONFIG, dtype="float16").quantize("int8")
    with pytest.raises(ValueError, match=r"Quantize the finished model: model.quantize\('int8'\)"):
        Bert(CONFIG, dtype="int8_from_float32")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "change, message",
    [
        ({"layers": {"block_0/attention/query": "int3"}}, "A scheme must be int8, int8_weights"),
        ({"layers": ["block_0"]}, "`layers` in .*kerasbert.json must be"),
        ({"layers": {}}, "must be floating-point numbers, these are int8"),
    ],
)
def test_damaged_descriptions(change, message, tmp_path):
    backbone = Bert(CONFIG)
    backbone.quantize("int8")
    backbone.save_to_preset(tmp_path)
    path = tmp_path / "kerasbert.json"
    saved = json.loads(path.read_text())
    saved["quantization"] |= change
    path.write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=message):
        Bert.from_preset(tmp_path)
