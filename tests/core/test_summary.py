"""`summary()` has the shapes of the outputs of all layers."""

import numpy as np
import pytest

from kerasbert import models
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, MultiTask, TextClassifier
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=2, hidden_dim=20, feed_forward_dim=36)
FAMILIES = {
    "Bert": lambda: models.Bert(models.BertConfig(**TINY, max_length=16)),
    "T5": lambda: models.T5(models.T5Config(**TINY, head_dim=10)),
    "XLNet": lambda: models.XLNet(models.XLNetConfig(**TINY)),
    "Elmo": lambda: models.Elmo(models.ElmoConfig(vocabulary_size=61, hidden_dim=20, cell_dim=12, filters=((2, 5),))),
}


def lines_of(model):
    lines = []
    model.summary(print_fn=lambda text, line_break=False: lines.extend(text.split("\n")))
    return lines


@pytest.mark.parametrize("name", FAMILIES)
def test_backbones(name):
    backbone = FAMILIES[name]()
    state = [dict(vars(layer)).keys() for layer in backbone._flatten_layers()]
    lines = lines_of(backbone)
    assert any("(None, None, 20)" in line for line in lines) and not any(" ? " in line for line in lines)
    assert [dict(vars(layer)).keys() for layer in backbone._flatten_layers()] == state


def test_models():
    backbone = FAMILIES["Bert"]()
    ids = np.ones((2, 4), "int32")
    batches = {
        TextClassifier: {"token_ids": ids},
        MaskedLM: {"token_ids": ids},
        MultipleChoice: {"token_ids": ids[:, None]},
    }
    for cls, batch in batches.items():
        model = cls(backbone)
        before = to_numpy(model(batch))
        assert any("bert" in line and ", 20)" in line for line in lines_of(model)), cls
        np.testing.assert_array_equal(to_numpy(model(batch)), before)
    assert any("one" in line and "(None, 2)" in line for line in lines_of(MultiTask(backbone, {"one": {}, "two": {}})))
