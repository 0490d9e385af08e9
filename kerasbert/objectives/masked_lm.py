"""Masked language modeling, optionally together with a sentence-pair target as in BERT."""

from collections.abc import Sequence
from typing import Any, overload

import keras
from keras import ops

from ..data import MaskedLMBatches
from ..data.corpus.corpus import Corpus
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from .mask_filling import fill_mask
from .objective import (
    Objective,
    Perplexity,
    WeightedMean,
    check_labels,
    cross_entropy,
    predicted_correctly,
    slot_shape,
    slot_weights,
)
from .scoring import pseudo_log_likelihoods


def masked_batches(
    model, tokenizer, x, y, sample_weight, batch_size, epochs, seed, shuffle, batches=MaskedLMBatches, **further
):
    """Returns batches with masked tokens for a list of texts.

    Args:
        model: the `MaskedLM` that the batches are for.
        tokenizer: a `Tokenizer` with the vocabulary of the model.
        x: the texts, each of which is one document.
        y, sample_weight, batch_size, epochs, seed, shuffle: arguments of `fit`.
        batches: the class of the batches.
        **further: further arguments of the class.
    """
    if y is not None:
        raise ValueError("The targets of masked language modeling are in the text. Received: y. Drop it.")
    corpus = Corpus.in_memory(x, tokenizer)
    options: dict[str, Any] = dict(length=min(model.backbone.config.max_length, 128), seed=seed, rows=model.rows)
    once = batches(corpus, batch_size, **options, **further)
    return once if epochs == 1 else batches(corpus, batch_size, steps=len(once) * epochs, **options, **further)


@keras.saving.register_keras_serializable("kerasbert")
class MaskedLM(Objective):
    """Predicts masked tokens from the context on both sides (Devlin et al. 2018, arXiv 1810.04805, section 3.1).

    Hidden states are gathered at the `masked_positions` before the output layer, whose weights are the token
    embeddings. With `sentence_pair`, the model also predicts from the pooled output whether segment B follows segment A
    (label 0) or not (label 1). This is next sentence prediction in BERT, and sentence order prediction in ALBERT. The
    loss is then the sum of the mean losses of both targets.

    Args:
        backbone: a backbone with a `masked_lm` head, and a `sentence_pair` head if `sentence_pair` is True.
        sentence_pair: whether to train the sentence-pair target as well.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. Without `masked_positions`, all positions are predicted.

    Returns: logits, float (b, p, v). With `sentence_pair`, a dict of the logits `tokens` (b, p, v) and `sentence_pair`
        (b, 2).

    Raises:
        ValueError: if the backbone has no `masked_lm` head, or `sentence_pair` needs a head or pooler that it lacks.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches
        >>> from kerasbert.objectives import MaskedLM
        >>> model = MaskedLM.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> history = model.fit(MaskedLMBatches(corpus, batch_size=4, length=16, steps=2), verbose=0)
        >>> answers = model.fill_mask("She opened the [MASK] and went out.", top_k=3)[0]
        >>> answers[0]["token"]
        'door'
        >>> model.save_to_preset("saved_models/cats")
    """

    reads_discriminators = False

    hub_task = "fill-mask"
    example_call = 'model.fill_mask("The cat {mask} on the mat.")'
    needs_mask_decoder = True

    def __init__(
        self, backbone: Backbone, sentence_pair: bool = False, tokenizer: Tokenizer | None = None, **kwargs: Any
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.masked_lm = backbone.make_head("masked_lm")
        self.sentence_pair = backbone.make_head("sentence_pair") if sentence_pair else None
        self.add_metrics()
        self.build_now()

    def add_metrics(self):
        """Creates the metrics, which Keras accepts only before the model is built."""
        self.accuracy = WeightedMean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")
        if self.sentence_pair is not None:
            self.sentence_pair_loss = WeightedMean(name="sentence_pair_loss")
            self.sentence_pair_accuracy = WeightedMean(name="sentence_pair_accuracy")

    def call(self, inputs):
        outputs, x = self.backbone.predict_from(inputs)
        logits = self.masked_lm(x, self.backbone.token_table)
        if self.sentence_pair is None:
            return logits
        return {"tokens": logits, "sentence_pair": self.sentence_pair(outputs)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        logits, labels, weights = y_pred, y, sample_weight
        if self.sentence_pair is not None:
            logits, labels = y_pred["tokens"], y["tokens"]
            weights = None if sample_weight is None else sample_weight["tokens"]
        weights = slot_weights(x, labels, weights)
        losses = cross_entropy(logits, labels)
        right = predicted_correctly(logits, labels)
        self.perplexity.update_state(losses, weights)
        self.accuracy.update_state(right, weights)
        loss = self.mean_loss(x, losses, weights, "tokens")
        if self.sentence_pair is not None:
            pair_weights = None if sample_weight is None else sample_weight["sentence_pair"]
            loss = loss + self._pair_loss(x, y["sentence_pair"], y_pred["sentence_pair"], pair_weights)
        return loss

    def _pair_loss(self, x, labels, logits, weights):
        losses = cross_entropy(logits, labels)
        weights = ops.ones_like(losses) if weights is None else ops.cast(weights, "float32")
        right = predicted_correctly(logits, labels)
        self.sentence_pair_loss.update_state(losses, weights)
        self.sentence_pair_accuracy.update_state(right, weights)
        return self.mean_loss(x, losses, weights, "sentence_pair")

    # === Text ===

    @overload
    def fill_mask(self, texts: str, top_k: int = ...) -> list[list[dict[str, Any]]]: ...

    @overload
    def fill_mask(self, texts: Sequence[str], top_k: int = ...) -> list[list[list[dict[str, Any]]]]: ...

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5):
        """Predicts the most likely tokens for each mask token in each text.

        Args:
            texts: a str or a list of str with the tokenizer's mask token, such as "Paris is the [MASK] of France."
            top_k: number of candidates per mask token.

        Returns: for each text, a list with one entry per mask token. Each entry is a list of dicts {"token": str,
            "score": probability, "id": token id}, with the most likely token first. For a single str, only the list of
            this text is returned.

        Raises:
            ValueError: if a text has no mask token within the maximum length, `top_k` is below 1, or the model has no
                tokenizer.
        """
        return fill_mask(self, texts, top_k)

    @overload
    def score(self, texts: str, within_words: bool = ..., batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def score(self, texts: Sequence[str], within_words: bool = ..., batch_size: int = ...) -> list[dict[str, Any]]: ...

    def score(self, texts: str | Sequence[str], within_words: bool = False, batch_size: int = 32):
        """Computes pseudo-log-likelihoods of texts (Salazar et al. 2020, arXiv 1910.14659).

        Each token in turn is masked, and its log probability is computed from all other tokens, so a text of n tokens
        takes n rows. Special tokens are not scored.

        Args:
            texts: a str or a list of str.
            within_words: whether to also mask the later tokens of the same word, so that a token is not predicted from
                the rest of its word (Kauf, Ivanova 2023, arXiv 2305.10588).
            batch_size: maximum number of rows per batch.

        Returns: for each text, a dict of "score", the sum of the log probabilities in nats, "tokens", the number of
            tokens, "perplexity", exp(-score / tokens), and "token_scores", the list of the log probabilities. For a
            single str, only the dict of this text is returned.

        Raises:
            ValueError: if a text exceeds the positions of the backbone, or the tokenizer is missing or has no mask
                token.
        """
        return pseudo_log_likelihoods(self, texts, within_words, batch_size)

    @property
    def rows(self):
        """The argument `rows` of `MaskedLMBatches` for this model, which depends on whether it has sentence pairs."""
        return "chunks" if self.sentence_pair is None else self.backbone.pair_rows

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches with masked tokens for texts, each of which is one document; see `MaskedLMBatches`."""
        return masked_batches(self, self.require_tokenizer(), x, y, sample_weight, batch_size, epochs, seed, shuffle)

    # === Checks and configuration ===

    def target_shapes(self, x):
        shapes = {"tokens": slot_shape(x)}
        return shapes if self.sentence_pair is None else {**shapes, "sentence_pair": x["token_ids"].shape[:1]}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        check_labels(y["tokens"] if isinstance(y, dict) else y, self.backbone.config.vocabulary_size)

    def arguments(self):
        return {"sentence_pair": self.sentence_pair is not None}

    def variant(self):
        return "MaskedLM with sentence_pair" if self.sentence_pair is not None else "MaskedLM"

    @classmethod
    def needs_pooler(cls, family, settings):
        return settings.get("sentence_pair", False) and "sentence_pair" in family.pooled_heads
