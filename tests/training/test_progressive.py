"""Rates of progressive knowledge transfer, update by update."""

import contextlib

import keras
import numpy as np
import pytest

from kerasbert.training import ProgressiveAdamW, ProgressiveLamb


def variables():
    names = ("token_embedding/embeddings", "block_0/dense/kernel", "block_1/dense/kernel", "masked_lm/dense/kernel")
    made = []
    for name in names:
        *scopes, leaf = ("model", *name.split("/"))
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            made.append(keras.Variable(np.ones((2, 2), "float32"), name=leaf))
        made[-1].block_depth = (0, 1, 2, None)[len(made) - 1]
    return made


@pytest.mark.one_backend
def test_the_rate_goes_up_through_the_blocks():
    """40 updates for two blocks: phases of 20, each with a warm-up of two."""
    made = variables()
    optimizer = ProgressiveAdamW(0.1, transfer_steps=40)
    optimizer.build(made)
    assert [variable.path.split("/")[1] for variable in made] == ["token_embedding", "block_0", "block_1", "masked_lm"]
    for step, turns in (
        (0, (0, 1, 0, 0)),
        (1, (0, 1, 0, 0)),
        (10, (0, 1, 0, 0)),
        (21, (0, 0.1, 1, 0)),
        (39, (0, 0.1, 1, 0)),
    ):
        optimizer.iterations.assign(step)
        place = step % 20 / 20
        background = min(10 * place, 0.9 + 0.1 * (1 - place) ** 0.5)
        found = [float(optimizer._rate_factor(variable)) for variable in made]
        assert found == pytest.approx([3 * turn * background for turn in turns], abs=1e-6), step
    optimizer.iterations.assign(40)
    assert [float(optimizer._rate_factor(variable)) for variable in made] == [1.0] * 4


def test_updates_have_those_rates_and_the_config_survives():
    made = variables()
    optimizer = ProgressiveAdamW(0.1, transfer_steps=4, weight_decay=0.0)
    optimizer.build(made)
    optimizer.iterations.assign(3)
    gradients = [keras.ops.ones((2, 2))] * 4
    optimizer.apply(gradients, made)
    moved = [1 - float(keras.ops.convert_to_numpy(variable)[0, 0]) for variable in made]
    assert moved[0] == moved[3] == 0 and moved[1] == pytest.approx(moved[2] / 10, rel=1e-4) and moved[2] > 0
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is ProgressiveAdamW and again.transfer_steps == 4


def test_lamb_has_them_too():
    made = variables()
    optimizer = ProgressiveLamb(0.1, transfer_steps=4)
    optimizer.build(made)
    optimizer.iterations.assign(1)
    optimizer.apply([keras.ops.ones((2, 2))] * 4, made)
    moved = [1 - float(keras.ops.convert_to_numpy(variable)[0, 0]) for variable in made]
    place = 0.5
    assert moved == pytest.approx([0.0, 0.1 * 3 * min(10 * place, 0.9 + 0.1 * (1 - place) ** 0.5), 0.0, 0.0], rel=1e-5)
