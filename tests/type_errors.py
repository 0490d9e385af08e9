"""Counts type errors by file, and compares them with the known ones, which may only become fewer.

    python tests/type_errors.py kerasbert            fails if a file has more errors than type_errors.json says
    python tests/type_errors.py kerasbert --update   writes the new numbers, if there are no more errors than before

Files that are not in type_errors.json may have none. The numbers depend on the versions in constraints.txt.
"""

import collections
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KNOWN = Path(__file__).with_suffix(".json")


def counted(report: dict) -> tuple[dict[str, int], list[str]]:
    """Returns {file: number of errors} and a line for each error, from the JSON that the type checker prints."""
    errors = [error for error in report["generalDiagnostics"] if error["severity"] == "error"]
    lines = []
    for error in errors:
        file = Path(error["file"]).relative_to(ROOT).as_posix()
        lines.append(f"{file}:{error['range']['start']['line'] + 1}: {error['message'].splitlines()[0]}")
    return dict(sorted(collections.Counter(line.partition(":")[0] for line in lines).items())), lines


def more(found: dict[str, int], known: dict[str, int]) -> list[str]:
    """The files that have more errors than are known."""
    return [file for file, count in found.items() if count > known.get(file, 0)]


def main() -> int:
    paths = [argument for argument in sys.argv[1:] if argument != "--update"]
    command = [str(Path(sys.executable).parent / "basedpyright"), "--pythonpath", sys.executable, "--outputjson"]
    printed = subprocess.run([*command, *paths], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    found, lines = counted(json.loads(printed))
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    new = more(found, known)
    for line in lines:
        if line.partition(":")[0] in new:
            print(line)
    for file in new:
        print(f"{file} must have at most {known.get(file, 0)} type errors. Received: {found[file]}.")
    print(f"{sum(found.values())} type errors, {sum(known.values())} known")
    if found != known and sum(found.values()) <= sum(known.values()):  # files that were moved keep their errors
        if "--update" in sys.argv:
            KNOWN.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
            return 0
        print("The numbers have changed: python tests/type_errors.py kerasbert --update")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
