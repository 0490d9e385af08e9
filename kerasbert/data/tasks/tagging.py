"""Tags of words: entities in every scheme, and words into rows whose first pieces carry the tags."""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from ..tokenizers.tokenizer import Tokenizer
from .windows import most_context, right_padded_rows, window_starts


@functools.cache
def _words() -> re.Pattern:
    """Ideographs, kana and Thai are written without blanks: every character is a word. Then letters and digits, then
    any other visible character; each with the marks that belong to it: vowel signs, points, accents, joiners."""
    marks = "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c).startswith("M"))
    marks += "\u200c\u200d"
    alone = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0003ffff"
    return re.compile(f"[{alone}][{marks}]*|\\w+(?:[{marks}]+\\w*)*|\\S[{marks}]*")


def words_of(text: str) -> list[tuple[int, int]]:
    """The characters [start, stop) of every word and every mark of a text.

    "It's  5." -> (0, 2), (2, 3), (3, 4), (6, 7), (7, 8)
    """
    return [match.span() for match in _words().finditer(text)]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The entities of one sentence: (type, first word, word behind the last), by the rules of conlleval.

    Reads BIO (IOB2), IOB1, BIOES (IOBES, BILOU) and plain types without a prefix. A new entity begins at B, S, U, and
    wherever an entity begins without one: behind O, behind E, S, L, U, or where the type changes.

    B-PER I-PER O I-LOC -> (PER, 0, 2), (LOC, 3, 4)
    """
    found: list[tuple[str, int, int]] = []
    running = None  # (type, first word) of the entity that a word may go on
    for number, tag in enumerate([*tags, "O"]):
        prefix, kind = _parts(tag)
        if running is not None and (prefix in ("B", "S", "U", "O") or kind != running[0]):
            found.append((*running, number))
            running = None
        if prefix != "O" and running is None:
            running = (kind, number)
        if prefix in ("E", "L", "S", "U"):
            found.append((*running, number + 1))
            running = None
    return found


def tags_of(spans: Sequence[tuple[str, int, int]], length: int, scheme: str = "bio") -> list[str]:
    """The inverse of `entities` for a sentence of `length` words; the scheme is "bio", "bioes" or "iob1"."""
    tags = ["O"] * length
    last = None  # the entity before, for iob1
    for kind, start, stop in sorted(spans, key=lambda span: span[1]):
        if not 0 <= start < stop <= length or tags[start:stop] != ["O"] * (stop - start):
            raise ValueError(f"Entities must lie in the {length} words of the sentence, apart. Received: {spans}.")
        tags[start:stop] = [f"I-{kind}"] * (stop - start)
        if scheme == "bioes" and stop - start == 1:
            tags[start] = f"S-{kind}"
        elif scheme == "bioes":
            tags[start], tags[stop - 1] = f"B-{kind}", f"E-{kind}"
        elif scheme == "bio" or last == (kind, start):
            tags[start] = f"B-{kind}"
        elif scheme != "iob1":
            raise ValueError(f'`scheme` must be "bio", "bioes" or "iob1". Received: {scheme!r}.')
        last = (kind, stop)
    return tags


def tags_within(tag: str, count: int) -> list[str]:
    """The tags of so many words that are read as one: B-LOC of two is B-LOC I-LOC, S-LOC of two is B-LOC E-LOC."""
    prefix, dash, kind = tag.partition("-")
    if count == 1 or not dash or prefix not in ("B", "I", "E", "L", "S", "U"):
        return [tag] * count
    first = prefix if prefix in ("B", "I") else "B" if prefix in ("S", "U") else "I"
    last = {"S": "E", "U": "L", "E": "E", "L": "L"}.get(prefix, "I")
    return [f"{first}-{kind}", *[f"I-{kind}"] * (count - 2), f"{last}-{kind}"]


def _parts(tag: str) -> tuple[str, str]:
    if tag in ("O", "B", "I"):  # corpora of one type name no type
        return tag, ""
    prefix, dash, kind = tag.partition("-")
    return (prefix, kind) if dash and prefix in ("B", "I", "E", "S", "L", "U", "M") else ("I", tag)


class TaggedRows:
    """Sentences in rows for a tagger: the first piece of every word stands for the word.

    A sentence that is too long is cut into windows that overlap; a word is read in the window where it has more
    context on both sides. A word of which no piece is left (control characters) is in no window; a word within a piece
    of another, as the full stop of `).`, is read with that one.

    Args:
        tokenizer: its template for single texts is used.
        sentences: lists of words, or texts, whose words are those of `words_of`.
        max_length: tokens of a window, special ones included.
        stride: pieces that the start of a window moves on; default: half of what a window holds.

    Attributes:
        x: int32 "token_ids" (windows, s) and "lengths" (windows,).
        words: int32 (windows, s), the word whose first piece stands there; -1 elsewhere, and where another window has
            more context.
        sentence: int32 (windows,), which sentence the window is of.
        texts, word_spans: each sentence as one text, and the characters of its words.
        hosts: of each sentence int32 (words,), the word as which each one is read: itself, the word in whose piece it
            is, or -1.
    """

    def __init__(self, tokenizer: Tokenizer, sentences: Sequence, max_length: int, stride: int | None = None):
        checked = [_checked(sentence, number) for number, sentence in enumerate(sentences)]
        self.texts = [text for text, _ in checked]
        self.word_spans = [spans for _, spans in checked]
        pieces, firsts, chosen, self.hosts = [], [], [], []
        template = tokenizer.facts["single"]
        room = max_length - (len(template) - 1)
        if room < 1:
            raise ValueError(
                f"`max_length` must leave room for text beside the special tokens. Received: {max_length}."
            )
        stride = max(1, room // 2) if stride is None else stride
        for number, (ids, offsets) in enumerate(tokenizer.encode_with_offsets(self.texts)):
            first, hosts = _first_pieces(offsets, self.word_spans[number])
            self.hosts.append(hosts)
            starts = window_starts(len(ids), room, stride)
            best = most_context(starts, room, len(ids))
            for window, start in enumerate(starts):
                here = slice(start, start + room)
                pieces.append(ids[here])
                firsts.append(np.where(best[here] == window, first[here], -1))
                chosen.append(number)
        self.sentence = np.array(chosen, dtype=np.int32)
        self.x, columns = right_padded_rows(tokenizer.facts, [(ids,) for ids in pieces])
        self.words = np.full(self.x["token_ids"].shape, -1, dtype=np.int32)
        for row, (first, column) in enumerate(zip(firsts, columns, strict=True)):
            self.words[row, column : column + len(first)] = first

    def targets(self, tags: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Labels int32 (windows, s) and their weights float32, 1 where a word is read."""
        if len(tags) != len(self.texts):
            raise ValueError(
                f"Every sentence must have labels. Received: {len(self.texts)} sentences, {len(tags)} labels."
            )
        y = np.zeros(self.words.shape, dtype=np.int32)
        for row, number in enumerate(self.sentence):
            labels = np.asarray(tags[number], dtype=np.int32)
            if len(labels) != len(self.word_spans[number]):
                raise ValueError(
                    f"Every word must have a label. Received: sentence {number} of {len(self.word_spans[number])} "
                    f"words with {len(labels)} labels."
                )
            here = self.words[row] >= 0
            y[row, here] = labels[self.words[row, here]]
        return y, (self.words >= 0).astype(np.float32)

    def read(self, outputs: np.ndarray) -> Iterator[np.ndarray]:
        """Of every sentence the outputs (words, ...) at its words; NaN for those that are in no window."""
        found = [np.full((len(spans), *outputs.shape[2:]), np.nan, dtype=np.float64) for spans in self.word_spans]
        for row, number in enumerate(self.sentence):
            here = self.words[row] >= 0
            found[number][self.words[row, here]] = outputs[row, : len(here)][here]
        for values, hosts in zip(found, self.hosts, strict=True):
            values[hosts >= 0] = values[hosts[hosts >= 0]]
        return iter(found)


def _first_pieces(offsets: np.ndarray, spans: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Of every piece the word that begins with it, int32 (n,), or -1; and the hosts of the words."""
    starts = np.array([start for start, _ in spans], dtype=np.int32)
    words = np.searchsorted(starts, offsets[:, 0], side="right") - 1
    words[offsets[:, 0] == offsets[:, 1]] = -1  # white space alone
    _, first = np.unique(words, return_index=True)
    is_first = np.zeros(len(words), dtype=bool)
    is_first[first] = True
    is_first &= words >= 0
    hosts = np.full(len(starts), -1, dtype=np.int32)
    hosts[words[is_first]] = words[is_first]
    for word in np.flatnonzero(hosts < 0):
        around = np.flatnonzero((offsets[:, 0] < starts[word]) & (starts[word] < offsets[:, 1]))
        hosts[word] = words[around[-1]] if len(around) else -1
    return np.where(is_first, words, -1).astype(np.int32), hosts


def _checked(sentence: object, number: int) -> tuple[str, list[tuple[int, int]]]:
    """(text, the characters of its words)."""
    if isinstance(sentence, str):
        return sentence, words_of(sentence)
    if not isinstance(sentence, (list, tuple)) or not all(isinstance(word, str) for word in sentence):
        raise ValueError(
            f"A sentence must be a str or a list of words. Received as sentence {number}: {sentence!r:.60}."
        )
    stops = np.cumsum([len(word) + 1 for word in sentence]) - 1
    spans = [(int(stop) - len(word), int(stop)) for word, stop in zip(sentence, stops, strict=True)]
    return " ".join(sentence), spans
