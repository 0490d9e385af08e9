"""Draws lists of names with values as bars, in a terminal, in HTML and in figures."""

import dataclasses
import html
import textwrap
from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from .files import label, new_figure


@dataclasses.dataclass(frozen=True)
class Bars:
    """A list of names and values, which is drawn as bars.

    Args:
        title: heading.
        text: the text that the bars are about.
        names: name of each bar.
        values: length of each bar, as a fraction of the full width. Negative values have no bar.
        notes: text after each value, such as the sentence of a token.
        marked: start and stop of the part of `text` that is emphasized.
        unit: function that formats a value.
    """

    title: str
    text: str
    names: Sequence[str]
    values: Sequence[float]
    notes: Sequence[str] = ()
    marked: tuple[int, int] = (0, 0)
    unit: Callable[[float], str] = "{:.1%}".format

    @property
    def rows(self) -> list[tuple[str, float, str]]:
        return list(zip(self.names, self.values, self.notes or [""] * len(self.names), strict=True))


def print_bars(pictures: Sequence[Bars], console: Console) -> None:
    """Prints lists of bars."""
    for bars in pictures:
        console.print(Text(bars.title, style="bold"))
        if bars.text:
            text = Text(bars.text)
            text.stylize("bold underline", *bars.marked)
            console.print(text)
        width = min(24, max((cell_len(name) for name in bars.names), default=0))
        long = max(10, min(40, console.width - width - 50))
        for name, value, note in bars.rows:
            shown = name if cell_len(name) <= width else set_cell_size(name, width - 1) + "…"
            line = Text(f"  {shown}{' ' * (width - cell_len(shown))} {bars.unit(value):>6} ")
            line.append(_bar(value, long), "#0072B2").append(" " + note if note else "", "dim")
            console.print(line, no_wrap=True, overflow="ellipsis")
        console.print()


def _bar(value: float, long: int) -> str:
    """Draws a bar with a resolution of an eighth of a character, padded to `long` characters."""
    eighths = round(max(0.0, min(1.0, value)) * long * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(long)


STYLE = """
.bars { width: 100%; table-layout: fixed; margin-top: .4rem; }
.bars td { padding: .12rem .5rem .12rem 0; vertical-align: middle; }
.bars .name { width: 28%; font-family: var(--mono); } .bars .value { width: 4.6rem; text-align: right; }
.bars .track { background: var(--page); border: 1px solid var(--line); border-radius: .2rem;
  height: 1rem; min-width: 0; }
.bars .bar { background: var(--blue); height: 100%; }
.bars .said { color: var(--muted); font-size: .9rem; }
.bars .said td { padding: 0 0 .5rem; }
mark { background: none; color: inherit; font-weight: 700; text-decoration: underline; text-decoration-thickness: 2px; }
"""


def bars_as_html(bars: Bars) -> str:
    """Creates an HTML section, for a page that uses `STYLE`."""
    start, stop = bars.marked
    parts = [html.escape(part) for part in (bars.text[:start], bars.text[start:stop], bars.text[stop:])]
    text = f"{parts[0]}<mark>{parts[1]}</mark>{parts[2]}" if stop > start else "".join(parts)
    rows = []
    for name, value, note in bars.rows:
        share = 100 * max(0.0, min(1.0, value))
        rows.append(
            f'<tr><td class="name">{html.escape(name)}</td><td class="value">{html.escape(bars.unit(value))}</td>'
            f'<td><div class="track"><div class="bar" style="width:{share:.1f}%"></div></div></td></tr>'
        )
        if note:
            rows.append(f'<tr class="said"><td colspan="3">{html.escape(note)}</td></tr>')
    said = f"<p>{text}</p>" if bars.text else ""
    return f'<section><h2>{html.escape(bars.title)}</h2>{said}<table class="bars">{"".join(rows)}</table></section>'


def bars_figure(pictures: Sequence[Bars], measure: str):
    """Draws a matplotlib figure with one chart for each list.

    Args:
        pictures: the lists.
        measure: label of the axes of values.
    """
    # Titles begin at the bars, to whose left the names with notes take half of the figure.
    titles = [textwrap.wrap(f"{bars.title}  {bars.text}", 45 if bars.notes else 75) for bars in pictures]
    heights = [0.8 + 0.22 * (len(bars.names) + len(title)) for bars, title in zip(pictures, titles, strict=True)]
    figure = new_figure(7, sum(heights))
    axes = figure.subplots(len(pictures), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, bars, title in zip(axes, pictures, titles, strict=True):
        shown = [max(0.0, min(1.0, value)) for value in bars.values]
        chart = axis.barh(range(len(shown)), shown, color="#0060a0", height=0.7)
        axis.bar_label(chart, [bars.unit(value) for value in bars.values], padding=3, fontsize=8)
        names = [label(f"{name} ({note})" if note else name, 48) for name, _, note in bars.rows]
        axis.set_yticks(range(len(shown)), names, fontsize=8)
        axis.set_xlim(0, 1.1)
        ticks = (0, 0.25, 0.5, 0.75, 1)
        axis.set_xticks(ticks, [f"{tick:.0%}" if "%" in bars.unit(1) else f"{tick}" for tick in ticks], fontsize=8)
        axis.invert_yaxis()
        axis.set_title("\n".join(title).replace("$", r"\$"), fontsize=9, loc="left")
        axis.set_xlabel(measure, fontsize=8)
    return figure
