"""Cuts long texts to the characters that can matter before they are tokenized, which takes time per character."""

from collections.abc import Callable

CHARACTERS = 12  # per token, of the part of a text that is tokenized first
SPARE = 16  # tokens at the end of a part that the next characters might change, where no space precedes the cut


def cut_text(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Returns the beginning of a text that has the same first `limit` tokens, or the whole text.

    Tokens depend on the characters around them, but not across white space: the text is cut before white space, or if
    there is none nearby, where there are `SPARE` more tokens than needed. A text of few tokens, such as one of a
    million spaces, is tokenized in parts of twice the length until all of it is read.

    Args:
        text: the text.
        limit: number of tokens.
        count: function that returns the number of tokens of a text, without special tokens.
    """
    size = CHARACTERS * limit + CHARACTERS * SPARE
    while size < len(text):
        part = text[:size]
        stop = next((i for i in range(size, size // 2, -1) if text[i].isspace() and not text[i - 1].isspace()), None)
        part = text[: size if stop is None else stop]
        if count(part) >= limit + (SPARE if stop is None else 1):
            return part
        size *= 2
    return text
