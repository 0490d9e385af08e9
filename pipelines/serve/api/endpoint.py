"""An endpoint: its path, the fields of its requests, and the function that answers them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .service import Service


@dataclass(frozen=True)
class Endpoint:
    """An endpoint that answers JSON objects.

    Args:
        path: its path.
        summary: description in one sentence.
        fields: {name: type} of the fields of a request.
        answer: function of the service and the fields of a request that returns the content of the response.
        required: names of the fields that a request must have.
        ignored: names of fields that clients send and that have no effect here.
    """

    path: str
    summary: str
    fields: Mapping[str, Any]
    answer: Callable[[Service, dict[str, Any]], Awaitable[Any]]
    required: tuple[str, ...] = ()
    ignored: Mapping[str, Any] = field(default_factory=dict)


def encoded(content: Any) -> bytes:
    """JSON of the content of a response. Long lists are written item by item, so that other threads run meanwhile."""
    return _text(content).encode()


def _text(content):
    if isinstance(content, dict):
        return "{" + ",".join(f"{_dumps(str(name))}:{_text(value)}" for name, value in content.items()) + "}"
    if isinstance(content, list) and not (content and isinstance(content[0], (int, float))):
        return "[" + ",".join(map(_text, content)) + "]"
    return _dumps(content)


def _dumps(value):
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"JSON has no {type(value).__name__}")
