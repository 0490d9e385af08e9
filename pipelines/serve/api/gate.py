"""What every request passes: known hosts, the bearer token, limits of number and time, the log and the metrics."""

import asyncio
import hmac
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from ..request_limits import is_known
from .connections import Unread
from .errors import RequestError, error_response
from .limits import Limits
from .log import NOTES, logger
from .metrics import Metrics

OPEN = ("/health",)  # paths that need no token
LEFT = 499  # the status in the log of a request whose client has left
REFUSAL_SECONDS = 5  # for sending a refusal
PART = 65_536  # bytes of a response that are sent at a time; and of a request that is small


@dataclass(frozen=True)
class Access:
    """Who may use a server.

    Args:
        hosts: names of this machine under which it is reached.
        token: the bearer token of requests, or None.
    """

    hosts: Collection[str]
    token: str | None = None


class Gate:
    """ASGI middleware of the server.

    Args:
        app: the application.
        access: who may use it.
        limits: what it does at a time.
        metrics: where requests are counted.
        paths: the endpoints; other paths are counted together.
    """

    def __init__(self, app: Any, access: Access, limits: Limits, metrics: Metrics, paths: Collection[str]):
        self.app, self.access, self.limits, self.metrics, self.paths = app, access, limits, metrics, paths
        self.active = 0  # requests that are answered
        self.held = 0  # bytes of requests and responses

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        NOTES.set(notes := {})
        request = _Request(self, receive, send)
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                self.check(scope)
                await self.app(scope, request.receive, request.send)
        except RequestError as error:
            await self._refuse(scope, request, error)
        except TimeoutError:
            error = RequestError(503, f"A request may take {self.limits.max_seconds:g} s. It took longer.")
            await self._refuse(scope, request, error)
        except (ClientDisconnect, asyncio.CancelledError):
            request.status = LEFT
        except Exception:
            logger.exception("error")
            await self._refuse(scope, request, RequestError(500, "The server has failed to answer. Its log says why."))
        finally:
            request.end()
            self._note(scope, request.status, time.monotonic() - request.start, notes)

    async def _refuse(self, scope, request, error):
        if request.status:
            request.status = LEFT
            raise Unread
        try:
            async with asyncio.timeout(REFUSAL_SECONDS):
                await error_response(scope["path"], error)(scope, request.receive, request.send)
        except TimeoutError:
            raise Unread from None

    def check(self, scope: Any) -> None:
        """Raises a RequestError for a request that is refused whatever it asks for."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not is_known(host, self.access.hosts):
            raise RequestError(
                421, f"This server is not reached under the name {host[:100]!r}. Start it with --hosts NAME."
            )
        if scope["path"] in OPEN:
            return
        if self.access.token is not None:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self.access.token.encode()):
                message = "A request must have the header `Authorization: Bearer TOKEN`. Received: none, or another."
                raise RequestError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _note(self, scope, status, seconds, notes):
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.observe_request(path, status, seconds)
        if scope["path"] not in OPEN:
            told = dict(method=scope["method"], path=scope["path"][:200], status=status, ms=round(1000 * seconds, 1))
            client = (scope.get("client") or ("",))[0]
            logger.info("request", extra={"told": {**told, "client": client, **notes}})


class _Request:
    """A request on its way through the gate: what it holds, and whether it has been received and answered."""

    def __init__(self, gate: Gate, receive: Any, send: Any):
        self.gate, self._receive, self._send = gate, receive, send
        self.start, self.status, self.size, self.active = time.monotonic(), 0, 0, False

    async def receive(self) -> Any:
        """Receives a part of the body. Refuses it if the server has enough to do; a slow client is not counted yet."""
        message, limits = await self._receive(), self.gate.limits
        self._hold(len(message.get("body", b"")))
        if self.size > PART and self.gate.held > limits.held_bytes:
            raise _overloaded(f"The server holds {limits.held_bytes:,} bytes of requests")
        if message["type"] == "http.request" and not message.get("more_body") and not self.active:
            if self.gate.active >= limits.max_requests:
                raise _overloaded(f"The server answers {limits.max_requests} requests at a time")
            self.active = True
            self.gate.active += 1
        return message

    async def send(self, message: Any) -> None:
        """Sends a part of the response. A large one is sent as the client reads it, until the time limit."""
        self.status = message.get("status", self.status)
        body = message.get("body", b"")
        if len(body) <= PART:
            return await self._send(message)
        self._hold(len(body))
        for start in range(0, len(body), PART):
            await self._send({**message, "body": body[start : start + PART], "more_body": True})
        await self._send({**message, "body": b""})

    def _hold(self, size):
        self.size += size
        self.gate.held += size

    def end(self) -> None:
        self.gate.held -= self.size
        self.gate.active -= self.active


def _overloaded(message):
    return RequestError(429, f"{message}. Try again in 1 s.", "overloaded", headers={"Retry-After": "1"})
