"""The losses of embedders and rerankers: read from text, chosen for the form of the examples, and checked with them."""

import ast
import math
from dataclasses import dataclass
from typing import Any

import kerasbert
from kerasbert.retrieval import Loss, Matryoshka, NegativeRules, Splade, loss_of, mine_hard_negatives
from kerasbert.retrieval.loss import loss_names

from ..command_line.options import Options
from ..reading.documents import read_documents
from ..reading.examples import Examples
from ..reading.tables import Reading
from .outputs import counted

# {kind of examples: class of the model}
EMBEDDERS = {"embed": "TextEmbedder", "sparse": "SparseEmbedder", "multivector": "MultiVectorEmbedder"}
KINDS = {**EMBEDDERS, "rerank": "Reranker"}


@dataclass(frozen=True)
class Objective(Options):
    """How embedders and rerankers are trained: --task embed, sparse, multivector and rerank.

    Args:
        loss: a loss of kerasbert.retrieval with options, as in Python: "CoSENT(scale=20)". Default: by the columns.
            Pairs, triplets and n-tuples without labels: MultipleNegatives; pairs with 0 or 1: OnlineContrastive; pairs
            with scores: CoSENT; pairs with classes: PairClasses; texts with classes: BatchHardSoftMargin. For rerankers
            BinaryCrossEntropy, MeanSquaredError, LambdaLoss for lists, or SampledNegatives.
        matryoshka: train prefixes of the vectors, too: --matryoshka 384 128 32.
        mine_negatives: number of hard negatives to find for each pair of a query and a positive.
        miner: the embedder that finds them. Default: the model itself, before training.
        documents: file with more documents among which they are found: lines of text, or a table with one column.
        text_columns: names of the columns with texts, in order. Default: all but the label.
    """

    loss: str | None = None
    matryoshka: tuple[int, ...] = ()
    mine_negatives: int | None = None
    miner: str | None = None
    documents: str | None = None
    text_columns: tuple[str, ...] = ()

    def __post_init__(self):
        if self.mine_negatives is not None and self.mine_negatives < 1:
            raise ValueError(f"`mine_negatives` must be at least 1. Received: {self.mine_negatives}.")
        unused = [name for name in self.given if name in ("--miner", "--documents")]
        if unused and self.mine_negatives is None:
            raise ValueError(
                f"--miner and --documents are for hard negatives. Received: {' and '.join(unused)} without "
                "--mine-negatives. Add --mine-negatives NUMBER."
            )

    def check_kind(self, kind: str) -> None:
        """Raises a ValueError if options are given for a kind of examples that has no use for them."""
        if kind not in KINDS and self.given:
            raise ValueError(
                f"{', '.join(self.given)} {'is' if len(self.given) == 1 else 'are'} for --task {', '.join(KINDS)}. "
                f"Received: a task of kind {kind}."
            )

    def mined(self, kind: str, model: str, examples: Examples, reading: Reading, batch_size: int) -> Examples:
        """Adds hard negatives to pairs, in the form that the loss reads."""
        if self.mine_negatives is None:
            return examples
        if {len(texts) for texts in examples.x} != {2} or examples.y[0] is not None:
            raise ValueError(
                "`mine_negatives` needs pairs of a query and a positive, without labels. Received: rows of "
                f"{counted(len(examples.x[0]), 'text')}{'' if examples.y[0] is None else ' with labels'}."
            )
        if self.miner is None and kind == "rerank":
            raise ValueError("A reranker cannot find negatives. Received: --mine-negatives without --miner MODEL.")
        loss = None if self.loss is None else parsed_loss(self.loss)
        layout = "n-tuple"
        if kind == "rerank" and (loss is None or loss.max_texts == 2):
            layout = "labeled-pair"
        elif kind == "rerank" and loss.targets == "relevance":
            layout = "labeled-list"
        miner = kerasbert.load(self.miner) if self.miner else model_class(kind).from_preset(model)
        corpus = [] if self.documents is None else read_documents(self.documents, reading).texts
        rules = NegativeRules(self.mine_negatives)
        rows = mine_hard_negatives(examples.x, miner, corpus, rules, layout, batch_size=batch_size)
        if not rows:
            raise ValueError(f"No query has {self.mine_negatives} negatives. Mine fewer, or add --documents.")
        print(f"{counted(len(rows), 'example')} with negatives")
        if layout == "n-tuple":
            return Examples(rows, [None] * len(rows))
        return Examples([row[:2] for row in rows], [row[2] for row in rows])

    def loss_for(self, kind: str, examples: Examples, updates: int) -> Loss:
        """Returns the loss for examples of a kind, whose training has so many updates."""
        chosen = parsed_loss(self.loss) if self.loss is not None else default_loss(kind, examples)
        what = "scores" if kind == "rerank" else "vectors"
        if chosen.reads != what:
            known = ", ".join(sorted(loss_names(what)))
            raise ValueError(f"--task {kind} needs a loss on {what}: {known}. Received: --loss {chosen.name}.")
        if self.matryoshka and kind != "embed":
            raise ValueError(f"--matryoshka is for --task embed. Received: --task {kind}.")
        chosen = Matryoshka(chosen, self.matryoshka) if self.matryoshka else chosen
        if kind == "sparse" and not isinstance(chosen, Splade):
            chosen = Splade(chosen, warmup=updates // 3)
        print(f"loss {shown(chosen)}")
        return chosen


def model_class(kind: str) -> type:
    """The class of the models of a kind."""
    return getattr(kerasbert.tasks, KINDS[kind])


def kind_of_texts(model: Any) -> str | None:
    """The kind of examples that an embedder or a reranker reads, or None for other models."""
    names = [cls.__name__ for cls in type(model).__mro__]
    return next((kind for kind, name in KINDS.items() if name in names), None)


def default_loss(kind: str, examples: Examples) -> Loss:
    """Chooses a loss for the form of the examples."""
    labels = examples.y if examples.y[0] is not None else None
    is_numeric = labels is not None and all(isinstance(label, float | int) for label in labels)
    if kind == "rerank":
        if labels is None:
            return loss_of("SampledNegatives")
        if isinstance(examples.x[0][-1], list):
            return loss_of("LambdaLoss")
        if not is_numeric:
            raise ValueError(
                f"A reranker learns from numbers. Received: {labels[0]!r:.60}. Use --task classes for classes of pairs."
            )
        is_share = is_numeric and min(labels) >= 0 and max(labels) <= 1
        return loss_of("BinaryCrossEntropy" if is_share else "MeanSquaredError")
    if kind in ("sparse", "multivector") and labels is None:
        similarity = "dot" if kind == "sparse" else "max_sim"
        return loss_of({"name": "MultipleNegatives", "scale": 1.0, "similarity": similarity})
    if labels is None:
        return loss_of("MultipleNegatives")
    if isinstance(labels[0], list) or kind != "embed":
        raise ValueError(
            f"These labels have several uses. Received: {labels[0]!r:.60}. Choose a loss, such as --loss MarginMSE or "
            "--loss DistillKL for the scores of a teacher."
        )
    if len(examples.x[0]) == 1:
        return loss_of("BatchHardSoftMargin")
    if not is_numeric:
        return loss_of({"name": "PairClasses", "labels": sorted(set(labels))})
    return loss_of("OnlineContrastive" if is_numeric and set(labels) <= {0, 1} else "CoSENT")


def check_examples(loss: Loss, examples: Examples, batch_size: int, path: str) -> None:
    """Raises a ValueError that names the file if examples do not fit a loss on vectors."""
    if loss.targets is None and labels_of(examples) is not None:
        raise ValueError(
            f"{path}: {loss.name} reads no labels. Received: a column of labels. Remove it from the file, or choose "
            "another --loss."
        )
    try:
        loss.check_texts(examples.x, batch_size)
        loss.read_labels(labels_of(examples), len(examples), len(examples.x[0]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def labels_of(examples: Examples) -> list | None:
    """The labels of examples, or None."""
    return None if examples.y[0] is None else examples.y


# === Losses as text ===


def parsed_loss(text: str) -> Loss:
    """Reads a loss as it is written in Python: "Matryoshka(CoSENT(scale=20), dims=[384, 128])"."""
    try:
        return loss_of(_config(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, _NotALoss):
        raise ValueError(
            f'A loss is written as in Python, such as "CoSENT(scale=20)". Received: {text!r:.80}.'
        ) from None


class _NotALoss(Exception):
    """An expression that is not a loss."""


def _config(node: ast.expr) -> Any:
    """The config of a loss in an expression, or the value of a literal."""
    if isinstance(node, ast.Name):
        return {"name": node.id}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) < 2:
        options = {keyword.arg: _config(keyword.value) for keyword in node.keywords if keyword.arg}
        if len(options) < len(node.keywords):
            raise _NotALoss
        inner = {"loss": _config(node.args[0])} if node.args else {}
        return {"name": node.func.id, **inner, **options}
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NotALoss from None


def shown(loss: Loss, whole: bool = False) -> str:
    """A loss as text, with the options that differ from their defaults; if `whole`, with all that are not None."""
    parts = []
    for name, value in vars(loss).items():
        default = None if whole else type(loss).__dataclass_fields__[name].default
        if value != default:
            parts.append(f"{name}={shown(value, whole) if isinstance(value, Loss) else repr(value)}")
    return f"{loss.name}({', '.join(parts)})" if parts else loss.name


def updates_of(examples: int, batch_size: int, epochs: int) -> int:
    """The number of updates of a training."""
    return epochs * math.ceil(examples / batch_size)
