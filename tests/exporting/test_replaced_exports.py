"""Exports over earlier exports: in the current folder, in a mounted one, by a link, and interrupted."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import kerasbert
from benchmarks.studies.exports.models import build
from kerasbert.exporting import cache, writing
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def model():
    return build("BERT", "classifier", num_layers=1)


@pytest.fixture
def writes(monkeypatch):
    """In place of an exporter, a function that writes a program with the given content."""

    def write_files(content, name="model.onnx", format="onnx"):
        def run(order):
            entry = {"format": format, "programs": {"model": {"file": name.partition("/")[0]}}}
            for file, text in ((name, content), ("example.py", content), ("tokenizer.json", content)):
                path = os.path.join(order["output"], file)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as opened:
                    opened.write(text)
            for file, value in (("config.json", {}), ("kerasbert.json", {"export": entry})):
                with open(os.path.join(order["output"], file), "w") as opened:
                    json.dump(value, opened)

        monkeypatch.setattr(writing, "run_exporter", run)

    return write_files


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_current_folder(model, tmp_path, monkeypatch, writes):
    monkeypatch.chdir(tmp_path)
    for content in ("first", "second"):
        writes(content)
        kerasbert.export(model, ".")
        assert files(tmp_path)["model.onnx"] == files(tmp_path)["example.py"] == content
        assert os.path.samefile(os.getcwd(), tmp_path)  # the folder itself stays
    assert sorted(os.listdir()) == ["config.json", "example.py", "kerasbert.json", "model.onnx", "tokenizer.json"]


def test_a_folder_that_cannot_be_renamed(model, tmp_path, monkeypatch, writes):
    """A mount point is one: the system refuses to rename or to remove it."""
    folder, replace, rmdir = tmp_path / "mounted", os.replace, os.rmdir
    writes("first")
    kerasbert.export(model, folder)

    def busy(function):
        def call(*paths, **options):
            if any(os.path.realpath(path) == str(folder) for path in paths if not isinstance(path, int)):
                raise OSError(errno.EBUSY, "Device or resource busy")
            return function(*paths, **options)

        return call

    for name, function in (("replace", replace), ("rename", os.rename), ("rmdir", rmdir)):
        monkeypatch.setattr(os, name, busy(function))
    writes("second")
    kerasbert.export(model, folder)
    assert files(folder)["model.onnx"] == "second" and len(files(folder)) == 5


def test_a_link(model, tmp_path, writes):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    for content in ("first", "second"):
        writes(content)
        kerasbert.export(model, link)
        assert link.is_symlink() and files(folder)["model.onnx"] == content and len(files(folder)) == 5


def test_programs_of_other_formats_are_removed_and_files_of_users_stay(model, tmp_path, writes):
    folder = tmp_path / "export"
    writes("first", "saved_model/saved_model.pb", "tf_saved_model")
    kerasbert.export(model, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("mine")
    (folder / "saved_model" / "variables").mkdir()
    (folder / "saved_model" / "variables" / "data").write_text("first")
    writes("second", "model.xml", "openvino")
    kerasbert.export(model, folder)
    (folder / "model.bin").write_text("weights of model.xml")
    writes("third")
    kerasbert.export(model, folder)
    found = files(folder)
    assert {name for name, text in found.items() if text == "third"} == {"model.onnx", "example.py", "tokenizer.json"}
    assert {name for name, text in found.items() if text == "mine"} == {"notes.txt", ".git/HEAD"}
    assert len(found) == 7 and not (folder / "saved_model").exists()


def test_an_export_that_fails_while_files_are_moved(model, tmp_path, monkeypatch, writes):
    folder, replace = tmp_path / "export", os.replace
    writes("first")
    kerasbert.export(model, folder)
    before = files(folder)
    writes("second")
    for failing in before:

        def fails(source, target, failing=failing):
            if os.fspath(target) == str(folder / failing) and os.path.basename(os.path.dirname(source)) == "new":
                raise OSError(errno.EIO, "broken disk")
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fails)
            with pytest.raises(OSError, match="broken disk"):
                kerasbert.export(model, folder)
        assert files(folder) == before
    assert os.listdir(tmp_path) == ["export"]


def test_a_signal_ends_the_command_and_its_exporter_and_leaves_nothing(model, tmp_path):
    """The folder of the model is the current one, and its modules are not executed."""
    if not os.path.isdir("/proc"):
        pytest.skip("needs Linux")
    folder = tmp_path / "model"
    model.save_to_preset(folder)
    (folder / "queue.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-P", "-c", "from kerasbert.command_line import main; main()", "export", ".", "../out"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    children, started = f"/proc/{process.pid}/task/{process.pid}/children", []
    while process.poll() is None and not started:
        time.sleep(0.02)
        with open(children) as file:
            started = [child for child in file.read().split() if "exporting.worker" in command_of(child)]
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM and started, said
    assert sorted(os.listdir(tmp_path)) == ["model"]
    for _ in range(1200):  # it may have been about to start
        if not command_of(*started):
            break
        time.sleep(0.05)
    assert not command_of(*started) and sorted(os.listdir(tmp_path)) == ["model"]


def command_of(process):
    try:
        with open(f"/proc/{process}/cmdline") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def test_exports_of_killed_processes_are_removed_from_the_cache(model, tmp_path, monkeypatch, writes):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    writes("program")
    folder = tmp_path / "model"
    model.save_to_preset(folder)
    path = cache.cached_export(folder, type(model), {})
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    monkeypatch.setattr(cache.os, "getpid", lambda: process.pid)
    left = cache.own_name(path, "export")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    writes("program")
    left.mkdir()
    shutil.rmtree(path)
    assert cache.cached_export(folder, type(model), {}) == path and os.listdir(path.parent) == [path.name]
