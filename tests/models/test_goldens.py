"""Every family against stored numbers of transformers (`tests/goldens/make_huggingface.py`), which need none of it."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasbert
from tests.models.reference import to_numpy

FOLDERS = sorted((Path(__file__).parent.parent / "goldens" / "huggingface").glob("*/golden.safetensors"))
NAMES = {
    "input_ids": "token_ids",
    "attention_mask": "padding_mask",
    "token_type_ids": "segment_ids",
    "decoder_input_ids": "decoder_token_ids",
}


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
def test_outputs_equal_the_goldens(path):
    golden = load_file(path)
    inputs = {NAMES[key.removeprefix("input/")]: value for key, value in golden.items() if key.startswith("input/")}
    real = inputs["padding_mask"] = inputs["padding_mask"].astype(bool)
    outputs = kerasbert.load(path.parent)(inputs)
    outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
    theirs = {
        "tokens": "prediction_logits",
        "sentence_pair": ["seq_relationship_logits", "sop_logits"],
        "logits": "logits",
    }
    for name, value in outputs.items():
        keys = theirs[name] if isinstance(theirs[name], list) else [theirs[name]]
        expected = next(golden[f"output/{key}"] for key in keys if f"output/{key}" in golden)
        found = to_numpy(value)
        if found.shape[:2] == real.shape:
            found, expected = found[real], expected[real]
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
