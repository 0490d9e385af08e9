"""English text that needs no download: the documentation in every Python installation.

`pydoc_data.topics` contains chapters of the language reference, and the modules of the standard library have about six
thousand docstrings. The files are parsed, and no module is imported. The text varies slightly with the version of
Python and with the distribution (Debian packages `tkinter` separately).
"""

import ast
import re
import sysconfig
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# {area of the library: packages and modules that belong to it}
AREAS = {
    "concurrency": """
        _threading_local asyncio concurrent multiprocessing queue sched selectors subprocess threading""",
    "debugging": """
        bdb cProfile doctest logging pdb profile pstats timeit trace traceback tracemalloc unittest warnings""",
    "files": """
        _compression _pyio bz2 filecmp fileinput fnmatch genericpath glob gzip io lzma ntpath os pathlib posixpath
        shutil stat tarfile tempfile zipapp zipfile""",
    "graphics": """
        colorsys curses tkinter turtle""",
    "imports": """
        compileall imp importlib modulefinder pkgutil py_compile runpy zipimport""",
    "internet": """
        cgi email ftplib http imaplib ipaddress mailbox mimetypes nntplib poplib smtpd smtplib socket socketserver ssl
        telnetlib urllib webbrowser wsgiref xmlrpc""",
    "numbers": """
        _pydatetime _pydecimal _pylong _strptime calendar datetime decimal fractions numbers random statistics
        zoneinfo""",
}
AREA_OF = {module: area for area, modules in AREAS.items() for module in modules.split()}

SKIPPED_FOLDERS = {"__pycache__", "ensurepip", "idlelib", "lib-dynload", "lib2to3", "pydoc_data", "turtledemo"}
SKIPPED_FOLDERS |= {"dist-packages", "site-packages", "test", "tests", "idle_test"}


@dataclass(frozen=True)
class Docstring:
    """A docstring of the standard library, and the name of its module, such as "asyncio.locks"."""

    module: str
    text: str

    @property
    def area(self) -> str | None:
        """The area of the module, or None if it belongs to no area."""
        return AREA_OF.get(self.module.partition(".")[0])


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def docstrings(folder: Path | None = None, minimum_words: int = 6) -> list[Docstring]:
    """Returns the docstrings of all modules, in the order of their files. Duplicates are dropped."""
    folder = folder or standard_library()
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if SKIPPED_FOLDERS.intersection(parts):
            continue
        module = ".".join(parts).removesuffix(".__init__")
        for text in _docstrings_of(path):
            if len(text.split()) >= minimum_words:
                found.setdefault(text, Docstring(module, text))
    return list(found.values())


def held_out_modules(found: list[Docstring]) -> set[str]:
    """Selects modules with up to a quarter of each area's docstrings. The result depends only on the installed Python.

    Modules are considered in the order of the checksums of their names. Modules that would exceed the quarter are
    skipped.
    """
    chosen = set()
    for area in AREAS:
        sizes = Counter(docstring.module for docstring in found if docstring.area == area)
        budget = sum(sizes.values()) // 4
        for module in sorted(sizes, key=lambda name: zlib.crc32(name.encode())):
            if sizes[module] <= budget:
                chosen.add(module)
                budget -= sizes[module]
    return chosen


def _docstrings_of(path: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore warnings about invalid escapes in the strings of these files
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def topics(folder: Path | None = None) -> list[str]:
    """Returns the chapters of the language reference that `help("assert")` shows."""
    path = (folder or standard_library()) / "pydoc_data" / "topics.py"
    if not path.exists():
        return []
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return list(ast.literal_eval(node.value).values())
    return []


def paragraphs(text: str) -> str:
    """Joins the lines of each paragraph into one line, and drops the underlines of headings.

    "Split text.\\n\\nReturns a list\\nof words." -> "Split text.\\nReturns a list of words."
    """
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    blocks = (re.sub(r"([*=~^#\"'+-])\1{3,}", " ", block).strip() for block in blocks)
    return "\n".join(block for block in blocks if block)
