"""What a process learns of the others of its run from its launcher, and what it says to them."""

import keras
import pytest

from kerasbert.backend import connect, hosts
from kerasbert.backend.distribution import check_processes
from kerasbert.backend.hosts import LargestNumber, check_same, gathered, launched_processes, together, total

LAUNCHERS = ("KERAS_DISTRIBUTION_", "SLURM_", "TPU_", "JOB_COMPLETION_INDEX")


@pytest.fixture
def environment(monkeypatch):
    """A function that sets the variables of a launcher."""
    import os

    for name in list(os.environ):
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)
    return lambda **variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({}, 1),
        ({"KERAS_DISTRIBUTION_NUM_PROCESSES": "3"}, 3),
        ({"SLURM_STEP_NODELIST": "node[1-2]", "SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "0"}, 16),
        ({"SLURM_NTASKS": "16", "SLURM_PROCID": "0"}, 1),  # the script of a job, outside srun
        ({"TPU_WORKER_HOSTNAMES": "t1k-w-0.net,t1k-w-1.net"}, 2),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, 1),
    ],
)
def test_launchers(environment, variables, count):
    environment(**variables)
    assert launched_processes() == count


def test_one_process_connects_to_none(environment):
    connect()
    assert hosts.num_processes() == 1 and hosts.is_first_process()


@pytest.mark.backends("jax")
@pytest.mark.parametrize("index", [{"KERAS_DISTRIBUTION_PROCESS_ID": "1"}, {"JOB_COMPLETION_INDEX": "1"}])
def test_how_processes_find_each_other(environment, monkeypatch, index):
    import jax

    given = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: given.append(options))
    environment(KERAS_DISTRIBUTION_NUM_PROCESSES="2", KERAS_DISTRIBUTION_JOB_ADDRESSES="a:1,b:1", **index)
    connect()
    assert given == [{"coordinator_address": "a:1", "num_processes": 2, "process_id": 1}]
    monkeypatch.delenv("KERAS_DISTRIBUTION_JOB_ADDRESSES")
    with pytest.raises(ValueError, match="need KERAS_DISTRIBUTION_JOB_ADDRESSES, the address host:port of the first"):
        connect()


@pytest.mark.backends("jax")
def test_several_processes_need_a_distribution_of_all_their_devices(monkeypatch):
    import jax

    from kerasbert.backend import distribution

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="2 processes need a distribution .* Received: no distribution. Use JAX"):
        check_processes()
    with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
        with pytest.raises(ValueError, match="Received: a distribution over the devices of 1."):
            check_processes()
        monkeypatch.setattr(distribution, "num_processes", lambda: 1)
        check_processes()


@pytest.mark.backends("jax")
def test_what_processes_cannot_do(monkeypatch):
    from kerasbert.backend import distribution

    devices = [type("Device", (), {"process_index": index}) for index in range(2)]
    mesh = type("Mesh", (), {"devices": __import__("numpy").array(devices)})
    found = type("Distribution", (), {"device_mesh": type("DeviceMesh", (), {"backend_mesh": mesh})})
    monkeypatch.setattr(distribution, "num_processes", lambda: 2)
    monkeypatch.setattr(keras.distribution, "distribution", lambda: found)
    check_processes("fit")
    with pytest.raises(ValueError, match="`predict` returns the outputs of all rows"):
        check_processes("predict")
    with pytest.raises(ValueError, match="Several processes need Batches, arrays or texts"):
        check_processes("fit", can_share=False)


@pytest.mark.one_backend
def test_agreement(monkeypatch):
    assert gathered("text") == ["text"] and total([1, 2]) == [1, 2]
    with pytest.raises(KeyError), together():
        raise KeyError
    check_same("recipe", {"a": 1})
    said = ['{"at": "process 0 on a", "value": {"seed": 0, "data": {"corpus": "x"}}}']
    said.append('{"at": "process 1 on b", "value": {"seed": 0, "data": {"corpus": "y"}}}')
    monkeypatch.setattr(hosts, "gathered", lambda text: said)
    message = "same recipe. Received: 'data.corpus=x' in process 0 on a, 'data.corpus=y' in process 1 on b"
    with pytest.raises(ValueError, match=message):
        check_same("recipe", {})


@pytest.mark.backends("jax")
def test_an_error_of_one_process_is_one_of_all(monkeypatch):
    monkeypatch.setattr(hosts, "num_processes", lambda: 2)
    monkeypatch.setattr(hosts, "gathered", lambda text: [text, "process 1 on b: ValueError: no such corpus"])
    with (
        pytest.raises(ValueError, match="an error from process 1 on b: ValueError: no such corpus"),
        together(),
    ):
        pass
    with pytest.raises(ZeroDivisionError), together():
        raise ZeroDivisionError


@pytest.mark.backends("jax")
def test_all_processes_learn_of_a_number_at_the_same_step(monkeypatch):
    assert LargestNumber().of(15) == 15 and LargestNumber().of(0) == 0  # one process alone, at once
    monkeypatch.setattr(hosts, "num_processes", lambda: 2)
    process = LargestNumber(every=4)
    found = [process.of(number) for number in [0] * 5 + [15] * 10]
    assert found == [0] * 11 + [15, 0, 0, 0]  # what call 8 starts is read in call 12
