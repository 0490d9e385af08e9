"""Options of the commands: help in groups with an example, and suggestions for typing errors."""

import importlib
import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from kerasbert import command_line
from pipelines.command_line.command import Command, Commands
from pipelines.command_line.options import option_types, repeated_option
from pipelines.runs.task_options import Optimizer

pytestmark = pytest.mark.one_backend

NAMES = [name for name in command_line.NAMES if name not in ("show", "info", "serve")]


def build(
    source: tuple[str, ...], work: Path, size: int = 3, tidy: bool = False, kind: Literal["a", "b"] = "a"
) -> None:
    """Builds a house.

    It has a roof.

    Args:
        source: where the stones are.
        work: folder of the plans. Default: none.
        size: width in
            metres.
        tidy: sweep the floor.
        kind: kind of the house.
    """
    seen.append((source, work, size, tidy, kind))


seen: list = []
HOUSE = Command(build, groups={"stones": ("source", "kind"), "plan": ("work", "size")}, first=("work", "source"))


@pytest.fixture
def ended(monkeypatch, capsys):
    """What a call ended with: (exit status, output, errors)."""
    seen.clear()
    monkeypatch.setenv("COLUMNS", "100")

    def call(run, *arguments):
        code = 0
        try:
            run(*arguments)
        except SystemExit as error:
            code = error.code
        return code, *capsys.readouterr()

    return call


def plain(printed):
    """Printed help without boxes and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]|-{9,}", " ", printed).split())


@pytest.fixture
def main_of():
    return lambda name: importlib.import_module(f"pipelines.{name.replace('-', '_')}").main


def test_help_has_groups_defaults_and_joined_lines(ended):
    code, printed, _ = ended(HOUSE, ["--help"], "kerasbert build")
    assert code == 0
    text = plain(printed)
    assert text.startswith("usage: kerasbert build [-h]") and "Builds a house. It has a roof." in text
    expected = (
        "stones options --source [STR [STR ...]] where the stones are. (required) "
        "--kind {a,b} kind of the house. (default: a) "
        "plan options --work PATH folder of the plans. Default: none. (required) "
        "--size INT width in metres. (default: 3)"
    )
    assert expected in text
    assert "--tidy, --no-tidy sweep the floor. (default: False) --config PATH YAML file with options" in text


@pytest.mark.parametrize("name", NAMES)
def test_help_begins_with_an_example_in_both_spellings(ended, main_of, name):
    main = main_of(name)
    code, printed, _ = ended(main, ["--help"], f"kerasbert {name}")
    lines = printed.splitlines()
    assert code == 0 and lines[4] == "Example, and the same in a clone:"
    installed, clone = lines[5].strip(), lines[6].strip()
    module = f"python -m pipelines.{name.replace('-', '_')}"
    assert module in clone and clone.replace(module, f"kerasbert {name}") == installed
    spelled = installed.partition(f"kerasbert {name} ")[2].split()
    assert {word[2:].replace("-", "_") for word in spelled if word.startswith("--")} <= {*option_types(main.function)}
    assert {*option_types(main.function)} == {
        match.replace("-", "_") for match in re.findall(r"^[│ ] +--((?!config)[a-z][\w.-]*)", printed, re.MULTILINE)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_described(ended, main_of, name):
    """A line without a description would be the name of an option, followed by its default or by the next one."""
    printed = ended(main_of(name), ["--help"], f"kerasbert {name}")[1]
    found = re.findall(r"--[\w.-]+ (?:\S+|\[\S+ \[\S+ \S+) \((?:required|default|optional)", plain(printed))
    assert not found


def test_options_are_parsed(ended):
    assert ended(HOUSE, ["plans", "--source", "a", "b", "--size", "4", "--tidy"], "kerasbert build")[0] == 0
    assert ended(HOUSE, ["--work=plans", "--source", "a", "--kind", "b"], "kerasbert build")[0] == 0
    assert ended(HOUSE, ["plans", "a", "b", "--size", "5"], "kerasbert build")[0] == 0
    assert seen == [
        (("a", "b"), Path("plans"), 4, True, "a"),
        (("a",), Path("plans"), 3, False, "b"),
        (("a", "b"), Path("plans"), 5, False, "a"),
    ]


@pytest.mark.parametrize(
    "typed, message",
    [
        ("--soruce", "There is no option --soruce. Did you mean --source?"),
        ("--no_tydi", "There is no option --no-tydi. Did you mean --no-tidy?"),
        ("--sizes=4", "There is no option --sizes. Did you mean --size?"),
        ("--elephant", "There is no option --elephant."),
    ],
)
def test_a_typing_error_suggests_the_right_option(ended, typed, message):
    """Also where a required option is missing, as it is if its name has the error."""
    expected = f"{message} `kerasbert build --help` lists the options.\n"
    assert ended(HOUSE, [typed, "x"], "kerasbert build") == (2, "", expected)


def test_an_option_of_a_group_is_suggested_for_its_last_part(ended, main_of):
    errors = ended(main_of("finetune"), ["--lable", "stars"], "kerasbert finetune")[2]
    assert errors.startswith("There is no option --lable. Did you mean --columns.label?")


def test_a_missing_option_names_the_command(ended):
    code, _, errors = ended(HOUSE, ["plans"], "kerasbert build")
    assert code == 2 and "Missing from kerasbert build:" in errors and "--source" in errors


def test_groups_must_fit_their_function():
    with pytest.raises(AssertionError, match="groups of build"):
        Command(build, groups={"stones": ("source", "brick")}).options()


def test_several_commands_under_one_name(ended, monkeypatch):
    both = Commands({"house": HOUSE, "tall-house": HOUSE}, "Builds things.")
    monkeypatch.setattr(sys, "argv", ["kerasbert make", "--help"])
    _, printed, _ = ended(both)
    assert printed.startswith("usage: kerasbert make COMMAND [OPTIONS]\n\nBuilds things.\n\nCommands:\n    house  ")
    assert "    tall-house  Builds a house.\n" in printed
    monkeypatch.setattr(sys, "argv", ["kerasbert make", "tall_house", "plans", "--source", "a"])
    assert ended(both)[0] == 0 and seen == [(("a",), Path("plans"), 3, False, "a")]
    monkeypatch.setattr(sys, "argv", ["kerasbert make", "hous"])
    assert ended(both)[2].startswith("kerasbert make has no command 'hous'. Did you mean house? The commands are house")


@pytest.mark.parametrize("arguments", [["--set", "a=1", "--set", "b=2"], ["--set=a=1", "--set=b=2"]])
def test_a_repeated_option_is_an_error(arguments):
    """Otherwise, only its last values would be used."""
    message = repeated_option(["--name", "x", *arguments])
    assert message == "--set can be given only once. If it takes several values, put them after it: --set A B."
    assert repeated_option(["x", "x", "--set", "a=1", "a=1"]) is None


@pytest.mark.parametrize(
    "arguments, model, texts, top",
    [
        (["m", "one", "two"], "m", ("one", "two"), 5),
        (["m", "--top", "3", "one", "two"], "m", ("one", "two"), 3),
        (["--top=3", "m", "one"], "m", ("one",), 3),
        (["m", "one", "--engine", "onnx", "two", "--top", "2", "three"], "m", ("one", "two", "three"), 2),
        (["--model", "m", "--texts", "one", "two", "--top", "2"], "m", ("one", "two"), 2),
        (["m", "-1", "--columns.text", "body", "-2"], "m", ("-1", "-2"), 5),
    ],
)
def test_values_may_follow_options(arguments, model, texts, top):
    from pipelines.predict import main

    found = main.parse(arguments, "kerasbert predict")
    assert (found["model"], found["texts"], found["top"]) == (model, texts, top)


def test_several_values_of_an_option_stay_with_it():
    from pipelines.pretrain import main

    arguments = ["--set", "steps=3", "model.num_layers=2", "--corpus=a", "b", "--run", "r"]
    found = main.parse(["bert.tiny", *arguments], "kerasbert pretrain")
    assert found["recipe"] == "bert.tiny" and found["corpus"] == ("a", "b")
    assert found["set"] == ("steps=3", "model.num_layers=2")


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("predict", ["m", "--batch-size", "0"]),
        ("predict", ["m", "--top", "-1"]),
        ("finetune", ["--model", "m", "--max-length", "0"]),
        ("finetune", ["--model", "m", "--epochs", "0"]),
        ("evaluate", ["--model", "m", "--batch-size", "-3"]),
        ("info", ["bert_base", "--length", "0"]),
        ("prepare_corpus", ["--workers", "0"]),
        ("train_tokenizer", ["--vocabulary-size", "0"]),
    ],
)
def test_numbers_of_things_are_at_least_1(name, arguments, tmp_path):
    main = importlib.import_module(f"pipelines.{name}").main
    if name == "prepare_corpus":
        arguments = ["--source", "x.txt", "--tokenizer", "t", "--output", str(tmp_path / "o"), *arguments]
    if name == "train_tokenizer":
        arguments = ["--source", "x.txt", "--output", str(tmp_path / "o"), *arguments]
    option, value = arguments[-2:]
    with pytest.raises(ValueError, match=f"^{option} must be at least 1. Received: {value}.$"):
        main.parse(arguments, f"kerasbert {name}")


@pytest.mark.parametrize(
    "rates, message",
    [
        ((-1, 0.1, 0, None), "`learning_rate` must be above 0. Received: -1"),
        ((float("nan"), 0.1, 0, None), "`learning_rate` must be above 0. Received: nan"),
        ((1e-4, 2, 0, None), "`warmup_share` must be between 0 and 1. Received: 2"),
        ((1e-4, 0, -1, None), "`weight_decay` must be at least 0. Received: -1"),
        ((1e-4, 0, 0, 1.5), "`layer_decay` must be above 0 and at most 1. Received: 1.5"),
    ],
)
def test_rates_of_finetune(rates, message):
    with pytest.raises(ValueError, match=message):
        Optimizer(*rates)
    assert Optimizer(1e-4, 0, 0, None).warmup_share == 0
