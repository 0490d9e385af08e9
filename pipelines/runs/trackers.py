"""Sends the metrics of a run to Weights & Biases, TensorBoard or MLflow, by the callbacks of these packages."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import keras

from kerasbert.training import TensorBoardLog

Tracker = Literal["wandb", "tensorboard", "mlflow"]


@contextlib.contextmanager
def tracked(name: Tracker | None, folder: Path, run: str, settings: dict) -> Iterator[list[keras.callbacks.Callback]]:
    """Context manager for tracking one run. Yields its callbacks.

    Args:
        name: the tracker, or None.
        folder: folder for local files.
        run: name of the run.
        settings: the settings of the run, which the tracker shows beside the metrics.
    """
    if name is None:
        yield []
    elif name == "tensorboard":
        yield [TensorBoardLog(folder / "tensorboard")]
    elif name == "mlflow":
        mlflow = _imported("mlflow", "mlflow")
        with mlflow.start_run(run_name=run):
            mlflow.log_params(settings)
            yield [mlflow.keras.MlflowCallback()]
    else:
        wandb = _imported("wandb", "wandb")
        _imported("tensorflow", "tensorflow")  # the callback of wandb is written for it
        from wandb.integration.keras import WandbMetricsLogger

        folder.mkdir(parents=True, exist_ok=True)
        with wandb.init(project="kerasbert", name=run, dir=str(folder), config=settings):
            yield [WandbMetricsLogger()]


def _imported(package: str, name: str):
    try:
        return __import__(package)
    except ImportError:
        raise ImportError(f"This tracker needs the package {package}. Install it: pip install {name}") from None
