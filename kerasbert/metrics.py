"""Evaluation metrics: the official scores of common tasks.

Scores are fractions or percentages, as in the official scripts. Each docstring says which. Most scores are computed by
libraries: scikit-learn, SciPy, sacreBLEU and rouge-score (`pip install kerasbert[metrics]`).
"""

import collections
import json
import re
import string
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .data.columns import values_of
from .data.tasks.tagging import entities as entities_of

__all__ = [
    "accuracy",
    "bleu",
    "by_class",
    "entities",
    "f1",
    "matthews",
    "minimal_pairs",
    "pearson",
    "reranking",
    "retrieval",
    "rouge",
    "similar_pairs",
    "spearman",
    "squad",
]

# === Labels and numbers ===


def accuracy(labels: Sequence, predictions: Sequence) -> float:
    """The fraction of correct predictions."""
    labels, predictions = _paired(labels, predictions)
    return float(np.mean(labels == predictions))


def f1(labels: Sequence, predictions: Sequence, average: str = "macro", positive: str | int | None = None) -> float:
    """F1 score, computed by scikit-learn: "macro", "micro", "weighted", or "binary" for the class `positive`.

    For multi-label classification, labels and predictions are arrays (n, labels) of 0 and 1.

    Example:
        >>> from kerasbert.metrics import f1
        >>> round(f1(["good", "bad", "bad"], ["good", "good", "bad"]), 3)
        0.667
        >>> f1(["good", "bad"], ["good", "bad"], average="binary", positive="good")
        1.0
    """
    from sklearn.metrics import f1_score

    labels, predictions = _paired(labels, predictions)
    options = {"pos_label": positive} if positive is not None else {}
    if labels.ndim == 2 and labels.shape[1] == 1:  # scikit-learn would treat this as two classes
        labels, predictions = (np.reshape(side, -1) for side in (labels, predictions))
        average, options = "binary", {"pos_label": 1}
    return float(f1_score(labels, predictions, average=average, zero_division=0, **options))


def by_class(names: Sequence[str], labels: Sequence, predictions: Sequence) -> dict[str, dict]:
    """Precision, recall and F1 of every class, as fractions, where 0 / 0 counts as 0.

    Args:
        names: the names of the classes, in the order of the result.
        labels, predictions: for each example, the name of a class, or a list of names.

    Returns: {name: {"precision", "recall", "f1", "support"}}.
    """
    labels, predictions = (values_of(side, "targets") for side in (labels, predictions))
    _check_sizes(labels, predictions)
    correct, found, wanted = (collections.Counter() for _ in range(3))
    for expected, given in zip(labels, predictions, strict=True):
        expected, given = ({side} if isinstance(side, str) else set(side) for side in (expected, given))
        wanted.update(expected)
        found.update(given)
        correct.update(expected & given)
    return {
        name: {**_scores(correct[name], found[name], wanted[name]), "support": wanted[name]}
        for name in dict.fromkeys([*names, *wanted])
    }


def matthews(labels: Sequence, predictions: Sequence) -> float:
    """Matthews correlation coefficient, the metric of CoLA. It is 0 if there is only one class."""
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = _paired(labels, predictions)
    if len(np.unique(np.concatenate([labels, predictions]))) == 1:  # scikit-learn would warn
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: Sequence[float], predictions: Sequence[float]) -> float:
    """Pearson correlation coefficient. It is 0 if labels or predictions are constant."""
    from scipy.stats import pearsonr

    labels, predictions = _numbers(labels, predictions)
    return float(pearsonr(labels, predictions).statistic) if np.ptp(labels) and np.ptp(predictions) else 0.0


def spearman(labels: Sequence[float], predictions: Sequence[float]) -> float:
    """Spearman rank correlation coefficient, the metric of STS-B. It is 0 if labels or predictions are constant."""
    from scipy.stats import spearmanr

    labels, predictions = _numbers(labels, predictions)
    return float(spearmanr(labels, predictions).statistic) if np.ptp(labels) and np.ptp(predictions) else 0.0


def minimal_pairs(acceptable: Sequence, unacceptable: Sequence) -> float:
    """The fraction of pairs in which the acceptable sentence has the higher score. Ties count one half.

    Papers: Marvin, Linzen 2018 (arXiv 1808.09031); Warstadt et al. 2019 (BLiMP, arXiv 1912.00582).

    Args:
        acceptable, unacceptable: the scores of the two sentences of each pair, which are results of `score` of a
            `MaskedLM` or a `CausalLM`, or log probabilities.
    """
    sides = [[s["score"] if isinstance(s, Mapping) else s for s in side] for side in (acceptable, unacceptable)]
    better, worse = _numbers(*sides)
    return float(np.mean((better > worse) + (better == worse) / 2))


def _paired(labels: Sequence, predictions: Sequence) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = (values_of(side, "targets") for side in (labels, predictions))
    _check_sizes(labels, predictions)
    sides = np.asarray(labels), np.asarray(predictions)
    if len({side.dtype.kind in "US" for side in sides}) > 1:
        raise ValueError(
            f"Labels and predictions must both be names, or both be numbers. Received: {labels[0]!r} and "
            f"{predictions[0]!r}."
        )
    return sides


def _check_sizes(labels: Sequence, predictions: Sequence) -> None:
    for side in (labels, predictions):
        if isinstance(side, (str, Mapping)) or not hasattr(side, "__len__"):
            raise ValueError(
                f"There must be a list of labels or texts, one per example. Received: {side!r:.60}. For a single "
                "example, use a list of one."
            )
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(
            "Every example must have a label and a prediction. Received: "
            f"{len(labels)} labels, {len(predictions)} predictions."
        )


def _numbers(labels: Sequence, predictions: Sequence) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = (np.asarray(side, "float64").reshape(-1) for side in _paired(labels, predictions))
    for name, side in (("labels", labels), ("predictions", predictions)):
        if not np.isfinite(side).all():
            number = int(np.argmin(np.isfinite(side)))
            raise ValueError(f"Numbers must be finite. Received: {name}[{number}] = {side[number]}.")
    return labels, predictions


# === Entities ===


def entities(labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> dict:
    """Precision, recall and F1 of entities, as fractions, by the rules of conlleval.

    A predicted entity is correct if its type and both of its boundaries are correct. 0 / 0 counts as 0.

    Args:
        labels, predictions: for each sentence, the tags of its words, in BIO, IOB1 or BIOES.

    Returns: {"precision", "recall", "f1", "accuracy" (of tags), "types": {type: {"precision", "recall", "f1",
        "support"}}}.

    Example:
        >>> from kerasbert.metrics import entities
        >>> scores = entities([["B-PER", "O", "B-LOC", "I-LOC"]], [["B-PER", "O", "B-LOC", "O"]])
        >>> scores["precision"], scores["recall"], scores["types"]["PER"]["f1"]
        (0.5, 0.5, 1.0)
    """
    correct, found, wanted = (collections.Counter() for _ in range(3))
    right_tags = total_tags = 0
    labels, predictions = (values_of(side, "targets") for side in (labels, predictions))
    _check_sizes(labels, predictions)
    for number, (expected, given) in enumerate(zip(labels, predictions, strict=True)):
        for side in (expected, given):
            if isinstance(side, str) or not hasattr(side, "__len__"):
                raise ValueError(
                    "A sentence must be a list of tags, one for each word. Received: "
                    f"{side!r:.60}, as sentence {number}. Use [tags] for a single sentence."
                )
        if len(expected) != len(given):
            raise ValueError(
                f"A sentence must have a tag for every word. Received: sentence {number} with {len(expected)} labels, "
                f"{len(given)} predictions."
            )
        total_tags += len(expected)
        right_tags += sum(a == b for a, b in zip(expected, given, strict=True))
        expected, given = set(entities_of(expected)), set(entities_of(given))
        for counter, spans in ((wanted, expected), (found, given), (correct, expected & given)):
            counter.update(kind for kind, _, _ in spans)
    types = {
        kind: {**_scores(correct[kind], found[kind], wanted[kind]), "support": wanted[kind]}
        for kind in sorted(wanted | found)
    }
    total = _scores(correct.total(), found.total(), wanted.total())
    return {**total, "accuracy": right_tags / total_tags if total_tags else 0.0, "types": types}


def _scores(correct: int, found: int, wanted: int) -> dict[str, float]:
    precision, recall = correct / found if found else 0.0, correct / wanted if wanted else 0.0
    both = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / both if both else 0.0}


# === Questions ===


def squad(
    dataset: str | Path | Mapping | Sequence,
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = 1.0,
) -> dict[str, float]:
    """Exact match and F1 of SQuAD, as percentages, identical to the results of the official scripts.

    A data set is scored as version 2.0 if any question has no answers or has the key `is_impossible`, and otherwise as
    version 1.1.

    Args:
        dataset: a SQuAD file, its content, or the list under "data" in it.
        predictions: {question id: answer}. In version 2.0, "" means that the question has no answer.
        null_odds: {question id: score of "no answer"}. If given, the best results over all thresholds on these scores
            are added.
        null_threshold: if the score of "no answer" exceeds it, the prediction counts as "no answer". The default is
            taken from the official script, where scores are probabilities.

    Returns: for version 1.1, {"exact_match", "f1"}, where a question without a prediction counts as wrong. For version
        2.0, {"exact", "f1", "total"}; the same with the prefixes "HasAns_" and "NoAns_", if there are questions with
        and without answers; and with `null_odds`, "best_exact", "best_exact_thresh", "best_f1" and "best_f1_thresh".
    """
    questions = [q for article in _articles(dataset) for p in article["paragraphs"] for q in p["qas"]]
    if not questions:
        raise ValueError("A data set must have questions. Received: a data set without any.")
    if not any("is_impossible" in question or not question["answers"] for question in questions):
        return _squad_1(questions, predictions)
    missing = [question["id"] for question in questions if question["id"] not in predictions]
    if missing:
        raise ValueError(
            f"Every question must have a prediction. Received: none for {len(missing)} of them, such as {missing[0]}."
        )
    exact, f1s, answerable, odds = {}, {}, {}, null_odds or {}
    for question in questions:
        truths = [a["text"] for a in question["answers"] if _normalized(a["text"])] or [""]
        answer, key = predictions[question["id"]], question["id"]
        exact[key] = max(int(_normalized(truth) == _normalized(answer)) for truth in truths)
        f1s[key] = max(_overlap_2(truth, answer) for truth in truths)
        answerable[key] = bool(question["answers"])
    kept = [
        {k: float(not answerable[k]) if odds.get(k, 0.0) > null_threshold else value for k, value in values.items()}
        for values in (exact, f1s)
    ]
    scores = _means(*kept, list(exact))
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        keys = [key for key in exact if answerable[key] is wanted]
        if keys:
            scores |= {f"{name}_{score}": value for score, value in _means(*kept, keys).items()}
    if null_odds is not None:
        for name, values in (("exact", exact), ("f1", f1s)):
            best, threshold = _best_threshold(values, predictions, odds, answerable)
            scores |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return scores


def _articles(dataset) -> Sequence:
    if isinstance(dataset, (str, Path)):
        dataset = json.loads(Path(dataset).read_text(encoding="utf-8"))
    return dataset["data"] if isinstance(dataset, Mapping) else dataset


def _squad_1(questions: list, predictions: Mapping) -> dict[str, float]:
    exact = total = 0
    f1_sum = 0.0
    for question in questions:
        total += 1
        if question["id"] not in predictions:
            continue
        answer, truths = predictions[question["id"]], [a["text"] for a in question["answers"]]
        exact += max(_normalized(truth) == _normalized(answer) for truth in truths)
        f1_sum += max(_overlap_1(truth, answer) for truth in truths)
    return {"exact_match": 100.0 * exact / total, "f1": 100.0 * f1_sum / total}


def _normalized(text: str) -> str:
    """Converts an answer to lower case, and removes punctuation, articles and extra white space."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _shared(truth: list[str], answer: list[str]) -> float:
    same = sum((collections.Counter(truth) & collections.Counter(answer)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(answer), same / len(truth)
    return 2 * precision * recall / (precision + recall)


def _overlap_1(truth: str, answer: str) -> float:
    return _shared(_normalized(truth).split(), _normalized(answer).split())


def _overlap_2(truth: str, answer: str) -> float:
    truth, answer = _normalized(truth).split(), _normalized(answer).split()
    return _shared(truth, answer) if truth and answer else float(truth == answer)


def _means(exact: dict, f1s: dict, keys: list) -> dict[str, float]:
    total = len(keys)
    mean = {name: 100.0 * sum(values[key] for key in keys) / total for name, values in (("exact", exact), ("f1", f1s))}
    return {**mean, "total": total}


def _best_threshold(values: dict, predictions: Mapping, odds: Mapping, answerable: dict) -> tuple[float, float]:
    """The threshold for "no answer" that gives the highest mean score: (this score in percent, threshold)."""
    score = best = sum(not has for has in answerable.values())
    threshold = 0.0
    for key in sorted(odds, key=lambda key: odds[key]):
        if key not in values:
            continue
        if answerable[key]:
            score += values[key]
        else:
            score += -1 if predictions[key] else 0
        if score > best:
            best, threshold = score, odds[key]
    return 100.0 * best / len(values), threshold


# === Text ===


def bleu(references: Sequence[str] | Sequence[Sequence[str]], predictions: Sequence[str], **options: Any) -> float:
    """Corpus BLEU by sacreBLEU, as a percentage. Papers: Papineni et al. 2002; Post 2018 (arXiv 1804.08771).

    Args:
        references: a str or a list of str for each prediction.
        predictions: the generated texts.
        **options: arguments of `sacrebleu.corpus_bleu`, such as tokenize="intl", lowercase=True.
    """
    import sacrebleu

    many = _several(references, predictions)
    streams = [[r[i] if i < len(r) else None for r in many] for i in range(max(map(len, many)))]
    return float(sacrebleu.corpus_bleu(list(predictions), streams, **options).score)


def rouge(references: Sequence[str] | Sequence[Sequence[str]], predictions: Sequence[str], stem: bool = True) -> dict:
    """F-measures of ROUGE-1, -2, -L and -Lsum by rouge-score, as percentages.

    If a prediction has several references, the best score is used. For ROUGE-Lsum, every line is a sentence.
    """
    from rouge_score import rouge_scorer

    many = _several(references, predictions)
    names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=stem)
    found = [scorer.score_multi(truths, text) for truths, text in zip(many, predictions, strict=True)]
    return {name: 100.0 * float(np.mean([scores[name].fmeasure for scores in found])) for name in names}


def _several(references: Sequence, predictions: Sequence[str]) -> list[list[str]]:
    """Converts the references of each prediction to a list, which must have at least one item."""
    references, predictions = values_of(references), values_of(predictions)
    _check_sizes(references, predictions)
    many = [[r] if isinstance(r, str) else list(r) for r in references]
    if not all(many):
        raise ValueError(f"Every prediction needs a reference. Received: none for number {many.index([])}.")
    return many


# === Search ===

CUTOFFS = {
    "ndcg": (10,),
    "mrr": (10,),
    "map": (100,),
    **dict.fromkeys(("accuracy", "precision", "recall"), (1, 3, 5, 10)),
}


def retrieval(
    relevant: Mapping[str, Collection[str] | Mapping[str, float]],
    results: Mapping[str, Mapping[str, float]],
    cutoffs: Mapping[str, Sequence[int]] | None = None,
    documents: Collection[str] | None = None,
) -> dict[str, float]:
    """Metrics of search results, as means over the queries that have relevant documents.

    Documents are ordered by descending score, and equal scores by the document's id, as a str in ascending order. With
    k the cutoff, R the number of relevant documents, and a hit a relevant document among the first k:

    - "ndcg": sum over hits of 1 / log2(rank + 1), divided by its value if the first min(R, k) documents are hits.
    - "mrr": 1 / rank of the first hit, or 0.
    - "map": sum over hits of the precision up to the hit, divided by min(R, k).
    - "accuracy": whether there is a hit. "precision": hits / k. "recall": hits / R.

    Args:
        relevant: {query: ids of the relevant documents}, or {query: {document: grade}}, where a grade above 0 is
            relevant.
        results: {query: {document: score}}.
        cutoffs: {name of a metric: values of k}. Default: `CUTOFFS`.
        documents: the ids of all documents. If given, judgments about other documents are an error.

    Returns: {"ndcg@10": a fraction, ...}.

    Example:
        >>> from kerasbert.metrics import retrieval
        >>> relevant = {"q1": ["d1"], "q2": ["d3"]}
        >>> results = {"q1": {"d1": 0.9, "d2": 0.4}, "q2": {"d1": 0.8, "d3": 0.7}}
        >>> scores = retrieval(relevant, results)
        >>> round(scores["ndcg@10"], 3), scores["mrr@10"]
        (0.815, 0.75)
    """
    cutoffs = CUTOFFS if cutoffs is None else cutoffs
    if not set(cutoffs) <= set(_OF_HITS) or any(k < 1 for ks in cutoffs.values() for k in ks):
        raise ValueError(f"`cutoffs` must have values of 1 or more for {', '.join(_OF_HITS)}. Received: {cutoffs}.")
    wanted = {query: _relevant_ids(judged) for query, judged in relevant.items()}
    wanted = {query: ids for query, ids in wanted.items() if ids}
    if not wanted:
        raise ValueError("There must be a query with a relevant document. Received: none.")
    unknown = next((query for query in wanted if query not in results), None)
    if unknown is not None:
        raise ValueError(f"Every query with relevant documents must have results. Received: none for {unknown!r}.")
    if documents is not None:
        known = set(documents)
        unknown = next((one for ids in wanted.values() for one in sorted(ids, key=str) if one not in known), None)
        if unknown is not None:
            raise ValueError(f"Judgments must be about documents of the corpus. Received: the document {unknown!r}.")
    scores = collections.defaultdict(list)
    for query, ids in wanted.items():
        hits = np.array([document in ids for document in _ordered(results[query], query)], bool)
        for name, ks in cutoffs.items():
            for k in ks:
                scores[f"{name}@{k}"].append(_OF_HITS[name](hits[:k], len(ids), k))
    return {name: float(np.mean(values)) for name, values in scores.items()}


def _relevant_ids(judged) -> set:
    if isinstance(judged, str):
        raise ValueError(f"The relevant documents of a query must be a list of ids. Received: {judged!r}.")
    return {one for one, grade in judged.items() if grade > 0} if isinstance(judged, Mapping) else set(judged)


def _ordered(scores: Mapping[str, float], query: str) -> list[str]:
    """The ids of documents, by descending score and ascending id."""
    wrong = next((one for one, score in scores.items() if not np.isfinite(score)), None)
    if wrong is not None:
        raise ValueError(f"Scores must be finite. Received: {scores[wrong]} for {wrong!r} and the query {query!r}.")
    return sorted(scores, key=lambda document: (-float(scores[document]), str(document)))


def _discounts(count: int) -> np.ndarray:
    return 1 / np.log2(np.arange(count) + 2)


def _ndcg(hits, relevant, k):
    return float((hits * _discounts(len(hits))).sum() / _discounts(min(relevant, k)).sum())


def _reciprocal_rank(hits, relevant, k):
    return 1 / (int(np.argmax(hits)) + 1) if hits.any() else 0.0


def _average_precision(hits, relevant, k):
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precisions * hits).sum() / min(k, relevant))


# {metric: function of the hits (at most k,), the number of relevant documents and k}
_OF_HITS = {
    "ndcg": _ndcg,
    "mrr": _reciprocal_rank,
    "map": _average_precision,
    "accuracy": lambda hits, relevant, k: float(hits.any()),
    "precision": lambda hits, relevant, k: hits.sum() / k,
    "recall": lambda hits, relevant, k: hits.sum() / relevant,
}


def reranking(
    labels: Sequence[Sequence[int]], scores: Sequence[Sequence[float]], k: int = 10, skip_empty: bool = True
) -> dict[str, float]:
    """Metrics of reranked lists, as means over the queries.

    For nDCG, documents with equal scores share the mean of their places, as in scikit-learn. Average precision is over
    whole lists, and takes equal scores as one step. For the reciprocal rank, the last of equal scores comes first, as
    in sentence-transformers.

    Args:
        labels: for each query, 1 or 0 for every document of its list.
        scores: for each query, the scores of these documents.
        k: the cutoff of MRR and nDCG.
        skip_empty: whether lists without a relevant document are left out, or count as 0.

    Returns: {"mrr@10", "ndcg@10", "map"}, fractions.
    """
    _check_sizes(labels, scores)
    rows = []
    for number, (relevant, given) in enumerate(zip(labels, scores, strict=True)):
        relevant, given = np.asarray(relevant, float) > 0, np.asarray(given, float)
        if relevant.shape != given.shape or relevant.ndim != 1 or not np.isfinite(given).all():
            raise ValueError(
                f"Every document must have a label and a finite score. Received: {relevant.size} labels and "
                f"{given.size} scores for query {number}."
            )
        if relevant.any():
            rows.append(_of_list(relevant, given, k))
        elif not skip_empty:
            rows.append((0.0, 0.0, 0.0))
    if not rows:
        raise ValueError("There must be a list with a relevant document. Received: none.")
    return dict(zip((f"mrr@{k}", f"ndcg@{k}", "map"), map(float, np.mean(rows, axis=0)), strict=True))


def _of_list(relevant: np.ndarray, scores: np.ndarray, k: int) -> tuple[float, float, float]:
    """MRR, nDCG and average precision of a list: bool (n,), float (n,)."""
    mrr = _reciprocal_rank(relevant[np.argsort(scores, kind="stable")[::-1]][:k], None, k)
    _, groups, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    hits, ends = np.bincount(groups, relevant), np.cumsum(sizes)
    gained = np.concatenate([[0], np.cumsum(_discounts(len(scores)) * (np.arange(len(scores)) < k))])
    dcg = (hits / sizes * (gained[ends] - gained[ends - sizes])).sum()
    precision = np.cumsum(hits) / ends
    total = int(relevant.sum())
    return mrr, dcg / _discounts(min(k, total)).sum(), (precision * hits).sum() / total


def similar_pairs(labels: Sequence[int], scores: Sequence[float]) -> dict[str, float]:
    """How well scores tell similar pairs (1) from others (0), with the best thresholds.

    A threshold lies in the middle between two different scores, and pairs above it are called similar. The best
    accuracy may also be that of calling no pair similar.

    Returns: {"accuracy", "accuracy_threshold", "f1", "f1_threshold", "precision", "recall" (these at the threshold of
        F1), "average_precision", "mcc" (Matthews correlation at the threshold of F1)}. 0 / 0 counts as 0.
    """
    labels, scores = _numbers(labels, scores)
    if not np.isin(labels, (0, 1)).all():
        raise ValueError(f"Labels must be 0 or 1. Received: {labels[~np.isin(labels, (0, 1))][0]}.")
    values, groups = np.unique(-scores, return_inverse=True)
    values, similar, total = -values, labels.sum(), len(labels)
    hits, found = np.cumsum(np.bincount(groups, labels)), np.cumsum(np.bincount(groups))
    thresholds = np.append((values[:-1] + values[1:]) / 2, values[-1])
    right = np.append(total - similar, hits + (total - similar) - (found - hits)) / total
    best = int(np.argmax(right))
    precision, recall = hits / found, hits / max(similar, 1)
    f1s = 2 * hits / np.maximum(found + similar, 1)
    chosen = int(np.argmax(f1s))
    a, b = hits[chosen], found[chosen] - hits[chosen]
    c, d = similar - a, total - similar - b
    spread = np.sqrt((a + b) * (a + c) * (d + b) * (d + c))
    return {
        "accuracy": float(right[best]),
        "accuracy_threshold": float(thresholds[best - 1]) if best else float(np.nextafter(values[0], np.inf)),
        "f1": float(f1s[chosen]),
        "f1_threshold": float(thresholds[chosen]),
        "precision": float(precision[chosen]),
        "recall": float(recall[chosen]),
        "average_precision": float((precision * np.diff(recall, prepend=0)).sum()),
        "mcc": float((a * d - b * c) / spread) if spread else 0.0,
    }
