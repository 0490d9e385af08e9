"""Coined words and phrases that were removed from the prose of the package do not come back."""

import ast
import io
import re
import tokenize

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

# Coined words and phrases, and what to write instead.
BANNED = {
    r"\b[Ss]ights?\b": "view, or attention mask",
    r"\bScenes?\b": "inputs that all blocks share",
    r"\bblind\b": "sees nothing",
    r"\bRankingQuality\b": "AUC",
    r"\bnoughts?\b": "zeros",
    r"\bto a rounding\b": "up to rounding error",
    r"\bto the same bits\b": "bit-exactly",
    r"\bthe way back\b": "round trip",
    r"\bsleeps?\b(?!\()": "is off",
    r"\blest\b": "so that ... not",
    r"\bas it has to be\b": "say why",
    r"\bhas the arguments of\b": "say what it is",
    r"\bNot with one of the two before\b": "Cannot be combined with ...",
    r"\bfrom 0 on, at least one\b": "at least one non-negative integer",
    r"\bgives no row of this kind\b": "is too short to produce a row",
    r"\bof equal ones\b": "ties are resolved ...",
    r"\bis none of weights\b": "is not a weight tensor",
    r"\bnever silence\b": "raises an error",
    r"\bthat is no dict\b": "that is not a dict",
    r"\bseeds' first run\b": "say which run",
}
# The same for names of classes, functions, arguments, attributes and files of the package. "correct" is an ordinary
# adjective; it was banned as the name of an output only.
BANNED_NAMES = {"sight", "sights", "scene", "scenes", "blind", "elsewhere", "ranking_quality", "room", "rooms", "facts"}


def sources():
    for folder in ("kerasbert", "pipelines"):
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


def prose(path):
    """(line number, text) of the comments, docstrings and messages of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def test_the_reader_sees_comments_docstrings_and_messages(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('"""One.\n\nTwo."""\nx = 1  # three\nraise ValueError(f"four {x}")\n')
    assert [line for _, line in prose(path)] == ['"""One.', "", 'Two."""', "# three", 'f"four {x}"']


def test_no_banned_words():
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {match.group(0)!r}: write {instead}"
        for path in [*sources(), *pages]
        for number, line in prose(path)
        for pattern, instead in BANNED.items()
        if (match := re.search(pattern, line))
    ]
    assert not found, "\n".join(found)


def names_of(path):
    """Yields the names that a file defines, its own included, in snake case."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower().strip("_")
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr.strip("_")
    yield path.stem


def test_no_banned_names(tmp_path):
    path = tmp_path / "scene.py"
    path.write_text("class RankingQuality:\n    def _facts(self, room):\n        self.sight = 1\n")
    assert set(names_of(path)) == {"ranking_quality", "facts", "self", "room", "sight", "scene"}
    found = [
        (name_of, name)
        for path in sources()
        if (name_of := path.relative_to(REPOSITORY).as_posix()).startswith("kerasbert/")
        for name in names_of(path)
        if name in BANNED_NAMES
    ]
    assert not found
