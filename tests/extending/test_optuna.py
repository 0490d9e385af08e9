"""A search with Optuna."""

import keras
import numpy as np
import optuna
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from kerasbert.training import add_lora
from tests.extending.small import SIZES, random_ids

X = {"token_ids": random_ids(16, 7)}
Y = X["token_ids"][:, 0] % 2


def objective(trial):
    model = TextClassifier(Bert(BertConfig(**{**SIZES, "num_layers": 1})), labels=2)
    add_lora(model, rank=trial.suggest_categorical("rank", [1, 2]))
    model.compile(keras.optimizers.Adam(trial.suggest_float("rate", 1e-4, 1e-1, log=True)))
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    return model.evaluate(X, Y, verbose=0, return_dict=True)["loss"]


@pytest.mark.one_backend
def test_a_study():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=2)
    assert len(study.trials) == 2 and np.isfinite(study.best_value)
