"""Recipes, which hold all settings of a pretraining run, and `name=value` overrides of these settings."""

import ast
import copy
import dataclasses
import importlib
import inspect
import json
import math
import pkgutil
import types
import typing
from collections.abc import Callable
from pathlib import Path

import keras

import kerasbert.data
import kerasbert.models
import kerasbert.objectives
import kerasbert.training
from kerasbert.backend import chosen_policy
from kerasbert.command_line import did_you_mean
from kerasbert.core.family import find_size, size_names
from kerasbert.data.text.json_files import closest

from ..runs import pairs


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of one run. Each dict is a group of arguments, for the class that its comment names."""

    name: str
    backbone: str  # name of a size, such as bert_base
    batch_size: int  # rows per update
    length: int  # tokens per row
    steps: int  # updates
    schedule: dict  # arguments of `schedule_class`
    config: dict = dataclasses.field(default_factory=dict)  # fields that differ from the size
    objective: str = "MaskedLM"  # a class of kerasbert.objectives
    objective_options: dict = dataclasses.field(default_factory=dict)
    batches: str = "MaskedLMBatches"  # a class of kerasbert.data, or "PairBatches"
    data: dict = dataclasses.field(default_factory=dict)  # arguments of `batches`
    held_out: dict = dataclasses.field(default_factory=dict)  # overrides of `data` for evaluation
    # For `pipelines.evaluate`, if the results of the paper are not those of the model as it is trained:
    evaluation_config: dict = dataclasses.field(default_factory=dict)  # fields of the config of the trained model
    evaluation_data: dict = dataclasses.field(default_factory=dict)  # overrides of `held_out`
    optimizer: dict = dataclasses.field(default_factory=dict)  # arguments of `optimizer_class`
    optimizer_class: str = "TransformerAdamW"  # a class of kerasbert.training or keras.optimizers
    schedule_class: str = "WarmupDecay"  # a class of kerasbert.training
    long_length: int = 0  # the last `long_steps` updates have rows of this length
    long_steps: int = 0
    small_batches: tuple[int, ...] = ()  # batch sizes at the start of the run, `small_steps` updates each
    small_steps: int = 0
    accumulation: int = 1  # number of batches that an update is split into
    dtype: str = "auto"  # mixed_bfloat16 on GPUs and TPUs, float32 on CPUs; or a policy of Keras
    seed: int = 0
    average: int = 0  # the final model is the mean of this many last checkpoints

    # If there are several corpora, sampling rates are proportional to tokens ** sampling_exponent.
    sampling_exponent: float = 1.0
    sampling_limit: float | None = None  # maximum size of a corpus in this formula; for T5 (K), in examples
    unlabelled: str = (
        ""  # if corpora are tasks (read with `pair_data`): name of the corpus of plain text, which is read with `data`
    )
    unlabelled_examples: int = 0  # number of examples that this corpus counts as
    mixed_by: str = "rows"  # or "batches": every update uses only one corpus
    languages: tuple[str, ...] = ()  # names of the corpora; rows get the index of their language in this tuple
    pairs: str = ""  # a class of kerasbert.data for parallel corpora, which are named like "en-fr"
    pair_data: dict = dataclasses.field(default_factory=dict)  # arguments of `pairs`

    # A second model, or pretrained weights.
    generator: str = ""  # name of the size of the generator of ReplacedTokenDetection
    generator_config: dict = dataclasses.field(default_factory=dict)  # fields that differ from the size
    alternating: bool = False  # generator and discriminator have an optimizer each; see AlternatingOptimizers
    teacher: str = ""  # the folder of a MaskedLM, or a recipe that is run first
    from_teacher: dict = dataclasses.field(default_factory=dict)  # arguments of kerasbert.objectives.start_from_teacher
    init_from: str = ""  # the folder of a model whose training continues, or a recipe that is run first
    # Arguments of kerasbert.training.start_with_local_attention, which changes the random weights; none if empty.
    local_start: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.steps < 1 or self.average < 0:
            raise ValueError(
                "`steps` must be at least 1, and `average` at least 0. Received: "
                f"steps={self.steps}, average={self.average}."
            )
        if (self.long_steps > 0) != (self.long_length > 0) or not 0 <= self.long_steps <= self.steps:
            raise ValueError(
                "`long_steps` and `long_length` must be given together, and `long_steps` must be at most `steps`. "
                f"Received: "
                f"steps={self.steps}, long_steps={self.long_steps}, long_length={self.long_length}."
            )
        small = len(self.small_batches) * self.small_steps
        if (self.small_steps > 0) != bool(self.small_batches) or not 0 <= small <= self.steps - self.long_steps:
            raise ValueError(
                "`small_steps` and `small_batches` must be given together, with all updates within `steps`. Received: "
                f"steps={self.steps}, small_batches={self.small_batches}, small_steps={self.small_steps}."
            )
        for name, kind in typing.get_type_hints(type(self)).items():
            if kind is dict:  # copied, because recipes of a family share their defaults
                object.__setattr__(self, name, copy.deepcopy(getattr(self, name)))
        for field, wanted in (("generator", "ReplacedTokenDetection"), ("teacher", "Distillation, KnowledgeTransfer")):
            if bool(getattr(self, field)) != (self.objective in wanted.split(", ")):
                raise ValueError(
                    f"`{field}` must be given for the objectives {wanted} and for no others. Received: "
                    f"objective={self.objective}, {field}={getattr(self, field)!r}."
                )
        sharing = self.objective_options.get("embedding_sharing", "shared")
        if self.alternating and (not self.generator or sharing == "shared"):
            raise ValueError(
                "`alternating` needs the objective ReplacedTokenDetection, and `objective_options.embedding_sharing` "
                f'"disentangled" or "none". Received: objective={self.objective}, embedding_sharing={sharing!r}. Set '
                "alternating=false for one optimizer."
            )
        for name, first, second in MUST_AGREE:
            ours, theirs = getattr(self, first), getattr(self, second)
            if name in ours and name in theirs and ours[name] != theirs[name]:
                raise ValueError(
                    f"`{first}.{name}` and `{second}.{name}` must be the same. Received: {ours[name]} and "
                    f"{theirs[name]}. Set both."
                )
        labelled = bool(self.data.get("sentence_pairs")) or self.data.get("rows") in LABELLED_ROWS
        if self.objective == "MaskedLM" and bool(self.objective_options.get("sentence_pair")) != labelled:
            raise ValueError(
                "A sentence-pair head and labelled pairs require each other, so `objective_options.sentence_pair` and "
                "`data.sentence_pairs` (or `data.rows`) must agree. Received: "
                f"{self.objective_options} and {self.data}."
            )

    @property
    def policy(self) -> str:
        """The dtype policy of the models on the device of the run."""
        return chosen_policy(self.dtype)

    @property
    def labelled_pairs(self) -> bool:
        """Whether rows are pairs of segments with a label."""
        return bool(self.data.get("sentence_pairs")) or self.data.get("rows") in LABELLED_ROWS

    def class_of(self, group: str) -> Callable:
        """Returns the class or function that a group of arguments is for."""
        if group in ("config", "generator_config", "evaluation_config"):
            return self._family_of((group == "generator_config" and self.generator) or self.backbone).family.config
        if group == "from_teacher":
            return kerasbert.objectives.start_from_teacher
        if group == "local_start":
            return kerasbert.training.start_with_local_attention
        name = {
            "schedule": self.schedule_class,
            "optimizer": self.optimizer_class,
            "data": self.batches,
            "held_out": self.batches,
            "evaluation_data": self.batches,
            "pair_data": self.pairs or "TranslationLMBatches",
            "objective_options": self.objective,
        }[group]
        packages = {
            "schedule": (kerasbert.training, keras.optimizers.schedules),
            "optimizer": (kerasbert.training, keras.optimizers),
            "objective_options": (kerasbert.objectives,),
        }.get(group, (kerasbert.data, pairs))
        found = next((getattr(package, name) for package in packages if hasattr(package, name)), None)
        if found is None:
            raise ValueError(f"There is no class {name!r} for `{group}` in {', '.join(r.__name__ for r in packages)}.")
        return found

    def fields_of(self, group: str) -> dict[str, typing.Any]:
        """Returns the names and types of the arguments that a group may contain."""
        target = self.class_of(group)
        if dataclasses.is_dataclass(target):
            return typing.get_type_hints(target)
        excluded = EXCLUDED_FROM.get(group, EXCLUDED)
        return {name: kind for name, kind in parameters(target).items() if name not in excluded}

    def backbone_config(self, size: str = "", **overrides):
        """Returns the config of the backbone or, if `size` is given, of a generator with that size."""
        fields, size = (self.generator_config, size) if size else (self.config, self.backbone)
        family = self._family_of(size)
        return family.family.config(**{**family.family.sizes[size], **fields, **overrides})

    @staticmethod
    def _family_of(size: str):
        """Returns the backbone class that has a size with this name."""
        family = find_size(size)
        if family is not None:
            return family
        sizes = size_names()
        raise ValueError(f"`backbone` must be a size of a paper: {', '.join(sizes)}. Received: {size!r}.")

    def with_settings(self, settings: list[str]) -> "Recipe":
        """Returns the recipe with `name=value` overrides, such as `steps=1000` or `config.num_layers=4`.

        `local_start={}`, for example, removes all arguments of a group.
        `learning_rate` sets the peak of the schedule, whatever the name of the schedule's argument. If an override
        changes a class, or the size to one of another family, its group keeps only the arguments that the new class
        accepts.
        """
        changed = {field.name: copy.deepcopy(getattr(self, field.name)) for field in dataclasses.fields(self)}
        arguments = {name: kind for name, kind in typing.get_type_hints(Recipe).items() if kind is not dict}
        groups, rate = [], None
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"A setting must have the form name=value, such as steps=1000. Received: {setting!r}.")
            group, dot, _ = name.partition(".")
            if name == "learning_rate":
                rate = _parsed(name, text, float)
            elif not dot and name in arguments:
                changed[name] = _parsed(name, text, arguments[name])
            elif dot and isinstance(changed.get(group), dict):
                groups.append(setting)
            elif text == "{}" and isinstance(changed.get(name), dict):
                changed[name] = {}
            else:
                options = [f"{key}.NAME" for key, value in changed.items() if isinstance(value, dict)]
                known = [
                    *arguments,
                    "learning_rate",
                    *(key for key, value in changed.items() if isinstance(value, dict)),
                ]
                raise ValueError(
                    f"A recipe has {closest(group, [*arguments, 'learning_rate', *options])}. Received: {setting!r}."
                    + did_you_mean(group, known)
                )
        classes = object.__new__(
            Recipe
        )  # an unvalidated recipe with the new classes and sizes, to look up their arguments
        classes.__dict__.update(changed)
        for setting in groups:
            name, _, text = setting.partition("=")
            group, _, inner = name.partition(".")
            fields = classes.fields_of(group)
            if inner not in fields:
                raise ValueError(
                    f"`{group}` takes {closest(inner, sorted(fields))}. Received: {setting!r}."
                    f"{did_you_mean(inner, fields)}"
                )
            kind = fields[inner]
            if kind is typing.Any and changed[group].get(inner) is not None:
                kind = type(changed[group][inner])
            changed[group][inner] = _parsed(name, text, kind)
        for field, group in CLASSES.items():
            if changed[field] != getattr(self, field):  # drop arguments that only the previous class accepts
                known = classes.fields_of(group)
                changed[group] = {inner: value for inner, value in changed[group].items() if inner in known}
        if rate is not None:
            changed["schedule"] |= _peak(rate, classes.fields_of("schedule"), changed["schedule"])
        return Recipe(**changed)


# (argument, group, group): arguments that must be equal in two groups.
MUST_AGREE = (
    ("transfer_steps", "optimizer", "objective_options"),
    ("max_targets", "objective_options", "data"),
    ("reuse_length", "config", "data"),
    ("bidirectional_data", "config", "data"),
)
LABELLED_ROWS = ("segment_pairs", "sentence_pairs", "sentence_order")
# Arguments that are not part of groups, because they come from fields of the recipe or from the command.
EXCLUDED = {
    *("self", "corpus", "batch_size", "length", "seed", "steps", "accumulation", "backbone", "tokenizer", "language"),
    *("languages", "student", "teacher", "generator", "discriminator", "learning_rate", "gradient_accumulation_steps"),
    *("peak", "name", "sources", "targets", "noise"),
}
# {field that names a class: group of the class's arguments}
CLASSES = {
    "schedule_class": "schedule",
    "optimizer_class": "optimizer",
    "objective": "objective_options",
    "batches": "data",
    "pairs": "pair_data",
    "backbone": "config",
    "generator": "generator_config",
}
EXCLUDED_FROM = {"schedule": {"self", "steps"}, "held_out": EXCLUDED - {"batch_size", "length"}}
EXCLUDED_FROM["evaluation_data"] = EXCLUDED_FROM["held_out"]


def parameters(target: Callable) -> dict[str, typing.Any]:
    """Returns {argument: type} for a function or class. Types are given by annotations or default values.

    Arguments that a class passes on (`**options`) are looked up in its base classes. Settings in place of objects (see
    `SettingsBatches.arguments`) count as arguments of the class.
    """
    kinds = parameters(target.arguments) if hasattr(target, "from_settings") else {}
    for source in target.__mro__ if inspect.isclass(target) else [target]:
        if inspect.isclass(source) and "__init__" not in vars(source):
            continue
        found = inspect.signature(source.__init__ if inspect.isclass(source) else source).parameters.values()
        for parameter in found:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in kinds:
                continue
            if parameter.annotation is not parameter.empty:
                kinds[parameter.name] = parameter.annotation
            elif parameter.default is parameter.empty or parameter.default is None:
                kinds[parameter.name] = typing.Any
            else:
                kinds[parameter.name] = type(parameter.default)
        if not any(parameter.kind is parameter.VAR_KEYWORD and parameter.name != "settings" for parameter in found):
            break
    return kinds


def _parsed(name: str, text: str, kind) -> typing.Any:
    """Converts `text` to a value of type `kind`."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    kinds = tuple(typing.get_origin(option) or option for option in kinds)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if float in kinds and type(value) is int:
        value = float(value)
    if int in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if tuple in kinds and isinstance(value, list):
        value = tuple(value)
    if typing.Literal in kinds:
        return value
    if str in kinds and not isinstance(value, str) and not (value is None and type(None) in kinds):
        value = text if not {int, tuple} & set(kinds) else value
    if typing.Any in kinds or type(value) in kinds:
        return value
    names = " or ".join("None" if option is type(None) else option.__name__ for option in kinds)
    raise ValueError(f"`{name}` must be of type {names}. Received: {text!r}.")


def _peak(rate: float, fields: dict, schedule: dict) -> dict:
    """Returns the arguments of a schedule for which `rate` is the peak."""
    if not rate > 0:
        raise ValueError(f"`learning_rate` must be above 0. Received: {rate}.")
    for name in ("peak", "initial_learning_rate", "learning_rate"):
        if name in fields:
            final = schedule.get("final", 0.0)  # scales with the peak
            return {name: rate, **({"final": final / schedule[name] * rate} if final else {})}
    return {"factor": rate * math.sqrt(schedule["hidden_dim"] * schedule["warmup"])}  # of `InverseSquareRoot`


def all_recipes() -> dict[str, Callable[[], Recipe]]:
    """Returns all recipes by name, such as "bert.base"."""
    folder = importlib.import_module(__package__)
    runs = {}
    for family in sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.name != "recipe"):
        module = importlib.import_module(f"{folder.__name__}.{family}")
        public = {key: value for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"}
        runs |= {f"{family}.{key}": run for key, run in public.items() if run.__module__ == module.__name__}
    return runs


def find_recipe(name: str) -> Recipe:
    """Returns a recipe by name, such as "bert.base" (or "bert_base"), or the recipe in a file; see `read_recipe`."""
    if name.endswith(".json"):
        return read_recipe(Path(name))
    runs = all_recipes()
    joined = {key.replace(".", "_"): key for key in runs}
    if joined.get(name, name) not in runs:
        raise ValueError(
            f"The recipes are {closest(name, sorted(runs))}. Received: {name!r}.{did_you_mean(name, runs)}"
        )
    return runs[joined.get(name, name)]()


def read_recipe(path: Path) -> Recipe:
    """Reads a recipe.json, which `pretrain` writes into the folders of runs and models.

    Raises:
        ValueError: the file is not such a recipe. For an unknown field, the message suggests a similar name.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        known = [field.name for field in dataclasses.fields(Recipe)]
        for name in stored:
            if name not in known:
                raise ValueError(f"a recipe has no {name!r}.{did_you_mean(name, known)}")
        return Recipe(**_with_tuples(stored))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a recipe that pretrain wrote. It cannot be read: {error}") from None


def _with_tuples(value: typing.Any) -> typing.Any:
    """Converts the lists in a JSON value to tuples, which recipes use."""
    if isinstance(value, dict):
        return {name: _with_tuples(inner) for name, inner in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


# Shared settings of the tiny recipes, which run for minutes on two CPU cores. An initializer range of 0.02 is suitable
# for a width of 768. With a width of 128, the loss would stay on a plateau for thousands of steps, longest with masked
# tokens and learned absolute positions, shortest with next-token prediction. Dropout is not needed for so few passes
# over the text.
TINY_SIZE = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, initializer_range=0.08)
NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)
TINY = dict(TINY_SIZE, **NO_DROPOUT)
TINY_RUN = dict(batch_size=16, length=64, steps=2_000, long_length=0, long_steps=0, accumulation=1)
TINY_SCHEDULE = dict(peak=2e-3, warmup=200)
TINY_ADAM = dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, global_clipnorm=1.0)
# The heads of the first block attend to neighbours at first. Otherwise, models of this size with learned positions do
# no better than token frequencies for hundreds of updates (benchmarks/plateau.md).
LOCAL_START = dict(num_blocks=1)
LOCAL_START_TO_THE_LEFT = dict(LOCAL_START, offsets=(-1, -2))  # for causal models
