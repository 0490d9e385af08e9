"""Recipes: all that a pretraining run needs besides its text, as a tree of records that make its parts."""

import dataclasses
import importlib.util
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerasbert.backend import chosen_policy
from kerasbert.command_line import did_you_mean
from kerasbert.data.text.json_files import closest

from . import tree
from .data import Data, Phase
from .models import Pretraining
from .optimizers import Optimizer

PARTS = (
    "__main__",
    "command",
    "data",
    "models",
    "optimizers",
    "pairs",
    "phases",
    "recipe",
    "tiny",
    "tree",
)  # the modules of this folder that are not families
SHORT = ("steps", "batch_size", "length", "warmup", "learning_rate")  # see `Recipe.with_settings`
OLDER = "it is of an earlier version of kerasbert, which described recipes in another way."


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What differs from training when a model is evaluated.

    Args:
        batch_size: rows of a batch. Default: that of the first phase, but at most 128.
        length: tokens per row. Default: that of the first phase.
        data: {path: value} in the data of the recipe, such as {"noise.rate": 0.15}.
        config: fields of the config of the trained model.
    """

    batch_size: int | None = None
    length: int | None = None
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __or__(self, other: "Evaluation") -> "Evaluation":
        """Returns this evaluation with what differs in another one."""
        given = {name: value for name, value in vars(other).items() if value is not None}
        changes = {"data": {**self.data, **other.data}, "config": {**self.config, **other.config}}
        return dataclasses.replace(self, **{**given, **changes})


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The recipe of a run.

    Args:
        name: its name, such as "bert.base".
        model: the backbone and the objective.
        data: makes the batches of a phase from the corpora.
        phases: the parts of the run, each with batches of one shape.
        optimizer: makes the optimizer.
        held_out: how the model is evaluated during training.
        evaluation: how the trained model is evaluated, where the paper measures it in another way.
        accumulation: number of batches that an update is split into.
        dtype: "auto" for mixed_bfloat16 on GPUs and TPUs and float32 on CPUs, or a dtype policy of Keras.
        seed: the seed of all random choices.
        average: the final model is the mean of this many last checkpoints.
        teacher: for an objective that distils: the folder of a MaskedLM, or a recipe that is run first.
        init_from: the folder of a model whose training continues, or a recipe that is run first. For replaced token
            detection, it may be a masked language model, which becomes the generator.
    """

    name: str
    model: Pretraining
    data: Data
    phases: tuple[Phase, ...]
    optimizer: Optimizer
    held_out: Evaluation = Evaluation()
    evaluation: Evaluation = Evaluation()
    accumulation: int = 1
    dtype: str = "auto"
    seed: int = 0
    average: int = 0
    teacher: str = ""
    init_from: str = ""

    def __post_init__(self):
        if not self.phases or None in [phase.steps for phase in self.phases] or self.average < 0:
            raise ValueError(
                "A recipe must have phases with `steps`, and `average` of at least 0. Received: "
                f"phases={self.phases}, average={self.average}."
            )
        if bool(self.teacher) != self.model.objective.distils:
            raise ValueError(
                "`teacher` must be given for the objectives Distillation and KnowledgeTransfer, and for no others. "
                f"Received: teacher={self.teacher!r}, and the objective {type(self.model.objective).__name__}."
            )
        objective, given = self.model.objective, {*self.data.objective()}
        if not {*objective.needs} <= given <= {*objective.takes}:
            raise ValueError(
                f"The objective {type(objective).__name__} takes {', '.join(objective.takes) or 'no arguments'} from "
                f"the data. Received: data that determine {', '.join(given) or 'none'}. Change `data` or "
                "`model.objective`."
            )
        for name in self.optimizer.needs:
            if not hasattr(self.model.objective, name):
                raise ValueError(
                    f"{type(self.optimizer).__name__} needs an objective with `{name}`. Received: "
                    f"{type(self.model.objective).__name__}. Use another optimizer, such as AdamW."
                )
        for name in {*self.data.config()} & {*self.model.config}:
            raise ValueError(f"`model.{name}` is determined by the data. Received both. Set only data.{name}.")

    @property
    def steps(self) -> int:
        """Number of updates of the run."""
        return sum(phase.steps for phase in self.phases)

    @property
    def policy(self) -> str:
        """The dtype policy of the models on the device of the run."""
        return chosen_policy(self.dtype)

    def config(self, **fields: Any):
        """Returns the config of the backbone with the vocabulary size of the paper, and with further `fields`."""
        return self.model.made_config(**{**self.model.known(self.data.config()), **fields})

    def with_settings(self, settings: list[str]) -> "Recipe":
        """Returns the recipe with `path=value` overrides.

        A path leads to a value of the tree: phases.0.steps=1000, data.noise.rate=0.3, model.num_layers=4. Where a
        record may be of several classes, the name of a class replaces it: data.noise=WholeWords. There are five short
        forms: `batch_size` and `length` of all phases; `steps` of the whole run, which keeps the shares of the phases;
        `warmup` of the schedule; and `learning_rate`, its highest rate, with which its other rates scale. New phases
        are tuples of their fields: phases=[(900,16,64),(100,16,128)].
        """
        stored, rate = tree.written(self), None
        for setting in settings:
            path, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"A setting must have the form path=value, such as steps=1000. Received: {setting!r}.")
            if path == "learning_rate":
                rate = tree.parsed(float, text, path)
            elif path == "steps":
                stored["phases"] = _shared(stored["phases"], tree.parsed(int, text, path))
            elif path in ("batch_size", "length"):
                stored["phases"] = [{**phase, path: tree.parsed(int, text, path)} for phase in stored["phases"]]
            elif path == "warmup":
                stored = tree.changed(stored, Recipe, "optimizer.schedule.warmup", text, tree.parsed)
            elif (name := path.partition(".")[0]) in tree.fields_of(Recipe):
                stored = tree.changed(stored, Recipe, path, text, tree.parsed)
            else:
                known = [*SHORT, *tree.fields_of(Recipe)]
                raise ValueError(
                    f"A recipe has {closest(name, known, 20)}. Received: {setting!r}.{did_you_mean(name, known)}"
                )
        if rate is None:
            return tree.read(Recipe, stored)
        if not rate > 0:
            raise ValueError(f"`learning_rate` must be above 0. Received: {rate}.")
        recipe = tree.read(Recipe, stored)
        schedule = recipe.optimizer.schedule.with_peak(rate)
        return dataclasses.replace(recipe, optimizer=dataclasses.replace(recipe.optimizer, schedule=schedule))


def _shared(phases: list[dict], steps: int) -> list[dict]:
    """Divides the updates of a run among its phases, in the shares that they have."""
    total = sum(phase["steps"] for phase in phases)
    counts = [max(1, round(steps * phase["steps"] / total)) for phase in phases]
    counts[counts.index(max(counts))] += steps - sum(counts)
    return [{**phase, "steps": count} for phase, count in zip(phases, counts, strict=True)]


def all_recipes() -> dict[str, Callable[[], Recipe]]:
    """Returns all recipes by name, such as "bert.base"."""
    folder, found = importlib.import_module(__package__), {}
    for family in sorted({module.name for module in pkgutil.iter_modules(folder.__path__)} - {*PARTS}):
        module = importlib.import_module(f"{folder.__name__}.{family}")
        public = {name: make for name, make in vars(module).items() if inspect.isfunction(make) and name[0] != "_"}
        found |= {f"{family}.{name}": make for name, make in public.items() if make.__module__ == module.__name__}
    return found


def is_file(name: str) -> bool:
    """Whether `name` is a recipe in a file: a recipe.json, or recipes.py:mine."""
    return name.endswith(".json") or ".py:" in name


def find_recipe(name: str) -> Recipe:
    """Returns a recipe by name.

    Args:
        name: such as "bert.base" (or "bert_base"); a recipe.json, see `read_recipe`; or "recipes.py:mine", the result
            of the function `mine` in a Python file, which is run.
    """
    if is_file(name):
        return read_recipe(Path(name)) if name.endswith(".json") else _recipe_of_file(*name.rsplit(":", 1))
    runs = all_recipes()
    joined = {key.replace(".", "_"): key for key in runs}
    if joined.get(name, name) not in runs:
        raise ValueError(
            f"The recipes are {closest(name, sorted(runs))}. Received: {name!r}.{did_you_mean(name, runs)}"
        )
    return runs[joined.get(name, name)]()


def _recipe_of_file(path: str, function: str) -> Recipe:
    spec = importlib.util.spec_from_file_location("own_recipes", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # which dataclasses look up
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    recipe = found() if callable(found) else found
    if not isinstance(recipe, Recipe):
        raise ValueError(f"{path} must have a function {function} that returns a Recipe. Received: {recipe!r}.")
    return recipe


def read_recipe(path: Path) -> Recipe:
    """Reads a recipe.json, which `pretrain` writes into the folders of runs and models.

    Raises:
        ValueError: the file is not such a recipe, or of an earlier version. For an unknown field, the message suggests
            a similar name.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        if "class" not in stored:
            raise ValueError(OLDER)
        return tree.read(Recipe, stored)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a recipe that pretrain wrote. It cannot be read: {error}") from None
