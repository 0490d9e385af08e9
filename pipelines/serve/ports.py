"""Opens the port that a server listens on."""

import os
import socket


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on a port.

    Args:
        host: address to listen on.
        port: 0 for any that is free.

    Raises: ValueError if another program uses the port, or if it cannot be opened for another reason.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise ValueError(
            f"The server needs a free port. Received: port {port} of {host}: {os.strerror(error.errno)}. Use another "
            "--port, or --port 0 for any that is free."
        ) from None
