"""The random state that the backend keeps outside of Keras variables: that of torch's generators."""

import keras
import numpy as np


def get_random_state():
    """{name: uint8 array}, empty where all random state is in Keras variables (JAX, TensorFlow)."""
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda_{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    return {name: np.ascontiguousarray(state.cpu().numpy()) for name, state in states.items()}


def set_random_state(states):
    """Restores what `get_random_state` returned; generators of missing devices are skipped."""
    if not states:
        return
    import torch

    torch.set_rng_state(torch.tensor(states["cpu"]))
    for index in range(torch.cuda.device_count()):
        if f"cuda_{index}" in states:
            torch.cuda.set_rng_state(torch.tensor(states[f"cuda_{index}"]), index)
