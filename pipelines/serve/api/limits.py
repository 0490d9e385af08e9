"""What a request may ask for."""

from dataclasses import dataclass, fields

from ...command_line.options import Options


@dataclass(frozen=True)
class Limits(Options):
    """What a request may ask for, and what the server does at a time. What exceeds it is refused.

    Args:
        max_bytes: maximum size of a request.
        max_texts: maximum number of texts in a request.
        max_tokens: maximum number of tokens in a request, after truncation.
        max_requests: maximum number of requests that are answered at a time. Further ones get the status 429.
        max_seconds: maximum time of a request.
        held_bytes: maximum number of bytes of all requests and responses at a time. Further large requests get the
            status 429.
        queue_tokens: maximum number of tokens that are computed before those of a request. Requests that would wait for
            more get the status 429.
        queue_seconds: maximum time for which a request waits for others. Requests that would probably wait for longer
            get the status 429 at once, and those that have waited for so long get it then.
        batch_tokens: maximum number of tokens that are computed together.
        parallel: number of batches that a process computes at the same time, each with its share of the cores. Default:
            one per core, but at most 4. With 1, a long text that comes alone is answered sooner, and fewer texts are
            answered per second.
        truncate: whether texts with more tokens than the model reads are truncated, where a request does not say.
            Otherwise, they are refused.
    """

    max_bytes: int = 4_000_000
    max_texts: int = 2_048
    max_tokens: int = 262_144
    max_requests: int = 512
    max_seconds: float = 60.0
    held_bytes: int = 64_000_000
    queue_tokens: int = 262_144
    queue_seconds: float = 5.0
    batch_tokens: int = 1_024
    parallel: int | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0 and each.name != "truncate":
                raise ValueError(f"--{each.name.replace('_', '-')} must be above 0. Received: {value}.")


MOST_ANSWERS = 100  # of `top` and its likes
MOST_MASKS = 256  # of a request: each has a score for every token of the vocabulary
MOST_CHARACTERS = 200_000  # of a text that is split into windows instead of being truncated
