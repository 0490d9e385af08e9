"""The tables of gpu_compile.md."""

from benchmarks.devices import gpu_attention
from benchmarks.devices.compiled_steps import GIB, MODELS, extrapolated, memory_of
from benchmarks.devices.gpu_compile_cells import ATTENTION, CARDS, MEMORY, PLAIN, ROWS, SEVERAL, cells, singles

BERT_WIDTH = 768
INTRODUCTION = """# Programs for NVIDIA GPUs

Written by `gpu_compile.py --report`: training steps compiled by XLA for an H100 and an A100 (80 GB) on a machine
without one, and read. Nothing was run. A step is that of `fit`: forward, backward, optimizer and metrics, in bfloat16.

- `temporaries` are what a step needs beside the weights and the state of the optimizer (`weights`: their number).
  `largest` is the number of rows that fit 80 GB, linear in the temporaries at the given number of rows and at twice as
  many; what a block needs is taken to grow with the rows.
- `forward` and `backward` are calls of fused attention: C of cuDNN, P of the package's flash attention. ModernBERT's
  rows are packed, but for `chunks`. The papers of ModernBERT have no dropout.
- `float32` counts products with a float32 operand. `sums` are products of bfloat16 with a float32 result: XLA splits
  long sums and adds the parts in float32.
- `fusions` are kernels. `roofline` is the utilization if every kernel took as long as its arithmetic at the peak or
  its bytes at the bandwidth of the memory, one after another; operations of attention count only keys that are
  attended to, and all tokens of packed rows. Bytes are those of operands and results.
- XLA chooses between kernels by timing them. Without a card it takes its defaults, so other variants may run.
"""


def number(row, key):
    return f"{row[key]:.0f}"


def calls(row, way):
    found = [(row[f"{kernel}_{way}"], kernel[0].upper()) for kernel in ("cuDNN", "Pallas")]
    return " + ".join(f"{count:.0f} {letter}" for count, letter in found if round(count)) or "0"


def table(title, lines):
    return "\n".join(
        [title, "|" + "---|" * (title.count("|") - 1), *("| " + " | ".join(line) + " |" for line in lines)]
    )


def cell(done, *parts):
    return done.get(" ".join(map(str, parts)))


# === One card ===


def whole_model(done, name, card, rows, layout="one"):
    """The measures of a whole model, extrapolated from two shallow ones, or None if one of them is missing."""
    model = MODELS[name]
    found = [cell(done, name, card, "1x1x1", layout, rows, layers) for layers in model.shallow]
    return None if None in found else extrapolated(*found, model.shallow, model.layers)


def largest_batch(done, name, card, rows):
    """The number of rows that fit the memory of a card, or None if a program is missing."""
    model, (first, second) = MODELS[name], MODELS[name].shallow
    less, more, wide = (
        cell(done, name, card, "1x1x1", "one", count, layers)
        for count, layers in ((rows, first), (rows, second), (2 * rows, first))
    )
    if None in (less, more, wide):
        return None
    by_row = (wide["temporaries"] - less["temporaries"]) / rows
    of_layers = (more["temporaries"] - less["temporaries"]) / (second - first) * (model.layers - first) / rows
    whole = whole_model(done, name, card, rows)
    fixed = memory_of(whole) - whole["temporaries"] + less["temporaries"] - by_row * rows
    return int((MEMORY - fixed) // (by_row + of_layers))


def utilization(row, card):
    return row["flops"] / CARDS[card]["peak"] / row["seconds"]


def line_of(done, name, card, rows, row, source):
    largest = largest_batch(done, name, card, rows)
    return [
        name.removesuffix("_dropout"),
        card.upper(),
        "the paper's" if name.endswith("_dropout") else "none",
        f"{rows} x {MODELS[name].length}",
        source,
        f"{row['parameters'] / 1e6:.0f} M",
        f"{row['temporaries'] / GIB:.1f}",
        "" if largest is None else str(largest),
        calls(row, "forward"),
        calls(row, "backward"),
        f"{number(row, 'float32_products')} of {number(row, 'products')}",
        number(row, "float32_results"),
        number(row, "fusions"),
        f"{row['flops'] / 1e12:.1f}",
        f"{row['moved'] / 1e9:.0f}",
        f"{utilization(row, card):.0%}",
    ]


def single_cards(done):
    title = "| model | card | dropout | rows | from | weights | temporaries, GiB | largest | forward | backward | "
    title += "float32 | sums | fusions | TFLOP | GB moved | roofline |"
    lines = []
    for card in CARDS:
        for name, rows in singles():
            model, row = MODELS[name], whole_model(done, name, card, rows)
            source = "{} and {} layers".format(*model.shallow)
            if row is None:
                row = cell(done, name, card, "1x1x1", "one", rows, model.shallow[0])
                source = f"{model.shallow[0]} layers, not extrapolated"
            if row is not None:
                lines.append(line_of(done, name, card, rows, row, source))
            whole = cell(done, name, card, "1x1x1", "one", rows, model.layers)
            if whole is not None:
                lines.append(line_of(done, name, card, rows, whole, f"all {model.layers} layers"))
    return table(title, lines)


# === Several cards ===


def several_cards(done):
    title = "| layout | cards | weights and state a card, GiB | temporaries, GiB | all-reduce | all-gather | "
    title += "reduce-scatter | sent a card, MB | by theory, MB | fused calls |"
    lines = []
    for name, topology, layout in SEVERAL:
        row = cell(done, name, "h100", topology, layout, ROWS["bert_base"], 2)
        if row is None:
            continue
        _, hosts, local = map(int, topology.split("x"))
        sent = sum(sent_of(row, kind, hosts * local) for kind in ("all_reduce", "all_gather", "reduce_scatter"))
        pairs = [
            f"{row[kind]}, {row[kind + '_bytes'] / 1e6:,.0f} MB" if row[kind] else "0"
            for kind in ("all_reduce", "all_gather", "reduce_scatter")
        ]
        cards = f"{hosts * local}" + (f" of {hosts} hosts" if hosts > 1 else "")
        sizes = [f"{row['state_bytes'] / GIB:.2f}", f"{row['temporaries'] / GIB:.2f}"]
        theory = theory_of(row, layout, hosts * local)
        theory = "" if theory is None else f"{theory / 1e6:,.0f}"
        fused = f"{calls(row, 'forward')}, {calls(row, 'backward')}"
        lines.append([layout, cards, *sizes, *pairs, f"{sent / 1e6:,.0f}", theory, fused])
    return table(title, lines)


def sent_of(row, kind, count):
    """Bytes that a card sends in rings: (n - 1) / n of a gathered or scattered array, twice that of a summed one."""
    passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": count}[kind]  # results of the last one are parts
    return passes * (count - 1) / count * row[f"{kind}_bytes"]


def theory_of(row, layout, count):
    """Bytes that a card sends: `data` sums gradients, and `fsdp` gathers weights and scatters gradients.

    Gradients have 2 bytes, and with `data`, those of the looked-up vocabulary 4 more. Weights have 4 bytes.
    """
    vocabulary = MODELS["bert_base"].vocabulary * BERT_WIDTH
    sizes = {"data": 2 * (2 * row["parameters"] + 4 * vocabulary), "fsdp": (4 + 2) * row["parameters"]}
    return None if layout not in sizes else (count - 1) / count * sizes[layout]


# === Comparisons ===


def by_hand(done):
    title = "| layers | temporaries, GiB | by hand | ratio | kernels | by hand | ratio | GB moved | by hand |"
    lines = []
    for layers in MODELS["bert_base"].shallow:
        ours, plain = (cell(done, "bert_base", "h100", "1x1x1", way, 32, layers) for way in ("one", PLAIN))
        if None in (ours, plain):
            continue
        numbers = [str(layers)]
        for key, unit, form in (("temporaries", GIB, ".2f"), ("fusions", 1, ".0f")):
            numbers += [f"{row[key] / unit:{form}}" for row in (ours, plain)]
            numbers.append(f"{ours[key] / plain[key]:.2f}")
        lines.append([*numbers, *(f"{row['moved'] / 1e9:.1f}" for row in (ours, plain))])
    return table(title, lines)


def attention(done):
    lines = []
    for way, (sizes, _, text) in gpu_attention.WAYS.items():
        row = cell(done, way, "h100", "1x1x1", ATTENTION, sizes["batch"], 1)
        if row is None:
            continue
        shape = "{batch} x {length} x {heads} x {width}".format(**sizes)
        kind = {"packed": "packed rows, 4 texts each", "window": "window of 64 to both sides"}
        kind = kind.get(way.split()[0], "causal window of 512")
        temporaries = f"{row['temporaries'] / 2**20:.1f}"
        fused = f"{calls(row, 'forward')}, {calls(row, 'backward')}"
        lines.append([kind, shape, text, fused, number(row, "fusions"), temporaries, f"{row['moved'] / 1e9:.2f}"])
    return table("| mask | rows | way | fused calls | other kernels | temporaries, MiB | GB moved |", lines)


def sums_of(done):
    row = cell(done, "bert_base_dropout", "h100", "1x1x1", "one", ROWS["bert_base"], 2)
    if row is None:
        return ""
    sources = ", ".join(f"`{source.removeprefix('jit(train_step)/')}`" for source in row["sum_sources"])
    return f"\n\nThe {row['float32_results']} `sums` of BERT-base with two blocks: {sources}."


def report(done):
    missing = [parts for name, parts in cells().items() if name not in done]
    pairs = dict.fromkeys(f"{name} on {card.upper()} ({layout})" for name, card, _, layout, *_ in missing)
    sources = sorted({source for row in done.values() for source in row["float32_sources"]})
    transfers = sum(row["transfers"] for row in done.values())
    sources = ", ".join(f"`{source}`" for source in sources) or "none"
    parts = [
        INTRODUCTION,
        f"Callbacks and transfers to the host in all {len(done)} programs: {transfers}. Products with a float32\n"
        f"operand: {sources}.",
        "\n## One card\n",
        single_cards(done) + sums_of(done),
        "\n## Several cards\n",
        "BERT-base with two blocks and the paper's dropout, 32 rows of 512 tokens a card. Bytes are those of whole\n"
        "arrays; what a card sends is counted for rings, where n cards send (n - 1) / n of an array, and twice that\n"
        "for a sum. Theory: `data` sums gradients in bfloat16, and those of the looked-up vocabulary once more in\n"
        "float32. `fsdp` gathers each weight once, in float32 (XLA for TPUs converts it before), and scatters\n"
        "gradients in bfloat16.\n",
        several_cards(done),
        "\n## A step written by hand\n",
        "BERT-base without dropout, 32 rows of 512 tokens, on an H100: `fit` beside `plain_jax_step.py`.\n",
        by_hand(done),
        "\n## Ways to compute attention\n",
        "Forward and backward alone, on an H100, in bfloat16.\n",
        attention(done),
        f"\nNot compiled: {len(missing)} of {len(cells())} programs, for {', '.join(pairs)}." if missing else "",
    ]
    return "\n".join(parts).rstrip() + "\n"
