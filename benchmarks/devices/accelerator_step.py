"""A training step of masked language modeling on a GPU or TPU: BERT-base or -large, full rows, bfloat16, AdamW.

    KERAS_BACKEND=jax python -m benchmarks.devices.accelerator_step --shape base --length 512 --rows 64 --peak 989

Against transformers (torch in bfloat16 by autocast, eager and compiled). The second row of ours is packed: rows of
several sequences, which see themselves alone. 15% of the tokens are predicted; `--dropout` is that of hidden states and
of attention. The utilization is the model's own arithmetic over the peak of the device, in TFLOP/s (989: an H100 or
H200, dense bfloat16); the share in the table is that of a plain product in bfloat16, measured beside it. On JAX with a
GPU the compiled program is searched for the fused attention, forward and backward.
"""

import json
import os
from pathlib import Path

import numpy as np

from benchmarks.berts import SHAPE, training_flops, write
from benchmarks.devices.programs import attention_calls
from benchmarks.harness import MATRIX, Comparison, Contender, Work, compare, parser

SHAPES = {
    "tiny": {**SHAPE, "num_layers": 2, "hidden_dim": 128, "num_heads": 2, "feed_forward_dim": 512},
    "base": {**SHAPE, "num_layers": 12, "hidden_dim": 768, "num_heads": 12, "feed_forward_dim": 3_072},
    "large": {**SHAPE, "num_layers": 24, "hidden_dim": 1_024, "num_heads": 16, "feed_forward_dim": 4_096},
}
STEPS = 8  # of a round
SHOWN = 2  # rows whose logits are compared
# In bfloat16 the logits of two packages differ by its rounding.
TOLERANCE = 0.25
RATE, DECAY = 1e-4, 0.01
# Several contenders share the memory of one device.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
COMPILED_NOW = {**SHARED, "JAX_ENABLE_COMPILATION_CACHE": "false"}  # XLA writes what it compiles, not what was kept


def prepare(folder: Path, options) -> None:
    write(folder / "model", shape=SHAPES[options.shape])
    random = np.random.default_rng(0)
    count = options.rows * STEPS
    token_ids = random.integers(1_000, SHAPE["vocabulary_size"], (count, options.length), "int32")
    slots = np.stack([np.sort(random.permutation(options.length)[: slots_of(options)]) for _ in range(count)])
    labels = np.take_along_axis(token_ids, slots, axis=1)
    np.put_along_axis(token_ids, slots, 103, axis=1)
    # Sequences of a packed row: one to four.
    cuts = np.sort(random.integers(1, options.length, (count, 3)), axis=1)
    sequence_ids = 1 + (np.arange(options.length)[None, :, None] >= cuts[:, None]).sum(-1)
    starts = np.where(np.diff(sequence_ids, axis=1, prepend=0) != 0, np.arange(options.length), 0)
    position_ids = np.arange(options.length) - np.maximum.accumulate(starts, axis=1)
    arrays = dict(slots=slots, labels=labels, sequence_ids=sequence_ids, position_ids=position_ids)
    np.savez(folder / "batches.npz", token_ids=token_ids, **{k: v.astype("int32") for k, v in arrays.items()})


def slots_of(options) -> int:
    return round(0.15 * options.length)


def flops_of(options) -> float:
    """Of a round; those of packed rows are counted as if their sequences saw each other."""
    shape = SHAPES[options.shape]
    return STEPS * training_flops(options.rows, options.length, slots_of(options), shape)


def fused_calls(folder: Path) -> dict:
    """How often fused attention is called in the compiled programs that XLA wrote into a folder."""
    texts = [path.read_text(errors="replace") for path in folder.glob("*after_optimizations.txt")]
    return {"programs": len(texts), **attention_calls("\n".join(texts))}


# === Contenders ===


def kerasbert(options, packed: bool = False):
    def make(folder: Path) -> Work:
        programs = folder / f"programs_{packed}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={programs}"
        from kerasbert.objectives import MaskedLM
        from kerasbert.training import adamw

        data = np.load(folder / "batches.npz")
        rates = dict(dropout=options.dropout, attention_dropout=options.dropout)
        model = MaskedLM.from_preset(folder / "model", dtype="mixed_bfloat16", **rates)
        names = ("token_ids", "sequence_ids", "position_ids") if packed else ("token_ids",)
        x = {name: data[name] for name in names} | {"masked_positions": data["slots"]}
        shown = model.predict({key: array[:SHOWN] for key, array in x.items()}, batch_size=SHOWN, verbose=0)
        model.compile(adamw(learning_rate=RATE, weight_decay=DECAY))
        notes = {}

        def run() -> None:
            model.fit(x, data["labels"], batch_size=options.rows, verbose=0)
            if not notes:
                notes.update(fused_calls(programs))

        tokens = float(options.rows * options.length * STEPS)
        return Work(run, {"logits": np.asarray(shown, "float32")}, tokens, flops_of(options), notes)

    return make


def transformers(options, compiled: bool = False):
    def make(folder: Path) -> Work:
        import torch
        from transformers import BertForMaskedLM

        device = "cuda" if torch.cuda.is_available() else "cpu"
        rates = dict(hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout)
        model = BertForMaskedLM.from_pretrained(folder / "model", **rates).to(device)
        data = np.load(folder / "batches.npz")
        ids = torch.tensor(data["token_ids"]).long().to(device)
        labels = np.full(ids.shape, -100)
        np.put_along_axis(labels, data["slots"], data["labels"], axis=1)
        labels = torch.tensor(labels).to(device)
        half = torch.autocast(device, torch.bfloat16)
        with torch.no_grad(), half:
            logits = model(input_ids=ids[:SHOWN]).logits.float().cpu().numpy()
        shown = np.take_along_axis(logits, data["slots"][:SHOWN, :, None], axis=1)
        optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY, eps=1e-6, fused=True)
        model.train()
        called = torch.compile(model) if compiled else model

        def run() -> None:
            for step in range(STEPS):
                rows = slice(step * options.rows, (step + 1) * options.rows)
                with half:
                    loss = called(input_ids=ids[rows], labels=labels[rows]).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            loss.item()

        return Work(run, {"logits": shown}, float(ids.numel()), flops_of(options))

    return make


def half_product(folder: Path) -> Work:
    """A plain product in bfloat16 on the first device."""
    import jax
    from jax import numpy as jnp

    size = 1_024 if jax.default_backend() == "cpu" else 8_192
    a, b = jnp.ones((size, size), "bfloat16"), jnp.ones((size, size), "bfloat16")
    program = jax.jit(lambda a, b: a @ b)

    def run() -> None:
        for _ in range(20):
            found = program(a, b)
        found.block_until_ready()

    return Work(run, flops=20 * 2.0 * size**3)


if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--shape", choices=SHAPES, default="base")
    arguments.add_argument("--length", type=int, default=512)
    arguments.add_argument("--rows", type=int, default=64)
    arguments.add_argument("--dropout", type=float, default=0.0)
    arguments.add_argument("--peak", type=float, default=989.0, help="of the device, in TFLOP/s")
    options = arguments.parse_args()
    found = compare(
        "accelerator_step",
        prepare,
        {
            MATRIX: Contender(half_product, environment=SHARED),
            "kerasbert": Contender(kerasbert(options), environment=COMPILED_NOW),
            "kerasbert, packed": Contender(kerasbert(options, packed=True), environment=COMPILED_NOW),
            "transformers, eager": Contender(transformers(options)),
            "transformers, compiled": Contender(transformers(options, compiled=True)),
        },
        [
            Comparison("kerasbert", "transformers, eager", tolerance=TOLERANCE),
            Comparison("kerasbert", "transformers, compiled", 1.3, tolerance=TOLERANCE),
            Comparison("kerasbert, packed", "transformers, compiled", 1.3, tolerance=None),
            Comparison("kerasbert, packed", "kerasbert", tolerance=None),
        ],
        unit="tokens",
        options=options,
    )
    sides = (("ours", "ours_seconds", "notes"), ("theirs", "theirs_seconds", "their_notes"))
    measured = {row[name]: (row[t], row[n]) for row in found if "ratio" in row for name, t, n in sides}
    for name, (seconds, notes) in measured.items():
        used = flops_of(options) / seconds / (options.peak * 1e12)
        print(f"{name}: {used:.1%} of {options.peak:g} TFLOP/s; {json.dumps(notes)}")
