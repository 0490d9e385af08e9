"""Encodes multiple-choice examples, with one row for each choice."""

import itertools
from collections.abc import Sequence

import numpy as np

from ..corpus.packing import truncation
from ..tokenizers.tokenizer import Tokenizer
from .examples import fill_rows, never_empty


def encode_choices(
    tokenizer: Tokenizer, examples: Sequence, max_length: int, max_choice_length: int = 128
) -> dict[str, np.ndarray]:
    """Encodes every choice of every example as a row (context, choice).

    An example is (context, choices), as in SWAG and ARC, or (passage, question, choices), as in RACE. With a question,
    each choice is appended to it, or replaces each "_" in it. The question with the choice is then truncated to its
    last `max_choice_length` tokens, and the passage at its end. Without a question, pairs that are too long are
    truncated at the end of the longer part.

    Args:
        tokenizer: a `Tokenizer`.
        examples: see above. Padding rows are added to examples that have fewer choices than others.
        max_length: maximum number of tokens per row, including special tokens.
        max_choice_length: maximum number of tokens of a question with its choice.

    Returns:
        A dict of "token_ids" (b, c, s), "lengths" (b, c), and "segment_ids" (b, c, s) if the tokenizer's pairs have
        segments, int32. For a tokenizer that pads on the left, "padding_mask" (b, c, s), bool, instead of "lengths".
    """
    parts = [_checked(example, number) for number, example in enumerate(examples)]
    most = max(len(endings) for _, endings, _ in parts)
    texts = [context for context, *_ in parts] + [ending for _, endings, _ in parts for ending in endings]
    ids = tokenizer.encode(texts, add_special_tokens=False, plain_text=True)
    endings = iter(ids[len(parts) :])
    info = tokenizer.info
    max_tokens = max_length - (len(info["pair"]) - 2)
    if max_tokens < 2:
        raise ValueError(
            f"`max_length` must leave space for text besides the special tokens. Received: {max_length}. "
            f"Use at least {len(info['pair'])}."
        )
    rows: list[tuple] = []
    for context, (_, choices, is_reading) in zip(ids, parts, strict=False):
        for _ in choices:
            fitted = _fitted(
                context, next(endings), max_tokens, min(max_choice_length, max_tokens) if is_reading else None
            )
            rows.append(never_empty(info, fitted))
        rows += [()] * (most - len(choices))
    x = fill_rows(info, rows, segments=info["segments"])
    return {key: array.reshape(len(parts), most, *array.shape[1:]) for key, array in x.items()}


def _fitted(context: np.ndarray, ending: np.ndarray, max_tokens: int, kept: int | None) -> tuple:
    if kept is not None:
        ending = ending[-kept:]
        return context[: max_tokens - len(ending)], ending
    drops = truncation(np.array(len(context)), np.array(len(ending)), max_tokens)
    return tuple(part[: len(part) - int(drop)] for part, drop in zip((context, ending), drops, strict=True))


def _checked(example: object, number: int) -> tuple[str, list[str], bool]:
    """Checks an example. Returns its first text, the second text of each choice, and whether it has a question."""
    right = isinstance(example, (tuple, list)) and len(example) in (2, 3)
    choices = example[-1] if right else ()
    right = right and isinstance(choices, (tuple, list)) and len(choices) > 1
    if not right or not all(isinstance(text, str) for text in (*example[:-1], *choices)):
        raise ValueError(
            "An example must be (context, choices) or (passage, question, choices) of str, with two or more choices. "
            f"Received as example {number}: {example!r:.60}."
        )
    if len(example) == 2:
        return example[0], list(choices), False
    question = example[1]
    joined = [question.replace("_", choice) if "_" in question else f"{question} {choice}" for choice in choices]
    return example[0], joined, True


def ranking_examples(
    pairs: Sequence[tuple[str, str]], labels: Sequence, seed: int = 0
) -> tuple[list[tuple[str, list[str]]], list[int]]:
    """Makes multiple-choice examples from consecutive pairs with the same question, as MT-DNN does for QNLI.

    Only questions that have two or more candidates, exactly one of which is right, are used. The candidates of a
    question are shuffled.

    pairs (q, a), (q, b), (r, c), (r, d), labels 1, 0, 1, 1 -> (q, [b, a]), index 1

    Args:
        pairs: (question, candidate).
        labels: for each pair, whether the candidate is right, as a bool, 0 or 1.
        seed: seed of the order of the candidates.

    Returns: examples for a `MultipleChoice`, and the index of the right choice of each.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    examples, right = [], []
    numbered = zip(pairs, labels, strict=True)
    for question, group in itertools.groupby(numbered, key=lambda item: item[0][0]):
        candidates = [(pair[1], bool(label)) for pair, label in group]
        if len(candidates) < 2 or sum(is_right for _, is_right in candidates) != 1:
            continue
        candidates = [candidates[i] for i in np.argsort(generator.random(len(candidates)))]
        examples.append((question, [text for text, _ in candidates]))
        right.append([is_right for _, is_right in candidates].index(True))
    return examples, right
