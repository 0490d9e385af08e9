"""One process at a time in a folder, and locks that outlive nobody."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from kerasbert.data.text import locks
from kerasbert.data.text.locks import locked
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

HOLD = """
import sys, time
sys.path.insert(0, {root!r})
import importlib.util
spec = importlib.util.spec_from_file_location("locks", {file!r})  # without the imports of a whole pipeline
locks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(locks)
with locks.locked({folder!r}):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds `tmp_path / "run"`."""
    code = HOLD.format(root=str(REPOSITORY), file=locks.__file__, folder=str(tmp_path / "run"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_told_which_is_the_first(tmp_path, holder):
    message = rf"one process at a time.*run.*process {holder.pid} on {socket.gethostname()} \(since .*another folder"
    with pytest.raises(ValueError, match=message), locked(tmp_path / "run"):
        pass
    assert json.loads((tmp_path / "run" / ".lock").read_text())["process"] == holder.pid


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder, capsys):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / ".lock").exists()
    with locked(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / ".lock").read_text())["process"] == os.getpid()
    assert f"taking over from process {holder.pid}" in capsys.readouterr().out
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_process_that_runs_is_not_the_holder_of_an_old_lock(tmp_path):
    """Process numbers are used again: that a process of this number runs says nothing."""
    (tmp_path / ".lock").write_text(json.dumps({"process": os.getppid(), "host": socket.gethostname(), "since": ""}))
    with locked(tmp_path):
        pass
    (tmp_path / ".lock").write_text("{")
    with locked(tmp_path):
        pass


def test_a_folder_is_locked_within_one_process_too(tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match="one process at a time"), locked(tmp_path):
        pass


def test_what_was_not_there_before_is_gone_behind(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "new"):
        raise KeyError
    assert not (tmp_path / "new").exists()
    with locked(tmp_path / "new"):
        (tmp_path / "new" / "file").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_lock_file_that_its_holder_removes_meanwhile_is_not_taken(tmp_path, monkeypatch):
    """Opened before the holder removed it, locked behind: another process may have made and locked a new one."""
    lock, calls = locks._lock, []

    def slow(file):
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(file)
        lock(file)

    monkeypatch.setattr(locks, "_lock", slow)
    with locked(tmp_path):
        assert (tmp_path / ".lock").exists() and len(calls) == 2


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def refuse(file):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locks, "_lock", refuse)
    with pytest.warns(UserWarning, match="has no locks .Function not implemented."), locked(tmp_path):
        pass


def test_empty_folders_do_not_stay(tmp_path):
    """A command that fails before it writes leaves no folders, also above its output."""
    (tmp_path / "kept").mkdir()
    with pytest.raises(RuntimeError), locked(tmp_path / "kept" / "models" / "mine"):
        raise RuntimeError
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]
    with locked(tmp_path / "models" / "mine"):
        (tmp_path / "models" / "mine" / "file").touch()
    assert (tmp_path / "models" / "mine" / "file").is_file()
