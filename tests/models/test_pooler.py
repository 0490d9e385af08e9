"""Heads that read the output of the pooler refuse a backbone without one, in every family that has such heads."""

import dataclasses

import pytest

from kerasbert.models import FAMILIES

pytestmark = pytest.mark.one_backend

SIZES = dict(
    vocabulary_size=17, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, embedding_dim=16, max_length=8
)


@pytest.mark.parametrize("name", [name for name, cls in FAMILIES.items() if cls.family.pooled_heads])
def test_a_head_without_its_pooler(name):
    cls = FAMILIES[name]
    fields = {field.name for field in dataclasses.fields(cls.family.config)}
    config = cls.family.config(**{key: value for key, value in SIZES.items() if key in fields})
    for kind in cls.family.pooled_heads:
        message = f"The head '{kind}' of {cls.__name__} reads the output of the pooler. Received: a backbone without a"
        with pytest.raises(ValueError, match=message):
            cls(config, pooler=False).make_head(kind)
