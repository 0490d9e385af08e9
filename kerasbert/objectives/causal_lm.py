"""Causal language modeling: predicts each token from the tokens before it."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, overload

import keras
from keras import ops

from ..data import CausalLMBatches, StreamBatches
from ..data.corpus.corpus import Corpus
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import gather_positions
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from .memory import StreamMemory, prepare_memory, run_backbone, start_memory
from .next_token import NextToken
from .scoring import causal_scores


@keras.saving.register_keras_serializable("kerasbert")
class CausalLM(NextToken):
    """Predicts each token from the tokens before it (Radford et al. 2018, section 3.1), and can generate text.

    The target y at a position is the next token: the targets are shifted in the data. Tokens of a prefix
    (`prefix_mask`) are not targets, unless `sample_weight` gives them a weight.

    If a batch has `stream_start`, a backbone with a memory carries it over to the next batch; see `objectives.memory`.

    Args:
        backbone: a backbone with a `causal_lm` head.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. Without `masked_positions`, all positions are predicted.

    Returns: logits, float (b, s, v), or (b, p, v) with `masked_positions`. During training with a head that computes
        losses directly (`AdaptiveSoftmax`), {"hidden": the hidden states from which the head computes the losses}.

    Raises:
        ValueError: if the backbone has no `causal_lm` head, or `generation` has an unknown setting.

    Example:
        >>> from kerasbert.data import CausalLMBatches, Corpus, Tokenizer
        >>> from kerasbert.models import GPT2, GPT2Config
        >>> from kerasbert.objectives import CausalLM
        >>> from kerasbert.training import adamw
        >>> tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g"] * 40, vocabulary_size=19)
        >>> model = CausalLM(GPT2(GPT2Config(19, num_layers=1, num_heads=2, hidden_dim=32)), tokenizer=tokenizer)
        >>> model.compile(adamw(learning_rate=1e-2))
        >>> corpus = Corpus.in_memory(["a b c d e f g"] * 40, tokenizer)
        >>> history = model.fit(CausalLMBatches(corpus, batch_size=8, length=16, steps=40), verbose=0)
        >>> model.generate("b c", max_new_tokens=3)
        'b c d e f'
    """

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(backbone, tokenizer, **kwargs)
        self.memory = None
        if hasattr(backbone, "empty_memory"):
            self.memory = StreamMemory(backbone.empty_memory, name="memory", dtype=self.dtype_policy)
        self.causal_lm = backbone.make_head("causal_lm")
        self.losses_alone = False
        self.build_now()

    def call(self, inputs, training=None):
        x = run_backbone(self, inputs, training)["sequence_output"]
        if inputs.get("masked_positions") is not None:
            x = gather_positions(x, inputs["masked_positions"])
        if training and self.losses_alone:
            return {"hidden": x}
        return self.causal_lm(x, self.backbone.token_table)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: None = None,
        metrics: Sequence | Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        super().compile(optimizer, loss, metrics, **kwargs)
        self.losses_alone = metrics is None and getattr(self.causal_lm, "takes_labels", False)

    def losses_and_hits(self, y_pred, y):
        if isinstance(y_pred, dict):
            return self.causal_lm(y_pred["hidden"], self.backbone.token_table, labels=y)
        return super().losses_and_hits(y_pred, y)

    def default_weights(self, x, y):
        if x.get("masked_positions") is not None:
            return x["masked_positions"] >= 0
        real = real_tokens(x)
        weights = ops.ones_like(y, "bool") if real is None else real
        if x.get("prefix_mask") is None:
            return weights
        shown = ops.cast(x["prefix_mask"], "bool")[
            :, 1:
        ]  # whether the next token is in the prefix, and is therefore not a target
        return weights & ops.logical_not(ops.pad(shown, ((0, 0), (0, 1))))

    # === Memory ===

    def start_memory(self, rows, training):
        """Prepares the memory for batches with `rows` rows. `fit`, `evaluate` and `predict` call this method.

        Args:
            rows: number of rows per batch. If the memory has another number of rows, it is replaced by an empty one.
            training: True for the memory of training, False for the memory of evaluation and prediction.
        """
        start_memory(self, rows, training)

    def prepare(self, batches, training):
        return prepare_memory(self, batches, training)

    # === Generation ===

    def decoder_prompts(self, ids):
        if not hasattr(self.backbone, "empty_cache"):
            raise ValueError(
                "Generation needs a causal backbone with a cache, such as GPT2. Received: a "
                f"{type(self.backbone).__name__}, which has no cache."
            )
        return super().decoder_prompts(ids)

    def start_cache(self, context, batch_size, length):
        """Returns the cache for decoding; see `generation.decoding`."""
        return self.backbone.empty_cache(batch_size, length)

    def next_logits(self, inputs, cache):
        """Returns (logits of the next token, float (b, v), next cache); see `generation.decoding`."""
        outputs = self.backbone(inputs, cache=cache)
        logits = self.causal_lm(outputs["sequence_output"][:, -1:], self.backbone.token_table)
        return logits[:, 0], outputs["cache"]

    # === Text ===

    @overload
    def score(self, texts: str, contexts: str | None = ..., batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def score(
        self, texts: Sequence[str], contexts: str | Sequence[str] | None = ..., batch_size: int = ...
    ) -> list[dict[str, Any]]: ...

    def score(self, texts: str | Sequence[str], contexts: str | Sequence[str] | None = None, batch_size: int = 32):
        """Computes log probabilities of texts. Each token is predicted from the tokens before it.

        Args:
            texts: a str or a list of str.
            contexts: text that precedes each of the texts and is not scored. It is one str for all texts, or a list
                with one str per text. A text without context is preceded by the tokenizer's start token, or by its end
                token if there is no start token. If there is neither, the first token is not scored.
            batch_size: maximum number of texts per batch.

        Returns: for each text, a dict of "score", the sum of the log probabilities in nats, "tokens", the number of
            tokens, "perplexity", exp(-score / tokens), and "token_scores", the list of the log probabilities. For a
            single str, only the dict of this text is returned.

        Raises:
            ValueError: if a text with its context exceeds the positions of the backbone, the numbers of texts and
                contexts differ, or the model has no tokenizer.
        """
        return causal_scores(self, texts, contexts, batch_size)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `CausalLMBatches` for texts, or `StreamBatches` if the model has a memory.

        Each text is one document.
        """
        if y is not None:
            raise ValueError("The targets of causal language modeling are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(getattr(self.backbone.config, "max_length", None) or 128, 128)
        if self.memory is None:
            batches = functools.partial(CausalLMBatches, corpus, batch_size, length, seed=seed)
        else:
            batches = functools.partial(StreamBatches, corpus, batch_size, length)
        return batches() if epochs == 1 else batches(steps=len(batches()) * epochs)
