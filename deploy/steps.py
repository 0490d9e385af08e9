"""Runs the steps of the Dockerfile on this machine, for machines without a container runtime.

    python deploy/steps.py saved_models/bert_mini_en

It exports the model and builds the wheel with the packages of this Python, which replaces the first stage. The second
stage is done as the Dockerfile says: the wheel with its extra is installed in an environment of its own, and its ENV,
ENTRYPOINT, CMD and HEALTHCHECK are run, if root runs this script as nobody, for whom all files but those in a temporary
folder are read-only. The server must answer, refuse a request without a token, leave no file behind, and end with the
status 0 on SIGTERM. Last, the script says what it has not run.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
NOBODY = 65534
TOKEN = "a-token-of-the-steps"
NOT_RUN = """
not run: the base image and Debian's packages; installing PyTorch, the extras of the first stage and `build` in an image
of their own; `docker run` with --read-only, --cap-drop and no-new-privileges (permissions of files stand for them);
deploy/compose.yaml and Prometheus; deploy/prometheus.yaml.
"""


def instruction(name: str) -> str:
    """The arguments of the last instruction of this name in the Dockerfile."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", joined, re.MULTILINE)[-1]


def words(name: str) -> list[str]:
    """The list of strings of an instruction, such as CMD."""
    return json.loads(instruction(name)[instruction(name).index("[") :])


def step(title: str, command: list[str], **options) -> None:
    print(f"{title}: {shlex.join(map(str, command))}", flush=True)
    subprocess.run(command, check=True, **options)


def first_stage(model: str, export: Path, wheels: Path) -> None:
    options = shlex.split(re.search(r'^ARG OPTIONS="(.*)"$', DOCKERFILE, re.MULTILINE)[1])
    command = [sys.executable, "-m", "kerasbert.command_line", "export", model, str(export), *options]
    step("export", command, cwd=ROOT)
    step("wheel", [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(wheels), "."], cwd=ROOT)


def second_stage(wheels: Path, environment: Path) -> Path:
    """Installs the wheel. Returns the folder with its commands."""
    extra = re.search(r"\*\.whl\)\[(\w+)\]", DOCKERFILE)[1]
    [wheel] = wheels.glob("*.whl")
    step("environment", [sys.executable, "-m", "venv", str(environment)])
    bin = environment / "bin"
    step("install", [bin / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", f"{wheel}[{extra}]"])
    for package in ("torch", "tensorflow", "jax"):
        found = subprocess.run([bin / "python", "-c", f"import {package}"], capture_output=True)
        assert found.returncode, f"the image must not have {package}"
    return bin


def demoted() -> None:
    """Becomes nobody."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def ask(url: str, fields: dict | None = None, token: str = TOKEN) -> tuple[int, bytes]:
    body = None if fields is None else json.dumps(fields).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def files_in(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*")}


def run_server(bin: Path, export: Path, home: Path, endpoint: str, fields: dict) -> None:
    """Runs the image's command, and asks it."""
    environment = dict(part.split("=", 1) for part in instruction("ENV").split())
    environment |= {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(home), "TMPDIR": str(home)}
    command = [str(export) if word == "/models/model" else word for word in words("ENTRYPOINT") + words("CMD")]
    port = command[command.index("--port") + 1]
    before = files_in(bin.parent, export)
    print("serve:", shlex.join(command), flush=True)
    options = dict(env={**environment, "KERASBERT_TOKEN": TOKEN}, cwd=home, preexec_fn=demoted)
    with subprocess.Popen([bin / command[0], *command[1:]], **options) as process:
        try:
            health = [bin / "python", *words("HEALTHCHECK")[1:]]
            start = time.monotonic()
            while subprocess.run(health, capture_output=True, env=environment, preexec_fn=demoted).returncode:
                assert process.poll() is None and time.monotonic() - start < 60, "the server does not get healthy"
                time.sleep(0.1)
            url = f"http://127.0.0.1:{port}"
            assert ask(f"{url}/v1/models", token="another")[0] == 401
            status, content = ask(f"{url}{endpoint}", fields)
            assert status == 200, content
            print(f"healthy after {time.monotonic() - start:.1f} s; {endpoint}: {content.decode()[:200]}")
            process.send_signal(signal.SIGTERM)
            assert process.wait(70) == 0, "SIGTERM must end the server with the status 0"
        finally:
            process.kill()
    assert files_in(bin.parent, export) == before, "the server must write nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="saved_models/bert_mini_en")
    parser.add_argument("--endpoint", default="/v1/fill-mask")
    parser.add_argument("--fields", type=json.loads, default={"input": "The [MASK] sat on the mat."})
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root, home = Path(folder), Path(folder) / "tmp"
        home.mkdir()
        home.chmod(0o777)
        first_stage(options.model, root / "model", root / "wheels")
        bin = second_stage(root / "wheels", root / "environment")
        run_server(bin, root / "model", home, options.endpoint, options.fields)
    print("passed" if os.geteuid() == 0 else "passed, but not as nobody: only root can become another user")
    print(NOT_RUN)


if __name__ == "__main__":
    main()
