"""Identifies the run in a folder, and decides which runs may continue in it."""

import copy
import dataclasses
import json
from pathlib import Path

from kerasbert.data import Batches
from kerasbert.data.text.files import write_text

from ..recipes.recipe import Recipe


def record_of(recipe: Recipe, batches: Batches) -> dict:
    """What identifies a run: the recipe and the data."""
    return json.loads(json.dumps({"recipe": {**vars(recipe)}, "batches": batches.recipe()}))


def claim_folder(
    run: Path, info: dict, accumulation: int = 1, reschedule: bool = False, fixed_rows: bool = False
) -> list[dict]:
    """Writes recipe.json into a new run folder, or into the folder of a run that gets more steps or another schedule.

    A finished run may get more steps. With `reschedule`, any run may get different steps, a different schedule, and
    unless `fixed_rows`, a different batch size.

    Returns: the records of the run (see `record_of`) before each extension, and its record by an earlier version.

    Raises:
        ValueError: the folder holds a run with another recipe or other data.
    """
    path = run / "recipe.json"
    if not path.exists():
        write_text(path, json.dumps(info, indent=2))
        return []
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} must be the JSON of a recipe, but it is damaged. Use another run folder.") from None
    earlier = there.pop("earlier", [])
    stored = copy.deepcopy(there)  # as in the checkpoints of the run
    if "recipe" in there:
        there["recipe"] = {**_recipe_defaults(), **there["recipe"]}
    differing = sorted(
        f"  {group}.{name}: {there.get(group, {}).get(name, 'absent')} in the folder, {value} now"
        for group, values in info.items()
        for name, value in values.items()
        if there.get(group, {}).get(name, "absent") != value
    )
    if not differing:
        return [*earlier, stored] if there == info != stored else earlier
    hint, steps = "Use another folder.", info["recipe"]["steps"]
    changes = ("steps", "schedule") if fixed_rows else ("steps", "schedule", "batch_size")
    if _differ_only_in(changes, info, there):
        before = there["recipe"]["steps"]
        done = max((int(path.stem[5:]) for path in run.glob("checkpoints/step_*.json")), default=0) // accumulation
        extended = steps > before == done and _differ_only_in(("steps",), info, there)
        if extended or (reschedule and steps >= done):
            what = "extending" if extended else "rescheduling"
            print(f"{what} the run of {before:,} updates; the schedule is now that of {steps:,}")
            rows = info["recipe"]["batch_size"]
            if there["recipe"]["batch_size"] != rows:
                print(f"from update {done + 1:,} on, an update has {rows:,} rows")
            write_text(path, json.dumps({**info, "earlier": [*earlier, stored]}, indent=2))
            return [*earlier, stored]
        hint = f"More steps extend a finished run only: finish it with --set steps={before}, use another folder, or "
        hint += f"continue with another schedule or batch size, from step {done} on, with --reschedule and "
        hint += f"steps={done} or more."
    raise ValueError(f"The folder {run} holds a run of another recipe:\n" + "\n".join(differing) + f"\n{hint}")


def _recipe_defaults() -> dict:
    """Returns the optional fields of a recipe with their JSON values, which recipes of earlier versions may lack."""
    factories = {field.name: field.default_factory for field in dataclasses.fields(Recipe)}
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}
    missing = dataclasses.MISSING
    found = {name: value for name, value in defaults.items() if value is not missing}
    found |= {name: factory() for name, factory in factories.items() if factory is not missing}
    return json.loads(json.dumps(found))


def _differ_only_in(fields: tuple[str, ...], *records: dict) -> bool:
    """Whether two records belong to the same run, except for these fields of the recipe."""
    records = copy.deepcopy(records)
    for record in records:
        for part in record.get("batches", {}).get("parts", [])[-1:]:
            part.pop("steps", None)
        for name in fields:
            record.get("recipe", {}).pop(name, None)
        if "batch_size" in fields:
            record["batches"] = _without_batch_sizes(record.get("batches"))
    return all(record == records[0] for record in records)


def _without_batch_sizes(batches):
    """Returns the record of batches, which may consist of others, without their batch sizes."""
    if isinstance(batches, dict):
        return {name: _without_batch_sizes(part) for name, part in batches.items() if name != "batch_size"}
    return [_without_batch_sizes(part) for part in batches] if isinstance(batches, list) else batches
