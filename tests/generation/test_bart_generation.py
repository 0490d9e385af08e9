"""Generation by BART: token for token what transformers generates, with tokens that are forced at both ends."""

import numpy as np
import pytest

from kerasbert.objectives import Seq2SeqLM
from tests.models.reference import their_model, to_numpy

START, END, FIRST = 2, 2, 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(ours, theirs) of the same random weights, so large that texts differ and some of them end."""
    import torch
    import transformers

    config = transformers.BartConfig(
        vocab_size=61, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
        decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=36, max_position_embeddings=48,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bart")
    theirs = their_model("BartForConditionalGeneration", config, folder, std=0.6)
    theirs.final_logits_bias.copy_(torch.randn(1, 61))
    theirs.final_logits_bias[0, END] += 3.0
    theirs.generation_config.forced_bos_token_id = FIRST
    theirs.save_pretrained(folder)
    return Seq2SeqLM.from_preset(folder), theirs


def random_sources(count=40, longest=40):
    rng = np.random.default_rng(0)
    return [rng.integers(3, 61, rng.integers(1, longest)).astype("int32") for _ in range(count)]


def check_equal(ours, theirs, sources, first=None, most=12, least=0, **options):
    """The same tokens, padding behind their end, and for beams the same scores. Returns how many ended early."""
    import torch

    lengths = np.array([len(source) for source in sources])
    real = np.arange(max(lengths)) < lengths[:, None]
    ids = np.ones(real.shape, "int64")
    ids[real] = np.concatenate(sources)
    beams = options.get("num_beams", 1) > 1
    limits = dict(max_new_tokens=most, min_new_tokens=least)
    forced = {} if first is None else dict(forced_bos_token_id=first)
    expected = theirs.generate(
        input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(real.astype("int64")), **limits, **options,
        **forced, do_sample=False, return_dict_in_generate=True, output_scores=beams,
    )  # fmt: skip
    found = ours.generate(sources, **limits, **options, first_token=first, scores=True)
    ended = 0
    for number, (row, other) in enumerate(zip(found, expected.sequences.numpy()[:, 1:], strict=True)):
        new = row["token_ids"]
        np.testing.assert_array_equal(new, other[: len(new)], err_msg=f"source {number}")
        assert new[0] == (FIRST if first is None else first) and new[-1] == END and (other[len(new) :] == 1).all()
        ended += len(new) < most
        if beams:
            np.testing.assert_allclose(row["score"], expected.sequences_scores[number].item(), rtol=1e-4, atol=1e-5)
    return ended


@pytest.mark.one_backend
def test_greedy_equals_transformers(pair):
    assert 0 < check_equal(*pair, random_sources()) < 40
    assert check_equal(*pair, random_sources(), first=17, least=12) == 0


def test_beam_search_equals_transformers(pair):
    assert check_equal(*pair, random_sources(), num_beams=3, early_stopping=True, length_penalty=2.0)
    check_equal(*pair, random_sources(9), num_beams=3, first=17, most=5, length_penalty=-1.0)


@pytest.mark.one_backend
def test_forced_tokens_have_probability_one(pair):
    """The score is that of the other tokens, by whole calls of the model; samples have the same ends."""
    ours, _ = pair
    source = random_sources(2)[1]
    answer = ours.generate(source, max_new_tokens=9, min_new_tokens=9, scores=True)
    ids = answer["token_ids"]
    decoder_ids = np.concatenate([[START], ids[:-1]]).astype("int32")[None]
    logits = to_numpy(ours({"token_ids": source[None], "decoder_token_ids": decoder_ids}))[0].astype("float64")
    scores = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(9), ids]
    np.testing.assert_allclose(answer["score"], scores[1:-1].sum(), atol=1e-4)
    samples = ours.generate(source, sample=True, top_p=0.9, num_sequences=5, max_new_tokens=4, stop_ids=())
    assert all(row[0] == FIRST and row[-1] == END for row in samples) and len({row[1] for row in samples}) > 1


@pytest.mark.one_backend
def test_wrong_first_tokens(pair):
    ours, _ = pair
    with pytest.raises(ValueError, match="`first_token` must be a token of the vocabulary.* 0 and 60. Received: 61"):
        ours.generate(np.array([5, 2]), first_token=61)
    with pytest.raises(ValueError, match="tokenizer"):
        ours.generate(np.array([5, 2]), first_token="de_DE")
