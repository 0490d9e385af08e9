"""Fills mask tokens in text, with models that return logits at the `masked_positions`."""

import numpy as np

from ..data.counts import check_counts
from ..data.tasks.answers import encode_masks, filled_masks
from ..training.convert import read_texts


def fill_mask(model, texts, top_k=5, further_inputs=lambda x: {}):
    """Predicts the most likely tokens for each mask token in each text; see `MaskedLM.fill_mask`.

    Args:
        model: an objective whose outputs are logits, or a dict with logits as `tokens`.
        texts, top_k: see `MaskedLM.fill_mask`.
        further_inputs: function that takes the encoded texts (a dict of arrays) and returns a dict of additional inputs
            that the model needs.
    """
    tokenizer = model.require_tokenizer()
    check_counts(top_k=top_k)
    texts = read_texts(texts, "fill_mask")
    if isinstance(texts, str):
        return fill_mask(model, [texts], top_k, further_inputs)[0]
    if not len(texts):
        return []
    limit = getattr(model.backbone.config, "max_length", None)
    x, masks = encode_masks(tokenizer, texts, limit)
    positions = np.full((len(texts), max(map(len, masks))), -1, "int32")
    for row, found in enumerate(masks):
        positions[row, : len(found)] = found
    logits = model.predict({**x, "masked_positions": positions, **further_inputs(x)}, verbose=0)
    logits = logits["tokens"] if isinstance(logits, dict) else logits
    parts = zip(logits, masks, strict=True)
    return [filled_masks(tokenizer, row[: len(found)], int(top_k)) for row, found in parts]
