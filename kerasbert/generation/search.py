"""Selects the next tokens by greedy search, sampling or beam search."""

import dataclasses

import numpy as np
from keras import ops

from .cache import pick_rows
from .repetition import History, without_repetition

DEAD = -1.0e9  # added to the score of a beam that must not be chosen, as in transformers


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the search; see `CausalLM.generate`. In a compiled program, the `NUMBERS` are tensors."""

    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int = 0
    num_sequences: int = 1
    stop_ids: tuple = ()
    first_id: int | None = None  # the first token of every sequence
    last_id: int | None = None  # the last token of sequences that reach the maximum length

    @property
    def needs_history(self):
        """Whether the next token depends on the tokens so far other than through the logits."""
        return self.repetition_penalty is not None or self.no_repeat_ngram_size > 0

    def check(self):
        sampling = (self.temperature, self.top_k, self.top_p) != (1.0, None, None)
        beams_only = (self.length_penalty, self.early_stopping) != (1.0, False)
        branches = self.num_beams if self.num_beams > 1 or not self.sample else self.num_sequences
        temperature = np.float32(self.temperature)  # the smallest Python floats are 0 in float32
        for wrong, rule in (
            (self.num_beams < 1, "`num_beams` must be at least 1."),
            (self.num_beams > 1 and self.sample, "Beam search does not sample: use num_beams=1 or sample=False."),
            (sampling and not self.sample, "`temperature`, `top_k` and `top_p` are for sampling: use sample=True."),
            (beams_only and self.num_beams == 1, "`length_penalty` and `early_stopping` are for num_beams above 1."),
            (not temperature > 0, "`temperature` must be above 0. For the most likely tokens, use sample=False."),
            (self.top_k is not None and self.top_k < 1, "`top_k` must be at least 1, or None."),
            (self.top_p is not None and not 0 < self.top_p <= 1, "`top_p` must be above 0 and at most 1, or None."),
            (
                self.repetition_penalty is not None and not self.repetition_penalty > 0,
                "`repetition_penalty` must be above 0. 1 has no effect.",
            ),
            (self.no_repeat_ngram_size < 0, "`no_repeat_ngram_size` must be at least 0, which has no effect."),
            (self.early_stopping not in (True, False, "never"), '`early_stopping` must be True, False or "never".'),
            (
                not 1 <= self.num_sequences <= branches,
                "`num_sequences` must lie between 1 and `num_beams`, unless sample=True.",
            ),
        ):
            if wrong:
                raise ValueError(f"{rule} Received: {self}.")


SMALLEST = float(np.finfo("float32").tiny)
NUMBERS = ("length_penalty", "temperature", "top_p", "repetition_penalty", "first_id", "last_id")


# === Choosing tokens ===


class Sampling:
    """Greedy search or sampling: for every row, selects the most likely token or draws a token at random.

    The state is a dict. `step` () is the number of tokens so far, `tokens` (r, n) are all tokens, `token` (r,) are the
    latest ones, `counts` (r,) the numbers of tokens, `scores` (r,) the sums of log probabilities, and `finished` (r,)
    says which rows have ended.

    Args:
        options: the `Options`.
        rows: number of prompts b; each has r / b rows.
        length: capacity n for new tokens.
        limits: minimum and maximum number of new tokens.
        draws: float32 (r, n), uniform random numbers.
        prompts: (token ids int32 (b, p), bool (b, p)), if the options need the `History`.
    """

    def __init__(self, options, rows, length, limits, draws, prompts=None):
        self.options, self.rows, self.length, self.draws = options, rows * options.num_sequences, length, draws
        self.prompts = prompts
        self.least, self.most = limits
        self.branches = options.num_sequences

    def start(self):
        return {
            "step": ops.zeros((), "int32"),
            "token": ops.zeros((self.rows,), "int32"),
            "tokens": ops.zeros((self.rows, self.length), "int32"),
            "counts": ops.zeros((self.rows,), "int32"),
            "scores": ops.zeros((self.rows,), "float32"),
            "finished": ops.zeros((self.rows,), "bool"),
        }

    def advance(self, state, logits):
        step, finished = state["step"], state["finished"]
        logits = allowed = ops.cast(logits, "float32")
        if self.prompts is not None:
            history = History.of(self.prompts, state["tokens"], step)
            allowed = without_repetition(allowed, history, self.options)
        allowed = without_stops(allowed, self.options.stop_ids, step < self.least)
        logits, allowed = (with_forced(scores, self.options, step, self.most) for scores in (logits, allowed))
        token = ops.cast(ops.argmax(allowed, axis=-1), "int32")
        if self.options.sample:
            token = drawn(filtered(allowed, self.options), ops.take(self.draws, step, axis=1))
        scores = ops.take_along_axis(logits, token[:, None], axis=-1)[:, 0] - ops.logsumexp(logits, axis=-1)
        token = ops.where(finished, 0, token)
        return {
            "step": step + 1,
            "token": token,
            "tokens": put(state["tokens"], step, token),
            "counts": state["counts"] + ops.cast(ops.logical_not(finished), "int32"),
            "scores": state["scores"] + ops.where(finished, 0.0, scores),
            "finished": finished | among(token, self.options.stop_ids),
        }

    def going(self, state):
        return (state["step"] < self.most) & ops.logical_not(ops.all(state["finished"]))

    def pick(self, cache, state):
        return cache

    def result(self, state):
        """Returns tokens (b, sequences, n), counts (b, sequences) and scores (b, sequences)."""
        count = self.options.num_sequences
        tokens = ops.reshape(state["tokens"], (-1, count, self.length))
        return tokens, *(ops.reshape(state[name], (-1, count)) for name in ("counts", "scores"))


class BeamSearch:
    """Beam search for every row, with the results of transformers (version 5.24), including ties.

    Each step extends the running beams to 2 * `num_beams` candidates per row (more if there are several stop tokens).
    Candidates that end with a stop token become finished beams if they are among the best `num_beams` candidates. The
    best of the other candidates become the next running beams.

    The state is a dict. `step` () is the number of tokens so far. Running beams have `tokens` (b, beams, n), `scores`
    (b, beams), their latest `token` (b * beams,), and `rows` (b * beams,), the beam that each of them extends. Finished
    beams have `done_tokens`, `done_counts` and `done_scores`, and `done` (b, beams) is True where there is a finished
    beam. `hope` (b, 1) says whether a running beam may still surpass a finished one, and `open` () says whether any
    candidate has not ended.

    Args:
        options: the `Options`.
        rows: number of prompts b.
        length: capacity n for new tokens.
        limits: minimum and maximum number of new tokens.
        draws: not used.
        prompts: as for `Sampling`.
    """

    def __init__(self, options, rows, length, limits, draws, prompts=None):
        self.options, self.rows, self.length, self.prompts = options, rows, length, prompts
        self.least, self.most = limits
        self.branches = options.num_beams

    def start(self):
        beams = (self.rows, self.branches)
        first = ops.arange(self.branches) == 0  # all beams are equal at the start, so only the first one is extended
        return {
            "step": ops.zeros((), "int32"),
            "token": ops.zeros((self.rows * self.branches,), "int32"),
            "rows": ops.zeros((self.rows * self.branches,), "int32"),
            "tokens": ops.zeros((*beams, self.length), "int32"),
            "scores": ops.where(first, 0.0, DEAD) + ops.zeros(beams, "float32"),
            "done_tokens": ops.zeros((*beams, self.length), "int32"),
            "done_counts": ops.zeros(beams, "int32"),
            "done_scores": ops.full(beams, DEAD, "float32"),
            "done": ops.zeros(beams, "bool"),
            "hope": ops.ones((self.rows, 1), "bool"),
            "open": ops.ones((), "bool"),
        }

    def advance(self, state, logits):
        options, beams, vocabulary = self.options, self.branches, logits.shape[-1]
        step, count = state["step"], state["step"] + 1
        early = options.early_stopping is True
        log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        if self.prompts is not None:
            tokens = ops.reshape(state["tokens"], (-1, self.length))
            history = History.of(self.prompts, tokens, step)
            log_probabilities = without_repetition(log_probabilities, history, options)
        log_probabilities = without_stops(log_probabilities, options.stop_ids, step < self.least)
        log_probabilities = with_forced(log_probabilities, options, step, self.most)
        scores = ops.reshape(log_probabilities, (self.rows, beams, vocabulary)) + state["scores"][:, :, None]
        keep = max(2, 1 + len(options.stop_ids)) * beams
        scores, best = ops.top_k(ops.reshape(scores, (self.rows, beams * vocabulary)), keep)
        best = ops.cast(best, "int32")
        origin, token = best // vocabulary, best % vocabulary
        tokens = put(gather(state["tokens"], origin), step, token)
        ends = among(token, options.stop_ids) | (count >= self.most)

        running, chosen = ops.top_k(scores + ops.where(ends, DEAD, 0.0), beams)
        origin = ops.take_along_axis(origin, chosen, axis=1) + beams * ops.arange(self.rows, dtype="int32")[:, None]

        first = ops.arange(keep) < beams
        full = ops.all(state["done"], axis=-1, keepdims=True) if early else ops.zeros((self.rows, 1), "bool")
        scores = scores / self._by_length(count)
        for excluded in (full, ops.logical_not(state["hope"]), ops.logical_not(ends & first)):
            scores = scores + ops.where(excluded, DEAD, 0.0)
        done_scores, kept = ops.top_k(ops.concatenate([state["done_scores"], scores], axis=1), beams)
        counts = ops.broadcast_to(count, scores.shape)
        done = ops.take_along_axis(ops.concatenate([state["done"], ends & first], axis=1), kept, axis=1)

        longest = count
        if options.early_stopping == "never":
            longest = ops.where(options.length_penalty > 0, self.most, count)
        best_possible = running[:, :1] / self._by_length(longest)
        worst = ops.where(done, ops.min(done_scores, axis=1, keepdims=True), DEAD)
        return {
            "step": count,
            "token": ops.reshape(ops.take_along_axis(token, chosen, axis=1), (-1,)),
            "rows": ops.reshape(origin, (-1,)),
            "tokens": gather(tokens, chosen),
            "scores": running,
            "done_tokens": gather(ops.concatenate([state["done_tokens"], tokens], axis=1), kept),
            "done_counts": ops.take_along_axis(ops.concatenate([state["done_counts"], counts], axis=1), kept, axis=1),
            "done_scores": done_scores,
            "done": done,
            "hope": state["hope"] & ops.any(best_possible > worst, axis=-1, keepdims=True),
            "open": ops.logical_not(ops.all(ends)),
        }

    def _by_length(self, count):
        return ops.cast(count, "float32") ** self.options.length_penalty

    def going(self, state):
        going = ops.any(state["hope"]) & state["open"]
        return going & ops.logical_not(ops.all(state["done"])) if self.options.early_stopping is True else going

    def pick(self, cache, state):
        return pick_rows(cache, state["rows"])

    def result(self, state):
        """Returns tokens (b, sequences, n), counts (b, sequences) and scores (b, sequences), best first."""
        names = ("done_tokens", "done_counts", "done_scores")
        return tuple(state[name][:, : self.options.num_sequences] for name in names)


def filtered(logits, options):
    """Applies temperature, top-k and top-p, in this order, to logits (r, v).

    Returns: logits (r, v) whose maximum is 0. Excluded tokens have -inf.
    """
    # The largest logit is subtracted first, so that it stays finite (0) even if the temperature is tiny.
    temperature = ops.maximum(options.temperature, SMALLEST)  # some devices treat smaller numbers as 0
    logits = (logits - ops.max(logits, axis=-1, keepdims=True)) / temperature
    if options.top_k is not None and options.top_k < logits.shape[-1]:
        least = ops.top_k(logits, options.top_k)[0][:, -1:]
        logits = ops.where(logits < least, -np.inf, logits)
    if options.top_p is not None:
        ascending = ops.sort(logits, axis=-1)
        out = ops.cumsum(ops.softmax(ascending, axis=-1), axis=-1) <= 1 - options.top_p
        first_in = ops.minimum(ops.sum(ops.cast(out, "int32"), axis=-1, keepdims=True), logits.shape[-1] - 1)
        logits = ops.where(logits < ops.take_along_axis(ascending, first_in, axis=-1), -np.inf, logits)
    return logits


def drawn(logits, uniform):
    """Samples tokens int32 (r,) from `logits` (r, v), by inverting the cumulative distribution at `uniform` (r,)."""
    probabilities = ops.softmax(logits, axis=-1)
    sums = ops.cumsum(probabilities, axis=-1)
    below = ops.sum(ops.cast(sums <= uniform[:, None] * sums[:, -1:], "int32"), axis=-1)
    token = ops.minimum(below, logits.shape[-1] - 1)
    # Rounding errors in parallel sums could select a token with probability 0, which the most likely token replaces.
    possible = ops.take_along_axis(probabilities, token[:, None], axis=-1)[:, 0] > 0
    return ops.where(possible, token, ops.cast(ops.argmax(logits, axis=-1), "int32"))


def among(tokens, ids):
    """bool, in the shape of `tokens`, True where a token is one of `ids`."""
    found = ops.zeros(tokens.shape, "bool")
    for i in ids:
        found = found | (tokens == i)
    return found


def without_stops(scores, stop_ids, here):
    """Sets the `scores` (r, v) of stop tokens to -inf if `here`, a bool (), is True."""
    if not stop_ids:
        return scores
    return ops.where(among(ops.arange(scores.shape[-1]), stop_ids) & here, -np.inf, scores)


def with_forced(scores, options, step, most):
    """Gives the tokens that are forced in the first and the last step the probability 1, and all others 0.

    Args:
        scores: float32 (r, v), logits or log probabilities.
        options: the `Options`.
        step: int32 (), number of tokens so far.
        most: int32 (), maximum number of new tokens.
    """
    tokens = ops.arange(scores.shape[-1], dtype="int32")
    for token, place in ((options.first_id, 0), (options.last_id, most - 1)):
        if token is not None:
            chosen = tokens == ops.cast(token, "int32")
            scores = ops.where(step == place, ops.where(chosen, 0.0, -np.inf), scores)
    return scores


def gather(tokens, beams):
    """Selects beams (b, k) of tokens (b, beams, n). Returns (b, k, n)."""
    return ops.take_along_axis(tokens, beams[:, :, None], axis=1)


def put(tokens, step, token):
    """Returns `tokens` (..., n) with `token` (...) in column `step`."""
    return ops.where(ops.arange(tokens.shape[-1]) == step, token[..., None], tokens)
