"""A search with KerasTuner. Its Hyperband continues the best trials: it passes `initial_epoch` to `fit`."""

import keras
import keras_tuner
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from kerasbert.training import add_lora
from tests.extending.small import SIZES, random_ids


class Recorded(keras_tuner.Hyperband):
    def run_trial(self, trial, *args, **kwargs):
        found.append(trial.hyperparameters.values["tuner/initial_epoch"])
        return super().run_trial(trial, *args, **kwargs)


found: list = []


def build(hp):
    model = TextClassifier(Bert(BertConfig(**{**SIZES, "num_layers": 1})), labels=2)
    add_lora(model, rank=hp.Choice("rank", [1, 2]))
    model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-4, 1e-1, sampling="log")))
    return model


@pytest.mark.one_backend
def test_hyperband(tmp_path):
    x = {"token_ids": random_ids(16, 7)}
    y = x["token_ids"][:, 0] % 2
    objective = keras_tuner.Objective("val_loss", "min")
    options = dict(max_epochs=2, factor=2, seed=0, directory=tmp_path, project_name="search")
    tuner = Recorded(build, objective=objective, **options)  # pyright: ignore
    tuner.search(x, y, validation_data=(x, y), batch_size=8, verbose=0)
    assert 0 in found and 1 in found
    best = tuner.get_best_models(1)[0]
    losses = [trial.score for trial in tuner.oracle.trials.values()]
    assert best.evaluate(x, y, verbose=0, return_dict=True)["loss"] == pytest.approx(min(losses), rel=1e-4)
