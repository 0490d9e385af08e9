"""Numbers of configs that are made in Python have the limits of those in files."""

import pytest

from kerasbert.checkpoints.config_checks import check_sizes_of
from kerasbert.core.family import find_size, size_names
from kerasbert.models import Bert, BertConfig

SIZES = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=8)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(num_layers=-1), "`num_layers` in BertConfig must be from 1 to 10,000. Received: -1"),
        (dict(num_layers=0), "`num_layers` in BertConfig must be from 1 to 10,000. Received: 0"),
        (dict(hidden_dim=0), "`hidden_dim` in BertConfig must be from 1 to 1,000,000. Received: 0"),
        (dict(dropout=2.0), "`dropout` in BertConfig must be from 0 to 1. Received: 2.0"),
        (dict(layer_norm_epsilon=float("nan")), "`layer_norm_epsilon` in BertConfig must be from 0 .* Received: nan"),
        (dict(initializer_range=-1.0), "`initializer_range` in BertConfig must be from 0 .* Received: -1.0"),
    ],
)
def test_sizes_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Bert(BertConfig(**{**SIZES, **wrong}))


@pytest.mark.one_backend
def test_all_sizes_of_papers_are_within_the_limits():
    names = size_names()
    assert len(names) > 100
    for name in names:
        family = find_size(name).family
        check_sizes_of(family.config(**family.sizes[name]))
