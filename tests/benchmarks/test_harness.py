"""The harness of the benchmarks: turns, ratios, and comparisons that are void or left out."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.harness import difference, ratio
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

SCRIPT = """
import time
import numpy as np
from benchmarks.harness import Comparison, Contender, Work, compare, parser


def prepare(folder, options):
    np.save(folder / "given.npy", np.arange(3.0))


def sleeper(seconds, shift=0.0):
    return lambda folder: Work(
        lambda: time.sleep(seconds), dict(values=np.load(folder / "given.npy") + shift), units=2.0, notes=dict(n=1)
    )


def missing(folder):
    import a_package_that_nobody_has


def broken(folder):
    raise RuntimeError("it broke")


makers = dict(fast=sleeper(0.1), slow=sleeper(0.3), other=sleeper(0.1, 1.0), missing=missing, broken=broken)
pairs = [Comparison("fast", name, 2.0) for name in ("slow", "other", "missing", "broken")]
pairs.append(Comparison("slow", "fast", what="cost", tolerance=None))
contenders = {name: Contender(make) for name, make in makers.items()}
compare("sleep", prepare, contenders, pairs, options=parser("sleep").parse_args())
"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("harness")
    script, results = folder / "sleep.py", folder / "results.jsonl"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "sleep", "--rounds", "3", "--results", str(results)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)])}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {(row["ours"], row["theirs"]): row for row in rows}, printed


def test_ratios_of_what_is_comparable(compared):
    rows, printed = compared
    row = rows["fast", "slow"]
    assert row["lowest"] <= row["ratio"] <= row["highest"] and 1.2 < row["ratio"] < 4.0
    assert row["difference"] == 0 and row["units"] == 2.0 and row["notes"] == {"n": 1} and row["goal"] == 2.0
    assert 1.2 < rows["slow", "fast"]["ratio"] < 4.0
    assert "fast against slow, speed:" in printed and "goal 2x" in printed


def test_what_differs_is_void_and_what_is_missing_is_skipped(compared):
    rows, printed = compared
    assert rows["fast", "other"]["void"] == "outputs differ by 1, more than 0.0001"
    assert "a_package_that_nobody_has" in rows["fast", "missing"]["skipped"]
    assert "it broke" in rows["fast", "broken"]["skipped"]
    assert not any("ratio" in rows["fast", name] for name in ("other", "missing", "broken"))
    assert "void" in printed and "skipped" in printed


def test_ratio_and_difference():
    assert ratio([2.0, 6.0, 8.0], [1.0, 4.0, 2.0]) == {"ratio": 3.0, "lowest": 1.5, "highest": 4.0}
    assert difference({}, {}) == float("inf")
