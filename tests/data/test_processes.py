"""Python processes that this package starts execute nothing from the current folder."""

import ast
import json
import os
import subprocess
import sys
import time

import pytest

from kerasbert.data.processes import PIPE, start_python
from kerasbert.data.workers import in_order
from kerasbert.exporting import writing
from tests.test_architecture import SOURCES, name_of, parsed

pytestmark = pytest.mark.one_backend

# Modules that Python, its standard library or packages import when a process starts.
HOSTILE = ("queue", "json", "pickle", "selectors", "subprocess", "sitecustomize", "usercustomize", "numpy", "keras")
STARTS = {
    "fork",
    "forkpty",
    "popen",
    "system",
    "startfile",
}  # of `os`; and all that begin with exec, spawn, posix_spawn
PACKAGES = {"subprocess", "multiprocessing", "multiprocess", "runpy", "pty", "joblib", "loky"}


@pytest.fixture
def downloaded(tmp_path, monkeypatch):
    """The current folder, full of modules that leave a trace when they are executed."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    return tmp_path


def test_the_trace_is_left_by_an_ordinary_process(downloaded):
    subprocess.run([sys.executable, "-c", "import queue"], check=True, env={**os.environ, "PYTHONSAFEPATH": ""})
    assert "queue" in (downloaded / "executed").read_text()


def test_workers(downloaded):
    assert list(in_order(abs, [-1, 2, -3], workers=2)) == [1, 2, 3]
    assert not (downloaded / "executed").exists()


def test_exporters(downloaded):
    """The folder of the model is the current one."""
    order = {"folder": str(downloaded), "output": str(downloaded / "out" / "new"), "format": "onnx"}
    with pytest.raises(ValueError, match=r"A model folder must contain config.json"):
        writing.run_exporter(order)
    assert not (downloaded / "executed").exists()


def test_processes_that_such_a_process_starts(downloaded):
    code = """
import multiprocessing, subprocess, sys
subprocess.run([sys.executable, "-c", "import queue"], check=True)
with multiprocessing.get_context("forkserver").Pool(1) as pool:
    print(pool.map(abs, [-7]))
"""
    with start_python("-c", code, stdout=PIPE, text=True) as process:
        assert process.stdout.read() == "[7]\n"
    assert not (downloaded / "executed").exists()


def test_functions_of_modules_in_the_current_folder(downloaded, monkeypatch):
    """A user's own module, which this process has imported from there, is found; those beside it replace none."""
    (downloaded / "my_module.py").write_text("def twice(x):\n    return 2 * x\n")
    for name in ("sitecustomize", "usercustomize"):
        (downloaded / f"{name}.py").unlink()
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    import my_module

    assert list(in_order(my_module.twice, [1, 2], workers=2)) == [2, 4]
    assert not (downloaded / "executed").exists()


def test_no_other_file_starts_processes():
    found = []
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").partition(".")[0], *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [f"{node.value.id}.{node.attr}"]
            found += [f"{name_of(path)}: {name}" for name in names if starts_processes(name)]
    allowed = {
        "kerasbert/data/processes.py: subprocess",
        "kerasbert/data/processes.py: sys.executable",
        # Its processes get the environment of `safe_path`; on Slurm, they are started by the batch system.
        "pipelines/corpora/datatrove.py: LocalPipelineExecutor",
        # The server's processes are started with `safe_path`, too; the other is a module of prometheus_client.
        "pipelines/serve/api/server.py: multiprocessing",
        "pipelines/serve/api/metrics.py: multiprocess",
    }
    assert set(found) == allowed, sorted(set(found) ^ allowed)


def starts_processes(name):
    module, _, attribute = name.rpartition(".")
    if name in PACKAGES or name in ("ProcessPoolExecutor", "LocalPipelineExecutor", "sys.executable"):
        return True
    return module == "os" and (attribute in STARTS or attribute.startswith(("exec", "spawn", "posix_spawn")))


def test_processes_that_datatrove_starts():
    """The only call of an executor that starts processes here is made with PYTHONSAFEPATH."""
    source = next(path for path in SOURCES if path.name == "datatrove.py")
    calls = [
        ast.unparse(node)
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.With) and "safe_path()" in ast.unparse(node.items[0])
    ]
    assert calls == ["with safe_path():\n    kind(**shared, **self.options).run()"]


def test_an_exporter_ends_with_the_process_that_started_it(tmp_path):
    """Even if that is killed, nothing is left: neither a process nor a folder."""
    staged = tmp_path / "export" / ".saving.abc" / "new"
    staged.mkdir(parents=True)
    (staged / "model.onnx").write_text("half of a program")
    waits = "import kerasbert.exporting.worker as worker, time; worker.export_folder = lambda **order: time.sleep(60)"
    run = "worker.main()"
    code = f"""
import json, os, sys
from kerasbert.data.processes import PIPE, start_python
process = start_python("-c", {f"{waits}; {run}"!r}, json.dumps({{"output": {str(staged)!r}}}), stdin=PIPE)
print(process.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    for _ in range(600):
        if not os.path.exists(f"/proc/{child}") and not (tmp_path / "export").exists():
            break
        time.sleep(0.05)
    assert not (tmp_path / "export").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_the_path_of_a_process_is_that_of_this_one(downloaded):
    """Relative entries, which mean the current folder, are left out."""
    with start_python("-c", "import json, sys; print(json.dumps(sys.path))", stdout=PIPE, text=True) as process:
        found = json.loads(process.stdout.read())
    wanted = list(dict.fromkeys(entry for entry in sys.path if os.path.isabs(entry)))
    assert found[: len(wanted)] == wanted
    assert "" not in found and str(downloaded) not in found
