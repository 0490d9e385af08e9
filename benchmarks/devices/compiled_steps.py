"""The training steps that `tpu_compile` and `gpu_compile` compile: paper models, layouts of devices, shallow models.

A step is the one that `fit` runs: forward, backward, optimizer and metrics, in bfloat16, with donated buffers. A
program takes minutes to compile, so two shallow models are compiled, and deep ones are extrapolated linearly.
"""

import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path

GIB = 2**30
NO_DROPOUT = ("model.dropout=0.0", "model.attention_dropout=0.0")
NO_GENERATOR_DROPOUT = ("model.objective.generator.dropout=0.0", "model.objective.generator.attention_dropout=0.0")


@dataclasses.dataclass(frozen=True)
class Model:
    """A recipe with overrides.

    Args:
        recipe: its name.
        length: tokens in a row.
        vocabulary: number of tokens in the vocabulary.
        layers: number of blocks of the whole model.
        shallow: numbers of blocks from which deeper models are extrapolated.
        settings: further overrides of the recipe.
        no_dropout: the overrides that turn off the dropout of the paper. Empty if the paper has none.
        window: keys on each side to which the queries of local blocks attend; every third block is global.
        causal: whether tokens attend to earlier tokens only.
    """

    recipe: str
    length: int
    vocabulary: int
    layers: int
    shallow: tuple[int, int] = (2, 4)
    settings: tuple[str, ...] = ()
    no_dropout: tuple[str, ...] = ()
    window: int | None = None
    causal: bool = False

    def overrides(self, layers: int, rows: int) -> list[str]:
        sizes = [f"phases=[(2,{rows},{self.length})]", "dtype=mixed_bfloat16", f"model.num_layers={layers}"]
        return [*sizes, f"model.vocabulary_size={self.vocabulary}", "warmup=1", *self.settings]

    def attended(self, layers: int) -> float:
        """The mean share of the keys of a row that a query attends to, without masks of padding and packed rows."""
        if self.causal:
            return 0.5
        if self.window is None:
            return 1.0
        whole = -(-layers // 3)
        return (whole + (layers - whole) * min(1.0, (2 * self.window + 1) / self.length)) / layers


def _replaced(recipe: str, vocabulary: int) -> Model:
    settings = (f"model.objective.generator.vocabulary_size={vocabulary}",)
    return Model(recipe, 512, vocabulary, 12, settings=settings, no_dropout=NO_DROPOUT + NO_GENERATOR_DROPOUT)


PAPERS = {
    "bert_base": Model("bert.base", 512, 30_522, 12, no_dropout=NO_DROPOUT),
    "bert_large": Model("bert.large", 512, 30_522, 24, no_dropout=NO_DROPOUT),
    # Rows are packed, as in the paper. Every third layer is global.
    "modernbert_base_1024": Model("modernbert.base", 1_024, 50_368, 22, (3, 6), window=64),
    "modernbert_base_8192": Model("modernbert.base_long", 8_192, 50_368, 22, (3, 6), ("init_from=",), window=64),
    "modernbert_base_8192_chunks": Model(
        "modernbert.base_long", 8_192, 50_368, 22, (3, 6), ("init_from=", "data.rows=chunks"), window=64
    ),
    "t5_base": Model("t5.base", 512, 32_128, 12, no_dropout=("model.dropout=0.0",)),
    "electra_base": _replaced("electra.base", 30_522),
    "deberta_v3_base": _replaced("deberta.v3_base", 128_100),
    "gpt2": Model(
        "gpt2.small", 1_024, 50_257, 12, no_dropout=(*NO_DROPOUT, "model.embedding_dropout=0.0"), causal=True
    ),
}
# Names without "_dropout" are models without the paper's dropout.
MODELS = {name: dataclasses.replace(m, settings=m.settings + m.no_dropout) for name, m in PAPERS.items()}
MODELS |= {f"{name}_dropout": model for name, model in PAPERS.items() if model.no_dropout}


# === The step ===


def prepare() -> None:
    """Makes this process use JAX, with arrays on the CPU. Call it before JAX and Keras are imported."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}


def example_corpus(recipe: str):
    """Returns a corpus of random words with a tokenizer as large as this text supports."""
    from kerasbert.data import Corpus, Tokenizer

    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(500)]
    documents = ["\n".join(" ".join(draw.choices(words, k=12)) for _ in range(40)) for _ in range(300)]
    family = recipe.partition(".")[0]
    kinds = {"t5": ("unigram", 200, "t5"), "deberta": ("unigram", 120, None), "gpt2": ("byte_bpe", 500, "gpt2")}
    kind, size, family = kinds.get(family, ("wordpiece", 500, None))
    return Corpus.in_memory(documents, Tokenizer.train(kind, documents, size, family=family))


def built(model_of: Model, layers: int, rows: int):
    """Returns (model, one batch): the model is compiled, and its optimizer is built."""
    from kerasbert.backend import seed_everything
    from pipelines.recipes.recipe import find_recipe
    from pipelines.runs.building import make_batches, make_model, make_optimizer

    recipe = find_recipe(model_of.recipe).with_settings(model_of.overrides(layers, rows))
    corpus = example_corpus(model_of.recipe)
    batch = make_batches(recipe, {"text": corpus})[0]
    seed_everything(0)
    model = make_model(recipe, corpus)
    model.compile(make_optimizer(recipe))
    model.optimizer.build(model.trainable_variables)
    return model, batch


def mesh_of(devices, layout: str):
    """Returns (Keras mesh, number of parts of the rows) for a layout of devices."""
    import keras
    import numpy as np

    parts = 4 if layout == "tensor" else 1
    shape = (len(devices) // parts, parts) if layout == "tensor" else (len(devices),)
    return keras.distribution.DeviceMesh(shape, ("batch", "model")[: len(shape)], np.array(devices)), shape[0]


def lowered_step(model_of: Model, layers: int, rows: int, devices, layout: str, **target):
    """Lowers one training step.

    Args:
        model_of: a `Model`.
        layers: number of its blocks.
        rows: rows a device.
        devices: the described devices.
        layout: "one" for a single device without a layout, or a name that `parallel` knows.
        target: arguments of `compiling_for`.

    Returns: (lowered program, dict of the number of parameters and of the bytes of the state of a device).
    """
    import jax
    import keras

    from kerasbert.backend import compiling_for, parallel
    from kerasbert.core.initializers import zero_weights

    mesh, shards = mesh_of(devices, layout)
    with zero_weights():  # only their shapes are used
        model, (x, y, *weights) = built(model_of, layers, rows * shards)
    if layout != "one":
        keras.distribution.set_distribution(parallel(layout, mesh))
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    placed = _placements(model, mesh, None if layout == "one" else keras.distribution.distribution())

    def described(variable):
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=placed(variable))

    def described_row(array):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=placed(array))

    state = tuple([described(v) for v in group] for group in (*groups, model.metrics_variables))
    data = keras.tree.map_structure(described_row, (x, y, *weights))
    shardings = keras.tree.map_structure(lambda leaf: leaf.sharding, state)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(None, shardings))
    with compiling_for(devices=len(devices), **target):
        lowered = step.lower(state, data)
    leaves = jax.tree.leaves(state)
    size = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    return lowered, {"parameters": sum(math.prod(v.shape) for v in groups[0]), "state_bytes": size}


def _placements(model, mesh, distribution):
    """Returns a function of a variable or an array of the batch that gives its sharding."""
    import jax

    if distribution is None:
        sharding = jax.sharding.SingleDeviceSharding(mesh.devices.flatten()[0])
        return lambda _: sharding
    by_name = {v.path.replace("/", "_"): v for v in model.trainable_variables}

    def placed(array):
        if not hasattr(array, "path"):
            return distribution.get_data_layout(array.shape).backend_layout
        # The state of the optimizer for a weight is divided as the weight is.
        like = next((v for name, v in by_name.items() if array.path.split("/")[-1].startswith(name + "_")), array)
        return distribution.get_variable_layout(like if like.shape == array.shape else array).backend_layout

    return placed


def compiled_in(lowered):
    """Returns (compiled program, seconds of the processor that it took)."""
    start = time.process_time()  # other programs may pause this one
    compiled = lowered.compile()
    return compiled, round(time.process_time() - start, 1)


def memory(compiled) -> dict:
    """Bytes of a device, as the compiler counts them."""
    found = compiled.memory_analysis()
    return {
        "arguments": found.argument_size_in_bytes,
        "outputs": found.output_size_in_bytes,
        "aliased": found.alias_size_in_bytes,
        "temporaries": found.temp_size_in_bytes,
    }


# === Cells: one line for each compiled program ===


def read(results: Path) -> dict:
    lines = results.read_text().splitlines() if results.exists() else []
    return {cell["cell"]: cell for cell in map(json.loads, lines)}


def append(results: Path, found: dict) -> None:
    with open(results, "a") as file:
        file.write(json.dumps(found) + "\n")
    print(json.dumps(found))


def run_missing(module: str, results: Path, names, chosen) -> None:
    """Compiles each missing program in a process of its own. `chosen` is a compiled regular expression."""
    for name in names:
        if name in read(results) or not chosen.search(name):
            continue
        print(name, flush=True)
        subprocess.run([sys.executable, "-m", module, "--cell", name], check=False)


def memory_of(row: dict) -> float:
    """Bytes of a device: arguments, temporaries, and outputs that do not reuse the memory of arguments."""
    return row["arguments"] + row["temporaries"] + row["outputs"] - row["aliased"]


def extrapolated(less: dict, more: dict, shallow: tuple[int, int], layers: int) -> dict:
    """The numbers of a model of `layers` blocks, linear in those of two shallow ones, and the sum of compile times."""
    steps = (layers - shallow[0]) / (shallow[1] - shallow[0])
    numbers = {
        key: value + (more[key] - value) * steps
        for key, value in less.items()
        if isinstance(value, (int, float)) and key != "compile_seconds"
    }
    seconds = [cell["compile_seconds"] for cell in (less, more)]
    return {**numbers, "compile_seconds": None if None in seconds else sum(seconds)}
