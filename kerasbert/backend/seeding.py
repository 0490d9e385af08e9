"""Seeds for all random operations without an explicit seed."""

import random

import keras
import numpy as np


def seed_everything(seed: int):
    """Seeds Python, numpy and the backend, and so the initial weights and dropout of models created afterwards.

    `keras.utils.set_random_seed` does the same, but imports TensorFlow wherever it is installed.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        keras.utils.set_random_seed(seed)
        return
    random.seed(seed)
    np.random.seed(seed)
    if backend == "torch":
        import torch

        torch.manual_seed(seed)
