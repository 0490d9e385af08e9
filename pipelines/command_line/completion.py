"""Shell completions for the command `kerasbert`: its commands and their options."""

import contextlib
import dataclasses
import importlib
import io
import sys
import typing

from kerasbert.command_line import ALIASES, NAMES, SHELLS

from .command import EXTRAS, PIPELINES, Command, Commands, one_line_errors


def completion(shell: str) -> str:
    """Returns the completion script for a shell: "bash", "zsh" or "fish".

    If the optional packages of a command are not installed, the script has the command without its options, and a
    message says so.
    """
    with one_line_errors():
        import tyro

        kinds = []
        for name in NAMES:
            try:
                main = importlib.import_module(f"{PIPELINES}.{name.replace('-', '_')}").main
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] not in EXTRAS:
                    raise
                print(f"no completions for the options of {name}: {error}", file=sys.stderr)
                main = None
            aliases = [alias for alias, command in ALIASES.items() if command == name]
            kinds.append(typing.Annotated[_options(main), tyro.conf.subcommand(name, aliases=aliases)])
        shells = typing.Annotated[typing.Literal[tuple(SHELLS)], tyro.conf.Positional]
        kinds.append(
            typing.Annotated[
                dataclasses.make_dataclass("Options", [("shell", shells)]), tyro.conf.subcommand("completion")
            ]
        )
        written = io.StringIO()
        with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
            arguments = ["--tyro-print-completion", shell]
            tyro.cli(typing.Union[tuple(kinds)], prog="kerasbert", description="", args=arguments)  # noqa: UP007
    return written.getvalue()


def _options(main: typing.Any) -> typing.Any:
    """Returns a type with the options of a command, from which tyro creates a parser."""
    import tyro

    if isinstance(main, Command):
        return main.options()
    if not isinstance(main, Commands):
        return dataclasses.make_dataclass("Options", [])
    inner = tuple(
        typing.Annotated[one.options(), tyro.conf.subcommand(name, prefix_name=False)]
        for name, one in main.commands.items()
    )
    kind = typing.Annotated[typing.Union[inner], tyro.conf.OmitArgPrefixes]  # noqa: UP007
    return dataclasses.make_dataclass("Options", [("command", kind)])
