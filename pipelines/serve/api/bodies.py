"""Reads the JSON bodies of requests: of limited size, with known fields of the right types."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from kerasbert.data.text.json_files import check_types, is_text, shortened

from .errors import RequestError
from .limits import MOST_CHARACTERS, Limits

SEEN = 64  # items of a list that are looked at to say what it is


async def read_body(request: Request, limits: Limits) -> bytes:
    """Reads the body of a request. Raises a RequestError if it is too large, as soon as that is known."""
    stated = request.headers.get("content-length", "0")
    message = f"A request may have at most {limits.max_bytes:,} bytes. Received: more. Send fewer texts at a time."
    if not stated.isdecimal() or int(stated[:20]) > limits.max_bytes:
        raise RequestError(413, message)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limits.max_bytes:
            raise RequestError(413, message)
        parts.append(part)
    return b"".join(parts)


def parse(body: bytes, fields: Mapping[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Parses a JSON object. Fields that are null are left out.

    Args:
        body: the body of a request.
        fields: {name: type} of the fields that there may be.
        required: names of the fields that there must be.
    """
    try:
        content = json.loads(body, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise RequestError(
            400, "A request must be JSON of reasonable depth. Received: one nested too deeply."
        ) from None
    except ValueError as error:  # also for bytes that are not UTF-8
        raise RequestError(400, f"A request must be JSON. It cannot be read: {str(error)[:200]}.") from None
    if not isinstance(content, dict):
        raise RequestError(400, f"A request must be a JSON object. Received: {type(content).__name__}.")
    content = {name: value for name, value in content.items() if value is not None}
    unknown = next((name for name in content if name not in fields), None)
    if unknown is not None:
        known = ", ".join(fields)
        raise RequestError(
            400, f"A request may have the fields {known}. Received: {shortened(unknown)}.", "unknown_parameter"
        )
    missing = next((name for name in required if name not in content), None)
    if missing is not None:
        raise RequestError(400, f"A request must have the field `{missing}`. Received: none.", param=missing)
    for name, value in content.items():
        try:
            check_types({name: value}, {name: fields[name]}, "the request")
        except ValueError as error:
            raise RequestError(400, str(error), "invalid_type", name) from None
    return content


def _object(pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object has two fields of the same name")
    return content


def _constant(name):
    raise ValueError(f"JSON has no {name}")


def text_list(value: Any, name: str, limits: Limits) -> list[str]:
    """Returns the texts of a field, which is a text or a list of them. Refuses token ids, which clients may send."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list) and texts and all(map(_is_ids, texts[:SEEN])):
        raise RequestError(
            400,
            f"`{name}` must be a text or a list of texts. Received: token ids, which belong to the vocabulary of "
            "another model. Send the texts (langchain: check_embedding_ctx_length=False).",
            "invalid_type",
            name,
        )
    return checked_texts(texts, name, limits)


def _is_ids(part):
    return isinstance(part, int) or (isinstance(part, list) and all(isinstance(one, int) for one in part[:SEEN]))


def checked_texts(texts: Any, name: str, limits: Limits) -> list[str]:
    """Returns a list of texts. Raises a RequestError for anything else, for no texts and for too many."""
    check_count(texts, name, limits)
    for text in texts:
        if not isinstance(text, str) or not is_text(text):
            raise RequestError(
                400, f"`{name}` must have texts in Unicode. Received: {shortened(text)}.", "invalid_type", name
            )
    return texts


def check_count(values: Any, name: str, limits: Limits) -> None:
    """Raises a RequestError unless a field is a list of a permitted length."""
    if not isinstance(values, list):
        raise RequestError(400, f"`{name}` must be a list. Received: {shortened(values)}.", "invalid_type", name)
    if not values:
        raise RequestError(400, f"`{name}` must have at least one text. Received: none.", param=name)
    if len(values) > limits.max_texts:
        raise RequestError(
            413, f"`{name}` may have at most {limits.max_texts:,} texts. Received: {len(values):,}.", param=name
        )


def check_characters(text: str, name: str) -> None:
    """Raises a RequestError for a text that is too long to be split into windows."""
    if len(text) > MOST_CHARACTERS:
        raise RequestError(
            413, f"A text may have at most {MOST_CHARACTERS:,} characters. Received: {len(text):,}.", param=name
        )


def check_range(value: int, name: str, most: int) -> int:
    """Returns a number that is from 1 to `most`, or raises a RequestError."""
    if not 1 <= value <= most:
        raise RequestError(
            400, f"`{name}` must be from 1 to {most}. Received: {shortened(value)}.", "invalid_value", name
        )
    return value
