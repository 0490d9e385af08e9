"""A family in a user's file: the weights of transformers, in both directions, and `kerasbert.load`."""

import keras
import numpy as np
import pytest
import torch
import transformers

import kerasbert
from kerasbert.models import FAMILIES
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier

SIZES: dict = dict(vocab_size=61, num_hidden_layers=3, num_attention_heads=3, hidden_size=24, intermediate_size=40)
SIZES |= dict(embedding_size=20, max_position_embeddings=17)


@pytest.fixture(scope="module")
def roformer():
    """The class, known to the package for the time of these tests."""
    from tests.extending.roformer import RoFormer

    FAMILIES["roformer"] = RoFormer
    yield RoFormer
    del FAMILIES["roformer"]


def test_a_block_is_rebuilt_from_its_config(roformer):
    backbone = roformer.from_preset("roformer_base", load_weights=False, num_layers=1, vocabulary_size=61)
    assert backbone.count_params() == 61 * 768 + 4 * 768 + 4 * (768**2 + 768) + 2 * 768 * 3_072 + 3_840 + 4 * 768
    block = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(backbone.blocks[0]))
    assert [weight.shape for weight in block.weights] == [weight.shape for weight in backbone.blocks[0].weights]


@pytest.mark.parametrize(
    "name, cls", [("RoFormerForMaskedLM", MaskedLM), ("RoFormerForSequenceClassification", TextClassifier)]
)
def test_outputs_equal_transformers_both_ways(roformer, name, cls, tmp_path):
    torch.manual_seed(0)
    theirs = getattr(transformers, name)(transformers.RoFormerConfig(**SIZES)).eval()
    for name_of, parameter in theirs.named_parameters():
        if "embed_positions" not in name_of:  # sines and cosines
            parameter.requires_grad_(False).normal_(0, 0.2)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = kerasbert.load(tmp_path / "theirs")
    assert type(ours) is cls and type(ours.backbone) is roformer
    random = np.random.default_rng(0)
    ids, mask = random.integers(1, 61, (2, 11)), np.arange(11) < np.array([[11], [7]])

    def expected(model):
        return model(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.detach().numpy()

    inputs = {"token_ids": ids.astype("int32"), "padding_mask": mask}
    found = keras.ops.convert_to_numpy(ours(inputs))
    rows = (slice(None),) if cls is TextClassifier else (mask,)
    np.testing.assert_allclose(found[rows], expected(theirs)[rows], rtol=1e-5, atol=1e-5)  # pyright: ignore

    ours.save_to_preset(tmp_path / "ours")
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours").eval()
    np.testing.assert_allclose(found[rows], expected(again).copy()[rows], rtol=1e-5, atol=1e-5)  # pyright: ignore
