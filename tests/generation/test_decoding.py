"""Generation: token for token what transformers generates; samples by their distribution; clear errors."""

import keras
import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.generation.search import Options, drawn, filtered
from kerasbert.models import GPT2, GPT2Config
from kerasbert.objectives import CausalLM
from tests.models.reference import randomize, to_numpy

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=40)
STOPS = (60, 5, 9)


def random_prompts(count=50, longest=19):
    rng = np.random.default_rng(0)
    return [rng.integers(10, 60, rng.integers(1, longest)).astype("int32") for _ in range(count)]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """{family: (ours, theirs)} of the same random weights; without biases, which would have every text end alike."""
    import torch
    import transformers

    sizes = dict(vocab_size=61, n_embd=24, n_layer=2, n_head=3, n_positions=40, pad_token_id=2, eos_token_id=60)
    found = {}
    for name, config in (
        ("GPT2LMHeadModel", transformers.GPT2Config(**sizes, bos_token_id=59)),
        ("OpenAIGPTLMHeadModel", transformers.OpenAIGPTConfig(**sizes)),
    ):
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        theirs = getattr(transformers, name)(config)
        with torch.no_grad():
            for parameter in theirs.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(torch.randn_like(parameter) * 0.5)
        theirs.transformer.h[0].attn.c_proj.bias.data.normal_()
        theirs.eval().save_pretrained(folder)
        found[name] = CausalLM.from_preset(folder), theirs
    return found


def check_equal(ours, theirs, prompts, most=12, least=0, **options):
    """The same tokens, padding behind their end, and for beams the same scores."""
    import torch

    width = max(map(len, prompts))
    real = np.arange(width) >= width - np.array([len(prompt) for prompt in prompts])[:, None]
    ids = np.full(real.shape, 2)
    ids[real] = np.concatenate(prompts)
    sequences = options.get("num_sequences", 1)
    inputs = dict(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(real.astype("int64")))
    named = {"num_sequences": "num_return_sequences", "stop_ids": "eos_token_id"}
    arguments = {named.get(key, key): list(v) if isinstance(v, tuple) else v for key, v in options.items()}
    beams = options.get("num_beams", 1) > 1
    limits = dict(max_new_tokens=most, min_new_tokens=least)
    expected = theirs.generate(
        **inputs, **limits, **arguments, do_sample=False, return_dict_in_generate=True, output_scores=beams
    )
    found = ours.generate(prompts, **limits, **options, scores=True)
    rows = [one for many in found for one in (many if sequences > 1 else [many])]
    ended = 0
    for number, (row, other) in enumerate(zip(rows, expected.sequences.numpy(), strict=True)):
        new, other = row["token_ids"][len(prompts[number // sequences]) :], other[width:]
        np.testing.assert_array_equal(new, other[: len(new)], err_msg=f"prompt {number}")
        assert (other[len(new) :] == 2).all()
        ended += len(new) < most
        if beams:
            np.testing.assert_allclose(row["score"], expected.sequences_scores[number].item(), rtol=1e-4)
    return ended


def test_repetition_is_avoided_as_by_transformers(pairs):
    """Prompts count, too. They are of one length, because transformers takes padding for a token."""
    ours, theirs = pairs["GPT2LMHeadModel"]
    prompts = [prompt[-6:] for prompt in random_prompts() if len(prompt) >= 6][:8]
    plain = ours.generate(prompts, max_new_tokens=12, stop_ids=STOPS)
    for options in (
        dict(repetition_penalty=1.5),
        dict(no_repeat_ngram_size=1),
        dict(no_repeat_ngram_size=2, num_beams=3),
    ):
        check_equal(ours, theirs, prompts, stop_ids=STOPS, **options)
        found = ours.generate(prompts, max_new_tokens=12, stop_ids=STOPS, **options)
        assert any(a.tolist() != b.tolist() for a, b in zip(plain, found, strict=True))


@pytest.mark.optimized
def test_greedy_equals_transformers(pairs):
    prompts = random_prompts()
    assert 0 < check_equal(*pairs["GPT2LMHeadModel"], prompts, stop_ids=STOPS) < 50
    assert check_equal(*pairs["GPT2LMHeadModel"], prompts, least=12, stop_ids=STOPS) == 0


@pytest.mark.parametrize(
    "early_stopping",
    [True, pytest.param(False, marks=pytest.mark.one_backend), pytest.param("never", marks=pytest.mark.one_backend)],
)
def test_beam_search_equals_transformers(pairs, early_stopping):
    ended = [
        check_equal(
            *pairs["GPT2LMHeadModel"],
            random_prompts(),
            num_beams=4,
            early_stopping=early_stopping,
            length_penalty=length_penalty,
        )
        for length_penalty in (1.0, 0.0, 2.5, -1.0)
    ]
    assert ended[3] > ended[2]


@pytest.mark.one_backend
def test_beams_with_several_ends_sequences_and_a_least_length(pairs):
    options = dict(num_beams=3, num_sequences=2, stop_ids=STOPS, length_penalty=-1.0, least=3, most=9)
    assert check_equal(*pairs["GPT2LMHeadModel"], random_prompts(), **options)


@pytest.mark.one_backend
def test_gpt_equals_transformers_too(pairs):
    ours, theirs = pairs["OpenAIGPTLMHeadModel"]
    prompts = [prompt for prompt in random_prompts() if len(prompt) == 7]  # theirs has no positions for padding
    assert len(prompts) > 1
    check_equal(ours, theirs, prompts)
    check_equal(ours, theirs, prompts, num_beams=2)


@pytest.mark.one_backend
def test_a_prompt_does_not_depend_on_its_batch(pairs):
    ours, _ = pairs["GPT2LMHeadModel"]
    prompts = random_prompts(9)
    for options in (dict(), dict(num_beams=3), dict(sample=True, seed=3)):
        together = ours.generate(prompts, max_new_tokens=8, **options)
        parts = ours.generate(prompts, max_new_tokens=8, batch_size=4, **options)
        for one, other in zip(together, parts, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.one_backend
def test_scores_are_log_probabilities_of_the_whole_text(pairs):
    ours, _ = pairs["GPT2LMHeadModel"]
    prompt = random_prompts(2)[1]
    answer = ours.generate(prompt, max_new_tokens=6, scores=True)
    ids = answer["token_ids"]
    logits = to_numpy(ours({"token_ids": ids[None, :-1]}))[0].astype("float64")
    chosen = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(answer["score"], chosen[len(prompt) - 1 :].sum(), atol=1e-4)
    beam = ours.generate(prompt, max_new_tokens=6, num_beams=4, scores=True)
    assert beam["score"] >= answer["score"] / (len(ids) - len(prompt)) - 1e-4


@pytest.mark.one_backend
def test_half_precision_compares_beams_in_float32():
    """Scores of beams are sums of float32 log probabilities, not of rounded ones."""
    model = CausalLM(randomize(GPT2(GPT2Config(**TINY), dtype="bfloat16"), 0.5))
    prompt = random_prompts(2)[1]
    answer = model.generate(prompt, max_new_tokens=5, num_beams=3, length_penalty=0.0, stop_ids=(), scores=True)
    ids = answer["token_ids"]
    logits = to_numpy(keras.ops.cast(model({"token_ids": ids[None, :-1]}), "float32"))[0]
    chosen = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(answer["score"], chosen[len(prompt) - 1 :].sum(), atol=0.05)


# === Samples ===


def kept_by(logits, **options):
    return to_numpy(filtered(keras.ops.convert_to_tensor(logits), Options(sample=True, **options)))


def test_samples_follow_the_distribution(pairs):
    ours, _ = pairs["GPT2LMHeadModel"]
    prompt = random_prompts(3)[2]
    options = dict(temperature=1.5, top_k=20, top_p=0.8)
    logits = to_numpy(ours({"token_ids": prompt[None]}))[:, -1]
    kept = np.asarray(kept_by(logits, **options), "float64")
    expected = np.exp(kept[0] - np.logaddexp.reduce(kept[0]))
    draws = ours.generate(prompt, max_new_tokens=1, sample=True, num_sequences=4_000, **options)
    counts = np.bincount([draw[-1] for draw in draws], minlength=61)
    assert not counts[expected == 0].any() and 3 < (expected > 0).sum() <= 20
    likely = expected > 0
    chi_square = np.sum((counts[likely] - 4_000 * expected[likely]) ** 2 / (4_000 * expected[likely]))
    assert chi_square < likely.sum() + 5 * np.sqrt(2 * likely.sum())
    again = ours.generate(prompt, max_new_tokens=1, sample=True, num_sequences=4_000, **options)
    np.testing.assert_array_equal(np.stack(draws), np.stack(again))
    other = ours.generate(prompt, max_new_tokens=1, sample=True, num_sequences=4_000, seed=1, **options)
    assert (np.stack(draws) != np.stack(other)).any()


@pytest.mark.one_backend
def test_filters_equal_those_of_transformers():
    import torch
    import transformers.generation.logits_process as process

    logits = np.random.default_rng(0).normal(0, 3, (5, 61)).astype("float32")
    scores = process.TemperatureLogitsWarper(0.7)(None, torch.from_numpy(logits))
    scores = process.TopKLogitsWarper(30)(None, scores)
    scores = process.TopPLogitsWarper(0.9)(None, scores).numpy()
    found = kept_by(logits, temperature=0.7, top_k=30, top_p=0.9)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(scores))
    largest = scores.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, scores - largest, rtol=1e-5, atol=1e-6)


def test_the_smallest_temperature_draws_the_likeliest():
    logits = np.random.default_rng(0).normal(0, 30, (5, 61)).astype("float32")
    kept = kept_by(logits, temperature=1e-38, top_p=0.9, top_k=7)
    uniform = np.linspace(0, 0.999, 5, dtype="float32")
    found = drawn(*map(keras.ops.convert_to_tensor, (kept, uniform)))
    np.testing.assert_array_equal(to_numpy(found), logits.argmax(axis=-1))


@pytest.mark.one_backend
def test_the_papers_nucleus():
    """Probabilities .5 .3 .2: the fewest tokens that hold 0.6 are two."""
    logits = np.log(np.array([[0.3, 0.5, 0.2]], "float32"))
    kept = np.isfinite(kept_by(logits, top_p=0.6))
    assert kept.tolist() == [[True, True, False]]


@pytest.mark.one_backend
def test_what_has_no_probability_is_never_drawn():
    logits = np.array([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]] * 3, "float32")
    uniform = np.array([0.0, 0.5, np.nextafter(np.float32(1), np.float32(0))], "float32")
    assert to_numpy(drawn(*map(keras.ops.convert_to_tensor, (logits, uniform)))).tolist() == [1, 3, 3]


# === Text ===


@pytest.mark.one_backend
def test_text_in_and_out():
    tokenizer = Tokenizer.train("byte_bpe", ["one two three four five six seven"] * 9, 270)
    config = GPT2Config(**{**TINY, "vocabulary_size": 270}, eos_id=None)
    model = randomize(CausalLM(GPT2(config), tokenizer=tokenizer))
    one = model.generate("one two", max_new_tokens=4)
    assert one.startswith("one two") and len(one) > 7
    both = model.generate(["one two", "three"], max_new_tokens=4, num_beams=2, num_sequences=2, scores=True)
    assert [len(many) for many in both] == [2, 2] and both[1][0]["text"].startswith("three")
    assert both[0][0]["score"] >= both[0][1]["score"]


# === Bad input ===


@pytest.fixture(scope="module")
def untrained():
    return CausalLM(GPT2(GPT2Config(**TINY)))


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "at least one token. Received: no prompts"),
        ([[3], []], {}, "prompt 1 is empty"),
        ([[3, 61]], {}, "between 0 and 60. Received: 61"),
        (
            [list(range(40))],
            {},
            "shorter than the position table, which has 40 positions. Received: a prompt of 40 tokens",
        ),
        ([list(range(30))], {"max_new_tokens": 11}, "Use max_new_tokens=10 or less"),
        ([[3]], {"max_new_tokens": 0}, "`max_new_tokens` must be at least 1"),
        ([[3]], {"max_new_tokens": 3, "min_new_tokens": 4}, "`min_new_tokens` from 0 to `max_new_tokens`"),
        ([[3]], {"num_beams": 62}, "at most the vocabulary size, 61. Received: 62"),
        ([[3]], {"num_beams": 0}, "`num_beams` must be at least 1"),
        ([[3]], {"num_beams": 2, "sample": True}, "does not sample"),
        ([[3]], {"temperature": 0.5}, "use sample=True"),
        ([[3]], {"sample": True, "temperature": 0.0}, "`temperature` must be above 0"),
        ([[3]], {"sample": True, "top_p": 1.5}, "`top_p` must be"),
        ([[3]], {"sample": True, "top_k": 0}, "`top_k` must be"),
        ([[3]], {"length_penalty": 2.0}, "num_beams above 1"),
        ([[3]], {"num_sequences": 2}, "`num_sequences` must lie between"),
        ([[3]], {"sample": True, "temperature": 1e-50}, "`temperature` must be above 0"),
        ([[3]], {"stop_ids": 61}, "`stop_ids` must be between 0 and 60, or .. for none. Received: 61"),
        ([[3]], {"stop_ids": (5, -1)}, "Received: -1"),
        ([[3]], {"batch_size": 0}, "`batch_size` must be at least 1"),
        ([[3]], {"seed": -1}, "seed=-1"),
        ([[3.0, 4.5]], {}, "integer ids. Received: an array of float64"),
        ([[[3]]], {}, "one sequence of integer ids"),
        ("text", {}, "Text needs a tokenizer"),
    ],
)
@pytest.mark.one_backend
def test_what_cannot_be_generated_is_an_error(untrained, prompts, options, message):
    with pytest.raises(ValueError, match=message):
        untrained.generate(prompts, **options)


@pytest.mark.one_backend
def test_generation_follows_the_weights():
    """What is compiled or recorded for one set of weights serves the next."""
    models = [randomize(CausalLM(GPT2(GPT2Config(**TINY))), seed=seed) for seed in (0, 1)]
    prompts = random_prompts(4, 8)
    before = models[0].generate(prompts, max_new_tokens=8, stop_ids=())
    expected = models[1].generate(prompts, max_new_tokens=8, stop_ids=())
    for mine, theirs in zip(models[0].weights, models[1].weights, strict=True):
        mine.assign(theirs)
    after = models[0].generate(prompts, max_new_tokens=8, stop_ids=())
    assert any((b != e).any() for b, e in zip(before, expected, strict=True))
    assert all((a == e).all() for a, e in zip(after, expected, strict=True))


@pytest.mark.backends("torch")
def test_steps_are_recorded_once_a_shape():
    model = CausalLM(GPT2(GPT2Config(**TINY)))
    for most, beams in ((5, 1), (7, 1), (7, 2)):
        model.generate(random_prompts(2, 8), max_new_tokens=most, num_beams=beams)
    graphs = list(model.__dict__["_decoding_steps"].values())
    assert len(graphs) == 2 and all(graph is not None for graph in graphs)
