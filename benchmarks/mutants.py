"""How many single-line faults the tests notice.

    python -m benchmarks.mutants cover                  # which test covers which line; once, as long as the tests take
    python -m benchmarks.mutants run --shard 0/2 &      # one process a core; an interrupted run goes on where it was
    python -m benchmarks.mutants run --shard 1/2
    python -m benchmarks.mutants report

A fault changes one expression of a covered line of `kerasbert/`: the sign of an operation, a number or a comparison by
one, a mask that is dropped, two arguments that are swapped, a default value, a `stop_gradient` that is removed. The
operators get equal shares of the faults, as far as the code has places for them, and the places are drawn by a seed.
Each fault is put into a copy of the repository, and the tests that cover its line run there until one fails, for three
minutes at most. A fault that no test notices has survived, and so has one whose tests did not end in time.
"""

import argparse
import ast
import collections
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT = 180  # seconds a fault
MASKS = ("mask", "lengths", "sequence_ids", "padding")
SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


# === Faults: (node, its replacement) of every place that an operator can change ===


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def changed_number(node):
    """One more, twice as much, the other truth value; None for what has no such change."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        return ast.Constant(
            not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value
        )
    return None


def signs(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv):
            if not any(isinstance(side, ast.List | ast.Tuple | ast.Dict) or is_text(side) for side in ast.walk(node)):
                yield node, ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, node.operand


def off_by_one(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
            yield node, ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
        elif isinstance(node, ast.Call | ast.BinOp | ast.Subscript):
            for child in ast.iter_child_nodes(node):
                parts = [child.lower, child.upper] if isinstance(child, ast.Slice) else [child]
                for part in parts:
                    if isinstance(part, ast.Constant) and type(part.value) is int:
                        yield part, ast.Constant(part.value + 1)


def dropped_masks(tree):
    """A mask that is handed on becomes None; `where(mask, x, y)` becomes x."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).endswith("where") and len(node.args) == 3:
            yield node, node.args[1]
            continue
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            name = ast.unparse(argument)
            if isinstance(argument, ast.Name | ast.Attribute) and any(part in name.lower() for part in MASKS):
                yield argument, ast.Constant(None)


def swapped_arguments(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) >= 2:
            first, second, *rest = node.args
            plain = not any(isinstance(argument, ast.Starred) for argument in (first, second))
            if plain and ast.unparse(node.func) not in ("isinstance", "getattr", "hasattr", "setattr", "super"):
                yield node, ast.Call(node.func, [second, first, *rest], node.keywords)


def wrong_defaults(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        elif isinstance(node, ast.ClassDef):
            defaults = [line.value for line in node.body if isinstance(line, ast.AnnAssign) and line.value is not None]
        else:
            continue
        for default in defaults:
            if (changed := changed_number(default)) is not None:
                yield default, changed


def removed_stop_gradients(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("stop_gradient"):
            yield node, node.args[0]


OPERATORS = {
    "sign": signs,
    "off by one": off_by_one,
    "dropped mask": dropped_masks,
    "swapped arguments": swapped_arguments,
    "wrong default": wrong_defaults,
    "removed stop_gradient": removed_stop_gradients,
}


def places(source):
    """(operator, line, first and last character, new text) of every fault that one file can have, on one line each."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for operator, find in OPERATORS.items():
        for node, changed in find(copy.deepcopy(tree)):
            if node.lineno == node.end_lineno:
                text = ast.unparse(ast.fix_missing_locations(changed))
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[node.lineno - 1] + node.end_col_offset
                yield operator, node.lineno, begin, end, f"({text})"


def with_fault(source, fault):
    content = source.encode()
    return (content[: fault["begin"]] + fault["text"].encode() + content[fault["end"] :]).decode()


def draw(covered, count, seed):
    """Faults by `seed`: equal shares of the operators, and what one has too few places for is shared by the others.

    Args:
        covered: dict, name of a file (from the repository's root) to its covered lines.
    """
    random_state = random.Random(seed)
    found = collections.defaultdict(list)
    for name in sorted(covered):
        source = (REPOSITORY / name).read_text(encoding="utf-8")
        for operator, line, begin, end, text in places(source):
            if line in covered[name]:
                fault = dict(file=name, line=line, operator=operator, begin=begin, end=end, text=text)
                fault["before"] = source.encode()[begin:end].decode()
                found[operator].append(fault)
    drawn, left = [], count
    for number, operator in enumerate(sorted(OPERATORS, key=lambda operator: len(found[operator]))):
        share = left // (len(OPERATORS) - number)
        chosen = random_state.sample(found[operator], min(share, len(found[operator])))
        drawn += chosen
        left -= len(chosen)
    return [{"id": number, **fault} for number, fault in enumerate(drawn)]


# === Coverage ===


def cover(data_file):
    """Runs the tests on PyTorch and writes which of them executes which line."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:randomly"]
    command += ["--cov=kerasbert", "--cov-context=test", "--cov-report=", f"--junitxml={data_file}.xml"]
    environment = {**os.environ, "KERAS_BACKEND": "torch", "COVERAGE_FILE": str(data_file)}
    return subprocess.run(command, cwd=REPOSITORY, env=environment).returncode


def read_coverage(data_file, root):
    """({file: covered lines}, {file: {line: names of tests}}) of a file that `cover` wrote in the folder `root`."""
    import coverage

    data = coverage.CoverageData(str(data_file))
    data.read()
    covered, contexts = {}, {}
    for path in data.measured_files():
        name = os.path.relpath(path, root)
        covered[name] = set(data.lines(path))
        contexts[name] = {
            line: {test.rpartition("|")[0] for test in tests if test}
            for line, tests in data.contexts_by_lineno(path).items()
        }
    return covered, contexts


def seconds_of_tests(data_file):
    """{name of a test: the seconds it took} from the report beside the coverage."""
    import xml.etree.ElementTree as ElementTree

    seconds = {}
    for case in ElementTree.parse(f"{data_file}.xml").iter("testcase"):
        parts = case.get("classname").split(".")
        seconds["/".join(parts) + ".py::" + case.get("name")] = float(case.get("time"))
    return seconds


def tests_of(fault, contexts, seconds):
    """Names of the tests that cover a fault, those of the mirrored file first, then the quick ones.

    Lines that run on import belong to no test: there it is the tests of the function, the class or the file around.
    """
    lines = contexts[fault["file"]]
    tests = lines.get(fault["line"], set())
    if not tests:
        tree = ast.parse((REPOSITORY / fault["file"]).read_text(encoding="utf-8"))
        around = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= fault["line"] <= node.end_lineno
        ]
        for node in [*sorted(around, key=lambda node: node.end_lineno - node.lineno), tree]:
            last = getattr(node, "end_lineno", max(lines))
            tests = set().union(*(lines.get(line, ()) for line in range(getattr(node, "lineno", 1), last + 1)))
            if tests:
                break
    mirrored = f"test_{Path(fault['file']).stem}.py"
    return sorted(tests, key=lambda test: (mirrored not in test, seconds.get(test, 0.0), test))


# === Running ===


def run_tests(folder, tests, log):
    """The exit status of pytest in `folder`, in a child of this process, where everything heavy is imported already."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(folder)
        sys.path[:0] = [str(folder)]
        os.environ["PYTHONPATH"] = str(folder)
        import pytest

        status = pytest.main(["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", *tests])
        os._exit(int(status))
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def run(faults, contexts, seconds, results, shard, work):
    """Appends a line to `results` for each fault of this shard that has none yet."""
    os.environ.update(KERAS_BACKEND="torch", OMP_NUM_THREADS="1")
    for name in ("torch", "transformers", "keras", "pytest"):
        __import__(name)
    index, count = map(int, shard.split("/"))
    done = {json.loads(line)["id"] for line in results.read_text().splitlines()} if results.exists() else set()
    folder = work / f"repository{index}"
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", "__pycache__", "saved_models", "runs", "corpora", "*.egg-info")
    shutil.copytree(REPOSITORY, folder, ignore=ignored)
    for fault in faults[index::count]:
        if fault["id"] in done:
            continue
        path, source = folder / fault["file"], (REPOSITORY / fault["file"]).read_text(encoding="utf-8")
        path.write_text(with_fault(source, fault), encoding="utf-8")
        tests, log, start = tests_of(fault, contexts, seconds), work / f"{fault['id']}.log", time.monotonic()
        status = run_tests(folder, tests, log)
        path.write_text(source, encoding="utf-8")
        # 0: all tests passed. 1: one failed, 2: a file could not even be imported; both notice the fault.
        outcome = {0: "survived", 1: "killed", 2: "killed", "timeout": "timeout"}.get(status, f"error {status}")
        if isinstance(status, int) and status < 0:
            outcome = "killed"  # the process died
        failed = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(("FAILED", "ERROR"))]
        took = round(time.monotonic() - start, 1)
        row = {
            **fault,
            "tests": len(tests),
            "outcome": outcome,
            "by": failed[0][:160] if failed else "",
            "seconds": took,
        }
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{fault['id']}: {outcome}, {fault['file']}:{fault['line']}, {fault['operator']}, {took} s", flush=True)


def report(results):
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    print("| operator | faults | killed |\n| --- | --- | --- |")
    for operator in [*OPERATORS, "all"]:
        of_operator = [row for row in rows if operator in (row["operator"], "all")]
        killed = sum(row["outcome"] == "killed" for row in of_operator)
        print(f"| {operator} | {len(of_operator)} | {killed} |")
    print("\n| fault | place | before | after | outcome |\n| --- | --- | --- | --- | --- |")
    for row in sorted(rows, key=lambda row: row["id"]):
        if row["outcome"] != "killed":
            texts = (f"`{text}`".replace("|", "\\|") for text in (row["before"], row["text"]))
            print(f"| {row['id']} | {row['file']}:{row['line']} | {' | '.join(texts)} | {row['outcome']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["cover", "run", "report"])
    parser.add_argument("--coverage", type=Path, default=REPOSITORY / "runs" / "mutants" / "coverage")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the folder in which the coverage was measured")
    parser.add_argument("--faults", type=Path, help="faults that were drawn before; drawn and written there if missing")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "runs" / "mutants" / "results.jsonl")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "runs" / "mutants")
    parser.add_argument("--shard", default="0/1", help="this process's share, as index/count")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--count", type=int, default=120)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.command == "cover":
        return cover(arguments.coverage)
    if arguments.command == "report":
        return report(arguments.results)
    covered, contexts = read_coverage(arguments.coverage, arguments.root)
    faults_file = arguments.faults or arguments.work / "faults.json"
    if not faults_file.exists():
        faults_file.write_text(json.dumps(draw(covered, arguments.count, arguments.seed), indent=1))
    faults = json.loads(faults_file.read_text())
    run(faults, contexts, seconds_of_tests(arguments.coverage), arguments.results, arguments.shard, arguments.work)


if __name__ == "__main__":
    sys.exit(main())
