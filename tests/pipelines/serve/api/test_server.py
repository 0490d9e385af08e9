"""The command `serve --api` as a process: its log, its token, and its end, which loses no request that it admitted."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from pipelines.serve.api.limits import Limits
from pipelines.serve.api.options import Server
from pipelines.serve.api.server import check_access, named_exports, token_of
from pipelines.serve.command import serve
from tests.conftest import REPOSITORY
from tests.fuzz.requests import attacked

pytestmark = pytest.mark.one_backend


def ask(url, fields=None, token=None):
    """Returns (status, content) of a request."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    body = None if fields is None else json.dumps(fields).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@contextlib.contextmanager
def running(*arguments, **environment):
    """Runs the command. Yields (address, process), and ends it."""
    command = [sys.executable, "-m", "pipelines.serve", *map(str, arguments), "--api", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, **pipes) as process:
        try:
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, process.stderr.read()
            yield found[0], process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_server_ends_when_its_requests_are_answered(exports):
    """SIGTERM while requests run: each is answered or never admitted, and the status is 0."""
    texts = ["the cat sat on a mat " * 4] * 200
    with running(f"mine={exports['embedder']}", exports["tagger"], KERASBERT_TOKEN="a-long-token") as (url, process):
        assert ask(f"{url}/v1/models")[0] == 401
        status, content = ask(f"{url}/v1/models", token="a-long-token")
        assert [one["id"] for one in json.loads(content)["data"]] == ["mine", exports["tagger"].name]
        found = []

        def post():
            with contextlib.suppress(OSError):  # refused after the signal
                found.append(ask(f"{url}/v1/embeddings", {"input": texts}, "a-long-token"))

        threads = [threading.Thread(target=post) for _ in range(4)]
        for thread in threads:
            thread.start()
        while not found and any(thread.is_alive() for thread in threads):
            threads[0].join(0.01)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        assert process.wait(60) == 0
        log = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert found and all(status == 200 and len(json.loads(content)["data"]) == 200 for status, content in found)
    answered = [line for line in log if line.get("path") == "/v1/embeddings" and line["status"] == 200]
    assert len(answered) == len(found) and {line["model"] for line in answered} == {"mine"}
    assert "cat" not in json.dumps(log)


def test_several_processes_share_a_port_and_their_metrics(exports):
    with running(exports["embedder"], "--workers", "2") as (url, process):
        for _ in range(20):
            assert ask(f"{url}/embed", {"inputs": "the cat"})[0] == 200
        text = ask(f"{url}/metrics")[1].decode()
        assert 'kerasbert_requests_total{endpoint="/embed",status="200"} 20.0' in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_hostile_clients(exports):
    """No request harms the server or delays its other clients; `tests.fuzz.requests` says how."""
    small = ["--max-bytes", "200000", "--max-texts", "300", "--max-tokens", "20000"]
    found = attacked([exports[name] for name in exports], 144, pace=0.05, options=small)
    assert not [said for said in found["failures"] if "waited for" not in said]
    assert found["answers"] > 9 and found["slowest"] < 5  # on a machine that runs other tests meanwhile


def test_who_may_use_a_server(tmp_path, monkeypatch, exports):
    monkeypatch.delenv("KERASBERT_TOKEN", raising=False)
    check_access("127.0.0.1", Server())
    with pytest.raises(ValueError, match="--host 0.0.0.0 without one. Set KERASBERT_TOKEN"):
        check_access("0.0.0.0", Server())
    check_access("0.0.0.0", Server(without_token=True))
    file = tmp_path / "token"
    file.write_text("a-long-token\n")
    file.chmod(0o644)
    with pytest.raises(ValueError, match="must not be readable by everybody"):
        token_of(Server(token_file=file))
    file.chmod(0o600)
    assert token_of(Server(token_file=file)) == "a-long-token"
    check_access("0.0.0.0", Server(token_file=file))
    for wrong in ("short", "a-long-token\n2", "ä-long-token"):
        monkeypatch.setenv("KERASBERT_TOKEN", wrong)
        with pytest.raises(ValueError, match="at least 8 printable ASCII characters"):
            token_of(Server())


def test_names_of_models(exports):
    folder = exports["tagger"]
    assert named_exports([str(folder), f"b={folder}"]) == {folder.name: folder, "b": folder}
    with pytest.raises(ValueError, match=f"Received: {folder.name} twice. Use NAME="):
        named_exports([str(folder), f"{folder}/"])
    with pytest.raises(ValueError, match="A server needs a model. Received: none"):
        named_exports([])
    with pytest.raises(FileNotFoundError, match="There is no model 'nowhere'"):
        named_exports(["nowhere"])
    with pytest.raises(ValueError, match="--workers, --max-texts belong to the API. Received: them without --api"):
        serve((str(folder),), server=Server(workers=2), limits=Limits(max_texts=3))
    with pytest.raises(ValueError, match="--max-seconds must be above 0. Received: 0"):
        Limits(max_seconds=0)
