"""What a classifier's answers are worth."""

import numpy as np


def classification_scores(logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, macro F1 and Matthews correlation of logits (n, labels) for targets (n,)."""
    from sklearn.metrics import f1_score, matthews_corrcoef

    answers = logits.argmax(axis=-1)
    return {
        "accuracy": float((answers == targets).mean()),
        "macro_f1": float(f1_score(targets, answers, average="macro")),
        "matthews": float(matthews_corrcoef(targets, answers)),
    }


def regression_scores(outputs: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Mean squared error and the two correlations of outputs (n, 1) with targets (n, 1)."""
    from scipy.stats import pearsonr, spearmanr

    outputs, targets = outputs.reshape(-1).astype("float64"), targets.reshape(-1).astype("float64")
    return {
        "mean_squared_error": float(((outputs - targets) ** 2).mean()),
        "pearson": float(pearsonr(outputs, targets).statistic),
        "spearman": float(spearmanr(outputs, targets).statistic),
    }
