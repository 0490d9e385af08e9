"""Generation with a permutation: token for token what transformers generates; causal XLNet by whole calls."""

import numpy as np
import pytest

from kerasbert.models import XLNet, XLNetConfig
from kerasbert.objectives import CausalLM, PermutationLM
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40)


def random_prompts(lengths=(1, 2, 5, 13)):
    rng = np.random.default_rng(0)
    return [rng.integers(6, 61, length).astype("int32") for length in lengths]


@pytest.mark.parametrize(
    "changes",
    [
        dict(mem_len=None, eos_token_id=28),
        pytest.param(dict(mem_len=512, reuse_len=40, bi_data=True), marks=pytest.mark.one_backend),
        pytest.param(dict(mem_len=9, clamp_len=3), marks=pytest.mark.one_backend),
        pytest.param(dict(mem_len=2), marks=pytest.mark.one_backend),
        pytest.param(dict(mem_len=None, attn_type="uni"), marks=pytest.mark.one_backend),
    ],
)
def test_greedy_and_beams_equal_transformers(changes, tmp_path):
    """One prompt a call: theirs has no padding here, and its causal attention no batch."""
    import torch
    import transformers

    sizes = dict(vocab_size=61, d_model=24, n_layer=2, n_head=3, d_inner=40, pad_token_id=5)
    config = transformers.XLNetConfig(**{**sizes, **changes, "bi_data": False})
    theirs = their_model("XLNetLMHeadModel", config, tmp_path, std=0.5)
    ours = PermutationLM.from_preset(tmp_path, bidirectional_data=changes.get("bi_data", False))
    prompts = random_prompts()
    beams = [1] if "attn_type" in changes else [1, 3]
    for num_beams in beams:
        answers = ours.generate(prompts, max_new_tokens=12, num_beams=num_beams)
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.from_numpy(prompt[None].astype("int64"))
            expected = theirs.generate(ids, max_new_tokens=12, num_beams=num_beams, do_sample=False)[0]
            np.testing.assert_array_equal(answer, expected.numpy())


@pytest.mark.one_backend
def test_the_first_token_is_the_likeliest_at_one_more_place():
    model = randomize(PermutationLM(XLNet(XLNetConfig(**TINY))), 0.5)
    prompt = random_prompts()[3]
    row = np.append(prompt, 33).astype("int32")[None]  # whatever stands there, no token sees it
    last = (np.arange(14) == 13).astype("int32")[None]
    ranks = {"query_ranks": np.ones_like(row), "key_ranks": last}
    logits = to_numpy(model({"token_ids": row, **ranks, "masked_positions": np.array([[13]], "int32")}))[0, 0]
    answer = model.generate(prompt, max_new_tokens=1, scores=True)
    assert answer["token_ids"][-1] == logits.argmax()
    assert answer["score"] == pytest.approx(logits.max() - np.logaddexp.reduce(logits), abs=1e-4)


@pytest.mark.one_backend
def test_samples_do_not_depend_on_the_batch():
    model = randomize(PermutationLM(XLNet(XLNetConfig(**TINY))), 0.5)
    options = dict(sample=True, top_k=9, seed=3, max_new_tokens=5)
    together = model.generate(random_prompts(), **options)
    parts = model.generate(random_prompts(), **options, batch_size=2)
    for one, other in zip(together, parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.one_backend
def test_a_causal_model_continues_by_its_content_stream():
    """Each token the likeliest after a call on all before it; then with a memory too short for that."""
    changes = dict(causal=True, bidirectional_data=True, reuse_length=2)  # of batches, not of prompts
    model = randomize(CausalLM(XLNet(XLNetConfig(**TINY, **changes))), 0.5)
    prompts = random_prompts()
    for prompt, answer in zip(prompts, model.generate(prompts, max_new_tokens=6, scores=True), strict=True):
        ids = answer["token_ids"]
        forward = {"backward": np.zeros(1, bool)}
        logits = to_numpy(model({"token_ids": ids[None, :-1], **forward}))[0, len(prompt) - 1 :]
        np.testing.assert_array_equal(logits.argmax(axis=-1), ids[len(prompt) :])
        log_probabilities = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        assert answer["score"] == pytest.approx(log_probabilities.max(axis=-1).sum(), abs=1e-4)
    short = CausalLM(XLNet(XLNetConfig(**TINY, causal=True, memory_length=4)))
    short.set_weights(model.get_weights())
    prompt = prompts[3]
    answer = short.generate(prompt, max_new_tokens=3)
    memory = short.backbone.empty_memory(1)
    outputs = short.backbone({"token_ids": prompt[None], **memory})
    for token in answer[len(prompt) :]:
        logits = short.causal_lm(outputs["sequence_output"][:, -1:], short.backbone.token_table)
        assert token == to_numpy(logits)[0, 0].argmax()
        memory = {name: outputs[name] for name in memory}
        outputs = short.backbone({"token_ids": np.array([[token]], "int32"), **memory})
