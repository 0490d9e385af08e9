"""Applies masking rules to rows of a made-up vocabulary."""

import numpy as np

from kerasbert.data.noise.noise import MaskableRows, MaskingVocabulary
from kerasbert.data.sampling import row_draws

MASK, VOCABULARY = 5, 60


def apply(noise, tokens, special, maskable=None, word_starts=None, mask_id=MASK):
    """(positions, targets) of a rule, which changes `tokens` (b, s) in place.

    Args:
        special: ids of the special tokens of a row.
        maskable: bool (b, s), False at padding.
        word_starts: bool (vocabulary,). Default: every token begins a word.
    """
    rows, length = tokens.shape
    maskable = np.ones(tokens.shape, bool) if maskable is None else maskable
    starts = np.ones(VOCABULARY, bool) if word_starts is None else word_starts
    vocabulary = MaskingVocabulary(mask_id, VOCABULARY, special, word_starts=starts)
    slots = noise.num_slots(length, 0)
    first = np.arange(length) == np.argmax(maskable, axis=1)[:, None]
    given = MaskableRows(tokens, maskable.sum(axis=1), maskable, first, slots, vocabulary)
    return noise(given, row_draws(0, 0, 0, 0, rows, noise.num_draws(length, slots)))
