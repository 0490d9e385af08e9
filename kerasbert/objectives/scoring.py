"""Scoring of texts by a language model: the log probability of every token, in batches of bounded size."""

import math

import numpy as np

from ..backend.compilation import compiled
from ..core.feeding import check_texts
from ..core.inputs import checked_inputs
from ..data.batches.bucketing import bucket_width
from .objective import Objective, cross_entropy

LOGITS = 1 << 25  # maximum number of logits per batch: 128 MiB


class Scoring(Objective):
    """Base class of objectives that score texts.

    A row is (x, labels): x is a dict of int32 arrays, `token_ids` and optionally `decoder_token_ids`, `segment_ids` and
    `masked_positions`; labels are the token ids whose log probabilities are computed.
    """

    scores_slots = False  # whether each row has a single label, at its masked position

    def row_log_probabilities(self, sizes, make_row, batch_size=32):
        """The log probabilities of the labels of each row, float64 arrays, in the order of the rows.

        Rows of similar widths share a batch; a row is created only when its batch is.

        Args:
            sizes: for each row (number of tokens, number of decoder tokens or 0).
            make_row: function from the index of a row to the row.
            batch_size: maximum number of rows per batch; lower where there would be more than `LOGITS` logits.
        """
        program = self.__dict__.get("_scoring_program")
        if program is None:
            program = self.__dict__["_scoring_program"] = compiled(self._label_log_probabilities, lambda: self.weights)
        limit = getattr(self.backbone.config, "max_length", None) if self.backbone.learned_positions else None
        widths = [(bucket_width(s, limit), t and bucket_width(t, limit)) for s, t in sizes]
        found = [None] * len(sizes)
        for width in sorted(set(widths)):
            numbers = [i for i, row_width in enumerate(widths) if row_width == width]
            labels = 1 if self.scores_slots else width[1] or width[0]
            most = LOGITS // (labels * self.backbone.config.vocabulary_size)
            rows = max(1, min(batch_size, most, 1 << (len(numbers) - 1).bit_length()))
            for start in range(0, len(numbers), rows):
                here = numbers[start : start + rows]
                made = [make_row(i) for i in here]
                x, y = _batch(made, rows, width, labels)
                self.check_batch(x, y)
                with checked_inputs():
                    values = program(x, y)
                for row, number in enumerate(here):
                    found[number] = values[row, : len(made[row][1])].astype("float64")
        return found

    def _label_log_probabilities(self, x, y):
        logits = self(x, training=False)
        logits = logits["tokens"] if isinstance(logits, dict) else logits
        return -cross_entropy(logits, y)


def _batch(rows, size, width, labels):
    """(x, y) of int32 arrays with `size` rows; missing rows are copies of the first one."""
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


def text_scores(token_scores):
    """The result of `score` for each array of token log probabilities."""
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
    """Raises a ValueError for the first of `lengths` that exceeds `limit` (None: no limit)."""
    for number, length in enumerate(lengths):
        if limit is not None and length > limit:
            raise ValueError(
                f"To be scored, a {what} must fit into the model, {limit} tokens including special tokens. Received: "
                f"{what} {number} of {length} tokens. Split it into sentences."
            )


class MaskedScoring(Scoring):
    """`score` of objectives that predict masked tokens."""

    scores_slots = True

    def score(self, texts, within_words=False, batch_size=32):
        """Pseudo-log-likelihoods: each token in turn is masked and predicted from all others.

        Salazar et al. 2020 (arXiv 1910.14659). A text of n tokens takes n rows.

        Args:
            texts: a str or a list of str.
            within_words: also mask the later tokens of the same word, so that a token is not predicted from the rest of
                its word (Kauf, Ivanova 2023, arXiv 2305.10588).
            batch_size: rows per batch.

        Returns: for each text {"score" (the sum, in nats), "tokens", "perplexity" (of its pseudo-log-likelihood),
            "token_scores"}; for a single str, just its dict. Special tokens are not scored.
        """
        check_texts(texts, "score")
        if isinstance(texts, str):
            return self.score([texts], within_words, batch_size)[0]
        tokenizer = self.require_tokenizer()
        if tokenizer.mask_id is None:
            raise ValueError("Texts are scored by masking their tokens. Received: a tokenizer without a mask token.")
        found = tokenizer.encode(texts, add_special_tokens=False, plain_text=True)
        template = tokenizer.info["single"]
        before = [item for item, _ in template].index("A")
        segments = any(segment for _, segment in tokenizer.info["pair"])
        limit = getattr(self.backbone.config, "max_length", None) if self.backbone.learned_positions else None
        lengths = [len(ids) + len(template) - 1 for ids in found]
        check_fits(lengths, limit)
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

        values = self.row_log_probabilities([(lengths[number], 0) for number, _ in slots], make_row, batch_size)
        flat = iter(values)
        return text_scores([np.array([next(flat)[0] for _ in ids]) for ids in found])


class NextTokenScoring(Scoring):
    """`score` of objectives that predict the next token."""

    def score(self, texts, contexts=None, batch_size=32):
        """Log probabilities of texts: the log probability of every token given those before it.

        Args:
            texts: a str or a list of str.
            contexts: what each text continues (`CausalLM`) or answers (`Seq2SeqLM`, which requires it): one str for all
                texts, or a list with one per text. Without a context, a `CausalLM` begins with the tokenizer's
                start token, or with its end token if there is no start token; with neither, the first token is not
                scored.
            batch_size: maximum number of texts per batch.

        Returns: for each text {"score" (the sum, in nats), "tokens", "perplexity", "token_scores"}; for a single
            str, just its dict. The answers of a `Seq2SeqLM` are scored with their end token.
        """
        check_texts(texts, "score")
        if isinstance(texts, str):
            return self.score([texts], contexts, batch_size)[0]
        contexts = [contexts] * len(texts) if contexts is None or isinstance(contexts, str) else list(contexts)
        if len(contexts) != len(texts):
            raise ValueError(f"Every text needs a context. Received: {len(contexts)} for {len(texts)} texts.")
        sizes, make_row, counts = self.scored_rows(list(texts), contexts)
        values = self.row_log_probabilities(sizes, make_row, batch_size)
        return text_scores([row[len(row) - count :] for row, count in zip(values, counts, strict=True)])

    def scored_rows(self, texts, contexts):
        """(sizes, make_row, counts): arguments of `row_log_probabilities`, and the number of labels to score per row.

        The labels to score are the last ones of the row.
        """
        raise NotImplementedError


class CausalScoring(NextTokenScoring):
    """`score` of a decoder: context and text are concatenated in one row."""

    def scored_rows(self, texts, contexts):
        tokenizer = self.require_tokenizer()
        first = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
        starts = tokenizer.encode([context or "" for context in contexts], add_special_tokens=False)
        starts = [ids if len(ids) or first is None else np.array([first], "int32") for ids in starts]
        texts = tokenizer.encode(texts, add_special_tokens=False)
        rows = [np.concatenate(pair) for pair in zip(starts, texts, strict=True)]
        limit = self.backbone.config.max_length if self.backbone.learned_positions else None
        check_fits([len(row) - 1 for row in rows], limit)
        targets = [len(row) - max(1, len(start)) for row, start in zip(rows, starts, strict=True)]

        def make_row(number):
            ids = rows[number]
            return {"token_ids": ids[:-1]}, ids[1:]

        sizes = [(max(1, len(row) - 1), 0) for row in rows]
        return sizes, make_row, targets


class Seq2SeqScoring(NextTokenScoring):
    """`score` of an encoder-decoder: the context is the source, the text is the target."""

    def scored_rows(self, texts, contexts):
        if None in contexts:
            raise ValueError(
                "A sequence-to-sequence model scores answers. Received: no `contexts`. Provide the sources."
            )
        tokenizer, config = self.require_tokenizer(), self.backbone.config
        sources = tokenizer.encode(contexts)
        end = [int(i) for i in np.atleast_1d(self._stop_ids())[:1]]
        texts = tokenizer.encode(texts, add_special_tokens=False)
        targets = [np.array([*ids, *end], "int32") for ids in texts]
        limit = config.max_length if self.backbone.learned_positions else None
        check_fits(map(len, sources), limit, "context")
        check_fits(map(len, targets), limit)

        def make_row(number):
            read = np.array([config.decoder_start_id, *targets[number][:-1]], "int32")
            return {"token_ids": sources[number], "decoder_token_ids": read}, targets[number]

        sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        return sizes, make_row, list(map(len, targets))
