"""Searching settings with KerasTuner and Optuna."""

import keras
import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from kerasbert.training import add_lora
from tests.extending.small import SIZES, random_ids

pytestmark = pytest.mark.one_backend


@pytest.fixture
def data():
    x = {"token_ids": random_ids(16, 7)}
    return x, x["token_ids"][:, 0] % 2


def build(rank, rate):
    model = TextClassifier(Bert(BertConfig(**{**SIZES, "num_layers": 1})), labels=2)
    add_lora(model, rank=rank)
    model.compile(keras.optimizers.Adam(rate))
    return model


def test_hyperband_of_keras_tuner(data, tmp_path):
    """Hyperband continues its best trials: it passes `initial_epoch` to `fit`."""
    import keras_tuner

    x, y = data
    epochs = []

    class Recorded(keras_tuner.Hyperband):
        def run_trial(self, trial, *args, **kwargs):
            hp = trial.hyperparameters.values
            epochs.append((hp["tuner/initial_epoch"], hp["tuner/epochs"]))
            return super().run_trial(trial, *args, **kwargs)

    tuner = Recorded(
        lambda hp: build(hp.Choice("rank", [1, 2]), hp.Float("rate", 1e-4, 1e-1, sampling="log")),
        objective=keras_tuner.Objective("val_loss", "min"),
        max_epochs=2,
        factor=2,
        seed=0,
        directory=tmp_path,
        project_name="search",
    )
    tuner.search(x, y, validation_data=(x, y), batch_size=8, verbose=0)
    assert any(first > 0 for first, _ in epochs)
    best = tuner.get_best_models(1)[0]
    losses = [trial.score for trial in tuner.oracle.trials.values()]
    assert best.evaluate(x, y, verbose=0, return_dict=True)["loss"] == pytest.approx(min(losses), rel=1e-4)


def test_optuna(data):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    x, y = data

    def objective(trial):
        model = build(trial.suggest_categorical("rank", [1, 2]), trial.suggest_float("rate", 1e-4, 1e-1, log=True))
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        return model.evaluate(x, y, verbose=0, return_dict=True)["loss"]

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=2)
    assert len(study.trials) == 2 and np.isfinite(study.best_value)
