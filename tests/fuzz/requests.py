"""Hostile HTTP requests against `kerasbert serve --api`, while a well-behaved client asks every 50 ms.

    python -m tests.fuzz.requests exports/embedder exports/tagger --requests 1000 --seed 1

Request n of a seed is always the same. What counts as a failure:

- the server ends, or writes an error to its log;
- a status other than 200 and those with which requests are refused, or a response that is no JSON;
- an answer to the well-behaved client that is wrong, is refused, or takes more than 1 second;
- resident memory that goes on growing: the second half of the requests adds more than 50 MB.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import multiprocessing
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.serve.api.app import ENDPOINTS

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_SECONDS, MOST_GROWTH = 1.0, 50.0  # of an answer to the well-behaved client; of memory, in MB
REFUSALS = {400, 401, 404, 405, 408, 413, 415, 421, 424, 429, 503}
WORDS = "the cat sat on a mat and dog ran home who where red blue one two three four five six seven".split()


@dataclass(frozen=True)
class Attack:
    """What a hostile client does.

    Args:
        parts: the bytes that it sends, one part after the other.
        pause: seconds after each part.
        reads: whether it reads the response; otherwise it holds the connection for `holds` seconds and leaves.
        holds: see `reads`.
        resets: whether it leaves by a reset.
        statuses: the statuses that it may be answered with; 0 stands for a closed connection.
    """

    parts: Sequence[bytes]
    pause: float = 0.0
    reads: bool = True
    holds: float = 0.0
    resets: bool = False
    statuses: frozenset[int] = frozenset({200, *REFUSALS})


def request(body: bytes, path="/embed", method="POST", headers="", kind="application/json", length=None) -> bytes:
    """The bytes of a request, which may state a wrong length."""
    kind = f"Content-Type: {kind}\r\n" if kind else ""
    stated = f"Content-Length: {len(body) if length is None else length}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}{headers}{stated}\r\n".encode("latin-1") + body


def posted(fields, path="/embed") -> bytes:
    return request(json.dumps(fields).encode(), path)


def chunked(body: bytes, size: int, extension: bytes = b"") -> bytes:
    """A request whose body has chunks of `size` bytes."""
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


# === What is sent ===


def wrong_fields(rng):
    """Fields of all kinds of types for any endpoint."""
    texts = ["", " ", "\x00", "[MASK]", "\u202e", "e\u0301" * 50, "的" * 900, "x" * 5_000, " " * 9_000, "\ud83d"]
    texts.append("👩\u200d👩\u200d👧")
    values = [None, True, -1, 0, 1.5, 1e308, 10**30, [], {}, [[]], [None], {"text": "a"}, *texts, texts, [texts, texts]]
    values += [[1, 2, 3], [[1, 2], [3]], [0.5], {"a": {"b": []}}, ["a", ["b", "c"]], "query", "float", 3]
    endpoint = rng.choice(ENDPOINTS)
    names = [name for name in endpoint.fields if rng.random() < 0.4 or name in endpoint.required]
    body = {name: rng.choice(values) for name in names if name != "model" or rng.random() < 0.1}
    return Attack([posted(body, endpoint.path)])


def numbers(rng):
    """Numbers that JSON has no or that no machine has."""
    number = rng.choice(["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" * 4_000, "9" * 50_000, "-0", "1e-400"])
    path, name, other = rng.choice(
        [
            ("/v1/embeddings", "dimensions", '"input": "a"'),
            ("/v1/answer", "null_threshold", '"question": "who", "context": "the cat"'),
            ("/v1/answer", "top", '"question": "who", "context": "the cat"'),
            ("/v1/rerank", "top_n", '"query": "a", "documents": ["b"]'),
            ("/embed", "inputs", '"normalize": true'),
        ]
    )
    return Attack([request(f'{{"{name}": {number}, {other}}}'.encode(), path)])


def texts_of_all_sizes(rng):
    """Texts up to the limits of bytes, texts and tokens, and above them."""
    unit = rng.choice(
        ["x", " ", "的", "e\u0301", "cat ", "a.", "[MASK] ", "\u200b", "\n", "🙂", "the cat sat on a mat "]
    )
    size = rng.choice([1_000, 100_000, 1_000_000, 3_900_000, 4_500_000])
    text = unit * (size // len(json.dumps(unit)) + 1)
    count = rng.choice([1, 1, 10, 2_048, 2_049])
    texts = [text[: len(text) // count + 1]] * count
    endpoint = rng.choice(ENDPOINTS)
    fields = {"input": texts, "inputs": texts, "texts": texts, "documents": texts, "query": texts[0]}
    fields |= {"question": texts[0], "context": texts[0]}
    body = {name: fields[name] for name in endpoint.fields if name in fields}
    if endpoint.path == "/v1/answer":
        body = rng.choice([{"question": "who", "context": text}, {"input": [{"question": "who", "context": text}] * 2}])
    if endpoint.path == "/rerank":
        body.pop(rng.choice(["texts", "documents"]))
    return Attack([posted(body, endpoint.path)])


def shapes_of_json(rng):
    """JSON that is deep, wide, cut off, or no JSON."""
    depth = rng.choice([10, 500, 990, 1_000, 5_000, 100_000])
    bodies = [
        *[(b"[", depth, b""), (b'{"inputs":', depth, b""), (b"1,", 1_000_000, b"1]}"), (b"[1],", 500_000, b"[1]]}")],
        *[
            (b'"",', 900_000, b'""]}'),
            (b'"\\u0000",', 300_000, b'""]}'),
            (b'{"a":', depth, b"1" + b"}" * depth + b"]}"),
        ],
        (b"[", depth, b"]" * depth + b"]}"),
    ]
    unit, count, end = rng.choice(bodies)
    body = (b'{"inputs": [' if b"}" in end else b"") + unit * count + end
    if rng.random() < 0.4:
        wide = b"{" + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}"
        short = [
            b"",
            b"{",
            b"null",
            b'"a"',
            b"[]",
            b"3",
            b"{'inputs': 'a'}",
            b'{"inputs": "a"} x',
            b'{"inputs": "\x01"}',
        ]
        body = rng.choice([wide, b'{"inputs": "a", "inputs": "b"}', *short])
    return Attack([request(body, rng.choice(["/embed", "/predict", "/v1/embeddings", "/v1/tag"]))])


def encodings(rng):
    """Bodies in other encodings than UTF-8, compressed, or with wrong marks."""
    text = '{"inputs": "the cat"}'
    bodies = [text.encode(name) for name in ("utf-16", "utf-32", "utf-7", "cp037", "utf-8-sig")]
    bodies += [b'{"inputs": "\xff\xfe"}', b'{"inputs": "\xed\xa0\xbd"}', b'{"inputs": "\\ud83d"}', b'{"\\ud83d": 1}']
    bodies += [b'{"inputs": "a", "model": "\\ud83d"}', b'{"inputs": "a", "prompt_name": "\\udfff\\u0000"}']
    bodies += [gzip.compress(text.encode()), gzip.compress(b" " * 10_000_000, 1), b"\x80"]
    kind = rng.choice(["application/json", "application/json; charset=latin-1", "APPLICATION/JSON;", "text/json", ""])
    headers = rng.choice(["", "Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", "Accept: text/html\r\n"])
    return Attack([request(rng.choice(bodies), kind=kind, headers=headers)])


def broken_http(rng):
    """What is not HTTP, or no HTTP that a client sends."""
    body = b'{"inputs": "the cat"}'
    good = request(body)
    attacks = [
        *[
            b"\r\n\r\n",
            b"\x00" * 1_000,
            b"GET\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
        ],
        good.replace(b"Host: localhost\r\n", b""),
        good.replace(b"Host: localhost\r\n", b"Host: localhost\r\nHost: evil.example\r\n"),
        good.replace(b"localhost", b"evil.example"),
        good.replace(b"localhost", b"\xff[::"),
        good.replace(b"HTTP/1.1", b"HTTP/9.9"),
        good.replace(b"HTTP/1.1", b"HTTP/1.0"),
        good.replace(b"POST", rng.choice([b"post", b"GET", b"HEAD", b"TRACE", b"CONNECT", b"OPTIONS", b"X" * 5_000])),
        good.replace(b"/embed", rng.choice([b"*", b"http://localhost/embed", b"//embed", b"/%ff%00", b"/embed?a=%ff"])),
        good.replace(b"/embed", rng.choice([b"/../embed", b"/" + b"a" * 60_000, b"/\xc3\xa4", b"/a b", b"\x00"])),
        good.replace(b"Content-Length", b"Content-Length : 3\r\nX"),
        good.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length"),
        good.replace(b"Content-Length", b"Transfer-Encoding: gzip, chunked\r\nX"),
        good.replace(b"Content-Length", b"X: a\r\n b\r\nContent-Length"),
        good.replace(b"Content-Length", b"X: " + b"a" * rng.choice([30_000, 200_000]) + b"\r\nContent-Length"),
        good.replace(b"Content-Length", b"".join(b"X%d: a\r\n" % i for i in range(5_000)) + b"Content-Length"),
        good.replace(b"Content-Length", b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length"),
        good.replace(b"Content-Length", b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length"),
        good.replace(b"Content-Length", b"Authorization: Bearer \xff\r\nContent-Length"),
        *[request(body, length=length) for length in ("-1", "3.5", "9" * 50, "0x10", "", "5000000", "+3", "3, 3")],
        request(body, headers="Expect: 100-continue\r\n"),
        *[good[:size] for size in (1, 40, len(good) - 3)],
    ]
    return Attack([rng.choice(attacks)], holds=0.2, reads=rng.random() < 0.8, statuses=frozenset({0, 200, *REFUSALS}))


def chunks(rng):
    """Bodies in chunks of all sizes, with wrong lengths, extensions, and without an end."""
    body = json.dumps({"inputs": "cat " * rng.choice([1, 10_000, 200_000])}).encode()
    good = chunked(body, rng.choice([1, 2, 100, 60_000]), rng.choice([b"", b"", b";a=b", b";" + b"x" * 200]))
    broken = [chunked(body, len(body)).replace(b"\r\n\r\n", b"\r\n\r\n" + wrong, 1) for wrong in (b"zz\r\n", b"-1\r\n")]
    broken += [good[:-5], good[: len(good) // 2], good[:-2] + b"X: " + b"a" * 100_000 + b"\r\n\r\n"]
    broken += [chunked(b"{}", 2).replace(b"2\r\n", b"f" * 16 + b"\r\n"), chunked(b"{}", 2).replace(b"2\r\n", b"f" * 99)]
    part = rng.choice([good, good, rng.choice(broken)])
    return Attack([part], statuses=frozenset({0, 200, *REFUSALS}))


def slowly(rng):
    """Requests of which a byte arrives per second, in the header or in the body, and some that stop."""
    data = request(b'{"inputs": "the cat"}')
    start = rng.choice([0, 10, len(data) - 15, len(data) - 3])
    parts = [data[:start], *[data[i : i + 1] for i in range(start, min(len(data), start + 6))]]
    return Attack(parts, pause=1.0, reads=False)


def leaving(rng):
    """Clients that leave before their answer, some by a reset, or hold the connection without reading."""
    texts = ["the cat sat on a mat " * rng.choice([1, 20])] * rng.choice([1, 30, 300])
    data = posted({"inputs": texts})
    attacks = [Attack([data], reads=False, holds=rng.choice([0, 0.01, 0.3]), resets=rng.random() < 0.5)]
    attacks += [Attack([data[: len(data) // 2]], reads=False, resets=rng.random() < 0.5)]
    attacks += [Attack([data] * 5, reads=False, holds=5), Attack([posted({"inputs": "a"}) * 200], reads=False, holds=2)]
    return rng.choice(attacks)


def tokens(rng):
    """Token ids, as some clients send them instead of texts."""
    ids = [rng.randrange(100_000) for _ in range(rng.choice([1, 3, 8_000]))]
    path, name = rng.choice([("/v1/embeddings", "input"), ("/embed", "inputs"), ("/embed_sparse", "inputs")])
    return Attack([posted({name: rng.choice([ids, [ids, ids], [[0.5]], [ids, "a"], [[]]])}, path)])


KINDS: tuple[Callable[[random.Random], Attack], ...] = (
    *(wrong_fields, wrong_fields, numbers, texts_of_all_sizes, shapes_of_json, encodings),
    *(broken_http, broken_http, chunks, slowly, leaving, tokens),
)


def attack_of(seed: int, number: int) -> tuple[str, Attack]:
    """The name of the kind and the attack of a number."""
    rng = random.Random(f"{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    return kind.__name__, kind(rng)


# === Clients ===


@dataclass
class Record:
    """What has happened: statuses by kind, failures in words, and the times of the well-behaved client."""

    statuses: dict[str, dict[int, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads a response. Returns its status and body; 0 if the connection is closed without one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head[9:12] == b"100":
            head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(size[1])) if size else await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, b""
    return int(head[9:12]), body


async def attack(port: int, name: str, number: int, attack: Attack, record: Record, pace: float) -> None:
    """Sends a hostile request, and records what it is answered. Pauses are multiplied by `pace`."""
    status, body = 0, b""
    with contextlib.suppress(ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        for part in attack.parts:
            writer.write(part)
            with contextlib.suppress(ConnectionError, TimeoutError):  # refused before everything is sent
                await asyncio.wait_for(writer.drain(), 30)
            await asyncio.sleep(attack.pause * pace)
        if attack.reads:
            with contextlib.suppress(TimeoutError):  # it waits for the rest of the request
                status, body = await asyncio.wait_for(read_response(reader), 2 * pace if 0 in attack.statuses else 90)
        else:
            await asyncio.sleep(attack.holds * pace)
        if attack.resets:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort() if attack.resets else writer.close()
    of_kind = record.statuses.setdefault(name, {})
    of_kind[status] = of_kind.get(status, 0) + 1
    if attack.reads and status not in attack.statuses:
        record.failures.append(f"{name} {number}: status {status} {body[:200]!r}")
    if body:
        try:
            json.loads(body)
        except ValueError:
            record.failures.append(f"{name} {number}: a response that is no JSON: {body[:80]!r}")


def attack_all(port: int, seed: int, numbers: Iterable[int], clients: int, pace: float) -> Record:
    """Sends the attacks of `numbers`, `clients` at a time. It takes a process, so that the other client has its own."""
    record, remaining = Record(), iter(numbers)

    async def client():
        for number in remaining:
            name, one = attack_of(seed, number)
            await attack(port, name, number, one, record, pace)

    async def run():
        await asyncio.gather(*[client() for _ in range(clients)])

    asyncio.run(run())
    return record


async def well_behaved(port: int, record: Record, stop: asyncio.Event) -> None:
    """Asks for a vector every 50 ms, by turns over one connection and over a new one, and checks the answers."""
    body, expected, kept = posted({"inputs": "the cat sat on a mat"}), None, None
    while not stop.is_set():
        start = time.monotonic()
        try:
            fresh = kept is None or len(record.times) % 2
            reader, writer = await asyncio.open_connection("127.0.0.1", port) if fresh else kept
            writer.write(body)
            status, content = await asyncio.wait_for(read_response(reader), 30)
            if kept is None:
                kept = reader, writer
            elif fresh:
                writer.close()
        except (OSError, TimeoutError) as error:
            status, content, kept = 0, repr(error).encode(), None
        record.times.append(time.monotonic() - start)
        vectors = json.loads(content) if status == 200 else None
        expected = vectors if expected is None else expected
        if vectors is None or max(abs(a - b) for a, b in zip(vectors[0], expected[0], strict=True)) > 1e-5:
            record.failures.append(f"the well-behaved client: {status} {content[:200]!r}")
        if record.times[-1] > MOST_SECONDS:
            record.failures.append(f"the well-behaved client waited for {record.times[-1]:.2f} s")
        await asyncio.sleep(max(0.0, start + 0.05 - time.monotonic()))


# === The server ===


def resident(pid: int) -> float:
    """Resident memory of a process in MB; 0 where the system does not say."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
    return 0.0


async def run(port: int, pid: int, seed: int, requests: int, clients: int, pace: float) -> tuple[Record, list[float]]:
    """Attacks a server. Returns the record, and its memory before, half-way and after."""
    record, stop = Record(), asyncio.Event()
    good = asyncio.create_task(well_behaved(port, record, stop))
    await asyncio.sleep(0.5)
    memory = [resident(pid)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        for half in range(2):
            numbers = range(half * requests // 2, (half + 1) * requests // 2)
            attacking = process, attack_all, port, seed, numbers, clients, pace
            found = await asyncio.get_running_loop().run_in_executor(*attacking)
            record.failures += found.failures
            for name, statuses in found.statuses.items():
                of_kind = record.statuses.setdefault(name, {})
                of_kind |= {status: of_kind.get(status, 0) + count for status, count in statuses.items()}
            await asyncio.sleep(0.5)
            memory.append(resident(pid))
    stop.set()
    await good
    return record, memory


def attacked(exports: Sequence, requests: int, seed: int = 0, clients: int = 16, pace: float = 1.0, options=()) -> dict:
    """Starts a server, attacks it, and ends it. Returns a summary."""
    command = [sys.executable, "-m", "pipelines.serve", *map(str, exports), "--api", "--port", "0", *options]
    with tempfile.TemporaryFile("w+") as log:
        pipes = dict(stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        with subprocess.Popen(command, **pipes) as process:
            try:
                port = int(re.search(r":(\d+) \(", process.stdout.readline())[1])
                record, memory = asyncio.run(run(port, process.pid, seed, requests, clients, pace))
                process.send_signal(signal.SIGTERM)
                status = process.wait(90)
            finally:
                process.kill()
        log.seek(0)
        lines = log.read().splitlines()
    errors = [line[:2_000] for line in lines if not line.startswith("{") or '"level": "error"' in line]
    failures = record.failures + errors + ([f"the server ended with status {status}"] if status else [])
    if memory[2] - memory[1] > MOST_GROWTH:
        failures.append(f"memory grew from {memory[1]:.0f} to {memory[2]:.0f} MB in the second half")
    times = sorted(record.times)
    summary = {"requests": requests, "statuses": record.statuses}
    summary |= {"answers": len(times), "p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}
    return summary | {"slowest": times[-1], "memory": memory, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", nargs="+")
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--options", default="", help="further options of the server")
    options = parser.parse_args()
    found = attacked(options.exports, options.requests, options.seed, options.clients, options=options.options.split())
    print(json.dumps(found, indent=1))
    raise SystemExit(bool(found["failures"]))


if __name__ == "__main__":
    main()
