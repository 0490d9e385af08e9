"""The inputs of exported programs: their names, and their values for a batch."""

import numpy as np

# Names in transformers of the inputs and outputs of a program -> names in this package.
OUR_NAMES: dict[str, str] = {
    "input_ids": "token_ids",
    "attention_mask": "padding_mask",
    "token_type_ids": "segment_ids",
    "decoder_input_ids": "decoder_token_ids",
    "decoder_attention_mask": "decoder_padding_mask",
    "start_logits": "start",
    "end_logits": "end",
}


def as_inputs(x):
    """Returns a batch as an exported program reads it: int32 arrays, with a `padding_mask` instead of `lengths`."""
    found = {}
    for name, array in x.items():
        if name.endswith("lengths"):
            columns = np.arange(x[name.replace("lengths", "token_ids")].shape[-1])
            name, array = name.replace("lengths", "padding_mask"), columns < np.asarray(array)[..., None]
        found[name] = np.ascontiguousarray(array, "int32")
    for prefix in ("", "decoder_"):
        if f"{prefix}token_ids" in found:
            found.setdefault(f"{prefix}padding_mask", np.ones_like(found[f"{prefix}token_ids"]))
    if "segment_ids" not in found:
        found["segment_ids"] = np.zeros_like(found["token_ids"])
    return found
