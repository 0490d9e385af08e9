"""Model folders whose json or tensors are wrong: an error names the file and the field, and nothing stays behind."""

import json
import shutil

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.checkpoints.arguments import check_arguments
from kerasbert.checkpoints.tensor_files import TensorFiles, write_tensors
from kerasbert.core import initializers as construction
from kerasbert.data.text.json_files import check_types
from kerasbert.models import Backbone, Bert, BertConfig
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection
from kerasbert.tasks import TextClassifier, TextEmbedder
from tests.models.reference import randomize

pytestmark = pytest.mark.one_backend

CONFIG = BertConfig(
    vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=9, num_segments=2
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    randomize(TextClassifier(Bert(CONFIG), labels=["no", "yes"])).save_to_preset(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# === config.json and kerasbert.json ===

WRONG_FIELDS = [
    ("hidden_size", "8", "`hidden_size` in .*config.json must be int. Received: '8'"),
    ("hidden_size", True, "`hidden_size` in .*config.json must be int"),
    ("hidden_size", None, "`hidden_size` in .*config.json must be int"),
    ("hidden_size", 8.5, "`hidden_size` in .*config.json must be int"),
    ("num_attention_heads", 0, "`num_attention_heads` in .*config.json must be from 1 to"),
    ("num_attention_heads", 3, "hidden_dim.*multiple of.*num_heads"),
    ("num_hidden_layers", 10**9, "`num_hidden_layers` in .*config.json must be from 1 to 10,000"),
    ("num_hidden_layers", 500, "num_layers=500 with .* tensors"),
    ("vocab_size", 10**11, "`vocab_size` in .*config.json must be from 1 to 10,000,000"),
    ("vocab_size", 9_000_000, "vocabulary_size=9000000 with .* elements"),
    ("vocab_size", -1, "`vocab_size` in .*config.json must be from 1 to"),
    ("intermediate_size", 999_999_999, "`intermediate_size` in .*config.json must be from 1 to"),
    ("hidden_dropout_prob", 1.5, "`hidden_dropout_prob` in .*config.json must be from 0 to 1"),
    ("layer_norm_eps", float("nan"), "`layer_norm_eps` in .*config.json must be float"),
    ("layer_norm_eps", 10**400, "`layer_norm_eps` in .*config.json must be float"),
    ("hidden_act", ["gelu"], "`hidden_act` in .*config.json must be str"),
    ("model_type", {"bert": 1}, "`model_type` in .*config.json must be str or null"),
    ("architectures", "Bert", "`architectures` in .*config.json must be list"),
    ("id2label", {"a": "no"}, "`id2label` in .*config.json must number its labels from 0"),
    ("id2label", {"0": ["no"]}, "`id2label` in .*config.json must be dict"),
    ("quantization_config", {"quant_method": "gptq"}, "weights quantized by 'gptq'"),
]


@pytest.mark.parametrize(("field", "wrong", "message"), WRONG_FIELDS)
def test_fields_of_config_json(field, wrong, message, folder):
    change(folder / "config.json", **{field: wrong})
    with pytest.raises(ValueError, match=message):
        Backbone.from_preset(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": 3}, "`class` in .*kerasbert.json must be str or null"),
        ({"class": "start_from_teacher"}, "must contain an objective or task"),
        ({"class": "Bert"}, "must contain an objective or task"),
        ({"class": "keras>Dense"}, "must contain an objective or task"),
        ({"arguments": []}, "`arguments` in .*kerasbert.json must be dict or null"),
        ({"arguments": {"labels": 10**9}}, "`labels` in .*kerasbert.json must be from 1 to 10,000"),
        ({"arguments": {"labels": {"a": 1}}}, "`labels` in .*kerasbert.json must be int or list"),
        ({"arguments": {"max_length": "long"}}, "`max_length` in .*kerasbert.json must be int or null"),
        ({"backbone": {"pooler": "yes"}}, "`pooler` in .*kerasbert.json must be bool"),
    ],
)
def test_fields_of_kerasbert_json(changes, message, folder):
    change(folder / "kerasbert.json", **changes)
    with pytest.raises(ValueError, match=message):
        kerasbert.load(folder)


@pytest.mark.parametrize("name", ["config.json", "kerasbert.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\xff"}', "must be JSON"),
        (b"{} " * 3, "must be JSON"),
        (b"[1]", "must contain a JSON object. Received: list"),
        (b" " * 4_000_001, "at most 4,000,000 bytes"),
    ],
)
def test_files_that_are_no_json_objects(name, content, message, folder):
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        kerasbert.load(folder)


def test_a_task_of_the_user_is_loaded_by_its_registered_name(folder):
    @keras.saving.register_keras_serializable("elsewhere")
    class Reader(TextClassifier):
        pass

    Reader(Bert(CONFIG), labels=["no", "yes"]).save_to_preset(folder)
    assert json.loads((folder / "kerasbert.json").read_text())["class"] == "elsewhere>Reader"
    assert type(kerasbert.load(folder)) is Reader


@keras.saving.register_keras_serializable("elsewhere")
class Grader(TextClassifier):
    """A user's task whose arguments have names that classes of this package use with other types."""

    def __init__(
        self, backbone, labels=2, scale: str = "A-F", temperature: list[int] | None = None, steps=(1,), **kwargs
    ):
        self.grades = dict(scale=scale, temperature=temperature, steps=[step + 1 for step in steps])
        super().__init__(backbone, labels, **kwargs)

    def arguments(self):
        return {"labels": self.labels, **self.grades, "steps": [step - 1 for step in self.grades["steps"]]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": 1.5}, r"`scale` in .*kerasbert.json must be str. Received: 1.5 \(float\)"),
        ({"temperature": [1, "hot"]}, r"`temperature` in .*kerasbert.json must be list\[int\] or null"),
        ({"labels": 10**9}, "`labels` in .*kerasbert.json must be from 1 to 10,000"),
        ({"steps": ["a"]}, "must be arguments that Grader accepts. Received: .*raised TypeError: "),
        ({"other": 1}, r"must be those of Grader. Received: \['other'\]"),
    ],
)
def test_arguments_of_a_task_of_the_user(changes, message, folder):
    Grader(Bert(CONFIG), labels=["no", "yes"], temperature=[3], steps=[4, 5]).save_to_preset(folder)
    assert kerasbert.load(folder).grades == {"scale": "A-F", "temperature": [3], "steps": [5, 6]}
    path = folder / "kerasbert.json"
    arguments = json.loads(path.read_text())["arguments"]
    change(path, arguments={**arguments, **changes})
    with pytest.raises(ValueError, match=message):
        kerasbert.load(folder)


def test_annotations_that_cannot_be_checked_are_not():
    class Odd(TextClassifier):
        def __init__(self, backbone, scale: np.ndarray = None, margin: "Unknown" = 1, **kwargs):  # noqa: F821
            super().__init__(backbone, **kwargs)

    check_arguments(Odd, {"scale": [1], "margin": "wide"}, "here")
    with pytest.raises(ValueError, match="`max_length` in here must be int or null"):
        check_arguments(Odd, {"max_length": "long"}, "here")


def test_a_pair_with_bad_arguments(tmp_path):
    generator, discriminator = (kerasbert.models.Electra(kerasbert.models.ElectraConfig(
        vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=8, embedding_dim=8, feed_forward_dim=12, max_length=9
    )) for _ in range(2))  # fmt: skip
    ReplacedTokenDetection(generator, discriminator).save_to_preset(tmp_path)
    change(tmp_path / "kerasbert.json", arguments={"temperature": "hot"})
    with pytest.raises(ValueError, match="`temperature` in .*kerasbert.json must be float"):
        kerasbert.load(tmp_path)


def test_types_of_annotations():
    annotations = {"a": int | None, "b": tuple, "c": float, "d": dict[str, int], "e": list[str]}
    check_types({"a": None, "b": [1], "c": 1, "d": {"x": 1}, "e": ["x"], "f": object()}, annotations, "here")
    for wrong in ({"a": "1"}, {"b": 1}, {"c": True}, {"d": {"x": None}}, {"e": "x"}, {"e": ["\ud800"]}):
        with pytest.raises(ValueError, match="in here must be"):
            check_types(wrong, annotations, "here")
    pairs = {"pairs": tuple[tuple[int, int], ...]}
    check_types({"pairs": [[1, 2], [3, 4]]}, pairs, "here")
    for wrong in ([[1, 2], "ab"], [[1, 2, 3]], [[1]], [1, 2], [[1, "x"]]):
        with pytest.raises(ValueError, match=r"`pairs` in here must be list\[list\[int, int\]\]"):
            check_types({"pairs": wrong}, pairs, "here")


# === sentence-transformers ===


@pytest.fixture
def embedder(tmp_path):
    TextEmbedder(Bert(CONFIG)).save_to_preset(tmp_path / "embedder")
    return tmp_path / "embedder"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", "{}", "modules.json must contain a JSON list"),
        ("modules.json", "[3]", "modules.json must be a list of modules"),
        ("modules.json", '[{"type": 3, "path": ""}]', "`type` in .*modules.json must be str"),
        ("modules.json", '[{"path": ""}]', "`type` in .*modules.json must be str"),
        ("1_Pooling/config.json", "[]", "config.json must contain a JSON object"),
        ("1_Pooling/config.json", '{"pooling_mode": 3}', "`pooling_mode` in .*config.json must be"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": "no"}', "`pooling_mode_max_tokens` in .* must be bool"),
        ("1_Pooling/config.json", '{"pooling_mode": "median"}', "`pooling_mode` in .* must be one or several of"),
        ("sentence_bert_config.json", '{"max_seq_length": "x"}', "`max_seq_length` in .* must be int or null"),
        ("sentence_bert_config.json", '{"max_seq_length": -1}', "`max_seq_length` in .* must be at least 1"),
        ("config_sentence_transformers.json", '{"prompts": [1]}', "`prompts` in .* must be dict"),
        ("config_sentence_transformers.json", "[" * 99_999, "nested too deeply"),
    ],
)
def test_files_of_sentence_transformers(name, content, message, embedder):
    (embedder / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        kerasbert.load(embedder)


def test_modules_lie_in_the_folder(embedder):
    modules = json.loads((embedder / "modules.json").read_text())
    modules[1]["path"] = "../1_Pooling"
    (embedder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="must name files inside its folder"):
        kerasbert.load(embedder)


# === Tensors ===

NAME = "bert.encoder.layer.0.output.dense.weight"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((8, 12), "int64"), f"not usable: {NAME[5:]}.*floating-point numbers, these are int64"),
        (np.ones((8, 12), bool), "these are bool"),
        (np.full((8, 12), np.nan, "float32"), "has NaN or infinite numbers"),
        (np.full((8, 12), -np.inf, "float16"), "has NaN or infinite numbers"),
        (np.full((8, 12), 1e39), "has 1e\\+39, which float32 cannot represent"),
        (np.ones(3, "float32"), "wrong shape"),
        (np.ones((), "float32"), "wrong shape"),
        (np.ones((1, 2, 3, 4), "float32"), "wrong shape"),
    ],
)
def test_tensors_that_are_no_weights(array, message, folder):
    files = TensorFiles(folder)
    tensors = {name: files.read(name) for name in files.keys()}
    write_tensors(folder, {**tensors, NAME: array})
    with pytest.raises(ValueError, match=message):
        kerasbert.load(folder)


def test_numbers_that_are_not_finite_by_a_flag(folder):
    files = TensorFiles(folder)
    tensors = {name: files.read(name) for name in files.keys()}
    write_tensors(folder, {**tensors, NAME: np.full((8, 12), np.nan, "float32")})
    model = kerasbert.load(folder, allow_nan=True)
    assert np.isnan(keras.ops.convert_to_numpy(model.backbone.blocks[0].feed_forward.outer.kernel)).all()


def test_quantized_tensors_are_named_as_such(folder):
    files = TensorFiles(folder)
    tensors = {name: files.read(name) for name in files.keys()}
    write_tensors(folder, {**tensors, NAME.replace("weight", "SCB"): np.ones(8, "float32")})
    with pytest.raises(ValueError, match="full or half precision. Received: .* with quantized weights: .*SCB"):
        kerasbert.load(folder)


# === Nothing left behind ===


def test_sizes_beyond_the_weights_are_refused_before_they_are_made(folder):
    change(folder / "config.json", intermediate_size=900_000, hidden_size=800, num_attention_heads=2)
    with pytest.raises(ValueError, match="sizes that require a tensor of shape \\(800, 900000\\), and weights with"):
        Backbone.from_preset(folder)
    Bert(CONFIG)


def test_a_load_that_ran_out_of_memory_leaves_no_state_behind(folder, monkeypatch):
    """Keras would try to initialize the variables of the failed model when the next one is made."""

    def spend(self, shape):
        made = construction.concrete_array(keras.ops.zeros((1,))) is not None
        if made and tuple(shape) == (8, 12):
            raise MemoryError("no memory for it")

    with monkeypatch.context() as patch:
        patch.setattr(construction._Budget, "spend", spend)
        for cls in (Backbone, TextClassifier):
            with pytest.raises(MemoryError):
                cls.from_preset(folder)
    state = keras.StatelessScope.__enter__.__globals__["global_state"]
    assert not state.get_global_attribute("uninitialized_variables")
    MaskedLM(Bert(CONFIG))
    kerasbert.load(folder)


def test_zeros_of_a_load_are_plain_ones_afterwards(folder):
    layer = Backbone.from_preset(folder).get_layer("token_embedding")
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    again.build()
    assert again.embeddings.shape == (31, 8)


# === Weights of TensorFlow and Flax ===


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tf_model.h5", r"tf_model.h5 has weights that transformers saved for TensorFlow. .*from_tf=True"),
        ("tf_model.h5.index.json", "saved for TensorFlow. Convert them once, with transformers 4"),
        ("flax_model.msgpack", "saved for Flax. .*from_flax=True.*Upgrade notes"),
        ("bert_model.ckpt.index", "is part of a checkpoint of TensorFlow.*transformers-cli convert --model_type bert"),
    ],
)
@pytest.mark.parametrize("has_config", [True, False])
def test_weights_of_other_libraries(name, message, has_config, folder):
    (folder / "model.safetensors").unlink()
    if not has_config:
        for config in ("config.json", "kerasbert.json"):
            (folder / config).unlink()
    (folder / name).write_bytes(b"{}")
    with pytest.raises(FileNotFoundError, match=message):
        Backbone.from_preset(folder)


def test_safetensors_of_tensorflow(folder):
    from safetensors.numpy import save_file

    save_file({"bert/embeddings:0": np.zeros(3, "float32")}, folder / "model.safetensors", {"format": "tf"})
    with pytest.raises(ValueError, match="must have the names of PyTorch. Received: weights .* TensorFlow. .*from_tf"):
        Backbone.from_preset(folder)
