"""Backend-specific operations of optimizers."""

import keras


def dense(gradients):
    """Gradients with TensorFlow's `IndexedSlices` (of embeddings) summed into dense tensors."""
    if keras.backend.backend() != "tensorflow":
        return gradients
    import tensorflow as tf

    return [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def clip_torch(gradients, variables, norm):
    """Torch gradients, clipped to a global norm of at most `norm`; NaN if the given ones have an infinite norm.

    Those that the backward pass stored on the variables are scaled in place, others are copied.
    """
    import torch

    with torch.no_grad():
        total = torch.nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None])
        scale = torch.clamp(norm / total, max=1.0) + (total - total)
        left = {id(variable.value.grad) for variable in variables}
        return [g if g is None else g.mul_(scale) if id(g) in left else g * scale for g in gradients]


def adam_torch(variables, gradients, means, squares, constants, rate, step, factors=None):
    """One Adam update of all torch tensors in place, in one pass over them; rate and step stay on the device.

    Args:
        constants: beta_1, beta_2, epsilon.
        rate: float32 ().
        step: float32 (), 1 in the first update; None disables the bias correction of the moments.
        factors: for the rate of each tensor; None for 1.
    """
    import torch

    beta_1, beta_2, epsilon = constants
    if step is None:
        step = torch.full_like(rate, 1e9)  # so late that the bias correction has no effect
    groups = {}
    for number, variable in enumerate(variables):
        factor = 1.0 if factors is None or factors[number] is None else factors[number]
        groups.setdefault((factor, variable.dtype, variable.device), []).append(number)
    with torch.no_grad():
        for held in (*variables, *means, *squares):  # the kernel ignores strides
            if not held.is_contiguous():
                held.data = held.contiguous()
        for (factor, dtype, device), numbers in groups.items():
            torch._fused_adam_(
                [variables[i] for i in numbers],
                [gradients[i].to(dtype).contiguous() for i in numbers],
                [means[i] for i in numbers],
                [squares[i] for i in numbers],
                [],
                [step.to(device)] * len(numbers),
                lr=rate.to(device) * factor,
                beta1=beta_1,
                beta2=beta_2,
                weight_decay=0.0,
                eps=epsilon,
                amsgrad=False,
                maximize=False,
            )
