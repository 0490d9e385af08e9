"""Permutation language modeling: predicts the tokens of a text in random order."""

from collections.abc import Sequence
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..data import PermutationLMBatches
from ..data.corpus.corpus import Corpus
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.memory import without_last
from ..models.backbone import Backbone
from .mask_filling import fill_mask
from .memory import StreamMemory, prepare_memory, run_backbone, start_memory
from .next_token import NextToken
from .objective import token_weights


@keras.saving.register_keras_serializable("kerasbert")
class PermutationLM(NextToken):
    """Predicts tokens in the order of a permutation, without masking (Yang et al. 2019, arXiv 1906.08237, section 2).

    Each token is predicted from the tokens before it in the permutation. The predictions are made by the query stream,
    which has access to the positions of the predicted tokens, but not to the tokens. The tokens at `masked_positions`
    are predicted, or all tokens if the batch does not have this key. If a batch has no permutation, there is no query
    stream, and the language model head reads the content stream.

    If a batch has `stream_start`, a backbone with a `memory_length` carries its memory over to the next batch; see
    `objectives.memory`.

    Args:
        backbone: a backbone with a `permutation_lm` head and a `query_output`, such as `XLNet`.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch.

    Returns: logits, float (b, p, v) at the `masked_positions`, or (b, s, v) without them.

    Raises:
        ValueError: if the backbone has no `permutation_lm` head, a batch has `masked_positions` but no permutation, or
            in training, a predicted token is visible to its own query.

    Example:
        >>> from kerasbert.data import Corpus, PermutationLMBatches, Tokenizer
        >>> from kerasbert.models import XLNet, XLNetConfig
        >>> from kerasbert.objectives import PermutationLM
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 20, tokenizer)
        >>> config = XLNetConfig(8192, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=32)
        >>> model = PermutationLM(XLNet(config), tokenizer=tokenizer)
        >>> history = model.fit(PermutationLMBatches(corpus, batch_size=2, length=32, steps=2), verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss', 'perplexity']
    """

    needs_query_stream = True

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(backbone, tokenizer, **kwargs)
        self.memory = None
        if backbone.config.memory_length:
            self.memory = StreamMemory(backbone.empty_memory, name="memory", dtype=self.dtype_policy)
        self.permutation_lm = backbone.make_head("permutation_lm")
        self.build_now()

    def call(self, inputs, training=False):
        slots = inputs.get("masked_positions")
        if not _has_permutation(inputs):
            if slots is not None:
                raise ValueError(
                    "`masked_positions` are predicted in the order of a permutation. Received: `masked_positions` "
                    "without a permutation. Provide `query_ranks` and `key_ranks`, or `permutation_mask`."
                )
            outputs = run_backbone(self, inputs, training)
            return self.permutation_lm(outputs["sequence_output"], self.backbone.token_table)
        if slots is None:
            ids = ops.convert_to_tensor(inputs["token_ids"])
            inputs = {**inputs, "masked_positions": ops.zeros_like(ids) + ops.arange(ops.shape(ids)[1], dtype="int32")}
        outputs = run_backbone(self, inputs, training)
        return self.permutation_lm(outputs["query_output"], self.backbone.token_table)

    def default_weights(self, x, y):
        return token_weights(x) if x.get("masked_positions") is None else x["masked_positions"] >= 0

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

    def start_cache(self, context, batch_size, length):
        """Returns the cache for decoding: a memory, and the newest token, which is read again with the next token."""
        newest = {"token_ids": ops.zeros((batch_size, 1), "int32"), "padding_mask": ops.zeros((batch_size, 1), "bool")}
        return {"memory": self.backbone.empty_cache(batch_size, length), "newest": newest}

    def next_logits(self, inputs, cache):
        """Returns (logits of the next token, float (b, v), next cache); see `generation.decoding`.

        As in transformers (with its default `use_mems_eval`), the hidden states of a token are stored in the memory
        only when the next token is known. The query stream predicts the token at an additional last position, to which
        no token attends.
        """
        ids, real = (
            ops.concatenate([cache["newest"][key], inputs[key]], axis=1) for key in ("token_ids", "padding_mask")
        )
        newest = {"token_ids": ids[:, -1:], "padding_mask": real[:, -1:]}
        ids, real = ops.pad(ids, ((0, 0), (0, 1))), ops.pad(real, ((0, 0), (0, 1)), constant_values=True)
        places = ops.zeros_like(ids) + ops.arange(ids.shape[1], dtype="int32")
        ranks = {"query_ranks": ops.ones_like(ids), "key_ranks": places // (ids.shape[1] - 1)}
        batch = {"token_ids": ids, "padding_mask": real, **ranks, "masked_positions": places[:, -1:]}
        outputs = self.backbone(batch, cache=cache["memory"])
        logits = self.permutation_lm(outputs["query_output"], self.backbone.token_table)
        return logits[:, 0], {"memory": without_last(outputs["cache"], 2), "newest": newest}

    # === Text ===

    @overload
    def fill_mask(self, texts: str, top_k: int = ...) -> list[list[dict[str, Any]]]: ...

    @overload
    def fill_mask(self, texts: Sequence[str], top_k: int = ...) -> list[list[list[dict[str, Any]]]]: ...

    def fill_mask(self, texts: str | Sequence[str], top_k: int = 5):
        """Predicts the most likely tokens for each mask token in each text.

        Args:
            texts: a str or a list of str with the tokenizer's mask token, such as "Paris is the <mask> of France."
            top_k: number of candidates per mask token.

        Returns: for each text, a list with one entry per mask token. Each entry is a list of dicts {"token": str,
            "score": probability, "id": token id}, with the most likely token first. For a single str, only the list of
            this text is returned.

        Raises:
            ValueError: if a text has no mask token within the maximum length, `top_k` is below 1, or the model has no
                tokenizer.
        """
        return fill_mask(self, texts, top_k, self._hidden_masks)

    def _hidden_masks(self, x):
        """Returns inputs that, added to a batch, prevent tokens from attending to mask tokens."""
        hidden = x["token_ids"] == self.tokenizer.mask_id
        ranks = {"query_ranks": np.ones_like(x["token_ids"]), "key_ranks": hidden.astype("int32")}
        return {**ranks, "backward": np.zeros(len(hidden), bool)} if self.backbone.config.bidirectional_data else ranks

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of segment pairs for texts, without memory; see `PermutationLMBatches`.

        Each text is one document.
        """
        if y is not None:
            raise ValueError("The targets of permutation language modeling are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        options: dict[str, Any] = dict(length=128, reuse_length=0, seed=seed)
        once = PermutationLMBatches(corpus, batch_size, **options)
        return once if epochs == 1 else PermutationLMBatches(corpus, batch_size, steps=len(once) * epochs, **options)

    # === Checks and configuration ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is not None:
            _check_no_leak(x)


def _has_permutation(inputs):
    return inputs.get("query_ranks") is not None or inputs.get("permutation_mask") is not None


def _check_no_leak(x):
    """Raises a ValueError if the query stream attends to a token that it has to predict."""
    if not _has_permutation(x):
        raise ValueError(
            "Training a permutation language model needs a permutation: without one, the model would see the tokens "
            "that it has to predict. Received: a batch with targets, but without `query_ranks` and `key_ranks` or "
            "`permutation_mask`."
        )
    positions, mask = x.get("masked_positions"), x.get("permutation_mask")
    if mask is not None:
        seen = ~np.diagonal(np.asarray(mask, bool), axis1=1, axis2=2)
    else:
        seen = np.asarray(x["query_ranks"]) > np.asarray(x["key_ranks"])
    if positions is not None:
        seen = np.take_along_axis(seen, np.maximum(positions, 0), axis=1) & (positions >= 0)
    if seen.any():
        raise ValueError(
            "A predicted token must be hidden from its own query. Received: a permutation with a visible token in row "
            f"{int(seen.any(axis=1).argmax())}. At predicted positions, `query_ranks` must not exceed `key_ranks`, and "
            "the diagonal of `permutation_mask` must be True."
        )
