"""Filling of mask tokens in text, for objectives that predict tokens at slots."""

import numpy as np

from ..core.feeding import check_texts
from ..data.tasks.examples import encode_texts
from .objective import Objective


class MaskFilling(Objective):
    """Base class of objectives whose outputs at `masked_positions` are logits of the tokens there."""

    def slots_of_masks(self, x, positions):
        """The batch to predict the mask tokens of `x`, which are at `positions`, int32 (b, p); -1 = unused."""
        return {**x, "masked_positions": positions}

    def fill_mask(self, texts, top_k=5):
        """The likeliest tokens for every mask token of each text.

        Args:
            texts: a str or a list of str with the tokenizer's mask token, such as "Paris is the [MASK] of France."
            top_k: candidates per mask.

        Returns: for each text a list of masks, each a list of {"token", "score", "id"}, best first; for a
            single str, just its list.
        """
        tokenizer = self.require_tokenizer()
        if top_k != int(top_k) or not 1 <= top_k:
            raise ValueError(f"`top_k` must be an integer of at least 1. Received: {top_k}.")
        check_texts(texts, "fill_mask")
        if isinstance(texts, str):
            return self.fill_mask([texts], top_k)[0]
        if not len(texts):
            return []
        limit = getattr(self.backbone.config, "max_length", None)
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
        logits = self.predict(self.slots_of_masks(x, positions), verbose=0)
        logits = logits["tokens"] if isinstance(logits, dict) else logits
        logits = logits[..., : tokenizer.vocabulary_size].astype("float64")
        scores = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
        best = np.argsort(-scores, axis=-1)[..., :top_k]
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
