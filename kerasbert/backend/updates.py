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


def shares_rates():
    """Whether all variables can be updated with the same tensor of the learning rate: not under `tf.distribute`."""
    if keras.backend.backend() != "tensorflow":
        return keras.backend.backend() == "jax"
    import tensorflow as tf

    return not tf.distribute.has_strategy()


def has_fused_adam(variables):
    """Whether `adam_tensorflow` can update these Keras variables: float32, on TensorFlow, outside `tf.distribute`."""
    single = all(variable.dtype == "float32" for variable in variables)
    return keras.backend.backend() == "tensorflow" and shares_rates() and single


def adam_tensorflow(variables, gradients, means, squares, constants, corrections):
    """Updates float32 variables of TensorFlow with Adam, in fewer operations than Keras.

    The factor that corrects the root of the second moments divides the rate and `epsilon` instead, which are scalars.
    TensorFlow's own operation would round 1 - `beta_2` to five digits.

    Args:
        variables, gradients, means, squares: lists as in `adam_torch`, of `tf.Variable` and tensors.
        constants: tuple (beta_1, beta_2, epsilon).
        corrections: list of (bias-corrected learning rate, factor that corrects the root of the second moments) for
            each variable, float32 scalars.
    """
    import tensorflow as tf

    beta_1, beta_2, epsilon = constants
    scaled = {}  # most variables share their rate
    for variable, gradient, mean, square, (rate, root_scale) in zip(
        variables, gradients, means, squares, corrections, strict=True
    ):
        if id(rate) not in scaled:
            scaled[id(rate)] = rate / root_scale, epsilon / root_scale
        step, offset = scaled[id(rate)]
        gradient = tf.cast(gradient, "float32")
        mean.assign_add((gradient - mean) * (1 - beta_1))
        square.assign_add((tf.square(gradient) - square) * (1 - beta_2))
        variable.assign_sub(mean * step / (tf.sqrt(square) + offset))
