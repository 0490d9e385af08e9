"""Runs with several processes, on one or more hosts: connects them, compares their settings, and shares errors."""

import contextlib
import importlib.util
import json
import os
import random
import socket
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .devices import device, jax_devices
from .seeding import seed_everything

CONNECTED = "KERAS_DISTRIBUTION_NUM_PROCESSES"  # set by those who start processes themselves


def launched_processes():
    """Returns the number of processes that the launcher has started for this run, according to the environment.

    Slurm, Kubernetes, TPU pods and `keras.distribution` set environment variables. Without them, the result is 1.
    """
    if CONNECTED in os.environ:
        return int(os.environ[CONNECTED])
    if "SLURM_STEP_NODELIST" in os.environ:  # absent outside `srun`
        return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
    names = os.environ.get("TPU_WORKER_HOSTNAMES", "")
    return len(names.split(",")) if "." in names or "," in names else 1


def connect():
    """Connects this process with the others of its run. JAX only; must be called before anything is computed.

    It calls `jax.distributed.initialize` with the settings of the launcher: Slurm (`srun`), a TPU pod, or the
    environment variables of Keras, KERAS_DISTRIBUTION_JOB_ADDRESSES, KERAS_DISTRIBUTION_NUM_PROCESSES and
    KERAS_DISTRIBUTION_PROCESS_ID. In an indexed Kubernetes job, JOB_COMPLETION_INDEX replaces the last one. All
    processes get the same random seed. Nothing is changed if there is only one process.

    Raises:
        ValueError: if the environment variables of Keras are set only in part.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    on_tpu = importlib.util.find_spec("libtpu") is not None and any(map(os.path.exists, ("/dev/accel0", "/dev/vfio/0")))
    if jax.distributed.is_initialized() or (launched_processes() == 1 and not on_tpu):
        return
    given = {}
    if CONNECTED in os.environ:
        index = os.environ.get("KERAS_DISTRIBUTION_PROCESS_ID", os.environ.get("JOB_COMPLETION_INDEX"))
        addresses = os.environ.get("KERAS_DISTRIBUTION_JOB_ADDRESSES")
        if index is None or addresses is None:
            raise ValueError(
                f"Processes that find each other by {CONNECTED} need KERAS_DISTRIBUTION_JOB_ADDRESSES, the address "
                "host:port of the first one, and KERAS_DISTRIBUTION_PROCESS_ID. Received: not all of them. Set all."
            )
        first = addresses.split(",")[0]
        given: dict[str, Any] = dict(
            coordinator_address=first, num_processes=launched_processes(), process_id=int(index)
        )
    # `training.StopRequest` handles SIGTERM; the service of JAX would only note it.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(**given)
    seed_everything(int(gathered(str(random.randrange(2**32)))[0]))


def num_processes():
    """Returns the number of processes that train together, according to the backend."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.process_count()
    if backend == "torch":
        import torch.distributed

        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_world_size() if several else 1
    return len([name for names in _tensorflow_cluster().values() for name in names]) or 1


def is_first_process():
    """Whether this process is the only one of its run, or the first of several, which writes the files."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.process_index() == 0
    if backend == "torch":
        import torch.distributed

        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        return not several or torch.distributed.get_rank() == 0
    first = "chief" if "chief" in _tensorflow_cluster() else "worker"
    task = _tensorflow_config().get("task", {"type": first, "index": 0})
    return (task["type"], task["index"]) == (first, 0)


def _tensorflow_config():
    return json.loads(os.environ.get("TF_CONFIG") or "{}")  # how `tf.distribute` identifies its processes


def _tensorflow_cluster():
    """Returns {kind of task: addresses} for the processes that train."""
    return {
        kind: names for kind, names in _tensorflow_config().get("cluster", {}).items() if kind in ("chief", "worker")
    }


def gathered(text):
    """Returns the texts of all processes, in the order of the processes. All must call it at the same time."""
    if keras.backend.backend() != "jax" or num_processes() == 1:
        return [text]
    from jax.experimental import multihost_utils

    encoded = np.frombuffer(text.encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.array([len(encoded)], np.int32)).reshape(-1)
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(encoded)] = encoded
    rows = (
        multihost_utils.process_allgather(padded).reshape(len(lengths), -1) if len(padded) else [padded] * len(lengths)
    )
    return [bytes(row[:length]).decode() for row, length in zip(rows, lengths, strict=True)]


def total(numbers):
    """Sums lists of integers over all processes, element by element. All processes must call it at the same time."""
    return [sum(values) for values in zip(*map(json.loads, gathered(json.dumps(numbers))), strict=True)]


def here():
    """Describes this process for messages: "process 1 on node7"."""
    import jax

    return f"process {jax.process_index()} on {socket.gethostname()}"


@contextlib.contextmanager
def together():
    """Context manager: an error that one process raises inside it is raised by all processes of the run.

    Otherwise, the others would wait for it in their next collective operation. Every process must enter the context,
    and nothing inside it may wait for other processes.
    """
    if keras.backend.backend() != "jax" or num_processes() == 1:
        yield
        return
    error = None
    try:
        yield
    except Exception as raised:
        error = raised
    found = gathered("" if error is None else f"{here()}: {type(error).__name__}: {error}")
    if error is not None:
        raise error
    failed = [message for message in found if message]
    if failed:
        raise ValueError("Every process of a run must be able to start. Received an error from " + "; ".join(failed))


def check_same(name, value):
    """Raises a ValueError on every process unless a JSON-serializable value is the same on all of them."""
    found = gathered(json.dumps({"at": here() if num_processes() > 1 else "", "value": value}, sort_keys=True))
    found = [json.loads(text) for text in found]
    for other in found[1:]:
        if other["value"] != found[0]["value"]:
            differing = _first_difference(found[0]["value"], other["value"])
            raise ValueError(
                f"All processes must have the same {name}. Received: {differing[0]!r} in {found[0]['at']}, "
                f"{differing[1]!r} in {other['at']}. Start them with the same command on the same files."
            )


def _first_difference(a, b, name=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys()):
            if a.get(key) != b.get(key):
                return _first_difference(a.get(key), b.get(key), f"{name}.{key}" if name else key)
    return f"{name}={a}" if name else a, f"{name}={b}" if name else b


class LargestNumber:
    """Computes the largest of the numbers of all processes, such as signal numbers, without making them wait.

    All processes call `of` at the same steps. Every `every`-th call starts a computation on all devices, and returns
    the result of the previous computation, which is finished by then. All processes get the result at the same step.

    Args:
        every: number of calls between two computations.
    """

    def __init__(self, every=8):
        self.every = every
        self._calls, self._pending, self._largest = 0, None, None

    def of(self, number):
        """Returns the largest number of any process at the exchange before this call, or 0 between two exchanges.

        If there is only one process, its number is returned at once.

        Args:
            number: an integer of at least 0.
        """
        if num_processes() == 1:
            return number
        self._calls += 1
        if self._calls % self.every:
            return 0
        before, self._pending = self._pending, self._started(number)
        return 0 if before is None else int(np.asarray(before))

    def _started(self, number):
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        if self._largest is None:
            mesh = Mesh(np.array(jax_devices()), ("devices",))
            self._rows = NamedSharding(mesh, PartitionSpec("devices"))
            self._largest = jax.jit(lambda x: x.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))
        local = np.full(device().local_count, number, np.int32)
        return self._largest(jax.make_array_from_process_local_data(self._rows, local))


def write_path(path):
    """Returns a path in a folder or in an object store, such as gs://bucket/run."""
    if "://" not in str(path):
        return Path(path)
    from etils import epath

    return epath.Path(path)
