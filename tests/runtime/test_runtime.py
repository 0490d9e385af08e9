"""The parts with which exports are answered without Keras."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from kerasbert.data import Tokenizer, encode_texts
from kerasbert.runtime.activations import ACTIVATIONS, activated
from kerasbert.runtime.cutting import cut_text
from kerasbert.runtime.rows import padded, rows_of
from kerasbert.tasks.activations import ACTIVATIONS as ACTIVATIONS_OF_KERAS
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

WORDS = "the cat sat on a mat and dog ran home who where red blue one two three four five six seven".split()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [" ".join(WORDS)] * 9, vocabulary_size=61, lowercase=True)


def test_no_keras_and_no_backend_is_imported():
    code = "import sys, kerasbert.runtime, pipelines.predict, pipelines.serve, pipelines.serve.api.server; "
    code += "print(*{'keras', 'jax', 'tensorflow', 'torch', 'gradio'} & sys.modules.keys())"
    process = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert process.stdout == "\n"


@pytest.mark.parametrize("name", ACTIVATIONS_OF_KERAS)
def test_activations_equal_those_of_keras(name):
    x = np.array([[-40.0, -3.1, -0.6, -0.4, 0.0], [0.3, 0.5, 0.7, 6.5, 40.0]], "float32")
    expected = keras.ops.convert_to_numpy(ACTIVATIONS_OF_KERAS[name][1](keras.ops.convert_to_tensor(x)))
    np.testing.assert_allclose(activated(name, x), expected, rtol=2e-6, atol=2e-6)
    assert ACTIVATIONS.keys() == ACTIVATIONS_OF_KERAS.keys()


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_are_padded_as_texts_are_encoded(tokenizer, side):
    tokenizer = Tokenizer.from_json(tokenizer.to_json())
    tokenizer.padding_side = side
    x = encode_texts(tokenizer, ["a dog", ("one a three", "four"), "who"], 16)
    rows = rows_of(x, [np.flatnonzero(ids == tokenizer.id("a")) for ids in x["token_ids"]])
    again = padded(rows, tokenizer.pad_id, side == "left")
    for name in ("token_ids", "segment_ids"):
        np.testing.assert_array_equal(again[name], x[name])
    lengths = x["lengths"] if side == "right" else x["padding_mask"].sum(axis=1)
    np.testing.assert_array_equal(again["padding_mask"].sum(axis=1), lengths)
    np.testing.assert_array_equal(list(map(len, rows)), lengths)
    assert rows[1].token_ids[rows[1].positions] == tokenizer.id("a")


@pytest.mark.parametrize("between", [" ", "", " " * 400, "\n- ", "的"])
def test_cut_texts_have_the_same_first_tokens(tokenizer, between):
    generator = np.random.default_rng(0)
    read = []

    def count(text):
        read.append(len(text))
        return len(tokenizer.encode([text], add_special_tokens=False)[0])

    for limit in (1, 9, 30):
        text = between.join(generator.choice(WORDS, 800))
        found = cut_text(text, limit, count)
        assert not between or (len(found) < len(text) and max(read) < len(text))  # without a space, it is one word
        expected = tokenizer.encode([text], add_special_tokens=False)[0][:limit]
        np.testing.assert_array_equal(tokenizer.encode([found], add_special_tokens=False)[0][:limit], expected)
    assert cut_text(" " * 5_000 + "cat", 9, count) == " " * 5_000 + "cat"
    assert cut_text("short", 9, count) == "short"
