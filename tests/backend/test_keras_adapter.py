"""The private parts of Keras that the adapter relies on behave as it expects. A failure names the version of Keras."""

import inspect

import keras
import numpy as np
import pytest

from kerasbert.backend import keras_adapter

VERSION = f"Keras {keras.__version__}"


class Inner(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dropout = keras.layers.Dropout(0.5)
        self.found = []

    def call(self, x):
        self.found.append(keras_adapter.is_training(self))
        return self.dropout(x)


class Outer(keras_adapter.TrainingMode):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize("training", [True, False])
def test_layers_know_whether_their_model_trains(training):
    model = Outer()
    x = keras.ops.ones((4, 50))
    model(x, training=training)
    model.inner.found.clear()
    y, _ = model.stateless_call([], [v.value for v in model.non_trainable_variables], x, training=training)
    assert model.inner.found == [training], f"{VERSION}: `stateless_call` no longer passes `training` to layers"
    assert (np.asarray(keras.ops.convert_to_numpy(y)) == 0).any() == training


@pytest.mark.one_backend
def test_all_layers():
    model = Outer()
    names = {type(layer).__name__ for layer in keras_adapter.all_layers(model)}
    assert names == {"Outer", "Inner", "Dropout"}, f"{VERSION}: `_flatten_layers` has changed"
    assert model not in keras_adapter.all_layers(model, include_self=False)
    assert keras_adapter.all_layers(model, include_self=False, recursive=False) == [model.inner], VERSION


@pytest.mark.one_backend
def test_losses_of_batches_are_averaged_over_rows():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for loss, rows in ((1.0, 1), (3.0, 3)):
        keras_adapter.track_loss(model, keras.ops.convert_to_tensor(loss), rows)
    found = float(model.get_metrics_result()["loss"])
    assert found == pytest.approx(2.5), f"{VERSION}: `_loss_tracker` is no longer the mean that is reported as `loss`"


def test_fit_marks_its_validations():
    class Model(keras.Sequential):
        def evaluate(self, *args, **kwargs):
            found.append(keras_adapter.is_validation(kwargs))
            return super().evaluate(*args, **kwargs)

    found, x = [], np.ones((4, 1), "float32")
    model = Model([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.evaluate(x, x, verbose=0)
    model.fit(x, x, validation_data=(x, x), verbose=0)
    assert found == [False, True], f"{VERSION}: `fit` no longer passes `_use_cached_eval_dataset` to `evaluate`"


@pytest.mark.one_backend
def test_base_kernel():
    dense = keras.layers.Dense(3)
    dense.build((None, 2))
    kernel = dense.kernel
    dense.enable_lora(1)
    assert keras_adapter.base_kernel(dense) is kernel, f"{VERSION}: `Dense._kernel` has changed"


@pytest.mark.one_backend
def test_fixed_seed():
    assert keras_adapter.has_fixed_seed(keras.random.SeedGenerator(3))
    assert not keras_adapter.has_fixed_seed(keras.layers.Dropout(0.5).seed_generator), VERSION


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "name, parameters",
    [
        ("_clip_gradients", ["self", "grads"]),
        ("_apply_weight_decay", ["self", "variables"]),
        ("_use_weight_decay", ["self", "variable"]),
        ("_backend_update_step", ["self", "grads", "trainable_variables", "learning_rate"]),
        ("_get_current_learning_rate", ["self"]),
        ("_get_variable_index", ["self", "variable"]),
    ],
)
def test_protected_methods_of_optimizers(name, parameters):
    method = getattr(keras.optimizers.Optimizer, name, None)
    assert method is not None, f"{VERSION}: Optimizer.{name} is gone"
    assert list(inspect.signature(method).parameters) == parameters, f"{VERSION}: Optimizer.{name} has changed"


@pytest.mark.backends("jax")
def test_the_layout_of_a_variable():
    mesh = keras.distribution.DeviceMesh((1,), ("batch",))
    layout = keras.distribution.TensorLayout(("batch", None), mesh)
    variable = keras.Variable(np.ones((2, 3), "float32"))
    assert keras_adapter.layout_of(variable) is None
    keras_adapter.lay_out(variable, layout)
    assert keras_adapter.layout_of(variable) is layout
    assert variable.value.sharding.is_equivalent_to(layout.backend_layout, 2), f"{VERSION}: `_layout` has changed"
    np.testing.assert_array_equal(variable, np.ones((2, 3)))


@pytest.mark.one_backend
def test_variables_of_a_failed_construction_are_forgotten():
    with pytest.raises(ZeroDivisionError), keras_adapter.forgetting_failed_variables():
        raise ZeroDivisionError
    state = keras.StatelessScope.__enter__.__globals__["global_state"]
    assert not state.get_global_attribute("uninitialized_variables"), VERSION
