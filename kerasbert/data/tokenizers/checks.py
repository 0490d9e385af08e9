"""Checks that the tokenizers library lacks, and a handler for its panics, which `except Exception` does not catch."""

import contextlib
from collections.abc import Iterator

NOT_ENCODED = "The tokenizer cannot encode the text"
SPARE_IDS = 65_536  # ids must be below this number plus twice the number of tokens


@contextlib.contextmanager
def rust_errors(rule: str) -> Iterator[None]:
    """Converts errors and panics of the library to a ValueError whose message begins with `rule`."""
    try:
        yield
    except BaseException as error:  # the library raises only Exception and PanicException
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{rule}: {str(error)[:500]}.") from None


@contextlib.contextmanager
def encoding_errors() -> Iterator[None]:
    """Converts errors of the library when it encodes texts to a ValueError."""
    try:
        with rust_errors(NOT_ENCODED):
            yield
    except TypeError:
        raise ValueError(
            "`texts` must be a list of str or of (str, str) tuples. Received: other types, or a text with an unpaired "
            'surrogate, such as \'\\ud83d\', which text.encode("utf-8", "replace") replaces.'
        ) from None


def check_ids(vocabulary: dict[str, int]) -> None:
    """Raises a ValueError if ids occur twice, or are so large that tables would be far larger than the vocabulary."""
    if not vocabulary:
        raise ValueError("A tokenizer must have tokens. Received: an empty vocabulary.")
    largest, most = max(vocabulary.values()), 2 * len(vocabulary) + SPARE_IDS
    if largest >= most:
        raise ValueError(
            f"The ids of {len(vocabulary):,} tokens must be below {most:,}. Received: {largest:,}, for "
            f"{max(vocabulary, key=vocabulary.get)!r:.60}."
        )
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError("Each token must have a unique id. Received: a vocabulary with duplicate ids.")
