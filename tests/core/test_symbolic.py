"""Backbones called on symbolic inputs of unknown length, as parts of functional models."""

import keras
import numpy as np
import pytest

from kerasbert import models
from tests.models.reference import to_numpy
from tests.models.test_blocks import FAMILIES, make


@pytest.mark.parametrize("name", FAMILIES)
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
