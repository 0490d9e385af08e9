"""Training steps of recipes, lowered for devices that this machine does not have.

A step is what `fit` runs on JAX: forward and backward pass, optimizer and metrics, with donated buffers. The texts are
random words, because only their shapes matter.
"""

import dataclasses
import functools
import random
import re
import tempfile
from unittest import mock

import jax
import keras
import numpy as np
import pytest

from benchmarks.studies.tiny_recipes.texts import text_of
from kerasbert.backend import compiling_for
from kerasbert.core.initializers import zero_weights
from kerasbert.data import Corpus, Tokenizer, parallel_documents
from pipelines.info.operations import traced
from pipelines.info.subjects import recipe_model
from pipelines.recipes.data import TextAndTasks
from pipelines.recipes.recipe import Recipe, all_recipes, find_recipe
from pipelines.runs.building import make_batches, make_model, make_optimizer

PLATFORMS = {"gpu": "cuda", "tpu": "tpu"}
KERNELS = {
    "cudnn": re.compile(r"@__cudnn\$fmha(?!\w*Backward)"),
    "cudnn_backward": re.compile(r"@__cudnn\$fmha\w*Backward"),
    "flash": re.compile(r'@__gpu\$xla\.gpu\.triton.*?name = "_forward_kernel"', re.DOTALL),
    "flash_backward": re.compile(r'@__gpu\$xla\.gpu\.triton.*?name = "_backward_kernel"', re.DOTALL),
    "tpu": re.compile(r"@tpu_custom_call"),
}
# What recipes need because the vocabulary is so small.
SETTINGS = {"transformer_xl.tiny": ("model.cutoffs=(100,200)",)}


@functools.cache
def words():
    draw = random.Random(0)
    return ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(300)]


@functools.cache
def documents(count=120):
    draw = random.Random(1)
    return ["\n".join(" ".join(draw.choices(words(), k=12)) for _ in range(20)) for _ in range(count)]


@functools.cache
def tokenizer(kind, special):
    size = (190 if special == "t5" else 100) if kind == "unigram" else 400  # as large as the text supports
    return Tokenizer.train(kind, documents(), size, family=special)


@functools.cache
def corpora(text, kind, special):
    """{name: corpus} of random words in the form of a text of `recipe_texts`."""
    lines = [line for document in documents() for line in document.splitlines()]
    pairs = list(parallel_documents(lines[::2], lines[1::2]))
    names = {
        "languages": ("de", "en", "fr"),
        "novels in languages": ("de", "en", "fr"),
        "languages and pairs": ("de", "en", "fr", "de-en", "en-fr"),
        "captions": ("de-en",),
        "tasks": ("text", "qnli"),
        "french": ("fr",),
    }.get(text, ("en",))
    of = tokenizer(kind, special)
    return {name: Corpus.in_memory(pairs if "-" in name or name == "qnli" else documents(), of) for name in names}


def corpora_of(recipe: Recipe, name: str):
    """The corpora for a recipe by its name, in languages that it has."""
    texts = corpora(*text_of(name))
    known = getattr(recipe.data, "names", None)
    return {name: text for name, text in texts.items() if known is None or {*name.split("-")} <= {*known}}


def built(recipe: Recipe, name: str):
    """The compiled model of a recipe with its first batch."""
    texts = corpora_of(recipe, name)
    with tempfile.TemporaryDirectory() as folder:
        folders = {}
        if recipe.teacher:
            teacher = find_recipe(recipe.teacher)
            make_model(teacher, next(iter(texts.values()))).save_to_preset(folder)
            folders["teacher"] = folder
        model = make_model(dataclasses.replace(recipe, init_from=""), next(iter(texts.values())), **folders)
    model.compile(make_optimizer(recipe))
    batch = make_batches(recipe, texts)[0]
    if "stream_start" in batch[0]:
        model.start_memory(len(batch[0]["stream_start"]), True)
    return model, batch


def described(tree):
    return keras.tree.map_structure(lambda x: jax.ShapeDtypeStruct(tuple(x.shape), str(np.dtype(x.dtype))), tree)


def lowered(model, batch, kind, **device):
    """The text of a compiled model's training step for a device; see `compiling_for`."""
    for optimizer in getattr(model.optimizer, "optimizers", None) or [model.optimizer]:
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
    groups = model.trainable_variables, model.non_trainable_variables, model.optimizer.variables
    state = [[jax.ShapeDtypeStruct(v.shape, v.dtype) for v in group] for group in (*groups, model.metrics_variables)]
    step = jax.jit(model.train_step, donate_argnums=0)
    with compiling_for(kind, **device):
        return step.trace(tuple(state), described(batch)).lower(lowering_platforms=(PLATFORMS[kind],)).as_text()


def prediction_of(model, x, kind, **device):
    """The text of the program that `predict` runs."""
    state = [
        [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in g]
        for g in (model.trainable_variables, model.non_trainable_variables)
    ]
    with compiling_for(kind, **device):
        step = jax.jit(model.predict_step)
        return step.trace(tuple(state), (described(x),)).lower(lowering_platforms=(PLATFORMS[kind],)).as_text()


class _Lowered(Exception):
    """Raised instead of running a program, with its text."""


def generation_of(model, kind, **device):
    """The text of the program that `generate` runs for two prompts."""
    compile_program = jax.jit

    def lowering(function, **options):
        def run(*arguments):
            traced_program = compile_program(function, **options).trace(*arguments)
            raise _Lowered(traced_program.lower(lowering_platforms=(PLATFORMS[kind],)).as_text())

        return run

    with compiling_for(kind, **device), mock.patch.object(jax, "jit", lowering), pytest.raises(_Lowered) as raised:
        model.generate(["the first", "a second prompt"], max_new_tokens=8)
    return str(raised.value)


def fused_calls(text):
    """{kernel: number of its calls}."""
    return {name: len(pattern.findall(text)) for name, pattern in KERNELS.items() if pattern.search(text)}


def step_of(name, kind="gpu", dtype="mixed_bfloat16", settings=(), **device):
    """The text of a recipe's training step for a device."""
    recipe = find_recipe(name).with_settings([*SETTINGS.get(name, ()), *settings])
    return lowered(*built(dataclasses.replace(recipe, dtype=dtype), name), kind, **device)


def abstract_step_of(name, kind="gpu", dtype="mixed_bfloat16", settings=(), rows=4, **device):
    """The text of a recipe's training step in the size of its paper, with a few rows, without allocating weights."""
    recipe = find_recipe(name).with_settings([f"batch_size={rows}", *settings])
    teacher = "bert.base" if recipe.teacher.startswith("hf://") else recipe.teacher
    recipe = dataclasses.replace(recipe, dtype=dtype, accumulation=1, teacher=teacher)
    text = "t5.tiny_multitask" if isinstance(recipe.data, TextAndTasks) else name
    batch = make_batches(recipe, corpora_of(recipe, text))[0]
    optimizer = make_optimizer(recipe)  # its counters cannot be created in a trace

    def run():
        with zero_weights():
            model = recipe_model(recipe)
        model.compile(optimizer)
        if "stream_start" in batch[0]:
            model.start_memory(rows, True)
        return lowered(model, batch, kind, **device)

    return traced(run)


def tiny_recipes():
    return [name for name in all_recipes() if name.partition(".")[2].startswith(("tiny", "v3_tiny"))]
