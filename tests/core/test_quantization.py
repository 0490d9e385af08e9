"""Quantisation is refused, by name of what works, and leaves the model as it was."""

import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend

CONFIG = BertConfig(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=8)


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantize_is_refused(mode):
    model = MaskedLM(Bert(CONFIG))
    x = {"token_ids": np.array([[3, 4, 5]], "int32")}
    before = to_numpy(model(x))
    for part in (model, model.backbone):
        with pytest.raises(ValueError, match=f"not supported. Received: '{mode}' for a .*dtype=\"bfloat16\""):
            part.quantize(mode)
    np.testing.assert_array_equal(to_numpy(model(x)), before)


@pytest.mark.parametrize("policy", ["int8_from_float32", "int8_from_mixed_bfloat16"])
def test_so_are_policies(policy):
    with pytest.raises(ValueError, match=f"Received: '{policy}' for a Bert"):
        Bert(CONFIG, dtype=policy)


def test_half_precision_works():
    backbone = Bert(CONFIG, dtype="bfloat16")
    assert all(weight.dtype == "bfloat16" for weight in backbone.weights)
