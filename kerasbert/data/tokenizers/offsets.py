"""Maps tokens to the characters of the text."""

import unicodedata

import numpy as np

_REACH = 16  # maximum number of characters that preprocessing may remove or insert in one place


def trimmed(text: str, offsets: np.ndarray) -> np.ndarray:
    """Excludes white space at the ends of tokens from their offsets, int32 (n, 2). White-space tokens become empty.

    A combining mark that is in no token, such as a removed accent, is assigned to the token of the letter before it.
    """
    blank = np.array([*map(str.isspace, text), True])
    starts, stops = np.clip(offsets, 0, len(text)).T
    if not text.isascii():
        stops = _with_marks(text, starts, stops)
    solid = np.flatnonzero(~blank)
    # First character that is not white space at or after each start.
    after = np.append(solid, len(text))[np.searchsorted(solid, starts)]
    # End of the last such character before each stop.
    before = np.insert(solid, 0, -1)[np.searchsorted(solid, stops)] + 1
    starts = np.minimum(np.maximum(starts, after), stops)
    return np.stack([starts, np.maximum(np.minimum(stops, before), starts)], axis=1).astype(np.int32)


def _with_marks(text: str, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Extends tokens by the marks (and parts of Hangul syllables) after them that are in no other token."""
    depth = np.zeros(len(text) + 1, dtype=np.int64)
    np.add.at(depth, starts, 1)
    np.add.at(depth, stops, -1)
    left = np.array([*map(_is_mark, text), False]) & (np.cumsum(depth) == 0)
    ends = np.flatnonzero(~left)
    return np.where(stops > starts, ends[np.searchsorted(ends, stops)], stops)


def _is_mark(character: str) -> bool:
    return character > "\u02ff" and (
        "\u1160" <= character <= "\u11ff" or unicodedata.category(character).startswith("M")
    )


def aligned(changed: str, text: str) -> np.ndarray:
    """Maps each character of a changed text, and its end, to the original text: positions, int32 (len(changed) + 1,).

    Both texts are scanned in parallel. Characters are matched regardless of case, accents and white space. A character
    without a match gets the position after the last match.

    changed "a ! é", text "A! É" -> [0, 1, 1, 2, 3, 4]
    """
    original = [_bare(character) for character in text]
    places = np.zeros(len(changed) + 1, dtype=np.int32)
    place = 0
    for number, character in enumerate(changed):
        bare = _bare(character)
        found = next((p for p in range(place, min(place + _REACH, len(original))) if original[p] == bare), None)
        places[number] = min(place, len(text)) if found is None or not bare.strip() else found
        if found is not None and bare.strip():
            place = found + 1
    places[-1] = len(text)
    return places


def _bare(character: str) -> str:
    return unicodedata.normalize("NFKD", character)[:1].casefold()[:1]
