"""The rules that keep the package small, read from the source: who imports whom, and how long functions get."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_backend

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("kerasbert", "pipelines") for path in (ROOT / folder).rglob("*.py"))
PACKAGE = [path for path in SOURCES if path.is_relative_to(ROOT / "kerasbert")]
EVERYTHING = SOURCES + sorted(
    path for folder in ("tests", "benchmarks") if (ROOT / folder).is_dir() for path in (ROOT / folder).rglob("*.py")
)
BACKENDS = {"jax", "jaxlib", "flax", "tensorflow", "torch"}

# The folders of kerasbert/, and the files beside them, from the bottom up: each imports only what is listed before it.
# Code that must call code of a later folder finds it in a registry, such as `core.registration.ENGINES`.
ORDER = [
    *("backend", "data", "metrics", "core", "layers", "checkpoints", "runtime", "models", "training", "generation"),
    *("objectives", "retrieval", "tasks", "exporting", "command_line"),
]
# The lowest three do not know each other, except that metrics read the columns and tags of data.
BOTTOM = {"backend": set(), "data": set(), "metrics": {"data"}}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def folder_of(path):
    """The folder of kerasbert/ that a file belongs to, or the name of a file that lies in kerasbert/ itself."""
    return path.relative_to(ROOT / "kerasbert").parts[0].removesuffix(".py")


def imports_of(path):
    """Yields (absolute dotted name, enclosing function names, line) of every import, relative ones resolved."""
    package = list(path.relative_to(ROOT).parent.parts)

    def visit(node, functions):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, functions, child.lineno
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                base = base + (child.module.split(".") if child.module else [])
                for alias in child.names:
                    yield ".".join([*base, alias.name]), functions, child.lineno
            inner = [*functions, child.name] if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else functions
            yield from visit(child, inner)

    yield from visit(parsed(path), [])


def is_called(dotted, *names):
    return any(dotted == name or dotted.startswith(name + ".") for name in names)


def test_imports_are_resolved():
    """The reader itself: relative, nested and aliased imports are all seen."""
    source = ROOT / "kerasbert" / "__init__.py"
    assert ("importlib", []) in [(name, functions) for name, functions, _ in imports_of(source)]
    seeding = list(imports_of(ROOT / "kerasbert" / "backend" / "seeding.py"))
    assert any(name == "torch" and functions == ["seed_everything"] for name, functions, _ in seeding)
    package = list(imports_of(ROOT / "kerasbert" / "backend" / "__init__.py"))
    assert "kerasbert.backend.seeding.seed_everything" in [name for name, *_ in package]


def test_every_folder_has_one_place_in_the_order():
    assert len(set(ORDER)) == len(ORDER)
    assert {folder_of(path) for path in PACKAGE} - {"__init__"} <= set(ORDER)


def test_imports_point_downwards():
    wrong = []
    for path in PACKAGE:
        folder = folder_of(path)
        if folder == "__init__":
            continue
        below = BOTTOM.get(folder, set(ORDER[: ORDER.index(folder)]))
        for name, _, line in imports_of(path):
            if is_called(name, "kerasbert.__version__") or not is_called(
                name, "kerasbert", "pipelines", "tests", "benchmarks"
            ):
                continue
            parts = name.split(".")
            other = parts[1] if parts[0] == "kerasbert" and len(parts) > 1 else parts[0]
            if other != folder and other not in below:
                wrong.append(f"{name_of(path)}:{line}: {folder} imports {name}")
    assert not wrong, "\n".join(wrong)


def file_of(dotted):
    """The file of the package that a dotted name is, or is in; None outside the package."""
    path = ROOT.joinpath(*dotted.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py")):
        if candidate in PACKAGE:
            return candidate
    return path.parent / "__init__.py" if path.parent / "__init__.py" in PACKAGE else None


def test_no_file_imports_itself_by_way_of_others():
    graph = {path: {file_of(name) for name, *_ in imports_of(path)} - {None, path} for path in PACKAGE}
    circles = []
    done, open_files = set(), []

    def visit(path):
        if path in open_files:
            circles.append(" -> ".join(name_of(p) for p in [*open_files[open_files.index(path) :], path]))
        elif path not in done:
            open_files.append(path)
            for other in sorted(graph[path]):
                visit(other)
            done.add(open_files.pop())

    for path in PACKAGE:
        visit(path)
    assert not circles, "\n".join(circles)


def test_the_package_is_imported_at_the_top_of_files():
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in PACKAGE
        for name, functions, line in imports_of(path)
        if functions and is_called(name, "kerasbert")
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_private_of_keras_is_imported():
    private = "keras.src"
    wrong = [
        f"{name_of(path)}:{line}: {name}"
        for path in EVERYTHING
        for name, _, line in imports_of(path)
        if is_called(name, private)
    ]
    assert not wrong, "\n".join(wrong)
    mentions = [name_of(path) for path in SOURCES if private in path.read_text(encoding="utf-8")]
    assert not mentions, mentions


def test_backends_are_imported_in_one_folder_only():
    wrong = []
    for path in SOURCES:
        inside = path.is_relative_to(ROOT / "kerasbert" / "backend")
        for name, functions, line in imports_of(path):
            if is_called(name, *BACKENDS) and not (inside and functions):
                wrong.append(f"{name_of(path)}:{line}: imports {name}")
    assert not wrong, "\n".join(wrong)


def test_data_and_metrics_know_no_keras():
    wrong = [
        f"{name_of(path)}:{line}: imports {name}"
        for path in PACKAGE
        if folder_of(path) in ("data", "metrics")
        for name, _, line in imports_of(path)
        if is_called(name, "keras", *BACKENDS)
    ]
    assert not wrong, "\n".join(wrong)


def test_scripts_of_users_use_public_names_only():
    scripts = sorted((ROOT / "tests" / "extending").glob("*.py"))
    assert sum(path.stem.startswith("test_") for path in scripts) > 10
    private = [
        f"{name_of(path)}:{line}: {name}"
        for path in scripts
        for name, _, line in imports_of(path)
        if is_called(name, "kerasbert") and (len(name.split(".")) > 3 or "._" in name)
    ]
    assert not private, "\n".join(private)


def test_functions_have_at_most_60_lines():
    """Signature and docstring included: what is longer has parts with names."""
    long = [
        f"{name_of(path)}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert not long, "\n".join(long)


def test_classes_take_few_arguments():
    """At most 9, and layers at most 7. Further ones belong together in a record, such as a config or a masking rule."""
    wrong = []
    for path in PACKAGE:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            is_layer = folder_of(path) == "layers" or any(ast.unparse(base).endswith("Layer") for base in node.bases)
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    count = len(method.args.posonlyargs + method.args.args + method.args.kwonlyargs) - 1
                    if count > (7 if is_layer else 9):
                        wrong.append(f"{name_of(path)}:{method.lineno}: {node.name} takes {count} arguments")
    assert not wrong, "\n".join(wrong)


def family_files():
    """The files of models/ that describe a family: those with a table of Hugging Face names."""
    folder = ROOT / "kerasbert" / "models"
    return [path for path in sorted(folder.rglob("*.py")) if "HUGGINGFACE_NAMES" in sections_of(path)]


def sections_of(path):
    """The names of a family file's sections, in their order in the file."""
    sections = []
    for node in parsed(path).body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            if node.name.endswith("Config"):
                sections.append("Config")
            elif node.name.endswith("Block"):
                sections.append("Block")
            elif any(base.endswith("Backbone") for base in bases):
                sections.append("Backbone")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            sections += [
                name for name in ("SIZES", "HEADS", "HUGGINGFACE_CONFIG", "HUGGINGFACE_NAMES") if name in names
            ]
    return sections


def test_family_files_have_the_same_sections_in_the_same_order():
    order = ["Config", "SIZES", "Block", "Backbone", "HEADS", "HUGGINGFACE_CONFIG", "HUGGINGFACE_NAMES"]
    files = family_files()
    assert files, "no family of models found"
    for path in files:
        sections = list(dict.fromkeys(sections_of(path)))
        assert sections == sorted(sections, key=order.index), f"{name_of(path)}: {sections}"
        missing = set(order) - set(sections) - {"Block"}
        assert not missing, f"{name_of(path)}: no {sorted(missing)}"
        assert ast.get_docstring(parsed(path)), f"{name_of(path)}: no docstring"


def test_families_import_each_other_but_never_subclass():
    families = {path.stem for path in family_files()}
    wrong = []
    for path in family_files():
        imported = {
            name.split(".")[-1]
            for name, _, _ in imports_of(path)
            if name.startswith("kerasbert.models.") and name.split(".")[2] in families
        }
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                wrong += [
                    f"{name_of(path)}: {node.name}({base.id})"
                    for base in node.bases
                    if isinstance(base, ast.Name) and base.id in imported
                ]
    assert not wrong, "\n".join(wrong)


def test_objectives_and_tasks_have_one_base_class():
    """A class that works only together with its siblings cannot be read, tested or extended by itself."""
    wrong = [
        f"{name_of(path)}:{node.lineno}: {node.name}({', '.join(map(ast.unparse, node.bases))})"
        for path in PACKAGE
        if folder_of(path) in ("objectives", "tasks")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and len(node.bases) > 1
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_asks_which_family_it_holds():
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in PACKAGE
        if folder_of(path) in ("layers", "models", "objectives", "tasks")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If | ast.IfExp) and "model_type" in ast.unparse(node.test)
    ]
    assert not wrong, "\n".join(wrong)


@functools.cache
def modules_behind(module):
    """The packages that are loaded behind an import."""
    code = f"import {module}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return frozenset(run(code).split())


def run(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_importing_costs_little():
    code = "import time, keras; t = time.perf_counter(); import kerasbert; print(time.perf_counter() - t)"
    # Another process may slow one of them down, but nothing makes it faster than it is.
    assert any(float(run(code)) <= 0.3 for _ in range(3))


@pytest.mark.parametrize("module", ["kerasbert", "kerasbert.models, kerasbert.objectives, kerasbert.tasks"])
def test_importing_brings_no_other_backend(module):
    modules, of_keras = modules_behind(module), modules_behind("keras")
    assert "kerasbert" in modules
    others = {"jax", "tensorflow", "torch", "transformers", "datasets", "matplotlib", "pandas"}
    assert not (modules - of_keras) & others  # Keras imports some of them


def test_data_does_not_import_keras():
    modules = run("import kerasbert.data, sys; print(*sys.modules)").split()
    assert "kerasbert.data" in modules
    assert "keras" not in modules
