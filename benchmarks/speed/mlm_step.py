"""A training step of masked language modeling: 4 layers of 256, 16 rows of 128 tokens, dropout 0.1, AdamW.

    KERAS_BACKEND=jax python -m benchmarks.speed.mlm_step --peer-python PYTHON_WITH_KERAS_HUB

Against KerasHub on the same backend, transformers (torch, eager and compiled) and a step written by hand in JAX. All
rows are full, 15% of the tokens are predicted. KerasHub's BERT has the tanh form of gelu: ours has it in that row.
The last row is about text as it is: paragraphs of the English that Python carries, packed by us, padded to 128 tokens
in transformers; it counts real tokens.
"""

import os
from pathlib import Path

import numpy as np

from benchmarks.berts import SHAPE, PlainBert, keras_hub_masked_lm, training_flops, write
from benchmarks.harness import Comparison, Contender, Work, compare, parser

ROWS, LENGTH, SLOTS, STEPS = 16, 128, 19, 4
SHOWN = 2  # rows whose logits are compared
RATE, DECAY = 1e-4, 0.01
TOKENS = ROWS * LENGTH * STEPS


def prepare(folder: Path, options) -> None:
    for activation in ("gelu", "gelu_new"):
        write(folder / activation, activation)
    random = np.random.default_rng(0)
    token_ids = random.integers(1_000, SHAPE["vocabulary_size"], (ROWS * STEPS, LENGTH), "int32")
    slots = np.stack([np.sort(random.permutation(LENGTH)[:SLOTS]) for _ in token_ids]).astype("int32")
    labels = np.take_along_axis(token_ids, slots, axis=1)
    np.put_along_axis(token_ids, slots, 103, axis=1)
    np.savez(folder / "batches.npz", token_ids=token_ids, slots=slots, labels=labels)
    np.savez(folder / "mix.npz", **length_mix(random))


def length_mix(random) -> dict:
    """Rows of as many real paragraphs as fit, and as many rows of one paragraph each; masks are the same."""
    from kerasbert.data.corpus.bin_packing import pack, packed_keys
    from pipelines.reading.standard_library import docstrings, paragraphs, topics

    texts = [text for topic in topics() for text in paragraphs(topic).split("\n")]
    texts += [text for d in docstrings() for text in paragraphs(d.text).split("\n")]
    lengths = np.array([min(LENGTH, 2 + round(1.3 * len(text.split()))) for text in texts if text.strip()])
    lengths = lengths[random.permutation(len(lengths))[:2_000]]
    ids = random.integers(1_000, SHAPE["vocabulary_size"], (len(lengths), LENGTH), "int32")
    counts = np.maximum(1, np.round(0.15 * lengths)).astype(int)
    slots = np.full((len(lengths), SLOTS), -1, "int32")
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        slots[row, : min(count, SLOTS)] = np.sort(random.permutation(length)[: min(count, SLOTS)])
    labels = np.take_along_axis(ids, np.maximum(slots, 0), axis=1)
    masked = ids.copy()
    for row in range(len(ids)):
        masked[row, slots[row][slots[row] >= 0]] = 103

    order, starts = pack(lengths, LENGTH)
    chosen = random.permutation(len(starts) - 1)[: ROWS * STEPS]
    groups = [order[starts[row] : starts[row + 1]] for row in chosen]
    most = max(map(len, groups))
    keys = packed_keys(
        np.concatenate([lengths[group] for group in groups]), np.array([len(g) for g in groups]), LENGTH, most
    )
    packed = {
        "packed_token_ids": np.zeros((len(groups), LENGTH), "int32"),
        "packed_slots": np.full((len(groups), SLOTS + most), -1, "int32"),
        "packed_labels": np.zeros((len(groups), SLOTS + most), "int32"),
        "packed_sequence_ids": keys["sequence_ids"],
        "packed_position_ids": keys["position_ids"],
    }
    for row, group in enumerate(groups):
        place = slot = 0
        for text in group:
            used = slots[text][slots[text] >= 0]
            packed["packed_token_ids"][row, place : place + lengths[text]] = masked[text, : lengths[text]]
            here = slice(slot, slot + len(used))
            packed["packed_slots"][row, here] = place + used
            packed["packed_labels"][row, here] = labels[text, : len(used)]
            place, slot = place + lengths[text], slot + len(used)
    shown = np.concatenate(groups)[: ROWS * STEPS]  # the padded side trains on some of the same paragraphs
    padded = np.where(np.arange(LENGTH) < lengths[shown, None], masked[shown], 0)
    return {
        **packed,
        "padded_token_ids": padded,
        "padded_lengths": lengths[shown],
        "padded_slots": slots[shown],
        "padded_labels": labels[shown],
        "real": np.array([keys["sequence_ids"].astype(bool).sum(), lengths[shown].sum()]),
    }


# === Contenders ===


def kerasbert(activation: str):
    def make(folder: Path) -> Work:
        from kerasbert.objectives import MaskedLM
        from kerasbert.training import adamw

        import keras  # isort: skip  # behind kerasbert, which picks the backend

        model = MaskedLM.from_preset(folder / activation)
        data = np.load(folder / "batches.npz")
        x = {"token_ids": data["token_ids"], "masked_positions": data["slots"]}
        shown = model.predict({key: array[:SHOWN] for key, array in x.items()}, batch_size=SHOWN, verbose=0)
        # A long run on TensorFlow uses XLA, as KerasHub always does; the turns here are short.
        jit_compile = True if keras.backend.backend() == "tensorflow" else "auto"
        model.compile(adamw(learning_rate=RATE, weight_decay=DECAY), jit_compile=jit_compile)

        def run() -> None:
            model.fit(x, data["labels"], batch_size=ROWS, verbose=0)

        return Work(run, {"logits": shown}, TOKENS, STEPS * training_flops(ROWS, LENGTH, SLOTS))

    return make


def keras_hub(folder: Path) -> Work:
    import keras

    model = keras_hub_masked_lm(folder / "gelu_new")
    data = np.load(folder / "batches.npz")
    ones = np.ones_like(data["token_ids"])
    x = {
        "token_ids": data["token_ids"],
        "segment_ids": 0 * ones,
        "padding_mask": ones,
        "mask_positions": data["slots"],
    }
    shown = model.predict({key: array[:SHOWN] for key, array in x.items()}, verbose=0)
    model.compile(
        optimizer=keras.optimizers.AdamW(RATE, weight_decay=DECAY),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )

    def run() -> None:
        model.fit(x, data["labels"], batch_size=ROWS, verbose=0)

    return Work(run, {"logits": shown}, TOKENS, STEPS * training_flops(ROWS, LENGTH, SLOTS))


def transformers(compiled: bool = False, mix: bool = False):
    def make(folder: Path) -> Work:
        import torch
        from transformers import BertForMaskedLM

        model = BertForMaskedLM.from_pretrained(folder / "gelu").eval()
        data = np.load(folder / ("mix.npz" if mix else "batches.npz"))
        start = "padded_" if mix else ""
        ids = torch.tensor(data[start + "token_ids"]).long()
        slots = data[start + "slots"]
        labels = np.full(ids.shape, -100)
        for row, (where, what) in enumerate(zip(slots, data[start + "labels"], strict=True)):
            labels[row, where[where >= 0]] = what[where >= 0]
        labels = torch.tensor(labels)
        real = torch.arange(LENGTH) < torch.tensor(data["padded_lengths"])[:, None] if mix else None

        def part(step: int) -> dict:
            rows = slice(step * ROWS, (step + 1) * ROWS)
            return dict(input_ids=ids[rows], attention_mask=None if real is None else real[rows].long())

        with torch.no_grad():
            logits = model(**part(0)).logits.numpy()
        shown = np.take_along_axis(logits, np.maximum(slots[:ROWS], 0)[:, :, None], axis=1)[:SHOWN]
        shown = {"logits": shown[slots[:SHOWN] >= 0] if mix else shown}
        optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=DECAY, eps=1e-6, fused=True)
        model.train()
        called = torch.compile(model) if compiled else model

        def run() -> None:
            for step in range(STEPS):
                loss = called(**part(step), labels=labels[step * ROWS : (step + 1) * ROWS]).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

        units = float(data["real"][1]) if mix else TOKENS
        return Work(run, shown, units, 0.0 if mix else STEPS * training_flops(ROWS, LENGTH, SLOTS))

    return make


def by_hand(folder: Path) -> Work:
    import jax

    bert = PlainBert()
    weights = bert.load(folder / "gelu")
    data = np.load(folder / "batches.npz")
    shown = jax.jit(bert.logits)(weights, data["token_ids"][:SHOWN], data["slots"][:SHOWN])
    program = jax.jit(bert.step, donate_argnums=0, static_argnums=(4, 5))
    zeros = jax.jit(lambda w: jax.tree.map(lambda a: 0 * a, w))
    state = [(weights, zeros(weights), zeros(weights), 0.0, jax.random.key(0))]

    def run() -> None:
        for step in range(STEPS):
            rows = slice(step * ROWS, (step + 1) * ROWS)
            state[0], loss = program(
                state[0], data["token_ids"][rows], data["slots"][rows], data["labels"][rows], RATE, DECAY
            )
        loss.block_until_ready()

    return Work(run, {"logits": np.asarray(shown)}, TOKENS, STEPS * training_flops(ROWS, LENGTH, SLOTS))


def packed(folder: Path) -> Work:
    from kerasbert.objectives import MaskedLM
    from kerasbert.training import adamw

    model = MaskedLM.from_preset(folder / "gelu")
    data = np.load(folder / "mix.npz")
    x = {name: data["packed_" + name] for name in ("token_ids", "sequence_ids", "position_ids")}
    x["masked_positions"] = data["packed_slots"]
    logits = model.predict({key: array[:ROWS] for key, array in x.items()}, batch_size=ROWS, verbose=0)
    used = data["packed_slots"][:ROWS] >= 0
    count = (data["padded_slots"][:SHOWN] >= 0).sum()  # the padded rows are the same paragraphs in the same order
    shown = {"logits": logits[used][:count]}
    model.compile(adamw(learning_rate=RATE, weight_decay=DECAY))

    def run() -> None:
        model.fit(x, data["packed_labels"], batch_size=ROWS, verbose=0)

    return Work(run, shown, float(data["real"][0]))


CONTENDERS = {
    "kerasbert": Contender(kerasbert("gelu")),
    "kerasbert, tanh gelu": Contender(kerasbert("gelu_new")),
    "keras-hub": Contender(keras_hub, peer=True),
    "transformers": Contender(transformers()),
    "transformers, compiled": Contender(transformers(compiled=True)),
    "JAX by hand": Contender(by_hand),
    "kerasbert, packed": Contender(packed),
    "transformers, padded": Contender(transformers(mix=True)),
}

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    backend = os.environ.get("KERAS_BACKEND", "jax")
    hub_goal = {"jax": 2.0, "tensorflow": 1.4}.get(backend)
    compare(
        "mlm_step",
        prepare,
        CONTENDERS,
        [
            Comparison("kerasbert, tanh gelu", "keras-hub", hub_goal),
            Comparison("kerasbert", "transformers", 2.0 if backend == "torch" else 5.0),
            Comparison("kerasbert", "transformers, compiled"),
            Comparison("kerasbert", "JAX by hand"),
            Comparison("kerasbert, packed", "transformers, padded", 8.0),
        ],
        unit="tokens",
        options=arguments.parse_args(),
    )
