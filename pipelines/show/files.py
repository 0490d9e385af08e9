"""Writes pictures to files. The extension determines the format."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerasbert.data.text.files import text_written_whole

from ..runs.outputs import check_outputs


def check_pictures(outputs: Sequence[Path], kinds: Sequence[str]) -> None:
    """Raises an error if a file cannot be written, or if its extension is not one of `kinds`, such as ".html"."""
    for output in outputs:
        if output.suffix not in kinds:
            raise ValueError(f"`--output` must end with {' or '.join(kinds)}. Received: {output}.")
        check_outputs({"--output": output}, {})


def write_pictures(outputs: Sequence[Path], makers: Mapping[str, Callable[[], Any]]) -> None:
    """Writes a picture to each file.

    Args:
        outputs: the files.
        makers: {extension: function}. The function returns the text of a page for ".html", otherwise a matplotlib
            figure.
    """
    for output in outputs:
        made = makers[output.suffix]()
        if isinstance(made, str):
            with text_written_whole(output) as file:
                file.write(made)
        else:
            made.savefig(output, facecolor="white")
        print(f"wrote {output}")


def new_figure(width: float, height: float) -> Any:
    """Creates an empty matplotlib figure with this size in inches. No display is needed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure


def label(text: str, most: int = 16) -> str:
    """Truncates a text to `most` characters for a figure, and escapes what matplotlib would read as mathematics."""
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")
