"""Training steps compiled for TPUs on a machine without one: memory, arithmetic, communication, fused attention.

    pip install "jax[tpu]"
    KERAS_BACKEND=jax python benchmarks/tpu_compile.py

XLA's compiler for TPUs runs on any machine. Each row is the step that `fit` runs (forward, backward, optimizer,
metrics; bfloat16) of a recipe, compiled for a topology and a layout of devices, and read: bytes of memory a device,
operations, bytes moved, collectives, calls of Pallas kernels. Nothing is executed, so no speed is measured: the
utilisation is what a roofline would allow, with collectives that overlap with nothing.

A program takes minutes to compile, so two shallow models are compiled, and deep ones are extrapolated linearly. Each
compiled program is a line of tpu_compile.jsonl, and the same command goes on with the rest; `--report` writes
tpu_compile.md. With JAX_OPTIMIZATION_LEVEL=O1 in the environment, the compiler takes a third of the time, and the
programs are rows of their own.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_suffix(".jsonl")
GIB = 2**30
# Of a chip: peak of bfloat16 in TFLOP/s, memory in GB, its bandwidth and that of the links to other chips in GB/s.
CHIPS = {"v5e": (197, 16, 819, 200), "v5p": (459, 95, 2_765, 600), "v6e": (918, 32, 1_640, 448)}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4, "s64": 8}
FULL = "full"  # the compiler's own level of optimisation
NO_DROPOUT = ("config.dropout=0.0", "config.attention_dropout=0.0")


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
    """

    recipe: str
    length: int
    vocabulary: int
    layers: int
    shallow: tuple[int, int] = (2, 4)
    settings: tuple[str, ...] = ()

    def overrides(self, layers: int, rows: int) -> list[str]:
        sizes = [f"batch_size={rows}", f"length={self.length}", "steps=2", "long_steps=0", "long_length=0"]
        sizes += ["small_steps=0", "small_batches=()", "dtype=mixed_bfloat16", f"config.num_layers={layers}"]
        return [*sizes, f"config.vocabulary_size={self.vocabulary}", "schedule.warmup=1", *self.settings]


MODELS = {
    "bert_base": Model("bert.base", 512, 30_522, 12, settings=NO_DROPOUT),
    "bert_base_dropout": Model("bert.base", 512, 30_522, 12),
    "bert_large": Model("bert.large", 512, 30_522, 24, settings=NO_DROPOUT),
    # Every third layer is global.
    "modernbert_base_1024": Model("modernbert.base", 1_024, 50_368, 22, (3, 6)),
    "modernbert_base_8192": Model("modernbert.base", 8_192, 50_368, 22, (3, 6)),
    "t5_base": Model("t5.base", 512, 32_128, 12, settings=("config.dropout=0.0",)),
    "electra_base": Model(
        "electra.base",
        512,
        30_522,
        12,
        settings=(
            *NO_DROPOUT,
            "generator_config.dropout=0.0",
            "generator_config.attention_dropout=0.0",
            "generator_config.vocabulary_size=30522",
        ),
    ),
    "deberta_v3_base": Model(
        "deberta.v3_base",
        512,
        128_100,
        12,
        settings=(
            *NO_DROPOUT,
            "generator_config.dropout=0.0",
            "generator_config.attention_dropout=0.0",
            "generator_config.vocabulary_size=128100",
        ),
    ),
}
REPORT = """# Programs for TPUs

Written by `tpu_compile.py --report`: training steps compiled for TPUs on a machine without one, and read. Everything is
of one device and one step, as the compiler counts it; operations inside Pallas kernels may be missing. `kernels` are
calls of Splash or flash attention. `float32` counts matrix products of float32 numbers, `scores` the stored arrays of
attention scores (0 of each is right). `roofline` is the share of the peak that arithmetic, memory and links would allow
if no communication overlapped with arithmetic; nothing was run. Compile times are of the processor. Collectives inside
loops are counted once. Weights are float32, and the programs of the level O1 gather them so (4 bytes a weight); at the
full level, they are first converted to bfloat16 (2 bytes). Layers are those of the encoder (and decoder) or of the
discriminator; generators are whole. DeBERTa stores the scores of positions, which depend on the text, and hands them to
the kernel as a bias. Gradients are summed in bfloat16; a vocabulary for input and output is summed a second time, in
float32, as what is looked up. With `tensor`, a vocabulary of 30,522 stays whole.
"""
# (model, topology, layout, rows a device, whether the whole model is compiled, too)
ROWS = (
    ("bert_base", "v5e:2x2", "data", 32, False),
    ("bert_base", "v5e:2x2", "fsdp", 32, False),
    ("t5_base", "v5e:2x2", "fsdp", 16, False),
    ("bert_large", "v5e:2x2", "tensor", 64, False),
    ("electra_base", "v5e:2x2", "data", 16, False),
    ("modernbert_base_1024", "v6e:2x2", "data", 16, False),
    ("bert_large", "v5e:4x4", "fsdp", 16, False),
    ("deberta_v3_base", "v5p:2x2x1", "fsdp", 32, False),
    ("modernbert_base_8192", "v5e:2x2", "fsdp", 1, False),
    ("bert_base_dropout", "v5e:2x2", "data", 32, False),
    ("bert_base", "v5e:2x2", "data", 32, True),
    ("bert_base", "v5e:2x2", "fsdp", 32, True),
    ("bert_base", "v5e:4x4", "data", 32, True),
)


def cells():
    """{name: (model, topology, layout, rows a device, layers)} of every program, in order, at the level of the run."""
    parts = ([], [], [])  # the shallower models first, whole models last
    for name, topology, layout, rows, whole in ROWS:
        model = MODELS[name]
        for order, layers in [(2, model.layers)] if whole else enumerate(model.shallow):
            parts[order].append((name, topology, layout, rows, layers))
    level = os.environ.get("JAX_OPTIMIZATION_LEVEL", FULL)
    return {" ".join(map(str, (*cell, level))): cell for part in parts for cell in part}


def read() -> dict:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {cell["cell"]: cell for cell in map(json.loads, lines)}


# === Compiling ===


def compiled_step(name: str, topology: str, layout: str, rows: int, layers: int):
    """Returns (compiled program, seconds to compile, sizes of the model) of one training step."""
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    os.environ |= {"JAX_PLATFORMS": "cpu", "KERAS_BACKEND": "jax"}
    sys.path.insert(0, str(ROOT))
    import jax
    import keras
    import numpy as np
    from jax.experimental import topologies

    from kerasbert.backend import compiling_for, parallel, seed_everything
    from kerasbert.data import Corpus, Tokenizer
    from pipelines.building import make_batches, make_model, make_optimizer
    from pipelines.recipes.recipe import find_recipe

    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    parts = 4 if layout == "tensor" else 1
    shape = (len(devices) // parts, parts) if layout == "tensor" else (len(devices),)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model")[: len(shape)], np.array(devices))
    distribution = parallel(layout, mesh)
    model_of = MODELS[name]
    recipe = find_recipe(model_of.recipe).with_settings(model_of.overrides(layers, rows * shape[0]))
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(500)]
    documents = ["\n".join(" ".join(draw.choices(words, k=12)) for _ in range(40)) for _ in range(300)]
    # As large as this text supports; the model's own vocabulary is that of the paper.
    kind, size = ("unigram", 200 if "t5" in name else 120) if "t5" in name or "deberta" in name else ("wordpiece", 500)
    tokenizer = Tokenizer.train(kind, documents, size, family="t5" if "t5" in name else None)
    corpus = Corpus.in_memory(documents, tokenizer)
    x, y, *weights = make_batches(recipe, {"text": corpus})[0]
    seed_everything(0)
    model = make_model(recipe, corpus)
    model.compile(make_optimizer(recipe))
    model.optimizer.build(model.trainable_variables)
    groups = (model.trainable_variables, model.non_trainable_variables, model.optimizer.variables)
    size = {"parameters": sum(math.prod(v.shape) for v in model.trainable_variables)}
    keras.distribution.set_distribution(distribution)

    by_name = {v.path.replace("/", "_"): v for v in model.trainable_variables}

    def described(variable):
        # The state of the optimizer for a weight is divided as the weight is.
        like = next((v for name, v in by_name.items() if variable.path.split("/")[-1].startswith(name + "_")), variable)
        like = like if like.shape == variable.shape else variable
        chosen = distribution.get_variable_layout(like).backend_layout
        return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=chosen)

    def described_row(array):
        chosen = distribution.get_data_layout(array.shape).backend_layout
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=chosen)

    state = tuple([described(v) for v in group] for group in (*groups, model.metrics_variables))
    data = keras.tree.map_structure(described_row, (x, y, *weights))
    shardings = keras.tree.map_structure(lambda leaf: leaf.sharding, state)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(None, shardings))
    with compiling_for("tpu"):
        lowered = step.lower(state, data)
    start = time.process_time()  # other programs may pause this one
    compiled = lowered.compile()
    seconds = {"compile_seconds": round(time.process_time() - start, 1)}
    state_bytes = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)
    )
    return compiled, {**size, "state_bytes": state_bytes, **seconds}


def measures(compiled, vocabulary: int, length: int) -> dict:
    """What a compiled program says, all of one device."""
    memory, cost, text = compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
    return {
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "flops": cost["flops"],
        "moved": cost["bytes accessed"],
        **collectives_of(text, vocabulary),
        "kernels": len(re.findall(r'custom_call_target="tpu_custom_call"', text)),
        **products_of(text),
        # A bias of relative positions has one row for the whole batch.
        "scores": len(re.findall(rf" = \(?(?:bf16|f32)\[(?!1,)\d+,\d+,{length},{length}\]", text)),
    }


INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?[\w.-]+ = (.+?) ([\w-]+)\((.*)")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def bytes_of(shape: str) -> int:
    return sum(
        BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size)
        for kind, sizes in ARRAY.findall(shape)
    )


def collectives_of(text: str, vocabulary: int) -> dict:
    """{kind: number}, {kind_bytes: bytes of whole arrays}, and the number of gathered arrays with the vocabulary."""
    count, size, whole, seen, computation = collections.Counter(), collections.Counter(), 0, set(), ""
    for line in text.splitlines():
        if line.endswith("{"):
            computation = line
        instruction = INSTRUCTION.match(line)
        kind = instruction[2].removesuffix("-start") if instruction else None
        if kind not in COLLECTIVES:
            continue
        chain = re.search(r"channel_id=\d+|$", instruction[3])[0] if "chain_id=" in instruction[3] else None
        if chain in seen:  # a part of a collective that overlaps with arithmetic
            continue
        seen |= {chain} if chain else set()
        shape = instruction[1]
        arrays = ARRAY.findall(shape)
        if instruction[2].endswith("-start") and shape.startswith("(") and kind != "all-reduce":
            arrays = [array for array in arrays if array[1]]  # without the counters of the transfer
            arrays = arrays[len(arrays) // 2 :]  # operands and results; an all-reduce has results only
        whole += kind == "all-gather" and any(str(vocabulary) in sizes.split(",") for _, sizes in arrays)
        # The compiler for TPUs writes a reduce-scatter as an all-reduce that it fuses with the choice of a part.
        kind = "reduce-scatter" if computation.startswith("%all-reduce-scatter") else kind
        count[kind] += 1
        size[kind] += bytes_of(",".join(f"{kind_of}[{sizes}]" for kind_of, sizes in arrays))
    named = {kind.replace("-", "_"): kind for kind in COLLECTIVES}
    return {
        **{name: count[kind] for name, kind in named.items()},
        **{f"{name}_bytes": size[kind] for name, kind in named.items()},
        "vocabulary_gathers": whole,
    }


def products_of(text: str) -> dict:
    """Numbers of matrix products, and of those with a float32 operand: TPUs multiply bfloat16."""
    shapes = dict(re.findall(r"^\s*(?:ROOT )?(%?[\w.-]+) = (\w+\[[\d,]*\])", text, re.MULTILINE))
    products = re.findall(r" = \w+\[[\d,]*\]\S* (?:dot|convolution)\((%?[\w.-]+), (%?[\w.-]+)\)", text)
    single = [pair for pair in products if any(shapes.get(name, "").startswith("f32") for name in pair)]
    return {"products": len(products), "float32_products": len(single)}


# === The report ===


def row_of(done: dict, level: str, name: str, topology: str, layout: str, rows: int, whole: bool) -> dict | None:
    """Measures of the whole model, compiled or extrapolated from shallow ones, or those of the shallower one."""
    model = MODELS[name]
    found = [
        done.get(f"{name} {topology} {layout} {rows} {layers} {level}")
        for layers in ((model.layers,) if whole else model.shallow)
    ]
    if found[0] is None or whole:
        return found[0] and {**found[0], "from": f"all {model.layers} layers"}
    if found[1] is None:
        return {**found[0], "from": f"{model.shallow[0]} layers, not extrapolated"}
    (less, more), (first, second) = found, model.shallow
    steps = (model.layers - first) / (second - first)
    numbers = {
        key: less[key] + (more[key] - less[key]) * steps
        for key, value in less.items()
        if isinstance(value, (int, float)) and key != "compile_seconds"
    }
    seconds = [cell["compile_seconds"] for cell in found]
    seconds = None if None in seconds else sum(seconds)
    return {**numbers, "compile_seconds": seconds, "from": f"{first} and {second} layers"}


def memory_of(row: dict) -> float:
    """Bytes of a device: arguments, temporaries, and outputs that do not reuse the memory of arguments."""
    return row["arguments"] + row["temporaries"] + row["outputs"] - row["aliased"]


def utilisation(row: dict, chip: str) -> float:
    peak, _, bandwidth, links = CHIPS[chip]
    arithmetic = row["flops"] / (peak * 1e12)
    # A ring moves the bytes of an all-reduce twice, those of the others once.
    sent = sum(row[f"{kind.replace('-', '_')}_bytes"] * (1 + (kind == "all-reduce")) for kind in COLLECTIVES)
    return arithmetic / (max(arithmetic, row["moved"] / (bandwidth * 1e9)) + sent / (links * 1e9))


def report() -> str:
    done = read()
    title = "| model | topology | layout | rows a device | from | level | weights | memory, GiB | fits | TFLOP | "
    title += "GB moved | all-reduce | all-gather | reduce-scatter | other | kernels | float32 | scores | roofline | "
    title += "compile, s |"
    lines = [title, "|" + "---|" * (title.count("|") - 1)]
    for level, (name, topology, layout, rows, whole) in itertools.product(("O1", FULL), ROWS):
        row = row_of(done, level, name, topology, layout, rows, whole)
        if row is None:
            continue
        chip = topology.partition(":")[0]
        model = MODELS[name]
        memory = memory_of(row)

        def pair(kind, row=row):
            return f"{row[kind]:.0f}, {row[kind + '_bytes'] / 1e6:,.0f} MB" if row[kind] else "0"

        others = sum(row[kind] for kind in ("all_to_all", "collective_permute"))
        others_bytes = sum(row[f"{kind}_bytes"] for kind in ("all_to_all", "collective_permute"))
        cells = [
            name,
            topology,
            layout,
            f"{rows} x {model.length}",
            row["from"],
            level,
            f"{row['parameters'] / 1e6:.0f} M",
            f"{memory / GIB:.1f}",
            f"{'yes' if memory < CHIPS[chip][1] * 1e9 else 'no'}, {CHIPS[chip][1]} GB",
            f"{row['flops'] / 1e12:.1f}",
            f"{row['moved'] / 1e9:,.0f}",
            pair("all_reduce"),
            pair("all_gather"),
            pair("reduce_scatter"),
            f"{others:.0f}, {others_bytes / 1e6:,.0f} MB" if others else "0",
            f"{row['kernels']:.0f}",
            f"{row['float32_products']:.0f} of {row['products']:.0f}",
            f"{row['scores']:.0f}",
            f"{utilisation(row, chip):.0%}",
            "" if row["compile_seconds"] is None else f"{row['compile_seconds']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", help="compile this program only, in this process")
    parser.add_argument("--only", help="a regular expression that the names of the programs must match")
    parser.add_argument("--text", type=Path, help="with --cell: write the compiled program to this file")
    parser.add_argument("--report", action="store_true", help="write tpu_compile.md with the rows that are done")
    options = parser.parse_args()
    if options.report:
        RESULTS.with_suffix(".md").write_text(f"{REPORT}\n{report()}\n")
        return
    if options.cell:
        name, topology, layout, rows, layers = cells()[options.cell]
        compiled, sizes = compiled_step(name, topology, layout, rows, layers)
        if options.text:
            options.text.write_text(compiled.as_text())
        found = {"cell": options.cell, **sizes, **measures(compiled, MODELS[name].vocabulary, MODELS[name].length)}
        with open(RESULTS, "a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found))
        return
    for name in cells():
        if name in read() or not re.search(options.only or "", name):
            continue
        print(name, flush=True)
        subprocess.run([sys.executable, __file__, "--cell", name], check=False)


if __name__ == "__main__":
    main()
