"""Seeds for everything that draws without a seed of its own."""

import random

import keras
import numpy as np


def seed_everything(seed: int):
    """Seeds Python, numpy and the backend, hence the initial weights and the dropout of models made afterwards.

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
