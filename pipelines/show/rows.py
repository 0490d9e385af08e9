"""Pictures of token rows, and how they are drawn in a terminal and in HTML."""

import dataclasses
import html
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# {kind of a token: (text in the legend, style in the terminal, CSS declarations)}. The kinds also differ in their
# borders, so that they can be distinguished without colors. Colors are from the palette of Okabe and Ito, darkened
# behind white text.
KINDS = {
    "text": ("", "", ""),
    "special": ("special token", "dim", "color: var(--muted)"),
    "mask": ("masked, to be predicted", "bold #ffffff on #0060a0", "background: #0060a0; color: #fff"),
    "kept": ("unchanged, to be predicted", "bold underline", "border: 2px solid var(--blue)"),
    "random": (
        "replaced by a random token",
        "bold #ffffff on #a84300",
        "background: #a84300; color: #fff; border: 2px dashed #fff",
    ),
    "sampled": (
        "replaced by a sample of the generator",
        "bold #ffffff on #a84300",
        "background: #a84300; color: #fff; border: 2px dashed #fff",
    ),
    "sentinel": ("sentinel", "bold black on #e6a0c4", "background: #e6a0c4; color: #000; border-radius: 1em"),
    "noise": (
        "to be predicted",
        "bold black on #f0c040",
        "background: #f0c040; color: #000; text-decoration: underline",
    ),
    "moved": ("in another place", "bold underline", "border: 2px dotted var(--blue)"),
    "prefix": ("prefix, visible to all", "bold black on #9fd8f5", "background: #9fd8f5; color: #000"),
    "hidden": ("not visible", "dim", "color: var(--muted); border: 1px dotted var(--muted)"),
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of tokens, with values under each token.

    Args:
        label: name of the row, such as "inputs".
        tokens: texts of the tokens.
        kinds: the kind of each token, from `KINDS`. Default: all "text".
        under: {label: list with one value for each token, or "" for none}.
    """

    label: str
    tokens: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    under: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "kinds", self.kinds or ("text",) * len(self.tokens))
        for values in (self.kinds, *self.under.values()):
            if len(values) != len(self.tokens):
                raise ValueError(
                    f"There must be one value for each of the {len(self.tokens)} tokens. Received: {len(values)}."
                )

    @property
    def text(self) -> str:
        """The tokens, separated by spaces."""
        return " ".join(self.tokens)


@dataclasses.dataclass(frozen=True)
class Rows:
    """A picture that consists of rows.

    Args:
        title: heading of the picture.
        about: description in one or two sentences.
        lines: the rows.
        notes: sentences below the rows.
    """

    title: str
    about: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    def line(self, label: str) -> Line:
        """Returns the first row with a label."""
        return next(line for line in self.lines if line.label == label)


def legend(pictures: Iterable[Rows]) -> list[str]:
    """Returns the kinds of tokens in the pictures that need an explanation."""
    used = {kind for rows in pictures for line in rows.lines for kind in line.kinds}
    return [kind for kind in KINDS if kind in used and KINDS[kind][0]]


# === In a terminal ===


def print_rows(pictures: list[Rows], console: Console) -> None:
    """Prints pictures, in color if the console is a terminal."""
    for rows in pictures:
        console.print(Text(rows.title, style="bold"))
        if rows.about:
            console.print(Text(rows.about))
        width = max((len(name) for line in rows.lines for name in (line.label, *line.under)), default=0) + 2
        for line in rows.lines:
            for text in _wrapped(line, width, console.width):
                console.print(text, no_wrap=True, overflow="ignore", crop=False)
        for note in rows.notes:
            console.print(Text(f"({note})"), style="dim")
        console.print()
    shown = Text("Colors: ")
    for kind in legend(pictures):
        shown.append(f" {kind} ", KINDS[kind][1]).append(f" {KINDS[kind][0]}   ")
    if legend(pictures):
        console.print(shown)


def _wrapped(line: Line, label_width: int, width: int) -> list[Text]:
    """Wraps a row into lines of text: blocks of columns that fit into the width, with values under the tokens."""
    columns = list(zip(line.tokens, line.kinds, *line.under.values(), strict=True))
    sizes = [max(cell_len(text) for text in (token, *under)) + 1 for token, _, *under in columns]
    texts, start = [], 0
    while start < len(columns) or not texts:
        stop, used = start + 1, sum(sizes[start : start + 1])
        while stop < len(columns) and used + sizes[stop] <= width - label_width:
            used, stop = used + sizes[stop], stop + 1
        first = Text().append((line.label if not start else "").ljust(label_width), "bold")
        for (token, kind, *_), size in zip(columns[start:stop], sizes[start:stop], strict=True):
            first.append(token, KINDS[kind][1]).append(" " * (size - cell_len(token)))
        texts.append(first)
        for number, (name, values) in enumerate(line.under.items()):
            if not any(values[start:stop]):
                continue
            text = Text((name if not start else "").ljust(label_width))
            for column, size in zip(columns[start:stop], sizes[start:stop], strict=True):
                value = column[2 + number]
                text.append(value + " " * (size - cell_len(value)))
            texts.append(text)
        start = stop
    return texts


# === In HTML ===

STYLE = """
.line { display: flex; flex-wrap: wrap; gap: .35rem; margin: .6rem 0; align-items: flex-start; }
.column { display: flex; flex-direction: column; align-items: center; max-width: 100%; font-size: .95rem; }
.column span { line-height: 1.35; max-width: 100%; overflow-wrap: anywhere; text-align: center; }
.column .token { font-family: var(--mono); padding: .1rem .4rem; border: 2px solid transparent; border-radius: .25rem; }
.column .under { font-family: var(--mono); font-size: .8rem; color: var(--muted); }
.names { align-items: flex-start; min-width: 6.5rem; }
.names .label { font-weight: 600; padding: .1rem 0; border: 2px solid transparent; }
.names .under { font-family: inherit; }
.legend span { display: inline-block; margin: .15rem 1rem .15rem 0; }
.legend .token { font-family: var(--mono); padding: 0 .4rem; border-radius: .25rem; margin-right: .3rem; }
@media (max-width: 640px) { .names { min-width: 100%; flex-direction: row; gap: .8rem; align-items: baseline; } }
""" + "".join(f".token.{kind} {{ {css} }}\n" for kind, (_, _, css) in KINDS.items() if css)


def rows_as_html(pictures: list[Rows]) -> str:
    """Converts pictures to HTML sections, for a page that uses `STYLE`."""
    parts = []
    if legend(pictures):
        shown = (
            f'<span><span class="token {kind}">{kind}</span>{html.escape(KINDS[kind][0])}</span>'
            for kind in legend(pictures)
        )
        parts.append(f'<p class="legend">{"".join(shown)}</p>')
    for rows in pictures:
        lines = "".join(map(_line_as_html, rows.lines))
        notes = "".join(f"<p class='note'>{html.escape(note)}</p>" for note in rows.notes)
        about = f"<p>{html.escape(rows.about)}</p>" if rows.about else ""
        parts.append(f"<section><h2>{html.escape(rows.title)}</h2>{about}{lines}{notes}</section>")
    return "\n".join(parts)


def _line_as_html(line: Line) -> str:
    names = "".join(f'<span class="under">{html.escape(name)}</span>' for name in line.under)
    parts = [f'<div class="column names"><span class="label">{html.escape(line.label)}</span>{names}</div>']
    for number, (token, kind) in enumerate(zip(line.tokens, line.kinds, strict=True)):
        meaning = f' title="{html.escape(KINDS[kind][0])}"' if KINDS[kind][0] else ""
        under = "".join(
            f'<span class="under">{html.escape(values[number]) or "&nbsp;"}</span>' for values in line.under.values()
        )
        parts.append(
            f'<div class="column"><span class="token {kind}"{meaning}>{html.escape(token)}</span>{under}</div>'
        )
    return f'<div class="line">{"".join(parts)}</div>'
