"""The terminal that pictures and answers are printed on."""

import sys

from rich.console import Console
from rich.segment import Segment

from kerasbert.command_line import printable


class PrintableConsole(Console):
    """A console that escapes the control characters of texts, but not its own colors."""

    def render(self, renderable, options=None):
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def terminal_console() -> PrintableConsole:
    """Creates a console on standard output, without automatic highlighting."""
    return PrintableConsole(highlight=False, emoji=False, markup=False, file=getattr(sys.stdout, "unfiltered", None))
