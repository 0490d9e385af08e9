"""Fills mask tokens in text, with models that return logits at the `masked_positions`."""

import numpy as np

from ..data.tasks.examples import encode_texts
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
    if top_k != int(top_k) or not 1 <= top_k:
        raise ValueError(f"`top_k` must be an integer of at least 1. Received: {top_k}.")
    texts = read_texts(texts, "fill_mask")
    if isinstance(texts, str):
        return fill_mask(model, [texts], top_k, further_inputs)[0]
    if not len(texts):
        return []
    limit = getattr(model.backbone.config, "max_length", None)
    x = encode_texts(tokenizer, texts, limit)
    masks = [np.flatnonzero(row == tokenizer.mask_id) for row in x["token_ids"]]
    without = [text for text, found in zip(texts, masks, strict=True) if not len(found)]
    if without:
        raise ValueError(
            f"Every text must have the mask token {tokenizer.token(tokenizer.mask_id)}"
            f"{f' within its first {limit} tokens' if limit else ''}. Received: {without[0][:80]!r}."
        )
    positions = np.full((len(texts), max(map(len, masks))), -1, "int32")
    for row, found in enumerate(masks):
        positions[row, : len(found)] = found
    logits = model.predict({**x, "masked_positions": positions, **further_inputs(x)}, verbose=0)
    logits = logits["tokens"] if isinstance(logits, dict) else logits
    logits = logits[..., : tokenizer.vocabulary_size].astype("float64")
    logits[..., [not token for token in tokenizer.tokens[: logits.shape[-1]]]] = -np.inf  # ids without a token
    scores = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    best = np.argsort(-scores, axis=-1)[..., : min(top_k, sum(map(bool, tokenizer.tokens)))]
    return [
        [
            [
                {"token": tokenizer.token(int(i)), "score": float(scores[row, slot, i]), "id": int(i)}
                for i in best[row, slot]
            ]
            for slot in range(len(masks[row]))
        ]
        for row in range(len(texts))
    ]
