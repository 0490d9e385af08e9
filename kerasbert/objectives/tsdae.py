"""TSDAE: a text is restored from the embedding of what is left of it when most words are deleted."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from ..backend.compilation import concrete_array
from ..backend.rematerialization import is_rematerialized
from ..core.initializers import truncated_normal
from ..data import Corpus, TSDAEBatches
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.masks import AttentionMask
from ..models.backbone import Backbone
from .objective import Objective, Perplexity, WeightedMean, check_labels, cross_entropy, predicted_correctly
from .retro_mae import block_config, check_encoder, check_first_tokens


class EmbeddingAttention(Composite):
    """Cross-attention whose only key is the embedding of a text, so that each token reads a projection of its value.

    The softmax over one key is 1 whatever queries and keys are, so there are no layers for them.

    Args:
        config: a `BertConfig` with the width of the embedding, the dropout and the initializer.
        width: width n of the residual stream.
        post_norm: whether the sum with the residual stream is normalized, as in BERT.

    Call:
        x: float (b, t, n), the residual stream, or what will be added to it.
        embedding: float (b, 1, m).

    Returns: float (b, t, n).
    """

    def __init__(self, config, width, post_norm, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=truncated_normal(config.initializer_range), **common)
        self.value = Dense(width, name="value", **dense)
        self.project = Dense(width, name="project", **dense)
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.norm = None
        if post_norm:
            self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)

    def call(self, x, embedding):
        y = ops.broadcast_to(self.project(self.value(embedding)), ops.shape(x))
        x = x + self.dropout(y)
        return x if self.norm is None else self.norm(x)


class CrossAttentions(Composite):
    """The `EmbeddingAttention` of each block.

    Args:
        config: a `BertConfig`; see `EmbeddingAttention`.
        widths, post_norms: the arguments `width` and `post_norm` of each layer.

    Call:
        embedding: float (b, 1, m).

    Returns: list of what each layer adds to zeros, float (b, 1, width). The call serves to build all layers.
    """

    def __init__(self, config, widths, post_norms, **kwargs):
        super().__init__(**kwargs)
        self.parts = [
            EmbeddingAttention(config, width, post_norm, name=f"block_{i}", dtype=self.dtype_policy)
            for i, (width, post_norm) in enumerate(zip(widths, post_norms, strict=True))
        ]

    def call(self, embedding):
        shape: Any = ops.shape(embedding)
        return [part(ops.zeros((*shape[:2], part.value.units), embedding.dtype), embedding) for part in self.parts]


def attention_blocks(backbone: Backbone) -> list:
    """Returns the blocks of a backbone that have an attention layer, each once.

    Raises: ValueError if some stage has none, or more than one, or a layer other than attention that reads neighbors.
    """
    stages = backbone.stages() or [()]
    found = [[layer for layer in stage if hasattr(layer, "attention")] for stage in stages]
    name = type(backbone).__name__
    if any(len(stage) > 1 for stage in found) or not any(found) or not found[0]:
        raise ValueError(f"TSDAE needs a backbone whose `blocks` have a layer `attention` each. Received: a {name}.")
    if getattr(backbone.config, "convolution_width", 0):
        raise ValueError(
            f"The decoder of TSDAE must not read later tokens. Received: a {name} with a convolution over neighbors. "
            "Use convolution_width=0."
        )
    return [layer for stage in found for layer in stage]


@contextlib.contextmanager
def reading(blocks: list, layers: list, embedding: Any) -> Iterator[None]:
    """Context manager in which the blocks of an encoder are those of a decoder that reads an embedding.

    Attention is causal, and is followed by cross-attention. In blocks with post-norm, whose class says after which
    sublayer (`AFTER_ATTENTION`), it reads the normalized stream; otherwise, its result is added to that of attention.

    Args:
        blocks: the result of `attention_blocks`.
        layers: the `EmbeddingAttention` of each block.
        embedding: float (b, 1, m).
    """
    replaced: dict = {}

    def replace(layer, make):
        replaced.setdefault(id(layer), (layer, vars(layer).get("call")))
        layer.call = functools.wraps(layer.call)(make(layer.call))

    def causal(call):
        return lambda *args, attention_mask=None, **kwargs: call(
            *args, attention_mask=(attention_mask or AttentionMask()).replace(causal=True), **kwargs
        )

    if any(is_rematerialized(block) for block in blocks):
        raise ValueError(
            "Layers of TSDAE are called in two ways, so their activations cannot be recomputed. Received: a "
            "backbone with rematerialization. Train it without."
        )
    try:
        for block, cross in zip(blocks, layers, strict=True):
            after = getattr(block, "AFTER_ATTENTION", None)
            if after is None:
                replace(block.attention, functools.partial(_added, causal, cross, embedding))
            else:
                replace(block.attention, causal)
                replace(getattr(block, after), functools.partial(_followed, cross, embedding))
        yield
    finally:
        for layer, before in replaced.values():
            if before is None:
                del layer.call
            else:
                layer.call = before


def _added(causal, cross, embedding, call):
    """Returns an attention layer's causal `call` that adds what cross-attention reads."""
    attend = causal(call)

    def added(*args, **kwargs):
        y, extras = attend(*args, **kwargs)
        return cross(y, embedding), extras

    return added


def _followed(cross, embedding, call):
    """Returns a norm's `call` that is followed by cross-attention."""
    return lambda *args, **kwargs: cross(call(*args, **kwargs), embedding)


@keras.saving.register_keras_serializable("kerasbert")
class TSDAE(Objective):
    """Trains the output at the first token to be an embedding of the text (Wang et al. 2021, arXiv 2104.06979).

    The encoder reads what is left of a text when most of its words are deleted. Its output at the first token is the
    embedding. A decoder predicts each token of the whole text from the tokens before it and from the embedding, which
    is the only key of its cross-attention. The decoder has all weights of the encoder and of its masked LM head. Only
    the cross-attention is new. It has one layer for each block of the encoder that has its own weights.

    Saved folders are folders of a `MaskedLM`, without the cross-attention. A `TextEmbedder` with pooling="cls" starts
    from them. The checkpoints of runs contain the cross-attention.

    Args:
        backbone: an encoder with a `masked_lm` head.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch of `TSDAEBatches`.

    Returns: logits, float (b, t, v). The targets y are int32 (b, t).

    Raises:
        ValueError: if the backbone is causal, does not predict masked tokens, or has blocks without one attention layer
            each. In training, if its layers are rematerialized.

    Example:
        >>> from kerasbert.data import Corpus, TSDAEBatches
        >>> from kerasbert.objectives import TSDAE
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = TSDAE.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> history = model.fit(TSDAEBatches(corpus, batch_size=4, length=16, steps=2), verbose=0)
        >>> model.save_to_preset("saved_models/tsdae")
        >>> TextEmbedder.from_preset("saved_models/tsdae", pooling="cls").embed(["A cat sat."]).shape
        (1, 256)
    """

    TRAINING_ONLY = ("cross_attention",)
    default_learning_rate = 3e-5

    extra_inputs = ("decoder_token_ids",)

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        check_encoder(backbone, "TSDAE")
        super().__init__(backbone, tokenizer, **kwargs)
        config = block_config(backbone.config)
        self.masked_lm = backbone.make_head("masked_lm")
        blocks = attention_blocks(backbone)
        self.cross_attention = CrossAttentions(
            config,
            tuple(block.attention.project.units for block in blocks),
            tuple(hasattr(block, "AFTER_ATTENTION") for block in blocks),
            name="cross_attention",
            dtype=self.dtype_policy,
        )
        self.accuracy = WeightedMean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")
        self.build_now()

    def example_inputs(self):
        inputs = super().example_inputs()
        return {**inputs, "decoder_token_ids": inputs["token_ids"]}

    def call(self, inputs):
        embedding = self.backbone.summarize(self.inputs_of_backbone(inputs))["sequence_output"][:, :1]
        x = self.decode(inputs["decoder_token_ids"], embedding)
        return self.masked_lm(x, self.backbone.token_table)

    def decode(self, token_ids: Any, embedding: Any) -> Any:
        """Returns the outputs of the decoder, float (b, t, m).

        Args:
            token_ids: int32 (b, t), the tokens that it reads.
            embedding: float (b, 1, m), the embedding of each text.
        """
        if not self.cross_attention.built:
            self.cross_attention(embedding)  # outside of the blocks, whose names its weights would have otherwise
        with reading(attention_blocks(self.backbone), self.cross_attention.parts, embedding):
            return self.backbone({"token_ids": token_ids})["sequence_output"]

    def compute_loss(self, x: Any = None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = cross_entropy(y_pred, y)
        weights: Any = ops.ones_like(losses) if sample_weight is None else ops.cast(sample_weight, "float32")
        weights = ops.broadcast_to(weights[:, None] if len(weights.shape) == 1 else weights, ops.shape(losses))
        self.perplexity.update_state(losses, weights)
        self.accuracy.update_state(predicted_correctly(y_pred, y), weights)
        return self.mean_loss(x, losses, weights)

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `TSDAEBatches` for texts, each of which is one document."""
        if y is not None:
            raise ValueError("The targets of TSDAE are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(self.backbone.config.max_length, 128)
        once = TSDAEBatches(corpus, batch_size, length, seed)
        return once if epochs == 1 else TSDAEBatches(corpus, batch_size, length, seed, steps=len(once) * epochs)

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {"tokens": x["decoder_token_ids"].shape}

    def check_batch(self, x, y=None, sample_weight=None):
        if isinstance(x, dict) and x.get("decoder_token_ids") is None:
            raise ValueError(
                "TSDAE needs `decoder_token_ids`, the whole texts but their last token. Received: "
                f"{', '.join(sorted(x))}. Use TSDAEBatches."
            )
        super().check_batch(x, y, sample_weight)
        check_first_tokens(x, "TSDAE")
        size = self.backbone.config.vocabulary_size
        check_labels(y, size)
        check_labels(concrete_array(x["decoder_token_ids"]), size)
        self.backbone.check_length({"token_ids": x["decoder_token_ids"]})

    def variant(self):
        return "MaskedLM"
