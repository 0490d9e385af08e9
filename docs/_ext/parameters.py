"""Counts the parameters of every size without allocating them, and keeps the counts in `docs/data/parameters.json`.

python docs/_ext/parameters.py    counts what is new or has changed

A size of 11 billion parameters takes seconds: the layers are built on PyTorch's "meta" device, which has shapes only.
"""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "data" / "parameters.json"


def key_of(backbone, size):
    """Identifies a size: its name and a hash of its config, so that a changed size is counted again."""
    config = dataclasses.asdict(backbone.family.config(**backbone.family.sizes[size]))
    text = json.dumps(config, sort_keys=True, default=str)
    return f"{size} {hashlib.sha256(text.encode()).hexdigest()[:10]}"


def count(backbone, size):
    """The number of parameters of a size: the backbone with its pooler, if it has one; tied weights count once."""
    import keras

    with keras.device("meta"):
        model = backbone(backbone.family.config(**backbone.family.sizes[size]))
    return sum(math.prod(variable.shape) for variable in model.weights)


def known():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def update():
    """Counts every size that the file lacks, and removes those that no longer exist."""
    from kerasbert.models import FAMILIES

    before, after = known(), {}
    for backbone in dict.fromkeys(FAMILIES.values()):
        for size in backbone.family.sizes:
            key = key_of(backbone, size)
            after[key] = before[key] if key in before else count(backbone, size)
            print(key, f"{after[key]:,}", flush=True)
    FILE.write_text(json.dumps(after, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "torch"
    update()
