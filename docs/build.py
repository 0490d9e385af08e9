"""Builds the documentation without warnings, checks its links and its search, and says how long pages took.

python docs/build.py                   everything: `make docs`
python docs/build.py guides/pretrain   executes only this page, while writing it; outputs of others come from the cache
DOCS_EXECUTION=off python docs/build.py     executes nothing

Code cells run on PyTorch, or on the backend in KERAS_BACKEND. A page whose code and package have not changed since the
last build is not executed again; remove build/docs for a build from nothing.
"""

import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.console import nocolor
from sphinx.util.docutils import docutils_namespace, patch_docutils

DOCS = Path(__file__).resolve().parent
BUILD = DOCS.parent / "build" / "docs"
OUTPUT = BUILD / "html"
LONGEST, LONGEST_IN_ALL = 300, 1_500  # seconds for a notebook, and for all notebooks
PAGES_AT_A_TIME = 2  # whose code is executed


def build(pages=()):
    """Builds the site and prints what is wrong with it.

    Args:
        pages: names of the pages to execute, such as "guides/pretrain"; none: all, and links, searches and durations
            are checked.

    Returns: the number of problems.
    """
    start = time.perf_counter()
    if pages:
        os.environ["DOCS_ONLY"] = " ".join(page.removesuffix(".md").removeprefix("docs/") for page in pages)
    else:  # Sphinx keeps pages of unchanged sources, whose links to pages of the API may be old
        shutil.rmtree(OUTPUT / "_modules", ignore_errors=True)
    if not sys.stdout.isatty():
        nocolor()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with patch_docutils(str(DOCS)), docutils_namespace():
        app = Sphinx(DOCS, DOCS, OUTPUT, BUILD / "doctrees", "html", freshenv=False, warningiserror=False)
        # docs/_ext is on the path since Sphinx read conf.py
        importlib.import_module("execution").execute_pages(app, PAGES_AT_A_TIME)
        app.build(force_all=not pages)  # Sphinx leaves entries of unchanged pages out of the search
    durations = _durations(app)
    for name, seconds in durations:
        print(f"{seconds:7.1f} s  {name}")
    problems = [] if pages else [*_undocumented(app), *_broken_links(), *_wrong_answers()]
    if not pages and app.config.nb_execution_mode != "off":
        problems += _wrong_examples()
    for line in (*problems, *_slow(durations)):  # a busy machine is slow, which is no mistake in a page
        print(line)
    found = app._warncount + len(problems)
    code = sum(seconds for _, seconds in durations)
    print(f"{len(app.env.found_docs)} pages, {len(durations)} with code, which took {code:.0f} s")
    print(f"{found} problems; this build took {time.perf_counter() - start:.0f} s")
    return found


def _durations(app):
    """(page, seconds of its code cells), the slowest first."""
    executed = {name: (data.get("exec_data") or {}).get("runtime") for name, data in app.env.nb_metadata.items()}
    return sorted(((name, seconds) for name, seconds in executed.items() if seconds), key=lambda item: -item[1])


def _slow(durations):
    notebooks = [(name, seconds) for name, seconds in durations if name.startswith("notebooks/")]
    slow = [f"{name} took {seconds:.0f} s, more than {LONGEST}" for name, seconds in notebooks if seconds > LONGEST]
    total = sum(seconds for _, seconds in notebooks)
    return slow + [f"the notebooks took {total:.0f} s, more than {LONGEST_IN_ALL}"] * (total > LONGEST_IN_ALL)


def _undocumented(app):
    """Public names that no page of the API describes."""
    kerasbert = importlib.import_module("kerasbert")
    described = set(app.env.get_domain("py").objects)
    for module_name in kerasbert.__all__:
        module = getattr(kerasbert, module_name)
        for name in getattr(module, "__all__", ()):
            if f"kerasbert.{module_name}.{name}" not in described:
                yield f"kerasbert.{module_name}.{name} is on no page of the API"


def _broken_links():
    links = importlib.import_module("links")
    print(f"{len(links.external_links(OUTPUT))} addresses outside the site were not visited")
    return [f"broken link: {line}" for line in links.broken_links(OUTPUT)]


def _wrong_examples():
    """Runs the examples of docstrings in another process: autodoc changes signatures that Keras reads."""
    command = [sys.executable, "-W", "ignore", str(DOCS / "_ext" / "examples.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    stopped = [f"the examples of docstrings could not be run: status {done.returncode}"] if done.returncode else []
    return [done.stdout] * bool(done.stdout) + stopped


def _wrong_answers():
    return importlib.import_module("searching").wrong_answers(OUTPUT)


if __name__ == "__main__":
    sys.exit(1 if build(sys.argv[1:]) else 0)
