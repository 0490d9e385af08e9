"""A recipe: all the numbers of a pretraining run, and `name=value` overrides of them."""

import ast
import copy
import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing

import kerasbert.data
import kerasbert.models
import kerasbert.objectives
from kerasbert.training import TransformerAdamW, WarmupDecay


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The numbers of one run. The groups are arguments of the classes that are named beside them."""

    name: str
    backbone: str  # a size of the paper
    batch_size: int  # rows of an update
    length: int  # tokens of a row
    steps: int  # updates
    schedule: dict  # of WarmupDecay
    config: dict = dataclasses.field(default_factory=dict)  # fields that differ from the size
    objective: str = "MaskedLM"  # a class of kerasbert.objectives
    objective_options: dict = dataclasses.field(default_factory=dict)
    batches: str = "MaskedLMBatches"  # a class of kerasbert.data
    data: dict = dataclasses.field(default_factory=dict)  # of that class
    held_out: dict = dataclasses.field(default_factory=dict)  # of that class, where evaluation differs from `data`
    optimizer: dict = dataclasses.field(default_factory=dict)  # of TransformerAdamW
    long_length: int = 0  # the last `long_steps` updates have rows of this length
    long_steps: int = 0
    accumulation: int = 1  # parts in which an update is computed
    dtype: str = "float32"  # or mixed_bfloat16, mixed_float16
    seed: int = 0

    def __post_init__(self):
        if (self.long_steps > 0) != (self.long_length > 0) or not 0 <= self.long_steps <= self.steps:
            raise ValueError(
                "`long_steps` of `steps` have `long_length`: give both or neither. Received: "
                f"steps={self.steps}, long_steps={self.long_steps}, long_length={self.long_length}."
            )

        if bool(self.objective_options.get("sentence_pair")) != bool(self.data.get("sentence_pairs")):
            raise ValueError(
                "Pairs need a head and a head needs pairs: `objective_options.sentence_pair` and `data.sentence_pairs` "
                f"must agree. Received: {self.objective_options} and {self.data}."
            )

    def fields_of(self, group: str) -> dict[str, type]:
        """Names and types of what a group may hold."""
        if group == "config":
            return typing.get_type_hints(type(self.backbone_config()))
        target = {
            "schedule": WarmupDecay,
            "optimizer": TransformerAdamW,
            "data": getattr(kerasbert.data, self.batches),
            "held_out": getattr(kerasbert.data, self.batches),
            "objective_options": getattr(kerasbert.objectives, self.objective),
        }[group]
        own = {"corpus", "batch_size", "length", "seed", "steps", "accumulation", "backbone", "tokenizer"}
        found = {} if group != "optimizer" else _parameters(TransformerAdamW.__mro__[1])
        return {name: kind for name, kind in {**found, **_parameters(target)}.items() if name not in own}

    def backbone_config(self, **overrides):
        """The config of the backbone."""
        for family in kerasbert.models.FAMILIES.values():
            if self.backbone in family.family().SIZES:
                return family.CONFIG(**{**family.family().SIZES[self.backbone], **self.config, **overrides})
        sizes = sorted({size for family in kerasbert.models.FAMILIES.values() for size in family.family().SIZES})
        raise ValueError(f"`backbone` must be a size of a paper: {', '.join(sizes)}. Received: {self.backbone!r}.")

    def with_settings(self, settings: list[str]) -> "Recipe":
        """The recipe with `name=value` overrides, such as `steps=1000`, `config.num_layers=4`, `schedule.peak=1e-3`."""
        changed = {field.name: copy.deepcopy(getattr(self, field.name)) for field in dataclasses.fields(self)}
        own = {name: kind for name, kind in typing.get_type_hints(Recipe).items() if kind is not dict}
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals:
                raise ValueError(f"A setting reads name=value, such as steps=1000. Received: {setting!r}.")
            group, dot, inner = name.partition(".")
            if not dot and name in own:
                changed[name] = _parsed(name, text, own[name])
            elif dot and isinstance(changed.get(group), dict):
                fields = self.fields_of(group)
                if inner not in fields:
                    raise ValueError(f"`{group}` takes {', '.join(sorted(fields))}. Received: {setting!r}.")
                kind = fields[inner]
                if kind is typing.Any and inner in changed[group]:
                    kind = type(changed[group][inner])
                changed[group][inner] = _parsed(name, text, kind)
            else:
                groups = [f"{key}.NAME" for key, value in changed.items() if isinstance(value, dict)]
                raise ValueError(f"A recipe has {', '.join([*own, *groups])}. Received: {setting!r}.")
        return Recipe(**changed)


def _parameters(target) -> dict[str, typing.Any]:
    """Argument names of a class with their types, by annotation or by default value."""
    kinds = {}
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.annotation is not parameter.empty:
            kinds[parameter.name] = parameter.annotation
        elif parameter.default is parameter.empty or parameter.default is None:
            kinds[parameter.name] = typing.Any
        else:
            kinds[parameter.name] = type(parameter.default)
    return kinds


def _parsed(name: str, text: str, kind) -> typing.Any:
    """`text` as a value of type `kind`."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if float in kinds and type(value) is int:
        value = float(value)
    if int in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if str in kinds and not isinstance(value, str) and not (value is None and type(None) in kinds):
        value = text
    if typing.Any in kinds or type(value) in kinds or (tuple in kinds and isinstance(value, list)):
        return value
    names = " or ".join("None" if option is type(None) else option.__name__ for option in kinds)
    raise ValueError(f"`{name}` must be of type {names}. Received: {text!r}.")


def find_recipe(name: str) -> Recipe:
    """The recipe `family.run`, such as "bert.base"."""
    import pipelines.recipes as folder

    families = [module.name for module in pkgutil.iter_modules(folder.__path__) if module.name != "recipe"]
    family, _, run = name.partition(".")
    runs = {}
    for known in families:
        module = importlib.import_module(f"{folder.__name__}.{known}")
        public = {key: value for key, value in vars(module).items() if inspect.isfunction(value)}
        runs |= {f"{known}.{key}": f for key, f in public.items() if f.__module__ == module.__name__ and key[0] != "_"}
    if name not in runs:
        raise ValueError(f"The recipes are {', '.join(sorted(runs))}. Received: {name!r}.")
    return runs[name]()
