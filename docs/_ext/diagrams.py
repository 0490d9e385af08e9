"""Draws the block of every family as an SVG: boxes are layers, and data flow upwards as in most papers.

`stacks.py` describes the families with the classes of this file. A box that names a layer is checked against the source
by `tests/docs/test_diagrams.py`: the order of the boxes is the order in which `call` applies the layers. Colors are
those of the page, so a figure follows the light and the dark theme.
"""

import dataclasses
import html
import textwrap

BOX_WIDTH, BOX_HEIGHT, GAP, SUM = 190, 32, 20, 18
COLUMN_WIDTH = 360  # a phone of 400 pixels shows it without scaling
MIDDLE = 145  # of the boxes, from the edge of the column at which residual connections run
OUTER, INNER = 46, 14  # from a box to the frame, at the side of residual connections and at the other
OVERLAP = 60  # of neighboring columns, which need no room for notes between them
NOTE_AT, NOTE_LETTERS = 22, 15  # from a box to its note, and letters a line
LETTER = 6.4  # width of a letter in a box


@dataclasses.dataclass(frozen=True)
class Box:
    """A layer.

    Args:
        kind: its color: embedding, attention, feed_forward, norm, recurrent or other.
        label: the text inside.
        layer: the attribute of the block or of the backbone that holds it.
        note: a text at its side, for what else goes in.
        cross: whether an arrow from the stack to its left goes in.
    """

    kind: str
    label: str
    layer: str | None = None
    note: str = ""
    cross: bool = False


@dataclasses.dataclass(frozen=True)
class Skip:
    """Elements whose input is added to their output (a residual connection)."""

    elements: tuple


@dataclasses.dataclass(frozen=True)
class Row:
    """Boxes side by side whose outputs are joined: added ("+"), concatenated ("concat") or only drawn ("")."""

    boxes: tuple
    join: str = "+"


@dataclasses.dataclass(frozen=True)
class Repeat:
    """The block: a frame, with the number of times that it is applied."""

    times: str
    elements: tuple


@dataclasses.dataclass(frozen=True)
class Text:
    """What enters or leaves a stack."""

    label: str


@dataclasses.dataclass(frozen=True)
class Stack:
    """One column of a figure, from the bottom to the top.

    Args:
        elements: what it consists of.
        title: its name, if there are several.
        block: {dotted name of a class: layers that its `call` applies and the figure leaves out}. The boxes inside the
            `Repeat` are the other layers of these classes, in the order of their calls.
        crosses_from: where the arrow to the next stack begins: "top", or "block" for the input of the block.
    """

    elements: tuple
    title: str = ""
    block: dict = dataclasses.field(default_factory=dict)
    crosses_from: str = "top"


class _Column:
    """Places the shapes of one stack. `y` is the height above the bottom, which grows while elements are added."""

    def __init__(self, left, mirrored):
        self.left, self.mirrored = left, mirrored
        self.side = 1 if mirrored else -1  # where residual connections run; notes are on the other side
        self.center = left + (COLUMN_WIDTH - MIDDLE if mirrored else MIDDLE)
        self.y = 0
        self.frames, self.lines, self.boxes, self.texts, self.sums = [], [], [], [], []
        self.cross_targets, self.block_input = [], None

    def add(self, element):
        {Box: self.box, Skip: self.skip, Row: self.row, Repeat: self.repeat, Text: self.text}[type(element)](element)

    def flow(self, length=GAP, head=True):
        self.lines.append(([(self.center, self.y), (self.center, self.y + length)], head))
        self.y += length

    def box(self, box):
        self.flow()
        self.boxes.append((self.center - BOX_WIDTH / 2, self.y, BOX_WIDTH, BOX_HEIGHT, box))
        if box.cross:
            self.cross_targets.append((self.center + self.side * -BOX_WIDTH / 2, self.y + BOX_HEIGHT / 2))
        if box.note:
            near, far = (self.center - self.side * (BOX_WIDTH / 2 + distance) for distance in (0, NOTE_AT))
            self.lines.append(([(far, self.y + BOX_HEIGHT / 2), (near, self.y + BOX_HEIGHT / 2)], True))
            self.texts.append((far - self.side * 4, self.y + BOX_HEIGHT / 2, box.note, "note"))
        self.y += BOX_HEIGHT

    def skip(self, skip):
        self.flow(12, head=False)
        start, outer = self.y, any(isinstance(element, Skip) for element in skip.elements)
        x = self.center + self.side * (BOX_WIDTH / 2 + (34 if outer else 18))
        for element in skip.elements:
            self.add(element)
        self.flow()
        end = self.y + SUM / 2
        self.lines.append(
            ([(self.center, start), (x, start), (x, end), (self.center + self.side * SUM / 2, end)], True)
        )
        self.sum()

    def sum(self):
        self.sums.append((self.center, self.y + SUM / 2))
        self.y += SUM

    def row(self, row):
        gap, total = 8, BOX_WIDTH + (92 if len(row.boxes) > 2 else 24)
        width = (total - gap * (len(row.boxes) - 1)) / len(row.boxes)
        tall = any(len(box.label) > (width - 6) / LETTER for box in row.boxes)
        height = BOX_HEIGHT + (14 if tall else 0)
        middles = [self.center - total / 2 + i * (width + gap) + width / 2 for i in range(len(row.boxes))]
        if self.y:
            self.flow(8, head=False)
            self.lines.append(([(middles[0], self.y), (middles[-1], self.y)], False))
        bottom = self.y + (12 if self.y else 0)
        joined = bottom + height + 10
        for middle, box in zip(middles, row.boxes, strict=True):
            if self.y:
                self.lines.append(([(middle, self.y), (middle, bottom)], True))
            self.boxes.append((middle - width / 2, bottom, width, height, box))
            self.lines.append(([(middle, bottom + height), (middle, joined), (self.center, joined)], False))
        self.y = joined
        if row.join == "+":
            self.flow(14)
            self.sum()
        elif row.join:
            self.texts.append((self.center + 6, self.y + 8, row.join, "note"))

    def repeat(self, repeat):
        self.flow(10, head=False)
        start = self.y
        self.block_input = (self.center, self.y + 6)
        for element in repeat.elements:
            self.add(element)
        self.flow(8, head=False)
        left, right = (INNER, OUTER) if self.mirrored else (OUTER, INNER)
        x, width = self.center - BOX_WIDTH / 2 - left, BOX_WIDTH + left + right
        self.frames.append((x, start, width, self.y - start))
        corner = x - 6 if self.mirrored else x + width + 6
        self.texts.append((corner, self.y - 12, repeat.times, "times"))

    def text(self, text):
        if self.y:
            self.flow(16)
        self.texts.append((self.center, self.y + 8, text.label, "end"))
        self.y += 18


def draw(stacks, title):
    """The figure of a family as SVG text.

    Args:
        stacks: one or more `Stack`, drawn side by side.
        title: what the figure shows, for screen readers.
    """
    columns = []
    for i, stack in enumerate(stacks):
        column = _Column(i * (COLUMN_WIDTH - OVERLAP), mirrored=i > 0)
        for element in stack.elements:
            column.add(element)
        columns.append(column)
    titled = any(stack.title for stack in stacks)
    height = max(column.y for column in columns) + (40 if titled else 12)
    width = COLUMN_WIDTH + (len(stacks) - 1) * (COLUMN_WIDTH - OVERLAP)
    drawing = _Drawing(height)
    for stack, column in zip(stacks, columns, strict=True):
        drawing.column(column)
        if stack.title:
            drawing.text(column.center, max(c.y for c in columns) + 22, stack.title, "title")
    for stack, column, following in zip(stacks, columns, columns[1:], strict=False):
        drawing.cross(stack, column, following)
    body = "\n".join(drawing.parts)
    return (
        f'<svg class="family-diagram" role="img" aria-label="{html.escape(title)}" viewBox="0 0 {width} {height:g}" '
        f'width="{width}" xmlns="http://www.w3.org/2000/svg">\n<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" '
        'refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="head"/>'
        "</marker></defs>\n"
        f"{body}\n</svg>\n"
    )


class _Drawing:
    """SVG elements in order; heights above the bottom become distances from the top."""

    def __init__(self, height):
        self.height, self.parts = height, []

    def flip(self, y):
        return round(self.height - 6 - y, 1)

    def text(self, x, y, label, kind="label"):
        self.parts.append(f'<text x="{x:g}" y="{self.flip(y):g}" class="{kind}">{html.escape(label)}</text>')

    def path(self, points, head):
        steps = " ".join(f"{'M' if i == 0 else 'L'}{x:g} {self.flip(y):g}" for i, (x, y) in enumerate(points))
        end = ' marker-end="url(#arrow)"' if head else ""
        self.parts.append(f'<path d="{steps}" class="flow"{end}/>')

    def rectangle(self, x, y, width, height, radius, kind):
        self.parts.append(
            f'<rect x="{x:g}" y="{self.flip(y + height):g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'class="{kind}"/>'
        )

    def column(self, column):
        for x, y, width, height in column.frames:
            self.rectangle(x, y, width, height, 10, "frame")
        for points, head in column.lines:
            self.path(points, head)
        for x, y in column.sums:
            self.parts.append(f'<circle cx="{x:g}" cy="{self.flip(y):g}" r="{SUM / 2:g}" class="sum"/>')
            self.text(x, y - 5, "+", "sign")
        for x, y, width, height, box in column.boxes:
            self.rectangle(x, y, width, height, 6, f"box {box.kind}")
            lines = textwrap.wrap(box.label, int((width - 6) / LETTER))
            for i, line in enumerate(lines):
                self.text(x + width / 2, y + height / 2 + 7 * (len(lines) - 1) - 4.5 - 14 * i, line)
        for x, y, label, kind in column.texts:
            lines = textwrap.wrap(label, NOTE_LETTERS) if kind == "note" else [label]
            kind = f"{kind} mirrored" if column.mirrored and kind != "end" else kind
            for i, line in enumerate(lines):
                self.text(x, y + 6 * (len(lines) - 1) - 4 - 13 * i, line, kind)

    def cross(self, stack, column, following):
        x, y = (column.center, column.y) if stack.crosses_from == "top" else column.block_input
        gutter = column.left + COLUMN_WIDTH - OVERLAP + 8
        for target_x, target_y in following.cross_targets:
            rise = [(x, y), (x, y + 12), (gutter, y + 12)] if stack.crosses_from == "top" else [(x, y), (gutter, y)]
            self.path([*rise, (gutter, target_y), (target_x, target_y)], head=True)
