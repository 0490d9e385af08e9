"""Rows of tokens in a terminal and in HTML."""

import io

import pytest
from rich.console import Console

from pipelines.show.html import page
from pipelines.show.rows import KINDS, STYLE, Line, Rows, legend, print_rows, rows_as_html

pytestmark = pytest.mark.one_backend

LINE = Line("inputs", ("my", "[MASK]", "</s>"), ("text", "mask", "special"), {"predicts": ("", "dog", "")})
ROWS = Rows("Title <1>", "About.", (LINE,), ("A note.",))


def printed(rows, width=80, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    print_rows(rows, console)
    return console.file.getvalue()


def test_values_stand_under_their_tokens():
    lines = printed([ROWS]).splitlines()
    assert lines[:3] == ["Title <1>", "About.", "inputs    my [MASK] </s> "]
    assert lines[3].rstrip() == "predicts     dog" and lines[4] == "(A note.)"


def test_long_rows_are_wrapped_and_stay_aligned():
    line = Line("reads", tuple(f"word{n}" for n in range(20)), under={"predicts": tuple(f"next{n}" for n in range(20))})
    lines = printed([Rows("t", "", (line,))], width=50).splitlines()[1:]
    lines = [text for text in lines if text.strip()]
    assert all(len(text) <= 50 for text in lines) and len(lines) > 6
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        assert first.index("word") == second.index("next")


def test_a_word_longer_than_the_terminal_keeps_all_its_letters():
    long = "antidisestablishmentarianism" * 4
    assert long in printed([Rows("t", "", (Line("a", (long, "b")),))], width=40)


def test_wide_characters_count_twice():
    line = Line("a", ("日本", "x"), under={"under": ("", "y")})
    first, second = printed([Rows("t", "", (line,))]).splitlines()[1:3]
    assert first.index("x") + 2 == second.index("y")


def test_a_terminal_gets_colors_and_a_file_does_not():
    assert "\x1b[" not in printed([ROWS])
    colored = printed([ROWS], force_terminal=True, color_system="truecolor")
    assert "48;2;0;96;160m[MASK]" in colored
    assert "masked, to be predicted" in colored


def test_the_legend_has_the_kinds_that_occur():
    assert legend([ROWS]) == ["special", "mask"]
    assert legend([Rows("t", "", (Line("a", ("b",)),))]) == []


def test_html_escapes_tokens_and_keeps_the_values():
    text = rows_as_html([ROWS])
    assert "Title &lt;1&gt;" in text and "&lt;/s&gt;" in text and "</s>" not in text
    assert (
        '<span class="token mask" title="masked, to be predicted">[MASK]</span><span class="under">dog</span>' in text
    )


def test_a_page_is_one_file_for_light_and_dark_screens():
    text = page("A & B", "<p>x</p>", STYLE, "let a = 1;")
    assert text.startswith("<!DOCTYPE html>") and "<title>A &amp; B</title>" in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert "http" not in text and "src=" not in text and "@import" not in text


def contrast(first, second):
    def luminance(color):
        parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("kind", [kind for kind, (_, _, css) in KINDS.items() if "background" in css])
def test_text_on_a_color_can_be_read(kind):
    declarations = dict(part.split(": ") for part in KINDS[kind][2].split("; "))
    text = {"#fff": "#ffffff", "#000": "#000000"}[declarations["color"]]
    assert contrast(text, declarations["background"]) >= 4.5  # WCAG 2, level AA


def test_every_token_needs_a_value():
    with pytest.raises(ValueError, match="one value for each of the 2 tokens. Received: 1"):
        Line("a", ("b", "c"), under={"d": ("e",)})
