"""Continues prompts token by token, in one compiled program per shape.

An objective that generates text has two methods. `start_cache(context, batch_size, length)` returns an empty cache with
capacity for `length` tokens, where `context` is a dict of arrays with one row per prompt, such as the inputs of an
encoder. `next_logits(inputs, cache)` returns the logits (b, v) of the token that follows the last column of
`token_ids`, and the updated cache, where `inputs` is a dict of `token_ids`, `padding_mask` and `position_ids`, each
(b, q). Prompts are padded on the left.
"""

import dataclasses
import functools

import numpy as np
from keras import ops

from ..backend.compilation import compiled, recorded
from ..core.inputs import checked_inputs
from .cache import repeat_rows
from .search import NUMBERS, BeamSearch, Sampling

BUCKET = (
    32  # widths of prompts and numbers of new tokens are rounded up to multiples of this, to compile fewer programs
)
MOST_PROGRAMS = 32  # that a model keeps


def decode(model, options, length, context, numbers, token_ids, real, limits, draws):
    """Generates continuations of one batch of prompts.

    Args:
        model: an objective with the two methods above.
        options: the `Options`. The values of `NUMBERS` are read from `numbers` instead.
        length: capacity for new tokens, which is part of the shape of the program.
        context: the context of `start_cache`.
        numbers: {name: float32 ()}, the values of the `NUMBERS` that are not None.
        token_ids: int32 (b, p), prompts padded on the left.
        real: bool (b, p), True at tokens of prompts.
        limits: int32 (2,), minimum and maximum number of new tokens.
        draws: float32 (r, length), uniform random numbers in [0, 1) for sampling.

    Returns: tokens int32 (b, sequences, length), numbers of tokens int32 (b, sequences), and scores float32
        (b, sequences).
    """
    rows, width = token_ids.shape
    chosen = {"numbers": numbers, "limits": limits, "draws": draws}
    chosen |= {"prompts": (token_ids, real)} if options.needs_history else {}
    search = _search(options, rows, length, **chosen)
    counted = ops.cumsum(ops.cast(real, "int32"), axis=-1)
    inputs = {"token_ids": token_ids, "padding_mask": real, "position_ids": ops.maximum(counted - 1, 0)}
    logits, cache = model.next_logits(inputs, model.start_cache(context, rows, width + length))
    cache = repeat_rows(cache, search.branches)
    first_position = ops.repeat(counted[:, -1], search.branches)
    state = search.advance(search.start(), ops.repeat(logits, search.branches, axis=0))

    def step(chosen, first_position, cache, state):
        search = _search(options, rows, length, **chosen)
        inputs = {
            "token_ids": state["token"][:, None],
            "padding_mask": ops.ones((first_position.shape[0], 1), "bool"),
            "position_ids": (first_position + state["step"] - 1)[:, None],
        }
        logits, cache = model.next_logits(inputs, search.pick(cache, state))
        return cache, search.advance(state, logits)

    key = (options, rows, length, *(id(weight) for weight in model.weights))
    steps = model.__dict__.setdefault("_decoding_steps", {})
    step = recorded(step, steps, key, chosen, first_position, cache, state)
    _, state = ops.while_loop(
        lambda cache, state: search.going(state),
        lambda cache, state: step(chosen, first_position, cache, state),
        (cache, state),
    )
    return search.result(state)


def _search(options, rows, length, numbers, limits, draws, prompts=None):
    options = dataclasses.replace(options, **numbers)
    kind = BeamSearch if options.num_beams > 1 else Sampling
    return kind(options, rows, length, (limits[0], limits[1]), draws, prompts)


def generate(
    model, prompts, options, max_new_tokens=None, min_new_tokens=0, seed=0, batch_size=32, context=None, limit=None
):
    """Generates continuations of prompts.

    Args:
        model: an objective; see the docstring of this module.
        prompts: list of int32 arrays, the token ids of each prompt.
        options: the `Options` of the search.
        max_new_tokens, min_new_tokens: limits of the number of new tokens.
        seed: seed of sampling.
        batch_size: number of prompts per batch.
        context: the context of `start_cache`. Its entry `lengths` says how many columns each row of the other arrays
            uses.
        limit: maximum number of tokens of a prompt and its continuation together, or None.

    Returns: for each prompt a list of `num_sequences` pairs (int32 token ids, score), best first.
    """
    options.check()
    if batch_size < 1 or not 0 <= seed < 2**64:
        raise ValueError(
            f"`batch_size` must be at least 1, and `seed` at least 0. Received: batch_size={batch_size}, seed={seed}."
        )
    stop_ids = tuple(int(i) for i in np.atleast_1d(np.asarray(options.stop_ids, "int64")))
    without_effect = {name: None for name in ("top_p", "repetition_penalty") if getattr(options, name) == 1}
    options = dataclasses.replace(options, stop_ids=stop_ids, **without_effect)
    lengths = np.array([len(prompt) for prompt in prompts])
    max_new_tokens = _checked(model, prompts, lengths, options, max_new_tokens, min_new_tokens, limit)
    length = _rounded(max_new_tokens)
    given = {name: np.float32(getattr(options, name)) for name in NUMBERS if getattr(options, name) is not None}
    program = _program(model, dataclasses.replace(options, **dict.fromkeys(given, 0.0)), length)
    limits = np.array([min_new_tokens, max_new_tokens], "int32")
    found = [None] * len(prompts)
    sizes = lengths if context is None else context["lengths"]
    order = np.argsort(-sizes, kind="stable")  # rows of similar lengths have little padding
    rows = min(batch_size, len(prompts))
    for start in range(0, len(prompts), rows):
        numbers = order[start : start + rows]
        numbers = np.append(numbers, np.repeat(numbers[-1:], rows - len(numbers)))
        width = _rounded(int(lengths[numbers].max()))
        token_ids = np.zeros((rows, width), "int32")
        for row, number in enumerate(numbers):
            token_ids[row, width - lengths[number] :] = prompts[number]
        real = np.arange(width) >= width - lengths[numbers, None]
        part = {} if context is None else _rows_of(context, numbers, limit)
        with checked_inputs():
            results = program(part, given, token_ids, real, limits, _draws(options, seed, numbers, length))
        for row, number in enumerate(numbers):
            tokens, counts, scores = (array[row] for array in results)
            found[number] = [(t[:n], float(s)) for t, n, s in zip(tokens, counts, scores, strict=True)]
    return found


def _rounded(width):
    """Rounds `width` up to a multiple of `BUCKET`, except for 1, the width of a start token."""
    return width if width == 1 else -(-width // BUCKET) * BUCKET


def _rows_of(context, numbers, limit):
    """Selects rows of a context, and trims them to the length of the longest one, rounded up to at most `limit`."""
    width, part = _rounded(int(context["lengths"][numbers].max())), {}
    width = width if limit is None else min(width, limit)
    for key, array in context.items():
        part[key] = array[numbers]
        if array.ndim > 1:
            part[key] = np.pad(part[key][:, :width], ((0, 0), (0, max(0, width - array.shape[1]))))
    return part


def _program(model, options, length):
    """Returns the compiled `decode`, which is stored in the model, or for an export, a loop that calls its programs."""
    if getattr(model, "engine", None) is not None:
        return model.engine.decoder(options, length)
    programs = model.__dict__.setdefault("_decoding_programs", {})
    if (options, length) not in programs:
        while len(programs) >= MOST_PROGRAMS:
            programs.pop(next(iter(programs)))
        function = functools.partial(decode, model, options, length)
        programs[options, length] = compiled(function, lambda: model.weights)
    return programs[options, length]


def _draws(options, seed, numbers, length):
    """Draws uniform random numbers float32 (r, length), which depend on the seed and the prompt, not on the batch."""
    if not options.sample:
        return np.zeros((1, 1), "float32")
    keys = [number * options.num_sequences + i for number in numbers for i in range(options.num_sequences)]
    generators = [np.random.Generator(np.random.Philox(key=np.array([seed, key], "uint64"))) for key in keys]
    return np.stack([generator.random(length, "float32") for generator in generators])


def _checked(model, prompts, lengths, options, max_new_tokens, min_new_tokens, limit):
    """Checks prompts and limits. Returns `max_new_tokens`, or its default if it is None."""
    vocabulary = model.backbone.config.vocabulary_size
    if not len(lengths) or not lengths.all():
        where = f"prompt {int(np.argmin(lengths))} is empty" if len(lengths) else "no prompts"
        raise ValueError(f"A prompt must have at least one token. Received: {where}. Begin it with the start token.")
    for prompt in prompts:
        if prompt.min() < 0 or prompt.max() >= vocabulary:
            wrong = prompt.max() if prompt.max() >= vocabulary else prompt.min()
            raise ValueError(f"Token ids must be between 0 and {vocabulary - 1}. Received: {wrong}.")
    if options.num_beams > vocabulary:
        raise ValueError(
            f"`num_beams` must be at most the vocabulary size, {vocabulary}. Received: {options.num_beams}."
        )
    longest = int(lengths.max())
    max_tokens = None if limit is None else limit - longest
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(
            f"Prompts must be shorter than the position table, which has {limit} positions. Received: a prompt of "
            f"{longest} tokens. Truncate it."
        )
    if max_new_tokens is None:
        max_new_tokens = 64 if max_tokens is None else min(64, max_tokens)
    if max_new_tokens < 1 or not 0 <= min_new_tokens <= max_new_tokens:
        raise ValueError(
            "`max_new_tokens` must be at least 1, and `min_new_tokens` from 0 to `max_new_tokens`. Received: "
            f"max_new_tokens={max_new_tokens}, min_new_tokens={min_new_tokens}."
        )
    if max_tokens is not None and max_new_tokens > max_tokens:
        raise ValueError(
            f"A prompt and its continuation must fit into the position table, which has {limit} positions. Received: "
            f"a prompt of {longest} tokens, max_new_tokens={max_new_tokens}. Use max_new_tokens={max_tokens} or less, "
            "or shorter prompts."
        )
    return max_new_tokens
