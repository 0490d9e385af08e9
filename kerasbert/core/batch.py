"""The batch contract: the keys that the inputs of a model may have, as a documented type."""

import dataclasses
import textwrap
from typing import Any, Required, TypedDict

DTYPES = {"ids": "int32", "mask": "bool", "numbers": "float"}


@dataclasses.dataclass(frozen=True)
class BatchKey:
    """What a batch holds under one key.

    Args:
        kind: "ids" are int32, or another integer type; a "mask" is bool, or integers of 0 and 1; "numbers" are of any
            type.
        shape: one letter per dimension: b rows, s tokens, t tokens of the decoder, p slots, n sequences of a packed
            row, c characters of a word, k candidate context words. None: the backbone's `empty_memory` defines it.
        meaning: what the values mean, and what a model assumes if the key is absent.
        backbones: names of the backbones that read the key, some of them only with certain configs.
        objectives: names of the objectives and tasks that have a special use for the key.
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


DECODERS = "Seq2SeqAttention, T5, Transformer"
NO_BOUNDARY = "-1 if there is no boundary term."

BATCH_KEYS = {
    "token_ids": BatchKey("ids", "bs", "Token ids; in an encoder-decoder, those of the encoder. Required.", "all"),
    # Padding, segments and positions
    "padding_mask": BatchKey("mask", "bs", "True at real tokens. Default: all tokens are real.", "all"),
    "lengths": BatchKey("ids", "b", "Number of real tokens per row, all on the left; replaces `padding_mask`.", "all"),
    "segment_ids": BatchKey(
        "ids",
        "bs",
        "Segment (token type) of each token; default: 0. GPT, GPT2 and XLM take token ids, and add their embeddings.",
        "Albert, Bert, Deberta, DebertaV2, Electra, GPT, GPT2, MobileBert, Roberta, XLM, XLNet",
        "TextClassifier",
    ),
    "position_ids": BatchKey(
        "ids",
        "bs",
        "Position of each token in its sequence. Default: counted from 0.",
        "all but Elmo, Seq2SeqAttention, T5, TransformerXL, WordVectors, XLNet",
    ),
    "language_ids": BatchKey("ids", "bs", "Language of each token. Default: no language embedding is added.", "XLM"),
    # Packed rows
    "sequence_ids": BatchKey(
        "ids",
        "bs",
        "Number of the sequence that each token of a packed row belongs to, starting at 1; 0 is padding.",
        "all but Elmo, Seq2SeqAttention",
    ),
    "first_positions": BatchKey(
        "ids",
        "bn",
        "Where each sequence of a packed row starts, -1 if unused. Required for one output per sequence.",
        "all but Elmo, Seq2SeqAttention, Transformer, WordVectors",
    ),
    # Words
    "character_ids": BatchKey("ids", "bsc", "Bytes of each word, from `kerasbert.data.character_ids`.", "Elmo"),
    "context_ids": BatchKey("ids", "bk", "A word near that of the row, then random words.", objectives="SkipGram"),
    # Slots
    "masked_positions": BatchKey(
        "ids",
        "bp",
        "Positions to predict (slots), -1 if unused. Default: all positions.",
        "XLNet",
        "CausalLM, Distillation, KnowledgeTransfer, MaskedLM, PermutationLM, ReplacedTokenDetection, SpanBoundary",
    ),
    "span_left": BatchKey(
        "ids", "bp", f"Position before the span of each slot, {NO_BOUNDARY}", objectives="SpanBoundary"
    ),
    "span_right": BatchKey(
        "ids", "bp", f"Position after the span of each slot, {NO_BOUNDARY}", objectives="SpanBoundary"
    ),
    "span_offset": BatchKey("ids", "bp", f"Index of each slot in its span, {NO_BOUNDARY}", objectives="SpanBoundary"),
    # Which tokens see which
    "query_ranks": BatchKey(
        "ids",
        "bs",
        "A permutation: token i sees j where query_ranks[i] > key_ranks[j]. Default: all tokens see each other.",
        "XLNet",
        "PermutationLM",
    ),
    "key_ranks": BatchKey("ids", "bs", "See `query_ranks`.", "XLNet", "PermutationLM"),
    "permutation_mask": BatchKey(
        "mask", "bss", "True where token i may not see token j; replaces the ranks.", "XLNet", "PermutationLM"
    ),
    "prefix_mask": BatchKey(
        "mask",
        "bs",
        "True at tokens that all tokens of a causal model see, and that are not targets. Default: there are none.",
        "GPT, GPT2, ModernBertDecoder, T5",
        "CausalLM",
    ),
    "backward": BatchKey(
        "mask",
        "b",
        "True at rows whose text runs from right to left. Default: the second half of the rows if the config has "
        "`bidirectional_data`, otherwise none.",
        "XLNet",
    ),
    # Memory
    "stream_start": BatchKey(
        "mask",
        "b",
        "True at rows that start a text; the others continue the same row of the previous batch. Default: batches are "
        "independent.",
        "TransformerXL, XLNet",
        "CausalLM, PermutationLM",
    ),
    "memory": BatchKey(
        "numbers",
        None,
        "Hidden states of preceding tokens: (b, layers, places, hidden_dim), in the compute dtype.",
        "TransformerXL, XLNet",
    ),
    "memory_mask": BatchKey(
        "mask", None, "True at the filled places of the memory: (b, places).", "TransformerXL, XLNet"
    ),
    # The decoder
    "decoder_token_ids": BatchKey(
        "ids", "bt", "The start token, then all targets but the last.", DECODERS, "Seq2SeqLM"
    ),
    "decoder_padding_mask": BatchKey("mask", "bt", "As `padding_mask`, for the decoder.", DECODERS),
    "decoder_lengths": BatchKey("ids", "b", "As `lengths`, for the decoder.", DECODERS),
    "decoder_position_ids": BatchKey("ids", "bt", "As `position_ids`, for the decoder.", "Transformer"),
    "decoder_sequence_ids": BatchKey(
        "ids", "bt", "As `sequence_ids`; tokens also attend to the source with the same number.", "T5, Transformer"
    ),
    # The loss
    "loss_normalizer": BatchKey(
        "numbers",
        "b",
        "Total weight of the targets of an update, divided by its number of rows; for several targets, a dict. "
        "Default: the loss is divided by the total weight of the batch.",
        objectives="all",
    ),
}

Array = Any  # a numpy array, or a tensor of the backend


class Batch(TypedDict, total=False):
    """The inputs x of a model: a dict of numpy arrays or tensors.

    All keys but `token_ids` are optional, and a key whose value is None counts as absent. Keys other than these are an
    error, unless a class lists them in `extra_inputs`; those of these keys that a model does not read have no effect.
    Some backbones read a key only with certain configs.

    In shapes, b are rows, s tokens, t tokens of the decoder, p slots, n sequences of a packed row, c characters of a
    word, k candidate context words.

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
    span_left: Array
    span_right: Array
    span_offset: Array
    query_ranks: Array
    key_ranks: Array
    permutation_mask: Array
    prefix_mask: Array
    backward: Array
    stream_start: Array
    memory: Array
    memory_mask: Array
    decoder_token_ids: Array
    decoder_padding_mask: Array
    decoder_lengths: Array
    decoder_position_ids: Array
    decoder_sequence_ids: Array
    loss_normalizer: Array | dict[str, Array]


def _listed():
    """The keys as lines of the docstring of `Batch`."""
    for name, key in BATCH_KEYS.items():
        readers = f"Backbones: {key.backbones}." + (f" Objectives: {key.objectives}." if key.objectives else "")
        text = f"{name}: {key.dtype} {key.dimensions}. {key.meaning} {readers}"
        yield textwrap.fill(text, 116, initial_indent=" " * 8, subsequent_indent=" " * 12)


Batch.__doc__ = "\n".join([(Batch.__doc__ or "").rstrip(), *_listed()])


def key_table():
    """The keys as a table in Markdown."""
    rows = [("key", "dtype", "shape", "meaning", "backbones", "objectives and tasks"), ("---",) * 6]
    for name, key in BATCH_KEYS.items():
        rows.append((f"`{name}`", key.dtype, key.dimensions, key.meaning, key.backbones, key.objectives))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
