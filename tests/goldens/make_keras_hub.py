"""Makes keras_hub.safetensors and keras_hub_presets.zip: small KerasHub presets and what KerasHub computes with them.

Run where keras-hub is installed: python tests/goldens/make_keras_hub.py
"""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
sys.modules.setdefault("tensorflow", None)  # KerasHub imports it wherever it can

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras_hub import models, tokenizers  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

FOLDER = Path(__file__).resolve().parent
SIZES = dict(num_layers=2, num_heads=3, hidden_dim=12, intermediate_dim=20, max_sequence_length=17, dropout=0.1)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS), "the", "##ing"]
TEXTS = ["the things", "a cat sing"]


def byte_letters():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def presets():
    """(name, backbone, tokenizer or None)"""
    vocabulary = len(WORDPIECES)
    bytes_ = ["<s>", "<pad>", "</s>", "<unk>", *byte_letters(), "th", "the", "<mask>"]
    roberta = tokenizers.RobertaTokenizer({t: i for i, t in enumerate(bytes_)}, ["t h", "th e"])
    yield (
        "bert",
        models.BertBackbone(vocabulary_size=vocabulary, num_segments=3, **SIZES),
        tokenizers.BertTokenizer(WORDPIECES, lowercase=True),
    )
    yield (
        "distil_bert",
        models.DistilBertBackbone(vocabulary_size=vocabulary, **SIZES),
        tokenizers.DistilBertTokenizer(WORDPIECES, lowercase=False),
    )
    yield "roberta", models.RobertaBackbone(vocabulary_size=len(bytes_), **SIZES), roberta
    yield "xlm_roberta", models.XLMRobertaBackbone(vocabulary_size=41, **SIZES), None
    shape = {**SIZES, "num_layers": 4}
    groups = dict(num_groups=2, num_inner_repetitions=2, embedding_dim=8, num_segments=3)
    yield "albert", models.AlbertBackbone(vocabulary_size=43, **shape, **groups), None
    for name, width in (("electra", 8), ("electra_wide", 12)):
        yield name, models.ElectraBackbone(vocab_size=vocabulary, embedding_dim=width, num_segments=3, **SIZES), None


def main():
    outputs = {}
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        for name, backbone, tokenizer in presets():
            for weight in backbone.weights:
                # Few bits, so that the archive is small.
                weight.assign(np.round(random.normal(0.0, 0.2, weight.shape) * 16) / 16)
            folder = Path(temporary) / name
            backbone.save_to_preset(str(folder))
            rows = getattr(backbone, "vocabulary_size", None) or backbone.vocab_size
            x = {
                "token_ids": random.integers(5, rows, (2, 7)).astype("int32"),
                "padding_mask": np.array([[1] * 7, [1] * 4 + [0] * 3], "int32"),
            }
            if "segment_ids" in backbone.input:
                x["segment_ids"] = random.integers(0, 3, (2, 7)).astype("int32")
            found = backbone.predict(x, verbose=0)
            found = found if isinstance(found, dict) else {"sequence_output": found}
            outputs |= {f"{name}/{key}": value for key, value in {**x, **found}.items()}
            if tokenizer is not None:
                tokenizer.save_to_preset(str(folder))
                for number, text in enumerate(TEXTS):
                    outputs[f"{name}/ids_{number}"] = np.asarray(tokenizer(text), "int32")
        save_file(outputs, FOLDER / "keras_hub.safetensors")
        with zipfile.ZipFile(FOLDER / "keras_hub_presets.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(Path(temporary).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(temporary))
        shutil.rmtree(temporary, ignore_errors=True)
    print(keras.__version__, sum(path.stat().st_size for path in FOLDER.glob("keras_hub*")))


if __name__ == "__main__":
    main()
