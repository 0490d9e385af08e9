"""Options of the commands: help in groups with an example, and suggestions for typing errors."""

import importlib
import re
import sys
from pathlib import Path
from typing import Literal

import pytest

from kerasbert import command_line
from pipelines.command_line.command import Command, Commands, with_option_names
from pipelines.command_line.mistakes import repeated_option
from pipelines.command_line.options import option_types
from pipelines.runs.task_options import Optimizer

pytestmark = pytest.mark.one_backend

NAMES = command_line.NAMES


def build(
    source: tuple[str, ...], work: Path, size: int = 3, tidy: bool = False, kind: Literal["a", "b"] = "a"
) -> None:
    """Builds a house.

    It has a roof.

    Args:
        source: where the stones are.
        work: folder of the plans.
        size: width in
            meters. Default: what fits.
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


@pytest.fixture
def main_of():
    return lambda name: importlib.import_module(f"pipelines.{name.replace('-', '_')}").main


HELP = """\
usage: kerasbert build WORK SOURCE ... [OPTIONS]

Builds a house.

It has a roof.

stones:
  --source STR ...      where the stones are (required)
  --kind {a,b}          kind of the house (default: a)

plan:
  --work PATH           folder of the plans (required)
  --size INT            width in meters (default: what fits)

other:
  --tidy                sweep the floor
  --config PATH         YAML file with options of this command, such as `batch_size: 32`. Options on the command line
                        replace those of the file
"""


def test_help_has_groups_and_defaults(ended, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert ended(HOUSE, ["plans", "--help"], "kerasbert build") == (0, HELP, "")


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_on_a_screen_and_names_every_option(ended, main_of, name):
    """With the example of the docstring, whose options exist, and in full with a description of every option."""
    main = main_of(name)
    parts = (
        {f" {part}": command for part, command in main.commands.items()} if isinstance(main, Commands) else {"": main}
    )
    for part, command in parts.items():
        program, options = f"kerasbert {name}{part}", {*option_types(command.function)}
        code, printed, _ = ended(command, ["--help"], program)
        assert code == 0 and len(printed.splitlines()) <= 60 and printed.startswith(f"usage: {program} ")
        example = printed.partition("Example:\n    ")[2].partition("\n")[0]
        assert example.startswith(program) or f"| {program}" in example
        spelled = {word[2:].replace("-", "_") for word in example.split() if word.startswith("--")}
        assert spelled <= options <= {_option(flag) for flag in re.findall(r"(?:^|\s)(--[^\s=]+)", printed)}
        whole = ended(command, ["--help-all"], program)[1]
        described = re.findall(r"^  (--\S+)(?: \S+| \S+ \.\.\.)? {2,}[^ (]", whole, re.MULTILINE)
        assert {*map(_option, described)} == {*options, "config"}, program
        assert "Default: " not in printed + whole, program


def _option(flag):
    return flag[2:].replace("[no-]", "").replace("-", "_")


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
        ("--idty", "There is no option --idty. Did you mean --tidy?"),
        ("--elephant", "There is no option --elephant."),
        ("--set", "There is no option --set. It changes recipes; here, each setting is an option: --epochs 2."),
    ],
)
def test_a_typing_error_suggests_the_right_option(ended, typed, message):
    """Also where a required option is missing, as it is if its name has the error."""
    expected = f"{message} `kerasbert build --help` lists the options.\n"
    assert ended(HOUSE, [typed, "x"], "kerasbert build") == (2, "", expected)


def test_an_option_of_a_group_is_suggested_for_its_last_part(ended, main_of):
    errors = ended(main_of("finetune"), ["--lable", "stars"], "kerasbert finetune")[2]
    assert errors.startswith("There is no option --lable. Did you mean --columns.label?")


@pytest.mark.parametrize(
    "typed, message",
    [
        (["plans"], "SOURCE must be given. Usage: kerasbert build WORK SOURCE ... [OPTIONS]."),
        ([], "WORK and SOURCE must be given. Usage: kerasbert build WORK SOURCE ... [OPTIONS]."),
        (["plans", "a", "--size", "wide"], "--size must be a whole number. Received: 'wide'."),
        (["plans", "a", "--size"], "--size needs a value. Received: none."),
        (["plans", "a", "--kind", "c"], "--kind must be one of a, b. Received: 'c'."),
        (["plans", "a", "--tidy=yes"], "--tidy takes no value. Received: 'yes'."),
        (["--work", "plans", "other", "--source", "a"], "--work can be given only once."),
    ],
)
def test_a_mistake_is_one_line_that_names_it(ended, typed, message):
    """Of this module, not of the parser, whose messages are boxes of five to fourteen lines."""
    code, printed, errors = ended(HOUSE, typed, "kerasbert build")
    assert (code, printed) == (2, "") and errors.startswith(message) and len(errors.splitlines()) == 1
    assert errors.endswith(" `kerasbert build --help` lists the options.\n")


@pytest.mark.parametrize(
    "name, arguments, option",
    [
        ("finetune", ["m", "--data", "x.csv", "--output", ""], "--output"),
        ("finetune", ["m", "--data=x.csv", "--output="], "--output"),
        ("finetune", ["m", "--held-out", "a.csv", ""], "--held-out"),
        ("pretrain", ["--corpus", "c", "--run", " "], "--run"),
        ("search", ["", "--documents", "x.txt"], "--queries"),
        ("predict", ["m", "a text", ""], "--texts"),
        ("info", [""], "--subject"),
    ],
)
def test_options_are_not_empty(ended, main_of, name, arguments, option):
    """An empty path would be the current folder."""
    code, printed, errors = ended(main_of(name), arguments, f"kerasbert {name}")
    value = " " if " " in arguments else ""
    assert (code, printed) == (2, "")
    assert errors.startswith(f"{option} must not be empty. Received: {value!r}. Leave it out, or give a value.")


def test_texts_that_are_empty_by_default_may_be_empty():
    from pipelines.predict import main

    assert main.parse(["m", "a", "--prefix", ""], "kerasbert predict")["prefix"] == ""


def test_errors_name_options(ended, main_of):
    """Not the arguments of the function in Python."""
    code, _, _ = ended(main_of("finetune"), ["m", "--data", "x.csv", "--learning-rate", "0"], "kerasbert finetune")
    assert code == "--learning-rate must be above 0. Received: 0.0."
    said = with_option_names(
        "`batch_size` and `lora.rank`, but `from_preset` and `--output`.", {"batch_size", "lora.rank"}
    )
    assert said == "--batch-size and --lora.rank, but `from_preset` and `--output`."


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
        (["one", "--model=m", "two"], "m", ("one", "two"), 5),
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
        ("finetune", ["--model", "m", "--lora.rank", "0"]),
        ("evaluate", ["--model", "m", "--batch-size", "-3"]),
        ("info", ["bert_base", "--length", "0"]),
        ("prepare_corpus", ["--workers", "0"]),
        ("train_tokenizer", ["--vocabulary-size", "0"]),
    ],
)
def test_numbers_of_things_are_at_least_1(name, arguments, tmp_path, capsys):
    main = importlib.import_module(f"pipelines.{name}").main
    if name == "prepare_corpus":
        arguments = ["--source", "x.txt", "--tokenizer", "t", "--output", str(tmp_path / "o"), *arguments]
    if name == "train_tokenizer":
        arguments = ["--source", "x.txt", "--output", str(tmp_path / "o"), *arguments]
    option, value = arguments[-2:]
    with pytest.raises(SystemExit):
        main.parse(arguments, f"kerasbert {name}")
    assert capsys.readouterr().err.startswith(f"{option} must be at least 1. Received: {value}. ")


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
