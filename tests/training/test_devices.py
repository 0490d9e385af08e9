"""Devices that share batches train the same model. A process keeps the devices it began with: each has its own."""

import json
import os
import subprocess
import sys

import keras
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="keras.distribution is JAX's")

TRAINING = """
import json
import sys

import keras
import numpy as np

from kerasbert.backend import seed_everything, share_batches
from kerasbert.models import Bert, BertConfig, TransformerXL, TransformerXLConfig
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.training import Checkpoints, adamw

distribution, folder = sys.argv[1:]
if distribution == "data":
    assert share_batches(6) == 2
if distribution == "model":
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
found = {}
for name, (make, (x, y, weight)) in RUNS.items():
    losses = []
    for epochs in (1, 2):  # the second run goes on where the first one ended
        seed_everything(epochs)
        model = make()
        model.compile(adamw(3e-3, warmup=1, steps=4))
        checkpoints = Checkpoints(f"{folder}/{name}")
        history = model.fit(x, y, 6, epochs, sample_weight=weight, callbacks=[checkpoints], verbose=0, shuffle=False)
        losses += history.history["loss"]
    one = {key: array[:1] for key, array in x.items()}
    losses.append(model.evaluate(x, y, 6, weight, verbose=0, return_dict=True)["loss"])
    found[name] = [*losses, float(np.asarray(model.predict(one, batch_size=1, verbose=0)).std())]
    if distribution:
        assert "batch" in str(model.trainable_variables[0].value.sharding.mesh)
try:
    model.fit(x, y, 3, 1, verbose=0)
except ValueError as error:
    assert distribution and "must divide them. Received: 3 rows" in str(error), error
else:
    assert not distribution
print(json.dumps(found))
"""


def trained(distribution, folder):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, distribution, str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags if distribution != "data" else flags.replace("=4", "=2")},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return trained("", tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("distribution", ["data", "model"])
def test_shared_batches_train_the_same_model(distribution, alone, tmp_path):
    """Losses of two runs, the second resumed, of an evaluation, and predictions of a single row."""
    found = trained(distribution, tmp_path)
    for name, numbers in alone.items():
        assert len(numbers) == 4 and numbers[0] > numbers[1]
        assert found[name] == pytest.approx(numbers, rel=1e-5), name
