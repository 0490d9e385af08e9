"""The option --devices, and runs of several processes without it."""

import os
import sys

import keras
import pytest

from kerasbert.backend import compiling_for
from pipelines.pretrain import pretrain
from pipelines.runs import devices, training
from pipelines.runs.devices import described_device, use_devices
from tests.pipelines.conftest import SETTINGS


@pytest.mark.one_backend
def test_several_processes_without_devices(corpora, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "4")
    with pytest.raises(ValueError, match="Received: 4 processes and no --devices. Use --devices data"):
        pretrain(corpora[0], tmp_path / "run", set=SETTINGS)
    assert not (tmp_path / "run").exists()


@pytest.mark.one_backend
@pytest.mark.parametrize("name", ["data=2", "tensor=", "tensor=x", "tensor=0"])
def test_devices_that_do_not_exist(name):
    with pytest.raises(ValueError, match=f"must be data, fsdp, tensor or tensor=NUMBER. Received: '{name}'."):
        use_devices(name)


@pytest.mark.one_backend
def test_devices_need_jax(corpora, tmp_path):
    with pytest.raises(ValueError, match="Layouts of devices need JAX. Received: the backend torch."):
        pretrain(corpora[0], tmp_path / "run", devices="data", set=SETTINGS)
    assert not (tmp_path / "run").exists()


@pytest.mark.one_backend
def test_the_device_that_a_card_names(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert described_device() == "CPU, 2 cores"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    assert described_device() == "CPU, 1 core"
    with compiling_for("gpu", capability=9.0):
        assert described_device() == "GPU of compute capability 9.0"
        assert described_device(4) == "4 GPUs of compute capability 9.0"
    with compiling_for("tpu"):
        assert described_device(8) == "8 TPUs"


@pytest.mark.one_backend
def test_a_run_that_cannot_write_checkpoints_does_not_begin(corpora, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "is_divided", lambda variables: len(variables) > 0)
    monkeypatch.setitem(sys.modules, "orbax", None)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r'divided among devices need orbax: pip install "kerasbert\[scale\]"'):
        pretrain(corpora[0], tmp_path / "run", set=SETTINGS)
    assert not (tmp_path / "run").exists()


@pytest.mark.backends("jax")
def test_the_mesh_of_parts_of_layers(monkeypatch):
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: [f"cpu:{n}" for n in range(8)])
    mesh = devices.mesh_of(4)
    assert mesh.shape == (2, 4) and mesh.axis_names == ("batch", "model")
    with pytest.raises(ValueError, match="must divide the number of devices. Received: tensor=3 and 8 devices."):
        devices.mesh_of(3)


@pytest.mark.backends("jax")
def test_a_run_with_a_layout(corpora, tmp_path):
    try:
        assert pretrain(corpora[0], tmp_path, devices="data", set=SETTINGS)["step"] == 4
        with pytest.raises(ValueError, match="'fsdp' divides weights .* Received: one device"):
            pretrain(corpora[0], tmp_path / "other", devices="fsdp", set=SETTINGS)
    finally:
        keras.distribution.set_distribution(None)
