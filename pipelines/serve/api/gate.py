"""What every request passes: known hosts, the bearer token, limits of number and time, the log and the metrics."""

import asyncio
import hmac
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from ..request_limits import is_known
from .errors import RequestError, error_response
from .limits import Limits
from .log import NOTES, logger
from .metrics import Metrics

OPEN = ("/health",)  # paths that need no token
LEFT = 499  # the status in the log of a request whose client has left


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
        self.active = 0  # requests

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        start, status = time.monotonic(), 0

        async def noting(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        NOTES.set(notes := {})
        self.active += 1
        try:
            async with asyncio.timeout(self.limits.max_seconds):
                self.check(scope)
                await self.app(scope, receive, noting)
        except RequestError as error:
            if not status:
                await error_response(scope["path"], error)(scope, receive, noting)
        except TimeoutError:
            if not status:
                error = RequestError(503, f"A request may take {self.limits.max_seconds:g} s. It took longer.")
                await error_response(scope["path"], error)(scope, receive, noting)
        except (ClientDisconnect, asyncio.CancelledError):
            status = LEFT
        except Exception:
            logger.exception("error")
            if not status:
                error = RequestError(500, "The server has failed to answer. Its log says why.")
                await error_response(scope["path"], error)(scope, receive, noting)
        finally:
            self.active -= 1
            self._note(scope, status, time.monotonic() - start, notes)

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
        if self.active > self.limits.max_requests:
            message = f"The server answers {self.limits.max_requests} requests at a time. Try again in 1 s."
            raise RequestError(429, message, "overloaded", headers={"Retry-After": "1"})

    def _note(self, scope, status, seconds, notes):
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.observe_request(path, status, seconds)
        if scope["path"] not in OPEN:
            told = dict(method=scope["method"], path=scope["path"][:200], status=status, ms=round(1000 * seconds, 1))
            client = (scope.get("client") or ("",))[0]
            logger.info("request", extra={"told": {**told, "client": client, **notes}})
