"""Two objectives that train one backbone in turn."""

import keras
import numpy as np

from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TokenClassifier
from tests.extending.small import SIZES, random_ids


def test_two_models_train_one_backbone_in_turn():
    backbone = Bert(BertConfig(**SIZES))
    masked, tagger = MaskedLM(backbone), TokenClassifier(backbone, labels=["even", "odd"])
    ids = random_ids(8, 7)
    hidden = {"token_ids": ids, "masked_positions": np.tile(np.array([1, 4], "int32"), (8, 1))}
    masked.compile(keras.optimizers.Adam(1e-2))
    tagger.compile(keras.optimizers.Adam(1e-2))
    tables, losses = [], {"masked": [], "tagger": []}
    for _ in range(2):
        losses["masked"] += masked.fit(hidden, ids[:, [1, 4]], batch_size=8, epochs=3, verbose=0).history["loss"]
        tables.append(keras.ops.convert_to_numpy(backbone.token_table))
        losses["tagger"] += tagger.fit({"token_ids": ids}, ids % 2, batch_size=8, epochs=3, verbose=0).history["loss"]
        tables.append(keras.ops.convert_to_numpy(backbone.token_table))
    assert all(np.abs(one - other).max() > 1e-4 for one, other in zip(tables, tables[1:], strict=False))
    assert losses["masked"][-1] < 0.8 * losses["masked"][0] and losses["tagger"][-1] < 0.5 * losses["tagger"][0]
    assert not {id(v) for v in backbone.pooler.variables} & {id(v) for v in masked.trainable_variables}  # pyright: ignore
