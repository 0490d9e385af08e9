"""Training on more than one device."""

import json
import os

import keras


def num_replicas():
    """How many replicas sum their gradients: 1 but under `tf.distribute`, which sums where others average."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def batch_shards():
    """Into how many equal parts `keras.distribution` cuts the rows of a batch."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return 1
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def share_batches(rows):
    """On JAX, spreads batches of so many rows over as many devices as can share them; returns their number.

    Models made from here on have a copy of their weights on each. A distribution that is set already is kept, and
    several processes (`jax.distributed`) must set their own.

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
    """Whether this process writes the files of its run: it is the only one, or the first of those that share it."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.process_index() == 0
    if backend == "torch":
        import torch.distributed

        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        return not several or torch.distributed.get_rank() == 0
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")  # which is how `tf.distribute` tells its processes apart
    first = "chief" if "chief" in config.get("cluster", {}) else "worker"
    task = config.get("task", {"type": first, "index": 0})
    return (task["type"], task["index"]) == (first, 0)
