"""Conversion of batches to the form that the trainer of a backend accepts, and errors raised by datasets."""

import contextlib
import functools

import keras

PREFETCHED = 2  # batches that TensorFlow prepares while the model computes

_raised = []


def reads_data(function):
    """Decorator for functions that read data. Records the errors that they raise, for `data_errors`."""

    @functools.wraps(function)
    def reading(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _raised.append(error)
            raise

    return reading


@contextlib.contextmanager
def data_errors():
    """Context manager that raises errors of datasets in their original form.

    TensorFlow converts them to an InvalidArgumentError.
    """
    _raised.clear()
    try:
        yield
    except Exception as error:
        if _raised and error is not _raised[-1] and str(_raised[-1]) in str(error):
            raise _raised[-1] from None
        raise
    finally:
        _raised.clear()


def tensorflow_dataset(feed, samples):
    """Returns a `tf.data.Dataset` of the items of a dataset, which may have different shapes.

    Keras infers shapes only from the first two items of a `PyDataset`, and raises an error for a later item with a
    different shape.

    Args:
        feed: a dataset with a length, whose items are batches.
        samples: batches of all shapes that occur. Sizes that differ between them are unknown in the signature.
    """
    import tensorflow as tf

    def signature(*arrays):
        shapes = zip(*(array.shape[1:] for array in arrays), strict=True)
        free = [sizes[0] if len(set(sizes)) == 1 else None for sizes in shapes]
        return tf.TensorSpec((None, *free), arrays[0].dtype)

    dataset = tf.data.Dataset.from_generator(
        lambda: (feed[index] for index in range(len(feed))),
        output_signature=keras.tree.map_structure(signature, *samples),
    )
    # An iterator with autotuning ends when its tuner wakes up, which waits twice as long each time: in TensorFlow 2.21,
    # an epoch could take up to twice its time.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.apply(tf.data.experimental.assert_cardinality(len(feed))).prefetch(PREFETCHED).with_options(options)
