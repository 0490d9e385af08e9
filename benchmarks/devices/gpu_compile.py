"""Training steps compiled for NVIDIA GPUs on a machine without one: memory, arithmetic, fused attention, collectives.

    pip install "jax[cuda12]"
    KERAS_BACKEND=jax python -m benchmarks.devices.gpu_compile

XLA's compiler for GPUs needs a description of the card, but no card and no driver. Each row is the step that `fit` runs
(forward, backward, optimizer, metrics; bfloat16) of a recipe, compiled for a card and a layout of devices, and read.
Nothing is executed, so no speed is measured: the utilization is what a roofline would allow. Without a card, XLA cannot
time several variants of a kernel, so a real compilation may choose others.

Each compiled program is a line of gpu_compile.jsonl, and the same command goes on with the rest; `--report` writes
gpu_compile.md. The descriptions of the cards are h100.txtpb and a100.txtpb. That of the H100 is XLA's own; where the
facts of the A100 come from is said in its file.
"""

import argparse
import collections
import gzip
import json
import re
from pathlib import Path

from benchmarks.devices import compiled_programs, compiled_steps, gpu_attention
from benchmarks.devices.compiled_steps import MODELS
from benchmarks.devices.gpu_compile_cells import ATTENTION, CARDS, PLAIN, cells
from benchmarks.devices.gpu_compile_report import report

HERE = Path(__file__).resolve().parent
WAYS = ("forward", "backward")
RESULTS = Path(__file__).with_suffix(".jsonl")


# === Compiling ===


def described(card: str, topology: str):
    """Returns the devices of a topology "partitions x hosts x devices" of cards."""
    from jax.experimental import topologies

    chip = (HERE / f"{card}.txtpb").read_text()
    found = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=chip, topology=topology)
    return found.devices


def compiled_cell(name: str, card: str, topology: str, layout: str, rows: int, layers: int):
    """Returns (compiled program, sizes) of one training step."""
    compiled_steps.prepare()
    devices, target = described(card, topology), dict(kind="gpu", capability=CARDS[card]["capability"])
    if layout == ATTENTION:
        lowered, sizes = gpu_attention.lowered_attention(name, devices[0], **target), {}
    elif layout == PLAIN:
        from benchmarks.devices.plain_jax_step import lowered_step

        lowered, sizes = lowered_step(MODELS[name], layers, rows, devices[0], **target), {}
    else:
        lowered, sizes = compiled_steps.lowered_step(MODELS[name], layers, rows, devices, layout, **target)
    compiled, seconds = compiled_steps.compiled_in(lowered)
    return compiled, {**sizes, "compile_seconds": seconds, **compiled_steps.memory(compiled)}


def measures(text: str, card: str, attended: float, vocabulary: int) -> dict:
    """What the text of a program says, all of one device."""
    parts = compiled_programs.computations(text)
    calls = [compiled_programs.attention_kind(x) for _, x in compiled_programs.launched(parts)]
    calls = collections.Counter(f"{kind[0]}_{kind[1]}" for kind in calls if kind)
    products = [product for part in parts.values() for product in compiled_programs.products_in(part)]
    single = [product for product in products if product.is_single]
    sums = [product for product in products if not product.is_single and product.result == "f32"]
    operations = collections.Counter(x.operation for _, x in compiled_programs.launched(parts))
    return {
        **compiled_programs.seconds_of(parts, CARDS[card], attended),
        **compiled_programs.collectives_of(text, vocabulary),
        **{f"{kernel}_{way}": calls[f"{kernel}_{way}"] for kernel in ("cuDNN", "Pallas") for way in WAYS},
        "products": len(products),
        "float32_products": len(single),
        "float32_results": len(sums),
        "float32_sources": sorted({product.source for product in single}),
        "sum_sources": sorted({product.source for product in sums}),
        "fusions": operations["fusion"],
        "transfers": compiled_programs.transfers_in(parts),
    }


def measured(cell: tuple, text: str) -> dict:
    name, card, _, layout, _, layers = cell
    if layout == ATTENTION:
        return measures(text, card, 1.0, 0)
    model = MODELS[name]
    return measures(text, card, model.attended(layers), model.vocabulary)


def measure_again(texts: Path) -> None:
    """Reads the kept programs again, when more is wanted of them."""
    found, known = compiled_steps.read(RESULTS), cells()
    lines = []
    for name, row in found.items():
        kept = texts / f"{name.replace(' ', '_')}.txt.gz"
        if kept.exists() and name in known:
            row = {**row, **measured(known[name], gzip.decompress(kept.read_bytes()).decode())}
        lines.append(json.dumps(row) + "\n")
    RESULTS.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", help="compile this program only, in this process")
    parser.add_argument("--only", default="", help="a regular expression that the names of the programs must match")
    parser.add_argument("--texts", type=Path, default=HERE.parents[1] / "runs" / "gpu_compile", help="for the programs")
    parser.add_argument("--again", action="store_true", help="read the kept programs again, without compiling")
    parser.add_argument("--report", action="store_true", help="write gpu_compile.md with the rows that are done")
    options = parser.parse_args()
    if options.again:
        return measure_again(options.texts)
    if options.report:
        RESULTS.with_suffix(".md").write_text(report(compiled_steps.read(RESULTS)))
        return
    if options.cell is None:
        return compiled_steps.run_missing(__spec__.name, RESULTS, cells(), re.compile(options.only))
    cell = cells()[options.cell]
    compiled, sizes = compiled_cell(*cell)
    text = compiled.as_text()
    options.texts.mkdir(parents=True, exist_ok=True)
    (options.texts / f"{options.cell.replace(' ', '_')}.txt.gz").write_bytes(gzip.compress(text.encode()))
    compiled_steps.append(RESULTS, {"cell": options.cell, **sizes, **measured(cell, text)})


if __name__ == "__main__":
    main()
