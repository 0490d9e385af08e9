"""The data of recipes. Each record makes the batches of a phase from a corpus, or a mixture from several."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from kerasbert import data
from kerasbert.data import (
    Batches,
    Corpus,
    Denoising,
    DenoisingLayout,
    MixtureBatches,
    Noise,
    SegmentPairs,
    Spans,
    SpanTargets,
    TextInfilling,
    Tokens,
    TokenSpans,
    WholeWords,
    mixing_rates,
)
from kerasbert.data.batches.masked_lm import find_rows

from .pairs import PairBatches
from .phases import Mixed


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run, whose batches have one shape.

    Args:
        steps: number of updates. None, for evaluation: one pass over the text.
        batch_size: rows per update.
        length: tokens per row.
        seed: added to the seed of the recipe. Default: the number of the phase.
    """

    steps: int | None
    batch_size: int
    length: int
    seed: int | None = None

    def __post_init__(self):
        if min(1 if self.steps is None else self.steps, self.batch_size, self.length) < 1:
            raise ValueError(
                "`steps`, `batch_size` and `length` of a phase must be at least 1. Received: "
                f"{self.steps}, {self.batch_size}, {self.length}."
            )


@dataclasses.dataclass(frozen=True)
class Mixing:
    """How the batches of several corpora are mixed.

    Args:
        exponent, limit: sampling rates are proportional to min(tokens, limit) ** exponent.
        by: "rows", or "batches" if every update uses only one corpus.
    """

    exponent: float = 1.0
    limit: float | None = None
    by: Literal["rows", "batches"] = "rows"


@dataclasses.dataclass(frozen=True)
class Data:
    """Base class. A subclass has fields for the rows and the noise, and implements `part`."""

    _: dataclasses.KW_ONLY
    mixing: Mixing = Mixing()
    is_base = True  # not a class that a recipe may name
    labeled: ClassVar[bool] = False  # whether rows are pairs of segments with a label
    starts_with_end: ClassVar[bool] = False  # whether decoders start with the end token, and not with padding

    def __call__(self, corpus: Corpus | Mapping[str, Corpus], phase: Phase) -> Batches:
        """Makes the batches of a phase from a corpus, or from several by name, which are mixed."""
        corpora = named(corpus)
        shape = dict(batch_size=phase.batch_size, seed=phase.seed or 0)
        if len(corpora) == 1:
            ((name, text),) = corpora.items()
            return self.part(name, text, steps=phase.steps, length=phase.length, **shape)
        parts = {name: self.part(name, text, length=phase.length, **shape) for name, text in corpora.items()}
        return MixtureBatches(parts, self.rates(corpora, parts), steps=phase.steps, by=self.mixing.by, **shape)

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        """Makes the batches of one corpus.

        Args:
            name: the name of the corpus.
            **shape: `batch_size`, `length`, `steps` and `seed`, as in `Batches`.
        """
        raise NotImplementedError

    def rates(self, corpora: dict[str, Corpus], parts: dict[str, Batches]) -> dict[str, float]:
        """Computes the share of each corpus in a mixture."""
        sizes = [corpus.num_tokens for corpus in corpora.values()]
        shares = mixing_rates(sizes, self.mixing.exponent, self.mixing.limit)
        # As in XLM, a group of corpora counts as much as its number of corpora, but at most as 5.
        return {name: float(share) * min(5, len(corpora)) for name, share in zip(corpora, shares, strict=True)}

    def config(self) -> dict:
        """Returns the fields of the model's config that the data determine."""
        return {}

    def objective(self) -> dict:
        """Returns the arguments of the objective that the data determine."""
        return {}


@dataclasses.dataclass(frozen=True)
class MaskedLMData(Data):
    """See `kerasbert.data.MaskedLMBatches`. If the rows have a label, the model gets a head for it."""

    rows: str | SegmentPairs = "chunks"
    noise: Noise = Tokens()
    static_masks: int = 0

    def __post_init__(self):
        layout = find_rows(self.rows)
        if isinstance(layout, SegmentPairs):  # also by name, so that its fields can be set
            object.__setattr__(self, "rows", layout)

    @property
    def labeled(self) -> bool:
        return isinstance(self.rows, SegmentPairs)

    def objective(self) -> dict:
        return {"sentence_pair": True} if self.labeled else {}

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        masks = dict(rows=self.rows, noise=self.noise, static_masks=self.static_masks)
        return data.MaskedLMBatches(corpus, **shape, **masks)


@dataclasses.dataclass(frozen=True)
class MaskedPermutedLMData(Data):
    """See `kerasbert.data.MaskedPermutedLMBatches`."""

    rows: str = "chunks"
    noise: Noise = Tokens()
    static_masks: int = 0

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        masks = dict(rows=self.rows, noise=self.noise, static_masks=self.static_masks)
        return data.MaskedPermutedLMBatches(corpus, **shape, **masks)


@dataclasses.dataclass(frozen=True)
class HybridLMData(Data):
    """See `kerasbert.data.HybridLMBatches`. `causal_share` is also that of the objective `HybridLM`."""

    rows: str = "packed"
    noise: Noise = TokenSpans()
    causal_share: float = 1 / 16
    causal_targets: int | None = None

    def objective(self) -> dict:
        return {"causal_share": self.causal_share}

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        kinds = dict(causal_share=self.causal_share, causal_targets=self.causal_targets)
        return data.HybridLMBatches(corpus, rows=self.rows, noise=self.noise, **kinds, **shape)


@dataclasses.dataclass(frozen=True)
class RetroMAEData(Data):
    """See `kerasbert.data.RetroMAEBatches`."""

    rows: str = "chunks"
    noise: Noise = WholeWords(0.3)
    decoder_rate: float = 0.5

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        masks = dict(noise=self.noise, decoder_rate=self.decoder_rate)
        return data.RetroMAEBatches(corpus, rows=self.rows, **masks, **shape)


@dataclasses.dataclass(frozen=True)
class WholeTextData(Data):
    """See `kerasbert.data.WholeTextBatches`, which have nothing random but their order."""

    rows: str = "chunks"

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        return data.WholeTextBatches(corpus, rows=self.rows, **shape)


@dataclasses.dataclass(frozen=True)
class TSDAEData(Data):
    """See `kerasbert.data.TSDAEBatches`."""

    rows: str = "chunks"
    deletion: float = 0.6

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        return data.TSDAEBatches(corpus, rows=self.rows, deletion=self.deletion, **shape)


@dataclasses.dataclass(frozen=True)
class ReplacedTokenData(Data):
    """See `kerasbert.data.ReplacedTokenBatches`.

    Args:
        noise: the masking rule. Without `max_predictions`, they are (rate + 0.005) * length, as in ELECTRA's code.
    """

    rows: str = "chunks"
    noise: Tokens = Tokens(0.15, shares=(0.85, 1 - 0.85))
    static_masks: int = 0

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        slots = self.noise.max_predictions or max(1, int((self.noise.rate + 0.005) * shape["length"]))
        noise = dataclasses.replace(self.noise, max_predictions=slots)
        masks = dict(rows=self.rows, noise=noise, static_masks=self.static_masks)
        return data.ReplacedTokenBatches(corpus, **shape, **masks)


@dataclasses.dataclass(frozen=True)
class SpanMaskData(Data):
    """See `kerasbert.data.SpanMaskBatches`. `max_targets` is also that of the objective `SpanBoundary`."""

    rows: str = "sentences"
    noise: Spans = Spans()
    boundary: bool = True
    max_targets: int = 15

    def objective(self) -> dict:
        return {"max_targets": self.max_targets} if self.boundary else {}

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        options = dict(rows=self.rows, noise=self.noise, boundary=self.boundary, max_targets=self.max_targets)
        return data.SpanMaskBatches(corpus, **shape, **options)


@dataclasses.dataclass(frozen=True)
class PermutationLMData(Data):
    """See `kerasbert.data.PermutationLMBatches`. The model's config gets the first two fields, too."""

    reuse_length: int | None = None
    bidirectional_data: bool = False
    noise: SpanTargets = SpanTargets()
    permutation_size: int | None = None

    def config(self) -> dict:
        reuse = {} if self.reuse_length is None else {"reuse_length": self.reuse_length}
        return {**reuse, "bidirectional_data": self.bidirectional_data}

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        parts = dict(reuse_length=self.reuse_length, bidirectional_data=self.bidirectional_data)
        noise = dict(noise=self.noise, permutation_size=self.permutation_size)
        return data.PermutationLMBatches(corpus, **shape, **parts, **noise)


@dataclasses.dataclass(frozen=True)
class CausalLMData(Data):
    """See `kerasbert.data.CausalLMBatches`."""

    lines: bool = False

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        return data.CausalLMBatches(corpus, lines=self.lines, **shape)


@dataclasses.dataclass(frozen=True)
class StreamData(Data):
    """See `kerasbert.data.StreamBatches`, which have nothing random."""

    lines: bool = False

    def part(self, name: str, corpus: Corpus, *, seed: int, **shape) -> Batches:
        return data.StreamBatches(corpus, lines=self.lines, **shape)


@dataclasses.dataclass(frozen=True)
class BidirectionalLMData(Data):
    """See `kerasbert.data.BidirectionalLMBatches`."""

    characters: bool = False
    lines: bool = False

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        return data.BidirectionalLMBatches(corpus, characters=self.characters, lines=self.lines, **shape)


@dataclasses.dataclass(frozen=True)
class SkipGramData(Data):
    """See `kerasbert.data.SkipGramBatches`, whose rows are pairs of words."""

    window: int = 5
    negatives: int = 5
    threshold: float | None = 1e-3
    rule: Literal["paper", "code"] = "code"
    power: float = 0.75

    def part(self, name: str, corpus: Corpus, *, length: int, **shape) -> Batches:
        drawn = {name: getattr(self, name) for name in ("window", "negatives", "threshold", "rule", "power")}
        return data.SkipGramBatches(corpus, **drawn, **shape)


@dataclasses.dataclass(frozen=True)
class PairData(Data):
    """See `PairBatches`, for corpora of sources and targets."""

    num_buckets: int = 4
    target_length: int | None = None
    full_width: bool = False

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        widths = dict(num_buckets=self.num_buckets, target_length=self.target_length, full_width=self.full_width)
        return PairBatches(corpus, **shape, **widths)


@dataclasses.dataclass(frozen=True)
class DenoisingData(Data):
    """See `kerasbert.data.DenoisingBatches`."""

    noise: Denoising | TextInfilling = Denoising()
    layout: DenoisingLayout = DenoisingLayout()
    packed: bool = False
    group: int | None = None

    @property
    def starts_with_end(self) -> bool:
        return self.noise.starts_with_end

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        rows = dict(layout=self.layout, packed=self.packed, group=self.group)
        return data.DenoisingBatches(corpus, noise=self.noise, **rows, **shape)


@dataclasses.dataclass(frozen=True)
class TranslationLMData(Data):
    """See `kerasbert.data.TranslationLMBatches`, for the `pairs` of `Languages`."""

    noise: Noise = Tokens(mask_special=True, count="independent", skip_first=True)
    both_orders: bool = True
    packed: bool = False

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        rows = dict(both_orders=self.both_orders, packed=self.packed)
        return data.TranslationLMBatches(corpus, noise=self.noise, **rows, **shape)


@dataclasses.dataclass(frozen=True)
class Languages(Data):
    """Corpora of several languages, each with the name of its language, and parallel text, named like "en-fr".

    Args:
        names: the names of the languages. A row has the index of its language in this tuple.
        text: the data of one language.
        pairs: the data of parallel text, if there may be any.
    """

    names: tuple[str, ...]
    text: Data
    pairs: Data | None = None

    @property
    def labeled(self) -> bool:
        return self.text.labeled

    def config(self) -> dict:
        numbers = {name: number for number, name in enumerate(self.names)}
        return {**self.text.config(), "num_languages": len(numbers), "language_names": numbers}

    def objective(self) -> dict:
        return self.text.objective()

    def __call__(self, corpus: Corpus | Mapping[str, Corpus], phase: Phase) -> Batches:
        batches, kinds = super().__call__(corpus, phase), set(map(self._is_pair, named(corpus)))
        return Mixed(batches) if len(kinds) > 1 else batches

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        if not self._is_pair(name):
            return self.text.part(name, corpus, language=self.names.index(name), **shape)
        numbers = tuple(self.names.index(end) for end in name.split("-"))
        return self.pairs.part(name, corpus, languages=numbers, **shape)

    def rates(self, corpora: dict[str, Corpus], parts: dict[str, Batches]) -> dict[str, float]:
        found = {}
        for pairs in (False, True):
            group = {name: text for name, text in corpora.items() if self._is_pair(name) == pairs}
            found |= super().rates(group, parts) if group else {}
        return found

    def _is_pair(self, name: str) -> bool:
        ends = name.split("-")
        if name not in self.names and not (self.pairs and len(ends) == 2 and {*ends} <= {*self.names}):
            pairs = " and pairs such as " + "-".join(self.names[:2]) if self.pairs else ""
            raise ValueError(
                f"This recipe has the languages {', '.join(self.names)}{pairs}. Received: a corpus {name!r}. Use "
                f"--corpus {self.names[0]}=folder, or --set data.names=."
            )
        return name not in self.names


@dataclasses.dataclass(frozen=True)
class TextAndTasks(Data):
    """A corpus of plain text, and corpora of tasks, which are mixed by their numbers of examples (T5, section 3.5).

    Args:
        text: the data of plain text.
        tasks: the data of every task.
        text_name: the name of the corpus of plain text.
        text_examples: the number of examples that it counts as. `mixing.limit` is the maximum of the tasks.
    """

    text: Data
    tasks: Data
    text_examples: int
    text_name: str = "text"

    def part(self, name: str, corpus: Corpus, **shape) -> Batches:
        return (self.text if name == self.text_name else self.tasks).part(name, corpus, **shape)

    def rates(self, corpora: dict[str, Corpus], parts: dict[str, Batches]) -> dict[str, float]:
        limit = self.mixing.limit or math.inf
        sizes = {name: min(part.num_pairs, limit) for name, part in parts.items() if name != self.text_name}
        sizes |= {name: self.text_examples for name in parts if name == self.text_name}
        return dict(zip(sizes, mixing_rates(list(sizes.values()), self.mixing.exponent).tolist(), strict=True))


def named(corpus: Corpus | Mapping[str, Corpus]) -> dict[str, Corpus]:
    """Returns {name: corpus}. A single corpus gets the name "text"."""
    return dict(corpus) if isinstance(corpus, Mapping) else {"text": corpus}
