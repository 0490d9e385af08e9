"""XLNet in the Hugging Face layout: names and config fields that a plain table cannot convert."""

import numpy as np

# === Fields ===


def load_causal(stored):
    kinds = {"bi": False, "uni": True}
    if stored["attn_type"] not in kinds:
        raise ValueError(f"`attn_type` must be one of {', '.join(kinds)}. Received: {stored['attn_type']!r}.")
    return kinds[stored["attn_type"]]


def load_length(name):
    """A loader of a length in tokens, for which 0, -1 and null all mean None."""

    def load(stored):
        length = stored[name]
        return length if length is not None and length > 0 else None

    return load


# === Names ===

QUERIES = ("r_w_bias", "r_r_bias", "r_s_bias")


def huggingface_fields(weights):
    """A field inferred from the tensors: transformers ignores `untie_r`, and every block has separate vectors."""
    names = {name: f"layer.0.rel_attn.{name.rpartition('.')[2]}" for name in weights.names if name.endswith(QUERIES)}
    common = any(not np.array_equal(weights.read(name), weights.read(first)) for name, first in names.items())
    return {"untied_queries": True} if common else {}


def huggingface_implied(config):
    """Query vectors that all blocks share are stored once per block."""
    if config.untied_queries:
        return {}
    names = [f"layer.{{}}.rel_attn.{name}" for name in QUERIES]
    return {name.format(i): name.format(0) for name in names for i in range(1, config.num_layers)}
