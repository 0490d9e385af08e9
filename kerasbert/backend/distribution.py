"""Training on more than one device."""

import keras

from .hosts import is_first_process, num_processes
from .keras_adapter import lay_out


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


def host_share():
    """Returns (index, count): this process reads part `index` of `count` equal parts of the rows of each batch.

    Processes whose devices compute parts of the same layers read the same rows.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or distribution.num_processes == 1:
        return 0, 1
    return distribution.data_shard_id, min(distribution.num_processes, distribution.num_model_replicas)


def check_processes(method="fit", can_share=True):
    """Raises a ValueError if several processes of a run would independently do the same work.

    Args:
        method: name of the method that they call: "fit", "evaluate" or "predict".
        can_share: whether each process can read its rows of the data.
    """
    count = num_processes()
    if count == 1 or (keras.backend.backend() == "tensorflow" and num_replicas() > 1):
        return
    received = "no distribution"
    if keras.backend.backend() == "jax" and keras.distribution.distribution() is not None:
        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        found = len({device.process_index for device in mesh.devices.flat})
        if found == count and method == "predict":
            raise ValueError(
                "`predict` returns the outputs of all rows, of which each process has its own. Received: "
                f"{count} processes. Save the model, and load it in one process."
            )
        if found == count and not can_share:
            raise ValueError(
                f"Several processes need Batches, arrays or texts, of which each reads its rows. Received: another "
                f"source of data in {count} processes."
            )
        if found == count:
            return
        received = f"a distribution over the devices of {found}"
    raise ValueError(
        f"{count} processes need a distribution over the devices of all of them, or each would train on the same "
        f"batches. Received: {received}. Use JAX, and call keras.distribution.set_distribution("
        "kerasbert.training.parallel('data')) before models are created; `kerasbert pretrain` has the option --devices."
    )


def divide_rows(variable):
    """Divides a variable that has one row per row of a batch among the devices, in the same way as the batch."""
    distribution = keras.distribution.distribution()
    if distribution is not None and variable.shape[0] % batch_shards() == 0:
        lay_out(variable, distribution.get_data_layout(variable.shape))


def gather_weights(variables):
    """Gathers variables that are divided among processes on every process. Returns whether this is the first process.

    All processes of a run must call this function, and each device needs enough memory for all values.
    """
    if num_processes() > 1 and keras.backend.backend() == "jax":
        mesh = keras.distribution.distribution().device_mesh
        for variable in variables:
            if not variable.value.sharding.is_fully_replicated:
                lay_out(variable, keras.distribution.TensorLayout([None] * len(variable.shape), mesh))
    return is_first_process()


def share_batches(rows):
    """On JAX, shards the rows of each batch over several devices. Returns the number of parts.

    In a run with one process, this is the largest number of available devices that divides the number of rows, for
    example 3 of 4 devices for 6 rows. Models that are created afterwards have a copy of their weights on each device.
    If a distribution has already been set, it is kept. It must divide the rows.

    Args:
        rows: number of rows in a batch.
    """
    check_processes()
    if keras.backend.backend() != "jax":
        return batch_shards()
    if keras.distribution.distribution() is not None:
        check_rows(rows)
        return batch_shards()
    devices = keras.distribution.list_devices()
    count = next(n for n in range(len(devices), 0, -1) if rows % n == 0)
    if count > 1:
        parallel = keras.distribution.DataParallel(devices=devices[:count], auto_shard_dataset=False)
        keras.distribution.set_distribution(parallel)
    return count


def check_rows(rows):
    """Raises a ValueError unless the devices divide the rows of a batch."""
    shards = batch_shards()
    if rows % shards:
        raise ValueError(
            f"The number of rows in a step must be divisible by {shards}, the number of batch shards. Received: "
            f"{rows} rows. Change `batch_size`, or the device mesh."
        )
