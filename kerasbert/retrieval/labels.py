"""Reads the labels of losses, and checks that the examples suit the loss, before training."""

import numpy as np

from ..data.tasks.labels import indices_of


def _numbers(y, rows, loss, shapes):
    try:
        y = np.asarray(y, "float32")
    except (TypeError, ValueError):
        raise ValueError(f"The labels of {loss.name} must be numbers of equal counts. Received: {y!r:.60}.") from None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not np.isfinite(y).all():
        raise ValueError(f"The labels of {loss.name} must be finite. Received: {y[~np.isfinite(y)][0]}.")
    if y.shape not in shapes:
        wanted = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"The labels of {loss.name} must have the shape {wanted}. Received: {y.shape}.")
    return y


def _vectors(y, loss):
    try:
        return np.asarray(y, "float32")
    except (TypeError, ValueError):
        raise ValueError(f"The labels of {loss.name} must be vectors of one width. Received: {y!r:.60}.") from None


def _read_numbers(y, rows, columns, loss):
    """one number per example; only their order matters"""
    return _numbers(y, rows, loss, [(rows,)])


def _read_scores(y, rows, columns, loss):
    """one score from -1 to 1 per example"""
    y = _numbers(y, rows, loss, [(rows,)])
    wrong = y[np.abs(y) > 1]
    if len(wrong):
        raise ValueError(f"Scores must lie between -1 and 1. Received: {wrong[0]}. Divide them by the maximum.")
    return y


def _read_binary(y, rows, columns, loss):
    """1 for similar texts and 0 for others"""
    y = _numbers(y, rows, loss, [(rows,)])
    wrong = y[(y != 0) & (y != 1)]
    if len(wrong):
        raise ValueError(f"The labels of {loss.name} must be 0 or 1. Received: {wrong[0]}.")
    return y


def _read_groups(y, rows, columns, loss):
    """one class per text, as a number or a name"""
    given = list(np.asarray(y, "object").reshape(-1))  # as text, NaN would be the name of a class
    if any(label is None or label != label for label in given):
        raise ValueError(f"{loss.name} needs a class for each example. Received: None or NaN. Drop the example.")
    indices = np.unique(np.asarray(y), return_inverse=True)[1]
    if indices.size != rows:
        raise ValueError(f"{loss.name} needs one class per example, {rows}. Received: {indices.size}.")
    return indices.reshape(-1).astype("int32")


def _read_classes(y, rows, columns, loss):
    """one class per pair, as a number or a name"""
    indices = indices_of(loss.labels, y)
    check_indices(loss, indices)
    return indices


def _read_margins(y, rows, columns, loss):
    """per example the teacher's margins between the positive and the negatives, or its scores of all documents"""
    negatives = columns - 2
    shapes = [(rows, negatives), (rows, negatives + 1)]
    return _numbers(y, rows, loss, [(rows,), shapes[1]] if negatives == 1 else shapes)


def _read_teacher_scores(y, rows, columns, loss):
    """per example the teacher's scores of all documents"""
    return _numbers(y, rows, loss, [(rows, columns - 1)])


def _read_vectors(y, rows, columns, loss):
    """per example the teacher's vector, or one for each of its texts"""
    y = _vectors(y, loss)
    if y.ndim not in (2, 3) or y.shape[0] != rows or (y.ndim == 3 and y.shape[1] != columns):
        raise ValueError(
            f"The labels of {loss.name} must be vectors, ({rows}, width) or ({rows}, {columns}, width). Received: "
            f"{y.shape}."
        )
    return y


def _read_guides(y, rows, columns, loss):
    """the guide's vector of every text"""
    y = _vectors(y, loss)
    if y.ndim != 3 or y.shape[:2] != (rows, columns):
        raise ValueError(
            f"The labels of {loss.name} must be the guide's vectors, ({rows}, {columns}, width). Received: {y.shape}."
        )
    return y


def _read_probabilities(y, rows, columns, loss):
    """one number from 0 to 1 per pair"""
    y = _numbers(y, rows, loss, [(rows,)])
    wrong = y[(y < 0) | (y > 1)]
    if len(wrong):
        raise ValueError(f"The labels of {loss.name} must lie between 0 and 1. Received: {wrong[0]}.")
    return y


def _read_values(y, rows, columns, loss):
    """one number per pair"""
    return _numbers(y, rows, loss, [(rows,)])


def _read_relevance(y, rows, columns, loss):
    """per query a list of numbers, one for each of its documents"""
    y = list(y)
    if len(y) != rows:
        raise ValueError(f"{loss.name} needs a list of labels for each of the {rows} queries. Received: {len(y)}.")
    found = np.zeros((rows, max(columns)), "float32")
    for number, (labels, count) in enumerate(zip(y, columns, strict=True)):
        if np.shape(labels) != (count,):
            received = f"{len(labels)} labels" if hasattr(labels, "__len__") else f"{labels!r:.40}"
            raise ValueError(
                f"{loss.name} needs a list with one label for each document of a query. Received: {received} for "
                f"{count} documents, in example {number}."
            )
        found[number, :count] = _numbers(labels, count, loss, [(count,)])
    return found


# {kind of labels: function of (y, number of examples, number of texts, loss) that returns an array}. For "relevance",
# the number of texts is a list: the number of documents of each query. The docstrings complete the error about missing
# labels.
READERS = {
    "numbers": _read_numbers,
    "scores": _read_scores,
    "binary": _read_binary,
    "groups": _read_groups,
    "classes": _read_classes,
    "margins": _read_margins,
    "teacher_scores": _read_teacher_scores,
    "vectors": _read_vectors,
    "guides": _read_guides,
    "probabilities": _read_probabilities,
    "values": _read_values,
    "relevance": _read_relevance,
}
# The kinds of labels from which nothing is learned if all are equal.
COMPARED = ("numbers", "binary", "probabilities", "values", "classes", "relevance")


def check_texts(loss, texts, batch_size):
    """Raises a ValueError if the loss needs other examples in the batch, and there are none, or only equal ones."""
    if not loss.needs_rows(len(texts[0])):
        return
    if min(batch_size, len(texts)) < 2:
        raise ValueError(
            f"{loss.name} compares the examples of a batch. Received: a batch of one example. Use a larger batch_size, "
            "or add negatives."
        )
    if len(set(map(tuple, texts))) == 1:
        raise ValueError(f"{loss.name} compares the examples of a batch. Received: {len(texts)} equal examples.")


def check_not_empty(examples):
    """Raises a ValueError if a text of an example is empty."""
    for number, texts in enumerate(examples):
        empty = next((place for place, text in enumerate(texts) if not text.strip()), None)
        if empty is not None:
            where = f"text {empty} of example {number}" if len(texts) > 1 else f"example {number}"
            raise ValueError(f"Texts for training must not be empty. Received: {where}. Drop the example.")


def check_positives(loss, texts):
    """Raises a ValueError if all examples have the same positive, for a loss whose negatives are other positives."""
    if len({positive for _, positive, *_ in texts}) == 1:
        raise ValueError(
            f"{loss.name} takes the positives of other examples as negatives. Received: the same positive in all "
            f"{len(texts)} examples, {texts[0][1]!r:.60}. Add negatives, or examples with other positives."
        )


def check_indices(loss, indices):
    """Raises a ValueError if an index of a class is none of those of the loss."""
    wrong = next((index for index in indices if not 0 <= index < len(loss.labels)), None)
    if wrong is not None:
        raise ValueError(
            f"The labels of {loss.name} must be indices from 0 to {len(loss.labels) - 1}, for {list(loss.labels)}. "
            f"Received: {wrong}. Name the classes, or give their number: {loss.name}(labels=...)."
        )


def check_groups(loss, groups):
    """Raises a ValueError unless there are two classes or more, int (n,), and two texts or more of one of them."""
    count = len(np.unique(groups))
    if count < 2 or count == len(groups):
        raise ValueError(
            f"{loss.name} needs two classes or more, and two texts or more of a class. Received: {count} classes of "
            f"{len(groups)} texts."
        )


def check_differences(loss, labels, counts=None):
    """Raises a ValueError if all labels are equal, or for lists, those of every query.

    Args:
        labels: numbers (n,), or for lists (n, most).
        counts: the number of documents of each query.
    """
    rows = [labels] if counts is None else [row[:count] for row, count in zip(labels, counts, strict=True)]
    if max(map(len, rows)) > 1 and all(np.ptp(row) == 0 for row in rows):
        what = "examples" if counts is None else "documents of a query"
        raise ValueError(f"{loss.name} learns from {what} with different labels. Received: {rows[0][0]} for all.")
