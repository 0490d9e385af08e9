"""In-batch negatives over devices: every device sees the vectors of all, so that the result is that of one device."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backends("jax")  # keras.distribution is JAX only

TRAINING = """
import json
import sys

import keras
import numpy as np

from kerasbert.backend import seed_everything, share_batches
from kerasbert.models import Bert, BertConfig
from kerasbert.retrieval import MultipleNegatives
from kerasbert.tasks import TextEmbedder

sizes = dict(vocabulary_size=61, num_layers=1, hidden_dim=24, num_heads=2, feed_forward_dim=40, max_length=16)
ids = np.random.default_rng(0).integers(5, 61, (16, 2, 11)).astype("int32")
found = {}
for devices, chunk in ((1, None), (8, None), (8, 4)):
    if devices > 1:
        assert share_batches(8) == 8
    seed_everything(0)
    model = TextEmbedder(Bert(BertConfig(**sizes), pooler=False), objective=MultipleNegatives(chunk=chunk))
    model.compile(keras.optimizers.SGD(0.1))
    losses = model.fit({"token_ids": ids}, np.zeros(16, "float32"), 8, 2, verbose=0, shuffle=False).history["loss"]
    kernel = model.trainable_variables[0].value
    found[f"{devices} {chunk}"] = [*losses, *np.abs(np.asarray(kernel)).sum(axis=0).tolist()]
    assert len(kernel.sharding.device_set) == devices
print(json.dumps(found))
"""


def test_negatives_come_from_all_devices():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "KERAS_BACKEND": "jax"}
    run = subprocess.run([sys.executable, "-c", TRAINING], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    alone, *shared = json.loads(run.stdout.splitlines()[-1]).values()
    assert alone[0] > 0.1
    for found in shared:
        assert found == pytest.approx(alone, rel=1e-4)
