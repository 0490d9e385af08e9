"""What KerasHub and ZeroModels read of the same folders: the encoder's outputs and the ids of tokens.

    python -m tests.checkpoints.fleet.peers write FOLDER
    PEER_PYTHON tests/checkpoints/fleet/peers.py keras_hub FOLDER
    PEER_PYTHON tests/checkpoints/fleet/peers.py zeromodels FOLDER
    python -m tests.checkpoints.fleet.peers table FOLDER

PEER_PYTHON is a Python of an environment with keras-hub, tensorflow-text, zeromodels and torch. The folders are in the
form of a cache of the hub. The last command writes docs/data/checkpoints.json, from which the documentation is built.
"""

import datetime
import importlib.metadata
import json
import os
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[3] / "docs" / "data" / "checkpoints.json"
EXPECTED = "expected.npz"
PEERS = {"keras_hub": "KerasHub", "zeromodels": "ZeroModels"}


def snapshot(cache: Path, number: int) -> Path:
    return cache / f"models--fleet--{number}" / "snapshots" / "0"


def write(cache: Path) -> None:
    """Writes all folders, and what transformers computes from those that are read here."""
    import transformers

    from tests.checkpoints.fleet.comparison import their_model
    from tests.checkpoints.fleet.folders import write_checkpoint
    from tests.checkpoints.fleet.records import CHECKPOINTS
    from tests.checkpoints.fleet.texts import READ

    for number, record in enumerate(CHECKPOINTS):
        folder = snapshot(cache, number)
        (folder.parents[1] / "refs").mkdir(parents=True)
        (folder.parents[1] / "refs" / "main").write_text("0")
        folder.parent.mkdir()
        write_checkpoint(record, folder)
        if record.refused or record.kind == "neobert":
            continue
        native = folder
        if record.native is not None:
            native = cache / f"native_{number}"
            write_checkpoint(record, native, native=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(native)
        inputs = tokenizer(READ, padding=True, return_tensors="pt")
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        states = their_model("AutoModel", native)(**inputs).last_hidden_state.detach().numpy()
        plain = tokenizer(READ, add_special_tokens=False)["input_ids"]
        arrays = {f"text_{i}": np.array(row) for i, row in enumerate(plain)}
        np.savez(folder.parent / EXPECTED, states=states, **{k: v.numpy() for k, v in inputs.items()}, **arrays)
        (folder.parent / "texts.json").write_text(json.dumps(READ))


# === Asking ===


def ask(library: str, cache: Path) -> None:
    """Writes what a library reads: {number: [encoder, tokens]}, of equal, different, or the type of an error."""
    os.environ |= {"KERAS_BACKEND": "torch", "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    found = {}
    for number in range(len(list(cache.glob("models--*")))):
        folder = snapshot(cache, number)
        if not (folder.parent / EXPECTED).is_file():
            continue
        arrays = np.load(folder.parent / EXPECTED)
        texts = json.loads((folder.parent / "texts.json").read_text())
        parts = ASKED[library]
        found[number] = [outcome(parts[0], folder, number, arrays), outcome(parts[1], folder, number, arrays, texts)]
        print(number, found[number], flush=True)
    version = importlib.metadata.version(library.replace("_", "-"))
    (cache / f"{library}.json").write_text(json.dumps({"version": version, "found": found}))


def outcome(compare, *arguments) -> str:
    try:
        return "equal" if compare(*arguments) else "different"
    except Exception as error:  # whatever a library raises: it does not read the folder
        return type(error).__name__


def near(found, arrays) -> bool:
    real = arrays["attention_mask"].astype(bool)
    found = found.detach().cpu().numpy() if hasattr(found, "detach") else np.asarray(found)
    return bool(np.allclose(found[real], arrays["states"][real], atol=1e-3))


def keras_hub_encoder(folder, number, arrays):
    import keras_hub

    backbone = keras_hub.models.Backbone.from_preset(str(folder))
    names = {tensor.name for tensor in backbone.inputs}
    given = {"token_ids": arrays["input_ids"], "padding_mask": arrays["attention_mask"]}
    given["segment_ids"] = np.zeros_like(arrays["input_ids"])
    outputs = backbone({name: array.astype("int32") for name, array in given.items() if name in names})
    return near(outputs["sequence_output"] if isinstance(outputs, dict) else outputs, arrays)


def keras_hub_tokens(folder, number, arrays, texts):
    import keras_hub

    tokenizer = keras_hub.models.Tokenizer.from_preset(str(folder))
    rows = [list(map(int, np.asarray(tokenizer(text)))) for text in texts]
    return rows == [arrays[f"text_{i}"].tolist() for i in range(len(texts))]


def zeromodels_encoder(folder, number, arrays):
    from zeromodels import AutoZModel

    model = AutoZModel.from_weights(f"hf:fleet/{number}")
    names = {tensor.name for tensor in model.inputs}
    given = {"input_ids": arrays["input_ids"], "attention_mask": arrays["attention_mask"]}
    given["token_type_ids"] = np.zeros_like(arrays["input_ids"])
    outputs = model({name: array.astype("int32") for name, array in given.items() if name in names})
    return near(outputs["last_hidden_state"] if isinstance(outputs, dict) else outputs, arrays)


def zeromodels_tokens(folder, number, arrays, texts):
    from zeromodels import AutoZMTokenizer

    rows = AutoZMTokenizer.from_weights(f"hf:fleet/{number}")(texts)
    ids = np.asarray(rows["input_ids"].cpu() if hasattr(rows["input_ids"], "cpu") else rows["input_ids"])
    real = arrays["attention_mask"].astype(bool)
    return [row[mask].tolist() for row, mask in zip(ids[:, : real.shape[1]], real, strict=True)] == [
        row[mask].tolist() for row, mask in zip(arrays["input_ids"], real, strict=True)
    ]


ASKED = {
    "keras_hub": (keras_hub_encoder, keras_hub_tokens),
    "zeromodels": (zeromodels_encoder, zeromodels_tokens),
}

# === The table ===


def rows() -> list[dict]:
    """The rows of the table, without the columns of other libraries."""
    from tests.checkpoints.fleet.records import CHECKPOINTS, CLASSES

    def row(record):
        read = "" if record.refused else CLASSES[record.kind]
        return {"name": record.name, "type": record.config["model_type"], "classes": read, "note": record.note}

    return [row(record) for record in CHECKPOINTS]


def table(cache: Path) -> None:
    """Writes docs/data/checkpoints.json."""
    peers = {}
    for library, name in PEERS.items():
        found = json.loads((cache / f"{library}.json").read_text())
        peers[name] = {
            "version": found["version"],
            "found": {rows()[int(i)]["name"]: w for i, w in found["found"].items()},
        }
    content = {"date": datetime.date.today().isoformat(), "peers": peers, "rows": rows()}
    FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command, path = sys.argv[1], Path(sys.argv[2]).resolve()
    if command in PEERS:
        ask(command, path)
    else:
        {"write": write, "table": table}[command](path)
