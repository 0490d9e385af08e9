"""Generation by encoder-decoders: token for token what transformers generates, from a cache that changes nothing."""

import keras
import numpy as np
import pytest

from kerasbert.generation.search import Options, filtered
from kerasbert.models import T5, T5Config
from kerasbert.objectives import CausalLM, Seq2SeqLM
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, head_dim=5, feed_forward_dim=40, num_buckets=8,
    max_distance=9,
)  # fmt: skip


def random_sources(count=50, longest=40):
    rng = np.random.default_rng(0)
    return [rng.integers(2, 61, rng.integers(1, longest)).astype("int32") for _ in range(count)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(ours, theirs) of the same random weights, so large that texts differ and some of them end."""
    import transformers

    config = transformers.T5Config(
        vocab_size=61, d_model=24, d_kv=5, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=8, relative_attention_max_distance=9, decoder_start_token_id=0,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("t5")
    theirs = their_model("T5ForConditionalGeneration", config, folder, std=0.6)
    theirs.generation_config.decoder_start_token_id = 7  # which counts, rather than that of config.json
    theirs.save_pretrained(folder)
    return Seq2SeqLM.from_preset(folder), theirs


def check_equal(ours, theirs, sources, most=12, least=0, **options):
    """The same tokens, none of theirs behind the end, and for beams the same scores."""
    import torch

    lengths = np.array([len(source) for source in sources])
    real = np.arange(max(lengths)) < lengths[:, None]
    ids = np.zeros(real.shape, "int64")
    ids[real] = np.concatenate(sources)
    sequences, beams = options.get("num_sequences", 1), options.get("num_beams", 1) > 1
    named = {"num_sequences": "num_return_sequences"}
    limits = dict(max_new_tokens=most, min_new_tokens=least)
    expected = theirs.generate(
        input_ids=torch.from_numpy(ids),
        attention_mask=torch.from_numpy(real.astype("int64")),
        **limits,
        **{named.get(key, key): value for key, value in options.items()},
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=beams,
    )
    found = ours.generate(sources, **limits, **options, scores=True)
    rows = [one for many in found for one in (many if sequences > 1 else [many])]
    ended = 0
    for number, (row, other) in enumerate(zip(rows, expected.sequences.numpy()[:, 1:], strict=True)):
        new = row["token_ids"]
        np.testing.assert_array_equal(new, other[: len(new)], err_msg=f"source {number}")
        assert (other[len(new) :] == (1 if beams else 0)).all()  # beams with pad_id 0 they fill up with the end token
        ended += new[-1] == 1
        if beams:
            np.testing.assert_allclose(row["score"], expected.sequences_scores[number].item(), rtol=1e-4, atol=1e-5)
    return ended


@pytest.mark.one_backend
@pytest.mark.optimized
def test_greedy_equals_transformers(pair):
    assert check_equal(*pair, random_sources(), most=20) > 0
    check_equal(*pair, random_sources(20), most=12, least=12)


@pytest.mark.parametrize(
    "early_stopping",
    [True, pytest.param(False, marks=pytest.mark.one_backend), pytest.param("never", marks=pytest.mark.one_backend)],
)
def test_beam_search_equals_transformers(pair, early_stopping):
    options = dict(num_beams=4, early_stopping=early_stopping)
    ended = [check_equal(*pair, random_sources(), **options, length_penalty=p) for p in (1.0, 0.0, 2.5, -1.0)]
    assert ended[3] > ended[2]


@pytest.mark.one_backend
def test_several_sequences_and_limits(pair):
    check_equal(*pair, random_sources(20), num_beams=3, num_sequences=2, least=3, most=9)


@pytest.mark.one_backend
def test_cached_and_uncached_agree(pair):
    """Greedy decoding by whole calls of the model, far beyond the buckets of distances; and its scores."""
    ours, _ = pair
    source = random_sources(2)[1]
    answer = ours.generate(source, max_new_tokens=30, stop_ids=(), scores=True)
    ids = answer["token_ids"]
    decoder_ids = np.concatenate([[7], ids[:-1]]).astype("int32")[None]
    logits = to_numpy(ours({"token_ids": source[None], "decoder_token_ids": decoder_ids}))[0].astype("float64")
    np.testing.assert_array_equal(logits.argmax(axis=-1), ids)
    chosen = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(30), ids]
    np.testing.assert_allclose(answer["score"], chosen.sum(), atol=1e-4)


@pytest.mark.one_backend
def test_a_source_does_not_depend_on_its_batch(pair):
    ours, _ = pair
    sources = random_sources(7)
    for options in (dict(num_beams=3), dict(sample=True, seed=3)):
        together = ours.generate(sources, max_new_tokens=8, **options)
        parts = ours.generate(sources, max_new_tokens=8, batch_size=4, **options)
        for one, other in zip(together, parts, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.one_backend
def test_samples_follow_the_distribution(pair):
    ours, _ = pair
    source = random_sources(3)[2]
    options = dict(temperature=3.0, top_k=20, top_p=0.9)
    logits = to_numpy(ours({"token_ids": source[None], "decoder_token_ids": np.full((1, 1), 7, "int32")}))[:, -1]
    kept = to_numpy(filtered(keras.ops.convert_to_tensor(logits), Options(sample=True, **options))).astype("float64")[0]
    expected = np.exp(kept - np.logaddexp.reduce(kept))
    draws = ours.generate(source, max_new_tokens=1, sample=True, num_sequences=4_000, **options)
    counts = np.bincount([draw[0] for draw in draws], minlength=61)
    likely = expected > 0
    assert not counts[~likely].any() and 3 < likely.sum() <= 20
    chi_square = np.sum((counts[likely] - 4_000 * expected[likely]) ** 2 / (4_000 * expected[likely]))
    assert chi_square < likely.sum() + 5 * np.sqrt(2 * likely.sum())


def test_programs_are_used_again(pair):
    ours, _ = pair
    sources = random_sources(3)
    ours.generate(sources, max_new_tokens=5)
    programs = dict(ours._decoding_programs)
    ours.generate(sources, max_new_tokens=9, min_new_tokens=2)
    assert ours._decoding_programs == programs


@pytest.mark.parametrize("kind", ["language_model", "prefix_language_model"])
@pytest.mark.one_backend
def test_a_decoder_alone_continues_its_prompt(kind):
    """The prompt of a prefix language model is its prefix."""
    model = randomize(CausalLM(T5(T5Config(**TINY, architecture=kind))), std=0.7)
    prompts = [source[:11] for source in random_sources(2)]
    for prompt, answer in zip(prompts, model.generate(prompts, max_new_tokens=12, stop_ids=()), strict=True):
        inputs = {"token_ids": answer[None, :-1]}
        if kind == "prefix_language_model":
            inputs["prefix_mask"] = (np.arange(len(answer) - 1) < len(prompt))[None]
        best = to_numpy(model(inputs))[0].argmax(axis=-1)
        np.testing.assert_array_equal(answer[len(prompt) :], best[len(prompt) - 1 :])


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ([], {}, "no prompts"),
        ([[3], []], {}, "source 1 is empty"),
        ([[3, 61]], {}, "between 0 and 60. Received: 61"),
        ([[3]], {"num_beams": 62}, "at most the vocabulary size, 61. Received: 62"),
        ([[3]], {"max_new_tokens": 0}, "`max_new_tokens` must be at least 1"),
        ([[3]], {"max_new_tokens": 3, "min_new_tokens": 4}, "`min_new_tokens` from 0 to `max_new_tokens`"),
        ("text", {}, "Text needs a tokenizer"),
    ],
)
@pytest.mark.one_backend
def test_what_cannot_be_generated_is_an_error(pair, sources, options, message):
    with pytest.raises(ValueError, match=message):
        pair[0].generate(sources, **options)
