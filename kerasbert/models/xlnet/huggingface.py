"""Converts the fields and tensors of XLNet that do not correspond to a single field or weight here."""

import numpy as np

# === Fields ===


def load_causal(stored):
    """Determines from a config.json whether attention is causal."""
    kinds = {"bi": False, "uni": True}
    if stored["attn_type"] not in kinds:
        raise ValueError(f"`attn_type` must be one of {', '.join(kinds)}. Received: {stored['attn_type']!r}.")
    return kinds[stored["attn_type"]]


def load_length(name):
    """Returns a function that reads the length `name` from a config.json, where 0, -1 and null all mean None."""

    def load(stored):
        length = stored[name]
        return length if length is not None and length > 0 else None

    return load


# === Names ===

QUERIES = ("r_w_bias", "r_r_bias", "r_s_bias")


def huggingface_fields(weights):
    """Returns {"untied_queries": True} if the stored query vectors of the blocks differ, otherwise {}.

    The field `untie_r` cannot be trusted, because transformers ignores it: every block has separate vectors.
    """
    names = {name: f"layer.0.rel_attn.{name.rpartition('.')[2]}" for name in weights.names if name.endswith(QUERIES)}
    common = any(not np.array_equal(weights.read(name), weights.read(first)) for name, first in names.items())
    return {"untied_queries": True} if common else {}


def huggingface_implied(config):
    """Returns {stored name in block i: stored name in block 0} for query vectors that all blocks share.

    Files contain them once per block.
    """
    if config.untied_queries:
        return {}
    names = [f"layer.{{}}.rel_attn.{name}" for name in QUERIES]
    return {name.format(i): name.format(0) for name in names for i in range(1, config.num_layers)}
