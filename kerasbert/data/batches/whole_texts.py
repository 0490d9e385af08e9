"""Batches of whole texts, which are embedded from their first token: with deleted words for TSDAE, or as they are."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.deletion import kept_tokens, without_others
from ..noise.noise import MaskableRows, MaskingVocabulary, check_rate
from ..sampling import DYNAMIC, row_draws
from .masked_lm import find_rows
from .passes import PassBatches, tokenizer_info_of


def check_embeddable_rows(name: str, layout: Any) -> None:
    """Raises a ValueError unless each row is one text behind a special token, whose output is the text's embedding.

    Args:
        name: the name of the batches.
        layout: the layout of their rows.
    """
    if layout.labeled:
        raise ValueError(f"{name} has no sentence-pair label. Received: a layout of labeled pairs. Use another `rows`.")
    if not layout.template or layout.template[0][0] == "A":
        raise ValueError(
            f"{name} needs rows that begin with a special token, whose output becomes the embedding of the text. "
            f"Received: rows with the template {list(layout.template)}. Use a tokenizer that puts such a token first, "
            'and rows="chunks" or "sentences".'
        )
    keys = set(layout.fill(np.array([-1]))) - {"token_ids"}
    if "lengths" not in keys:
        raise ValueError(
            f"{name} needs rows of one text with padding on the right. Received: rows with {', '.join(sorted(keys))}. "
            'Use rows="chunks" or "sentences", and a tokenizer that pads on the right.'
        )


class WholeTextBatches(PassBatches):
    """Batches of texts as they are, for SimCSE.

    x: "token_ids" (b, s) and "lengths" (b,). y: the index of each row in its update, int32 (b,), with weight 0 for
    padding rows at the end of the run, otherwise 1.

    Args:
        corpus, batch_size, length, seed, steps: as in `MaskedLMBatches`.
        rows: as there, but each row must be one text with a special token in front.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if rows are labeled pairs, have several texts, or do not begin with a
            special token.
    """

    single_step = "each text is compared with all texts of the update"

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "chunks",
    ):
        tokenizer_info_of(corpus, "pad")
        self.corpus, self.length = corpus, length
        self._layout = find_rows(rows)(corpus, length, seed)
        check_embeddable_rows(type(self).__name__, self._layout)
        self._rows_name = rows if isinstance(rows, str) else getattr(rows, "__qualname__", repr(rows))
        super().__init__(batch_size, self._layout.bounds, seed, steps)

    def recipe(self) -> dict:
        return {**super().recipe(), "corpus": self.corpus.fingerprint, "rows": self._rows_name}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        numbers = np.arange(first, last, dtype=np.int32)
        return self._layout.fill(lines), numbers, (lines >= 0).astype(np.float32)


class TSDAEBatches(WholeTextBatches):
    """Batches of texts without some of their words, for TSDAE (Wang, Reimers, Gurevych 2021, arXiv 2104.06979).

    x: "token_ids" (b, s) and "lengths" (b,), the texts without the deleted words; and "decoder_token_ids" (b, s - 1),
    the whole texts but their last token. y: the whole texts but their first token, int32 (b, s - 1), with weight 1 at
    all tokens, of which the last is the end token.

    [CLS] the cat sat [SEP], "sat" is deleted -> reads [CLS] the cat [SEP]; the decoder reads [CLS] the cat sat, and
    predicts the cat sat [SEP]

    Args:
        corpus, batch_size, length, seed, steps: as in `MaskedLMBatches`.
        rows: as there, but each row must be one text with a special token in front.
        deletion: probability that a word is deleted, 0.6 in the paper. At least one word is kept.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if rows are labeled pairs, have several texts, or do not begin with a
            special token, or `deletion` is not above 0 and below 1.
    """

    single_step = ""

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "chunks",
        deletion: float = 0.6,
    ):
        check_rate(deletion)
        super().__init__(corpus, batch_size, length, seed, steps, rows)
        info: Any = corpus.tokenizer_info
        special = tuple(sorted({item for item, _ in self._layout.template if item not in ("A", "B")}))
        self.deletion, self._pad = deletion, info["pad_id"]
        self._vocabulary = MaskingVocabulary(info["pad_id"], info["vocabulary_size"], special, corpus)

    def recipe(self) -> dict:
        return {**super().recipe(), "deletion": self.deletion}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        x = self._layout.fill(lines)
        ids, lengths, columns = x["token_ids"], x["lengths"], np.arange(self.length)
        real = columns < lengths[:, None]
        rows = MaskableRows(
            token_ids=ids,
            lengths=lengths,
            maskable=real,
            first=np.broadcast_to(columns == 0, ids.shape),
            num_slots=1,
            vocabulary=self._vocabulary,
            places=lambda: self._layout.places(lines, real),
            line_starts=lambda: self._layout.line_starts(lines),
        )
        draws = row_draws(self.seed, update, DYNAMIC, first, last - first, self.length + 1)[:, : self.length + 1]
        kept = kept_tokens(rows.text, rows.word_starts, draws * 2.0**-32, self.deletion)
        noised, sizes = without_others(ids, kept & real, self._pad)
        x = {"token_ids": noised, "lengths": sizes, "decoder_token_ids": ids[:, :-1].copy()}
        return x, ids[:, 1:].copy(), real[:, 1:].astype(np.float32)
