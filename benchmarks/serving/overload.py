"""Loads `kerasbert serve --api` beyond its capacity, and ends it under load.

python -m benchmarks.serving.overload EXPORT --seconds 600 --times 1.5 --workers 1

First, 32 clients measure the capacity. Then requests come at a fixed rate, whether the earlier ones are answered or
not: each must be answered with 200, or with 429 and `Retry-After`. Last, the server gets SIGTERM while requests go on:
it must answer each that it has admitted, and end with the status 0.
"""

import argparse
import asyncio
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .run import Server, load, texts_of

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = Server([], "/embed")


async def ask(port: int, text: str) -> tuple[int, float]:
    """Sends a request over a connection of its own. Returns (status, seconds).

    The status is 0 if the connection is closed without an answer, and -1 if the answer is incomplete, or a 429 without
    `Retry-After`.
    """
    start, answer = time.monotonic(), b""
    body = SERVER.body(text)
    head = f"POST {SERVER.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
        answered, _, content = answer.partition(b"\r\n\r\n")
        json.loads(content)
        status = int(answered[9:12])
        assert status != 429 or re.search(rb"(?i)retry-after: \d+", answered)
    except (OSError, ValueError, AssertionError):
        status = -1 if answer else 0
    return status, time.monotonic() - start


async def overload(port: int, rate: float, seconds: float, pids: list[int]) -> list[tuple[float, int, float]]:
    """Sends `rate` requests a second. Returns (time, status, seconds) of each, and prints a line a minute."""
    found: list[tuple[float, int, float]] = []
    begun, tasks, texts = time.monotonic(), set(), texts_of(997)
    shown = 0

    async def one(text):
        sent = time.monotonic() - begun
        found.append((sent, *await ask(port, text)))

    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        task = asyncio.create_task(one(texts[number % len(texts)]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        minute = int((time.monotonic() - begun) // 60)
        if minute > shown:
            shown = minute
            print(f"minute {minute}: {summary(found[-4_000:])}, {memory(pids):.0f} MB", flush=True)
    await asyncio.gather(*tasks)
    return found


def summary(found: list[tuple[float, int, float]]) -> str:
    counts = collections.Counter(status for _, status, _ in found)
    times = [seconds for _, status, seconds in found if status == 200] or [0.0]
    p50, p99 = np.percentile(times, [50, 99])
    return f"statuses {dict(counts)}, answered in p50 {p50:.2f} s, p99 {p99:.2f} s, at most {max(times):.2f} s"


def memory(pids: list[int]) -> float:
    """Resident memory of processes in MB."""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) for status in statuses) / 1024


def processor_time(pids: list[int]) -> float:
    """Seconds of processor time that processes have taken."""
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(map(int, sum(ticks, []))) / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [pid, *map(int, children)]


async def terminated(process: subprocess.Popen, port: int, rate: float) -> list[tuple[float, int, float]]:
    """Sends SIGTERM after 3 of 6 seconds of load."""
    asyncio.get_running_loop().call_later(3, process.send_signal, signal.SIGTERM)
    return await overload(port, rate, 6, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--times", type=float, default=1.5, help="the rate of requests, in capacities")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    command = [sys.executable, "-m", "pipelines.serve", options.export, "--api", "--port", "0"]
    command += ["--workers", str(options.workers)]
    log = tempfile.TemporaryFile("w+")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as process:
        try:
            port = int(re.search(r":(\d+) \(", process.stdout.readline())[1])
            asyncio.run(load(port, SERVER, 32, 3))
            times, failed, seconds = asyncio.run(load(port, SERVER, 32, 10))
            rate = len(times) / seconds * options.times
            pids = family(process.pid)
            print(f"capacity {len(times) / seconds:.0f} texts a second, {len(failed)} failed, {memory(pids):.0f} MB")
            start, before, own = time.monotonic(), processor_time(pids), time.process_time()
            found = asyncio.run(overload(port, rate, options.seconds, pids))
            passed = time.monotonic() - start
            used, own = (processor_time(pids) - before) / passed, (time.process_time() - own) / passed
            answered = sum(status == 200 for _, status, _ in found) / passed
            print(f"{options.times} times as many: {summary(found)}, {memory(pids):.0f} MB")
            print(f"answered {answered:.0f} a second; the server used {used:.2f} cores, and the clients {own:.2f}")
            ended = asyncio.run(terminated(process, port, rate))
            status = process.wait(90)
        finally:
            process.kill()
    log.seek(0)
    lines = [json.loads(line) for line in log.read().splitlines()]
    admitted = collections.Counter(line["status"] for line in lines if line.get("path") == SERVER.path)
    print(f"SIGTERM: {summary(ended)}; the server ended with status {status}; its log has {dict(admitted)}")
    raise SystemExit(bool(status) or not {status for _, status, _ in found} <= {200, 429} or 499 in admitted)


if __name__ == "__main__":
    main()
