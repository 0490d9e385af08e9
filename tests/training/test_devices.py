"""Devices that share batches train the same model. The devices of a process are fixed: a new process has four."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backends("jax")  # keras.distribution is JAX only

TRAINING = """
import json
import pathlib
import shutil
import sys

import jax
import keras
import numpy as np

from kerasbert.backend import layouts, parallel, seed_everything, share_batches
from kerasbert.models import Bert, BertConfig, TransformerXL, TransformerXLConfig
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.training import Checkpoints, adamw

layouts.SMALLEST = 64


def distribute(name):
    keras.distribution.set_distribution(None)
    if name == "data":
        assert share_batches(6) == 3  # the most of four that divide six rows
    if name in ("fsdp", "tensor"):
        sizes = dict(fsdp=((2,), ["batch"]), tensor=((1, 2), ["batch", "model"]))[name]
        mesh = keras.distribution.DeviceMesh(*sizes, devices=keras.distribution.list_devices()[:2])
        keras.distribution.set_distribution(parallel(name, mesh))
    if name == "model":
        mesh = keras.distribution.DeviceMesh((2, 2), ["batch", "model"])
        layout = keras.distribution.LayoutMap(mesh)
        layout[".*(query|key|value)/kernel"] = (None, "model")
        keras.distribution.set_distribution(
            keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False)
        )


sizes = dict(vocabulary_size=61, num_layers=1, hidden_dim=24, num_heads=2, feed_forward_dim=40)
ids = np.random.default_rng(0).integers(5, 61, (12, 11)).astype("int32")
places = np.tile(np.array([1, 4, 9], "int32"), (12, 1))
weights = (np.random.default_rng(1).random((12, 3)) < 0.6).astype("float32")
RUNS = {
    "masks": (
        lambda: MaskedLM(Bert(BertConfig(**sizes))),
        ({"token_ids": ids, "masked_positions": places}, ids[:, [1, 4, 9]], weights),
    ),
    "memory": (
        lambda: CausalLM(TransformerXL(TransformerXLConfig(**sizes, head_dim=12, memory_length=8, cutoffs=()))),
        ({"token_ids": ids[:, :-1]}, ids[:, 1:], np.ones((12, 10), "float32")),
    ),
}


def numbers(distribution, name):
    make, (x, y, weight) = RUNS[name]
    losses = []
    for epochs in (1, 2):  # the second run resumes where the first one ended
        seed_everything(epochs)
        model = make()
        model.compile(adamw(3e-3, warmup=1, steps=4))
        checkpoints = Checkpoints(f"{sys.argv[1]}/{distribution}/{name}")
        history = model.fit(x, y, 6, epochs, sample_weight=weight, callbacks=[checkpoints], verbose=0, shuffle=False)
        losses += history.history["loss"]
    losses.append(model.evaluate(x, y, 6, weight, verbose=0, return_dict=True)["loss"])
    one = {key: array[:1] for key, array in x.items()}
    losses.append(float(np.asarray(model.predict(one, batch_size=1, verbose=0)).std()))
    if distribution == "alone":
        return losses
    assert "batch" in str(model.trainable_variables[0].value.sharding.mesh)
    if distribution == "fsdp":
        resumed_bit_exactly(make, x, y, weight, model, f"{sys.argv[1]}/{distribution}/{name}")
    if distribution == "tensor":
        return losses
    try:
        model.fit(x, y, 5, 1, verbose=0)
    except ValueError as error:
        assert "the number of batch shards. Received: 5 rows" in str(error), error
        return losses
    raise AssertionError("five rows were accepted")


def resumed_bit_exactly(make, x, y, weight, resumed, folder):
    # From a sharded checkpoint; the weights are those of a run that was not interrupted.
    records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("*.json")]
    assert len(records) == 2 and all(record["arrays"] == "orbax" for record in records)
    seed_everything(1)
    model = make()
    values = [v.value for v in model.trainable_variables]
    assert sum(not x.sharding.is_fully_replicated for x in values) > 5
    gathered = layouts.gathered_for_use(values, model.trainable_variables)
    assert all(x.sharding.is_fully_replicated for x in gathered)

    def squares(values):
        return sum((x**2).sum() for x in layouts.gathered_for_use(values, model.trainable_variables))

    for gradient, value in zip(jax.jit(jax.grad(squares))(values), values):
        np.testing.assert_array_equal(gradient, 2 * value)
        assert gradient.sharding.is_equivalent_to(value.sharding, value.ndim)
    model.compile(adamw(3e-3, warmup=1, steps=4))
    model.fit(x, y, 6, 2, sample_weight=weight, verbose=0, shuffle=False)
    for ours, theirs in zip(resumed.trainable_variables, model.trainable_variables):
        np.testing.assert_array_equal(ours, theirs)
    vanished = pathlib.Path(folder + "_vanished")

    class Vanish(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            shutil.rmtree(vanished)
            vanished.write_text("no folder")

    try:
        model.fit(x, y, 6, 1, verbose=0, callbacks=[Vanish(), Checkpoints(vanished)])
        raise AssertionError("the folder has vanished")
    except OSError as error:
        assert "The checkpoint of step 2 could not be written to" in str(error), error


found = {}
for distribution in ("alone", "data", "model", "fsdp", "tensor"):
    distribute(distribution)
    names = dict(fsdp=["memory"], tensor=["masks"]).get(distribution, RUNS)
    found[distribution] = {name: numbers(distribution, name) for name in names}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    # A collective blocks a thread on each simulated device. With as many threads as cores, they can block each other.
    devices = {"XLA_FLAGS": flags, "PJRT_NPROC": "32"}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path_factory.mktemp("runs"))],
        capture_output=True,
        text=True,
        env={**os.environ, **devices},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("distribution", ["data", "model", "fsdp", "tensor"])
def test_shared_batches_train_the_same_model(distribution, found):
    """Losses of two runs, the second resumed, of an evaluation, and predictions of a single row."""
    for name, numbers in found[distribution].items():
        expected = found["alone"][name]
        assert len(expected) == 4 and expected[0] > expected[1]
        assert numbers == pytest.approx(expected, rel=1e-5), name
