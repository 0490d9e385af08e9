"""GPT-BERT's objective: the loss from the losses of its two kinds, its metrics, and training that learns both."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus, HybridLMBatches, Tokenizer, TokenSpans
from kerasbert.models import Bert, BertConfig, GPTBert, GPTBertConfig
from kerasbert.objectives import CausalLM, HybridLM, MaskedLM
from kerasbert.training import adamw
from tests.models.reference import randomize, to_numpy

TINY = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=32)
TINY |= dict(distance_buckets=8, dropout=0.0, attention_dropout=0.0)


def batch(rows=4, length=11):
    """Random rows, of which the second half is causal, with slots that are partly unused."""
    rng = np.random.default_rng(0)
    slots = np.stack([np.sort(rng.permutation(np.arange(1, length))[:4]) for _ in range(rows)]).astype("int32")
    slots[::2, 2:] = -1
    ids = rng.integers(4, 61, (rows, length)).astype("int32")
    x = {"token_ids": ids, "causal_rows": np.arange(rows) >= rows // 2, "masked_positions": slots}
    return x, rng.integers(0, 61, slots.shape).astype("int32"), (slots >= 0).astype("float32")


def run(model, x, y, weights, training=False):
    """The results of one step of training with a learning rate of 0, or of evaluation."""
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    step = model.train_on_batch if training else model.test_on_batch
    return step(x, y, weights, return_dict=True)


def test_the_loss_is_the_weighted_mean_of_both_kinds():
    model = randomize(HybridLM(GPTBert(GPTBertConfig(**TINY)), causal_share=0.2, z_loss=0.01))
    x, y, weights = batch()
    logits = to_numpy(model(x)).astype("float64")
    log_z = np.log(np.exp(logits).sum(-1))
    losses = log_z - np.take_along_axis(logits, y[..., None], -1)[..., 0]
    means = {name: losses[rows][weights[rows] > 0].mean() for name, rows in (("m", slice(2)), ("c", slice(2, 4)))}
    found = run(model, x, y, weights)
    np.testing.assert_allclose(found["loss"], 0.8 * means["m"] + 0.2 * means["c"], rtol=1e-5)
    np.testing.assert_allclose(found["perplexity"], np.exp(means["m"]), rtol=1e-5)
    np.testing.assert_allclose(found["causal_perplexity"], np.exp(means["c"]), rtol=1e-5)
    hits = logits.argmax(-1) == y
    np.testing.assert_allclose(found["causal_accuracy"], hits[2:][weights[2:] > 0].mean(), rtol=1e-5)
    squares = [np.square(log_z)[rows][weights[rows] > 0].mean() for rows in (slice(2), slice(2, 4))]
    trained = run(model, x, y, weights, training=True)["loss"]
    np.testing.assert_allclose(trained, found["loss"] + 0.01 * (0.8 * squares[0] + 0.2 * squares[1]), rtol=1e-5)


@pytest.mark.one_backend
def test_all_positions_with_weights_are_the_same_as_slots():
    model = randomize(HybridLM(GPTBert(GPTBertConfig(**TINY)), causal_share=0.25))
    x, y, weights = batch()
    expected = run(model, x, y, weights)
    slots = x.pop("masked_positions")
    row, slot = np.nonzero(weights)
    tokens, predicted = np.zeros((4, 11), "int32"), np.zeros((4, 11), "float32")
    tokens[row, slots[row, slot]], predicted[row, slots[row, slot]] = y[row, slot], 1
    found = run(model, x, tokens, predicted)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.one_backend
def test_each_kind_of_rows_is_that_of_its_own_objective():
    hybrid = randomize(HybridLM(GPTBert(GPTBertConfig(**TINY)), causal_share=0.0))
    x, y, weights = batch()
    masked = {key: array[:2] for key, array in x.items()}
    alone = MaskedLM(GPTBert(GPTBertConfig(**TINY)))
    alone.set_weights(hybrid.get_weights())
    expected = run(alone, {**masked, "causal_rows": None}, y[:2], weights[:2])
    found = run(hybrid, x, y, weights)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)  # of masked rows only
    causal = CausalLM(GPTBert(GPTBertConfig(**TINY, causal=True)))
    causal.set_weights(hybrid.get_weights())
    slots = x["masked_positions"][2:]
    outputs = np.where(slots > 0, slots - 1, -1).astype("int32")  # a causal model is asked for outputs, not for tokens
    expected = run(causal, {"token_ids": x["token_ids"][2:], "masked_positions": outputs}, y[2:], weights[2:])
    assert found["causal_perplexity"] == pytest.approx(expected["perplexity"], rel=1e-4)


@pytest.mark.one_backend
def test_steps_of_an_update_add_up_to_it():
    """Although the steps have different numbers of predicted tokens, and one of them no causal row."""
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h i j k l m n o p"] * 4, 37)
    corpus = Corpus.in_memory([" ".join("abcdefghijklmnop"[i:]) for i in range(9)], tokenizer)
    config = GPTBertConfig(**{**TINY, "vocabulary_size": tokenizer.vocabulary_size})
    moves = []
    for steps in (1, 4):
        batches = HybridLMBatches(corpus, 8, 16, steps=1, causal_share=1 / 8).accumulated(steps)
        model = randomize(HybridLM(GPTBert(config), causal_share=1 / 8))
        accumulation = steps if steps > 1 else None
        model.compile(keras.optimizers.SGD(1.0, gradient_accumulation_steps=accumulation), run_eagerly=True)
        for item in batches:
            model.train_on_batch(*item)
        moves.append([to_numpy(w).copy() for w in model.trainable_variables])
    for one, other in zip(*moves, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.one_backend
def test_both_kinds_learn_and_the_model_is_loaded_as_both(tmp_path):
    """Texts that count: masked tokens follow from either side, the next token from those before."""
    words = [f"w{i}" for i in range(20)]
    texts = [" ".join((words * 2)[i : i + 12]) for i in range(20)]
    tokenizer = Tokenizer.train("wordpiece", texts, 48)
    corpus = Corpus.in_memory(texts, tokenizer)
    config = GPTBertConfig(**{**TINY, "vocabulary_size": tokenizer.vocabulary_size, "hidden_dim": 48})
    model = HybridLM(GPTBert(config), causal_share=0.25, tokenizer=tokenizer)
    model.compile(adamw(2e-2, 5, 60), run_eagerly=True)  # which takes less time than to compile so small a model
    batches = HybridLMBatches(corpus, 16, 16, steps=60, noise=TokenSpans(0.2), causal_share=0.25, causal_targets=6)
    model.fit(batches, verbose=0)
    found = model.evaluate(HybridLMBatches(corpus, 16, 16, seed=1, causal_share=0.25), return_dict=True, verbose=0)
    assert found["accuracy"] > 0.7 and found["causal_accuracy"] > 0.7
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is HybridLM and again.arguments() == {"causal_share": 0.25, "z_loss": 0.0}
    text = "w3 w4 w5 w6 w7 w8"
    assert model.fill_mask("w3 w4 [MASK] w6 w7")[0][0]["token"] == "w5"
    masked, causal = MaskedLM.from_preset(tmp_path), CausalLM.from_preset(tmp_path)
    assert masked.score(text)["score"] == pytest.approx(model.score(text)["score"], abs=1e-5)
    wrong = "w3 w4 w5 w11 w7 w8"
    for scorer in (masked, causal):
        assert scorer.score(text)["score"] > scorer.score(wrong)["score"] + 1


@pytest.mark.one_backend
def test_bad_input():
    backbone = GPTBert(GPTBertConfig(**TINY))
    with pytest.raises(ValueError, match="such as GPTBert. Received: Bert"):
        HybridLM(Bert(BertConfig(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, feed_forward_dim=4)))
    with pytest.raises(ValueError, match="causal_share=2, z_loss=0"):
        HybridLM(backbone, causal_share=2)
    for cls, causal in ((HybridLM, True), (MaskedLM, True), (CausalLM, False)):
        with pytest.raises(ValueError, match=f"needs causal={not causal}. Received: a config with causal={causal}"):
            cls(GPTBert(GPTBertConfig(**TINY, causal=causal)))
    model, (x, y, weights) = HybridLM(backbone), batch()
    model.compile(adamw(1e-3))
    for change, message in (
        ((dict(causal_rows=None), y, weights), "needs `causal_rows`"),
        ((dict(masked_positions=None), np.zeros((4, 11), "int32"), None), r"`sample_weight` \(b, s\) must say which"),
        ((dict(), y + 61, weights), "Labels must be between 0 and 60"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit({**x, **change[0]}, change[1], sample_weight=change[2], verbose=0)
