"""Whether stored tensors are weights of a model: enough of them, floating-point, finite."""

import re

import numpy as np

# What quantised weights bring along, by the last part of their names.
_QUANTISED = re.compile(
    r"\.(SCB|qweight|qzeros|scales|g_idx|absmax|quant_map|weight_scale|weight_scale_inv|zero_point)$"
)


def check_not_quantised(names, folder):
    quantised = sorted(name for name in names if _QUANTISED.search(name))
    if quantised:
        raise ValueError(
            f"kerasbert reads weights of full or half precision. Received: {folder} with quantised ones, by "
            f"{', '.join(quantised[:3])}. Use the checkpoint that they were made from."
        )


def unfit_numbers(array, variable, allow_nan):
    """Why an array is none of weights for a variable: whole numbers, numbers that are not finite, or too large."""
    if array.dtype.kind != "f":
        return f"weights are floating-point numbers, these are {array.dtype.name}"
    if not array.size:
        return None
    lowest, highest = array.min(), array.max()  # NaN if one is
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        return None if allow_nan else "has NaN or infinite numbers; load it with allow_nan=True if that is wanted"
    limit = 65_504.0 if variable.dtype == "float16" else float(np.finfo("float32").max)
    if max(-lowest, highest) > limit:
        return f"has {max(-lowest, highest):.3g}, which {variable.dtype} cannot hold"
    return None


def check_sizes(config, stored):
    """Raises a ValueError when a config has more layers or tokens than the tensors of its folder can be for."""
    for field, most in (("num_layers", len(stored.names)), ("vocabulary_size", stored.num_elements)):
        shared = field == "num_layers" and hasattr(config, "num_groups")
        if not shared and getattr(config, field, 0) > most:
            what = "tensors" if field == "num_layers" else "numbers"
            raise ValueError(
                f"The sizes in config.json must be those of the weights. Received: {field}={getattr(config, field)} "
                f"with {most:,} {what} in {stored.files.folder}."
            )
