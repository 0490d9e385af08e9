"""Measures HTTP servers of embeddings on this machine, in turns: texts a second, and the latency of requests.

python -m benchmarks.serving.run EXPORT --model FOLDER --infinity ENVIRONMENT/bin/infinity_emb --rounds 3

EXPORT is the folder that `kerasbert export FOLDER EXPORT --format onnxruntime` writes, and FOLDER that of the model,
which sentence-transformers and Infinity read. Infinity needs an environment of its own, with transformers 4. 32 clients
on the loopback send one text after the other, of mixed lengths. The servers are started before, and measured one after
the other in each round. Beside them, the engine answers the same texts in one call.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kerasbert.runtime import open_export

HERE = Path(__file__).parent
WORDS = "the of and a to in is was for it with as his on be at by I this had not are but from or have an they".split()


def texts_of(count: int, seed: int = 0) -> list[str]:
    """Texts of 4 to 200 words, most of them short."""
    generator = np.random.default_rng(seed)
    lengths = np.clip(generator.lognormal(3.2, 0.9, count).astype(int), 4, 200)
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


@dataclass(frozen=True)
class Server:
    """The command of a server, without its port, and the requests that it takes."""

    command: list[str]
    path: str = "/embed"
    field: str = "inputs"

    def body(self, text: str) -> bytes:
        model = {"model": "model"} if self.field == "input" else {}
        return json.dumps({self.field: text, **model}).encode()


async def client(
    port: int, server: Server, texts: list[str], stop: float, times: list[float], failed: list[str]
) -> None:
    """Sends one request after the other over one connection, until `stop`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(10**9):
        start = time.monotonic()
        if start > stop:
            break
        body = server.body(texts[number % len(texts)])
        head = f"POST {server.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        if answer[9:12] == b"200":
            times.append(time.monotonic() - start)
        else:
            failed.append(answer[9:12].decode())
    writer.close()


async def load(port: int, server: Server, clients: int, seconds: float) -> tuple[list[float], list[str], float]:
    """Runs clients for some seconds. Returns (times of requests, statuses of failures, seconds)."""
    times: list[float] = []
    failed: list[str] = []
    start = time.monotonic()
    parts = [texts_of(50, seed) for seed in range(clients)]
    await asyncio.gather(*[client(port, server, part, start + seconds, times, failed) for part in parts])
    return times, failed, time.monotonic() - start


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def servers_of(options: argparse.Namespace) -> dict[str, Server]:
    """{name: server}, ours first."""
    python = sys.executable
    found = {"kerasbert": Server([python, "-m", "pipelines.serve", options.export, "--api", "--port"])}
    if options.int8:
        found["kerasbert, int8"] = Server([python, "-m", "pipelines.serve", options.int8, "--api", "--port"])
    found["ONNX Runtime, 60 lines"] = Server([python, str(HERE / "onnx_server.py"), options.export])
    if options.model:
        found["sentence-transformers, 30 lines"] = Server(
            [python, str(HERE / "sentence_transformers_server.py"), options.model]
        )
    if options.model and options.infinity:
        model = ["--model-id", options.model, "--served-model-name", "model", "--device", "cpu"]
        command = [options.infinity, "v2", *model, "--no-bettertransformer", "--port"]
        found["Infinity, torch"] = Server(command, "/embeddings", "input")
    return found


def started(server: Server) -> tuple[subprocess.Popen, int, float]:
    """Starts a server. Returns (process, port, seconds until its first answer)."""
    port, start = free_port(), time.monotonic()
    process = subprocess.Popen([*server.command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address, headers = f"http://127.0.0.1:{port}{server.path}", {"Content-Type": "application/json"}
    request = urllib.request.Request(address, server.body("a text"), headers)
    while True:
        try:
            urllib.request.urlopen(request, timeout=60).read()
            return process, port, time.monotonic() - start
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(server.command)} has ended") from None
            time.sleep(0.02)


def resident(process: subprocess.Popen) -> float:
    """Resident memory of a process in MB."""
    line = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export")
    parser.add_argument("--model")
    parser.add_argument("--int8")
    parser.add_argument("--infinity")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    servers = servers_of(options)
    running = {}
    rows: dict[str, list] = {}
    try:
        for name, server in servers.items():
            running[name] = started(server)
        engine = open_export(Path(options.export))
        for _ in range(options.rounds):
            for name, (process, port, first) in running.items():
                for other, (paused, *_) in running.items():
                    os.kill(paused.pid, signal.SIGCONT if other == name else signal.SIGSTOP)
                asyncio.run(load(port, servers[name], options.clients, 1))
                times, failed, seconds = asyncio.run(load(port, servers[name], options.clients, options.seconds))
                p50, p99 = np.percentile(times, [50, 99]) * 1_000
                rows.setdefault(name, []).append(
                    (len(times) / seconds, p50, p99, len(failed), first, resident(process))
                )
            for process, *_ in running.values():
                os.kill(process.pid, signal.SIGSTOP)
            texts = [text for seed in range(options.clients) for text in texts_of(8, seed)]
            start = time.monotonic()
            engine.answer(texts)
            rows.setdefault("the engine, called directly", []).append((len(texts) / (time.monotonic() - start),))
    finally:
        for process, *_ in running.values():
            os.kill(process.pid, signal.SIGCONT)
            process.terminate()
    print("| server | texts a second | p50, ms | p99, ms | failed | first answer, s | memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for name, found in rows.items():
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        shown = [f"{value:.0f}" if i != 4 else f"{value:.1f}" for i, value in enumerate(medians)]
        print(f"| {name} | {' | '.join(shown + [''] * (6 - len(shown)))} |")


if __name__ == "__main__":
    main()
