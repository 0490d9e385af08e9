"""The fuzzer with the suite: 2,000 damaged files, and that it sees what it is for."""

import json
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.fuzz import fuzz, mutations
from tests.fuzz.kinds import Corrupt, Kind, expect

pytestmark = pytest.mark.one_backend


def test_damaged_files_are_refused_or_read_right(repository):
    command = [sys.executable, "-m", "tests.fuzz.fuzz", "--cases", "2000", "--seed", "0"]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stdout + process.stderr[-2_000:]
    summary = json.loads(process.stdout.splitlines()[-1])
    assert summary["refused"] + summary["accepted"] == summary["cases"] == 2_000
    assert summary["refused"] > 1_000 and summary["accepted"] > 200


# === That it sees ===


def _hang():
    while True:
        pass


def _fill():
    return np.ones(20_000_000)  # 160 MB


def _think():
    end = time.process_time() + 1.2
    while time.process_time() < end:
        pass


def _raise(error):
    raise error


FAULTS = {
    "crash": lambda: os.abort(),
    "error": lambda: _raise(KeyError("x")),
    "large": _fill,
    "slow": _think,
    "corrupt": lambda: expect(False, "other values"),
    "stuck": _hang,
}


def faulty_kind(name):
    """A kind whose reader has one fault, for damaged files only."""

    def read(folder):
        if (folder / "file").read_bytes() == b"valid":
            return "valid"
        return FAULTS[name]()

    return Kind(
        lambda folder: (folder / "file").write_bytes(b"valid"),
        read,
        lambda folder, found, valid: None,
        {"file": lambda content, rng: content + b"!"},
    )


def test_faults_are_seen(monkeypatch, tmp_path):
    """In one process: what a case is called; the two that end the child are seen by the parent."""
    for name in ("error", "corrupt"):
        kind = faulty_kind(name)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "file").write_bytes(b"other")
        assert fuzz.run_case(kind, folder, "valid")[0] == name
    folder = tmp_path / "error"
    arguments = Kind(None, lambda folder: Corpus.open(folder / "nowhere"), None, {})
    from kerasbert.data import Corpus

    assert fuzz.run_case(arguments, folder, None)[0] == "refused"
    outside = Kind(None, lambda folder: _raise(ValueError("not raised by the package")), None, {})
    assert fuzz.run_case(outside, folder, None)[0] == "error"
    with pytest.raises(Corrupt):
        expect(False, "x")


PROGRAM = """
import json, sys
from pathlib import Path
from tests.fuzz import fuzz, kinds, test_fuzz
names = ["crash", "large", "slow", "stuck"]
kinds.KINDS = {name: test_fuzz.faulty_kind(name) for name in names}
fuzz.STUCK_SECONDS = 8
for line in fuzz.run(range(5), names, 0, Path(sys.argv[1])):
    print(json.dumps(line))
"""


def test_a_child_that_dies_or_is_stuck_is_one_case(repository, tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    process = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=200)
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    assert [line["outcome"] for line in lines] == ["crash", "large", "slow", "stuck", "crash"], process.stderr[-2_000:]
    assert lines[0]["detail"] == "SIGABRT"


def test_the_same_case_is_the_same_damage():
    whole = {"a": [1, {"b": "text"}], "c": {"d": 2.5, "e": None}}
    text = json.dumps(whole).encode()
    seen = set()
    for number in range(200):
        for mutate in (mutations.mutate_bytes, mutations.mutate_json):
            once, again = (mutate(text, random.Random(number)) for _ in range(2))
            assert once == again
            seen.add(once)
    assert len(seen) > 200


def test_a_log_is_continued(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"case": 0, "outcome": "refused"}\n{"case": 1, "outcome": "crash"}\n')
    assert fuzz._resumed(log) == (2, {"refused": 1, "crash": 1}, [{"case": 1, "outcome": "crash"}])
