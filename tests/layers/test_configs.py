"""Layers are citizens of Keras: every layer of the package is rebuilt from its config, with its weights and outputs."""

import copy
import dataclasses
import inspect
import json

import keras
import numpy as np
import pytest

from kerasbert import models, objectives, tasks  # noqa: F401  (all layers are known once these are imported)
from kerasbert.backend.compilation import concrete_array
from kerasbert.backend.keras_adapter import all_layers
from kerasbert.core.initializers import zero_weights
from kerasbert.layers import Composite, Dense, Dropout, FeedForward, GatedFeedForward, Layer
from kerasbert.models import Bert, BertConfig
from kerasbert.models.bert import BertBlock
from kerasbert.objectives.retro_mae import RetroMAEDecoder
from kerasbert.objectives.shared_embeddings import DisentangledEmbedding
from kerasbert.objectives.tsdae import CrossAttentions
from kerasbert.tasks.answer_network import AnswerNetwork
from kerasbert.tasks.features import FeatureHead
from kerasbert.tasks.poolings import Pooling
from kerasbert.tasks.sparse_embedder import TokenWeights
from kerasbert.tasks.vector_layers import Dense as Vectors
from kerasbert.tasks.vector_layers import LayerNorm, Normalize, VectorLayers

pytestmark = pytest.mark.one_backend
# JAX compiles every operation of every layer, which takes longer than all the rest.
eager = pytest.mark.backends("torch", "tensorflow")

TINY = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=16)
RECURRENT = dict(vocabulary_size=31, embedding_dim=6, hidden_dim=8, alignment_dim=5, output_dim=6)
ONE_WAY = dict(**RECURRENT, bidirectional=False)

# Fields with which the families have all of their layers and initializers between them.
FIELDS = [
    ("Albert", dict(**TINY, embedding_dim=8)),
    ("Bart", dict(**TINY, max_length=16, model_type="mbart")),
    ("Bert", dict(**TINY, max_length=16)),
    ("Deberta", dict(**TINY, embedding_dim=8, max_length=16, talking_heads=True)),
    ("DebertaV2", dict(**TINY, max_length=16, distance_buckets=8, convolution_width=3)),
    ("DistilBert", dict(**TINY, max_length=16, sinusoidal_positions=True)),
    ("Electra", dict(**TINY, embedding_dim=8)),
    ("Elmo", dict(vocabulary_size=31, hidden_dim=6, cell_dim=8, filters=((1, 4), (2, 4)), num_layers=1)),
    ("EuroBert", dict(**TINY, num_key_heads=1)),
    ("EuroBert", dict(**TINY, tied_output=True)),
    ("GPT", dict(**TINY, max_length=16)),
    ("GPT2", dict(**TINY, max_length=16, scale_attention=False)),
    ("Gte", dict(**TINY, rope_factor=1.5)),
    ("JinaEmbeddingsV3", TINY),
    ("GPTBert", dict(**TINY, max_length=16, distance_buckets=8)),
    ("MobileBert", dict(**TINY, embedding_dim=6, bottleneck_dim=8)),
    ("MPNet", dict(**TINY, max_length=16)),
    ("ModernBert", dict(**TINY, initializer_cutoff=3.0)),
    ("ModernBertDecoder", TINY),
    ("NeoBert", TINY),
    ("NomicBert", TINY),
    ("Roberta", dict(**TINY, max_length=16)),
    ("Seq2SeqAttention", RECURRENT),
    ("Seq2SeqAttention", dict(**RECURRENT, attention="multiplicative", window=2)),
    ("Seq2SeqAttention", dict(**RECURRENT, attention="location", max_length=16)),
    ("Seq2SeqAttention", dict(**ONE_WAY, attention="dot")),
    ("Seq2SeqAttention", dict(**ONE_WAY, attention="none")),
    ("T5", dict(**TINY, head_dim=6)),
    ("T5", dict(**TINY, head_dim=6, gated=True, activation="gelu_new", tied_output=False, scale_output=False)),
    ("Transformer", TINY),
    ("Transformer", dict(**TINY, norm_first=True)),
    ("TransformerXL", dict(**TINY, head_dim=6, cutoffs=(5, 9), embedding_divisor=2)),
    ("TransformerXL", dict(**TINY, head_dim=6, cutoffs=(), pre_norm=True, untied_biases=True)),
    ("WordVectors", dict(vocabulary_size=31, hidden_dim=12)),
    ("XLM", dict(**TINY, max_length=16, num_languages=2, sinusoidal_positions=True)),
    ("XLNet", TINY),
]

# Layers that are not rebuilt from a config.
OTHERS = {
    "Composite": "a base class",
    "Layer": "a base class",
    "ProjectedAttention": "a base class",
    "StreamMemory": "the state of a run; its argument is a method of a backbone",
}


def call_head(backbone, kind):
    """Calls the head of a kind on the outputs of the backbone."""
    given = dict(num_labels=5) if kind in ("classifier", "tagger") else {}
    head = backbone.make_head(kind, **given)
    inputs = {**backbone.example_inputs(), "token_ids": np.array([[3, 4]], "int32")}
    outputs = backbone(inputs)
    x = outputs["sequence_output"]
    if kind in ("masked_lm", "causal_lm", "seq2seq_lm", "permutation_lm"):
        head(x, backbone.token_table)
    elif kind == "span_boundary":
        head(x, x, inputs["token_ids"], backbone.token_table)
    elif kind == "skip_gram":
        head(x[:, 0], inputs["token_ids"])
    else:
        head(x if kind == "bidirectional_lm" else outputs)
    return head


def call_others():
    """Calls the layers that no backbone and none of its heads contain."""
    ids, x = np.array([[3, 4]], "int32"), keras.random.normal((1, 2, 12))
    table = keras.layers.Embedding(31, 12, name="table")
    table(ids)
    calls = [
        (DisentangledEmbedding(table), (ids,)),
        (AnswerNetwork(3, 12), (x, {"token_ids": ids, "segment_ids": np.array([[0, 1]])})),
        (FeatureHead(3, lstm_dim=4), ([x, x], np.ones((1, 2), bool))),
        (GatedFeedForward(12, 16), (x,)),
        (Pooling([Vectors(8).config(), "mean", "cls", LayerNorm().config()]), (x, np.ones((1, 2), bool))),
        (VectorLayers([Vectors(8, "identity", residual=True).config(), Normalize().config()]), (x,)),
        (TokenWeights(31), (ids,)),
        (RetroMAEDecoder(BertConfig(**TINY)), (x, x, None)),
        (CrossAttentions(BertConfig(**TINY), (12,), (True,)), (x[:, :1],)),
    ]
    for layer, arguments in calls:
        layer(*arguments)
    return [layer for layer, _ in calls]


@pytest.fixture(scope="module")
def layers():
    """[(where it is from, layer, its first call: (args, kwargs, outputs) or None)], one for each class in a model."""
    calls, call = {}, keras.layers.Layer.__call__

    def recorded(layer, *args, **kwargs):
        outputs = call(layer, *args, **kwargs)
        if all(concrete_array(x) is not None for x in keras.tree.flatten(outputs) if x is not None):
            calls.setdefault(layer, (args, kwargs, outputs))
        return outputs

    found = {}
    with pytest.MonkeyPatch.context() as patch:
        for cls in (Layer, Dense, Dropout):
            patch.setattr(cls, "__call__", recorded, raising=False)
        for number, (name, fields) in enumerate(FIELDS):
            cls = getattr(models, name)
            pooler = {"pooler": True} if "pooler" in inspect.signature(cls.__init__).parameters else {}
            backbone = cls(getattr(models, f"{name}Config")(**fields), **pooler)
            kinds = [kind for kind in backbone.family.heads if fits(backbone, kind)]
            for model in (backbone, *(call_head(backbone, kind) for kind in kinds)):
                for layer in all_layers(model, include_self=model is not backbone):
                    found.setdefault((f"{name} {number}", type(layer)), layer)
        for layer in call_others():
            for inner in all_layers(layer):
                found.setdefault(("tasks and objectives", type(inner)), inner)
    return [
        (place, layer, calls.get(layer))
        for (place, cls), layer in found.items()
        if cls is not keras.layers.Identity  # which has no config if its dtype is a policy
    ]


def fits(backbone, kind):
    """Whether a backbone with this config can have the head: T5 and causal models refuse some."""
    try:
        backbone.make_head(kind, **(dict(num_labels=5) if kind in ("classifier", "tagger") else {}))
    except ValueError:
        return False
    return True


def as_json(value):
    return json.loads(json.dumps(value))


@eager
def test_a_layer_equals_the_one_that_is_made_from_its_config(layers):
    for place, layer, _ in layers:
        config = as_json(layer.get_config())
        again = type(layer).from_config(config)
        assert type(again) is type(layer)
        assert as_json(again.get_config()) == config, f"{type(layer).__name__} of {place}"
        assert again.name == layer.name and again.dtype_policy == layer.dtype_policy


@eager
def test_a_saved_layer_has_the_same_weights_and_outputs(layers):
    compared = set()
    for place, layer, call in layers:
        which = f"{type(layer).__name__} of {place}"
        again = keras.saving.deserialize_keras_object(as_json(keras.saving.serialize_keras_object(layer)))
        assert type(again) is type(layer) and again.built == layer.built, which
        assert [v.path.split("/")[-1] for v in again.weights] == [v.path.split("/")[-1] for v in layer.weights], which
        again.set_weights(layer.get_weights())  # checks the shapes
        if call is None:
            continue
        args, kwargs, outputs = call
        found = again(*args, **kwargs)
        for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(outputs), strict=True):
            if one is not None:
                one, other = (keras.ops.convert_to_numpy(x) for x in (one, other))
                np.testing.assert_array_equal(one, other, err_msg=which)
        compared.add(type(layer))
    assert len(compared) > 60


@eager
def test_every_layer_of_the_package_is_among_them(layers):
    def subclasses(cls):
        return {cls}.union(*map(subclasses, cls.__subclasses__()))

    ours = {cls for cls in subclasses(keras.layers.Layer) if cls.__module__.startswith("kerasbert.")}
    ours = {cls.__name__ for cls in ours if not issubclass(cls, keras.Model)}
    assert ours - {type(layer).__name__ for _, layer, _ in layers} == set(OTHERS)


def test_a_layer_that_is_not_built_stays_so():
    layer = BertBlock(BertConfig(**TINY), name="block")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert not again.built and again.get_config() == layer.get_config()


def test_copies_of_a_layer_are_equal_and_independent():
    block = Bert(BertConfig(**TINY)).blocks[0]
    x = keras.random.normal((2, 3, 12))
    expected = keras.ops.convert_to_numpy(block(x)[0])
    again = copy.deepcopy(block)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(x)[0]), expected)
    for weight in again.weights:
        weight.assign(np.zeros(weight.shape, weight.dtype))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(block(x)[0]), expected)


def test_a_functional_model_of_layers_is_saved_and_cloned(tmp_path):
    x = inputs = keras.Input((None, 12))
    x = FeedForward(12, 16, "tanh", dropout=0.1, name="feed_forward")(x)
    model = keras.Model(inputs, Dense(2, name="scores")(x))
    model.save(tmp_path / "model.keras")
    loaded, clone = keras.models.load_model(tmp_path / "model.keras"), keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    x = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    for again in (loaded, clone):
        np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
        assert again.get_layer("feed_forward").get_config() == model.get_layer("feed_forward").get_config()


def test_a_layer_of_a_loaded_model_is_not_rebuilt_with_zeros():
    with zero_weights():
        bert = Bert(BertConfig(**TINY))
    dense = bert.blocks[0].attention.query
    assert not np.any(keras.ops.convert_to_numpy(dense.kernel))
    again = keras.saving.deserialize_keras_object(as_json(keras.saving.serialize_keras_object(dense)))
    assert type(again.kernel_initializer) is keras.initializers.TruncatedNormal
    assert 0.01 < np.std(keras.ops.convert_to_numpy(again.kernel)) < 0.03


# === Layers of other packages ===


@keras.saving.register_keras_serializable("elsewhere")
@dataclasses.dataclass(frozen=True)
class ScaledConfig(models.Config):
    hidden_dim: int = 12
    scale: float = 2.0


@keras.saving.register_keras_serializable("elsewhere")
class Scaled(FeedForward):
    """A subclass with other arguments than its base class."""

    def __init__(self, config, *, bias=1.0, **kwargs):
        super().__init__(config.hidden_dim, 16, **kwargs)
        self.scale, self.bias = config.scale, bias

    def call(self, x):
        return self.scale * super().call(x) + self.bias


class Unregistered(Composite):
    pass


def test_layers_of_other_packages_are_registered_by_their_authors():
    layer = Scaled(ScaledConfig(scale=3.0), bias=4.0, name="scaled", trainable=False, dtype="mixed_bfloat16")
    stored = as_json(keras.saving.serialize_keras_object(layer))
    assert stored["registered_name"] == "elsewhere>Scaled"
    assert set(stored["config"]) == {"config", "bias", "name", "trainable", "dtype"}
    again = keras.saving.deserialize_keras_object(stored)
    assert type(again) is Scaled and (again.scale, again.bias, again.trainable) == (3.0, 4.0, False)
    assert again.outer.dtype_policy.name == "mixed_bfloat16"

    known = keras.saving.get_custom_objects()
    assert "kerasbert>Scaled" not in known and "kerasbert>Unregistered" not in known
    stored = keras.saving.serialize_keras_object(Unregistered(name="a"))
    again = keras.saving.deserialize_keras_object(stored, custom_objects={"Unregistered": Unregistered})
    assert type(again) is Unregistered and again.name == "a"
