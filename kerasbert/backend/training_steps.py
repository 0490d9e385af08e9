"""Training steps that consist of several updates, written once for all backends."""

import keras

from .layouts import gathered_for_use


def run_step(model, step, arguments):
    """Runs a training step in the way in which Keras's trainer of the backend calls it.

    Args:
        model: the compiled model.
        step: function that takes a batch, calls `update`, may assign all variables of the model, and returns the logs.
        arguments: the arguments of `model.train_step`: the batch, or on JAX the values of all variables and the batch.

    Returns: the result of `model.train_step`: the logs, and on JAX also the new values of all variables.
    """
    if keras.backend.backend() != "jax":
        return step(*arguments)
    state, batch = arguments
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    pairs = [pair for group, values in zip(groups, state, strict=True) for pair in zip(group, values, strict=True)]
    with keras.StatelessScope(state_mapping=pairs) as scope:
        logs = step(batch)
    return logs, tuple([scope.get_current_value(variable) for variable in group] for group in groups)


def update(model, optimizer, variables, function):
    """Updates some of the variables of a model by the gradients of a loss. Must be called in `run_step`.

    Args:
        model: the model.
        optimizer: the optimizer of these variables, which has been built with them.
        variables: Keras variables.
        function: function without arguments that returns (loss, outputs). It may assign variables that are not trained.

    Returns: (loss, outputs), computed before the update.
    """
    backend = {"jax": _update_jax, "tensorflow": _update_tensorflow, "torch": _update_torch}
    return backend[keras.backend.backend()](model, optimizer, variables, function)


def _update_jax(model, optimizer, variables, function):
    import jax

    trained = {id(variable) for variable in variables}
    weights = [*variables, *(v for v in model.trainable_variables if id(v) not in trained)]
    assigned = [*model.non_trainable_variables, *model.metrics_variables]
    others = [(v, v.value) for v in (*assigned, *optimizer.variables)]  # `scale_loss` reads the optimizer's variables
    values, fixed = [v.value for v in variables], [v.value for v in weights[len(variables) :]]

    def scaled_loss(values):
        used = gathered_for_use([*values, *fixed], weights)
        with keras.StatelessScope(state_mapping=[*zip(weights, used, strict=True), *others]) as scope:
            loss, outputs = function()
            scaled = optimizer.scale_loss(loss)
        return scaled, (loss, outputs, [scope.get_current_value(v) for v in assigned])

    gradients, (loss, outputs, new) = jax.grad(scaled_loss, has_aux=True)(values)
    values, state = optimizer.stateless_apply([v.value for v in optimizer.variables], gradients, values)
    for variable, value in zip((*variables, *optimizer.variables, *assigned), (*values, *state, *new), strict=True):
        variable.assign(value)
    return loss, outputs


def _update_tensorflow(model, optimizer, variables, function):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss, outputs = function()
        scaled = optimizer.scale_loss(loss)
    optimizer.apply(tape.gradient(scaled, variables), variables)
    return loss, outputs


def _update_torch(model, optimizer, variables, function):
    import torch

    model.zero_grad()
    loss, outputs = function()
    optimizer.scale_loss(loss).backward()
    with torch.no_grad():
        optimizer.apply([variable.value.grad for variable in variables], variables)
    return loss.detach(), keras.tree.map_structure(torch.Tensor.detach, outputs)
