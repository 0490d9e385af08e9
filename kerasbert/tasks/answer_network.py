"""The stochastic answer network: compares a pair of texts in several steps (Liu et al. 2018, arXiv 1804.07888)."""

from typing import Any

import keras
from keras import ops

from ..layers.composite import Composite
from ..layers.dropout import Dropout
from ..layers.masks import real_tokens

KEPT = 0.9  # probability of keeping the prediction of a step in training; at least one prediction is always kept


class AnswerNetwork(Composite):
    """Attends to the second text of a pair repeatedly, and averages the predictions of all steps (MT-DNN, section 3).

    As in the official code of Liu et al. 2019 (arXiv 1901.11504), the first text with the special tokens of its segment
    is the hypothesis, and the second text is the premise. The initial state is a weighted sum of the hidden states of
    the hypothesis. Every step attends from the state to the premise, makes a prediction, and updates the state with a
    GRU.

    Args:
        num_labels: number of labels.
        hidden_dim: width m of the hidden states.
        steps: number of steps; 5 in the paper.
        dropout: dropout rate at the input of every layer. All tokens of a text share one dropout mask.
        kernel_initializer: initializer of the kernels of the dense layers.

    Call:
        x: float (b, s, m), hidden states.
        inputs: the batch from which `x` was computed. Its `segment_ids` distinguish the two texts.

    Returns: float32 (b, num_labels), the logarithms of the mean probabilities, which can be used as logits. In
        training, steps are randomly left out of the mean, so that the probabilities do not sum to 1 before the softmax.
    """

    def __init__(self, num_labels, hidden_dim, steps=5, dropout=0.1, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        arguments: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, **arguments)
        self.steps = steps
        self.text_dropout = Dropout(dropout, noise_shape=(None, 1, hidden_dim), name="text_dropout", **arguments)
        self.dropout = Dropout(dropout, name="dropout", **arguments)
        self.summary = keras.layers.Dense(1, name="summary", **dense)
        self.query = keras.layers.Dense(hidden_dim, name="query", **dense)
        self.predict = keras.layers.Dense(num_labels, name="predict", **dense)
        self.memory = keras.layers.GRUCell(hidden_dim, name="memory", **arguments)
        self.seed_generator = keras.random.SeedGenerator()

    def call(self, x, inputs, training=None):
        if inputs.get("segment_ids") is None:
            raise ValueError(
                "The answer network needs `segment_ids` to distinguish the two texts. Received: a batch without them. "
                "Use pairs of texts, and a family and a tokenizer that have segments, such as BERT."
            )
        second = ops.cast(inputs["segment_ids"], "bool")
        real = real_tokens(inputs)
        first = ops.logical_not(second) if real is None else ops.logical_and(real, ops.logical_not(second))
        second = second if real is None else ops.logical_and(real, second)

        scores = self.summary(self.text_dropout(x, training=training))[..., 0]
        state = _attended(scores, first, x)
        keys = self.text_dropout(x, training=training)
        steps = []
        for _ in range(self.steps):
            scores = ops.einsum("bsm,bm->bs", keys, self.query(self.dropout(state, training=training)))
            y = _attended(scores, second, x)
            compared = ops.concatenate([y, state, ops.abs(y - state), y * state], axis=-1)
            logits = ops.cast(self.predict(self.dropout(compared, training=training)), "float32")
            steps.append(ops.log_softmax(logits, axis=-1))
            state, _ = self.memory(y, self.dropout(state, training=training))
        steps = ops.stack(steps, axis=1)
        if training:
            return averaged(steps, self._kept(ops.shape(x)[0]))
        return averaged(steps)

    def _kept(self, rows):
        """Draws which predictions are kept, bool (b, steps)."""
        draws = keras.random.uniform((rows, self.steps), seed=self.seed_generator)
        always = keras.random.randint((rows, 1), 0, self.steps, seed=self.seed_generator)
        return ops.logical_or(draws < KEPT, ops.arange(self.steps) == always)


def averaged(steps, kept=None):
    """Computes the logarithm of the mean probabilities over the steps.

    three steps with probabilities (.7 .2 .1), (.5 .3 .2), (.6 .3 .1) -> log (.6 .2667 .1333), or if the second step is
    not kept, log (.4815 .1852 .0741)

    Args:
        steps: float32 (b, k, n), the log probabilities of k steps.
        kept: bool (b, k). If given, only these steps are summed, and the sum is divided by its expected number of
            steps, 0.9 k, instead of by k.

    Returns: float32 (b, n).
    """
    count = steps.shape[1]
    if kept is None:
        return ops.logsumexp(steps, axis=1) - ops.log(float(count))
    steps = ops.where(kept[:, :, None], steps, -1e30)
    return ops.logsumexp(steps, axis=1) - ops.log(count * KEPT)


def _attended(scores, real, x):
    """Returns the sum of x (b, s, m) over real tokens, weighted by the softmax of scores (b, s).

    It is zero for rows without real tokens.
    """
    scores = ops.where(real, ops.cast(scores, "float32"), -1e30)
    shares = ops.where(real, ops.softmax(scores, axis=-1), 0.0)
    return ops.einsum("bs,bsm->bm", ops.cast(shares, x.dtype), x)
