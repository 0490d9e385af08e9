"""Reads and restores the random state of torch's generators, which is not held in Keras variables."""

import keras
import numpy as np


def get_random_state():
    """Returns {name: uint8 array}, the states of torch's generators.

    The dict is empty on JAX and TensorFlow, where Keras variables hold the whole random state.
    """
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda_{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    return {name: np.ascontiguousarray(state.cpu().numpy()) for name, state in states.items()}


def set_random_state(states):
    """Restores the result of `get_random_state`. States of devices that do not exist here are ignored."""
    if not states:
        return
    import torch

    torch.set_rng_state(torch.tensor(states["cpu"]))
    for index in range(torch.cuda.device_count()):
        if f"cuda_{index}" in states:
            torch.cuda.set_rng_state(torch.tensor(states[f"cuda_{index}"]), index)
