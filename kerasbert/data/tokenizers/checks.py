"""Checks that the Rust library of tokenizers lacks, and its panics, which `except Exception` does not catch."""

import contextlib
from collections.abc import Iterator

SPARE_IDS = 65_536  # ids without a token that are allowed in addition to the number of tokens


@contextlib.contextmanager
def rust_errors(rule: str) -> Iterator[None]:
    """Turns the library's errors into a ValueError that begins with `rule`; its panics are not an `Exception`."""
    try:
        yield
    except BaseException as error:  # the library raises either of the two, and no other classes
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{rule}: {str(error)[:500]}.") from None


def check_ids(vocabulary: dict[str, int]) -> None:
    """Raises a ValueError for ids that would make tables far larger than the vocabulary, or that occur twice."""
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
