"""Attention weights of a model on a text: lines between tokens for one head, and an overview of all heads."""

import base64
import dataclasses
import inspect
import json
import math

import keras
import numpy as np

import kerasbert
from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer, encode_texts
from kerasbert.models import Backbone, EncoderDecoderBackbone
from kerasbert.objectives import ReplacedTokenDetection

from .attention_page import BODY, SCRIPT, STYLE
from .files import label, new_figure
from .html import page
from .words import TokenNames


@dataclasses.dataclass(frozen=True)
class Weights:
    """Attention weights of all blocks and heads.

    Args:
        name: name of the attention, such as "encoder".
        values: float (blocks, heads, q, k). The weights of a query sum to 1.
        queries, keys: the tokens.
    """

    name: str
    values: np.ndarray
    queries: list[str]
    keys: list[str]


def load_backbone(path: str) -> tuple[Backbone, Tokenizer]:
    """Loads the backbone of a model of any kind, and the tokenizer in its folder.

    Raises:
        ValueError: if there is no tokenizer.
    """
    model = kerasbert.load(path)
    if isinstance(model, ReplacedTokenDetection):
        model = model.discriminator
    backbone = model if isinstance(model, Backbone) else model.backbone
    tokenizer = getattr(model, "tokenizer", None) or Tokenizer.load(path)
    return backbone, tokenizer


def is_encoder_decoder(backbone: Backbone) -> bool:
    """Whether a backbone has both an encoder and a decoder. T5 may have only one of them."""
    halves = (getattr(backbone, name, True) is not None for name in ("encoder", "decoder"))
    return isinstance(backbone, EncoderDecoderBackbone) and all(halves)


def attention_of(
    backbone: Backbone, tokenizer: Tokenizer, text: str, second: str = "", most: int = 64
) -> list[Weights]:
    """Computes the attention weights of a model on a text.

    Args:
        backbone: any model with attention.
        tokenizer: its tokenizer.
        text: the text. For an encoder-decoder, the text that the encoder reads.
        second: the second text of a pair. For an encoder-decoder, the text that the decoder reads.
        most: maximum number of tokens per text. With more tokens, the picture would be unreadable.

    Returns: a list of one `Weights`, or for an encoder-decoder, of three: the encoder, the decoder, and the
        cross-attention.

    Raises:
        ValueError: for a model without attention, texts that are too long, and a missing second text.
    """
    if "attention_weights" not in inspect.signature(type(backbone).call).parameters:
        raise ValueError(
            f"A picture of attention needs a model with attention. Received: {type(backbone).__name__}, which has none."
        )
    names = TokenNames(tokenizer)
    if is_encoder_decoder(backbone):
        if not second:
            raise ValueError(
                "An encoder-decoder needs a text for its decoder, too. Received: one text. Give it with --second."
            )
        layout = Seq2SeqLayout(start_id=backbone.config.decoder_start_id)
        x, _, _ = Seq2SeqBatches([text], [second], tokenizer, batch_size=1, layout=layout)[0]
        sides = {"encoder": x["token_ids"][0], "decoder": x["decoder_token_ids"][0]}
    else:
        x = encode_texts(tokenizer, [(text, second) if second else text], max_length=10**9)
        sides = {"text": x["token_ids"][0]}
    longest = max(map(len, sides.values()))
    if longest > most:
        raise ValueError(
            f"A text must have at most {most} tokens, or the picture is unreadable. Received: {longest}. Use a "
            "shorter text, or a larger --most."
        )
    tokens = {side: [names(int(i)) for i in ids] for side, ids in sides.items()}
    found = backbone(x, attention_weights=True)["attention_weights"]
    if not isinstance(found, dict):
        return [Weights("self-attention", _stacked(found), tokens["text"], tokens["text"])]
    headings = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}
    return [
        Weights(
            "decoder to encoder" if name == "cross" else name,
            _stacked(found[name]),
            tokens.get(q, tokens.get("text")),
            tokens.get(k, tokens.get("text")),
        )
        for name, (q, k) in headings.items()
        if name in found
    ]


def _stacked(weights: list) -> np.ndarray:
    return np.stack([keras.ops.convert_to_numpy(block)[0] for block in weights]).astype("float32")


# === Page ===


def attention_page(title: str, weights: list[Weights], block: int = 0, head: int = 0) -> str:
    """Creates an HTML page with a view of one head, which the reader can select, and an overview of all heads."""
    data = {
        "block": block,
        "head": head,
        "sets": [
            {
                "name": one.name,
                "shape": one.values.shape,
                "queries": one.queries,
                "keys": one.keys,
                "values": base64.b64encode(np.rint(one.values * 255).astype(np.uint8).tobytes()).decode(),
            }
            for one in weights
        ],
    }
    stored = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    body = BODY + f'<script type="application/json" id="data">{stored}</script>'
    return page(title, body, STYLE, SCRIPT)


# === Figures ===


def model_figure(weights: Weights):
    """Draws a figure with a thumbnail of every head, with one row per block and one column per head."""
    blocks, heads, queries, keys = weights.values.shape
    figure = new_figure(max(4, 0.9 * heads + 1), max(3, 0.9 * blocks * queries / keys + 1))
    axes = figure.subplots(blocks, heads, squeeze=False)
    for block in range(blocks):
        for head in range(heads):
            part = axes[block, head]
            image = part.imshow(np.sqrt(weights.values[block, head]), cmap="Blues", vmin=0, vmax=1, aspect="auto")
            part.set_xticks([])
            part.set_yticks([])
            if block == 0:
                part.set_title(f"{head}", fontsize=9)
            if head == 0:
                part.set_ylabel(f"{block}", fontsize=9, rotation=0, labelpad=10, va="center")
    figure.suptitle(f"{weights.name}:\nblocks are rows, heads are columns", fontsize=10)
    figure.supxlabel("each square: rows are tokens that attend,\ncolumns are tokens attended to", fontsize=9)
    _color_bar(figure, image, axes)
    return figure


def head_figure(weights: Weights, block: int, head: int):
    """Draws a figure of one head: lines from each token to the tokens it attends to, and a heat map of the weights."""
    values = weights.values[block, head]
    tall = max(values.shape)
    figure = new_figure(11, max(3.5, 0.26 * tall + 1.4))
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    for query, key in np.argwhere(values > 0.01):
        left.plot([0, 1], [query, key], color="#0060a0", alpha=float(values[query, key]), linewidth=1.8)
    for x, tokens, side in ((-0.03, weights.queries, "right"), (1.03, weights.keys, "left")):
        for place, token in enumerate(tokens):
            left.text(x, place, label(token), ha=side, va="center", fontsize=9, family="monospace")
    left.set_xlim(-0.9, 1.9)
    left.set_ylim(tall - 0.5, -0.5)
    left.set_axis_off()
    left.set_title("from (left) to (right)", fontsize=10)
    image = right.imshow(np.sqrt(values), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    right.set_xticks(range(len(weights.keys)), [label(token) for token in weights.keys], rotation=90, fontsize=8)
    right.set_yticks(range(len(weights.queries)), [label(token) for token in weights.queries], fontsize=8)
    right.set_xlabel("to")
    right.set_ylabel("from")
    figure.suptitle(f"{weights.name}: block {block}, head {head}", fontsize=11)
    _color_bar(figure, image, right)
    return figure


def _color_bar(figure, image, axes) -> None:
    """Adds a color bar. Shades are proportional to the square root of a weight, so that small weights are visible."""
    ticks = (0, 0.01, 0.1, 0.25, 0.5, 1)
    bar = figure.colorbar(image, ax=axes, ticks=[math.sqrt(tick) for tick in ticks], fraction=0.03)
    bar.ax.set_yticklabels([f"{tick:.0%}" for tick in ticks], fontsize=8)
    bar.set_label("attention weight", fontsize=9)
