"""Scores the answers of a model for each kind of task."""

import math
from collections.abc import Sequence

import numpy as np

from kerasbert import metrics

from ..reading.examples import Examples
from ..reading.minimal_pairs import MinimalPair


def classification_scores(logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, macro F1, Matthews correlation, and F1 of the last of two labels; logits (n, labels), targets (n,)."""
    answers = logits.argmax(axis=-1)
    scores = {
        "accuracy": metrics.accuracy(targets, answers),
        "macro_f1": metrics.f1(targets, answers),
        "matthews": metrics.matthews(targets, answers),
    }
    return scores if logits.shape[-1] != 2 else scores | {"f1": metrics.f1(targets, answers, "binary", positive=1)}


def multilabel_scores(logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Micro and macro F1, and the share of examples with all labels right, from logits and targets (n, labels)."""
    answers, targets = (logits > 0).astype(int), targets.astype(int)
    return {
        "micro_f1": metrics.f1(targets, answers, "micro"),
        "macro_f1": metrics.f1(targets, answers),
        "exact": float((answers == targets).all(axis=-1).mean()),
    }


def regression_scores(outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Mean squared error, Pearson and Spearman correlation of outputs (n, 1) with targets (n, 1)."""
    outputs, targets = outputs.reshape(-1).astype("float64"), targets.reshape(-1).astype("float64")
    return {
        "mean_squared_error": float(((outputs - targets) ** 2).mean()),
        "pearson": metrics.pearson(targets, outputs),
        "spearman": metrics.spearman(targets, outputs),
    }


def text_scores(model, examples: Examples, targets: np.ndarray, batch_size: int) -> tuple[dict, list]:
    """Evaluates a TextClassifier. Returns (scores, answers). `targets` are encoded by the model."""
    logits = model.predict(examples.x, batch_size=batch_size, verbose=0)
    found = {"classes": classification_scores, "labels": multilabel_scores, "score": regression_scores}
    return found[model.problem](logits, targets), _text_answers(model, logits.astype("float64"))


def _text_answers(model, logits: np.ndarray) -> list[dict]:
    """Converts logits to answers, with the probability of each label by name."""
    if model.problem == "score":
        return [{"answer": float(row[0])} for row in logits]
    if model.problem == "labels":
        shares = 1.0 / (1.0 + np.exp(-logits))
    else:
        shares = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    answers = []
    for row, share in zip(logits, shares.tolist(), strict=True):
        scores = dict(zip(model.labels, share, strict=True))
        if model.problem == "labels":
            named = [name for name, logit in zip(model.labels, row, strict=True) if logit > 0]
            answers.append({"answer": named, "scores": scores})
        else:
            best = model.labels[int(row.argmax())]
            answers.append({"answer": best, "score": scores[best], "scores": scores})
    return answers


def tag_scores(model, examples: Examples, batch_size: int) -> tuple[dict, list]:
    """Evaluates a TokenClassifier. Returns entity scores, and the tags with their probabilities."""
    found = model.tag(examples.x, batch_size=batch_size)
    scores = metrics.entities(examples.y, [list(map(str, answer["labels"])) for answer in found])
    answers = [{"answer": answer["labels"], "scores": answer["scores"]} for answer in found]
    return {name: scores[name] for name in ("precision", "recall", "f1", "accuracy")}, answers


def question_scores(model, examples: Examples, batch_size: int) -> tuple[dict, list]:
    """Evaluates a QuestionAnswerer. Returns SQuAD's scores, for unanswerable questions also at the best threshold."""
    answers = model.answer(examples.x, batch_size=batch_size)
    ids = [q["id"] for article in examples.dataset for p in article["paragraphs"] for q in p["qas"]]
    texts = {key: answer["text"] for key, answer in zip(ids, answers, strict=True)}
    odds = {key: answer["null_odds"] for key, answer in zip(ids, answers, strict=True)}
    options = {} if None not in examples.y else dict(null_odds=odds, null_threshold=0.0)
    scores = metrics.squad(examples.dataset, texts, **options)
    answers = [{"answer": answer.pop("text"), **answer} for answer in map(dict, answers)]
    return {name: float(value) for name, value in scores.items() if name != "total"}, answers


def choice_scores(model, examples: Examples, batch_size: int) -> tuple[dict, list]:
    """Evaluates a MultipleChoice. Returns its accuracy, and its answers with the probabilities of all choices."""
    found = model.choose(examples.x, batch_size=batch_size)
    answers = [{"answer": answer["choice"], "score": answer["score"], "scores": answer["scores"]} for answer in found]
    return {"accuracy": metrics.accuracy(examples.y, [answer["choice"] for answer in found])}, answers


def sequence_scores(model, examples: Examples, batch_size: int, **options) -> tuple[dict, list]:
    """Evaluates a Seq2SeqLM. Returns BLEU and ROUGE, and the answers. `options` are passed to `generate`."""
    answers = model.generate(examples.x, batch_size=batch_size, **options)
    scores = {"bleu": metrics.bleu(examples.y, answers), **metrics.rouge(examples.y, answers)}
    return scores, answers


def pair_scores(model, pairs: Sequence[MinimalPair], batch_size: int) -> tuple[dict, Examples, list]:
    """Evaluates a MaskedLM or a CausalLM on minimal pairs: how often it prefers the acceptable sentence.

    Returns: (scores, the pairs as examples, the answers). The scores are the mean accuracy of the paradigms and the
        number of pairs. Where the pairs have names, they are also the accuracy of each of the "paradigms", and its mean
        over those of each of the "phenomena" and of the "fields". A tie counts one half.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    score = dict(zip(texts, (answer["score"] for answer in model.score(texts, batch_size=batch_size)), strict=True))
    good, bad = (
        np.array([score[text] for text in side]) for side in zip(*((p.good, p.bad) for p in pairs), strict=True)
    )
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault((pair.field, pair.phenomenon, pair.paradigm), []).append(number)
    found = {group: metrics.minimal_pairs(good[numbers], bad[numbers]) for group, numbers in groups.items()}
    scores = {"accuracy": float(np.mean(list(found.values()))), "pairs": len(pairs)}
    for place, title in ((2, "paradigms"), (1, "phenomena"), (0, "fields")):
        names = [name for name in dict.fromkeys(group[place] for group in found) if name]
        means = {name: float(np.mean([found[group] for group in found if group[place] == name])) for name in names}
        scores |= {title: means} if means else {}
    answers = [
        {"answer": "acceptable" if a > b else "unacceptable" if a < b else "tie", "scores": [float(a), float(b)]}
        for a, b in zip(good, bad, strict=True)
    ]
    rows = [{"acceptable": pair.good, "unacceptable": pair.bad, "paradigm": pair.paradigm} for pair in pairs]
    return scores, Examples(rows, ["acceptable"] * len(pairs)), answers


def language_model_scores(token_loss: float, entropy: float) -> dict[str, float]:
    """Returns a loss in nats per token together with the unigram entropy, the loss of a model of token frequencies."""
    return {
        "token_loss": token_loss,
        "perplexity": math.exp(token_loss),
        "unigram_entropy": entropy,
        "below_unigram": entropy - token_loss,
    }
