"""Seeds all random operations for which no explicit seed is given."""

import random

import keras
import numpy as np


def seed_everything(seed: int):
    """Seeds Python, numpy and the backend.

    This determines the initial weights and the dropout of models that are created afterwards.
    `keras.utils.set_random_seed` does the same, but imports TensorFlow if it is installed.

    Args:
        seed: any integer from 0 to 2**32 - 1.
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
