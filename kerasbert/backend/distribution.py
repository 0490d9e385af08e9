"""Training on more than one device."""

import json
import os

import keras


def num_replicas():
    """The number of replicas whose gradients are summed: 1 except under `tf.distribute`; other backends average."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def batch_shards():
    """The number of equal shards into which `keras.distribution` splits the rows of a batch."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def share_batches(rows):
    """On JAX, shards batches of `rows` rows over as many devices as divide them evenly; returns their number.

    Models created afterwards have a copy of their weights on each device. An existing distribution is kept, and
    multi-process programs (`jax.distributed`) must set one themselves.

    6 rows, 2 devices -> 2
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
    """Whether this process writes the files of its run: it is the only process, or the first of several."""
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
