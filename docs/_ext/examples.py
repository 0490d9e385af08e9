"""The examples in docstrings: a whole build of the pages runs all of them, and the tests those that are fast.

python docs/_ext/examples.py prints what is wrong with them.
"""

import doctest
import importlib
import inspect
import os
import tempfile

import kerasbert


def public_objects():
    """{name: class or function} of all public modules; an object with two names has the shorter one."""
    found = {}
    for name in sorted(kerasbert.__all__, key=lambda name: inspect.ismodule(getattr(kerasbert, name))):
        value = getattr(kerasbert, name)
        public = getattr(value, "__all__", None)
        if public is None:  # kerasbert.metrics has none, and of the others the docstrings are not listed
            public = [each for each, item in vars(value).items() if getattr(item, "__module__", "") == value.__name__]
        pairs = [(name, value)] if not inspect.ismodule(value) else [(f"{name}.{n}", getattr(value, n)) for n in public]
        for public_name, item in pairs:
            if callable(item) and item not in found.values():
                found[f"kerasbert.{public_name}"] = item
    return found


def examples_of(docstring):
    return doctest.DocTestParser().get_examples(docstring or "")


def with_examples():
    """{name: docstring} of the public objects that have an example."""
    docstrings = {name: inspect.getdoc(value) for name, value in public_objects().items()}
    return {name: docstring for name, docstring in docstrings.items() if examples_of(docstring)}


def is_slow(docstring):
    """Whether an example trains or exports a model of the package, which takes seconds."""
    code = "".join(example.source for example in examples_of(docstring))
    return "_mini_en" in code and any(call in code for call in (".fit(", "export(", ".generate("))


def failures(name, docstring):
    """What an example prints other than it shows, in a folder of its own: "" if nothing."""
    importlib.import_module("kerasbert.objectives")  # registers the families
    test, found = doctest.DocTestParser().get_doctest(docstring, {}, name, None, 0), []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            doctest.DocTestRunner(verbose=False).run(test, out=found.append)
        finally:
            os.chdir(before)
    return "".join(found)


if __name__ == "__main__":
    for name, docstring in with_examples().items():
        if found := failures(name, docstring):
            print(f"the example of {name} fails: {found}")
