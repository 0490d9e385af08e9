"""Backend-specific operations of optimizers."""

import keras


def dense(gradients):
    """Converts the sparse gradients of embeddings on TensorFlow (`IndexedSlices`) to dense tensors."""
    if keras.backend.backend() != "tensorflow":
        return gradients
    import tensorflow as tf

    return [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def clip_torch(gradients, variables, norm):
    """Clips torch gradients to a global norm of at most `norm`.

    If the global norm is not finite, all results are NaN. Gradients that are stored on the variables are scaled in
    place; others are copied.

    Args:
        gradients: list of torch tensors or None.
        variables: list of the Keras variables that may hold these gradients.
        norm: maximum global norm.

    Returns: list of the clipped gradients.
    """
    import torch

    with torch.no_grad():
        total = torch.nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None])
        scale = torch.clamp(norm / total, max=1.0) + (total - total)
        left = {id(variable.value.grad) for variable in variables}
        return [g if g is None else g.mul_(scale) if id(g) in left else g * scale for g in gradients]


def adam_torch(variables, gradients, means, squares, constants, rate, step, factors=None):
    """Updates torch tensors in place with Adam, in a fused kernel. `rate` and `step` are not copied to the CPU.

    Args:
        variables, gradients, means, squares: lists of tensors: the parameters, their gradients, and the first and
            second moments, which are updated too.
        constants: tuple (beta_1, beta_2, epsilon).
        rate: float32 scalar tensor, the learning rate.
        step: float32 scalar tensor, the number of the update, counted from 1. None disables the bias correction of the
            moments.
        factors: list of the factors of the learning rate for each tensor, where None means 1. Default: all are 1.
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
