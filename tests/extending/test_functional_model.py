"""A functional model over a backbone: symbolic inputs of fixed and of unknown length, and what Keras does with it."""

import keras
import numpy as np

from kerasbert.models import Bert, BertConfig
from tests.extending.small import SIZES, random_ids


def functional(backbone, length):
    inputs = {
        "token_ids": keras.Input((length,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((length,), dtype="bool", name="padding_mask"),
    }
    states = backbone(inputs)["sequence_output"]
    return keras.Model(inputs, keras.layers.Dense(2, name="scores")(states[:, 0]))


def test_a_functional_model_learns_and_takes_any_length():
    backbone = Bert(BertConfig(**SIZES))
    model = functional(backbone, None)
    x = {"token_ids": random_ids(8, 7), "padding_mask": np.arange(7) < np.full((8, 1), 5)}
    states = keras.ops.convert_to_numpy(backbone(x)["sequence_output"])
    kernel, bias = (keras.ops.convert_to_numpy(weight) for weight in model.get_layer("scores").weights)
    np.testing.assert_allclose(model.predict(x, verbose=0), states[:, 0] @ kernel + bias, rtol=1e-5, atol=1e-5)  # pyright: ignore
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss=loss)
    history = model.fit(x, x["token_ids"][:, 0] % 2, epochs=8, batch_size=8, verbose=0).history["loss"]  # pyright: ignore
    assert history[-1] < 0.7 * history[0]
    without_padding = {key: value[:, :5] for key, value in x.items()}
    expected = model.predict(x, verbose=0)  # pyright: ignore
    np.testing.assert_allclose(model.predict(without_padding, verbose=0), expected, rtol=1e-4, atol=1e-4)  # pyright: ignore


def test_saved_cloned_and_summarized(tmp_path, capsys):
    model = functional(Bert(BertConfig(**SIZES)), 7)
    x = {"token_ids": random_ids(3, 7), "padding_mask": np.ones((3, 7), bool)}
    model.summary()
    assert "bert" in capsys.readouterr().out
    diagram = keras.utils.model_to_dot(model, show_shapes=True).to_string()  # which `plot_model` draws
    assert all(name in diagram for name in ("token_ids", "bert", "scores", "(None, 7, 24)"))
    model.save(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (keras.models.load_model(tmp_path / "model.keras"), clone):
        np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))  # pyright: ignore
