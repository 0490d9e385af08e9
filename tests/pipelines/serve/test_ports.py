"""The port that a server listens on."""

import pytest

from pipelines.serve.ports import listen

pytestmark = pytest.mark.one_backend


def test_a_port_in_use_is_an_error_that_names_the_fix():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"Received: port {port} of 127.0.0.1: Address already in use. Use another"
        ):
            listen("127.0.0.1", port)
    listen("127.0.0.1", port).close()


def test_a_host_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="Received: port 0 of no host: .*or another --host"):
        listen("no host", 0)
