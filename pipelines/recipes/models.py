"""The models of recipes: a size of a paper, and the objective that it is trained with."""

import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from kerasbert import objectives
from kerasbert.checkpoints.folder import find_folder
from kerasbert.command_line import did_you_mean
from kerasbert.core.family import find_size, size_names
from kerasbert.data.text.json_files import closest
from kerasbert.models import Backbone
from kerasbert.objectives.replaced_token import discriminator_kind
from kerasbert.training import start_with_local_attention


@dataclasses.dataclass(frozen=True)
class Size:
    """A backbone of the size of a paper.

    Args:
        size: name of the size, such as bert_base.
        config: fields of the config that differ from the size.
    """

    size: str
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "config", dict(self.config))  # recipes of a family share their defaults
        known = self.config_fields(self.size)
        for name in self.config:
            if name not in known:
                raise ValueError(
                    f"The config of {self.size} has {closest(name, known)}. Received: {name}."
                    f"{did_you_mean(name, known)}"
                )

    @staticmethod
    def config_fields(size: str) -> dict[str, Any]:
        """Returns the names and types of the fields of the config of a size."""
        return typing.get_type_hints(_family_of(size).family.config)

    def made_config(self, **fields: Any):
        """Returns the config of the backbone, with further `fields`."""
        family = self.family.family
        return family.config(**{**family.sizes[self.size], **self.config, **fields})

    @property
    def family(self) -> type[Backbone]:
        """The backbone class."""
        return _family_of(self.size)

    def known(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Returns those of some fields that the config has, overridden by the fields of this record."""
        names = self.config_fields(self.size)
        return {**{name: value for name, value in fields.items() if name in names}, **self.config}


@dataclasses.dataclass(frozen=True)
class LocalStart:
    """Arguments of `kerasbert.training.start_with_local_attention`, which changes the random weights."""

    num_blocks: int = 2
    offsets: tuple[int, ...] = (-1, 1, -2, 2)
    strength: float = 1.2
    deviation: float | None = None

    def __call__(self, backbone: Backbone) -> None:
        start_with_local_attention(backbone, **vars(self))


@dataclasses.dataclass(frozen=True)
class Objective:
    """Base class of objectives. A subclass has the class attribute `cls`, and fields for arguments of this class."""

    is_base = True  # not a class that a recipe may name
    cls: ClassVar[type[objectives.Objective]]
    own: ClassVar[tuple[str, ...]] = ()  # the fields that are not arguments of `cls`
    distils: ClassVar[bool] = False  # whether there is a teacher
    takes: ClassVar[tuple[str, ...]] = ()  # arguments that the data may determine; see `Data.objective`
    needs: ClassVar[tuple[str, ...]] = ()  # arguments that the data must determine

    def options(self, accumulation: int = 1) -> dict[str, Any]:
        """Returns the arguments of `cls`. Objectives count batches, of which `accumulation` make up an update."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in self.own}

    def make(self, size: "Pretraining", new: Callable, init_from: str | Path = "", **options: Any):
        """Makes the model.

        Args:
            size: the backbone, and how its random weights are changed.
            new: function of (class, size, folder, further arguments) that makes a model of this class, with the weights
                in a folder, or random ones for "".
            init_from: folder of the model whose training continues, or "".
            **options: the arguments of `cls`, and `teacher` if there is one.
        """
        model = new(self.cls, size, init_from, **options)
        if not init_from:
            size.started(model.backbone)
        return model


@dataclasses.dataclass(frozen=True)
class MaskedLM(Objective):
    """See `kerasbert.objectives.MaskedLM`. It also predicts the label of pairs if the data has one."""

    cls = objectives.MaskedLM
    takes = ("sentence_pair",)


@dataclasses.dataclass(frozen=True)
class HybridLM(Objective):
    """See `kerasbert.objectives.HybridLM`. Its `causal_share` is that of the data."""

    z_loss: float = 0.0
    cls = objectives.HybridLM
    takes = needs = ("causal_share",)


@dataclasses.dataclass(frozen=True)
class RetroMAE(Objective):
    """See `kerasbert.objectives.RetroMAE`."""

    bag_of_words_weight: float = 0.0
    cls = objectives.RetroMAE


@dataclasses.dataclass(frozen=True)
class TSDAE(Objective):
    """See `kerasbert.objectives.TSDAE`."""

    cls = objectives.TSDAE


@dataclasses.dataclass(frozen=True)
class SimCSE(Objective):
    """See `kerasbert.objectives.SimCSE`."""

    temperature: float = 0.05
    cls = objectives.SimCSE


@dataclasses.dataclass(frozen=True)
class CausalLM(Objective):
    """See `kerasbert.objectives.CausalLM`."""

    cls = objectives.CausalLM


@dataclasses.dataclass(frozen=True)
class BidirectionalLM(Objective):
    """See `kerasbert.objectives.BidirectionalLM`."""

    cls = objectives.BidirectionalLM


@dataclasses.dataclass(frozen=True)
class PermutationLM(Objective):
    """See `kerasbert.objectives.PermutationLM`."""

    cls = objectives.PermutationLM


@dataclasses.dataclass(frozen=True)
class SkipGram(Objective):
    """See `kerasbert.objectives.SkipGram`."""

    cls = objectives.SkipGram


@dataclasses.dataclass(frozen=True)
class SpanBoundary(Objective):
    """See `kerasbert.objectives.SpanBoundary`. Its `max_targets` are those of the data."""

    boundary_weight: float = 1.0
    cls = objectives.SpanBoundary
    takes = needs = ("max_targets",)


@dataclasses.dataclass(frozen=True)
class Seq2SeqLM(Objective):
    """See `kerasbert.objectives.Seq2SeqLM`."""

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    cls = objectives.Seq2SeqLM


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(Objective):
    """See `kerasbert.objectives.ReplacedTokenDetection`.

    Args:
        generator: the size of the generator.
        discriminator_weight, embedding_sharing, objective, temperature: as in the class.
        alternating: whether generator and discriminator have an optimizer each, as in `AlternatingOptimizers`.
    """

    generator: Size
    discriminator_weight: float | None = None
    embedding_sharing: str = "shared"
    objective: str = "replaced_tokens"
    temperature: float = 1.0
    alternating: bool = False
    cls = objectives.ReplacedTokenDetection
    own = ("generator", "alternating")

    def __post_init__(self):
        if self.alternating and self.embedding_sharing == "shared":
            raise ValueError(
                '`alternating` needs `embedding_sharing` "disentangled" or "none". Received: '
                f"embedding_sharing={self.embedding_sharing!r}. Set model.objective.alternating=false for one "
                "optimizer."
            )

    def make(self, size: "Pretraining", new: Callable, init_from: str | Path = "", **options: Any):
        first, second = init_from, ""  # a masked language model becomes the generator, beside a new discriminator
        if init_from and (find_folder(init_from) / "generator").is_dir():
            first, second = (find_folder(init_from) / name for name in ("generator", "discriminator"))
        if first:
            generator = new(objectives.MaskedLM, self.generator, first)
        else:
            generator = new(Backbone, self.generator)
            size.started(generator)
        if second:
            cls, arguments = discriminator_kind(self.objective)
            discriminator = new(cls, size, second, **arguments)
        else:
            discriminator = new(objectives.Discriminator, size).backbone
            size.started(discriminator)
        return self.cls(generator, discriminator, **options)


@dataclasses.dataclass(frozen=True)
class Distilled(Objective):
    """Base class of objectives with a teacher, whose weights the student starts with.

    Args:
        layers, transform: which of them, as in `kerasbert.objectives.start_from_teacher`.
    """

    _: dataclasses.KW_ONLY
    is_base = True
    layers: tuple[int, ...] | None = None
    transform: bool = False
    own = ("layers", "transform")
    takes = ("sentence_pair",)
    distils = True

    def make(
        self,
        size: "Pretraining",
        new: Callable,
        init_from: str | Path = "",
        *,
        teacher,
        sentence_pair: bool = False,
        **options: Any,
    ):
        student = new(objectives.MaskedLM, size, init_from, sentence_pair=sentence_pair)
        if not init_from:
            objectives.start_from_teacher(student, teacher, self.layers, self.transform)
        return self.cls(student, teacher, **options)


@dataclasses.dataclass(frozen=True)
class Distillation(Distilled):
    """See `kerasbert.objectives.Distillation`."""

    temperature: float = 2.0
    soft_weight: float = 5.0
    mlm_weight: float = 2.0
    cosine_weight: float = 1.0
    slots_only: bool = False
    cls = objectives.Distillation


@dataclasses.dataclass(frozen=True)
class KnowledgeTransfer(Distilled):
    """See `kerasbert.objectives.KnowledgeTransfer`. The `transfer_steps` of a recipe are updates."""

    strategy: str = "progressive"
    transfer_steps: int = 240_000
    transfer_weights: objectives.TransferWeights = objectives.TransferWeights()
    hard_share: float = 0.5
    cls = objectives.KnowledgeTransfer

    def options(self, accumulation: int = 1) -> dict[str, Any]:
        return {**super().options(), "transfer_steps": self.transfer_steps * accumulation}


@dataclasses.dataclass(frozen=True)
class Pretraining(Size):
    """A backbone with its objective. The fields of its config are set like its own: --set model.num_layers=4.

    Args:
        size, config: as in `Size`.
        objective: the objective.
        start: how the random weights are changed.
    """

    objective: Objective = MaskedLM()
    start: LocalStart | None = None

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.objective, Objective):
            received = f"the class {self.objective.__name__}" if isinstance(self.objective, type) else self.objective
            raise ValueError(
                "`objective` must be a record of a class derived from `Objective` of the recipes, such as MaskedLM(). "
                f"Received: {received}. For a Keras model of your own, define a dataclass derived from `Objective` "
                "whose attribute `cls` is the class of the model, and pass an object of it."
            )

    def started(self, backbone: Backbone) -> None:
        """Changes the random weights of a backbone."""
        if self.start is not None:
            self.start(backbone)


def _family_of(size: str) -> type[Backbone]:
    """Returns the backbone class that has a size with this name."""
    family = find_size(size)
    if family is None:
        names = size_names()
        raise ValueError(
            f"`size` must be a size of a paper: {closest(size, names)}. Received: {size!r}.{did_you_mean(size, names)}"
        )
    return family
