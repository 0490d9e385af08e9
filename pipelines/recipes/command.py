"""Lists the recipes of the papers.

python -m pipelines.recipes
python -m pipelines.recipes modernbert
"""

import inspect
import json as json_format

from kerasbert.command_line import did_you_mean

from ..command_line.command import Command
from .recipe import Recipe, all_recipes


def recipes(family: str = "", json: bool = False) -> None:
    """Lists the recipes of the papers, with the tokens that they read.

    `kerasbert info NAME` describes a recipe, and `kerasbert pretrain NAME` runs it.

    Args:
        family: the beginning of the names of the recipes to list, such as bert or t5.tiny. Default: all.
        json: print JSON.
    """
    rows = gallery(family)
    if json:
        print(json_format.dumps(rows, indent=2))
        return
    width = max(len(row["name"]) for row in rows)
    print(f"{'recipe':{width}}  tokens  what it trains")
    for row in rows:
        print(f"{row['name']:{width}}  {shown(row['tokens']):>6}  {row['summary']}")


def gallery(beginning: str = "") -> list[dict]:
    """Returns a dict of "name", "summary", "updates" and "tokens", of all rows in all updates, for each recipe.

    Raises: ValueError if no name begins so.
    """
    makers = all_recipes()
    names = [name for name in makers if name.startswith(beginning)]
    if not names:
        families = sorted({name.partition(".")[0] for name in makers})
        close = did_you_mean(beginning, [*families, *makers])
        raise ValueError(f"Recipes are those of {', '.join(families)}. Received: {beginning!r}.{close}")
    found = []
    for name in names:
        recipe = makers[name]()
        summary = (inspect.getdoc(makers[name]) or "").splitlines()[0]
        found.append({"name": name, "summary": summary, "updates": recipe.steps, "tokens": tokens_of(recipe)})
    return found


def tokens_of(recipe: Recipe) -> int:
    """The number of tokens that a run reads, padding included."""
    return sum(phase.steps * phase.batch_size * phase.length for phase in recipe.phases)


def shown(number: int) -> str:
    """A number with a unit: 131072000000 -> "131 B"."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    return str(number)


main = Command(recipes, first=("family",))

if __name__ == "__main__":
    main()
