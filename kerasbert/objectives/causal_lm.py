"""Causal language modelling: predicts each token from those before it."""

import functools

import keras
from keras import ops

from ..data import CausalLMBatches, StreamBatches
from ..data.corpus.corpus import Corpus
from ..layers.embeddings import gather_positions
from ..layers.masks import real_tokens
from .memory import StreamMemory, prepare_memory, run_backbone, start_memory
from .next_token import NextToken
from .scoring import causal_scores


@keras.saving.register_keras_serializable("kerasbert")
class CausalLM(NextToken):
    """Predicts every token from those before it (Radford et al. 2018, section 3.1), and thus generates text.

    The targets are shifted in the data: y at a position is the token that follows it. Tokens that `prefix_mask` marks
    are not targets, unless `sample_weight` makes them targets.

    With `stream_start` in a batch, a backbone with a memory keeps it across batches; see `objectives.memory`.

    Args:
        backbone: a backbone with a `causal_lm` head.
        tokenizer: for text.

    Call:
        inputs: a batch; without `masked_positions` every position is predicted.

    Returns: logits, float (b, s, v), or (b, p, v) with `masked_positions`. While training with a head that computes
        losses without logits (`AdaptiveSoftmax`), a dict of the `hidden` states from which it computes them.
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
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

    def compile(self, optimizer, loss=None, metrics=None, **kwargs):
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
        shown = ops.cast(x["prefix_mask"], "bool")[:, 1:]  # the next token is in the prefix, so it is not a target
        return weights & ops.logical_not(ops.pad(shown, ((0, 0), (0, 1))))

    # === Memory ===

    def start_memory(self, rows, training):
        """Prepares the memory for batches of `rows` rows. `fit`, `evaluate`, `predict` and the like call it.

        Args:
            rows: rows per batch. A memory with this number of rows is kept, any other is replaced by an empty one.
            training: True for the memory of training, False for that of evaluation and prediction.
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
        """The decoding cache; see `generation.decoding`."""
        return self.backbone.empty_cache(batch_size, length)

    def next_logits(self, inputs, cache):
        """(logits of the token after the last one, float (b, v); the next cache); see `generation.decoding`."""
        outputs = self.backbone(inputs, cache=cache)
        logits = self.causal_lm(outputs["sequence_output"][:, -1:], self.backbone.token_table)
        return logits[:, 0], outputs["cache"]

    # === Text ===

    def score(self, texts, contexts=None, batch_size=32):
        """Log probabilities of texts: the log probability of every token given those before it.

        Args:
            texts: a str or a list of str.
            contexts: what each text continues: one str for all texts, or a list with one per text. Without a context,
                the row begins with the tokenizer's start token, or with its end token if there is no start token; with
                neither, the first token is not scored.
            batch_size: maximum number of texts per batch.

        Returns: for each text {"score" (the sum, in nats), "tokens", "perplexity", "token_scores"}; for a single
            str, just its dict.
        """
        return causal_scores(self, texts, contexts, batch_size)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Chunks of texts, each one document, or streams for a memory; see `CausalLMBatches` and `StreamBatches`."""
        if y is not None:
            raise ValueError("The targets of causal language modelling are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(getattr(self.backbone.config, "max_length", None) or 128, 128)
        if self.memory is None:
            batches = functools.partial(CausalLMBatches, corpus, batch_size, length, seed=seed)
        else:
            batches = functools.partial(StreamBatches, corpus, batch_size, length)
        return batches() if epochs == 1 else batches(steps=len(batches()) * epochs)
