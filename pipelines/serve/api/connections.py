"""Connections of clients that are slow, do not read, or send what is not HTTP."""

import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20  # from the first byte of a request, or of a connection without one, to the end of its headers
PIECE = 4_096  # bytes that are parsed at a time
MOST_OVERHEAD = 16_384  # bytes of the marks between chunks, besides a quarter of the body: each chunk takes time


class Unread(Exception):
    """A client does not read the response. The connection is closed."""


class Connection(H11Protocol):
    """A connection that is closed if the client does not send a request, or does not read the response."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.app = self._answer
        self._head: Any = None  # the timer of the headers
        self._overhead = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_received()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            piece, before = data[start : start + PIECE], self._body()
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if self.conn.their_state is not h11.SEND_BODY:
                self._overhead = 0
            elif self._answering() or any(name == b"transfer-encoding" for name, _ in self.headers):
                self._overhead += len(piece) - (self._body() - before) * 5 // 4
            if self._overhead > MOST_OVERHEAD:
                return self.send_400_response("The chunks of a request must not be that small. Send its length.")
        if self._answering():
            self._head_received()
        else:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP in the form of the other errors, and closes the connection."""
        body = json.dumps({"error": msg, "error_type": "validation"}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        try:
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in response, h11.Data(data=body), h11.EndOfMessage():
                self.transport.write(self.conn.send(event))
            self.transport.close()
        except h11.LocalProtocolError:  # in the middle of a response
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _answering(self):
        return self.cycle is not None and not self.cycle.response_complete

    def _body(self):  # the bytes that the application has not taken
        return len(self.cycle.body) if self.cycle is not None else 0

    def _await_head(self):
        if self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_received(self):
        if self._head is not None:
            self._head.cancel()
            self._head = None

    async def _answer(self, scope, receive, send):
        try:
            await self.config.loaded_app(scope, receive, send)
        except Unread:
            self.cycle.disconnected = True
            self.transport.abort()
