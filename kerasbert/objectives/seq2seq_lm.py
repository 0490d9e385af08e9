"""Sequence-to-sequence language modeling: predicts a target text token by token from a source text."""

from collections.abc import Sequence
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..data import Seq2SeqBatches, Seq2SeqLayout
from ..data.batches.seq2seq import source_ids
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from .next_token import NextToken
from .scoring import answer_scores


@keras.saving.register_keras_serializable("kerasbert")
class Seq2SeqLM(NextToken):
    """Predicts each token of a target from the source and the preceding target tokens.

    Vaswani et al. 2017, arXiv 1706.03762, section 3. The decoder reads the start token followed by the targets. The
    target y at each position is the next token. Label smoothing and z-loss apply to training only. Evaluation, accuracy
    and perplexity use the plain cross-entropy.

    Args:
        backbone: an encoder-decoder with a `seq2seq_lm` head.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        label_smoothing: probability that the target distribution spreads evenly over the vocabulary, 0.1 in Vaswani et
            al. 2017 (Szegedy et al. 2015, arXiv 1512.00567).
        z_loss: factor of log(Z) ** 2 in the loss, where Z is the sum of the exponentiated logits, 1e-4 in T5's code.

    Call:
        inputs: a batch with `token_ids` and `decoder_token_ids`.

    Returns: logits, float (b, t, v).

    Raises:
        ValueError: if the backbone has no `seq2seq_lm` head, `label_smoothing` is not from 0 to below 1, `z_loss` is
            below 0, or `generation` has an unknown setting.

    Example:
        >>> from kerasbert.data import Tokenizer
        >>> from kerasbert.models import Transformer, TransformerConfig
        >>> from kerasbert.objectives import Seq2SeqLM
        >>> from kerasbert.training import adamw
        >>> sources, targets = ["one cat", "two dogs"] * 8, ["eine Katze", "zwei Hunde"] * 8
        >>> tokenizer = Tokenizer.train("wordpiece", sources + targets, vocabulary_size=40)
        >>> sizes = dict(num_layers=1, num_heads=2, hidden_dim=32, feed_forward_dim=32)
        >>> model = Seq2SeqLM(Transformer(TransformerConfig(40, eos_id=tokenizer.sep_id, **sizes)), tokenizer=tokenizer)
        >>> model.compile(adamw(learning_rate=1e-2))
        >>> history = model.fit(sources, targets, batch_size=16, epochs=25, verbose=0)
        >>> model.generate(["one cat", "two dogs"], max_new_tokens=12)
        ['eine Katze', 'zwei Hunde']
    """

    SAVES = ("label_smoothing", "z_loss")
    SAVED_AS = {"label_smoothing": Saved(float, 0, 1)}

    hub_task = "text2text-generation"
    example_call = 'model.generate(["A first text.", "A second text."], max_new_tokens=64)'
    continues = False

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        if not 0 <= label_smoothing < 1 or not z_loss >= 0:
            raise ValueError(
                "`label_smoothing` must be from 0 to below 1, and `z_loss` at least 0. Received: "
                f"label_smoothing={label_smoothing}, z_loss={z_loss}."
            )
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.seq2seq_lm = backbone.make_head("seq2seq_lm")
        self.build_now()

    def call(self, inputs):
        return self.seq2seq_lm(self.backbone(inputs)["sequence_output"], self.backbone.token_table)

    def default_weights(self, x, y):
        real = real_tokens(x, "decoder_")
        return ops.ones_like(y) if real is None else real

    def training_losses(self, losses, logits):
        if not self.label_smoothing and not self.z_loss:
            return losses
        logits = ops.cast(logits, "float32")
        log_z = ops.logsumexp(logits, axis=-1)
        even = log_z - ops.mean(logits, axis=-1)
        losses = (1 - self.label_smoothing) * losses + self.label_smoothing * even
        return losses + self.z_loss * ops.square(log_z)

    # === Generation ===

    @property
    def start_id(self) -> int:
        """Id of the token with which the decoder starts.

        Raises:
            ValueError: if the config has no `decoder_start_id`.
        """
        found = self.backbone.config.decoder_start_id
        if found is None:
            raise ValueError(
                "The decoder must start with a token. Received: decoder_start_id=None in the config. The first mBART "
                "starts with the code of the target language: from_preset(path, decoder_start_id=...)."
            )
        return found

    @property
    def first_target_id(self) -> int | None:
        """Id of the token that every target has before its text, or None."""
        return getattr(self.backbone.config, "first_target_id", None)

    @property
    def _longest_text(self):
        """Maximum number of tokens of sources and targets that are given as texts, or None."""
        limits = self.require_tokenizer().max_length, self.backbone.position_limit
        return min((limit for limit in limits if limit is not None), default=None)

    def encode_prompts(self, texts):
        return source_ids(texts, self.require_tokenizer(), self._longest_text)

    def decoder_prompts(self, ids):
        size, limit = self.backbone.config.vocabulary_size, self.backbone.position_limit
        for number, row in enumerate(ids):
            if not len(row):
                raise ValueError(f"A source must have at least one token. Received: source {number} is empty.")
            if limit is not None and len(row) > limit:
                raise ValueError(
                    f"A source must have at most {limit} tokens, the size of the position table. Received: source "
                    f"{number} of {len(row)} tokens. Truncate it."
                )
            if row.min() < 0 or row.max() >= size:
                wrong = row.max() if row.max() >= size else row.min()
                raise ValueError(f"Token ids must be between 0 and {size - 1}. Received: {wrong}.")
        lengths = np.array([len(row) for row in ids], "int32")
        token_ids = np.zeros((len(ids), lengths.max(initial=0)), "int32")
        for row, source in zip(token_ids, ids, strict=True):
            row[: len(source)] = source
        start = np.array([self.start_id], "int32")
        return [start] * len(ids), {"token_ids": token_ids, "lengths": lengths}

    def start_cache(self, context, batch_size, length):
        """Returns the cache for decoding; see `generation.decoding`."""
        return self.backbone.start_cache(context, batch_size, length)

    def next_logits(self, inputs, cache):
        """Returns (logits of the next token, float (b, v), next cache); see `generation.decoding`."""
        outputs = self.backbone({f"decoder_{key}": value for key, value in inputs.items()}, cache=cache)
        logits = self.seq2seq_lm(outputs["sequence_output"][:, -1:], self.backbone.token_table)
        return logits[:, 0], outputs["cache"]

    # === Text ===

    @overload
    def score(self, texts: str, contexts: str | None = ..., batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def score(
        self, texts: Sequence[str], contexts: str | Sequence[str] | None = ..., batch_size: int = ...
    ) -> list[dict[str, Any]]: ...

    def score(self, texts: str | Sequence[str], contexts: str | Sequence[str] | None = None, batch_size: int = 32):
        """Computes log probabilities of targets. Each token is predicted from the source and the tokens before it.

        Args:
            texts: the targets, a str or a list of str. Their end token is scored too.
            contexts: the sources, which are required: one str for all targets, or a list with one str per target.
            batch_size: maximum number of texts per batch.

        Returns: for each text, a dict of "score", the sum of the log probabilities in nats, "tokens", the number of
            tokens, "perplexity", exp(-score / tokens), and "token_scores", the list of the log probabilities. For a
            single str, only the dict of this text is returned.

        Raises:
            ValueError: if `contexts` are missing or not one per text, a text is too long, or there is no tokenizer.
        """
        return answer_scores(self, texts, contexts, batch_size)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `Seq2SeqBatches` for lists of sources x and targets y.

        Texts are truncated to the maximum length of the tokenizer.
        """
        if y is None:
            raise ValueError(
                "Sequence-to-sequence modeling needs targets. Received: sources alone. To generate, use generate(x)."
            )
        tokenizer = self.require_tokenizer()
        if tokenizer.family == "mbart50" and self.first_target_id is None:
            raise ValueError(
                "Targets of mBART-50 begin with the code of their language. Received: forced_bos_id=None in the "
                "config. Use from_preset(path, forced_bos_id=tokenizer.id(code)), with a code such as 'ro_RO'."
            )
        layout = Seq2SeqLayout(
            length=self._longest_text,
            target_length=self._longest_text,
            num_buckets=min(4, 1 + len(x) // (16 * batch_size)) if shuffle else 1,
            start_id=self.start_id,
            end_id=next(iter(self.default_stop_ids()), None),
            first_id=self.first_target_id,
            last_id=getattr(self.backbone.config, "last_target_id", None),
        )
        seed = seed if shuffle else None
        return Seq2SeqBatches(
            x, y, tokenizer, batch_size, layout, sample_weight=sample_weight, epochs=epochs, seed=seed
        )

    # === Checks and configuration ===

    def example_inputs(self):
        inputs = super().example_inputs()
        return {**inputs, "decoder_token_ids": inputs["token_ids"]}

    def target_shapes(self, x):
        return {"tokens": x["decoder_token_ids"].shape}

    def check_batch(self, x, y=None, sample_weight=None):
        if isinstance(x, dict) and x.get("decoder_token_ids") is None:
            learns = "" if y is None else " Training needs them: without them, the encoder would read the targets."
            raise ValueError(
                "A sequence-to-sequence model predicts the token after each of the `decoder_token_ids`, which begin "
                f"with the start token {self.backbone.config.decoder_start_id}.{learns} Received: "
                f"{', '.join(sorted(x))}. "
                'Use `Seq2SeqBatches`, or `DenoisingBatches` with layout="encoder_decoder"; only generate(sources) '
                "works without them."
            )
        super().check_batch(x, y, sample_weight)
