"""Rematerialization: the gradients stay what they were, dropout included, and less is kept."""

import keras
import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.models import T5, Bert, BertConfig, T5Config
from kerasbert.objectives import MaskedLM, Seq2SeqLM
from tests.models.reference import to_numpy

SIZES = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, dropout=0.3)


def make_model(family, rematerialize, dtype=None, **sizes):
    seed_everything(0)
    sizes = {**SIZES, **sizes}
    if family == "bert":
        model = MaskedLM(Bert(BertConfig(**sizes, attention_dropout=0.3, max_length=16), pooler=False, dtype=dtype))
    else:
        model = Seq2SeqLM(T5(T5Config(**sizes, head_dim=8), dtype=dtype))
    if rematerialize:
        model.backbone.rematerialize()
    model.compile(keras.optimizers.SGD(1.0))
    return model


def batch(family, rows=2):
    random = np.random.default_rng(0)
    x = {"token_ids": random.integers(0, 61, (rows, 11), "int32"), "lengths": np.resize([11, 7], rows).astype("int32")}
    if family == "t5":
        x["decoder_token_ids"] = random.integers(0, 61, (rows, 11), "int32")
    return x, random.integers(0, 61, (rows, 11), "int32")


def trained(family, rematerialize, dtype=None):
    """Weights after two steps with dropout, from the same weights and the same random state."""
    model = make_model(family, rematerialize, dtype)
    for number, variable in enumerate(v for v in model.variables if "seed" in v.path):
        variable.assign([number, 0])
    seed_everything(1)
    x, y = batch(family)
    losses = [float(model.train_on_batch(x, y, return_dict=True)["loss"]) for _ in range(2)]
    return losses, {weight.path: to_numpy(weight) for weight in model.trainable_variables}, model


@pytest.mark.parametrize(
    "family",
    [pytest.param("bert", marks=pytest.mark.optimized), pytest.param("t5", marks=pytest.mark.one_backend)],
)
def test_training_is_the_same(family):
    plain_losses, plain, _ = trained(family, False)
    losses, weights, model = trained(family, True)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    for (path, expected), found in zip(plain.items(), weights.values(), strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5, err_msg=path)
    x, y = batch(family)
    without_dropout = [float(model.evaluate(x, y, verbose=0, return_dict=True)["loss"]) for _ in range(2)]
    assert without_dropout[0] == without_dropout[1] != losses[1]


@pytest.mark.backends("torch")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_less_is_kept(dtype):
    import torch

    kept = {}
    for rematerialize in (False, True):
        model = make_model("bert", rematerialize, dtype)
        x, y = batch("bert")
        tensors = {}

        def keep(tensor, tensors=tensors):
            tensors[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model.compute_loss(x, torch.tensor(y), model(x, training=True))
        kept[rematerialize] = sum(tensors.values())
        loss.backward()
        assert all(torch.isfinite(v.value.grad).all() for v in model.trainable_variables if v.value.grad is not None)
    weights = sum(v.value.numel() * 4 for v in model.trainable_variables)
    assert kept[True] - weights < 0.5 * (kept[False] - weights)


@pytest.mark.backends("jax")
@pytest.mark.parametrize("family", ["bert", "t5"])
def test_programs_keep_less(family):
    """Of 4 blocks the activations of one or two, and the inputs of the others."""
    import jax

    kept = {}
    for rematerialize in (False, True):
        model = make_model(family, rematerialize, num_layers=4)
        x, y = batch(family, rows=64)
        values = [
            [v.value for v in variables] for variables in (model.trainable_variables, model.non_trainable_variables)
        ]

        def loss(trainable, rest, model=model, x=x, y=y):
            outputs, rest = model.stateless_call(trainable, rest, x, training=True)
            return model.compute_loss(x, y, outputs)

        program = jax.jit(jax.grad(loss)).lower(*values).compile()
        kept[rematerialize] = program.memory_analysis().temp_size_in_bytes
    assert kept[True] < 0.7 * kept[False]
