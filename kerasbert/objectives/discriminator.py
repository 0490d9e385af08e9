"""The ELECTRA discriminator, which detects replaced tokens. After pretraining, it is fine-tuned on tasks."""

from collections.abc import Sequence
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..data.tasks.examples import encode_texts
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .objective import Objective, WeightedMean, cross_entropy, token_weights


def binary_cross_entropy(logits, labels):
    """Returns the negative log likelihood of binary labels, float32 in nats.

    Args:
        logits: float, any shape. The probability of label 1 is sigmoid(logits).
        labels: bool or numbers 0 and 1, in the same shape.
    """
    logits = ops.cast(logits, "float32")
    return ops.softplus(logits) - ops.cast(labels, "float32") * logits


def copy_cross_entropy(logits, replaced, token_ids, originals):
    """Computes the negative log likelihood of the original tokens under the copy mechanism of All-Tokens MLM.

    Clark et al. 2020, section 3.4. With probability sigmoid(-replaced), the predicted token is a copy of the input
    token. Otherwise, its distribution is softmax(logits).

    Args:
        logits: float (b, s, v).
        replaced: float (b, s), the logit of the probability that the input token was replaced.
        token_ids: int32 (b, s), the input tokens.
        originals: int32 (b, s), the original tokens.

    Returns: float32 (b, s), in nats.
    """
    replaced = ops.cast(replaced, "float32")
    predicted = ops.log_sigmoid(replaced) - cross_entropy(logits, originals)
    copied = ops.logaddexp(ops.log_sigmoid(-replaced), predicted)
    return -ops.where(token_ids == originals, copied, predicted)


class AUC(keras.metrics.AUC):
    """Area under the ROC curve: the probability that a replaced token has a higher logit than an original token.

    This is Keras's AUC with scaled logits, so that probabilities close to 0 or 1 remain distinguishable.
    """

    def __init__(self, name="auc", **options):
        super().__init__(10_001, name=name, **options)

    def update_state(self, labels, logits, sample_weight=None):
        return super().update_state(labels, ops.sigmoid(ops.cast(logits, "float32") / 4), sample_weight)


@keras.saving.register_keras_serializable("kerasbert")
class Discriminator(Objective):
    """Predicts for each token whether it is original or replaced (Clark et al. 2020, arXiv 2003.10555).

    `ReplacedTokenDetection` trains this model together with a generator. Released ELECTRA discriminators can be loaded
    as this class. The model can also be trained alone, on tokens that were replaced in any other way.

    Args:
        backbone: a backbone with a `replaced_token` head.
        masked_lm: whether to also predict the original token at each position, for All-Tokens MLM.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch.

    Returns: logits of the probability that a token was replaced, float (b, s). With `masked_lm`, a dict of these
        logits, `replaced`, and the logits of the original tokens, `tokens` (b, s, v). The targets y, int32 (b, s), are
        1 for replaced tokens and 0 for others, or with `masked_lm` the original tokens.

    Raises:
        ValueError: if the backbone has no `replaced_token` head, or no `masked_lm` head for `masked_lm`.
    """

    def __init__(self, backbone: Backbone, masked_lm: bool = False, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(backbone, tokenizer, **kwargs)
        self.replaced_token = backbone.make_head("replaced_token")
        self.masked_lm = backbone.make_head("masked_lm") if masked_lm else None
        self.accuracy = WeightedMean(name="accuracy")
        self.auc = None if masked_lm else AUC(name="auc")
        self.build_now()

    def call(self, inputs):
        outputs = self.backbone(inputs)
        replaced = self.replaced_token(outputs)
        if self.masked_lm is None:
            return replaced
        return {"replaced": replaced, "tokens": self.masked_lm(outputs["sequence_output"], self.backbone.token_table)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = token_weights(x, sample_weight)
        if self.masked_lm is None:
            losses, right = binary_cross_entropy(y_pred, y), (y_pred > 0) == (y > 0)
            self.auc.update_state(y, y_pred, weights)
        else:
            losses = copy_cross_entropy(y_pred["tokens"], y_pred["replaced"], x["token_ids"], y)
            right = copied_or_predicted(y_pred, x["token_ids"]) == y
        self.accuracy.update_state(ops.cast(right, "float32"), weights)
        return self.mean_loss(x, losses, weights)

    # === Text ===

    @overload
    def score_tokens(self, texts: str) -> list[dict[str, Any]]: ...

    @overload
    def score_tokens(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]: ...

    def score_tokens(self, texts: str | Sequence[str]):
        """Computes, for each token of each text, the probability that it was replaced.

        Args:
            texts: a str or a list of str.

        Returns: for each text, a list of dicts {"token": str, "score": probability}, one per token. For a single str,
            only the list of this text is returned.

        Raises:
            ValueError: if a text is no str, or the model has no tokenizer.
        """
        tokenizer = self.require_tokenizer()
        texts = read_texts(texts, "score_tokens")
        if isinstance(texts, str):
            return self.score_tokens([texts])[0]
        x = encode_texts(tokenizer, texts, self.backbone.config.max_length)
        logits = self.predict(x, verbose=0)
        logits = logits["replaced"] if isinstance(logits, dict) else logits
        scores = 1 / (1 + np.exp(-logits.astype("float64")))
        special = [item for item, _ in tokenizer.info["single"] if item != "A"]
        columns = np.arange(scores.shape[1])
        real = x["padding_mask"] if "padding_mask" in x else columns < x["lengths"][:, None]
        plain = real & ~np.isin(x["token_ids"], special)
        return [
            [{"token": tokenizer.token(int(ids[i])), "score": float(row[i])} for i in np.flatnonzero(here)]
            for ids, row, here in zip(x["token_ids"], scores, plain, strict=True)
        ]

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {"replaced": x["token_ids"].shape}

    def arguments(self):
        return {"masked_lm": self.masked_lm is not None}


def copied_or_predicted(outputs, token_ids):
    """Predicts the original token at each position under the copy mechanism, int32 (b, s).

    It is either the input token or the token with the highest logit.

    Args:
        outputs: a dict of `tokens` (b, s, v) and `replaced` (b, s); see `Discriminator`.
        token_ids: int32 (b, s), the input tokens.
    """
    best = ops.cast(ops.argmax(outputs["tokens"], axis=-1), token_ids.dtype)
    copied = copy_cross_entropy(outputs["tokens"], outputs["replaced"], token_ids, token_ids)
    predicted = copy_cross_entropy(outputs["tokens"], outputs["replaced"], token_ids, best)
    return ops.where(copied <= predicted, token_ids, best)
