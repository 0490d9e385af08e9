"""Checks for invalid batches, for which compiled code would silently compute wrong results."""

import contextlib
import contextvars
import difflib
import warnings

import keras
import numpy as np

from ..backend.compilation import concrete_array
from .batch import BATCH_KEYS

_CHECKED = contextvars.ContextVar("checked", default=False)


@contextlib.contextmanager
def checked_inputs():
    """Context manager that disables the input checks of models, because the caller has already checked the inputs."""
    token = _CHECKED.set(True)
    try:
        yield
    finally:
        _CHECKED.reset(token)


def inputs_are_checked():
    """Whether the current call is made inside `checked_inputs()`."""
    return _CHECKED.get()


HELP = "help(kerasbert.core.Batch)"  # error messages do not refer to docs/, which the wheel does not contain

_OTHER_NAMES = {  # names of the same inputs in other packages
    "attention_mask": "padding_mask",
    "input_mask": "padding_mask",
    "mask": "padding_mask",
    "input_ids": "token_ids",
    "ids": "token_ids",
    "tokens": "token_ids",
    "token_type_ids": "segment_ids",
    "langs": "language_ids",
    "length": "lengths",
    "mems": "memory",
    "perm_mask": "permutation_mask",
    "decoder_input_ids": "decoder_token_ids",
    "decoder_attention_mask": "decoder_padding_mask",
}
# Explanations that error messages append to the name of a key.
_MEANINGS = {"padding_mask": ", True or 1 at real tokens", "permutation_mask": ", True where a token is hidden"}
# Common names of targets, which must not be among the inputs.
_TARGETS = ("label", "labels", "targets", "y", "start_positions", "end_positions")


def check_keys(inputs, others=()):
    """Raises a ValueError if a batch lacks `token_ids`, or has unknown keys, which would be ignored.

    Args:
        inputs: the inputs of a batch, a dict.
        others: keys that the model reads in addition to `BATCH_KEYS`.
    """
    example = f'{{"token_ids": ids, "padding_mask": mask}}; {HELP} describes all keys'
    if not isinstance(inputs, dict):
        raise ValueError(f"A batch must be a dict with `token_ids`. Received: {type(inputs).__name__}. Use {example}.")
    known = {*BATCH_KEYS, *others}
    unknown = [key for key in inputs if key not in known]
    if len(unknown) > 1 and all(key in _OTHER_NAMES for key in unknown):
        raise ValueError(
            "The keys of a batch must be known: others would be ignored. Received: "
            f"{', '.join(map(repr, unknown))}. Use "
            + ", ".join(f"`{_OTHER_NAMES[key]}` for {key}" for key in unknown)
            + f"; {HELP} describes all keys."
        )
    for key in unknown:
        if key in _TARGETS:
            raise ValueError(f"Targets must not be in a batch. Received: `{key}` in a batch. Pass them as y.")
        near = _OTHER_NAMES.get(key) or next(iter(difflib.get_close_matches(str(key), known, 1)), None)
        fix = (
            f"Use `{near}`{_MEANINGS.get(near, '')}" if near else f"The keys are {', '.join(sorted(known))}; see {HELP}"
        )
        raise ValueError(f"The keys of a batch must be known: others would be ignored. Received: {key!r}. {fix}.")
    if inputs.get("token_ids") is None:
        raise ValueError(f"A batch must be a dict with `token_ids`. Received: {sorted(inputs)}. Use {example}.")


def check_arrays(inputs):
    """Raises a ValueError if an array does not have the kind or shape that `BATCH_KEYS` requires.

    Invalid values of masks and lengths are errors too, unless their values are unknown because the arrays are traced.
    """
    sizes = {}
    for key, described in BATCH_KEYS.items():
        for name, array in _named(key, inputs.get(key)):
            if not hasattr(array, "shape") or not hasattr(array, "dtype"):
                raise ValueError(
                    f"`{name}` must be an array or a tensor. Received: a {type(array).__name__}. Use np.array(...)."
                )
            _check_kind(name, described.kind, array)
            if described.shape is not None:
                _check_shape(name, described.shape, tuple(array.shape), sizes)
    for prefix, letter in (("", "s"), ("decoder_", "t")):
        lengths, most = concrete_array(inputs.get(f"{prefix}lengths")), sizes.get(letter)
        if lengths is None or most is None or not lengths.size:
            continue
        if lengths.min() < 0 or lengths.max() > most:
            wrong = int(lengths.max() if lengths.max() > most else lengths.min())
            raise ValueError(
                f"`{prefix}lengths` must be between 0 and {most}, the number of columns of `{prefix}token_ids`. "
                f"Received: {wrong}."
            )


def _named(key, value):
    """Returns a list of (name for error messages, array) for one key of a batch."""
    if isinstance(value, dict):  # the `loss_normalizer` of several targets
        return [(f"{key}[{name!r}]", part) for name, part in value.items()]
    return [] if value is None else [(key, value)]


def _check_kind(key, kind, array):
    is_text = isinstance(array, np.ndarray) and array.dtype.kind in "OSU"
    dtype = "text or objects" if is_text else keras.backend.standardize_dtype(array.dtype)
    is_integer = dtype.startswith(("int", "uint"))
    if kind == "ids" and not is_integer:
        raise ValueError(f"`{key}` must be integers. Received: {dtype}. Use {key}.astype('int32').")
    if kind != "mask" or dtype == "bool":
        return
    if not is_integer:
        raise ValueError(
            f"`{key}` must be bool, or integers of 0 and 1. Received: {dtype}. For a mask that is added to the scores "
            "(0 and -1e9), use mask == 0."
        )
    values = concrete_array(array)
    if values is not None and values.size and (values.min() < 0 or values.max() > 1):
        wrong = int(values.max() if values.max() > 1 else values.min())
        raise ValueError(f"`{key}` must be bool, or integers of 0 and 1. Received: {wrong}.")


def _check_shape(key, letters, shape, sizes):
    """Raises a ValueError if a shape does not fit its axis letters, and records the size of each letter in `sizes`."""
    fits = len(shape) == len(letters)
    for letter, size in zip(letters, shape, strict=False):
        known = sizes.get(letter)
        fits = fits and (size is None or known is None or known == size)
    if not fits:
        if key.endswith("token_ids"):
            rows = f" of {sizes['b']} rows" if sizes.get("b") is not None else ""
            raise ValueError(
                f"`{key}` must be ({', '.join(letters)}){rows}: one row per sequence. Received: shape {shape}."
                + (f" Use {key}[None]." if len(shape) == 1 else "")
            )
        table = {"s": "token_ids", "t": "decoder_token_ids", "p": "masked_positions"}
        like = next((table[letter] for letter in letters if letter in table), "token_ids")
        if letters in ("bs", "bt"):
            wanted = f"must have the shape of `{like}`, {(sizes['b'], sizes[letters[1]])}: one value per token"
            fix = ""
        else:
            known = ", ".join(str(sizes.get(letter) or letter) for letter in letters)
            wanted = f"must have the shape ({', '.join(letters)}), here ({known})"
            fix = f" {HELP} explains the letters."
        if len(shape) > len(letters):
            fix = " To separate the sequences of a row, use `sequence_ids`."
        raise ValueError(f"`{key}` {wanted}. Received: {shape}.{fix}")
    for letter, size in zip(letters, shape, strict=True):
        if size is not None:
            sizes.setdefault(letter, size)


def check_numbers(x, y=None, sample_weight=None):
    """Raises a ValueError for targets or weights of examples with which a single update would destroy the model.

    Args:
        x: inputs. The weights in a `loss_normalizer` must be finite and at least 0.
        y: targets, or a dict of them. They must be finite.
        sample_weight: weights, or a dict of them. They must be finite and at least 0.
    """
    loss_normalizer = x.get("loss_normalizer") if isinstance(x, dict) else None
    for name, values in (("sample_weight", sample_weight), ("loss_normalizer", loss_normalizer)):
        for array in _arrays(values):
            if array.dtype.kind not in "buif" and "float" not in array.dtype.name:
                raise ValueError(f"`{name}` must be numbers. Received: {array.dtype.name}, {array.flat[0]!r:.40}.")
            wrong = ~(np.isfinite(array) & (array >= 0))
            if wrong.any():
                place = np.argwhere(wrong)[0]
                where = f" at {', '.join(map(str, place))}" if array.ndim else ""
                raise ValueError(f"`{name}` must be finite and at least 0. Received: {array[tuple(place)]}{where}.")
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in _arrays(y)):
        raise ValueError("Targets must be finite numbers. Received: NaN or infinity.")


def check_any_weight(sample_weight):
    """Raises a ValueError if no example has a weight above 0, so that nothing would be learned or measured."""
    arrays = _arrays(sample_weight)
    if arrays and not any(array.any() for array in arrays):
        raise ValueError("At least one example must have a weight above 0. Received: 0 for all of them.")


def _arrays(values):
    """Returns the arrays with known values among `values`: None, an array, a list of numbers, or a dict of these."""
    if values is None:
        return []
    if isinstance(values, dict):
        return [array for value in values.values() for array in _arrays(value)]
    array = concrete_array(values) if keras.ops.is_tensor(values) else np.asarray(values)
    return [] if array is None or not array.size else [array]


def warn_of_padding(inputs, config):
    """Warns if rows end (or begin) with two or more padding tokens that no input marks as padding."""
    pad = getattr(config, "pad_id", None)
    others = {getattr(config, name, None) for name in ("bos_id", "eos_id", "cls_id", "sep_id")}
    if pad is None or pad in others:
        return
    for prefix in ("", "decoder_"):
        told = (f"{prefix}{key}" for key in ("padding_mask", "lengths", "sequence_ids"))
        ids = concrete_array(inputs.get(f"{prefix}token_ids"))
        if ids is None or ids.ndim != 2 or ids.shape[1] < 3 or any(inputs.get(key) is not None for key in told):
            continue
        padding = ids == pad
        starts = prefix or pad == getattr(config, "decoder_start_id", None)  # rows may begin with the padding token
        ends = padding[:, -2:].all(axis=1)
        ends = ends if starts else ends | padding[:, :2].all(axis=1)
        if (ends & ~padding.all(axis=1)).any():
            warnings.warn(
                f"`{prefix}token_ids` has rows that begin or end with padding tokens, {pad}, but no input marks them "
                f"as padding, so they are attended to. Pass `{prefix}padding_mask`, for example ids != {pad}, or "
                f"`{prefix}lengths`.",
                stacklevel=2,
            )


def longest_sequence(sequence_ids):
    """The length of the longest sequence in packed rows.

    Args:
        sequence_ids: int (b, s), 0 at padding. If None, the result is None.
    """
    if sequence_ids is None:
        return None
    return max(int(np.bincount(row[row > 0], minlength=1).max()) for row in sequence_ids)


_FROM_FOLDER = contextvars.ContextVar("from_folder", default=False)


@contextlib.contextmanager
def accepting_larger_tokenizers():
    """Context manager in which a tokenizer may have more tokens than the backbone, as in some published folders."""
    token = _FROM_FOLDER.set(True)
    try:
        yield
    finally:
        _FROM_FOLDER.reset(token)


def check_tokenizer_size(tokenizer, size):
    """Raises a ValueError if a tokenizer has more tokens than the vocabulary of a backbone.

    In `accepting_larger_tokenizers`, this is a warning: texts without the further tokens can be read.
    """
    if tokenizer.vocabulary_size <= size:
        return
    received = f"a tokenizer with {tokenizer.vocabulary_size} tokens, a backbone with {size}"
    if not _FROM_FOLDER.get():
        raise ValueError(
            f"A tokenizer's ids must all be in the backbone's vocabulary. Received: {received}. "
            "Use the tokenizer that the backbone was trained with."
        )
    first = next((token for token in tokenizer.tokens[size:] if token), "")
    warnings.warn(
        f"The folder has {received}. Texts with one of the further tokens, such as {first!r}, cannot be read.",
        stacklevel=2,
    )
