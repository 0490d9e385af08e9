"""Ends all processes of a run if one of them has ended, with an error that names the lost process.

Collective operations and barriers wait for minutes for a process that no longer exists, in compiled code that
exceptions cannot interrupt. Therefore, the first process keeps a connection to each of the others. The operating system
closes the connection when one of them ends for any reason.
"""

import contextlib
import functools
import json
import os
import socket
import sys
import threading
import time

import keras

from .hosts import gathered, here, num_processes

GRACE = 5.0  # seconds that a process has to end by itself when another one is lost
STATUS = 70  # of a process that ends because another one is lost (EX_SOFTWARE)


class HostLost(RuntimeError):
    """Raised if another process of the run has ended, so that this process cannot continue."""


@contextlib.contextmanager
def ending_together():
    """Context manager that makes all processes of a run end if one of them ends.

    Errors of the connection become a `HostLost`. If the process has not ended after `GRACE` seconds, because it waits
    in compiled code or for a checkpoint of all processes, it ends with the exit status `STATUS`. All processes must
    enter the context.
    """
    if keras.backend.backend() != "jax" or num_processes() == 1:
        yield
        return
    watch = _watch()
    with watch:
        try:
            yield
        except Exception as error:
            if not watch.explains(error):
                raise
            raise HostLost(watch.message(" ".join(str(error).split())[:200])) from error


@functools.cache
def _watch():
    return Watch()


class Watch:
    """Connections between the first process of a run and the others. Their threads run until the process ends."""

    def __init__(self):
        self._lost, self._ended = None, threading.Event()
        self._active = 0  # contexts that are entered
        self._connections = []
        server = socket.create_server(("", 0), backlog=num_processes())
        everyone = [json.loads(text) for text in gathered(json.dumps([here(), *_address(server)]))]
        (name, host, port), *others = everyone
        if name == here():
            for _ in others:
                connection, _ = server.accept()
                self._follow(connection, json.loads(connection.recv(1 << 12)))
        else:
            connection = socket.create_connection((host, port))
            connection.sendall(json.dumps(here()).encode())
            self._follow(connection, name)
        server.close()

    def __enter__(self):
        self._active += 1

    def __exit__(self, kind, error, trace):
        self._active -= 1
        if error is not None and not getattr(error, "raised_by_all", False):
            for connection in self._connections:  # the others would wait for this process
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _follow(self, connection, name):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connections.append(connection)
        threading.Thread(target=self._wait, args=(connection, name), daemon=True).start()

    def _wait(self, connection, name):
        """Waits until the process at the other end of the connection is lost, or reports that another one is lost."""
        try:
            told = connection.recv(1 << 12)
        except OSError:
            told = b""
        if not self._active or self._lost:
            return
        self._lost = told.decode() or name
        for other in self._connections:
            with contextlib.suppress(OSError):
                other.sendall(self._lost.encode())
        self._ended.set()
        time.sleep(GRACE)
        if self._active:
            print(f"HostLost: {self.message('It waits for that process.')}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(STATUS)

    def explains(self, error):
        """Whether a process is lost and may have caused an error."""
        return isinstance(error, (RuntimeError, ValueError, OSError)) and self._ended.wait(5.0)

    def message(self, reason):
        return (
            f"{self._lost} has ended or cannot be reached, so {here()} cannot go on. Start all processes again: the "
            f"run continues from its newest checkpoint. ({reason})"
        )


def _address(server):
    """Returns (address of this host, port of a server), for other processes."""
    try:
        return socket.gethostbyname(socket.gethostname()), server.getsockname()[1]
    except OSError:  # the name of this host is not in the name service
        return "127.0.0.1", server.getsockname()[1]
