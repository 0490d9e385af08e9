"""Causal language modelling: the next token from those before it."""

import tempfile

import keras
from keras import ops

from ..data import CausalLMBatches
from ..data.corpora import Corpus
from ..layers.embeddings import gather_positions
from ..layers.masks import real_tokens
from .objective import Objective, Perplexity, cross_entropy


@keras.saving.register_keras_serializable("kerasbert")
class CausalLM(Objective):
    """Predicts every token from those before it (Radford et al. 2018, section 3.1).

    The targets are aligned in the data: y at a position is the token that follows it.

    Args:
        backbone: a backbone with a `causal_lm` head.
        tokenizer: for text.

    Call:
        inputs: a batch; without `masked_positions` every position is predicted.

    Returns: logits, float (b, s, v), or (b, p, v) with `masked_positions`.
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.causal_lm = backbone.make_head("causal_lm")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")
        self.build_now()

    def call(self, inputs):
        x = self.backbone(inputs)["sequence_output"]
        if inputs.get("masked_positions") is not None:
            x = gather_positions(x, inputs["masked_positions"])
        return self.causal_lm(x, self.backbone.token_table)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = self._default_weights(x, y) if sample_weight is None else sample_weight
        weights = ops.cast(weights, "float32")
        losses = cross_entropy(y_pred, y)
        right = ops.cast(ops.argmax(y_pred, axis=-1), y.dtype) == y
        self.perplexity.update_state(losses, weights)
        self.accuracy.update_state(ops.cast(right, "float32"), weights)
        return self.mean_loss(x, losses, weights)

    def _default_weights(self, x, y):
        if x.get("masked_positions") is not None:
            return x["masked_positions"] >= 0
        real = real_tokens(x)
        return ops.ones_like(y) if real is None else real

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Chunks of the texts, one document each; see `CausalLMBatches` for more control."""
        if y is not None:
            raise ValueError("The targets of causal language modelling are in the text. Received: y. Drop it.")
        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus.write(folder, x, self.require_tokenizer())
            length = min(getattr(self.backbone.config, "max_length", None) or 128, 128)
            once = CausalLMBatches(corpus, batch_size, length, seed=seed)
            if epochs == 1:
                return once
            return CausalLMBatches(corpus, batch_size, length, seed=seed, steps=len(once) * epochs)

    # === What this objective says of itself ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        size = self.backbone.config.vocabulary_size
        if y is not None and y.size and not (y.min() >= 0 and y.max() < size):
            wrong = y.max() if y.max() >= size else y.min()
            raise ValueError(f"Labels must be between 0 and {size - 1} (vocabulary_size). Received: {wrong}.")
