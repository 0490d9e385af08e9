"""Bidirectional language modeling: predicts each token from the tokens before it, and from the tokens after it."""

from typing import Any

import keras

from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from .objective import Objective, Perplexity, check_labels, cross_entropy, token_weights


@keras.saving.register_keras_serializable("kerasbert")
class BidirectionalLM(Objective):
    """Trains a forward and a backward language model together (Peters et al. 2018, arXiv 1802.05365, section 3.1).

    The loss is the mean of both losses.

    Args:
        backbone: an `Elmo`, or another backbone with a `bidirectional_lm` head.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch.

    Returns: a dict of the logits `forward` and `backward`, float (b, s, v). The targets y are a dict of `forward`, the
        next token at each position, and `backward`, the previous token, int32 (b, s). `bidirectional_targets` creates
        them and their weights from rows of tokens.

    Raises:
        ValueError: if the backbone has no `bidirectional_lm` head.
    """

    default_learning_rate = 1e-3

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(backbone, tokenizer, **kwargs)
        self.bidirectional_lm = backbone.make_head("bidirectional_lm")
        self.perplexity = Perplexity(name="perplexity")
        self.build_now()

    def call(self, inputs):
        return self.bidirectional_lm(self.backbone(inputs)["sequence_output"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        total = 0.0
        for direction, logits in y_pred.items():
            given = sample_weight[direction] if isinstance(sample_weight, dict) else sample_weight
            weights = token_weights(x, given)
            losses = cross_entropy(logits, y[direction])
            self.perplexity.update_state(losses, weights)
            total = total + self.mean_loss(x, losses, weights, direction) / 2
        return total

    def target_shapes(self, x):
        return dict.fromkeys(("forward", "backward"), x["token_ids"].shape)

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        for labels in () if y is None else y.values():
            check_labels(labels, self.backbone.config.vocabulary_size)
