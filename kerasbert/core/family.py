"""The record that describes a model family, and the registry from which families are loaded."""

import dataclasses
from collections.abc import Callable, Mapping

from ..layers.registered import Config  # noqa: F401  (imported from here by the families)


@dataclasses.dataclass(frozen=True)
class HuggingFaceLayout:
    """How a family's `config.json` and tensors are laid out in Hugging Face folders, for loading and saving.

    For a family with several model types, `classes` and `defaults` may hold one table per model type instead.

    Args:
        config: {our field: their field, or a `weight_names.Field` where the values differ}.
        names: {our path: their name, or a `Tensor`, `Part` or `Heads`}; see `weight_names`.
        classes: {our class: their architecture}. "MaskedLM with sentence_pair" is a `MaskedLM` with that argument. If
            several classes share an architecture, a folder that names no class is loaded as the last of them.
        prefix: of the backbone's tensor names in models with a head.
        tied: {name: another name of the same tensor}. Files contain one of the two or both.
        defaults: {their field: its value where a `config.json` leaves it out}.
        aliases: {older name of a field: its name}.
        only: {their field: the only supported value}. Any other value is an error.
        written: {their field: function of the config}, for fields that are written but not read.
        bare: our classes whose backbone is stored without the prefix.
        optional: parts of the backbone that files may lack.
        refused: {head: (tensor name, why a file with this tensor does not fit the head)}.
        fields: stored weights -> config fields that can only be determined from the tensors.
        implied: config -> {stored name: the name that it duplicates, or its value}, for tensors in files that the
            backbone does not have.
        unused: (config, stored name) -> whether a model with this config does not use the tensor.
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
        """The table of a model type: `classes` and `defaults` may hold one per model type."""
        table = getattr(self, table)
        return table.get(model_type, table)


@dataclasses.dataclass(frozen=True)
class Family:
    """The record of a model family, which objectives, tasks and checkpoints read.

    Args:
        config: the frozen dataclass of its configs, with a field `model_type`.
        model_types: the values of `model_type` in the `config.json` files that it reads.
        heads: {kind: (config, **arguments) -> layer}; the kinds are masked_lm, classifier, tagger, span, choice, ...
        huggingface: a `HuggingFaceLayout`.
        sizes: {name: fields of the config}, the sizes of the papers.
        pooled_heads: kinds of heads that read the `pooled_output`.
        needed_fields: {name of an objective or task class: config fields that it needs}.
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
    """Attaches a record to a backbone class, so that `from_preset` and `kerasbert.load` find its folders and sizes.

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
                f"A model_type can belong to only one family. Received: {model_type!r} for {backbone.__name__}, but it "
                f"belongs to {known.__name__}. Use another name."
            )
    for size in family.sizes:
        known = find_size(size)
        if known is not None and (known.__module__, known.__qualname__) != name:
            raise ValueError(
                f"A size name can belong to only one family. Received: {size!r} for {backbone.__name__}, but it "
                f"belongs to {known.__name__}. Use another name."
            )
    backbone.family = family
    FAMILIES.update(dict.fromkeys(family.model_types, backbone))


def find_size(name):
    """The backbone class that has a size of this name, or None."""
    return next((cls for cls in FAMILIES.values() if name in cls.family.sizes), None)


def size_names():
    """The names of all sizes, sorted."""
    return sorted({size for cls in FAMILIES.values() for size in cls.family.sizes})
