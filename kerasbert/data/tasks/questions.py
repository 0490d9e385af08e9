"""Extractive question answering: encodes contexts in windows, and finds answer spans (Devlin et al. 2018)."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .windows import most_context, right_padded_rows, window_starts


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer, which is a span of the context.

    Args:
        text: context[start:stop], or "" if there is no answer.
        start, stop: positions of characters in the context.
        score: probability of this answer: the softmax over the logits of all answers returned for the question.
        logit: sum of the start and end logits.
    """

    text: str
    start: int
    stop: int
    score: float
    logit: float


class QuestionRows:
    """Encodes questions and contexts as rows for a span head: (question, window of the context).

    For tokenizers that pad on the left (XLNet), the context comes first, but padding is still on the right. In a window
    that does not contain the whole answer, both targets are the position of the [CLS] token, or 0 if there is none.

    Args:
        tokenizer: a `Tokenizer`, whose template for pairs is used.
        questions: pairs (question, context).
        max_length: maximum number of tokens per window, including the question and special tokens.
        stride: number of tokens between the starts of consecutive windows.
        max_question_length: maximum number of tokens of a question. Longer questions are truncated.

    Attributes:
        x: a dict of int32 "token_ids" (windows, s), "lengths" (windows,), and "segment_ids" (windows, s) if the
            tokenizer's pairs have segments.
        question: int32 (windows,), the index of the question of each window.
        null: int32 (windows,), the position that stands for "no answer in this window".
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        questions: Sequence[tuple[str, str]],
        max_length: int = 384,
        stride: int = 128,
        max_question_length: int = 64,
    ):
        self.pairs = [_checked(pair, number) for number, pair in enumerate(questions)]
        info = tokenizer.info
        asked = tokenizer.encode([pair[0] for pair in self.pairs], add_special_tokens=False, plain_text=True)
        contexts = list(
            dict.fromkeys(pair[1] for pair in self.pairs)
        )  # encode a context that several questions share only once
        read = dict(zip(contexts, tokenizer.encode_with_offsets(contexts), strict=True))
        context_first = info["padding_side"] == "left"
        rows, self._windows = [], []
        for number, ((_, context), question) in enumerate(zip(self.pairs, asked, strict=True)):
            question = question[:max_question_length]
            ids, offsets = read[context]
            max_tokens = max_length - len(question) - (len(info["pair"]) - 2)
            if max_tokens < 1:
                raise ValueError(
                    f"`max_length` must leave space for the context. Received: max_length={max_length} for a question "
                    f"of {len(question)} tokens. Use a larger max_length or a smaller max_question_length."
                )
            starts = window_starts(len(ids), max_tokens, stride)
            best = most_context(starts, max_tokens, len(ids))
            for window, start in enumerate(starts):
                here = slice(start, start + max_tokens)
                rows.append((ids[here], question) if context_first else (question, ids[here]))
                self._windows.append((number, offsets[here], best[here] == window))
        self._offsets = [read[context][1] for _, context in self.pairs]
        self.question = np.array([number for number, *_ in self._windows], dtype=np.int32)
        self.x, self._columns = right_padded_rows(info, rows, "A" if context_first else "B")
        self.null = np.zeros(len(rows), dtype=np.int32)
        if info["cls_id"] is not None:
            self.null = (self.x["token_ids"] == info["cls_id"]).argmax(axis=1).astype(np.int32)

    def targets(self, answers: Sequence[tuple[str, int] | None]) -> dict[str, np.ndarray]:
        """Computes the targets: a dict of "start" and "end", the first and last token of each answer, int32 (windows,).

        Args:
            answers: for each question, a tuple (text, position of its first character in the context), or None if it
                has no answer.
        """
        if len(answers) != len(self.pairs):
            raise ValueError(
                "Every question must have an answer, or None. Received: "
                f"{len(self.pairs)} questions, {len(answers)} answers."
            )
        spans = [self._tokenized_part(number, answer) for number, answer in enumerate(answers)]
        start, end = self.null.copy(), self.null.copy()
        for row, (number, offsets, _) in enumerate(self._windows):
            if spans[number] is None:
                continue
            first, stop = spans[number]
            inside = np.flatnonzero((offsets[:, 1] > first) & (offsets[:, 0] < stop))
            whole = len(inside) and offsets[inside[0], 0] <= first and offsets[inside[-1], 1] >= stop
            if whole:
                start[row], end[row] = self._columns[row] + inside[[0, -1]]
        return {"start": start, "end": end}

    def _tokenized_part(self, number: int, answer: tuple[str, int] | None) -> tuple[int, int] | None:
        """Start and stop of the answer in the context, excluding characters at its ends that belong to no token."""
        span = self._span(number, answer)
        if span is None:
            return None
        offsets = self._offsets[number]
        pieces = offsets[(offsets[:, 1] > span[0]) & (offsets[:, 0] < span[1])]
        return (max(span[0], pieces[:, 0].min()), min(span[1], pieces[:, 1].max())) if len(pieces) else None

    def _span(self, number: int, answer: tuple[str, int] | None) -> tuple[int, int] | None:
        """Start and stop of the answer in the context. Selects the occurrence nearest to the given position."""
        if answer is None:
            return None
        is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[0], str)
        if not is_pair or not isinstance(answer[1], (int, float, np.number)) or answer[1] != int(answer[1]):
            raise ValueError(
                "An answer must be (text, position of its first character in the context), or None. Received for "
                "question "
                f"{number}: {answer!r:.60}."
            )
        text, position = answer
        context = self.pairs[number][1]
        if not 0 <= position < len(context):
            raise ValueError(
                "The position of an answer must be that of a character of the context. Received for question "
                f"{number}: {answer!r:.60}, for a context of {len(context)} characters."
            )
        bare = text.strip()
        found = [match.start() for match in re.finditer(f"(?={re.escape(bare)})", context)] if bare else []
        if not found:
            raise ValueError(
                f"An answer must be a part of its context. Received: {text!r:.60} for question {number}, "
                f"{self.pairs[number][0]!r:.60}. Drop the question, or pass None if it has no answer."
            )
        start = min(found, key=lambda i: abs(i - position - (len(text) - len(text.lstrip()))))
        return start, start + len(bare)

    def answers(
        self, start: np.ndarray, end: np.ndarray, n_best: int = 20, max_answer_length: int = 30
    ) -> list[tuple[list[Answer], float]]:
        """Finds the best answers of each question.

        The candidates of a window combine its `n_best` best starts with its `n_best` best ends. Both must be in the
        context, the span must have at most `max_answer_length` tokens, and the start must have more context in this
        window than in any other. If several spans have the same text, only the best one is returned.

        Args:
            start, end: logits, float (windows, s).
            n_best: maximum number of answers per question.
            max_answer_length: maximum number of tokens in an answer.

        Returns: for each question, the list of its answers, best first; and a score for "no answer", which is the sum
            of the start and end logits at `null`, minimized over the windows, minus the logit of the best answer.
        """
        found: list[list] = [[] for _ in self.pairs]
        nulls = np.full(len(self.pairs), np.inf)
        for row, (number, offsets, best) in enumerate(self._windows):
            width = min(start.shape[1], int(self.x["lengths"][row]))
            null = float(start[row, self.null[row]]) + float(end[row, self.null[row]])
            nulls[number] = min(nulls[number], null)
            first, last = (np.argsort(-logits[row, :width], kind="stable")[:n_best] for logits in (start, end))
            a, b = (positions - self._columns[row] for positions in (first, last))
            inside = (a >= 0) & (a < len(offsets))
            inside[inside] = best[a[inside]]
            right = inside[:, None] & (b >= a[:, None]) & (b < len(offsets)) & (b - a[:, None] < max_answer_length)
            for i, j in zip(*np.nonzero(right), strict=True):
                logit = float(start[row, first[i]]) + float(end[row, last[j]])
                found[number].append((logit, int(offsets[a[i], 0]), int(offsets[b[j], 1])))
        return [self._ranked(*item, n_best) for item in zip(self.pairs, found, nulls.tolist(), strict=True)]

    def _ranked(self, pair: tuple, found: list, null: float, n_best: int) -> tuple[list[Answer], float]:
        kept: dict[str, tuple] = {}
        for logit, start, stop in sorted(found, key=lambda item: -item[0]):
            found_text = pair[1][start:stop]
            text = found_text.strip()  # a token may be only white space
            if text and text not in kept:
                start += len(found_text) - len(found_text.lstrip())
                kept[text] = (start, start + len(text), logit)
            if len(kept) == n_best:
                break
        if not kept:
            return [Answer("", 0, 0, 1.0, null)], 0.0
        logits = np.array([logit for *_, logit in kept.values()])
        scores = np.exp(logits - np.logaddexp.reduce(logits))
        ranked = [
            Answer(text, start, stop, float(score), logit)
            for (text, (start, stop, logit)), score in zip(kept.items(), scores, strict=True)
        ]
        return ranked, null - ranked[0].logit


def _checked(pair: object, number: int) -> tuple[str, str]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        raise ValueError(
            f"A question must be a pair (question, context) of str. Received: {pair!r:.60} as question {number}."
        )
    if not pair[1].strip():
        raise ValueError(f"A question needs a context. Received: question {number}, {pair[0]!r:.60}, without one.")
    return tuple(pair)
