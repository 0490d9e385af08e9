"""Peak memory of a training step: the shapes of T5-base (4 rows of 512 and 114) and XLM-R-base (8 rows of 128).

    KERAS_BACKEND=jax python -m benchmarks.speed.memory

Against transformers (torch, AdamW), from the same random weights. The peak is that of the process, the libraries
included, from the second step on. One process runs after the other.
"""

import functools
from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

T5_ROWS, SOURCE, TARGET = 4, 512, 114
XLM_R_ROWS, LENGTH, SLOTS = 8, 128, 19
RATE = 1e-4


def prepare(folder: Path, options) -> None:
    from kerasbert.backend import seed_everything
    from kerasbert.models import T5, Roberta
    from kerasbert.objectives import MaskedLM, Seq2SeqLM

    seed_everything(0)
    Seq2SeqLM(T5.from_preset("t5_base", load_weights=False)).save_to_preset(folder / "t5")
    MaskedLM(Roberta.from_preset("xlm_roberta_base", load_weights=False, pooler=False)).save_to_preset(folder / "xlm_r")
    random = np.random.default_rng(0)
    shapes = {
        "source": (T5_ROWS, SOURCE),
        "decoder": (T5_ROWS, TARGET),
        "target": (T5_ROWS, TARGET),
        "ids": (XLM_R_ROWS, LENGTH),
        "labels": (XLM_R_ROWS, SLOTS),
    }
    arrays = {name: random.integers(10, 30_000, shape, "int32") for name, shape in shapes.items()}
    slots = np.stack([np.sort(random.permutation(LENGTH)[:SLOTS]) for _ in range(XLM_R_ROWS)]).astype("int32")
    np.savez(folder / "batches.npz", slots=slots, **arrays)


def kerasbert(name: str, rematerialized: bool = False):
    def make(folder: Path) -> Work:
        from kerasbert.objectives import MaskedLM, Seq2SeqLM
        from kerasbert.training import adamw

        data = np.load(folder / "batches.npz")
        if name == "t5":
            model = Seq2SeqLM.from_preset(folder / name)
            x, y = {"token_ids": data["source"], "decoder_token_ids": data["decoder"]}, data["target"]
        else:
            model = MaskedLM.from_preset(folder / name)
            x, y = {"token_ids": data["ids"], "masked_positions": data["slots"]}, data["labels"]
        if rematerialized:
            model.backbone.rematerialize()
        model.compile(adamw(learning_rate=RATE))
        loss = model.evaluate(x, y, batch_size=len(y), verbose=0, return_dict=True)["loss"]
        return Work(lambda: model.fit(x, y, batch_size=len(y), verbose=0), {"loss": np.array(loss)})

    return make


def transformers(name: str):
    def make(folder: Path) -> Work:
        import torch
        from transformers import T5ForConditionalGeneration, XLMRobertaForMaskedLM

        data = {key: torch.tensor(array).long() for key, array in np.load(folder / "batches.npz").items()}
        if name == "t5":
            model = T5ForConditionalGeneration.from_pretrained(folder / name)
            x = dict(input_ids=data["source"], decoder_input_ids=data["decoder"], labels=data["target"])
        else:
            model = XLMRobertaForMaskedLM.from_pretrained(folder / name)
            labels = torch.full_like(data["ids"], -100).scatter_(1, data["slots"], data["labels"])
            x = dict(input_ids=data["ids"], labels=labels)
        with torch.no_grad():
            loss = model.eval()(**x).loss.numpy()
        optimizer = torch.optim.AdamW(model.train().parameters(), RATE, fused=True)

        def run() -> None:
            model(**x).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return Work(run, {"loss": loss})

    return make


CONTENDERS = {
    f"{side}, {name}": Contender(make(name))
    for name in ("t5", "xlm_r")
    for side, make in (
        ("kerasbert", kerasbert),
        ("rematerialized", functools.partial(kerasbert, rematerialized=True)),
        ("transformers", transformers),
    )
}

if __name__ == "__main__":
    compare(
        "memory",
        prepare,
        CONTENDERS,
        [
            Comparison(f"{side}, {name}", f"transformers, {name}", 0.6, tolerance=1e-3, what="memory")
            for name in ("t5", "xlm_r")
            for side in ("kerasbert", "rematerialized")
        ],
        alone=True,
        options=parser(__doc__.splitlines()[0]).parse_args(),
    )
