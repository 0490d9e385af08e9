"""Layers that Keras cannot build by a call on shapes build themselves, without a warning."""

import warnings

import pytest

from kerasbert.models import Deberta, DebertaV2, TransformerXL, XLNet

SIZE = dict(vocabulary_size=20, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "family, further",
    [
        (Deberta, dict(mask_decoder=True)),
        (DebertaV2, dict(mask_decoder=True)),
        (TransformerXL, dict(head_dim=4, cutoffs=(5, 10))),
        (XLNet, {}),
    ],
)
def test_nothing_is_said_about_unbuilt_state(family, further):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = family(family.family.config(**SIZE, **further))
    assert not [str(one.message) for one in found if "unbuilt state" in str(one.message)]
    assert model.blocks[0].built and len(model.blocks[0].trainable_weights) > 5
