"""A small server with those routes of the Hugging Face Hub that `huggingface_hub` uses to read and write models."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


class Hub:
    """Repositories in memory.

    Attributes:
        files: {repository: {path: bytes}}.
        sent: {path: number of bytes that were downloaded}.
        address: for the environment variable HF_ENDPOINT.
    """

    def __init__(self):
        self.files, self.sent, self.address = {}, {}, None


def _hash(content):
    return hashlib.sha256(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _answer(self, body, status=200, headers=(), send=True):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Length", str(len(body))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        if send:
            self.wfile.write(body)

    def _missing(self, send=True):
        self._answer({"error": "Repository not found"}, 404, [("X-Error-Code", "RepoNotFound")], send)

    def do_GET(self, send=True):
        info = re.fullmatch(r"/api/models/([\w-]+/[\w-]+)(/revision/[^/]+)?", self.path.partition("?")[0])
        if info and info[1] in self.hub.files:
            names = [{"rfilename": name} for name in self.hub.files[info[1]]]
            return self._answer({"id": info[1], "sha": COMMIT, "private": False, "tags": [], "siblings": names})
        tree = re.fullmatch(r"/api/models/([\w-]+/[\w-]+)/tree/[^/]+", self.path.partition("?")[0])
        if tree and tree[1] in self.hub.files:
            files = self.hub.files[tree[1]].items()
            return self._answer([{"type": "file", "path": n, "size": len(c), "oid": _hash(c)} for n, c in files])
        found = re.fullmatch(r"/([\w-]+/[\w-]+)/resolve/[^/]+/(.+)", self.path)
        content = found and self.hub.files.get(found[1], {}).get(found[2])
        if content is None:
            return self._missing(send)
        if send:
            self.hub.sent[found[2]] = self.hub.sent.get(found[2], 0) + len(content)
        return self._answer(content, headers=[("ETag", f'"{_hash(content)}"'), ("X-Repo-Commit", COMMIT)], send=send)

    def do_HEAD(self):
        self.do_GET(send=False)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.hub.files.setdefault(name, {})
            return self._answer({"url": f"{self.hub.address}/{name}"})
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        found = re.fullmatch(r"/api/models/([\w-]+/[\w-]+)/(preupload|commit)/[^/]+", self.path.partition("?")[0])
        if not found or found[1] not in self.hub.files:
            return self._missing()
        if found[2] == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self._answer({"files": files})
        for line in body.splitlines():
            item = json.loads(line)
            if item["key"] == "file":
                self.hub.files[found[1]][item["value"]["path"]] = base64.b64decode(item["value"]["content"])
        url = f"{self.hub.address}/{found[1]}/commit/{COMMIT}"
        return self._answer({"success": True, "commitUrl": url, "commitOid": COMMIT})


@contextlib.contextmanager
def serving():
    """Yields a running `Hub`."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
