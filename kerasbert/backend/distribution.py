"""Training on more than one device."""

import json
import os

import keras


def num_replicas():
    """Returns the number of replicas whose gradients are summed.

    It is 1 except under `tf.distribute`, because other backends average gradients.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def batch_shards():
    """Returns the number of equal shards into which `keras.distribution` splits the rows of a batch."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def share_batches(rows):
    """On JAX, shards the rows of each batch over several devices. Returns the number of devices.

    It is the largest number of available devices that divides the number of rows, for example 3 of 4 devices for 6
    rows. Models that are created afterwards have a copy of their weights on each device. If a distribution is set
    already, it is kept. Multi-process programs (`jax.distributed`) must set a distribution themselves.

    Args:
        rows: number of rows in a batch.
    """
    if keras.backend.backend() != "jax" or keras.distribution.distribution() is not None:
        return batch_shards()
    import jax

    if jax.process_count() > 1:
        return 1
    devices = keras.distribution.list_devices()
    count = next(n for n in range(len(devices), 0, -1) if rows % n == 0)
    if count > 1:
        parallel = keras.distribution.DataParallel(devices=devices[:count], auto_shard_dataset=False)
        keras.distribution.set_distribution(parallel)
    return count


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
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")  # how `tf.distribute` identifies its processes
    first = "chief" if "chief" in config.get("cluster", {}) else "worker"
    task = config.get("task", {"type": first, "index": 0})
    return (task["type"], task["index"]) == (first, 0)
