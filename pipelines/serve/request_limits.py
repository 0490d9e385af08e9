"""What a served page accepts from the network: which hosts, methods, paths, origins, and sizes of requests.

A page on this machine can be reached by every web site that its user visits: by requests of forms, which browsers send
to any address, and under a name of the site that resolves to 127.0.0.1 (DNS rebinding). Such requests are refused.
"""

import ipaddress
import socket
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

MOST_BYTES = 1_000_000  # of the body of a request
# Gradio has more, such as uploads of files, recordings and proxies. The page and its clients post to these.
POSTS = ("call/", "queue/join", "run/", "api/", "cancel", "reset")
PREFIX = "/gradio_api/"
HIDDEN = ("proxy=", "upload", "stream", "monitoring", "run-history", "deep_link", "vibe", "custom_component")


class RequestLimits:
    """ASGI middleware that answers requests that a page has no use for.

    Args:
        app: the application.
        hosts: names of this machine, besides its own, localhost and IP addresses, under which the page is reached.
    """

    def __init__(self, app, hosts: Iterable[str] = ()):
        self.app = app
        self.hosts = own_names(hosts)

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = "403 Only HTTP is served." if scope["type"] != "http" else self.refusal(scope, headers)
        if refusal:
            return await _answer(send, refusal)
        await self.app(scope, _limited(receive), send)

    def refusal(self, scope: dict, headers: dict) -> str:
        """Returns the status and the reason why a request is refused, or "" if it is not."""
        host = headers.get("host", "")
        if not is_known(host, self.hosts):
            return f"421 This page is not served under the name {host[:100]!r}. Start it with --hosts NAME."
        origin = urlsplit(headers.get("origin", f"http://{host}")).netloc
        path, method = scope["path"], scope["method"]
        if method not in ("GET", "HEAD", "OPTIONS"):
            if origin != host:
                return "403 Requests of other web sites are refused."
            if method != "POST" or not path.startswith(tuple(PREFIX + name for name in POSTS)):
                return "404 There is no such endpoint."
        if path.removeprefix(PREFIX).lstrip("/").startswith(HIDDEN):
            return "404 There is no such endpoint."
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > MOST_BYTES:
            return f"413 A request must have at most {MOST_BYTES:,} bytes."
        return ""


def own_names(hosts: Iterable[str]) -> set[str]:
    """The names of this machine: the given ones, its own and localhost."""
    return {host.lower() for host in (*hosts, "localhost", socket.gethostname(), socket.getfqdn())}


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is an IP address, which no DNS server can have chosen, or one of the names."""
    try:
        name = urlsplit(f"http://{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name in names


def _limited(receive):
    """Receives at most `MOST_BYTES`; a longer body without a stated length is cut off, as by a lost connection."""
    received = 0

    async def run():
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        return message if received <= MOST_BYTES else {"type": "http.disconnect"}

    return run


async def _answer(send, text: str) -> None:
    status, reason = text.split(" ", 1)
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": reason.encode()})
