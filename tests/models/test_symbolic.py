"""Backbones called on symbolic inputs of unknown length, as parts of functional models."""

import inspect

import keras
import numpy as np
import pytest

from kerasbert import models
from tests.models.reference import to_numpy
from tests.models.test_blocks import FAMILIES, make

# The shapes of the others consist of the same parts.
ON_ALL_BACKENDS = {"Bert", "DebertaV2", "Elmo", "ModernBert", "Seq2SeqAttention", "T5", "TransformerXL", "XLNet"}


def selected(names):
    """The names as parameters; those of families that are not in `ON_ALL_BACKENDS` are tested on PyTorch only."""
    return [name if name in ON_ALL_BACKENDS else pytest.param(name, marks=pytest.mark.one_backend) for name in names]


@pytest.mark.parametrize("name", selected(FAMILIES))
def test_outputs_of_a_functional_model_are_the_backbone_s(name):
    backbone = make(name)
    example = backbone.example_inputs()
    # Keras on PyTorch tries an unknown length out with rows of 83 tokens, which recurrent layers read one by one.
    recurrent = name in ("Elmo", "Seq2SeqAttention") and keras.backend.backend() == "torch"
    inputs = {
        key: keras.Input((6 if recurrent else None, *np.shape(array)[2:]), dtype=str(array.dtype), name=key)
        for key, array in example.items()
    }
    model = keras.Model(inputs, backbone(inputs)["sequence_output"])
    assert model.outputs[0].shape[2] == backbone(example)["sequence_output"].shape[2]
    random = np.random.default_rng(0)
    batch = {key: random.integers(5, 31, (2, 6, *np.shape(array)[2:])) for key, array in example.items()}
    batch = {key: array.astype("int32") % (6 if key == "masked_positions" else 31) for key, array in batch.items()}
    expected = to_numpy(backbone(batch)["sequence_output"])
    np.testing.assert_allclose(to_numpy(model(batch)), expected, rtol=1e-5, atol=1e-6)


def test_symbolic_masks():
    backbone = make("Bert")
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32"),
        "padding_mask": keras.Input((None,), dtype="bool"),
        "segment_ids": keras.Input((None,), dtype="int32"),
    }
    outputs = backbone(inputs, hidden_states=True)
    assert outputs["sequence_output"].shape == outputs["hidden_states"][-1].shape == (None, None, 12)
    assert isinstance(backbone, models.Bert) and outputs["pooled_output"].shape == (None, 12)


BACKBONES = {name: lambda name=name: make(name) for name in FAMILIES} | {
    "WordVectors": lambda: models.WordVectors(models.WordVectorsConfig(vocabulary_size=31, hidden_dim=8)),
    **{
        f"{name} without pooler": lambda name=name: getattr(models, name)(make(name).config, pooler=False)
        for name in ("Albert", "Bert", "MobileBert", "Roberta")
    },
}


def batches_of(name, backbone):
    """Yields (keys of outputs that the batch lacks, batch, flags): a plain batch and, where possible, packed rows."""
    lacking = {"pooled_output"} if name.endswith("without pooler") else set()
    example = {key: np.array(array) for key, array in backbone.example_inputs().items()}
    flags = inspect.signature(backbone.call).parameters.keys() & {"hidden_states", "attention_weights"}
    yield lacking, example, dict.fromkeys(flags, True)
    if name not in ("Elmo", "Seq2SeqAttention", "WordVectors"):  # which have no packed rows or no summary of a row
        halves = [key for key in ("token_ids", "decoder_token_ids") if key in example]
        ids = {key.replace("token_ids", "sequence_ids"): np.ones_like(example[key]) for key in halves}
        yield lacking | SUMMARIES, {**example, **ids}, {}
        if backbone.has_output_positions:
            yield lacking | SUMMARIES, {**example, **ids}, {"output_positions": np.zeros((1, 1), "int32")}


SUMMARIES = {"first_output", "last_output", "pooled_output", "choice_output", "end_output"}


@pytest.mark.parametrize("name", selected(BACKBONES))
def test_every_output_has_a_value_and_a_functional_model_returns_all_of_them(name):
    backbone = BACKBONES[name]()
    for lacking, batch, flags in batches_of(name, backbone):
        inputs = {key: keras.Input(a.shape[1:], dtype=str(a.dtype), name=key) for key, a in batch.items()}
        outputs = backbone(inputs, **flags)
        expected = backbone(batch, **flags)
        assert outputs.keys() == expected.keys() and lacking.isdisjoint(expected) and "sequence_output" in expected
        values = keras.tree.flatten(expected)
        assert all(value is not None for value in values)
        for found, value in zip(keras.tree.flatten(keras.Model(inputs, outputs)(batch)), values, strict=True):
            np.testing.assert_allclose(to_numpy(found), to_numpy(value), rtol=1e-5, atol=1e-6)


HEADS = [
    (name, kind)
    for name in FAMILIES
    for kind in ("classifier", "sentence_pair", "choice")
    if kind in getattr(models, name).family.heads and name not in ("Elmo", "Seq2SeqAttention")
]


@pytest.mark.one_backend
@pytest.mark.parametrize("name, kind", HEADS)
def test_heads_refuse_packed_rows_without_first_positions(name, kind):
    backbone = make(name)
    if kind in backbone.family.pooled_heads:
        backbone = getattr(models, name)(backbone.config, pooler=True)
    head = backbone.make_head(kind, **({"num_labels": 2} if kind == "classifier" else {}))
    ids = np.array([[1, 2, 3]], "int32")
    batch = {key: ids for key in ("token_ids", "language_ids") if key in backbone.example_inputs()}
    with pytest.raises(ValueError, match="[Pp]acked rows"):
        head(backbone({**batch, "sequence_ids": np.ones_like(ids)}))
