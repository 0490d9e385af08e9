"""ModernBERT in the Hugging Face layout: what its fields say, where a table alone cannot."""


def layer_types(config):
    """The attention of every layer in the words of transformers 5."""
    return ["full_attention" if config.is_global(i) else "sliding_attention" for i in range(config.num_layers)]


def global_layers(stored):
    """(period, None) of the global layers, or (default period, their indices) where no period says them."""
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
    """The base of the wavelengths of one kind of layer: transformers 5 nests it, 4 had a name for each."""
    rope = (stored.get("rope_parameters") or {}).get(layer_type) or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"kerasbert has rope_type='default' only. Received in config.json: {rope['rope_type']!r}.")
    if rope.get("rope_theta") is not None:
        return rope["rope_theta"]
    return stored["global_rope_theta"] if stored[older_name] is None else stored[older_name]


def rope_parameters(config):
    """The wavelengths in the words of transformers 5."""
    thetas = {"full_attention": config.global_rope_theta, "sliding_attention": config.local_rope_theta}
    return {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
