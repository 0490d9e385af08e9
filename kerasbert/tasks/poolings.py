"""Functions that pool the hidden states of a text into one vector. Names are the same as in sentence-transformers."""

from keras import ops

from ..layers.embeddings import gather_positions, last_tokens


def _mean(x, real, power=1.0):
    weights = ops.cast(real, x.dtype)[:, :, None]
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1e-9) ** power


def _position_weighted_mean(x, real, places=None):
    places = ops.cumsum(ops.cast(real, x.dtype), axis=1) if places is None else ops.cast(places, x.dtype)
    count = places * ops.cast(real, x.dtype)
    return ops.sum(x * count[:, :, None], axis=1) / ops.maximum(ops.sum(count, axis=1), 1e-9)[:, None]


def _first(x, real):
    return gather_positions(x, ops.cast(ops.argmax(ops.cast(real, "int32"), axis=1), "int32")[:, None])[:, 0]


def _max(x, real):
    return ops.max(ops.where(real[:, :, None], x, -1e9), axis=1)


# {name: (function that pools (b, s, m) over the real tokens, name of its flag in sentence-transformers)}. The vectors
# of several poolings are concatenated in this order.
POOLINGS = {
    "cls": (_first, "pooling_mode_cls_token"),
    "max": (_max, "pooling_mode_max_tokens"),
    "mean": (_mean, "pooling_mode_mean_tokens"),
    "mean_sqrt_len_tokens": (lambda x, real: _mean(x, real, 0.5), "pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": (_position_weighted_mean, "pooling_mode_weightedmean_tokens"),
    "lasttoken": (lambda x, real: last_tokens(x, {"padding_mask": real}), "pooling_mode_lasttoken"),
}


def pooled(name, x, real, prompt_lengths=None):
    """Pools the hidden states (b, s, m) of texts to vectors (b, m).

    Args:
        name: a name from `POOLINGS`.
        x: float (b, s, m).
        real: bool (b, s), True at tokens that are not padding.
        prompt_lengths: int (b,); the first tokens of a row that are left out. The weights of "weightedmean" stay those
            of the whole row.
    """
    if prompt_lengths is None:
        return POOLINGS[name][0](x, real)
    places = ops.cumsum(ops.cast(real, "int32"), axis=1)
    real = real & (places > prompt_lengths[:, None])
    return _position_weighted_mean(x, real, places) if name == "weightedmean" else POOLINGS[name][0](x, real)
