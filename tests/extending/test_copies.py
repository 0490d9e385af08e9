"""Copies of models by `copy.deepcopy` and pickling."""

import copy
import pickle

import keras
import numpy as np
import pytest

from kerasbert.models import GPT2, T5, Bert, BertConfig, GPT2Config, T5Config
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import TextClassifier
from tests.extending.small import SIZES, random_ids

MODELS = {
    "bert": lambda: Bert(BertConfig(**SIZES)),
    "masked": lambda: MaskedLM(Bert(BertConfig(**SIZES))),
    "classifier": lambda: TextClassifier(Bert(BertConfig(**SIZES)), labels=2),
    "causal": lambda: CausalLM(GPT2(GPT2Config(**SIZES))),
    "seq2seq": lambda: Seq2SeqLM(T5(T5Config(**{k: v for k, v in SIZES.items() if k != "max_length"}))),
}


def outputs(model):
    ids = random_ids(2, 6)
    x = (
        {"token_ids": ids, "decoder_token_ids": ids}
        if "decoder_token_ids" in model.example_inputs()
        else {"token_ids": ids}
    )
    return [keras.ops.convert_to_numpy(value) for value in keras.tree.flatten(model(x)) if value is not None]


@pytest.mark.parametrize("name", MODELS)
def test_copies_are_equal_and_independent(name):
    model = MODELS[name]()
    expected = outputs(model)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied) is type(model)
        for found, wanted in zip(outputs(copied), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        for weight in copied.weights:
            weight.assign(np.zeros(weight.shape, weight.dtype))
        for found, wanted in zip(outputs(model), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
