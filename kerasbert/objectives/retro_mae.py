"""RetroMAE: an encoder learns embeddings from which a weak decoder can restore the text."""

from typing import Any

import keras
from keras import ops

from ..backend.compilation import concrete_array
from ..checkpoints.arguments import Saved
from ..core.initializers import normal
from ..data import RetroMAEBatches
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import gather_positions
from ..layers.masks import AttentionMask, real_tokens
from ..layers.positions import token_positions
from ..models.backbone import Backbone
from ..models.bert import BertBlock, BertConfig
from .masked_lm import masked_batches
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

PADDING_LOGIT = -1_000.0  # in the maximum over the tokens of a row, as in the official code


class RetroMAEDecoder(BertBlock):
    """A block of BERT whose queries are not its keys and values, so that no position reads its own token.

    Args:
        config: a config with BERT's fields.

    Call:
        x: float (b, s, m), the queries, to which the output of attention is added.
        context: float (b, s, m), from which keys and values are computed.
        attention_mask: an `AttentionMask`.

    Returns: float (b, s, m).
    """

    def call(self, x, context, attention_mask):
        y, _ = self.attention(x, context, attention_mask=attention_mask)
        x = self.attention_norm(x + self.attention_output_dropout(y))
        return self.feed_forward_norm(x + self.feed_forward_dropout(self.feed_forward(x)))


def block_config(config: Any) -> BertConfig:
    """Returns the config of a block of BERT with the sizes, dropout and initializer of any family's config."""
    fields = ("hidden_dim", "num_heads", "feed_forward_dim", "activation", "layer_norm_epsilon", "initializer_range")
    found = {name: getattr(config, name) for name in fields if getattr(config, name, None) is not None}
    rates = {name: getattr(config, name, 0.0) for name in ("dropout", "attention_dropout")}
    return BertConfig(**{"feed_forward_dim": 4 * config.hidden_dim, **found, **rates})


def check_encoder(backbone: Any, objective: str) -> None:
    """Raises a ValueError unless a backbone reads whole texts, and embeds each token by itself.

    Args:
        backbone: the backbone.
        objective: the name of the objective, for the message.
    """
    if not isinstance(backbone, Backbone):
        return  # which the base class refuses
    name = type(backbone).__name__
    if "masked_lm" not in backbone.family.heads or getattr(backbone, "predicts_next", False):
        raise ValueError(
            f"{objective} needs an encoder that predicts masked tokens, such as Bert or ModernBert. Received: {name}."
        )
    if getattr(backbone.config, "causal", False):
        raise ValueError(f"{objective} needs an encoder. Received: a {name} with causal=True. Use causal=False.")
    if backbone.embeds_neighbors:
        raise ValueError(
            f"{objective} needs a backbone that embeds each token by itself, or hidden tokens would be seen in the "
            f"embeddings of their neighbors. Received: a {name} that embeds neighbors, too. Use "
            "trigram_input=False."
        )


def bag_of_words_losses(logits: Any, token_ids: Any, counted: Any) -> Any:
    """Computes the negative log likelihood of the words of each row, without their order.

    Each distinct token among the n counted ones of a row has the weight 1 / n (Xiao et al. 2023, arXiv 2305.02564).

    Args:
        logits: float (b, v), one distribution per row.
        token_ids: int32 (b, s).
        counted: bool (b, s), False at tokens that do not count.

    Returns: float32 (b,), in nats, 0 for rows without counted tokens.
    """
    logits = ops.cast(logits, "float32")
    ids: Any = ops.cast(token_ids, "int32")
    log_z: Any = ops.logsumexp(logits, axis=-1, keepdims=True)
    losses = log_z - ops.take_along_axis(logits, ids, axis=1)
    columns: Any = ops.arange(ids.shape[1], dtype="int32")
    earlier: Any = columns[None, :] < columns[:, None]
    repeated = ops.any((ids[:, :, None] == ids[:, None, :]) & counted[:, None, :] & earlier[None], axis=-1)
    weights = ops.cast(ops.logical_and(counted, ops.logical_not(repeated)), "float32")
    number = ops.sum(ops.cast(counted, "float32"), axis=1)
    total: Any = ops.sum(weights * losses, axis=1)
    return total / ops.maximum(number, 1.0)


@keras.saving.register_keras_serializable("kerasbert")
class RetroMAE(Objective):
    """Trains the output at the first token to be an embedding of the text (Xiao et al. 2022, arXiv 2205.12035).

    The encoder predicts masked tokens, as in masked language modeling. A decoder of one block then predicts every token
    of the text. Its queries are the encoder's output h at the first token plus the embedding of each position. Its keys
    and values are h and the embeddings of the tokens that the position may see ("enhanced decoding"). The loss is the
    sum of both mean losses. With `bag_of_words_weight`, the words of the text are also predicted from the largest
    logits of the encoder at its tokens (DupMAE, Xiao et al. 2023, arXiv 2305.02564). This adds DupMAE's loss alone: its
    authors' code also passes h and the positions of a query through the norm and the dropout of the embeddings.

    The decoder has the token embeddings and the head of the encoder. Saved folders are folders of a `MaskedLM`, without
    the decoder. A `TextEmbedder` with pooling="cls" starts from them. The checkpoints of runs contain the decoder.

    If the backbone has no table of position embeddings of width m, the decoder has one. If the family adds no positions
    to the embeddings at all, this table is also added to the keys and values.

    Args:
        backbone: an encoder with a `masked_lm` head.
        bag_of_words_weight: weight of the third loss, 0.1 in DupMAE, 0 in RetroMAE.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch of `RetroMAEBatches`.

    Returns: a dict of the logits `tokens` (b, p, v) and `decoder` (b, s, v), and if it has a weight `bag_of_words`
        (b, v). Without `decoder_token_ids`, `decoder` is missing. The targets y are a dict of `tokens`, int32 (b, p),
        and `decoder`, int32 (b, s).

    Raises:
        ValueError: if the backbone is causal, does not predict masked tokens, or embeds a token with its neighbors, or
            if `bag_of_words_weight` is below 0.

    Example:
        >>> from kerasbert.data import Corpus, RetroMAEBatches
        >>> from kerasbert.objectives import RetroMAE
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = RetroMAE.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> history = model.fit(RetroMAEBatches(corpus, batch_size=4, length=16, steps=2), verbose=0)
        >>> model.save_to_preset("saved_models/retromae")
        >>> TextEmbedder.from_preset("saved_models/retromae", pooling="cls").embed(["A cat sat."]).shape
        (1, 256)
    """

    SAVES = ("bag_of_words_weight",)
    SAVED_AS = {"bag_of_words_weight": Saved(float, 0.0)}
    TRAINING_ONLY = ("decoder", "decoder_positions")

    extra_inputs = ("decoder_token_ids", "decoder_visible")

    def __init__(
        self,
        backbone: Backbone,
        bag_of_words_weight: float = 0.0,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        check_encoder(backbone, "RetroMAE")
        if not bag_of_words_weight >= 0:
            raise ValueError(f"`bag_of_words_weight` must be at least 0. Received: {bag_of_words_weight}.")
        super().__init__(backbone, tokenizer, **kwargs)
        config = block_config(backbone.config)
        common: dict[str, Any] = {"dtype": self.dtype_policy}
        self.bag_of_words_weight = float(bag_of_words_weight)
        self.masked_lm = backbone.make_head("masked_lm")
        self.decoder = RetroMAEDecoder(config, name="decoder", **common)
        self.decoder_positions = None
        table = backbone.position_table
        if table is None or table.output_dim != config.hidden_dim:
            start: Any = normal(config.initializer_range)
            self.decoder_positions = keras.layers.Embedding(
                backbone.config.max_length,
                config.hidden_dim,
                name="decoder_positions",
                embeddings_initializer=start,
                **common,
            )
        for name in ("accuracy", "decoder_accuracy"):
            setattr(self, name, WeightedMean(name=name))
        for name in ("perplexity", "decoder_perplexity"):
            setattr(self, name, Perplexity(name=name))
        self.bag_of_words_loss = WeightedMean(name="bag_of_words_loss") if self.bag_of_words_weight else None
        self.build_now()

    def example_inputs(self):
        inputs = super().example_inputs()
        length = inputs["token_ids"].shape[1]
        return {
            **inputs,
            "decoder_token_ids": inputs["token_ids"],
            "decoder_visible": ops.ones((1, length, length), "bool"),
        }

    def call(self, inputs):
        x = self.backbone(self.inputs_of_backbone(inputs))["sequence_output"]
        table, slots, outputs = self.backbone.token_table, inputs.get("masked_positions"), {}
        predicting = x if slots is None or self.bag_of_words_weight else gather_positions(x, slots)
        outputs["tokens"] = logits = self.masked_lm(predicting, table)
        if self.bag_of_words_weight:
            outputs["tokens"] = logits if slots is None else gather_positions(logits, slots)
            outputs["bag_of_words"] = self._largest_logits(logits, inputs)
        if inputs.get("decoder_token_ids") is not None:
            outputs["decoder"] = self.masked_lm(self.decode(inputs, x[:, :1]), table)
        return outputs

    def decode(self, inputs: dict[str, Any], embedding: Any) -> Any:
        """Returns the outputs of the decoder, float (b, s, m).

        Args:
            inputs: a batch with `decoder_token_ids` and `decoder_visible`.
            embedding: float (b, 1, m), the embedding of each text.
        """
        kept = ("lengths", "padding_mask", "segment_ids", "position_ids")
        tokens = {key: inputs[key] for key in kept if inputs.get(key) is not None}
        tokens["token_ids"] = inputs["decoder_token_ids"]
        context = self.backbone.embed_tokens(tokens)
        if self.decoder_positions is None:
            positions = self.backbone.position_vectors(tokens)
        else:
            positions = self.decoder_positions(token_positions(tokens))
            context = context + positions if self.backbone.position_table is None else context
        query = embedding + ops.cast(positions, embedding.dtype)
        context = ops.concatenate([embedding, context[:, 1:]], axis=1)
        visible: Any = ops.cast(inputs["decoder_visible"], "bool")
        mask = AttentionMask.from_inputs(tokens, allowed=visible[:, None])
        return self.decoder(query, context, attention_mask=mask)

    def _largest_logits(self, logits, inputs):
        """Returns the largest logit of each token of the vocabulary in each row, from position 1 on: float (b, v)."""
        real = real_tokens(inputs)
        later = logits[:, 1:]
        if real is not None:
            later = ops.where(real[:, 1:, None], later, ops.cast(PADDING_LOGIT, later.dtype))
        return ops.max(later, axis=1)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: Any = True
    ):
        weights = dict(sample_weight) if isinstance(sample_weight, dict) else dict.fromkeys(y, sample_weight)
        weights["tokens"] = slot_weights(x, y["tokens"], weights["tokens"])
        weights["decoder"] = self._decoder_weights(x, y["decoder"], weights["decoder"])
        total = 0.0
        for name, perplexity, accuracy in (
            ("tokens", self.perplexity, self.accuracy),
            ("decoder", self.decoder_perplexity, self.decoder_accuracy),
        ):
            losses = cross_entropy(y_pred[name], y[name])
            perplexity.update_state(losses, weights[name])
            accuracy.update_state(predicted_correctly(y_pred[name], y[name]), weights[name])
            total = total + self.mean_loss(x, losses, weights[name], name)
        if self.bag_of_words_loss is None:
            return total
        counted: Any = weights["decoder"] > 0
        losses = bag_of_words_losses(y_pred["bag_of_words"], y["decoder"], counted)
        rows = ops.cast(ops.any(counted, axis=1), "float32")
        self.bag_of_words_loss.update_state(losses, rows)
        return total + self.bag_of_words_weight * self.mean_loss(x, losses, rows, "bag_of_words")

    @staticmethod
    def _decoder_weights(x: Any, labels: Any, given: Any) -> Any:
        """Returns the weight of each token, float32 (b, s), which is 0 at padding. The default is 1."""
        real = real_tokens(x)
        weights: Any = ops.ones_like(labels, "float32") if real is None else ops.cast(real, "float32")
        if given is None:
            return weights
        each: Any = ops.cast(given, "float32")
        return weights * (each[:, None] if len(each.shape) == 1 else each)

    # === Text ===

    rows = "chunks"

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `RetroMAEBatches` for texts, each of which is one document."""
        arguments = self.require_tokenizer(), x, y, sample_weight, batch_size, epochs, seed, shuffle
        return masked_batches(self, *arguments, RetroMAEBatches)

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {"tokens": slot_shape(x), "decoder": x["token_ids"].shape}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        check_first_tokens(x, "RetroMAE")
        if (x.get("decoder_token_ids") is None) != (x.get("decoder_visible") is None) or (
            y is not None and x.get("decoder_visible") is None
        ):
            raise ValueError(
                "RetroMAE needs `decoder_token_ids`, the rows without masks, and `decoder_visible`, which says what "
                f"each of their positions sees. Received: {', '.join(sorted(x))}. Use RetroMAEBatches."
            )
        length = x["token_ids"].shape[1]
        for key, shape in (("decoder_token_ids", (length,)), ("decoder_visible", (length, length))):
            if x.get(key) is not None and tuple(x[key].shape[1:]) != shape:
                raise ValueError(
                    f"`{key}` must have the shape (b, {', '.join(map(str, shape))}), as `token_ids` are (b, {length}). "
                    f"Received: {tuple(x[key].shape)}."
                )
        if self.decoder_positions is not None and length is not None and length > self.decoder_positions.input_dim:
            raise ValueError(
                "Rows must not be longer than the position table of RetroMAE's decoder, "
                f"max_length={self.decoder_positions.input_dim}. Received: {length}. Use a config with a larger "
                "max_length."
            )
        for labels in y.values() if isinstance(y, dict) else ():
            check_labels(labels, self.backbone.config.vocabulary_size)
        check_labels(concrete_array(x.get("decoder_token_ids")), self.backbone.config.vocabulary_size)

    def variant(self):
        return "MaskedLM"


def check_first_tokens(x, objective):
    """Raises a ValueError for rows that are packed, or that have padding in front of the first token.

    Args:
        x: a batch.
        objective: the name of the objective that reads the first token, for the message.
    """
    if x.get("sequence_ids") is not None:
        raise ValueError(
            f"{objective} embeds one text per row. Received: packed rows (`sequence_ids`). Use other `rows`."
        )
    real = concrete_array(x.get("padding_mask"))
    if real is not None and (real.any(axis=1) & (real[:, 0] == 0)).any():
        raise ValueError(
            f"{objective} reads the output at position 0, which must be the first token. Received: rows with padding "
            'on the left. Set tokenizer.padding_side = "right".'
        )
