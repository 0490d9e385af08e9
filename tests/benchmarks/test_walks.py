"""The walks of a reader: first calls, stays and returns."""

import pytest

from benchmarks.walks import returns_of, stays_of, walk
from pipelines.command_line import command, mistakes, options

pytestmark = pytest.mark.one_backend


def course():
    for _ in range(2):  # the second time, nothing is new
        options.negated("merge")
        command.of_training("RunStopped")
        mistakes.repeated_option([])
        command.missing(ModuleNotFoundError(name="tyro"))


def test_a_walk_has_the_first_call_of_every_function():
    calls = walk(course, depth=1)
    files = [f"pipelines/command_line/{name}.py" for name in ("options", "command", "mistakes", "command")]
    assert calls == list(zip(files, ("negated", "of_training", "repeated_option", "missing"), strict=True))


def test_calls_from_deeper_and_other_subjects_are_left_out():
    def deeper():
        command.Command(course).parse(["--help"], "kerasbert course")

    shallow = walk(lambda: pytest.raises(SystemExit, deeper), depth=1)
    assert shallow[-1] == ("pipelines/command_line/command.py", "Command.parse")
    from kerasbert.data.text.json_files import shortened

    assert walk(lambda: shortened("text"), depth=3) == []


def test_stays_and_returns():
    calls = [("a", "f"), ("a", "g"), ("b", "h"), ("a", "i"), ("c", "j"), ("b", "k")]
    stays = stays_of(calls)
    assert stays == [("a", ["f", "g"]), ("b", ["h"]), ("a", ["i"]), ("c", ["j"]), ("b", ["k"])]
    assert returns_of(stays) == 2 and returns_of([]) == 0
