"""Encoding full rows: 4 layers of 256, 64 rows of 128 tokens, against KerasHub on the same backend and transformers.

KERAS_BACKEND=jax python -m benchmarks.speed.encoding --peer-python PYTHON_WITH_KERAS_HUB
"""

from pathlib import Path

import numpy as np

from benchmarks.berts import SHAPE, encoding_flops, write
from benchmarks.harness import Comparison, Contender, Work, compare, parser

ROWS, LENGTH, BATCH = 64, 128, 32
FACTS = dict(units=ROWS * LENGTH, flops=encoding_flops(ROWS * LENGTH, LENGTH))


def prepare(folder: Path, options) -> None:
    for activation in ("gelu", "gelu_new"):
        write(folder / activation, activation)
    ids = np.random.default_rng(0).integers(1_000, SHAPE["vocabulary_size"], (ROWS, LENGTH), "int32")
    np.save(folder / "ids.npy", ids)


def kerasbert(activation: str):
    def make(folder: Path) -> Work:
        from kerasbert.models import Backbone

        model = Backbone.from_preset(folder / activation)
        x = {"token_ids": np.load(folder / "ids.npy")}

        def run() -> np.ndarray:
            return model.predict(x, batch_size=BATCH, verbose=0)["sequence_output"]

        return Work(run, {"hidden": run()}, **FACTS)

    return make


def keras_hub(folder: Path) -> Work:
    import keras_hub

    model = keras_hub.models.BertBackbone.from_preset(str(folder / "gelu_new" / "keras_hub"))
    ids = np.load(folder / "ids.npy")
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": np.ones_like(ids)}

    def run() -> np.ndarray:
        return model.predict(x, batch_size=BATCH, verbose=0)["sequence_output"]

    return Work(run, {"hidden": run()}, **FACTS)


def transformers(folder: Path) -> Work:
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(folder / "gelu").eval()
    batches = torch.tensor(np.load(folder / "ids.npy")).long().split(BATCH)

    def run() -> np.ndarray:
        with torch.inference_mode():
            return np.concatenate([model(ids).last_hidden_state.numpy() for ids in batches])

    return Work(run, {"hidden": run()}, **FACTS)


CONTENDERS = {
    "kerasbert": Contender(kerasbert("gelu")),
    "kerasbert, tanh gelu": Contender(kerasbert("gelu_new")),
    "keras-hub": Contender(keras_hub, peer=True),
    "transformers": Contender(transformers),
}

if __name__ == "__main__":
    compare(
        "encoding",
        prepare,
        CONTENDERS,
        [Comparison("kerasbert, tanh gelu", "keras-hub", 1.2), Comparison("kerasbert", "transformers", 2.0)],
        unit="tokens",
        options=parser(__doc__.splitlines()[0]).parse_args(),
    )
