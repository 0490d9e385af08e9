"""Linear classifiers of vectors: logistic regression by scikit-learn, or a layer trained by gradient descent."""

import dataclasses
import difflib
import inspect
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from ..core.packages import required

# {how the labels of a text are classified: class of scikit-learn around the logistic regression}
STRATEGIES = {
    "one-vs-rest": ("sklearn.multiclass", "OneVsRestClassifier"),
    "multi-output": ("sklearn.multioutput", "MultiOutputClassifier"),
    "classifier-chain": ("sklearn.multioutput", "ClassifierChain"),
}


@dataclasses.dataclass(frozen=True)
class LinearHead:
    """A trained linear classifier with L labels for vectors of width m.

    Args:
        kernel: float (L, m), or (1, m) for two classes. In a chain (L, m + L), where column m + i reads whether label
            number i has been predicted.
        bias: float (L,), or (1,) for two classes.
        strategy: None if each vector has one class, or else a name from `STRATEGIES`.
    """

    kernel: np.ndarray
    bias: np.ndarray
    strategy: str | None = None

    @property
    def num_labels(self) -> int:
        """The number of labels, L."""
        return 2 if len(self.bias) == 1 else len(self.bias)

    @property
    def width(self) -> int:
        """The width of the vectors, m."""
        return self.kernel.shape[1] - (len(self.bias) if self.strategy == "classifier-chain" else 0)

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """The probability of each label, float64 (n, L), for vectors (n, m)."""
        logits = np.asarray(vectors, float) @ self.kernel[:, : self.width].T + self.bias
        if self.strategy == "classifier-chain":
            for i in range(1, len(self.bias)):
                logits[:, i] += (logits[:, :i] > 0) @ self.kernel[i, self.width : self.width + i]
        if self.strategy is None and len(self.bias) > 1:
            return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        ones = np.exp(-np.logaddexp(0.0, -logits))
        return np.concatenate([1 - ones, ones], axis=1) if self.strategy is None else ones

    def to_sklearn(self) -> Any:
        """Creates the equivalent fitted estimator of scikit-learn."""
        if self.strategy is None:
            model = _estimator(None, {}).fit(np.zeros((self.num_labels, self.width)), np.arange(self.num_labels))
            model.coef_, model.intercept_ = self.kernel, self.bias
            return model
        targets = np.concatenate([np.eye(len(self.bias)), np.zeros((1, len(self.bias)))]).astype(int)
        model = _estimator(self.strategy, {}).fit(np.zeros((len(targets), self.width)), targets)
        for i, one in enumerate(model.estimators_):
            one.coef_, one.intercept_ = self.kernel[i : i + 1, : one.coef_.shape[1]], self.bias[i : i + 1]
        return model


def _estimator(strategy, options):
    one = required("sklearn.linear_model", "metrics").LogisticRegression(**options)
    if strategy is None:
        return one
    module, name = STRATEGIES[strategy]
    return getattr(required(module, "metrics"), name)(one)


def fit_logistic(vectors: np.ndarray, targets: np.ndarray, strategy: str | None, **options: Any) -> LinearHead:
    """Fits scikit-learn's `LogisticRegression`.

    Args:
        vectors: float (n, m).
        targets: int (n,), the classes; or 0 or 1 (n, L) with a `strategy`.
        strategy: see `LinearHead`.
        **options: arguments of `LogisticRegression`.
    """
    model = _estimator(strategy, options).fit(vectors, np.asarray(targets, int))
    if strategy is None:
        return LinearHead(model.coef_, model.intercept_)
    kernel = np.zeros((len(model.estimators_), max(one.coef_.shape[1] for one in model.estimators_)))
    if strategy == "classifier-chain":
        kernel = np.pad(kernel, [(0, 0), (0, 1)])  # nothing reads the last label of the chain
    for row, one in zip(kernel, model.estimators_, strict=True):
        row[: one.coef_.shape[1]] = one.coef_[0]
    return LinearHead(kernel, np.array([one.intercept_[0] for one in model.estimators_]), strategy)


def fit_dense(
    vectors: np.ndarray,
    targets: np.ndarray,
    strategy: str | None,
    epochs: int = 16,
    batch_size: int = 2,
    learning_rate: float = 1e-2,
    seed: int = 42,
) -> LinearHead:
    """Trains a linear layer by AdamW with the cross-entropy, as the differentiable head of SetFit.

    The rate is halved after every 5 epochs.

    Args:
        vectors, targets, strategy: see `fit_logistic`. A layer has no chain.
        epochs, batch_size, learning_rate: of the training.
        seed: of the initial weights and the order of the vectors.
    """
    if strategy == "classifier-chain":
        raise ValueError('A dense head must have a strategy other than "classifier-chain". Use head="logistic".')
    outputs = int(np.max(targets)) + 1 if strategy is None else np.shape(targets)[1]
    kernel: Any = keras.initializers.GlorotUniform(seed=seed)
    bias: Any = keras.initializers.Constant(0.01)
    layer = keras.layers.Dense(outputs, kernel_initializer=kernel, bias_initializer=bias, dtype="float32")
    model = keras.Sequential([layer])
    steps = 5 * math.ceil(len(vectors) / batch_size)
    rate: Any = keras.optimizers.schedules.ExponentialDecay(learning_rate, steps, 0.5, staircase=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if strategy is not None:
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=0.01, epsilon=1e-8), loss)
    options: dict[str, Any] = dict(batch_size=batch_size, shuffle=False, verbose=0)
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = random.permutation(len(vectors))
        model.fit(vectors[order], targets[order], **options)
    kernel, bias = (np.asarray(keras.ops.convert_to_numpy(part), float) for part in (layer.kernel, layer.bias))
    if strategy is None and outputs == 2:
        return LinearHead(kernel[:, 1:].T - kernel[:, :1].T, bias[1:] - bias[:1])
    return LinearHead(kernel.T, bias, strategy)


HEADS = {"logistic": fit_logistic, "dense": fit_dense}


def check_head_options(head: str, options: Mapping[str, Any]) -> None:
    """Raises a ValueError if a head has no option of a name."""
    if head == "logistic":
        known = set(required("sklearn.linear_model", "metrics").LogisticRegression().get_params())
    else:
        known = set(inspect.signature(fit_dense).parameters) - {"vectors", "targets", "strategy"}
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(str(name).lower(), {one.lower(): one for one in known}, n=1)
            raise ValueError(
                f"`head_options` of the {head} head must be among {', '.join(sorted(known))}. Received: {name!r}."
                + "".join(f" Did you mean {one}?" for one in known if close and one.lower() == close[0])
            )
