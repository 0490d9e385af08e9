"""Hybrid language modeling: masked and causal language modeling in one batch, with the same weights."""

from typing import Any

import keras
from keras import ops

from ..checkpoints.arguments import Saved
from ..data import HybridLMBatches
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from .masked_lm import MaskedLM, masked_batches
from .objective import Perplexity, WeightedMean, cross_entropy, predicted_correctly, slot_weights


@keras.saving.register_keras_serializable("kerasbert")
class HybridLM(MaskedLM):
    """GPT-BERT's objective: masked next-token prediction and causal language modeling (arXiv 2410.24159, section 2).

    Both predict a token from the output of the token before it, with the same head. In masked rows, some tokens are
    masked and predicted from the tokens on both sides. In causal rows (`causal_rows`), all tokens are predicted from
    the tokens before them. The loss is the mean loss of the masked rows times 1 - `causal_share`, plus the mean loss of
    the causal rows times `causal_share`, whatever the numbers of predicted tokens are.

    The metrics `accuracy` and `perplexity` describe the masked rows, `causal_accuracy` and `causal_perplexity` the
    causal rows. The trained model can be loaded as a `MaskedLM` and as a `CausalLM`. This class fills masks and scores
    texts like a `MaskedLM`.

    Args:
        backbone: a backbone that predicts the next token and reads `causal_rows`, such as a `GPTBert`.
        causal_share: weight of the causal loss; usually the share of the causal rows.
        z_loss: factor of log(Z) ** 2 in the loss, where Z is the sum of the exponentiated logits, 1e-4 in the official
            code.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch with `causal_rows`. Without `masked_positions`, all positions are predicted, and `sample_weight`
            (b, s) says which of them count.

    Returns: logits, float (b, p, v). The targets y, int32 (b, p), are the tokens at the `masked_positions`.

    Raises:
        ValueError: if the backbone does not predict the next token, `causal_share` is not from 0 to 1, or `z_loss` is
            below 0. In training, if a batch lacks `causal_rows`.
    """

    SAVED_AS = {"causal_share": Saved(float, 0.0, 1.0), "z_loss": Saved(float, 0.0)}

    def __init__(
        self,
        backbone: Backbone,
        causal_share: float = 1 / 16,
        z_loss: float = 0.0,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        if not getattr(backbone, "predicts_next", False):
            raise ValueError(
                "Hybrid language modeling needs a backbone that predicts the next token in rows of both kinds, such "
                f"as GPTBert. Received: {type(backbone).__name__}. Use MaskedLM or CausalLM."
            )
        if not 0 <= causal_share <= 1 or not z_loss >= 0:
            raise ValueError(
                "`causal_share` must be between 0 and 1, and `z_loss` at least 0. Received: "
                f"causal_share={causal_share}, z_loss={z_loss}."
            )
        super().__init__(backbone, tokenizer=tokenizer, **kwargs)
        self.causal_share, self.z_loss = float(causal_share), float(z_loss)

    def add_metrics(self):
        super().add_metrics()
        self.causal_accuracy = WeightedMean(name="causal_accuracy")
        self.causal_perplexity = Perplexity(name="causal_perplexity")

    def compute_loss(self, x: Any = None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = slot_weights(x, y, sample_weight)
        losses, hits = cross_entropy(y_pred, y), predicted_correctly(y_pred, y)
        trained = losses
        if training and self.z_loss:
            log_z: Any = ops.logsumexp(ops.cast(y_pred, "float32"), axis=-1)
            trained = losses + self.z_loss * log_z * log_z
        causal: Any = ops.cast(x["causal_rows"], "float32")
        causal = causal[:, None]
        total = 0.0
        for kind, share, rows, perplexity, accuracy in (
            ("masked", 1 - self.causal_share, 1 - causal, self.perplexity, self.accuracy),
            ("causal", self.causal_share, causal, self.causal_perplexity, self.causal_accuracy),
        ):
            perplexity.update_state(losses, weights * rows)
            accuracy.update_state(hits, weights * rows)
            total = total + share * self.mean_loss(x, trained, weights * rows, kind)
        return total

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `HybridLMBatches` for texts, each of which is one document."""
        arguments = self.require_tokenizer(), x, y, sample_weight, batch_size, epochs, seed, shuffle
        return masked_batches(self, *arguments, HybridLMBatches, causal_share=self.causal_share)

    # === Checks and configuration ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None:
            return
        if x.get("causal_rows") is None:
            raise ValueError(
                "Hybrid language modeling needs `causal_rows`, which says which rows are causal. Received: a batch "
                "without it. Use HybridLMBatches."
            )
        if x.get("masked_positions") is None and (sample_weight is None or len(sample_weight.shape) < 2):
            raise ValueError(
                "Without `masked_positions`, `sample_weight` (b, s) must say which tokens are predicted. Received: no "
                "such weights. Use HybridLMBatches."
            )

    def arguments(self):
        return {"causal_share": self.causal_share, "z_loss": self.z_loss}

    def variant(self):
        return "HybridLM"
