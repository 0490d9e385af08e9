"""The OpenAPI document of the endpoints, made from the types of their fields."""

import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kerasbert import __version__

from .endpoint import Endpoint

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}


def document(endpoints: Iterable[Endpoint], summaries: Mapping[str, str], without_token: Collection[str]) -> dict:
    """Returns the document of OpenAPI 3.1.

    Args:
        endpoints: the endpoints that answer with models.
        summaries: {path: what GET returns}.
        without_token: paths that need no token.
    """
    posts = {each.path: {"post": operation(each)} for each in endpoints}
    gets: dict[str, Any] = {path: {"get": described(path, summary)} for path, summary in summaries.items()}
    for path in without_token:
        gets[path]["get"]["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {"title": "kerasbert", "version": __version__},
        "paths": {**posts, **gets},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def operation(endpoint: Endpoint) -> dict[str, Any]:
    """The description of an endpoint."""
    fields = {**endpoint.fields, **endpoint.ignored}
    body = {
        "type": "object",
        "properties": {name: schema(kind) for name, kind in fields.items()},
        "required": list(endpoint.required),
        "additionalProperties": False,
    }
    answers = {"200": {"description": "the answers", "content": {"application/json": {}}}}
    answers |= {"4XX": {"description": "the request is refused"}, "429": {"description": "too many requests"}}
    return {
        "summary": endpoint.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": answers,
    }


def described(path: str, summary: str) -> dict[str, Any]:
    """The description of what GET returns."""
    names = re.findall(r"{(\w+)}", path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"summary": summary, "parameters": parameters, "responses": {"200": {"description": summary}}}


def schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type: str | list[Any] -> {"anyOf": [{"type": "string"}, {"type": "array"}]}"""
    if isinstance(kind, types.UnionType):
        return {"anyOf": [schema(one) for one in typing.get_args(kind)]}
    if typing.get_origin(kind) is typing.Literal:
        return {"enum": list(typing.get_args(kind))}
    if typing.get_origin(kind) is list:
        return {"type": "array"}
    return {"type": _NAMES[kind]}
