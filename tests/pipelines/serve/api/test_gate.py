"""What strangers send: hosts, tokens, sizes, encodings, depth. The server refuses it, and answers the others."""

import asyncio
import gzip
import json
import logging

import pytest
from starlette.testclient import TestClient

from pipelines.serve.api.app import create_app
from pipelines.serve.api.gate import Access
from pipelines.serve.api.limits import Limits
from pipelines.serve.api.log import JsonLines

pytestmark = pytest.mark.one_backend

JSON = {"content-type": "application/json"}
TOKEN = "a-long-token"


@pytest.fixture
def client_of(models):
    """Opens clients of servers with other limits."""
    opened = []

    def open_client(limits=Limits(), token=None):
        opened.append(TestClient(create_app(models, limits, Access({"testserver"}, token))))
        return opened[-1].__enter__()

    yield open_client
    for client in opened:
        client.__exit__(None, None, None)


def test_hosts_and_tokens(client_of):
    client = client_of(token=TOKEN)
    body = {"input": "the cat"}
    refused = client.post("/v1/embeddings", json=body)
    assert refused.status_code == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["code"] == "invalid_api_key"
    for given in (f"Bearer {TOKEN}x", "Bearer ", "Basic x", "Bearer ü".encode()):
        assert client.post("/v1/embeddings", json=body, headers={"authorization": given}).status_code == 401
    assert client.post("/v1/embeddings", json=body, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/metrics").status_code == 401 and client.get("/health").status_code == 200
    for host, status in (("127.0.0.1:80", 200), ("[::1]", 200), ("evil.example", 421), ("a b", 421), ("[", 421)):
        assert client.get("/health", headers={"host": host}).status_code == status, host


def test_sizes_are_known_before_anything_is_parsed(client_of):
    client = client_of(Limits(max_bytes=1_000))
    large = json.dumps({"inputs": "x" * 2_000}).encode()
    assert client.post("/embed", content=large, headers=JSON).status_code == 413
    assert (
        client.post("/embed", content=(large[i : i + 100] for i in range(0, 2_000, 100)), headers=JSON).status_code
        == 413
    )
    for stated in ("1001", "-1", "nine", "9" * 5_000):
        response = client.post("/embed", content=b"{}", headers={**JSON, "content-length": stated})
        assert response.status_code == 413, stated


def test_other_content_is_refused(client_of):
    client = client_of()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):  # which other web sites could send
        assert client.post("/embed", content=b'{"inputs": "a"}', headers={"content-type": kind}).status_code == 415
    bodies = [
        b"",
        b"{",
        b"[]",
        b"3",
        b'"a"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"NaN",
        b'{"inputs": NaN}',
    ]
    bodies += [b'{"inputs": "a", "normalize": true, "normalize": true}', b'{"inputs": "a", "dimensions": Infinity}']
    bodies += [b'{"inputs": 1' + b"0" * 5_000 + b"}", b'{"inputs": null}']
    for body in bodies:
        response = client.post("/embed", content=body, headers={"content-type": "application/json; charset=utf-8"})
        assert response.status_code == 400, body[:20]
    compressed = {**JSON, "content-encoding": "gzip"}
    response = client.post("/embed", content=gzip.compress(b'{"inputs": "a"}'), headers=compressed)
    assert response.status_code == 415 and response.headers["accept-encoding"] == "identity"
    response = client.get("/embed")
    assert response.status_code == 405 and response.headers["allow"] == "POST"
    assert client.post("/embed", json={"inputs": "a"}).status_code == 200


async def call(app, body, receive=None, path="/embed"):
    """Calls an application. Returns (status, headers, body)."""
    sent, messages = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_all():
        if messages:
            return messages.pop(0)
        await asyncio.sleep(60)

    headers = [(b"host", b"testserver"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("1.2.3.4", 1), "http_version": "1.1", "scheme": "http", "root_path": ""}
    await app(scope, receive or receive_all, _appending(sent))
    status = next((message["status"] for message in sent if "status" in message), None)
    headers = next((dict(message["headers"]) for message in sent if "headers" in message), {})
    return status, headers, b"".join(message.get("body", b"") for message in sent)


def _appending(sent):
    async def send(message):
        sent.append(message)

    return send


def test_slow_clients_and_clients_that_leave(models, caplog):
    app = create_app(models, Limits(max_seconds=0.3), Access({"testserver"}))
    body = json.dumps({"inputs": "the secret cat"}).encode()

    async def silent():
        await asyncio.sleep(60)

    messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

    async def leaving():
        return messages.pop(0)

    async def run():
        assert (await call(app, body))[0] == 200
        status, _, content = await call(app, b"", silent)
        assert status == 503 and b"may take 0.3 s" in content
        return await call(app, body, leaving)

    with caplog.at_level(logging.INFO, "kerasbert.serve"):
        status, *_ = asyncio.run(run())
    assert status in (None, 200)  # it has left, perhaps just after the answer
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert [line["status"] for line in lines[:2]] == [200, 503]
    assert {*lines[0]} == {
        "time",
        "level",
        "event",
        "method",
        "path",
        "status",
        "ms",
        "client",
        "model",
        "inputs",
        "tokens",
        "bytes",
    }
    assert "secret" not in json.dumps(lines)


def test_too_many_requests(models):
    app = create_app(models, Limits(max_requests=1), Access({"testserver"}))
    body = json.dumps({"inputs": "the cat"}).encode()

    async def run():
        return await asyncio.gather(*[call(app, body) for _ in range(3)])

    found = asyncio.run(run())
    assert sorted(status for status, *_ in found) == [200, 429, 429]
    refused = next((headers, content) for status, headers, content in found if status == 429)
    assert refused[0][b"retry-after"] == b"1" and json.loads(refused[1])["error_type"] == "overloaded"
