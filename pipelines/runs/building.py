"""Builds batches, model and optimizer for `fit` from a recipe."""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import keras

from kerasbert.backend.keras_adapter import all_layers
from kerasbert.checkpoints.folder import find_folder
from kerasbert.checkpoints.presets import config_of
from kerasbert.data import Batches, Corpus, Tokenizer
from kerasbert.models import Backbone
from kerasbert.objectives import TSDAE, MaskedLM
from kerasbert.training import AlternatingOptimizers, LossScale

from ..recipes import tree
from ..recipes.data import Data, Phase, named
from ..recipes.models import Size
from ..recipes.phases import Phases
from ..recipes.recipe import Evaluation, Recipe


def make_batches(recipe: Recipe, corpus: Corpus | dict[str, Corpus]) -> Batches:
    """Creates the batches of the whole run."""
    parts, before = [], 0
    for number, phase in enumerate(recipe.phases):
        seed = recipe.seed + (number if phase.seed is None else phase.seed)
        batches = recipe.data(corpus, dataclasses.replace(phase, seed=seed))
        parts.append(batches.within(before / recipe.steps, (before + phase.steps) / recipe.steps))
        before += phase.steps
    return (parts[0] if len(parts) == 1 else Phases(parts)).accumulated(recipe.accumulation)


def evaluation_batches(
    recipe: Recipe, corpus: Corpus | dict[str, Corpus], steps: int | None = None, changes: Evaluation | None = None
) -> Batches:
    """Creates batches for evaluation, which have the same rows and masks every time.

    For one corpus, they are one pass over it, or its first `steps` batches. For several corpora, they are `steps`
    batches (default: 100), mixed in the same proportions as in training.

    Args:
        changes: what differs from the evaluation during training.
    """
    evaluation, first = recipe.held_out | (changes or Evaluation()), recipe.phases[0]
    rows, length = evaluation.batch_size or min(first.batch_size, 128), evaluation.length or first.length
    data, phase = _with_changes(recipe.data, evaluation.data), Phase(None, rows, length, recipe.seed)
    if len(named(corpus)) > 1:
        return data(corpus, dataclasses.replace(phase, steps=steps or 100))
    whole = data(corpus, phase)
    return whole if steps is None or len(whole) <= steps else data(corpus, dataclasses.replace(phase, steps=steps))


def _with_changes(data: Data, changes: dict) -> Data:
    stored = tree.written(data)
    for path, value in changes.items():
        stored = tree.changed(stored, Data, path, value, tree.checked)
    return tree.read(Data, stored)


def unigram_loss(corpora: dict[str, Corpus], held_out: dict[str, Corpus] | None) -> float:
    """Loss of a model that uses only token frequencies, in nats per token, averaged over the corpora."""
    losses = {name: text.unigram_entropy() for name, text in corpora.items()}
    if held_out is not None:
        fallback = next(iter(corpora.values()))
        losses = {name: corpora.get(name, fallback).unigram_loss(text) for name, text in held_out.items()}
    return sum(losses.values()) / len(losses)


class BelowUnigrams(keras.callbacks.Callback):
    """Reports how far the loss is below that of a unigram model, on held-out text if there is any."""

    def __init__(self, entropy: float):
        super().__init__()
        self.entropy = entropy

    def on_epoch_end(self, epoch, logs=None):
        logs = {} if logs is None else logs
        if not any(name.endswith("perplexity") for name in logs):
            return
        logs["below_unigram"] = self.entropy - math.log(logs.get("val_perplexity", logs.get("perplexity")))


def make_model(recipe: Recipe, corpus: Corpus, teacher: str | Path | MaskedLM = "", init_from: str | Path = ""):
    """Creates the objective for the vocabulary of a corpus, with random weights or the weights in `init_from`.

    Args:
        corpus: the corpus. Its tokenizer becomes the tokenizer of the model.
        teacher: the teacher, a MaskedLM, or its folder.
        init_from: folder of the model whose training continues.
    """
    tokenizer, objective = corpus.tokenizer(), recipe.model.objective
    _check_length(recipe)
    options = dict(tokenizer=tokenizer, dtype=recipe.policy, **objective.options(recipe.accumulation))
    options |= recipe.data.objective()
    if init_from:
        corpus.check_tokenizer(_tokenizer_of(init_from))
    if objective.distils:
        is_open = isinstance(teacher, MaskedLM)
        source = teacher or recipe.teacher
        options["teacher"] = source if is_open else MaskedLM.from_preset(source, dtype=recipe.policy)
        if not is_open and options["teacher"].tokenizer is not None:
            corpus.check_tokenizer(options["teacher"].tokenizer)
    return objective.make(recipe.model, functools.partial(_new_model, recipe, tokenizer), init_from, **options)


def _new_model(
    recipe: Recipe, tokenizer: Tokenizer, cls: type, size: Size, folder: str | Path = "", /, **arguments: Any
):
    """Creates a model of a class, with random weights or those in a folder."""
    arguments = {"dtype": recipe.policy, **arguments}
    if folder:
        _check_start(recipe, size, folder)
        return cls.from_preset(folder, **size.known(recipe.data.config()), **arguments)
    fields = size.known(_ids(tokenizer, recipe.data.starts_with_end) | recipe.data.config())
    return cls.from_preset(size.size, load_weights=False, **fields, **arguments)


def _check_start(recipe: Recipe, size: Size, folder: str | Path) -> None:
    """Raises a ValueError if a model whose training continues has another architecture or size than the recipe."""
    family, config = config_of(folder)
    unknown = [name for name in size.config if not hasattr(config, name)]
    if unknown:
        raise ValueError(
            f"A run continues a model of the recipe's family, {size.family.__name__}. Received: {folder} of the class "
            f"{family.__name__}, which has no {', '.join(unknown)}. Choose a recipe of its family."
        )
    stored = {name: getattr(config, name) for name in size.config if name.startswith("num_") or name.endswith("_dim")}
    others = {name: value for name, value in stored.items() if value != size.config[name]}
    if others:
        prefix = "model" if size is recipe.model else "model.objective.generator"
        raise ValueError(
            "A run continues a model of the recipe's size. Received: "
            f"{', '.join(f'{name}={size.config[name]}' for name in others)} in the recipe, and {folder} with "
            f"{', '.join(f'{name}={value}' for name, value in others.items())}. Use --set "
            f"{' '.join(f'{prefix}.{name}={value}' for name, value in others.items())}"
        )


def _ids(tokenizer: Tokenizer, starts_with_end: bool) -> dict[str, int]:
    """Returns the fields of a config that a tokenizer determines.

    Args:
        tokenizer: the tokenizer.
        starts_with_end: whether decoders start with the end token rather than with the padding token.
    """
    info = tokenizer.info
    ids = {name: info[name] for name in ("pad_id", "bos_id", "eos_id", "cls_id", "sep_id")}
    ids["eos_id"] = ids["sep_id"] if ids["eos_id"] is None else ids["eos_id"]
    ids["bos_id"] = ids["cls_id"] if ids["bos_id"] is None else ids["bos_id"]
    ids["decoder_start_id"] = ids["eos_id" if starts_with_end else "pad_id"]
    found = {name: value for name, value in ids.items() if value is not None}
    return {**found, "vocabulary_size": tokenizer.vocabulary_size}


def _tokenizer_of(model: str | Path) -> Tokenizer:
    """Returns the tokenizer in the folder of a model, which may also be hf://org/name or a model of the package."""
    folder = find_folder(model)
    inside = folder / "discriminator"
    return Tokenizer.load(inside if inside.is_dir() else folder)


def rematerialize(model) -> None:
    """Calls `Backbone.rematerialize` for all trainable backbones of a model.

    Raises:
        ValueError: if the model is a TSDAE, whose layers are called in two ways.
    """
    if isinstance(model, TSDAE):
        raise ValueError(
            "TSDAE calls its layers in two ways, so their activations cannot be recomputed. Leave out --less-memory."
        )
    for part in all_layers(model):
        if isinstance(part, Backbone) and part.trainable:
            part.rematerialize()


def _check_length(recipe: Recipe) -> None:
    longest, family = max(phase.length for phase in recipe.phases), recipe.model.family
    max_tokens = getattr(recipe.config(), "max_length", None) if family.learned_positions else None
    if max_tokens is not None and max_tokens < longest:
        raise ValueError(
            f"Rows must not be longer than the position table. Received: rows of {longest} tokens, "
            f"model.max_length={max_tokens}. Use --set model.max_length={longest}."
        )


def make_optimizer(recipe: Recipe):
    """Creates what the recipe's model is compiled with: one optimizer, or `AlternatingOptimizers` of equal settings."""
    if getattr(recipe.model.objective, "alternating", False):
        return AlternatingOptimizers(one_optimizer(recipe), one_optimizer(recipe))
    return one_optimizer(recipe)


def one_optimizer(recipe: Recipe):
    """Creates an optimizer of the recipe with its schedule, and with loss scaling for float16."""
    further = {name: getattr(recipe.model.objective, name) for name in recipe.optimizer.needs}
    optimizer = recipe.optimizer(recipe.steps, recipe.accumulation, **further)
    return LossScale(optimizer) if recipe.policy == "mixed_float16" else optimizer
