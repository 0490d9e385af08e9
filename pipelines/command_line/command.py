"""Runs typed functions as command-line programs, with grouped options, option files, and one-line errors."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kerasbert.command_line import did_you_mean, fail, printable

from .help import help_text, usage
from .mistakes import missing_option, positional, repeated_option, unknown_option, wrong_value
from .options import as_arguments, option_types, option_values, options_class
from .settings import with_settings_file

PIPELINES = __package__.rpartition(".")[0]  # "pipelines", or "kerasbert.pipelines" in the wheel

# {package that a command needs: the extra of kerasbert that installs it}
EXTRAS = {
    **dict.fromkeys(("tyro", "rich", "docstring_parser", "yaml"), "pipelines"),
    **dict.fromkeys(("datasets", "pyarrow"), "data"),
    **dict.fromkeys(("rouge_score", "sacrebleu", "sklearn", "scipy"), "metrics"),
    **dict.fromkeys(("datatrove", "fsspec", "trafilatura", "warcio", "cchardet", "magic"), "scale"),
    **dict.fromkeys(("etils", "orbax"), "scale"),
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "export"),
    **dict.fromkeys(("bm25s", "Stemmer"), "retrieval"),
    "faiss": "faiss",
    "gradio": "demo",
    **dict.fromkeys(("prometheus_client", "starlette", "uvicorn"), "serve"),
    "usearch": "usearch",
    "matplotlib": "plots",
    "keras_hub": "hub",
}


class Printable:
    """A stream of text without control characters: labels, tokens and names of files may contain escape sequences.

    Args:
        stream: the stream that is written to. Pictures in color are written to it directly.
    """

    def __init__(self, stream):
        self.unfiltered = getattr(stream, "unfiltered", stream)

    def write(self, text: str) -> int:
        return self.unfiltered.write(printable(text))

    def __getattr__(self, name: str):
        return getattr(self.unfiltered, name)


@dataclass(frozen=True)
class Command:
    """A command-line program made from a function. Calling the object runs it with the arguments of the command line.

    Args:
        function: function with typed arguments that are described in its docstring.
        groups: {title: names of arguments}. --help shows the arguments under these titles.
        first: names of arguments that may be given first, without option names. The last of them takes all further
            values.
    """

    function: Callable
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: tuple[str, ...] = ()

    def __call__(self, arguments: list[str] | None = None, program: str | None = None) -> None:
        """Runs the function. For user errors, prints one line instead of a traceback.

        Compiled programs are cached for the next run.

        Args:
            arguments: the arguments. Default: those of the command line.
            program: name of the command for its help and errors. Default: the name with which it was called.
        """
        arguments = sys.argv[1:] if arguments is None else list(arguments)
        program = program or program_name()
        with one_line_errors(self.function):
            values = self.parse(arguments, program)
            if "keras" in sys.modules:  # commands that import Keras only if they need it call `keep_programs` then
                from kerasbert.backend import keep_programs

                keep_programs()
            with contextlib.redirect_stdout(Printable(sys.stdout)), contextlib.redirect_stderr(Printable(sys.stderr)):
                self.function(**as_arguments(self.function, values))

    def parse(self, arguments: list[str], program: str) -> dict:
        """Parses the command line. Returns {option: value}. Prints the help and ends, if the arguments ask for it."""
        import tyro

        if {"-h", "--help", "--help-all"} & {*arguments}:
            print(help_text(self.function, self.groups, self.first, program, whole="--help-all" in arguments))
            sys.exit(0)
        arguments = self._named(arguments)
        self._check(unknown_option(self.function, arguments) or repeated_option(arguments), program)
        arguments = with_settings_file(self.function, arguments)
        self._check(wrong_value(self.function, arguments), program)
        if missing := missing_option(self.function, arguments, self.first):
            self._check(f"{missing} Usage: {usage(self.function, self.first, program)}.", program)
        return option_values(tyro.cli(self.options(), prog=program, args=arguments))

    def _check(self, mistake: str | None, program: str) -> None:
        """Ends the program if there is a mistake in the command line."""
        if mistake:
            fail(f"{mistake} `{program} --help` lists the options.")

    def _named(self, arguments: list[str]) -> list[str]:
        """Adds option names to the arguments without: ["bert.tiny"] -> ["--recipe", "bert.tiny"].

        Names that are given as options are passed over: ["--model", "m", "a text"] -> ["--texts", "a text", ...].
        """
        values, rest = positional(self.function, arguments)
        given = {argument.partition("=")[0][2:].replace("-", "_") for argument in rest if argument.startswith("--")}
        names = [name for name in self.first if name not in given] or list(self.first[:1])
        named: list[str] = []
        for number, name in enumerate(names[: len(values)]):
            last = number == len(names) - 1
            named += [f"--{name.replace('_', '-')}", *(values[number:] if last else values[number : number + 1])]
        return [*named, *rest] if self.first else arguments

    def options(self) -> type:
        """The dataclass of the options; see `options_class`."""
        return options_class(self.function, self.groups)


@dataclass(frozen=True)
class Commands:
    """A group of commands under one name, such as `kerasbert show attention ...`.

    Args:
        commands: the commands by name.
        summary: description of the group in one sentence.
    """

    commands: Mapping[str, Command]
    summary: str

    def __call__(self) -> None:
        """Runs the command whose name is the first argument of the command line."""
        program = program_name()
        name, *arguments = sys.argv[1:] or ["--help"]
        if name in ("-h", "--help"):
            width = max(map(len, self.commands))
            lines = [f"    {key:{width}}  {self._first_line(key)}" for key in self.commands]
            print("\n".join([f"usage: {program} COMMAND [OPTIONS]", "", self.summary, "", "Commands:", *lines]))
        elif name.replace("_", "-") not in self.commands:
            known = ", ".join(self.commands)
            fail(f"{program} has no command {name!r}.{did_you_mean(name, self.commands)} The commands are {known}.")
        else:
            name = name.replace("_", "-")
            self.commands[name](arguments, f"{program} {name}")

    def _first_line(self, name: str) -> str:
        return (self.commands[name].function.__doc__ or "").strip().partition("\n")[0]


def command(function: Callable) -> None:
    """Runs a function with the arguments of the command line; see `Command`."""
    Command(function)()


def program_name() -> str:
    """Returns how the running command was called: "kerasbert pretrain" or "python -m pipelines.pretrain"."""
    path, folder = Path(sys.argv[0]), Path(__file__).parent.parent
    path = path.parent if path.stem == "__main__" else path  # a command whose parts lie in a folder
    return f"python -m {PIPELINES}.{path.stem}" if path.parent == folder else sys.argv[0]


def missing(error: ModuleNotFoundError) -> str:
    """Returns the error message about a package that is not installed."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return f"{type(error).__name__}: {error}"
    return f'This needs the package {package}. Install it with: pip install "kerasbert[{EXTRAS[package]}]"'


@contextlib.contextmanager
def one_line_errors(function: Callable | None = None) -> Iterator[None]:
    """Context manager that ends the program with a one-line message for user errors, or the status of a stopped run.

    Args:
        function: the function of the command, whose arguments are called as on the command line.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sys.exit(missing(error))
    except BrokenPipeError:  # the reader of the output has stopped, as in `... | head -5`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at exit
        sys.exit(1)
    except (ValueError, OSError, ImportError, *of_training("TrainingDiverged")) as error:
        message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # Keras writes some of its messages in bold
        if isinstance(error, OSError) and error.filename is not None:  # else "[Errno 2] No such file or directory: ..."
            message = f"{error.filename}: {error.strerror}"
        message = message if function is None else with_option_names(message, option_types(function))
        sys.exit(printable(brief(message or type(error).__name__)))
    except of_training("RunStopped") as stopped:  # a message on how to continue has been printed
        sys.exit(stopped.exit_status)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def with_option_names(message: str, options: Container[str]) -> str:
    """Writes the arguments that a message names as on the command line: `learning_rate` -> --learning-rate."""

    def named(found: re.Match) -> str:
        return f"--{found[1].replace('_', '-')}" if found[1] in options else found[0]

    return re.sub(r"`([a-z0-9_.]+)`", named, message)


def brief(message: str) -> str:
    """Returns a message on one line of at most 600 characters, which is its rule and, at its end, its suggestion."""
    message = re.sub(r" *\n\s*", " ", message.strip())
    return message if len(message) <= 600 else f"{message[:340].rstrip()} ... {message[-250:].lstrip()}"


def of_training(name: str) -> tuple:
    """Returns (exception of `kerasbert.training`,), or () in a process that has not imported it, or Keras."""
    training = sys.modules.get("kerasbert.training")
    return () if training is None else (getattr(training, name),)
