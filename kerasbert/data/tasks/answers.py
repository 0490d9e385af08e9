"""Converts the outputs of models for texts to answers: labels, entities, answers to questions, tokens for masks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .examples import encode_texts
from .questions import QuestionRows
from .tagging import TaggedRows, entities, tags_within


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits over the last axis, in their precision."""
    return np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))


def classified(logits: np.ndarray, labels: Sequence, problem: str) -> list[dict[str, Any]]:
    """The answers of a classifier; see `TextClassifier.classify`.

    Args:
        logits: float (texts, labels).
        labels: names of the labels.
        problem: "classes", "labels" or "score".
    """
    logits = np.asarray(logits, "float64")
    if problem == "score":
        return [{"score": float(row[0])} for row in logits]
    scores = 1.0 / (1.0 + np.exp(-logits)) if problem == "labels" else softmax(logits)
    answers = []
    for row in scores:
        named = {label: float(score) for label, score in zip(labels, row, strict=True)}
        if problem == "labels":
            answers.append({"labels": [label for label in named if named[label] > 0.5], "scores": named})
        else:
            best = max(named, key=lambda label: named[label])
            answers.append({"label": best, "score": named[best], "scores": named})
    return answers


def tagged(rows: TaggedRows, sentences: Sequence, logits: Sequence[np.ndarray], labels: Sequence) -> list[dict]:
    """The answers of a tagger; see `TokenClassifier.tag`.

    Args:
        rows: the rows of the sentences.
        sentences: the sentences, each a text or a list of words.
        logits: for each sentence float (words, labels), NaN for words without tokens; see `TaggedRows.read`.
        labels: names of the labels.
    """
    parts = zip(sentences, rows.texts, rows.word_spans, rows.hosts, logits, strict=True)
    return [_tagged(*part, labels) for part in parts]


def _tagged(sentence, text, spans, hosts, logits, labels):
    unread = np.isnan(logits).any(axis=-1)
    probabilities = softmax(np.where(unread[:, None], 0.0, logits))
    best = probabilities.argmax(axis=-1)
    best[unread] = labels.index("O") if "O" in labels else 0
    found = [labels[i] for i in best]
    for host, count in zip(*np.unique(hosts[hosts >= 0], return_counts=True), strict=True):
        found[host : host + count] = tags_within(found[host], count)
    scores = np.where(unread, 0.0, probabilities.max(axis=-1))
    answers = []
    for kind, first, last in entities(list(map(str, found))):
        start, stop = spans[first][0], spans[last - 1][1]
        where = (start, stop) if isinstance(sentence, str) else (first, last)
        score = float(scores[first:last].mean())
        answers.append(dict(type=kind, text=text[start:stop], start=where[0], stop=where[1], score=score))
    words = [text[start:stop] for start, stop in spans]
    return {"words": words, "labels": found, "scores": scores.tolist(), "entities": answers}


def answered(
    rows: QuestionRows,
    start: np.ndarray,
    end: np.ndarray,
    n_best: int,
    null_threshold: float | None,
    max_answer_length: int,
) -> list[list[dict[str, Any]]]:
    """The answers to questions, best first; see `QuestionAnswerer.answer`.

    Args:
        rows: the rows of the questions.
        start, end: logits, float (rows, width).
        n_best, null_threshold: see `QuestionAnswerer.answer`.
        max_answer_length: maximum number of tokens in an answer.
    """
    answers = []
    for spans, odds in rows.answers(start, end, max(20, n_best), max_answer_length):
        best = [{**dataclasses.asdict(span), "null_odds": odds} for span in spans[:n_best]]
        if null_threshold is not None and spans[0].text:
            share = float(1.0 / (1.0 + np.exp(min(-odds, 700.0)) / spans[0].score))
            best = [{**answer, "score": answer["score"] * (1.0 - share)} for answer in best]
            if odds > null_threshold:
                none = dict(text="", start=0, stop=0, score=share, logit=spans[0].logit + odds, null_odds=odds)
                best = [none, *best][:n_best]
        answers.append(best)
    return answers


def encode_masks(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], limit: int | None
) -> tuple[dict, list[np.ndarray]]:
    """Encodes texts with mask tokens. Returns the batch, as `encode_texts` does, and the columns of the masks of each.

    Raises: ValueError for a text without a mask token within its first `limit` tokens.
    """
    if tokenizer.mask_id is None:
        raise ValueError("Masks are filled by a model whose tokenizer has a mask token. Received: one without.")
    x = encode_texts(tokenizer, texts, limit)
    masks = [np.flatnonzero(row == tokenizer.mask_id) for row in x["token_ids"]]
    without = [text for text, found in zip(texts, masks, strict=True) if not len(found)]
    if without:
        raise ValueError(
            f"Every text must have the mask token {tokenizer.token(tokenizer.mask_id)}"
            f"{f' within its first {limit} tokens' if limit else ''}. Received: {without[0][:80]!r}."
        )
    return x, masks


def filled_masks(tokenizer: Tokenizer, logits: np.ndarray, top_k: int) -> list[list[dict[str, Any]]]:
    """The most likely tokens for each mask of a text; see `MaskedLM.fill_mask`.

    Args:
        tokenizer: the tokenizer.
        logits: float (masks, vocabulary) at the masks.
        top_k: number of tokens.
    """
    logits = np.asarray(logits[:, : tokenizer.vocabulary_size], "float64")
    named = np.array([bool(token) for token in tokenizer.tokens[: logits.shape[-1]]])
    logits = np.where(named, logits, -np.inf)  # ids without a token are no answers
    scores = softmax(logits)
    best = np.argsort(-scores, axis=-1)[:, : min(top_k, int(named.sum()))]
    return [
        [{"token": tokenizer.token(int(i)), "score": float(row[i]), "id": int(i)} for i in ids]
        for row, ids in zip(scores, best, strict=True)
    ]


def largest_weights(ids: np.ndarray, weights: np.ndarray, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids and weights of the `count` weights with the largest absolute values, in the order of `ids`.

    Args:
        ids, weights: the components of a sparse vector that are stored, (n,).
        count: None for all of them.
    """
    if count is None or len(ids) <= count:
        return ids, weights
    best = np.sort(np.argsort(-np.abs(weights), kind="stable")[:count])
    return ids[best], weights[best]


def sparse_weights(tokens: Sequence[str], ids: np.ndarray, weights: np.ndarray, top_k: int | None) -> list[tuple]:
    """The tokens with the largest weights of a sparse vector, [(token, weight)], with the largest first.

    Args:
        tokens: the tokens in the order of their ids.
        ids, weights: the components of the vector that are stored.
        top_k: number of tokens. Default: all whose weights are not 0.
    """
    pairs = [(i, weight) for i, weight in zip(ids, weights, strict=True) if weight]
    best = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:top_k]
    return [(tokens[i] if i < len(tokens) else "", float(weight)) for i, weight in best]
