"""Describes a model, a size of a paper, a recipe, a corpus, or this installation.

python -m pipelines.info saved_models/mine
python -m pipelines.info bert_base --length 128
python -m pipelines.info modernbert.base --json
"""

import contextlib
import dataclasses
import importlib.metadata
import json as json_format
import os
import platform
from pathlib import Path

import keras

import kerasbert
from kerasbert.core.initializers import zero_weights
from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import Backbone

from ..command_line.command import Command
from ..recipes import tree
from ..recipes.recipe import Evaluation
from ..runs.building import one_optimizer
from .costs import Costs, Rows, costs
from .files import files_of
from .operations import traced
from .subjects import Subject, find_subject, phases
from .text import as_text
from .uses import uses

PACKAGES = (
    "keras",
    "jax",
    "tensorflow-cpu",
    "tensorflow",
    "torch",
    "tokenizers",
    "safetensors",
    "numpy",
    "transformers",
    "gradio",
)


def info(
    subject: str | None = None,
    model_class: str | None = None,
    length: int | None = None,
    batch_size: int | None = None,
    dtypes: tuple[str, ...] = ("float32", "mixed_bfloat16", "bfloat16"),
    set: tuple[str, ...] = (),
    teraflops: float | None = None,
    settings: bool = False,
    json: bool = False,
) -> dict:
    """Describes a model, a size of a paper, a recipe, a corpus, or this installation.

    No tensors are computed, so describing a size with 11 billion weights takes seconds. A model folder is loaded once.
    Operations are counted for matrix products, where a multiplication and an addition count as two. Training takes
    three times as many. Estimates of memory do not include the backend's program, its temporary buffers, and the
    framework itself.

    Args:
        subject: folder of a model or a corpus, a shipped model such as bert_mini_en, hf://org/name, a size such as
            bert_base, or a recipe such as bert.base or recipes.py:mine. Default: this installation.
        model_class: for a size, the class of the model, such as TextClassifier. Default: its pretraining objective.
        length: tokens per row. Default: the length in the recipe, or else 512, or the maximum of the model if that is
            smaller.
        batch_size: rows per batch. Default: the value in the recipe, or else 32.
        dtypes: Keras dtype policies for which memory is estimated.
        set: overrides of a recipe, as in `pretrain`.
        teraflops: operations per second that your hardware sustains, in 10^12, to compute the hours of a recipe. Large
            models reach a third to a half of a GPU's peak, and small ones less.
        settings: print all settings: the whole config of a model, and the names that --set changes in a recipe.
        json: print JSON.

    Returns: the description, a dict, which is printed if `json` is True.
    """
    if subject is None:
        found = installation()
    elif (Path(subject) / "corpus.json").is_file():
        found = corpus_facts(Path(subject))
    else:
        found = model_facts(find_subject(subject, model_class, set), length, batch_size, dtypes)
    if teraflops is not None:
        found = with_hours(found, teraflops)
    print(json_format.dumps(found, indent=2, ensure_ascii=False) if json else as_text(found, settings), flush=True)
    return found


def model_facts(subject: Subject, length: int | None, batch_size: int | None, dtypes: tuple[str, ...]) -> dict:
    """Describes a model folder, a size or a recipe."""
    recipe = subject.recipe
    facts = created(lambda: subject.make(dtypes[0]), what_it_is)
    limit = facts.pop("position_limit")
    if limit is not None and length is not None and length > limit:
        raise ValueError(f"Rows of {subject.name} have at most {limit} tokens. Received: length={length}.")
    rows = subject.rows(batch_size, length, min(filter(None, (limit, facts.pop("max_length"))), default=None))
    # The state of two optimizers that take turns is as large as that of one, apart from the counters.
    optimizer = None if recipe is None else lambda: one_optimizer(recipe)
    taken = {dtype: costs(lambda dtype=dtype: subject.make(dtype), rows, optimizer) for dtype in dtypes}
    first = taken[dtypes[0]]
    found = {"subject": subject.name, "kind": subject.kind, **facts}
    found["weights"] = {"total": sum(first.parts.values()), "trained": first.trained, "parts": first.parts}
    found["batch"] = {key: value for key, value in vars(rows).items() if value is not None}
    found["operations"] = operations(first, rows)
    found["memory"] = {dtype: memory(one) for dtype, one in taken.items()}
    if subject.folder is not None:
        found["files"] = files_of(subject.folder)
    found["tokenizer"] = None if subject.tokenizer is None else tokenizer_facts(subject.tokenizer)
    if recipe is not None:
        found["run"] = run_facts(subject, first, rows)
    return found


def with_hours(found: dict, teraflops: float) -> dict:
    """Adds the hours of a run of a recipe on hardware that sustains a number of operations per second."""
    if not teraflops > 0:
        raise ValueError(f"`teraflops` must be above 0. Received: {teraflops}.")
    if "run" not in found:
        raise ValueError(f"`teraflops` is for recipes, whose hours it gives. Received: a {found['kind']}.")
    hours = found["run"]["operations"] / (teraflops * 1e12) / 3600
    return found | {"run": found["run"] | {"teraflops": teraflops, "hours": hours}}


def created(make, describe):
    """Returns `describe(model)` for a model that is created without memory for its weights."""

    def function():
        with zero_weights():
            return describe(make())

    return traced(function)


def what_it_is(model) -> dict:
    """Describes the classes, the configs and the uses of a model."""
    halves = {name: getattr(model, name) for name in getattr(model, "PARTS", ())} or {"": model}
    backbones = {name: getattr(half, "backbone", half) for name, half in halves.items()}
    first = next(iter(backbones.values()))
    arguments = {} if isinstance(model, Backbone) else model.arguments()
    return {
        "class": type(model).__name__,
        "backbone": type(first).__name__,
        "model_type": first.config.model_type,
        "arguments": {key: value for key, value in arguments.items() if value not in (None, {}, [])},
        "configs": {name: config_facts(backbone.config) for name, backbone in backbones.items()},
        "uses": uses(model),
        "position_limit": min((b.position_limit for b in backbones.values() if b.position_limit), default=None),
        "max_length": getattr(first.config, "max_length", None),
    }


def config_facts(config) -> dict:
    """Returns {field: {"value", and "default" if the value differs from the default of the family}}."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        differs = default is not dataclasses.MISSING and value != default
        found[field.name] = {"value": value, **({"default": default} if differs else {})}
    return found


def operations(one: Costs, rows: Rows) -> dict:
    """Returns the operations of a forward pass and of a training step, per token and per row of a batch."""
    found = {}
    for name in ("forward", "training"):
        count = getattr(one, name)
        found[name] = {"per_token": count / one.tokens, "per_row": count / rows.count, "per_batch": count}
    return found


def memory(one: Costs) -> dict:
    """Returns the memory in bytes for training and for serving, by purpose."""
    train = ("weights", "half_weights", "gradients", "optimizer", "activations", "attention_weights")
    serve = ("weights", "half_weights", "forward_activations", "cache")
    return {
        "train": {**{name: getattr(one, name) for name in train}, "total": one.memory_to_train},
        "serve": {**{name: getattr(one, name) for name in serve}, "total": one.memory_to_serve},
    }


def tokenizer_facts(tokenizer: Tokenizer) -> dict:
    """Describes a tokenizer: its kind, vocabulary, special tokens, and normalization of text."""
    normalizer = tokenizer.backend.normalizer

    def normalized(text):
        return text if normalizer is None else normalizer.normalize_str(text)

    def row(template):
        return " ".join(item if isinstance(item, str) else tokenizer.token(item) for item, _ in template)

    return {
        "kind": tokenizer.content["model"]["type"],
        "vocabulary_size": tokenizer.vocabulary_size,
        "special_tokens": {role: {"token": t, "id": tokenizer.id(t)} for role, t in tokenizer.roles.items()},
        "lowercases": normalized("A") == "a" or tokenizer.preparation == "moses",
        "strips_accents": normalized("é") in ("e", "E"),
        "preparation": tokenizer.preparation,
        "row": row(tokenizer.template()),
        "pair": row(tokenizer.template(pair=True)),
        "padding_side": tokenizer.padding_side,
        "max_length": tokenizer.max_length,
        "hash": tokenizer.hash,
    }


def run_facts(subject: Subject, first: Costs, rows: Rows) -> dict:
    """Describes the schedule of a recipe, and counts the tokens and operations of the whole run."""
    recipe, parts_of_run, per_row = subject.recipe, phases(subject.recipe), {}
    for shape, _ in parts_of_run:
        if shape.length not in per_row:
            one = Rows(1, shape.length, shape.slots, shape.target_length)
            of_one = costs(lambda: subject.make(recipe.dtype), one)
            per_row[shape.length] = (of_one.training, of_one.tokens)
    totals = [[steps * shape.count * n for n in per_row[shape.length]] for shape, steps in parts_of_run]
    parts = {"objective": recipe.model.objective, "data": recipe.data, "optimizer": recipe.optimizer}
    parts |= {
        name: getattr(recipe, name) for name in ("held_out", "evaluation") if getattr(recipe, name) != Evaluation()
    }
    return {
        **{name: tree.shown(part) for name, part in parts.items()},
        "updates": recipe.steps,
        "phases": [{"rows": shape.count, "length": shape.length, "updates": steps} for shape, steps in parts_of_run],
        "tokens": sum(tokens for _, tokens in totals),
        "operations": sum(count for count, _ in totals),
        "dtype": "mixed_bfloat16 on GPUs and TPUs, float32 on CPUs" if recipe.dtype == "auto" else recipe.dtype,
        "accumulation": recipe.accumulation,
        **{name: value for name in ("teacher", "init_from") if (value := getattr(recipe, name))},
        "recipe": tree.written(recipe),
    }


def corpus_facts(folder: Path) -> dict:
    """Describes the counts, the sources and the tokenizer of a corpus."""
    corpus = Corpus.open(folder)
    return {
        "subject": str(folder),
        "kind": "corpus",
        "tokens": corpus.num_tokens,
        "sequences": corpus.num_sequences,
        "documents": corpus.num_documents,
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        "unigram_entropy": corpus.unigram_entropy(),
        "sources": corpus.summary.get("sources"),
        "tokenizer": tokenizer_facts(corpus.tokenizer()),
    }


def installation() -> dict:
    """Describes the versions and the devices of this installation."""
    installed = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name.removesuffix("-cpu")] = importlib.metadata.version(name)
    versions = {name: installed.get(name) for name in PACKAGES if not name.endswith("-cpu")}
    try:
        devices = keras.distribution.list_devices()
    except AttributeError:  # Keras lists devices only for JAX
        devices = None
    return {
        "kind": "installation",
        "kerasbert": kerasbert.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "backend": keras.backend.backend(),
        "devices": devices,
        "packages": versions,
    }


main = Command(
    info,
    groups={
        "what": ("subject", "model_class", "set"),
        "batch": ("length", "batch_size", "dtypes"),
        "time": ("teraflops",),
        "output": ("settings", "json"),
    },
    first=("subject",),
)
