"""Training steps compiled for TPUs on a machine without one: memory, arithmetic, communication, fused attention.

    pip install "jax[tpu]"
    KERAS_BACKEND=jax python -m benchmarks.devices.tpu_compile

XLA's compiler for TPUs runs on any machine. Each row is the step that `fit` runs (forward, backward, optimizer,
metrics; bfloat16) of a recipe, compiled for a topology and a layout of devices, and read: bytes of memory a device,
operations, bytes moved, collectives, calls of Pallas kernels. Nothing is executed, so no speed is measured: the
utilization is what a roofline would allow, with collectives that overlap with nothing.

A program takes minutes to compile, so two shallow models are compiled, and deep ones are extrapolated linearly. Each
compiled program is a line of tpu_compile.jsonl, and the same command goes on with the rest; `--report` writes
tpu_compile.md. With JAX_OPTIMIZATION_LEVEL=O1 in the environment, the compiler takes a third of the time, and the
programs are rows of their own.
"""

import argparse
import itertools
import os
import re
from pathlib import Path

from benchmarks.devices import compiled_steps
from benchmarks.devices.compiled_programs import COLLECTIVES, collectives_of, computations, products_in
from benchmarks.devices.compiled_steps import GIB, MODELS, extrapolated, memory_of, read

RESULTS = Path(__file__).with_suffix(".jsonl")
# Of a chip: peak of bfloat16 in TFLOP/s, memory in GB, its bandwidth and that of the links to other chips in GB/s.
CHIPS = {"v5e": (197, 16, 819, 200), "v5p": (459, 95, 2_765, 600), "v6e": (918, 32, 1_640, 448)}
FULL = "full"  # the compiler's own level of optimization
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
    ("t5_base_dropout", "v5e:2x2", "fsdp", 16, False),
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


# === Compiling ===


def compiled_step(name: str, topology: str, layout: str, rows: int, layers: int):
    """Returns (compiled program, its sizes and the seconds that it took) of one training step."""
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    compiled_steps.prepare()
    from jax.experimental import topologies

    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    lowered, sizes = compiled_steps.lowered_step(MODELS[name], layers, rows, devices, layout, kind="tpu")
    compiled, seconds = compiled_steps.compiled_in(lowered)
    return compiled, {**sizes, "compile_seconds": seconds}


def measures(compiled, vocabulary: int, length: int) -> dict:
    """What a compiled program says, all of one device."""
    cost, text = compiled.cost_analysis(), compiled.as_text()
    products = [product for part in computations(text).values() for product in products_in(part)]
    return {
        **compiled_steps.memory(compiled),
        "flops": cost["flops"],
        "moved": cost["bytes accessed"],
        **collectives_of(text, vocabulary),
        "kernels": len(re.findall(r'custom_call_target="tpu_custom_call"', text)),
        "products": len(products),
        "float32_products": sum(product.is_single for product in products),  # TPUs multiply bfloat16
        # A bias of relative positions has one row for the whole batch.
        "scores": len(re.findall(rf" = \(?(?:bf16|f32)\[(?!1,)\d+,\d+,{length},{length}\]", text)),
    }


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
    first, second = model.shallow
    return {**extrapolated(*found, model.shallow, model.layers), "from": f"{first} and {second} layers"}


def utilization(row: dict, chip: str) -> float:
    peak, _, bandwidth, links = CHIPS[chip]
    arithmetic = row["flops"] / (peak * 1e12)
    # A ring moves the bytes of an all-reduce twice, those of the others once.
    sent = sum(row[f"{kind.replace('-', '_')}_bytes"] * (1 + (kind == "all-reduce")) for kind in COLLECTIVES)
    return arithmetic / (max(arithmetic, row["moved"] / (bandwidth * 1e9)) + sent / (links * 1e9))


def report() -> str:
    done = read(RESULTS)
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
            f"{utilization(row, chip):.0%}",
            "" if row["compile_seconds"] is None else f"{row['compile_seconds']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", help="compile this program only, in this process")
    parser.add_argument("--only", default="", help="a regular expression that the names of the programs must match")
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
        found = measures(compiled, MODELS[name].vocabulary, MODELS[name].length)
        compiled_steps.append(RESULTS, {"cell": options.cell, **sizes, **found})
        return
    compiled_steps.run_missing(__spec__.name, RESULTS, cells(), re.compile(options.only))


if __name__ == "__main__":
    main()
