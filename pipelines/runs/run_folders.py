"""Identifies the run in a folder, and decides which runs may continue in it."""

import json
import re
from pathlib import Path

from kerasbert.data import Batches
from kerasbert.data.text.files import write_text
from kerasbert.training import read_log

from ..recipes import tree
from ..recipes.recipe import OLDER, Recipe

SCHEDULE = r"recipe\.optimizer\.schedule(\..*)?"
ROWS = r"(recipe\.phases|batches)\.(.*\.)?batch_size"


def record_of(recipe: Recipe, batches: Batches) -> dict:
    """What identifies a run: the recipe and the data."""
    return json.loads(json.dumps({"recipe": tree.written(recipe), "batches": batches.recipe()}))


def claim_folder(
    run: Path, info: dict, accumulation: int = 1, reschedule: bool = False, fixed_rows: bool = False
) -> list[dict]:
    """Writes recipe.json into a new run folder, or into the folder of a run that gets more steps or another schedule.

    A folder without a checkpoint and without a row in its log is new.

    A finished run may get more steps in its last phase. With `reschedule`, any run may get different steps in its last
    phase, a different schedule, and unless `fixed_rows`, different batch sizes.

    Returns: the records of the run (see `record_of`) before each extension.

    Raises:
        ValueError: the folder holds a run with another recipe or other data, or of an earlier version of kerasbert.
    """
    path = run / "recipe.json"
    if not path.exists() or not (any(run.glob("checkpoints/*")) or read_log(run)):  # nothing was trained yet
        write_text(path, json.dumps(info, indent=2))
        return []
    there, earlier = _stored(path)
    before, now = tree.flat(there), tree.flat(info)
    differing = [name for name in {**now, **before} if before.get(name, "absent") != now.get(name, "absent")]
    if not differing:
        return earlier
    hint, last = "Use another folder.", len(info["recipe"]["phases"]) - 1
    steps = rf"(recipe\.phases|batches\.parts)\.{last}\.steps"
    if _all_match(differing, steps, SCHEDULE, *([] if fixed_rows else [ROWS])):
        had, wanted = _updates(there), _updates(info)
        done = max((int(path.stem[5:]) for path in run.glob("checkpoints/step_*.json")), default=0) // accumulation
        extended = wanted > had == done and _all_match(differing, steps)
        if extended or (reschedule and wanted >= done):
            what = "extending" if extended else "rescheduling"
            print(f"{what} the run of {had:,} updates; the schedule is now that of {wanted:,}")
            rows = info["recipe"]["phases"][-1]["batch_size"]
            if there["recipe"]["phases"][-1]["batch_size"] != rows:
                print(f"from update {done + 1:,} on, an update has {rows:,} rows")
            write_text(path, json.dumps({**info, "earlier": [*earlier, there]}, indent=2))
            return [*earlier, there]
        hint = f"More steps extend a finished run only: finish it with --set steps={had}, use another folder, or "
        hint += f"continue with another schedule or batch size, from step {done} on, with --reschedule and "
        hint += f"steps={done} or more."
    lines = (f"  {n}: {before.get(n, 'absent')} in the folder, {now.get(n, 'absent')} now" for n in sorted(differing))
    raise ValueError("\n".join([f"The folder {run} holds a run of another recipe:", ";\n".join(lines) + ".", hint]))


def _stored(path: Path) -> tuple[dict, list[dict]]:
    """Returns the record in a recipe.json, and the earlier records of the run."""
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        earlier, is_older = there.pop("earlier", []), "class" not in there["recipe"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} must be the JSON of a recipe, but it is damaged. Use another run folder.") from None
    if is_older:
        raise ValueError(f"The run in {path.parent} cannot continue: {OLDER} Use another run folder.")
    return there, earlier


def _updates(record: dict) -> int:
    return sum(phase["steps"] for phase in record["recipe"]["phases"])


def _all_match(names: list[str], *patterns: str) -> bool:
    return all(any(re.fullmatch(pattern, name) for pattern in patterns) for name in names)
