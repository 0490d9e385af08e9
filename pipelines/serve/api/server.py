"""Runs the server: opens the models, listens, writes the log, and ends when the requests are answered."""

import dataclasses
import gc
import json
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from kerasbert.data.processes import safe_path
from kerasbert.runtime import Threads, open_export
from kerasbert.runtime.programs import number_of_cores

from ..exports import find_export
from ..ports import listen
from ..request_limits import own_names
from .app import create_app
from .connections import Connection
from .gate import Access
from .limits import Limits
from .log import JsonLines, logger
from .options import Server

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SETTINGS = "KERASBERT_SERVER"  # the environment variable from which worker processes read their settings
TOKEN = "KERASBERT_TOKEN"
MOST_PARALLEL = 4  # batches, unless an option says more: with more cores, each batch has several
KEEP_ALIVE = 75  # seconds, longer than load balancers keep idle connections


def named_exports(models: Sequence[str]) -> dict[str, Path]:
    """Returns {name: folder of the export}, in the order of the models, each a folder or NAME=FOLDER.

    Raises: ValueError for no models, and for two models of the same name.
    """
    if not models:
        raise ValueError("A server needs a model. Received: none. Give a folder: serve saved_models/mine --api.")
    found: dict[str, Path] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or "/" in name or Path(model).is_dir():
            name, path = model.rstrip("/").rpartition("/")[2], model
        if name in found:
            raise ValueError(f"Models must have different names. Received: {name} twice. Use NAME={path}.")
        found[name] = find_export(path)
    return found


def token_of(server: Server) -> str | None:
    """Returns the bearer token, or None if there is none."""
    if server.token_file is None:
        token = os.environ.get(TOKEN)
        source = f"the environment variable {TOKEN}"
    else:
        if server.token_file.stat().st_mode & stat.S_IROTH:
            raise ValueError(
                f"The file of a token must not be readable by everybody. Received: {server.token_file}. "
                f"Use chmod o-r {server.token_file}."
            )
        token, source = server.token_file.read_text(encoding="utf-8").strip(), str(server.token_file)
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable()):
        raise ValueError(f"A token must have at least 8 printable ASCII characters. Received: another, in {source}.")
    return token


def check_access(host: str, server: Server) -> None:
    """Raises a ValueError if other machines could use the models without a token that nobody decided to omit."""
    if host not in LOOPBACK and token_of(server) is None and not server.without_token:
        raise ValueError(
            f"A server that other machines reach needs a token. Received: --host {host} without one. Set {TOKEN}, or "
            "use --token-file; or use --without-token, if everybody who reaches this machine may use the models."
        )


def serve(models: Sequence[str], host: str, port: int, hosts: Sequence[str], limits: Limits, server: Server) -> None:
    """Answers until SIGTERM or Ctrl-C, and then ends when the requests that were admitted are answered.

    Args:
        models: see `named_exports`.
        host, port, hosts: see `serve.command`.
        limits: what a request may ask for.
        server: how the API is served.
    """
    check_access(host, server)
    exports = named_exports(models)
    settings: dict[str, Any] = dict(models={name: str(path) for name, path in exports.items()}, hosts=[*hosts, host])
    settings |= dict(limits=dataclasses.asdict(limits), workers=server.workers)
    settings["token_file"] = server.token_file and str(server.token_file.resolve())
    os.environ[SETTINGS] = json.dumps(settings)
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        address = f"{', '.join(exports)}: http://{shown}:{listening.getsockname()[1]} (Ctrl-C ends the server)"
        if server.workers == 1:
            run(listening, address)
        else:
            with tempfile.TemporaryDirectory() as shared:  # the metrics of the processes
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
                print(address, flush=True)
                supervise(server.workers, listening)


def run(listening: socket.socket, address: str | None = None) -> None:
    """Answers in this process until SIGTERM.

    Args:
        listening: the socket.
        address: what is printed when the models are open.
    """
    settings = json.loads(os.environ[SETTINGS])
    limits = Limits(**settings["limits"])
    options: dict[str, Any] = dict(
        log_config=None, access_log=False, server_header=False, proxy_headers=False, http=Connection, ws="none"
    )
    options |= dict(timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=int(limits.max_seconds) + 1)
    write_log()
    app = open_app(settings, limits)
    gc.collect()
    gc.freeze()  # so that the collections while large requests are parsed take less time
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # called once the server has ended
    if address is not None:
        print(address, flush=True)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listening])


def _end_with(parent):
    multiprocessing.connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def open_app(settings: Mapping[str, Any], limits: Limits) -> Any:
    """Opens the models, and creates the application."""
    cores = max(1, number_of_cores() // settings["workers"])
    parallel = limits.parallel or min(cores, MOST_PARALLEL)
    # A thread that spins would keep a core from those that read requests and texts.
    threads = Threads(max(1, cores // parallel), spin=False)
    models = {name: open_export(Path(path), threads) for name, path in settings["models"].items()}
    token = token_of(Server(token_file=settings["token_file"] and Path(settings["token_file"])))
    limits = dataclasses.replace(limits, parallel=parallel)
    return create_app(models, limits, Access(own_names(settings["hosts"]), token))


def write_log() -> None:
    """Has the log written to standard error as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for written, level in (logger, logging.INFO), (logging.getLogger("uvicorn.error"), logging.WARNING):
        written.handlers, written.propagate = [handler], False
        written.setLevel(level)


def supervise(count: int, listening: socket.socket) -> None:
    """Runs processes that share a socket, and replaces those that die, until SIGTERM or Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    processes: list[Any] = []
    stopping = False

    def stop(number, frame):
        nonlocal stopping
        stopping = True
        for process in processes:
            process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while not stopping:
        for process in [process for process in processes if not process.is_alive()]:
            mark_process_dead(process.pid)
            processes.remove(process)
        while len(processes) < count and not stopping:
            processes.append(context.Process(target=run, args=(listening,)))
            with safe_path():
                processes[-1].start()
        multiprocessing.connection.wait([process.sentinel for process in processes], timeout=1)
        time.sleep(0.1)  # a process that cannot start is not replaced at full speed
    listening.close()  # otherwise connections would be made that nobody answers
    for process in processes:
        process.terminate()
        process.join()
