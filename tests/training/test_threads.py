"""Prediction from several threads: the first calls, which compile, and models that share a backbone."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest

from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import to_numpy

SIZES = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=12, max_length=32)
IDS = [np.random.default_rng(i).integers(3, 61, (4, 5 + i % 3)).astype("int32") for i in range(8)]


def together(calls):
    """The results of all calls, begun at once in a thread each."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        return call()

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in calls]]


def test_threads_share_a_model_and_a_backbone():
    backbone = Bert(BertConfig(**SIZES, feed_forward_dim=20))
    models = [TextClassifier(backbone, labels=3), MaskedLM(backbone)]
    found = together([lambda i=i: models[i % 2].predict({"token_ids": IDS[i]}, verbose=0) for i in range(8)])
    for i, outputs in enumerate(found):
        np.testing.assert_allclose(outputs, to_numpy(models[i % 2]({"token_ids": IDS[i]})), atol=1e-5)


@pytest.mark.one_backend
def test_calls_beside_a_prediction():
    model = TextClassifier(Bert(BertConfig(**SIZES, feed_forward_dim=20)), labels=3)
    calls = [lambda i=i: model.predict({"token_ids": IDS[i]}, verbose=0) for i in range(4)]
    calls += [lambda i=i: to_numpy(model({"token_ids": IDS[i]})) for i in range(4)]
    calls += [lambda i=i: to_numpy(model.backbone({"token_ids": IDS[i]})["sequence_output"]) for i in range(2)]
    found = together(calls)
    for one, other in zip(found[:4], found[4:8], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.one_backend
def test_threads_that_generate():
    model = CausalLM(GPT2(GPT2Config(**SIZES)))
    prompts = [ids[0] for ids in IDS[:3]]
    alone = [model.generate(prompt, max_new_tokens=3) for prompt in prompts]
    model.__dict__.pop("_decoding_programs")
    found = together([lambda p=p: model.generate(p, max_new_tokens=3) for p in prompts])
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_are_there_afterwards():
    model = TextClassifier(Bert(BertConfig(**SIZES, feed_forward_dim=20)), labels=3)
    together([lambda i=i: model.predict({"token_ids": IDS[i]}, verbose=0) for i in range(4)])
    assert all(np.isfinite(keras.ops.convert_to_numpy(weight)).all() for weight in model.weights)
