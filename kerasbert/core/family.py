"""What the package knows of a family of models: one record for each, and the registry in which loading finds them."""

import dataclasses
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class HuggingFaceLayout:
    """How a family's `config.json` and tensors are laid out in Hugging Face folders. Tables are read both ways.

    A table of a family with several model types may hold one table for each model type instead.

    Args:
        config: {our field: their field, or a `weight_names.Field` where the values differ}.
        names: {our path: their name, or a `Tensor`, `Part` or `Heads`}; see `weight_names`.
        classes: {our class: their architecture}. "MaskedLM with sentence_pair" is a `MaskedLM` with that argument; of
            several classes with one architecture, a folder that says no more is read as the last.
        prefix: in front of the backbone's names wherever there is a head.
        tied: {name: another name of the same tensor}. Files hold one of them or both.
        defaults: {their field: its value where a `config.json` leaves it out}.
        aliases: {older name of a field: its name}.
        only: {their field: the one value that this implementation has}. Any other is refused.
        written: {their field: function of the config}, for fields that are written and not read.
        bare: our classes whose backbone is stored without the prefix.
        optional: parts of the backbone that files may lack.
        refused: {head: (a tensor's name, why a file that has it does not fit the head)}.
        fields: stored weights -> fields of the config that only the tensors tell.
        implied: config -> {stored name: the name that it repeats, or its value}, of tensors that are stored although
            the backbone lacks them.
        unused: (config, stored name) -> whether this config has no use for the tensor.
        spelling: config -> {name: the name to write instead}.
    """

    config: Mapping[str, object]
    names: Mapping[str, object]
    classes: Mapping[str, object]
    prefix: str = ""
    tied: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only: Mapping[str, object] = dataclasses.field(default_factory=dict)
    written: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    bare: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    refused: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    fields: Callable | None = None
    implied: Callable | None = None
    unused: Callable | None = None
    spelling: Callable | None = None

    def of_type(self, table, model_type):
        """The table of a model type: `classes` and `defaults` may hold one for each."""
        table = getattr(self, table)
        return table.get(model_type, table)


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models: what objectives, tasks and checkpoints ask of it.

    Args:
        config: the frozen dataclass of its configs, with a field `model_type`.
        model_types: those of the `config.json` files that it reads.
        heads: {kind: (config, **arguments) -> layer}; the kinds are masked_lm, classifier, tagger, span, choice, ...
        huggingface: a `HuggingFaceLayout`.
        sizes: {name: fields of the config}, the sizes of the papers.
        pooled_heads: kinds of heads that read the `pooled_output`.
        needed_fields: {class of an objective or task: fields of the config that it needs}.
    """

    config: type
    model_types: tuple[str, ...]
    heads: Mapping[str, Callable]
    huggingface: HuggingFaceLayout
    sizes: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    pooled_heads: frozenset[str] = frozenset()
    needed_fields: Mapping[str, dict] = dataclasses.field(default_factory=dict)


def transformers_classes(name):
    """{our class: its architecture} of a family whose classes in transformers have the usual names.

    "Bert" -> {"Backbone": "BertModel", "MaskedLM": "BertForMaskedLM", ...}
    """
    return {"Backbone": f"{name}Model", **{ours: f"{name}For{theirs}" for ours, theirs in _USUAL_CLASSES.items()}}


_USUAL_CLASSES = {
    "MaskedLM": "MaskedLM",
    "TextClassifier": "SequenceClassification",
    "TokenClassifier": "TokenClassification",
    "QuestionAnswerer": "QuestionAnswering",
    "MultipleChoice": "MultipleChoice",
}

# model_type of a `config.json` -> the backbone that reads it. Filled by `register_family`.
FAMILIES = {}


def register_family(backbone, family):
    """Gives a backbone class its record, and makes its folders and sizes known to `from_preset` and `kerasbert.load`.

    Args:
        backbone: a subclass of `Backbone`, registered with Keras. Its subclasses inherit the record.
        family: a `Family`.

    Raises: ValueError for a model type or a size that another class has registered.
    """
    name = (backbone.__module__, backbone.__qualname__)
    for model_type in family.model_types:
        known = FAMILIES.get(model_type)
        if known is not None and (known.__module__, known.__qualname__) != name:
            raise ValueError(
                f"A model_type belongs to one family. Received: {model_type!r} of {backbone.__name__}, which is "
                f"{known.__name__}'s. Give yours another name."
            )
    for size in family.sizes:
        known = find_size(size)
        if known is not None and (known.__module__, known.__qualname__) != name:
            raise ValueError(
                f"The name of a size belongs to one family. Received: {size!r} of {backbone.__name__}, which is "
                f"{known.__name__}'s. Give yours another name."
            )
    backbone.family = family
    FAMILIES.update(dict.fromkeys(family.model_types, backbone))


def find_size(name):
    """The backbone class that has a size of this name, or None."""
    return next((cls for cls in FAMILIES.values() if name in cls.family.sizes), None)


def size_names():
    """The names of all sizes, sorted."""
    return sorted({size for cls in FAMILIES.values() for size in cls.family.sizes})
