"""The record that describes a model family, and the registry from which families are loaded."""

import dataclasses
from collections.abc import Callable, Mapping

from .registered import Config  # noqa: F401  (imported from here by the families)


@dataclasses.dataclass(frozen=True)
class HuggingFaceLayout:
    """Describes how Hugging Face folders store the config and the tensors of a family, for loading and saving.

    "Stored" names and values are those used in the Hugging Face files, and "our" names are those of this package. For a
    family with several model types, `classes` and `defaults` may be {model type: table} instead.

    Args:
        config: {our config field: stored field, or a `weight_names.Field` if the values differ}.
        names: {our weight path: stored name, or a `Tensor`, `Part` or `Heads`}; see `weight_names`.
        classes: {our class: architecture in transformers}. "MaskedLM with sentence_pair" means
            `MaskedLM(sentence_pair=True)`. If several of our classes share an architecture, a folder that does not name
            our class is loaded as the last of them.
        prefix: prefix of the backbone's tensor names in models with a head.
        older_prefixes: prefixes that older files have in place of `prefix`.
        tied: {stored name: another stored name of the same tensor}. A file may contain one of the two names, or both.
        defaults: {stored field: its default}, used if `config.json` does not contain the field.
        aliases: {older name of a stored field: its current name}.
        architectures: {architecture in files of other programs: our class}, in addition to `classes`.
        only: {stored field: the only supported value}. Any other value is an error.
        written: {stored field: function that computes its value from our config}, for fields that are written but not
            read.
        bare: our classes whose backbone is stored without the prefix.
        optional: names of layers of the backbone that may be missing from files.
        refused: {head: (stored name, reason)}. A file that contains this tensor cannot be loaded into the head.
        fields: function that takes the stored weights and returns the config fields that can only be determined from
            them.
        implied: function that takes our config and returns {stored name: the stored name that it duplicates, or its
            value}, for tensors in files that correspond to no weight of the backbone.
        unused: function of (our config, stored name) that tells whether a model with this config ignores the tensor.
        spelling: function that takes our config and returns {stored name: the name to write instead}.
        generation: function of the contents of `config.json` and `generation_config.json` that returns the stored
            fields whose values are in the second file, if a folder has it.
        shared_type: function that takes a stored config with a model type of this family, which files of other families
            may have as well, and returns the model type by which their family is known here.
        remote_code: whether transformers reads the files only with code of the hub.
        modules: {our path of a layer: name of its module in the model of transformers}, where this differs from the
            stored name. PEFT's adapters have these names.
    """

    config: Mapping[str, object]
    names: Mapping[str, object]
    classes: Mapping[str, object]
    prefix: str = ""
    older_prefixes: tuple[str, ...] = ()
    tied: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    architectures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only: Mapping[str, object] = dataclasses.field(default_factory=dict)
    written: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    bare: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    refused: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    fields: Callable | None = None
    implied: Callable | None = None
    unused: Callable | None = None
    spelling: Callable | None = None
    generation: Callable | None = None
    shared_type: Callable | None = None
    remote_code: bool = False
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def classes_of(self, model_type: str) -> dict[str, str]:
        """Returns {architecture: our class} for a model type, the last class if several have the same architecture."""
        return {**self.architectures, **{theirs: ours for ours, theirs in self.of_type("classes", model_type).items()}}

    def of_type(self, table: str, model_type: str) -> Mapping:
        """Returns `classes` or `defaults` for a model type.

        Args:
            table: "classes" or "defaults".
            model_type: the `model_type` in `config.json`.
        """
        table = getattr(self, table)
        return table.get(model_type, table)


@dataclasses.dataclass(frozen=True)
class Family:
    """The record that describes a model family to objectives, tasks and checkpoints.

    Args:
        config: the config class, a frozen dataclass with a field `model_type`.
        model_types: the values of `model_type` in `config.json` files of this family.
        heads: {kind: function of (config, **arguments) that returns a layer}. Kinds are masked_lm, classifier, tagger,
            span, choice, ...
        huggingface: the `HuggingFaceLayout`, which describes how Hugging Face folders are read and written.
        sizes: {name: config fields}, the sizes of the papers.
        pooled_heads: the kinds of heads that read the `pooled_output`.
        needed_fields: {name of an objective or task class: {config field: value that the class requires}}.
    """

    config: type
    model_types: tuple[str, ...]
    heads: Mapping[str, Callable]
    huggingface: HuggingFaceLayout
    sizes: Mapping[str, dict] = dataclasses.field(default_factory=dict)
    pooled_heads: frozenset[str] = frozenset()
    needed_fields: Mapping[str, dict] = dataclasses.field(default_factory=dict)


def transformers_classes(name: str) -> dict[str, str]:
    """Returns {our class: architecture} for a family whose classes in transformers have the usual names.

    For "Bert", the result is {"Backbone": "BertModel", "MaskedLM": "BertForMaskedLM", ...}.
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


def register_family(backbone: type, family: Family) -> None:
    """Attaches a `Family` record to a backbone class.

    `from_preset` and `kerasbert.load` can then load the model types and sizes of the family.

    Args:
        backbone: a subclass of `Backbone` that is registered with Keras. Its subclasses inherit the record.
        family: the record.

    Raises: ValueError if another class has registered one of the model types or sizes.
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


def model_type_of(architecture):
    """Returns the model type to which an architecture belongs, for files without a model type, or None."""
    return next(
        (kind for kind, cls in FAMILIES.items() if architecture in cls.family.huggingface.classes_of(kind)), None
    )


def find_size(name):
    """Returns the backbone class that has a size with this name, or None."""
    return next((cls for cls in FAMILIES.values() if name in cls.family.sizes), None)


def size_names():
    """Returns the names of all sizes, sorted."""
    return sorted({size for cls in FAMILIES.values() for size in cls.family.sizes})
