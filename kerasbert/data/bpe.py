"""Byte-pair encoding by the letter: which merges are learned, with every rule for ties, and what they make of words.

Sennrich, Haddow, Birch 2015, arXiv 1508.07909, and its code, subword-nmt. `Tokenizer.train` learns vocabularies for
models; this is for codes that others have learned, and for merges that are to be exactly theirs.
"""

import collections
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

END = "</w>"
Merge = tuple[str, str]


def symbols_of(word: str, end: Literal["glued", "own"] | None = "glued") -> list[str]:
    """The letters of a word, its end marked on the last letter, by a symbol of its own, or not at all.

    "low" -> l o w</w>, or l o w </w>, or l o w
    """
    symbols = list(word)
    if end == "own":
        return [*symbols, END]
    return [*symbols[:-1], symbols[-1] + END] if end == "glued" and symbols else symbols


def learn_bpe(
    counts: Mapping[str, int],
    num_merges: int,
    end: Literal["glued", "own"] | None = "glued",
    ties: Literal["largest", "first"] = "largest",
    least: int = 2,
) -> list[Merge]:
    """Merges the pair of neighbours that is most frequent, again and again.

    low 5, lower 2, newest 6, widest 3 -> s t</w>, e st</w>, l o, w est</w>, n e, ...
    without end marks, ties to the first -> e s, es t, l o, lo w, n e, ...

    Args:
        counts: words and how often they occur.
        num_merges: at most so many.
        end: how ends of words are marked; "glued" in subword-nmt 0.2, "own" in the paper's listing.
        ties: of pairs that are equally frequent, the "largest" in the order of strings (subword-nmt), or the one that
            is met "first" when the words are read in their order.
        least: pairs that are rarer are not merged.
    """
    words = [(symbols_of(word, end), count) for word, count in counts.items()]
    frequency: collections.Counter = collections.Counter()
    places = collections.defaultdict(set)  # of every pair, the words that had it
    for number, (symbols, count) in enumerate(words):
        for pair in zip(symbols, symbols[1:], strict=False):
            frequency[pair] += count
            places[pair].add(number)

    def first_met(pair: Merge) -> tuple[int, int]:
        number = min(n for n in places[pair] if _find(words[n][0], pair) is not None)
        return number, _find(words[number][0], pair)

    merges: list[Merge] = []
    while frequency and len(merges) < num_merges:
        most = max(frequency.values())
        if most < least:
            break
        tied = [pair for pair, count in frequency.items() if count == most]
        best = max(tied) if ties == "largest" else min(tied, key=first_met)
        merges.append(best)
        for number in places.pop(best):
            symbols, count = words[number]
            merged = _merged(symbols, best)
            for pair in zip(symbols, symbols[1:], strict=False):
                frequency[pair] -= count
            for pair in zip(merged, merged[1:], strict=False):
                frequency[pair] += count
                places[pair].add(number)
            words[number] = (merged, count)
        frequency = +frequency
    return merges


def _find(symbols: list[str], pair: Merge) -> int | None:
    return next((i for i, found in enumerate(zip(symbols, symbols[1:], strict=False)) if found == pair), None)


def _merged(symbols: list[str], pair: Merge) -> list[str]:
    """Every occurrence of a pair as one symbol, from the left: x x x -> xx x."""
    merged, place = [], 0
    while place < len(symbols):
        together = tuple(symbols[place : place + 2]) == pair
        merged.append("".join(pair) if together else symbols[place])
        place += 1 + together
    return merged


class Codes:
    """Merges in their order, to be applied to text.

    Args:
        merges: pairs of symbols; of one that comes twice the first counts.
        end: as for `learn_bpe`.
    """

    def __init__(self, merges: Iterable[Merge], end: Literal["glued", "own"] | None = "glued"):
        self.merges = [tuple(merge) for merge in merges]
        self.end = end
        self._ranks: dict[Merge, int] = {}
        for rank, merge in enumerate(self.merges):
            self._ranks.setdefault(merge, rank)
        self._known: dict[str, list[str]] = {}

    @classmethod
    def read(cls, path: str | Path) -> "Codes":
        """A codes file of subword-nmt: with `#version: 0.2` ends of words are glued, without it they stand alone."""
        lines = Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")
        versioned = lines[0].startswith("#version:")
        merges = []
        for number, line in enumerate(lines[versioned:], start=1 + versioned):
            parts = line.strip("\r ").split(" ")
            if len(parts) != 2:
                raise ValueError(f"A line of codes has two symbols. Received: {path} line {number}: {line[:60]!r}.")
            merges.append(tuple(parts))
        return cls(merges, "glued" if versioned and lines[0].split()[-1] != "0.1" else "own")

    def split(self, word: str) -> list[str]:
        """The pieces of a word, without the mark of its end: the earliest merge first, wherever it occurs.

        By the example of `learn_bpe`: "lowest" -> lo west
        """
        if word not in self._known:
            symbols = symbols_of(word, self.end)
            while len(word) > 1:
                pairs = [pair for pair in zip(symbols, symbols[1:], strict=False) if pair in self._ranks]
                if not pairs:
                    break
                symbols = _merged(symbols, min(pairs, key=self._ranks.__getitem__))
            pieces = [symbol.removesuffix(END) if self.end else symbol for symbol in symbols]
            self._known[word] = [piece for piece in pieces if piece]
        return list(self._known[word])

    def segment(self, line: str, separator: str = "@@") -> str:
        """A line with its words in pieces; all but the last of a word end in the separator. "slow" -> "s@@ low" """
        words = line.strip("\r\n ").split(" ")
        return " ".join(f"{separator} ".join(self.split(word)) for word in words if word)
