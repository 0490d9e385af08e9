"""What optimizers need from a backend."""

import keras


def dense(gradients):
    """Gradients with TensorFlow's `IndexedSlices` (of embeddings) summed into dense tensors."""
    if keras.backend.backend() != "tensorflow":
        return gradients
    import tensorflow as tf

    return [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def adam_torch(variables, gradients, means, squares, constants, corrections, factors=None):
    """One Adam update of all torch tensors in place; the rate and the factor of the root stay on the device.

    `factors` multiply the rate of each tensor; None for 1.
    """
    import torch

    beta_1, beta_2, epsilon = constants
    rate, root_scale = corrections
    with torch.no_grad():
        gradients = [g.to(v.dtype) for g, v in zip(gradients, variables, strict=True)]
        torch._foreach_lerp_(means, gradients, 1 - beta_1)
        torch._foreach_mul_(squares, beta_2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta_2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_mul_(denominators, root_scale)
        torch._foreach_add_(denominators, epsilon)
        steps = torch._foreach_div(means, denominators)
        torch._foreach_mul_(steps, rate)
        for step, factor in zip(steps, factors or [None] * len(steps), strict=True):
            if factor is not None:
                step.mul_(factor)
        torch._foreach_sub_(variables, steps)
