"""Draws attention masks, which say which tokens a token may attend to, as computed by the models of this package."""

import dataclasses
import html

import keras
import numpy as np

from kerasbert.layers.masks import AttentionMask
from kerasbert.models.xlnet.two_streams import stream_views

from .files import new_figure
from .html import page

WORDS = ("the", "cat", "sat", "on", "the", "mat", ".", "it", "slept", ".")
ORDER = (3, 2, 4, 1)  # the factorization order in figures 1 and 4 of XLNet's paper; tokens are numbered from 1


@dataclasses.dataclass(frozen=True)
class Mask:
    """A picture of a mask.

    Args:
        name: heading.
        about: description in one sentence.
        allowed: bool (q, k).
        queries, keys: the tokens.
    """

    name: str
    about: str
    allowed: np.ndarray
    queries: tuple[str, ...]
    keys: tuple[str, ...]


def masks(words: tuple[str, ...] = WORDS, window: int = 2) -> list[Mask]:
    """Computes the masks of the families for a few words.

    Args:
        words: tokens of a row.
        window: maximum distance to which a token attends on both sides, in layers with local attention.
    """
    length = len(words)
    if length < 4 or window < 1:
        raise ValueError(
            f"The pictures need at least four words, and a window of at least 1. Received: {length}, {window}."
        )
    half, lengths = length // 2, np.array([length - 2], "int32")
    padded = (*words[: length - 2], "[PAD]", "[PAD]")
    pieces = np.where(np.arange(length) < half, 1, 2)[None]
    prefix = np.arange(length)[None] < half
    found = [
        _mask("BERT", "Every token attends to all tokens of its row, but not to padding.", padded, lengths=lengths),
        _mask("GPT", "A token attends to itself and to the tokens before it.", words, causal=True),
        _mask(
            "Prefix language model",
            f"The first {half} tokens attend to each other. Later tokens attend to all tokens up to themselves.",
            words,
            causal=True,
            prefix_mask=prefix,
        ),
        _mask(
            "ModernBERT, local layers",
            f"A token attends to {window} tokens on each side, as in Longformer (64 in ModernBERT's paper).",
            words,
            window=window,
        ),
        _mask("ModernBERT, global layers", "In every third layer, a token attends to the whole text.", words),
        _mask(
            "Packed rows",
            f"Two texts in one row, of {half} and {length - half} tokens, do not attend to each other.",
            words,
            sequence_ids=pieces,
        ),
        _mask(
            "Packed rows in a local layer",
            "A token attends to its window, but not to the other text.",
            words,
            sequence_ids=pieces,
            window=window,
        ),
    ]
    return found + two_streams()


def _mask(name: str, about: str, tokens: tuple[str, ...], **parts) -> Mask:
    parts = {key: keras.ops.convert_to_tensor(v) if isinstance(v, np.ndarray) else v for key, v in parts.items()}
    length = len(tokens)
    dense = AttentionMask(**parts).dense(length, length)
    allowed = True if dense is None else keras.ops.convert_to_numpy(dense)[0, 0]
    return Mask(name, about, np.broadcast_to(allowed, (length, length)), tokens, tokens)


def two_streams(order: tuple[int, ...] = ORDER) -> list[Mask]:
    """Computes the masks of XLNet's content and query stream for a factorization order of tokens, numbered from 1."""
    length = len(order)
    if sorted(order) != list(range(1, length + 1)):
        raise ValueError(f"An order must contain every number from 1 to {length} once. Received: {order}.")
    ranks = np.argsort(order).astype("int32")[None]
    x = dict(token_ids=np.zeros((1, length), "int32"), query_ranks=ranks, key_ranks=ranks)
    x["masked_positions"] = np.arange(length, dtype="int32")[None]
    views = stream_views({key: keras.ops.convert_to_tensor(value) for key, value in x.items()})
    tokens = tuple(f"x{number}" for number in range(1, length + 1))
    arrows = " → ".join(map(str, order))
    about = (
        f"Order {arrows}: a token attends to itself and to the tokens before it in the order.",
        f"Order {arrows}: to predict a token, the model attends only to the tokens before it in the order.",
    )
    return [
        Mask(f"XLNet, {stream} stream", text, _dense(view.mask, length), tokens, tokens)
        for stream, text, view in zip(("content", "query"), about, views, strict=True)
    ]


def _dense(mask: AttentionMask, length: int) -> np.ndarray:
    return keras.ops.convert_to_numpy(mask.dense(length, length))[0, 0]


# === Terminal, page, figure ===


def masks_as_text(pictures: list[Mask]) -> str:
    """Formats the masks as text, with ■ where a row may attend to a column."""
    parts = []
    for mask in pictures:
        width = max(map(len, mask.queries))
        rows = (
            f"{token:>{width}}  {' '.join('■' if seen else '·' for seen in row)}"
            for token, row in zip(mask.queries, mask.allowed, strict=True)
        )
        parts.append("\n".join([mask.name, mask.about, *rows]))
    return "\n\n".join(parts)


STYLE = """
.masks { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem; }
.masks section { margin: 0; }
.masks svg text { font-size: 12px; }
.seen { fill: var(--blue); } .unseen { fill: var(--page); stroke: var(--line); }
.key { display: inline-block; width: .9rem; height: .9rem; vertical-align: -.1rem; border: 1px solid var(--line);
  background: var(--page); } .key.is-seen { background: var(--blue); }
"""


def masks_page(pictures: list[Mask]) -> str:
    """Creates an HTML page with a drawing of every mask."""
    intro = (
        "<p>A row is a token that attends, and a column is a token that may be attended to. "
        '<span class="key is-seen"></span> may be attended to, <span class="key"></span> may not.</p>'
    )
    sections = "".join(
        f"<section><h2>{html.escape(mask.name)}</h2><p class='note'>{html.escape(mask.about)}</p>"
        f"{_drawing(mask)}</section>"
        for mask in pictures
    )
    return page("Attention masks", f'{intro}<div class="masks">{sections}</div>', STYLE)


def _drawing(mask: Mask) -> str:
    """Draws a mask as SVG, with its tokens on the left and, rotated, at the top."""
    size, room = 20, 8 * min(12, max(map(len, (*mask.queries, *mask.keys)))) + 8
    names = ([token if len(token) <= 12 else token[:11] + "…" for token in side] for side in (mask.queries, mask.keys))
    queries, keys = (list(map(html.escape, side)) for side in names)
    parts = []
    for row, token in enumerate(queries):
        parts.append(f'<text x="{room - 6}" y="{room + row * size + 14}" text-anchor="end">{token}</text>')
        for column in range(len(keys)):
            seen = "seen" if mask.allowed[row, column] else "unseen"
            place = f'x="{room + column * size + 1}" y="{room + row * size + 1}"'
            parts.append(f'<rect class="{seen}" {place} width="{size - 2}" height="{size - 2}" rx="2"/>')
    for column, token in enumerate(keys):
        x, y = room + column * size + 14, room - 6
        parts.append(f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{token}</text>')
    width, height = room + size * len(keys) + 2, room + size * len(queries) + 2
    label = html.escape(f"Mask of {mask.name}: {mask.about}")
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def masks_figure(pictures: list[Mask]):
    """Draws a figure with all masks."""
    columns = 3
    lines = -(-len(pictures) // columns)
    figure = new_figure(12, 4.2 * lines)
    for number, mask in enumerate(pictures):
        axes = figure.add_subplot(lines, columns, number + 1)
        axes.pcolormesh(mask.allowed, cmap="Blues", vmin=0, vmax=1.25, edgecolors="#c9c9c4", linewidth=1)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        for axis, tokens in ((axes.xaxis, mask.keys), (axes.yaxis, mask.queries)):
            axis.set_ticks(np.arange(len(tokens)) + 0.5, [token.replace("$", r"\$") for token in tokens], fontsize=8)
            axis.set_tick_params(length=0)
        axes.tick_params(axis="x", rotation=90)
        axes.set_title(mask.name, fontsize=11)
        axes.set_xlabel("may be attended to (blue)", fontsize=9)
        axes.set_ylabel("attends", fontsize=9)
    return figure
