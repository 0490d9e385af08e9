"""Neighbors of a word in a table, where it has one vector, and in a model, where its vector depends on context."""

import dataclasses
import html
import inspect

import keras
import numpy as np
from rich.console import Console

from kerasbert.data import Tokenizer, encode_texts
from kerasbert.models import Backbone

from .attention import is_encoder_decoder
from .bars import STYLE as BARS_STYLE
from .bars import Bars, bars_as_html, print_bars
from .html import page
from .words import TokenNames

SENTENCES = (
    "They sat on the bank of the river and fished.",
    "The boat drifted towards the muddy bank after the flood.",
    "Reeds grow along the shore of the lake.",
    "She opened an account at the bank on the corner.",
    "The bank lent them the money for a house.",
    "He paid the cash into his savings at the office of the company.",
)


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """A word in a sentence.

    Args:
        word: the word as it is written in the sentence.
        sentence: index of the sentence.
        start, stop: character positions of the word in the sentence.
        vector: float (m,), the mean of the vectors of its pieces, scaled to length 1.
    """

    word: str
    sentence: int
    start: int
    stop: int
    vector: np.ndarray


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The neighbors of a word.

    Args:
        word: the word.
        static: the nearest tokens in the table.
        contextual: for each occurrence of the word, the nearest words in the other sentences.
        cosines: float (n, n), the cosines between the occurrences of the word.
        sentences: the sentence of each occurrence.
        mean: mean cosine of all pairs of words in all sentences, for comparison.
    """

    word: str
    static: Bars
    contextual: list[Bars]
    cosines: np.ndarray
    sentences: list[str]
    mean: float


def neighbors(
    backbone: Backbone,
    tokenizer: Tokenizer,
    word: str,
    sentences: tuple[str, ...] = SENTENCES,
    table: tuple[Backbone, Tokenizer] | None = None,
    top: int = 8,
    layer: int = -1,
) -> Neighbors:
    """Finds the neighbors of a word by cosine.

    Args:
        backbone, tokenizer: the model with contextual vectors.
        word: the word. Its case is ignored.
        sentences: sentences, some of which contain the word. All words in them are candidates.
        table: the model whose token embeddings are the static vectors, such as `WordVectors`. Default: `backbone`.
        top: number of neighbors.
        layer: index of the hidden states: 0 for the embeddings, n for the output of block n, and -1 for the last.

    Raises:
        ValueError: if no sentence contains the word, or there is no such layer.
    """
    if top < 1:
        raise ValueError(f"`top` must be at least 1. Received: {top}.")
    found = [
        one for number, text in enumerate(sentences) for one in occurrences(backbone, tokenizer, text, number, layer)
    ]
    chosen = [one for one in found if one.word.casefold() == word.casefold()]
    if not chosen:
        raise ValueError(
            f"A sentence must contain the word {word!r}. Received: {len(sentences)} sentences without it. Give others "
            "with --sentences."
        )
    contextual = []
    for one in chosen:
        others = [other for other in found if other.sentence != one.sentence]
        cosines = [float(one.vector @ other.vector) for other in others]
        best = np.argsort(np.negative(cosines), kind="stable")[:top]
        title = f"{word} in sentence {one.sentence + 1}"
        notes = [f"{others[i].sentence + 1}: {sentences[others[i].sentence]}" for i in best]
        names, values = [others[i].word for i in best], [cosines[i] for i in best]
        marked = (one.start, one.stop)
        contextual.append(Bars(title, sentences[one.sentence], names, values, notes, marked, unit="{:.2f}".format))
    vectors = np.stack([one.vector for one in chosen])
    everything = np.stack([one.vector for one in found])
    pairs = len(found) * (len(found) - 1)
    mean = float(((everything @ everything.T).sum() - len(found)) / max(1, pairs))
    vectors_of, vocabulary = table or (backbone, tokenizer)
    unknown = vocabulary.unk_id in vocabulary.encode([word], add_special_tokens=False)[0]
    static = nearest_in_table(vectors_of, vocabulary, chosen[0].word if unknown else word, top)
    said = [f"{one.sentence + 1}: {sentences[one.sentence]}" for one in chosen]
    return Neighbors(word, static, contextual, vectors @ vectors.T, said, mean)


def nearest_in_table(backbone: Backbone, tokenizer: Tokenizer, word: str, top: int) -> Bars:
    """Finds the tokens whose embeddings are closest, by cosine, to the mean embedding of the word's pieces."""
    ids = np.unique(tokenizer.encode([word], add_special_tokens=False)[0])
    if not len(ids) or tokenizer.unk_id in ids:
        raise ValueError(f"The word must be in the vocabulary of the table. Received: {word!r}, which is unknown.")
    table = keras.ops.convert_to_numpy(backbone.token_table)[: tokenizer.vocabulary_size].astype("float32")
    table = _directions(table)
    cosines = table @ _directions(table[ids].mean(axis=0))
    cosines[[*ids, *tokenizer.special_ids]] = -np.inf
    best = np.argsort(-cosines, kind="stable")[:top]
    names, kind = TokenNames(tokenizer), type(backbone).__name__
    pieces = f", mean of {len(ids)} pieces" if len(ids) > 1 else ""
    title = f"{word} in the table of {kind}{pieces}"
    return Bars(title, "", [names(int(i)) for i in best], cosines[best].tolist(), unit="{:.2f}".format)


def occurrences(backbone: Backbone, tokenizer: Tokenizer, text: str, number: int, layer: int = -1) -> list[Occurrence]:
    """Computes the contextual vectors of the words of a sentence."""
    (_, offsets), words = tokenizer.encode_with_offsets([text])[0], tokenizer.word_numbers([text])[0]
    if not len(words):
        raise ValueError(f"A sentence must have words. Received: {text!r}.")
    states = _states(backbone, tokenizer, text, layer)
    lead = [item for item, _ in tokenizer.template()].index("A")
    states = states[lead : lead + len(words)]
    found = []
    for one in np.unique(words):
        pieces = np.flatnonzero(words == one)
        start, stop = int(offsets[pieces[0], 0]), int(offsets[pieces[-1], 1])
        if any(character.isalnum() for character in text[start:stop]):
            vector = _directions(states[pieces].mean(axis=0))
            found.append(Occurrence(text[start:stop], number, start, stop, vector))
    return found


def _states(backbone: Backbone, tokenizer: Tokenizer, text: str, layer: int) -> np.ndarray:
    """Computes the hidden states of a row, float (s, m)."""
    x = encode_texts(tokenizer, [text], max_length=10**9, plain_text=True)
    if is_encoder_decoder(backbone):
        x["decoder_token_ids"] = np.array([[backbone.config.decoder_start_id]], dtype="int32")
    if "hidden_states" not in inspect.signature(type(backbone).call).parameters:  # a table has no layers
        return keras.ops.convert_to_numpy(backbone(x)["sequence_output"])[0]
    states = backbone(x, hidden_states=True)["hidden_states"]
    if isinstance(states, dict):
        states = states["encoder" if "encoder" in states else "decoder"]
    if not -len(states) <= layer < len(states):
        raise ValueError(f"`layer` must be from 0 to {len(states) - 1}, or -1 for the last. Received: {layer}.")
    return keras.ops.convert_to_numpy(states[layer])[0].astype("float32")


def _directions(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


# === Terminal and page ===

STYLE = (
    BARS_STYLE
    + """
.cosines { overflow-x: auto; } .cosines table { font-variant-numeric: tabular-nums; }
.cosines td, .cosines th { padding: .2rem .5rem; text-align: center; white-space: nowrap; }
.cosines th.sentence { text-align: left; font-weight: 400; min-width: 9rem; white-space: normal; }
"""
)


def print_neighbors(found: Neighbors, console: Console) -> None:
    """Prints the neighbors as bars, and the cosines between the occurrences as a table."""
    print_bars([found.static, *found.contextual], console)
    console.print(f"Cosines between the occurrences of {found.word} (mean of all pairs of words: {found.mean:.2f})")
    for row, sentence in zip(found.cosines, found.sentences, strict=True):
        console.print("  " + " ".join(f"{value:5.2f}" for value in row) + f"  {sentence}", markup=False, no_wrap=True)


def neighbors_page(title: str, found: Neighbors) -> str:
    """Creates a page with static neighbors, neighbors of each occurrence, and cosines between the occurrences."""
    intro = (
        f"<p>Bars are cosines. In a table of vectors, {html.escape(found.word)} has the same neighbors everywhere; in "
        f"a model, they depend on its sentence. The mean cosine of all pairs of words is {found.mean:.2f}.</p>"
    )
    sections = "".join(map(bars_as_html, (found.static, *found.contextual)))
    head = "".join(f"<th>{sentence.partition(':')[0]}</th>" for sentence in found.sentences)
    rows = "".join(
        f'<tr><th class="sentence">{html.escape(sentence)}</th>{"".join(map(_cell, row))}</tr>'
        for sentence, row in zip(found.sentences, found.cosines, strict=True)
    )
    table = (
        f"<section><h2>Cosines between the occurrences of {html.escape(found.word)}</h2>"
        f'<div class="cosines"><table><tr><th class="sentence">sentence</th>{head}</tr>{rows}</table></div></section>'
    )
    return page(title, intro + sections + table, STYLE)


def _cell(value: float) -> str:
    share = 45 * max(0.0, min(1.0, float(value)))  # darker shades would leave too little contrast
    shade = f"background: color-mix(in srgb, var(--blue) {share:.0f}%, var(--page))"
    return f'<td style="{shade}">{value:.2f}</td>'
