"""The pages of the documentation: one for every family, no snippet that nothing runs, commands that exist."""

import importlib
import inspect
import re
import sys

import pytest

import kerasbert
from kerasbert.command_line import NAMES
from kerasbert.models import FAMILIES
from pipelines.command_line.options import options_of
from pipelines.recipes.recipe import PARTS
from tests.conftest import REPOSITORY
from tests.test_words import BANNED

sys.path.insert(0, str(REPOSITORY / "docs" / "_ext"))
long_code = importlib.import_module("long_code")

pytestmark = pytest.mark.one_backend

DOCS = REPOSITORY / "docs"
PAGES = {path: path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md")) if "notebooks" not in path.parts}
FAMILY_PAGES = {path.stem: text for path, text in PAGES.items() if path.parent.name == "families"}
OURS = [cls for cls in dict.fromkeys(FAMILIES.values()) if cls.__module__.startswith("kerasbert.")]
# Pages whose Python is tested elsewhere: tests/extending/test_adding_a_family_page.py and tests/core/test_batch.py.
TESTED = ("adding_a_family", "batches")
# Libraries that need not be installed. Their snippets are tested elsewhere.
LIBRARIES = ("TensorFlow", "PEFT", "Optuna", "KerasTuner", "KeyBERT", "BERTopic", "LangChain", "mteb", "gensim")


@pytest.mark.parametrize("backbone", OURS, ids=lambda cls: cls.__name__)
def test_every_family_has_its_page(backbone):
    pages = "".join(FAMILY_PAGES.values())
    for part in ("facts", "sizes", "checkpoints"):
        assert f"```{{family}} {backbone.__name__}\n:show: {part}" in pages, part


def test_every_recipe_module_is_listed_on_a_page():
    found = re.findall(r":show: recipes\n:recipes: (.*)", "".join(FAMILY_PAGES.values()))
    modules = {path.stem for path in (REPOSITORY / "pipelines" / "recipes").glob("*.py")}
    assert modules - {"__init__", *PARTS} == {name for names in found for name in names.split()}


def test_pages_of_families_have_the_same_sections():
    wanted = ["What was new", "The block", "The objective on one sentence", "Implementation", "What we measured"]
    for name, text in FAMILY_PAGES.items():
        if name != "index":
            sections = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
            assert [section for section in sections if section in wanted] == wanted, name


def test_python_is_executed_or_says_why_not():
    """The build runs no plain fences; blocks with a caption are old code, need a download, or are tested elsewhere."""
    for path, text in PAGES.items():
        if path.stem not in TESTED:
            assert "```python" not in text, path.name
            for caption in re.findall(r"```\{code-block\} python\n(.*)\n", text):
                assert re.match(
                    rf":caption: (Before, with|With ({'|'.join(LIBRARIES)}|.* model .* the Hub|several devices))",
                    caption,
                ), f"{path.name}: {caption}"


def test_keras_is_imported_after_kerasbert():
    """Alone, keras takes TensorFlow for its backend, and fails if only JAX or PyTorch is installed."""
    for path in sorted(DOCS.rglob("*.md")):
        code = re.sub(r"^:caption: Before, with.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        imports = re.findall(r"^(?:import|from) (keras|kerasbert)\b", code, flags=re.MULTILINE)
        assert imports[:1] != ["keras"], path.name


def test_code_fits_the_width_of_a_page():
    """A window of 1,280 pixels shows 104 letters; longer lines can be scrolled, but not by much."""
    for path, text in PAGES.items():
        blocks = (
            []
            if path.stem in TESTED
            else re.findall(r"^```(?:\{code|bash).*?^```$", text, flags=re.DOTALL | re.MULTILINE)
        )
        assert not [line for block in blocks for line in block.splitlines() if len(line) > 120], path.name


def unbreakable(cell):
    """The letters of the longest part of a cell that a browser keeps on one line, as site.css and long_code.py say."""
    code = re.findall(r"`([^`]+)`", cell)
    parts = [part for each in code for part in (each.split() if len(each) > long_code.LONGEST else [each])]
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]+`", " ", cell))
    return max(map(len, [*parts, *text.split(), ""]))


def test_tables_fit_the_width_of_a_page():
    """That of code, above; the text of tables is smaller."""
    for path, text in PAGES.items():
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
            assert sum(max(map(unbreakable, column)) for column in zip(*rows, strict=True)) <= 104, (path.name, rows[0])


class Node(dict):
    """A node of docutils, which the tests do not install."""

    def __init__(self, tagname, *children):
        super().__init__(classes=[])
        self.tagname, self.children = tagname, children

    def astext(self):
        return "".join(child if isinstance(child, str) else child.astext() for child in self.children)

    def findall(self, condition):
        below = [node for child in self.children if isinstance(child, Node) for node in child.findall(condition)]
        return [self] * condition(self) + below


def test_long_code_in_tables_is_marked():
    codes = [Node("literal", text) for text in ("short", "long " * 20, "long " * 20)]
    long_code.mark(None, Node("document", Node("row", Node("entry", *codes[:2])), codes[2]))
    assert [code["classes"] for code in codes] == [[], ["long"], []]


def test_both_dark_themes_have_the_same_styles():
    """The one that a reader chooses, and that of the system; pictures of matplotlib are among what they change."""
    style = (DOCS / "_static" / "site.css").read_text("utf-8")
    of_system = "".join(re.findall(r"prefers-color-scheme: dark\) \{(.*?\}) *\n?\}", style, flags=re.DOTALL))
    rules = [
        sorted(" ".join(rule.split()) for rule in re.findall(re.escape(start) + r"( .*?\})", text, flags=re.DOTALL))
        for start, text in (('body:not([data-theme="light"])', of_system), ('body[data-theme="dark"]', style))
    ]
    assert rules[0] == rules[1] and any(rule.startswith('article img[src$=".png"] { filter: ') for rule in rules[0])


def test_commands_and_their_options_exist():
    commands, ran = importlib.import_module("commands"), 0
    for path, text in PAGES.items():
        for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
            for line in block.replace("\\\n", " ").split("\n"):
                if found := re.match(r"kerasbert ([a-z-]+)(.*)", line):
                    ran += 1
                    options = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", found[2])}
                    known = [
                        {option.name for option in options_of(function)}
                        for function in commands.functions_of(found[1]).values()
                    ]
                    assert any(options <= names for names in known), f"{path.name}: {line}"
    assert ran >= 8


def test_guides_execute_code_and_name_the_real_scale():
    guides = {path.stem: text for path, text in PAGES.items() if path.parent.name == "guides" and path.stem != "index"}
    assert len(guides) >= 14
    for name, text in guides.items():
        assert "```{code-cell} python" in text and "## At real scale" in text, name


def test_every_guide_is_in_the_sidebar_and_on_the_page_of_guides():
    sections, guides = importlib.import_module("sections"), PAGES[DOCS / "guides" / "index.md"]
    sidebar = PAGES[DOCS / "index.md"]
    for path in sorted((DOCS / "sections").glob("*.md")):
        assert f"\nsections/{path.stem}\n" in sidebar, path.stem
        for title in re.findall(r"```\{guides\} (.+)\n```", PAGES[path]):
            assert PAGES[path].startswith(f"# {title}\n")
            sidebar += sections.with_sidebar(sections.table_of(title, guides)).replace("\n../", "\n")
    for path in PAGES:
        if path.parent.name == "guides" and path.stem != "index":
            assert sidebar.count(f"\nguides/{path.stem}\n") == 1 and f"]({path.stem}.md)" in guides, path.stem


def test_commands_with_output_are_those_that_ran():
    """A page shows a command as bash, and the output of a hidden cell; `| cat` leaves out progress bars."""
    ran = 0
    for path, text in PAGES.items():
        hidden = re.findall(
            r"((?:.*\n){5})```\{code-cell\} python\n:tags: \[remove-input\]\n!((?:.*\\\n)*.*?)(?: \| cat)?\n", text
        )
        for before, command in hidden:
            ran += 1
            assert f"```bash\n{command}\n```\n" in before, path.name
    assert ran >= 2


def test_the_speeds_on_pages_of_families_are_those_of_the_benchmarks():
    measured, ran = (REPOSITORY / "benchmarks" / "speed" / "README.md").read_text("utf-8"), 0
    for name, text in FAMILY_PAGES.items():
        for entry in re.findall(r"^- (?:.+\n)+?(?=- |\n|\Z)", text, flags=re.MULTILINE):
            if "](../results/speed.md)" in entry:
                ran += 1
                for figure in re.findall(r"(\d+(?:\.\d+)?)\s(?:s|GB|times|tokens\sa\ssecond)\b", entry):
                    assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]\d)", measured), (name, figure)
    assert ran >= 6


def test_no_banned_words():
    found = [
        f"{path.relative_to(DOCS)}: {match.group(0)!r}: write {instead}"
        for path, text in PAGES.items()
        for pattern, instead in BANNED.items()
        if (match := re.search(pattern, text))
    ]
    assert not found, "\n".join(found)


def public_modules():
    return [name for name in kerasbert.__all__ if inspect.ismodule(getattr(kerasbert, name))]


@pytest.mark.parametrize("name", public_modules())
def test_every_public_name_is_on_a_page_of_the_api(name):
    """Pages list the public names of a module that have docstrings, and constants one by one."""
    page = PAGES[DOCS / "api" / f"{name}.md"]
    module = getattr(kerasbert, name)
    names = getattr(module, "__all__", None)
    if names is None:  # what is public are methods of models
        assert ".. automethod:: kerasbert." in page
        return
    assert f".. automodule:: kerasbert.{name}\n" in page
    described = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", page, flags=re.MULTILINE)
    left_out = [name for names in re.findall(r":exclude-members: (.*)", page) for name in names.split(", ")]
    for public in names:
        value = getattr(module, public)
        if public in left_out or not callable(value):
            assert public in described, public
        else:
            assert inspect.getdoc(value), public


def test_every_command_is_on_the_page_of_commands():
    commands = importlib.import_module("commands")
    text = commands.as_markdown()
    assert commands.PLACE in PAGES[DOCS / "api" / "commands.md"]
    assert "\n#### `kerasbert show attention`\n" in text and "\n```bash\nkerasbert pretrain bert." in text
    assert re.search(r"\n\*\*Training\*\*\n\n\| option .*\n.*\n\| `--epochs INT` \| `3` \| \w", text)
    assert all(f"### `kerasbert {name}`\n" in text for name in NAMES)
