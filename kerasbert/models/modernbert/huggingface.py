"""ModernBERT in the Hugging Face layout: config fields that a plain table cannot convert."""


def layer_types(config):
    """The attention type of every layer, as transformers 5 names it."""
    return ["full_attention" if config.is_global(i) else "sliding_attention" for i in range(config.num_layers)]


def global_layers(stored):
    """(period, None) of the global layers, or (default period, their indices) if they are not periodic."""
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
    """The RoPE base of one layer type: transformers 5 nests it, transformers 4 had a separate field for each type."""
    rope = (stored.get("rope_parameters") or {}).get(layer_type) or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"kerasbert has rope_type='default' only. Received in config.json: {rope['rope_type']!r}.")
    if rope.get("rope_theta") is not None:
        return rope["rope_theta"]
    return stored["global_rope_theta"] if stored[older_name] is None else stored[older_name]


def rope_parameters(config):
    """The RoPE bases in the format of transformers 5."""
    thetas = {"full_attention": config.global_rope_theta, "sliding_attention": config.local_rope_theta}
    return {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
