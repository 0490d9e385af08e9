"""Converts the fields of ModernBERT's config.json that do not correspond to a single field here."""


def layer_types(config):
    """Returns the list of the layers' attention types, as transformers 5 names them."""
    return ["full_attention" if config.is_global(i) else "sliding_attention" for i in range(config.num_layers)]


def global_layers(stored):
    """Determines from a config.json which layers attend to the whole sequence.

    Returns: (period, None) if the layers are periodic, otherwise (default period, tuple of their indices).
    """
    types, period = stored["layer_types"], stored["global_attn_every_n_layers"]
    if types is None:
        return period, None
    unknown = set(types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"`layer_types` must be full_attention or sliding_attention. Received: {sorted(unknown)}.")
    indices = [i for i, kind in enumerate(types) if kind == "full_attention"]
    periods = (n for n in (period, *range(1, len(types) + 1)) if indices == list(range(0, len(types), n)))
    found = next(periods, None)
    return (period, tuple(indices)) if found is None else (found, None)


def rope_theta(stored, layer_type, older_name):
    """Returns the base of the rotary positions for one type of layer.

    Args:
        stored: the content of config.json. transformers 5 stores the bases in a nested dict.
        layer_type: "full_attention" or "sliding_attention".
        older_name: name of the field in which transformers 4 stores the base.
    """
    rope = (stored.get("rope_parameters") or {}).get(layer_type) or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(
            f"kerasbert supports only rope_type='default'. Received in config.json: {rope['rope_type']!r}."
        )
    if rope.get("rope_theta") is not None:
        return rope["rope_theta"]
    return stored["global_rope_theta"] if stored[older_name] is None else stored[older_name]


def rope_parameters(config):
    """Returns the bases of the rotary positions in the format of transformers 5."""
    thetas = {"full_attention": config.global_rope_theta, "sliding_attention": config.local_rope_theta}
    return {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
