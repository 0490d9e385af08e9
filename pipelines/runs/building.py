"""Builds batches, model and optimizer for `fit` from a recipe."""

import inspect
import math
from pathlib import Path

import keras

import kerasbert.models
from kerasbert.backend.keras_adapter import all_layers
from kerasbert.checkpoints.folders import find_folder
from kerasbert.data import Batches, Corpus, MixtureBatches, Tokenizer, mixing_rates
from kerasbert.models import Backbone
from kerasbert.objectives import Discriminator, MaskedLM, start_from_teacher
from kerasbert.training import AlternatingOptimizers, LossScale, start_with_local_attention

from ..recipes.recipe import Recipe, parameters
from .phases import Mixed, Phases


def named(corpus: Corpus | dict[str, Corpus]) -> dict[str, Corpus]:
    """Returns {name: corpus}. A single corpus gets the name "text"."""
    return corpus if isinstance(corpus, dict) else {"text": corpus}


def make_batches(recipe: Recipe, corpus: Corpus | dict[str, Corpus]) -> Batches:
    """Creates the batches of the whole run."""
    corpora = named(corpus)

    def part(batch_size: int, length: int, steps: int, seed: int) -> Batches:
        shape = dict(batch_size=batch_size, length=length, accumulation=recipe.accumulation, seed=seed)
        return _batches(recipe, corpora, steps, shape)

    small, rows, seed = recipe.small_batches, recipe.batch_size, recipe.seed
    parts = [part(size, recipe.length, recipe.small_steps, seed + 2 + n) for n, size in enumerate(small)]
    main = recipe.steps - recipe.long_steps - len(small) * recipe.small_steps
    if main:
        parts.append(part(rows, recipe.length, main, seed))
    if recipe.long_steps:
        parts.append(part(rows, recipe.long_length, recipe.long_steps, seed + 1))
    return parts[0] if len(parts) == 1 else Phases(parts)


def evaluation_batches(recipe: Recipe, corpus: Corpus | dict[str, Corpus], steps: int | None = None) -> Batches:
    """Creates batches for evaluation, which have the same rows and masks every time.

    For one corpus, they are one pass over it, or its first `steps` batches. For several corpora, they are `steps`
    batches (default: 100), mixed in the same proportions as in training.
    """
    corpora = named(corpus)
    shape = dict(batch_size=min(recipe.batch_size, 128), length=recipe.length, seed=recipe.seed)
    shape |= {key: value for key, value in recipe.held_out.items() if key in shape}
    if len(corpora) > 1:
        return _batches(recipe, corpora, steps or 100, shape, recipe.held_out)
    whole = _batches(recipe, corpora, None, shape, recipe.held_out)
    return whole if steps is None or len(whole) <= steps else _batches(recipe, corpora, steps, shape, recipe.held_out)


def _batches(
    recipe: Recipe, corpora: dict[str, Corpus], steps: int | None, shape: dict, changes: dict | None = None
) -> Batches:
    """Creates the batches of one corpus, or a mixture of the batches of several corpora."""
    if len(corpora) == 1:
        shape = {**shape, "steps": steps}
    parts, groups = {}, {}
    for name, text in corpora.items():
        group, numbers = _languages_of(recipe, name)
        cls = recipe.class_of(group)
        options = {**shape, **numbers, **getattr(recipe, group), **(changes or {} if group == "data" else {})}
        accepted = parameters(cls)
        if options.get("accumulation", 1) > 1 and "accumulation" not in accepted:
            raise ValueError(
                f"{cls.__name__} does not support accumulation. Received: accumulation={recipe.accumulation}. Use 1."
            )
        make = getattr(cls, "from_settings", cls)
        parts[name] = make(text, **{key: value for key, value in options.items() if key in accepted})
        groups.setdefault(group, []).append(name)
    if len(parts) == 1:
        return next(iter(parts.values()))
    rates = _task_rates(recipe, parts) if recipe.unlabelled else {}
    for names in (
        () if rates else groups.values()
    ):  # as in XLM, the share of a group is proportional to its number of corpora, but at most 5
        sizes = [corpora[name].num_tokens for name in names]
        shares = mixing_rates(sizes, recipe.sampling_exponent, recipe.sampling_limit)
        rates |= {name: float(share) * min(5, len(names)) for name, share in zip(names, shares, strict=True)}
    options = {key: value for key, value in shape.items() if key != "length"}
    mixture = MixtureBatches(parts, rates, steps=steps, by=recipe.mixed_by, **options)
    return Mixed(mixture) if len(groups) > 1 and not recipe.unlabelled else mixture


def _task_rates(recipe: Recipe, parts: dict[str, Batches]) -> dict[str, float]:
    """Computes mixing rates proportional to the number of examples, up to `sampling_limit` (T5, section 3.5).

    For unlabelled text, the number of examples is a setting of the recipe.
    """
    limit = recipe.sampling_limit or math.inf
    sizes = {name: min(part.num_pairs, limit) for name, part in parts.items() if name != recipe.unlabelled}
    sizes |= {name: recipe.unlabelled_examples for name in parts if name == recipe.unlabelled}
    return dict(zip(sizes, mixing_rates(list(sizes.values()), recipe.sampling_exponent).tolist(), strict=True))


def _languages_of(recipe: Recipe, name: str) -> tuple[str, dict]:
    """Returns (the recipe's group of settings for the named corpus, arguments with the indices of its languages)."""
    if recipe.unlabelled:
        return "data" if name == recipe.unlabelled else "pair_data", {}
    if not recipe.languages:
        return "data", {}
    if name in recipe.languages:
        return "data", {"language": recipe.languages.index(name)}
    ends = name.split("-")
    if recipe.pairs and len(ends) == 2 and all(end in recipe.languages for end in ends):
        return "pair_data", {"languages": tuple(recipe.languages.index(end) for end in ends)}
    pairs = " and pairs such as " + "-".join(recipe.languages[:2]) if recipe.pairs else ""
    raise ValueError(
        f"This recipe has the languages {', '.join(recipe.languages)}{pairs}. Received: a corpus {name!r}. Use "
        f"--corpus {recipe.languages[0]}=folder, or --set languages=."
    )


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


def make_model(recipe: Recipe, corpus: Corpus, teacher: str | Path = "", init_from: str | Path = ""):
    """Creates the objective for the vocabulary of a corpus, with random weights or the weights in `init_from`.

    Args:
        corpus: the corpus. Its tokenizer becomes the tokenizer of the model.
        teacher: folder of the teacher, a MaskedLM.
        init_from: folder of the model whose training continues.
    """
    tokenizer = corpus.tokenizer()
    _check_length(recipe)
    cls = recipe.class_of("objective_options")
    options = dict(tokenizer=tokenizer, **recipe.objective_options)
    if "transfer_steps" in options:  # recipes count updates, objectives count batches
        options["transfer_steps"] *= recipe.accumulation
    start = dict(dtype=recipe.policy)
    if init_from:
        corpus.check_tokenizer(_tokenizer_of(init_from))

    def new(kind, size: str, group: str, **arguments):
        if init_from:
            return kind.from_preset(init_from, **start, **recipe.config, **arguments)
        fields = _config_fields(recipe, tokenizer, group)
        return kind.from_preset(size, load_weights=False, **start, **fields, **arguments)

    if recipe.generator and not init_from:
        generator = new(Backbone, recipe.generator, "generator_config")
        discriminator = new(Discriminator, recipe.backbone, "config").backbone
        _start(recipe, generator, discriminator)
        return cls(generator, discriminator, dtype=recipe.policy, **options)
    if not recipe.teacher:
        model = new(cls, recipe.backbone, "config", **options)
        if not init_from:
            _start(recipe, model.backbone)
        return model
    teacher = MaskedLM.from_preset(teacher or recipe.teacher, dtype=recipe.policy)
    if teacher.tokenizer is not None:
        corpus.check_tokenizer(teacher.tokenizer)
    student = new(MaskedLM, recipe.backbone, "config", sentence_pair=recipe.labelled_pairs)
    if not init_from:
        start_from_teacher(student, teacher, **recipe.from_teacher)
    return cls(student, teacher, dtype=recipe.policy, **options)


def _tokenizer_of(model: str | Path) -> Tokenizer:
    """Returns the tokenizer in the folder of a model, which may also be hf://org/name or a model of the package."""
    folder = find_folder(model)
    inside = folder / "discriminator"
    return Tokenizer.load(inside if inside.is_dir() else folder)


def _start(recipe: Recipe, *backbones: Backbone) -> None:
    """Changes the random weights of new models according to the recipe."""
    for backbone in backbones if recipe.local_start else ():
        start_with_local_attention(backbone, **recipe.local_start)


def rematerialize(model) -> None:
    """Calls `Backbone.rematerialize` for all trainable backbones of a model."""
    for part in all_layers(model):
        if isinstance(part, Backbone) and part.trainable:
            part.rematerialize()


def _check_length(recipe: Recipe) -> None:
    longest = max(recipe.length, recipe.long_length)
    family = next(f for f in kerasbert.models.FAMILIES.values() if recipe.backbone in f.family.sizes)
    max_tokens = getattr(recipe.backbone_config(), "max_length", None) if family.learned_positions else None
    if max_tokens is not None and max_tokens < longest:
        raise ValueError(
            f"Rows must not be longer than the position table. Received: rows of {longest} tokens, "
            f"config.max_length={max_tokens}. "
            f"Use --set config.max_length={longest}."
        )


def _config_fields(recipe: Recipe, tokenizer: Tokenizer, group: str) -> dict:
    """Returns the config fields given by the recipe, and those determined by the tokenizer and the languages."""
    info = tokenizer.info
    ids = {name: info[name] for name in ("pad_id", "bos_id", "eos_id", "cls_id", "sep_id")}
    ids["eos_id"] = ids["sep_id"] if ids["eos_id"] is None else ids["eos_id"]
    ids["bos_id"] = ids["cls_id"] if ids["bos_id"] is None else ids["bos_id"]
    ids["decoder_start_id"] = ids["pad_id"]
    fields = {name: value for name, value in ids.items() if value is not None}
    fields["vocabulary_size"] = tokenizer.vocabulary_size
    if recipe.languages:
        numbers = {name: number for number, name in enumerate(recipe.languages)}
        fields |= {"num_languages": len(numbers), "language_names": numbers}
    known = recipe.fields_of(group)
    return {**{name: value for name, value in fields.items() if name in known}, **getattr(recipe, group)}


def make_optimizer(recipe: Recipe):
    """Creates what the recipe's model is compiled with: one optimizer, or `AlternatingOptimizers` of equal settings."""
    if recipe.alternating:
        return AlternatingOptimizers(one_optimizer(recipe), one_optimizer(recipe))
    return one_optimizer(recipe)


def one_optimizer(recipe: Recipe):
    """Creates an optimizer of the recipe with its schedule, and with loss scaling for float16."""
    schedule, optimizer = recipe.class_of("schedule"), recipe.class_of("optimizer")
    steps = {"steps": recipe.steps} if "steps" in inspect.signature(schedule).parameters else {}
    optimizer = optimizer(
        schedule(**steps, **recipe.schedule),
        gradient_accumulation_steps=recipe.accumulation if recipe.accumulation > 1 else None,
        **recipe.optimizer,
    )
    return LossScale(optimizer) if recipe.policy == "mixed_float16" else optimizer
