"""Checks that stored tensors can be the weights of a model: enough of them, floating-point and finite."""

import re

import numpy as np

# Endings of tensor names that occur only in quantized checkpoints.
_QUANTIZED = re.compile(
    r"\.(SCB|qweight|qzeros|scales|g_idx|absmax|quant_map|weight_scale|weight_scale_inv|zero_point)$"
)


def check_not_quantized(names, folder):
    """Raises a ValueError if the names of the tensors in a folder indicate a quantized checkpoint."""
    quantized = sorted(name for name in names if _QUANTIZED.search(name))
    if quantized:
        raise ValueError(
            f"kerasbert reads weights of full or half precision. Received: {folder} with quantized weights: "
            f"{', '.join(quantized[:3])}. Use the checkpoint that they were made from."
        )


def unfit_numbers(array, variable, allow_nan):
    """Returns the reason why an array cannot be the value of a variable, or None if it can.

    Args:
        array: a numpy array from a file.
        variable: the Keras variable.
        allow_nan: whether NaN and infinite numbers are accepted.
    """
    if "int" in variable.dtype:
        same = array.dtype.name == variable.dtype
        return None if same else f"must be {variable.dtype} numbers, these are {array.dtype.name}"
    if array.dtype.kind != "f":
        return f"weights must be floating-point numbers, these are {array.dtype.name}"
    if not array.size:
        return None
    lowest, highest = array.min(), array.max()  # NaN if any element is
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        return None if allow_nan else "has NaN or infinite numbers; to load it anyway, use allow_nan=True"
    limit = 65_504.0 if variable.dtype == "float16" else float(np.finfo("float32").max)
    if max(-lowest, highest) > limit:
        return f"has {max(-lowest, highest):.3g}, which {variable.dtype} cannot represent"
    return None


def check_sizes(config, stored):
    """Raises a ValueError if a config has more layers, or a larger vocabulary, than the stored tensors allow.

    Args:
        config: the config of a backbone.
        stored: the `StoredWeights` of the same folder.
    """
    for field, most in (("num_layers", len(stored.names)), ("vocabulary_size", stored.num_elements)):
        shared = field == "num_layers" and hasattr(config, "num_groups")
        if not shared and getattr(config, field, 0) > most:
            what = "tensors" if field == "num_layers" else "elements"
            raise ValueError(
                f"The sizes in config.json must match the weights. Received: {field}={getattr(config, field)} "
                f"with {most:,} {what} in {stored.files.folder}."
            )
