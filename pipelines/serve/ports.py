"""Opens the port that a server listens on."""

import socket


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on a port.

    Args:
        host: address to listen on.
        port: 0 for any that is free.

    Raises: ValueError if another program uses the port or if it cannot be opened.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        raise ValueError(
            f"The server needs a free port. Received: port {port} of {host}: {reason}. Use another --port, --port 0 "
            "for any that is free, or another --host."
        ) from None
