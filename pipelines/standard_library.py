"""English text that needs no download: the documentation inside every Python installation.

`pydoc_data.topics` holds the chapters of the language reference, and the modules of the standard library carry some
six thousand docstrings. The files are parsed, no module is imported. What is there varies a little with the Python
version and with how the system packages it (Debian ships `tkinter` apart).
"""

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The chapters of the Library Reference, joined into areas of similar size.
AREAS = {
    "concurrency": """
        _threading_local asynchat asyncio asyncore concurrent contextvars multiprocessing queue sched selectors signal
        subprocess threading""",
    "debugging": """
        _pyrepl bdb cProfile cgitb doctest faulthandler logging pdb profile pstats pydoc timeit trace traceback
        tracemalloc unittest warnings""",
    "files": """
        _compression _pyio bz2 configparser csv dbm filecmp fileinput fnmatch genericpath glob gzip io linecache lzma
        ntpath os pathlib pickle pickletools plistlib posixpath shelve shutil sqlite3 stat tarfile tempfile tomllib
        zipapp zipfile""",
    "graphics": """
        colorsys curses tkinter turtle""",
    "internet": """
        base64 cgi email ftplib html http imaplib ipaddress json mailbox mimetypes netrc nntplib poplib quopri smtpd
        smtplib socket socketserver ssl telnetlib urllib uuid webbrowser wsgiref xml xmlrpc""",
    "language": """
        __future__ _collections_abc abc ast code codeop collections compileall contextlib copy ctypes dataclasses dis
        enum functools imp importlib inspect modulefinder operator pkgutil py_compile pyclbr runpy site symtable
        sysconfig tokenize types typing weakref zipimport""",
    "numbers": """
        _pydatetime _pydecimal _pylong _strptime bisect calendar datetime decimal fractions heapq numbers random
        statistics zoneinfo""",
    "text": """
        argparse cmd codecs difflib encodings getopt gettext locale optparse pprint re reprlib rlcompleter shlex string
        stringprep textwrap""",
}
AREA_OF = {module: area for area, modules in AREAS.items() for module in modules.split()}

# About a quarter of every area. Neither pretraining nor fine-tuning sees a word of these modules.
HELD_OUT = set(
    """
    multiprocessing queue sched doctest logging tracemalloc gzip lzma pathlib tarfile shutil turtle curses ftplib http
    imaplib json smtplib wsgiref xmlrpc collections contextlib functools inspect pkgutil symtable calendar fractions
    random statistics argparse difflib getopt textwrap codecs
    """.split()
)

SKIPPED_FOLDERS = {"__pycache__", "ensurepip", "idlelib", "lib-dynload", "lib2to3", "pydoc_data", "turtledemo"}
SKIPPED_FOLDERS |= {"dist-packages", "site-packages", "test", "tests", "idle_test"}


@dataclass(frozen=True)
class Docstring:
    """A docstring of the standard library and the top-level module that it is from."""

    module: str
    text: str

    @property
    def area(self) -> str | None:
        """What the module is about, or None for modules outside the areas."""
        return AREA_OF.get(self.module)

    @property
    def held_out(self) -> bool:
        """True for text that only evaluation may see."""
        return self.module in HELD_OUT


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def docstrings(folder: Path | None = None, minimum_words: int = 6) -> list[Docstring]:
    """Returns the docstrings of all modules, in the order of their files; repeated texts are left out."""
    folder = folder or standard_library()
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        if SKIPPED_FOLDERS.intersection(parts):
            continue
        for text in _docstrings_of(path):
            if len(text.split()) >= minimum_words:
                found.setdefault(text, Docstring(parts[0].removesuffix(".py"), text))
    return list(found.values())


def _docstrings_of(path: Path) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
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
    """Joins the lines of each paragraph into one line, and drops the rulers under headings.

    "Split text.\\n\\nReturns a list\\nof words." -> "Split text.\\nReturns a list of words."
    """
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    blocks = (re.sub(r"([*=~^#\"'+-])\1{3,}", " ", block).strip() for block in blocks)
    return "\n".join(block for block in blocks if block)
