"""The ELECTRA discriminator, which detects replaced tokens and is the model that is kept after pretraining."""

import keras
import numpy as np
from keras import ops

from ..core.feeding import check_texts
from ..data.tasks.examples import encode_texts
from .objective import Objective, WeightedMean, cross_entropy, token_weights


def binary_cross_entropy(logits, labels):
    """-log of the probability that sigmoid(logits) assigns to the labels: float32, nats."""
    logits = ops.cast(logits, "float32")
    return ops.softplus(logits) - ops.cast(labels, "float32") * logits


def copy_cross_entropy(logits, replaced, token_ids, originals):
    """-log P(original): P mixes the input token, with weight sigmoid(-replaced), and softmax(logits), with the rest.

    The copy mechanism of All-Tokens MLM (Clark et al. 2020, section 3.4).

    Call:
        logits: float (b, s, v).
        replaced: float (b, s).
        token_ids, originals: int32 (b, s), the input tokens and the original tokens.

    Returns: float32 (b, s), nats.
    """
    replaced = ops.cast(replaced, "float32")
    predicted = ops.log_sigmoid(replaced) - cross_entropy(logits, originals)
    copied = ops.logaddexp(ops.log_sigmoid(-replaced), predicted)
    return -ops.where(token_ids == originals, copied, predicted)


class AUC(keras.metrics.AUC):
    """Area under the ROC curve: the probability that a replaced token has a higher logit than an original token.

    Uses Keras's AUC, on scaled logits, so that probabilities close to 0 or 1 remain distinguishable.
    """

    def __init__(self, name="auc", **options):
        super().__init__(10_001, name=name, **options)

    def update_state(self, labels, logits, sample_weight=None):
        return super().update_state(labels, ops.sigmoid(ops.cast(logits, "float32") / 4), sample_weight)


@keras.saving.register_keras_serializable("kerasbert")
class Discriminator(Objective):
    """Predicts for every token whether it is original or replaced (Clark et al. 2020, arXiv 2003.10555).

    `ReplacedTokenDetection` trains this model, and released discriminators load as it. It can also be trained alone, on
    tokens that were replaced in any other way.

    Args:
        backbone: a backbone with a `replaced_token` head.
        masked_lm: also predict the original token at every position, for All-Tokens MLM.
        tokenizer: for text.

    Call:
        inputs: a batch.

    Returns: logits, float (b, s), high where a token was replaced; with `masked_lm` a dict of these logits, `replaced`,
        and of `tokens` (b, s, v). The targets y are int32 (b, s): 1 where a token was replaced, or with `masked_lm` the
        original tokens.
    """

    def __init__(self, backbone, masked_lm=False, tokenizer=None, **kwargs):
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

    def score_tokens(self, texts):
        """The probability that each token of each text is a replacement.

        Args:
            texts: a str or a list of str.

        Returns: for each text a list of {"token", "score"}, score in [0, 1]; for a single str, just its list.
        """
        tokenizer = self.require_tokenizer()
        check_texts(texts, "score_tokens")
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
    """The likelier of the input token and the best predicted token at every position: int32 (b, s)."""
    best = ops.cast(ops.argmax(outputs["tokens"], axis=-1), token_ids.dtype)
    copied = copy_cross_entropy(outputs["tokens"], outputs["replaced"], token_ids, token_ids)
    predicted = copy_cross_entropy(outputs["tokens"], outputs["replaced"], token_ids, best)
    return ops.where(copied <= predicted, token_ids, best)
