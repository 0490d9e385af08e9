"""Scores texts with a language model, by computing the log probability of each token.

A row is a tuple (x, labels). x is a dict of one-dimensional int32 arrays: `token_ids`, and optionally
`decoder_token_ids`, `segment_ids` and `masked_positions`. The labels, also int32, are the token ids whose log
probabilities are computed.
"""

import functools
import math
from typing import Any

import numpy as np

from ..backend.compilation import compiled, compiles_shapes
from ..core.inputs import checked_inputs
from ..data.batches.bucketing import FINE_WIDTHS, WIDTHS, bucket_width
from ..data.columns import values_of
from ..training.convert import read_texts
from .objective import check_labels, cross_entropy

LOGITS = 1 << 25  # maximum number of logits per batch, which take 128 MiB


# === Log probabilities of rows ===


def row_log_probabilities(model, sizes, make_row, batch_size=32, labels_per_row=None):
    """Computes the log probabilities of the labels of each row. Returns a list of float64 arrays.

    Rows of similar width are put into the same batch. A row is created only when its batch is needed.

    Args:
        model: an objective whose outputs are logits, or a dict with logits as `tokens`.
        sizes: list of (number of tokens, number of decoder tokens or 0) for each row.
        make_row: function that returns the row with a given index.
        batch_size: maximum number of rows per batch. Batches have fewer rows if they would have more than `LOGITS`
            logits.
        labels_per_row: number of labels per row, or None for one label per token (per decoder token if there are any).
    """
    program = model.__dict__.get("_scoring_program")
    if program is None:
        function = functools.partial(_label_log_probabilities, model)
        program = model.__dict__["_scoring_program"] = compiled(function, lambda: model.weights)
    limit = model.backbone.position_limit
    steps = WIDTHS if compiles_shapes() else FINE_WIDTHS  # each width that occurs needs a program of its own
    widths = [(bucket_width(s, limit, steps), t and bucket_width(t, limit, steps)) for s, t in sizes]
    found = [None] * len(sizes)
    for width in sorted(set(widths)):
        numbers = [i for i, row_width in enumerate(widths) if row_width == width]
        labels = labels_per_row or width[1] or width[0]
        most = LOGITS // (labels * model.backbone.config.vocabulary_size)
        rows = max(1, min(batch_size, most, 1 << (len(numbers) - 1).bit_length()))
        for start in range(0, len(numbers), rows):
            here = numbers[start : start + rows]
            made = [make_row(i) for i in here]
            x, y = _batch(made, rows, width, labels)
            model.check_batch(x)
            check_labels(y, model.backbone.config.vocabulary_size)
            with checked_inputs():
                values = program(x, y)
            for row, number in enumerate(here):
                found[number] = values[row, : len(made[row][1])].astype("float64")
    return found


def _label_log_probabilities(model, x, y):
    logits = model(x, training=False)
    logits = logits["tokens"] if isinstance(logits, dict) else logits
    return -cross_entropy(logits, y)


def _batch(rows, size, width, labels):
    """Builds (x, y), the arrays of a batch, with rows padded to the same width.

    Args:
        rows: list of rows.
        size: number of rows in the batch. Missing rows are copies of the first one.
        width: (number of tokens, number of decoder tokens).
        labels: number of labels per row.
    """
    rows = rows + rows[:1] * (size - len(rows))
    x = {}
    for key in rows[0][0]:
        arrays = [row[key] for row, _ in rows]
        columns = labels if key == "masked_positions" else width[1] if key.startswith("decoder_") else width[0]
        x[key] = _filled(arrays, columns)
        if key.endswith("token_ids"):
            x[key.replace("token_ids", "lengths")] = np.array([len(array) for array in arrays], "int32")
    return x, _filled([row[1] for row in rows], labels)


def _filled(arrays, columns):
    filled = np.zeros((len(arrays), columns), "int32")
    for row, array in zip(filled, arrays, strict=True):
        row[: len(array)] = array
    return filled


# === Contexts and results ===


def one_per_text(contexts, texts):
    """Returns a list with the context of each text.

    Args:
        contexts: one str or None for all texts, or a list with one context per text.
        texts: list of texts.
    """
    contexts = values_of(contexts)
    contexts = [contexts] * len(texts) if contexts is None or isinstance(contexts, str) else list(contexts)
    if len(contexts) != len(texts):
        raise ValueError(f"Every text needs a context. Received: {len(contexts)} for {len(texts)} texts.")
    return contexts


def text_scores(token_scores):
    """Converts arrays of token log probabilities to the results of `score`, a list of dicts."""
    return [
        {
            "score": float(scores.sum()),
            "tokens": len(scores),
            "perplexity": math.exp(min(-float(scores.mean()), 700.0)) if len(scores) else 1.0,
            "token_scores": scores.tolist(),
        }
        for scores in token_scores
    ]


def check_fits(lengths, limit, what="text"):
    """Raises a ValueError if a length exceeds the limit.

    Args:
        lengths: numbers of tokens.
        limit: maximum number of tokens, or None for no limit.
        what: what the lengths are of, such as "text", for the message.
    """
    for number, length in enumerate(lengths):
        if limit is not None and length > limit:
            raise ValueError(
                f"To be scored, a {what} must have at most {limit} tokens, including special tokens. Received: "
                f"{what} {number} of {length} tokens. Split it into sentences."
            )


# === Scores of each kind of model ===


def pseudo_log_likelihoods(model, texts, within_words=False, batch_size=32):
    """Scores texts by masking their tokens one at a time; see `MaskedLM.score`."""
    texts = read_texts(texts, "score")
    if isinstance(texts, str):
        return pseudo_log_likelihoods(model, [texts], within_words, batch_size)[0]
    tokenizer = model.require_tokenizer()
    if tokenizer.mask_id is None:
        raise ValueError("Texts are scored by masking their tokens. Received: a tokenizer without a mask token.")
    found = tokenizer.encode(texts, add_special_tokens=False, plain_text=True)
    template = tokenizer.info["single"]
    before = [item for item, _ in template].index("A")
    segments = tokenizer.has_segments
    lengths = [len(ids) + len(template) - 1 for ids in found]
    check_fits(lengths, model.backbone.position_limit)
    words = tokenizer.word_numbers(texts) if within_words else None
    slots = [(number, place) for number, ids in enumerate(found) for place in range(len(ids))]

    def make_row(row):
        number, place = slots[row]
        ids = found[number]
        hidden = np.arange(len(ids)) == place
        if within_words:
            hidden |= (np.arange(len(ids)) > place) & (words[number] == words[number][place])
        masked = np.where(hidden, tokenizer.mask_id, ids)
        parts = [masked if item == "A" else [item] for item, _ in template]
        x = {"token_ids": np.concatenate(parts).astype("int32"), "masked_positions": np.array([before + place])}
        return x | ({"segment_ids": np.zeros(len(x["token_ids"]), "int32")} if segments else {}), ids[[place]]

    sizes = [(lengths[number], 0) for number, _ in slots]
    flat = iter(row_log_probabilities(model, sizes, make_row, batch_size, labels_per_row=1))
    return text_scores([np.array([next(flat)[0] for _ in ids]) for ids in found])


def causal_scores(model, texts, contexts=None, batch_size=32):
    """Scores texts that follow their contexts in the same row; see `CausalLM.score`."""
    texts = read_texts(texts, "score")
    if isinstance(texts, str):
        return causal_scores(model, [texts], contexts, batch_size)[0]
    contexts = one_per_text(contexts, texts)
    tokenizer = model.require_tokenizer()
    first = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
    starts = tokenizer.encode([context or "" for context in contexts], add_special_tokens=False)
    starts = [ids if len(ids) or first is None else np.array([first], "int32") for ids in starts]
    texts = tokenizer.encode(list(texts), add_special_tokens=False)
    rows = [np.concatenate(pair) for pair in zip(starts, texts, strict=True)]
    check_fits([len(row) - 1 for row in rows], model.backbone.position_limit)

    def make_row(number):
        ids = rows[number]
        return {"token_ids": ids[:-1]}, ids[1:]

    sizes = [(max(1, len(row) - 1), 0) for row in rows]
    values = row_log_probabilities(model, sizes, make_row, batch_size)
    return text_scores([row[max(1, len(start)) - 1 :] for row, start in zip(values, starts, strict=True)])


def answer_scores(model, texts, contexts, batch_size=32):
    """Scores texts as targets of an encoder-decoder, whose sources are the contexts; see `Seq2SeqLM.score`."""
    texts = read_texts(texts, "score")
    if isinstance(texts, str):
        return answer_scores(model, [texts], contexts, batch_size)[0]
    contexts = one_per_text(contexts, texts)
    if None in contexts:
        raise ValueError("A sequence-to-sequence model scores answers. Received: no `contexts`. Provide the sources.")
    tokenizer, limit = model.require_tokenizer(), model.backbone.position_limit
    sources = tokenizer.encode(contexts)
    end = model.default_stop_ids()[:1]
    first = [] if model.first_target_id is None else [model.first_target_id]  # like the start token, it is not scored
    encoded = tokenizer.encode(list(texts), add_special_tokens=False)
    targets = [np.array([*first, *ids, *end], "int32") for ids in encoded]
    check_fits(map(len, sources), limit, "context")
    check_fits(map(len, targets), limit)

    def make_row(number):
        read = np.array([model.start_id, *targets[number][:-1]], "int32")
        return {"token_ids": sources[number], "decoder_token_ids": read}, targets[number]

    sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    values: list[Any] = row_log_probabilities(model, sizes, make_row, batch_size)
    return text_scores([row[len(first) :] for row in values])
