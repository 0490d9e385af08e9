"""The command `kerasbert`: the names of its commands and the modules of the pipelines that run them.

`kerasbert --help` is fast, because this module imports only the standard library, and the module of a command is
imported when the command is called. In the wheel, the pipelines are `kerasbert.pipelines`. In a clone, they can also be
run as `python -m pipelines.NAME`.
"""

import difflib
import importlib
import importlib.util
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from . import __version__

# {heading: {command: description}}. The module of a command has the same name, with underscores.
COMMANDS = {
    "First steps": {
        "quickstart": "train a tokenizer, pretrain, fine-tune and compare, in six minutes on a laptop",
    },
    "Pretraining": {
        "train-tokenizer": "learn a vocabulary from text (also: tokenizer)",
        "prepare-corpus": "turn text into a corpus of token ids (also: corpus)",
        "recipes": "list the recipes of the papers",
        "pretrain": "pretrain a model with a recipe, or continue an interrupted run",
    },
    "Tasks": {
        "finetune": "fine-tune a pretrained model, evaluate it and save it",
        "evaluate": "score a model on examples, a corpus, minimal pairs or searches",
        "predict": "run a model on text or files",
    },
    "Search": {
        "embed": "write the vectors of texts",
        "search": "find the documents that answer a query",
        "mine": "find hard negatives to train embedders and rerankers",
    },
    "Models": {
        "show": "draw corrupted text, attention, curves, predictions and neighbors",
        "info": "describe a model, a corpus, a recipe or this installation",
        "serve": "serve a model as a web page or an HTTP API",
        "export": "write a model as ONNX or in other formats that run without kerasbert",
    },
}
ALIASES = {"tokenizer": "train-tokenizer", "corpus": "prepare-corpus"}
SHELLS = {  # {shell: file in which its completions are saved}
    "bash": "~/.local/share/bash-completion/completions/kerasbert",
    "zsh": "~/.zfunc/_kerasbert",
    "fish": "~/.config/fish/completions/kerasbert.fish",
}
NAMES = [name for group in COMMANDS.values() for name in group]
USAGE = "usage: kerasbert COMMAND [OPTIONS]"
EXAMPLE = "kerasbert pretrain bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000"


def main() -> None:
    """Runs the command that the command line names."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name == "help" and arguments:  # `kerasbert help finetune`
        name, *arguments = [*arguments, "--help"]
    try:
        if name in ("-h", "--help", "help"):
            print(help_text())
        elif name == "--version":
            print(f"kerasbert {__version__}")
        elif name == "completion":
            print_completion(arguments)
        else:
            run(name, arguments)
    except KeyboardInterrupt:  # while modules are imported
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # `kerasbert --help | head -1`
        sys.stderr.close()


def run(name: str, arguments: list[str]) -> None:
    """Runs a command. Its help and error messages call it `kerasbert NAME`."""
    name = name.replace("_", "-")
    name = ALIASES.get(name, name)
    if name not in NAMES:
        known = [*NAMES, *ALIASES, "completion"]
        close = did_you_mean(name, [*known, "--help", "--version"])
        kind = "option" if name.startswith("-") else "command"
        fail(f"There is no {kind} {name!r}.{close} `kerasbert --help` lists the commands.")
    sys.argv = [f"kerasbert {name}", *arguments]
    pipeline(name).main()


def pipeline(name: str) -> ModuleType:
    """Imports a module of the pipelines. If a package is missing, the program ends and says how to install it."""
    package = pipelines_name()
    try:
        return importlib.import_module(f"{package}.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        sys.exit(importlib.import_module(f"{package}.command_line.command").missing(error))


def pipelines_name() -> str:
    """The name under which this process imports the pipelines. A second name would create copies of all modules.

    It is `kerasbert.pipelines` if kerasbert is installed, from the wheel or from a clone. It is `pipelines` in a clone
    that is not installed, or if `pipelines` of the same clone has already been imported.
    """
    imported = sys.modules.get("pipelines")
    installed, clone = Path(__file__).parent / "pipelines", Path(__file__).parent.parent / "pipelines"
    if imported is not None and clone in map(Path, getattr(imported, "__path__", ())):
        return "pipelines"
    spec = importlib.util.find_spec("kerasbert.pipelines")
    folders = set() if spec is None else set(map(Path, spec.submodule_search_locations or ()))
    # The installed pipelines may belong to another clone.
    return "kerasbert.pipelines" if {installed, clone} & folders else "pipelines"


def print_completion(arguments: list[str]) -> None:
    """Prints the completions of a shell to standard output, and instructions for installing them to standard error."""
    if arguments in ([], ["--help"], ["-h"]):
        print("usage: kerasbert completion SHELL\n\nPrints the completions of a shell. To install them:")
        print("\n".join(f"    {_installing(shell)}" for shell in SHELLS))
    elif len(arguments) > 1 or arguments[0] not in SHELLS:
        known = did_you_mean(arguments[0], SHELLS)
        fail(f"`completion` takes one shell: {', '.join(SHELLS)}. Received: {' '.join(arguments)}.{known}")
    else:
        print(pipeline("command_line.completion").completion(arguments[0]))
        print(f"To install: {_installing(arguments[0])}", file=sys.stderr)


def _installing(shell: str) -> str:
    path = SHELLS[shell]
    line = f"mkdir -p {Path(path).parent.as_posix()} && kerasbert completion {shell} > {path}"
    return f"{line}   (with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc)" if shell == "zsh" else line


def help_text() -> str:
    """The text of `kerasbert --help`."""
    lines = [USAGE, "", "The BERT family in Keras 3: pretraining, fine-tuning and predictions.", "", "Example:"]
    lines.append(f"    {EXAMPLE}")
    for heading, group in COMMANDS.items():
        lines += ["", f"{heading}:", *(f"    {name:17}{what}" for name, what in group.items())]
    lines += ["", "Other:", f"    {'completion':17}print the completions of a shell: {', '.join(SHELLS)}"]
    lines += [f"    {'--version':17}print the version", f"    {'COMMAND --help':17}describe the options of a command"]
    lines += ["", "--config FILE reads options of a command from a YAML file. Command-line options take precedence."]
    return "\n".join(lines)


def fail(message: str) -> None:
    """Ends the program with a message, and with exit status 2, which means that the command line is wrong."""
    print(printable(message), file=sys.stderr)
    sys.exit(2)


def printable(text: str) -> str:
    """Escapes control characters other than tabs and line feeds, which terminals obey wherever a text is from.

    "\x1b[2J" -> "\\u001b[2J"
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def close_to(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is closest to a misspelled one, or None if none is close.

    ("nre", ["ner", "rte"]) -> "ner"
    """
    known, name = list(known), name.lower()
    swapped = [each for each in known if sorted(each) == sorted(name)]  # difflib prefers "rte"
    return next(iter(swapped or difflib.get_close_matches(name, known, n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name, which suggests the closest known name, if any is close."""
    close = close_to(name, known)
    return f" Did you mean {close}?" if close else ""


if __name__ == "__main__":
    main()
