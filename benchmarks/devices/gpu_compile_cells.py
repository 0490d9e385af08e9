"""The programs that `gpu_compile` compiles: models, cards, layouts, rows."""

from benchmarks.devices.compiled_steps import MODELS
from benchmarks.devices.gpu_attention import WAYS

# Peak of bfloat16 in FLOP/s and of the links to other cards in bytes/s and direction, from NVIDIA's data sheets;
# bytes/s of the memory from the descriptions.
CARDS = {
    "h100": dict(peak=989.4e12, bandwidth=3_352.32e9, links=450e9, capability=9.0),
    "a100": dict(peak=312e12, bandwidth=2_039.04e9, links=300e9, capability=8.0),
}
MEMORY = 80e9  # bytes of a card
PLAIN = "by_hand"  # the step of plain_jax_step.py, on one card
ATTENTION = "attention"  # one of the ways of gpu_attention.py
# Rows a card.
ROWS = {
    "bert_base": 32,
    "bert_large": 16,
    "t5_base": 16,
    "electra_base": 16,
    "gpt2": 8,
    "deberta_v3_base": 8,
    "modernbert_base_1024": 16,
    "modernbert_base_8192": 2,
    "modernbert_base_8192_chunks": 2,
}
SEVERAL = (
    ("bert_base_dropout", "1x1x8", "data"),
    ("bert_base_dropout", "1x1x8", "fsdp"),
    ("bert_base_dropout", "1x1x8", "tensor"),
    ("bert_base_dropout", "1x2x8", "data"),
)


def singles():
    """(model, rows) of the programs of one card, the paper's dropout first."""
    names = sorted(MODELS, key=lambda name: not name.endswith("_dropout") and f"{name}_dropout" in MODELS)
    return [(name, ROWS[name.removesuffix("_dropout")]) for name in names]


def cells() -> dict:
    """{name: (model, card, topology, layout, rows a device, layers)} of every program, in order of importance."""

    def alone(card, which, deeper, factor=1):
        return [(n, card, "1x1x1", "one", factor * r, MODELS[n].shallow[deeper]) for n, r in singles() if which(n)]

    def papers(name):
        return name.endswith("_dropout") or f"{name}_dropout" not in MODELS

    def others(name):
        return not papers(name)

    found = [("bert_base_dropout", "h100", "1x1x1", "one", ROWS["bert_base"], layers) for layers in (2, 4, 12)]
    found += [("bert_base", "h100", "1x1x1", layout, 32, layers) for layers in (2, 4) for layout in ("one", PLAIN)]
    found += [(way, "h100", "1x1x1", ATTENTION, sizes["batch"], 1) for way, (sizes, *_) in WAYS.items()]
    for which in (papers, others):
        found += alone("h100", which, 0) + alone("h100", which, 1)
    found += [(n, "h100", topology, layout, ROWS["bert_base"], 2) for n, topology, layout in SEVERAL]
    found += alone("h100", papers, 0, factor=2)  # a second batch size, from which the largest is extrapolated
    for which in (papers, others):
        found += alone("a100", which, 0) + alone("a100", which, 1)
    found += alone("h100", others, 0, factor=2)
    for which in (papers, others):
        found += alone("a100", which, 0, factor=2)
    return {" ".join(map(str, cell)): cell for cell in found}
