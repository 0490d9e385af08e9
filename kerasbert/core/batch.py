"""The batch contract: a documented type that lists the keys of a model's inputs."""

import dataclasses
import textwrap
from typing import Any, Required, TypedDict

DTYPES = {"ids": "int32", "mask": "bool", "numbers": "float"}


@dataclasses.dataclass(frozen=True)
class BatchKey:
    """Describes the array that a batch holds under one key.

    Args:
        kind: "ids" (int32 or another integer type), "mask" (bool, or integers of 0 and 1) or "numbers" (any type).
        shape: one letter per axis: b rows, s tokens, t tokens of the decoder, p predicted positions, n sequences in a
            packed row, c characters of a word, k candidate context words. None: the backbone's `empty_memory` defines
            the shape.
        meaning: what the values mean, and what a model assumes if the key is absent.
        backbones: names of the backbones that read the key. Some of them read it only with certain configs.
        objectives: names of the objectives and tasks that read the key, in addition to backbones.
    """

    kind: str
    shape: str | None
    meaning: str
    backbones: str = "none"
    objectives: str = ""

    @property
    def dtype(self):
        return DTYPES[self.kind]

    @property
    def dimensions(self):
        return "(b, ...)" if self.shape is None else f"({', '.join(self.shape)})"


DECODERS = "Bart, Seq2SeqAttention, T5, Transformer"
NO_BOUNDARY = "-1 if the position has no span boundary loss."

BATCH_KEYS = {
    "token_ids": BatchKey("ids", "bs", "Token ids. In an encoder-decoder, the encoder reads them. Required.", "all"),
    # Padding, segments and positions
    "padding_mask": BatchKey("mask", "bs", "True at real tokens. Default: all tokens are real.", "all"),
    "lengths": BatchKey("ids", "b", "Number of real tokens per row, all on the left; replaces `padding_mask`.", "all"),
    "segment_ids": BatchKey(
        "ids",
        "bs",
        "Segment (token type) of each token. Default: 0. GPT, GPT2 and XLM have no segment embeddings: they interpret "
        "the values as token ids, and add the embeddings of these tokens.",
        "Albert, Bert, Deberta, DebertaV2, Electra, GPT, GPT2, Gte, JinaEmbeddingsV3, MobileBert, NomicBert, Roberta, "
        "XLM, XLNet",
        "TextClassifier",
    ),
    "position_ids": BatchKey(
        "ids",
        "bs",
        "Position of each token in its sequence. Default: counted from 0.",
        "all but Elmo, GPTBert, Seq2SeqAttention, T5, TransformerXL, WordVectors, XLNet",
    ),
    "language_ids": BatchKey("ids", "bs", "Language of each token. Default: no language embedding is added.", "XLM"),
    # Packed rows
    "sequence_ids": BatchKey(
        "ids",
        "bs",
        "In packed rows, the number of the sequence that each token belongs to, counted from 1. 0 is padding.",
        "all but Elmo, Seq2SeqAttention",
    ),
    "first_positions": BatchKey(
        "ids",
        "bn",
        "Position of the first token of each sequence in a packed row, -1 in unused entries. Required by models that "
        "return one output per sequence.",
        "all but Elmo, Seq2SeqAttention, Transformer, WordVectors",
    ),
    # Words
    "character_ids": BatchKey("ids", "bsc", "Bytes of each word, from `kerasbert.data.character_ids`.", "Elmo"),
    "context_ids": BatchKey(
        "ids",
        "bk",
        "Ids of candidate context words: first a word from the context of the row's word, then random words.",
        objectives="SkipGram",
    ),
    # Predicted positions
    "masked_positions": BatchKey(
        "ids",
        "bp",
        "Positions to predict, -1 in unused entries. Default: all positions.",
        "MPNet, XLNet",
        "CausalLM, Distillation, KnowledgeTransfer, MaskedLM, PermutationLM, ReplacedTokenDetection, RetroMAE, "
        "SpanBoundary",
    ),
    "original_ids": BatchKey(
        "ids",
        "bp",
        "Tokens at the `masked_positions` before they were masked, for masked and permuted language modeling: each is "
        "predicted from the tokens in earlier entries, too. Default: masked tokens are predicted independently.",
        "MPNet",
    ),
    "span_left": BatchKey(
        "ids",
        "bp",
        f"Position of the last token before the span that contains the predicted position, {NO_BOUNDARY}",
        objectives="SpanBoundary",
    ),
    "span_right": BatchKey(
        "ids",
        "bp",
        f"Position of the first token after the span that contains the predicted position, {NO_BOUNDARY}",
        objectives="SpanBoundary",
    ),
    "span_offset": BatchKey(
        "ids",
        "bp",
        f"Index of the predicted position in its span, counted from 0, {NO_BOUNDARY}",
        objectives="SpanBoundary",
    ),
    # Attention masks
    "query_ranks": BatchKey(
        "ids",
        "bs",
        "The permutation of permutation language modeling: token i attends to token j if query_ranks[i] > "
        "key_ranks[j]. Default: all tokens attend to each other.",
        "XLNet",
        "PermutationLM",
    ),
    "key_ranks": BatchKey("ids", "bs", "See `query_ranks`.", "XLNet", "PermutationLM"),
    "permutation_mask": BatchKey(
        "mask",
        "bss",
        "True at [row, i, j] if token i must not attend to token j. Replaces the ranks.",
        "XLNet",
        "PermutationLM",
    ),
    "prefix_mask": BatchKey(
        "mask",
        "bs",
        "True at the tokens of a prefix: all tokens of a causal model attend to them, and they are not targets. "
        "Default: no prefix.",
        "GPT, GPT2, ModernBertDecoder, T5",
        "CausalLM",
    ),
    "causal_rows": BatchKey(
        "mask",
        "b",
        "True for rows whose tokens attend only to preceding tokens. Default: all rows, if `causal` is set in the "
        "config, otherwise none.",
        "GPTBert",
        "HybridLM",
    ),
    "backward": BatchKey(
        "mask",
        "b",
        "True for rows whose tokens are in reverse order. Default: the second half of the rows if `bidirectional_data` "
        "is set in the config, otherwise none.",
        "XLNet",
    ),
    # Memory
    "stream_start": BatchKey(
        "mask",
        "b",
        "True for rows that start a new text. The other rows continue the text of the same row of the previous batch. "
        "Default: batches are independent.",
        "TransformerXL, XLNet",
        "CausalLM, PermutationLM",
    ),
    "memory": BatchKey(
        "numbers",
        None,
        "Hidden states of preceding tokens, with shape (b, layers, memory length, hidden_dim), in the compute dtype.",
        "TransformerXL, XLNet",
    ),
    "memory_mask": BatchKey(
        "mask",
        None,
        "True at the positions of the memory that hold a token, with shape (b, memory length).",
        "TransformerXL, XLNet",
    ),
    # The decoder
    "decoder_token_ids": BatchKey(
        "ids",
        "bt",
        "Inputs of the decoder: the start token, then all targets but the last. In RetroMAE, the row without masks.",
        DECODERS,
        "RetroMAE, Seq2SeqLM, TSDAE",
    ),
    "decoder_padding_mask": BatchKey("mask", "bt", "Like `padding_mask`, for the decoder.", DECODERS),
    "decoder_lengths": BatchKey("ids", "b", "Like `lengths`, for the decoder.", DECODERS),
    "decoder_position_ids": BatchKey("ids", "bt", "Like `position_ids`, for the decoder.", "Bart, Transformer"),
    "decoder_sequence_ids": BatchKey(
        "ids",
        "bt",
        "Like `sequence_ids`, for the decoder. Each target attends to the source with the same number.",
        "Bart, T5, Transformer",
    ),
    "decoder_visible": BatchKey(
        "mask",
        "bss",
        "True at [row, i, j] if position i of the decoder attends to position j of the row.",
        objectives="RetroMAE",
    ),
    # The loss
    "loss_normalizer": BatchKey(
        "numbers",
        "b",
        "The sum of the target weights of a whole update (all batches of a gradient accumulation), divided by the "
        "number of its rows; a dict if there are several targets. Default: the loss is divided by the sum of the "
        "weights in the batch.",
        objectives="all",
    ),
}

Array = Any  # a numpy array, or a tensor of the backend


class Batch(TypedDict, total=False):
    """The inputs x of a model: a dict of numpy arrays or tensors.

    All keys but `token_ids` are optional, and a key whose value is None counts as absent. An unknown key is an error,
    unless the model lists it in `extra_inputs`. A known key that a model does not read has no effect. Some backbones
    read a key only with certain configs.

    In shapes, b stands for rows, s for tokens, t for tokens of the decoder, p for predicted positions, n for sequences
    in a packed row, c for characters of a word and k for candidate context words.

    Keys:
    """

    token_ids: Required[Array]
    padding_mask: Array
    lengths: Array
    segment_ids: Array
    position_ids: Array
    language_ids: Array
    sequence_ids: Array
    first_positions: Array
    character_ids: Array
    context_ids: Array
    masked_positions: Array
    original_ids: Array
    span_left: Array
    span_right: Array
    span_offset: Array
    query_ranks: Array
    key_ranks: Array
    permutation_mask: Array
    prefix_mask: Array
    causal_rows: Array
    backward: Array
    stream_start: Array
    memory: Array
    memory_mask: Array
    decoder_token_ids: Array
    decoder_padding_mask: Array
    decoder_lengths: Array
    decoder_position_ids: Array
    decoder_sequence_ids: Array
    decoder_visible: Array
    loss_normalizer: Array | dict[str, Array]


def _listed():
    """Yields the description of each key, as lines for the docstring of `Batch`."""
    for name, key in BATCH_KEYS.items():
        readers = f"Backbones: {key.backbones}." + (f" Objectives: {key.objectives}." if key.objectives else "")
        text = f"{name}: {key.dtype} {key.dimensions}. {key.meaning} {readers}"
        yield textwrap.fill(text, 116, initial_indent=" " * 8, subsequent_indent=" " * 12)


Batch.__doc__ = "\n".join([(Batch.__doc__ or "").rstrip(), *_listed()])


def key_table():
    """Returns a Markdown table that describes all keys."""
    rows = [("key", "dtype", "shape", "meaning", "backbones", "objectives and tasks"), ("---",) * 6]
    for name, key in BATCH_KEYS.items():
        rows.append((f"`{name}`", key.dtype, key.dimensions, key.meaning, key.backbones, key.objectives))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
