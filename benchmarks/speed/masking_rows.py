"""The corruptions once more, as plain loops over one row: what vectorized code is measured against.

Each takes the ids of a row, a seed, the tokenizer and, where words count, which ids begin one, and returns
(inputs, positions, targets). The rules are those of `kerasbert.data`, the random numbers are not.
"""

import math
import random

RATE = 0.15


def _words(row: list[int], tokenizer, starts) -> list[list[int]]:
    """Positions of the pieces of each word; special tokens belong to none."""
    words = []
    for position, token in enumerate(row):
        if token in (tokenizer.cls_id, tokenizer.sep_id):
            continue
        if words and not starts[token]:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def _replaced(token: int, draw: random.Random, tokenizer) -> int:
    share = draw.random()
    return tokenizer.mask_id if share < 0.8 else token if share < 0.9 else draw.randrange(tokenizer.vocabulary_size)


def _finished(row: list[int], chosen: list[int], replacements: list[int]) -> tuple[list[int], list[int], list[int]]:
    inputs = list(row)
    for position, token in zip(chosen, replacements, strict=True):
        inputs[position] = token
    order = sorted(chosen)
    return inputs, order, [row[position] for position in order]


def whole_words(row: list[int], seed: int, tokenizer, starts) -> tuple[list[int], list[int], list[int]]:
    """BERT's whole words: in random order, a word that would exceed the count is skipped."""
    return ngrams(row, seed, tokenizer, starts, longest=1)


def ngrams(row: list[int], seed: int, tokenizer, starts, longest: int = 3) -> tuple[list[int], list[int], list[int]]:
    """ALBERT's n-grams of words, n drawn in proportion to 1 / n, shorter ones where a longer one does not fit."""
    draw = random.Random(seed)
    words = _words(row, tokenizer, starts)
    count = max(1, round(RATE * len(row)))
    shares = [1 / n for n in range(1, longest + 1)]
    chosen, taken = [], set()
    for first in draw.sample(range(len(words)), len(words)):
        if len(chosen) >= count:
            break
        for n in range(draw.choices(range(1, longest + 1), shares)[0], 0, -1):
            span = [position for word in words[first : first + n] for position in word]
            if len(chosen) + len(span) <= count and not taken.intersection(span):
                chosen += span
                taken.update(span)
                break
    return _finished(row, chosen, [_replaced(row[position], draw, tokenizer) for position in chosen])


def spans(row: list[int], seed: int, tokenizer, starts) -> tuple[list[int], list[int], list[int]]:
    """SpanBERT's spans of words, their lengths geometric, one decision a span; with the boundaries of each."""
    draw = random.Random(seed)
    words = _words(row, tokenizer, starts)
    place = {position: number for number, word in enumerate(words) for position in word}
    count = math.ceil(RATE * len(place))
    shares = [0.8**n for n in range(10)]
    taken = set()
    while len(taken) < count:
        anchor = draw.choice(list(place))
        if anchor in taken:
            continue
        for number in range(place[anchor], min(place[anchor] + draw.choices(range(1, 11), shares)[0], len(words))):
            for position in words[number]:
                if len(taken) < count:
                    taken.add(position)
    chosen = sorted(taken)
    replacements, boundaries, first = [], [], 0
    for i, position in enumerate(chosen):
        if i == 0 or chosen[i - 1] != position - 1:
            first, share = position, draw.random()
            last = position
            while last + 1 in taken:
                last += 1
        keep = row[position] if share < 0.9 else draw.randrange(tokenizer.vocabulary_size)
        replacements.append(tokenizer.mask_id if share < 0.8 else keep)
        boundaries.append((first - 1, last + 1, position - first))
    return *_finished(row, chosen, replacements), boundaries


def slots(row: list[int], seed: int, tokenizer) -> tuple[list[int], list[int], list[int]]:
    """ELECTRA's slots without replacement, 85% of which show the mask."""
    draw = random.Random(seed)
    candidates = [i for i, token in enumerate(row) if token not in (tokenizer.cls_id, tokenizer.sep_id)]
    chosen = draw.sample(candidates, min(len(candidates), round(RATE * len(row))))
    return _finished(row, chosen, [tokenizer.mask_id if draw.random() < 0.85 else row[p] for p in chosen])
