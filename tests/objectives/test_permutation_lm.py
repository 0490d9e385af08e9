"""Permutation language modeling: its loss, who is predicted from whom, the memory inside `fit`, text."""

import keras
import numpy as np
import pytest

from kerasbert.data import Corpus, PermutationLMBatches, Tokenizer
from kerasbert.data.tasks.examples import encode_texts
from kerasbert.models import XLNet, XLNetConfig
from kerasbert.objectives import PermutationLM
from tests.data.batches import objects
from tests.data.conftest import make_documents
from tests.models.reference import check_keras_file, randomize, to_numpy

TINY = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, dropout=0.0)
LENGTH = 20


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("unigram", make_documents(), 150, family="xlnet")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer):
    return Corpus.write(tmp_path_factory.mktemp("corpus") / "en", make_documents(), tokenizer)


def model_of(std=0.2, **changes):
    model = PermutationLM(XLNet(XLNetConfig(**{**TINY, "vocabulary_size": 150, **changes})))
    return randomize(model, std) if std else model


@pytest.fixture(scope="module")
def model():
    return model_of()


def batches_of(corpus, **options):
    return objects.batches_of(
        PermutationLMBatches, corpus, 4, LENGTH, **{"steps": 6, "bidirectional_data": True, **options}
    )


def stateless(x):
    return {key: value for key, value in x.items() if key != "stream_start"}


def results_of(model, *data):
    if not model.compiled:
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # a program for each call would take longer
    return model.test_on_batch(*data, return_dict=True)


@pytest.mark.one_backend
def test_a_model_that_knows_nothing_has_the_loss_of_the_vocabulary(corpus):
    model = model_of(std=None)
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape))
    x, y, weight = batches_of(corpus)[0]
    x["masked_positions"][1:] = -1
    results = results_of(model, stateless(x), y, (x["masked_positions"] >= 0).astype("float32"))
    assert results["loss"] == pytest.approx(np.log(150), rel=1e-6)
    assert results["perplexity"] == pytest.approx(150, rel=1e-5)
    assert results_of(model, stateless(x), y)["loss"] == pytest.approx(np.log(150), rel=1e-6)


def test_the_loss_is_the_mean_over_the_slots(model, corpus):
    x, y, weight = batches_of(corpus)[0]
    logits = to_numpy(model(stateless(x))).astype("float64")
    losses = np.logaddexp.reduce(logits, axis=-1) - np.take_along_axis(logits, y[..., None], axis=-1)[..., 0]
    results = results_of(model, stateless(x), y, weight)
    assert results["loss"] == pytest.approx((losses * weight).sum() / weight.sum(), rel=1e-5)
    assert results["accuracy"] == pytest.approx(((logits.argmax(axis=-1) == y) * weight).sum() / weight.sum(), rel=1e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize("causal", [False, True])
def test_no_slot_sees_itself_and_every_slot_what_its_rank_says(causal, corpus):
    """Every token of a row is changed by itself: logits move where ranks (and causality) allow it."""
    model = model_of(causal=causal, num_layers=2)  # what the first layer leaks, the second one passes on
    x, _, _ = batches_of(corpus)[1]
    row = {key: np.repeat(value[:1], LENGTH + 1, axis=0) for key, value in stateless(x).items()}
    changed = np.arange(LENGTH)
    row["token_ids"][changed, changed] = (row["token_ids"][changed, changed] + 70) % 150
    logits = to_numpy(model(row))
    slots = x["masked_positions"][0]
    slots = slots[slots >= 0]
    moved = np.abs(logits[:-1, : len(slots)] - logits[-1, : len(slots)]).max(axis=-1) > 1e-5
    sees = x["query_ranks"][0][slots][:, None] > x["key_ranks"][0]
    assert not moved[slots, np.arange(len(slots))].any() and moved.any()
    np.testing.assert_array_equal(moved.T, sees & (slots[:, None] >= changed) if causal else sees)


@pytest.mark.one_backend
def test_without_slots_every_position_of_the_order_is_predicted(model):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 150, (2, 9)).astype("int32")
    order = np.argsort(rng.random((2, 9)), axis=1).astype("int32")
    x = {"token_ids": ids, "query_ranks": order, "key_ranks": order}
    slots = np.array([[7, 0, 3], [2, 2, 8]], "int32")
    everywhere, some = to_numpy(model(x)), to_numpy(model({**x, "masked_positions": slots}))
    np.testing.assert_allclose(some, np.take_along_axis(everywhere, slots[:, :, None], axis=1), atol=1e-5)
    padded = {**x, "padding_mask": np.arange(9) < np.array([[9], [5]])}
    weights = padded["padding_mask"].astype("float32")
    assert results_of(model, padded, ids) == pytest.approx(results_of(model, padded, ids, weights))


@pytest.mark.one_backend
def test_without_a_permutation_it_is_a_language_models_head(model):
    ids = np.random.default_rng(0).integers(0, 150, (2, 9)).astype("int32")
    hidden = to_numpy(model.backbone({"token_ids": ids})["sequence_output"])
    table, bias = to_numpy(model.backbone.token_table), to_numpy(model.permutation_lm.bias)
    np.testing.assert_allclose(to_numpy(model({"token_ids": ids})), hidden @ table.T + bias, atol=1e-4)


@pytest.mark.optimized
@pytest.mark.backends("torch", "jax")  # test_memory.py has a memory on all three
def test_memory_inside_fit_equals_a_loop_that_carries_it(corpus):
    """Three steps, a validation, three steps, a validation; then the same by hand."""
    changes = dict(memory_length=12, reuse_length=LENGTH // 2)
    held_out = batches_of(corpus, seed=1, steps=4)
    run = batches_of(corpus)

    def carried(model, batches, memory, step):
        losses = []
        for x, y, weight in batches:
            if x["stream_start"].any():
                memory = model.backbone.empty_memory(4)
            given = {**stateless(x), **memory}
            memory = {key: to_numpy(value) for key, value in model.backbone(given).items() if key in memory}
            losses.append(step(given, y, weight, return_dict=True)["loss"])
        return memory, np.mean(losses)

    one, other = model_of(0.1, **changes), model_of(0.1, **changes)
    for model in (one, other):
        model.compile(keras.optimizers.SGD(0.1))
    history = one.fit(run, steps_per_epoch=3, validation_data=held_out, verbose=0).history
    memory, expected = None, []
    for start in (0, 3):
        some = [run[step] for step in range(start, start + 3)]
        memory, _ = carried(other, some, memory, other.train_on_batch)
        expected.append(carried(other, held_out, None, other.test_on_batch)[1])
    for mine, theirs in zip(one.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(to_numpy(mine), to_numpy(theirs), atol=1e-6)
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-5)
    assert all(to_numpy(one.memory.read(training)["memory_mask"]).all() for training in (True, False))


@pytest.mark.one_backend
def test_it_learns(corpus):
    """Twelve slots, over and over: what the content stream holds is enough to tell them apart."""
    model = model_of(std=None)
    x, y, weight = batches_of(corpus)[0]
    model.compile(keras.optimizers.Adam(1e-2))
    losses = [model.train_on_batch(stateless(x), y, weight, return_dict=True)["loss"] for _ in range(40)]
    assert losses[0] == pytest.approx(np.log(150), rel=0.05) and losses[-1] < 0.3 * losses[0]


def test_every_weight_gets_a_gradient(corpus):
    x, y, weight = batches_of(corpus, max_predictions=8)[0]
    model = model_of()
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    assert any("query_embedding" in path for path in before)
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch(stateless(x), y, weight)
    still = [v.path for v in model.trainable_variables if np.array_equal(before[v.path], to_numpy(v))]
    assert not still


@pytest.mark.one_backend
def test_text_is_cut_into_pairs(tokenizer):
    model = PermutationLM(XLNet(XLNetConfig(**TINY, vocabulary_size=150)), tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0))
    texts = make_documents(seed=3)
    results = model.evaluate(texts, batch_size=4, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(np.log(150), rel=0.05)
    with pytest.raises(ValueError, match="targets of permutation language modeling are in the text"):
        model.fit(texts, ["a"] * len(texts), verbose=0)


@pytest.mark.one_backend
@pytest.mark.parametrize("bidirectional_data", [False, True])
def test_masks_are_filled_from_all_that_is_not_masked(bidirectional_data, tokenizer):
    model = model_of(bidirectional_data=bidirectional_data)
    model.tokenizer = tokenizer
    mask = tokenizer.token(tokenizer.mask_id)
    texts = [f"the {mask} of the river {mask} old", f"a dog and {mask} {mask} {mask}"]
    answers = model.fill_mask(texts, top_k=3)
    assert [len(masks) for masks in answers] == [2, 3]
    for row, masks in zip(encode_texts(tokenizer, texts)["token_ids"], answers, strict=True):
        ids = row[row != tokenizer.pad_id][None]
        hidden = ids == tokenizer.mask_id
        unseen = np.where(hidden, 17, ids).astype("int32")  # whatever stands there
        segments = np.where(np.arange(ids.shape[1]) == ids.shape[1] - 1, 2, 0).astype("int32")[None]
        inputs = {"token_ids": unseen, "segment_ids": segments, "backward": np.zeros(1, bool)}
        dense = np.broadcast_to(hidden[:, None, :], (1, ids.shape[1], ids.shape[1]))
        slots = np.flatnonzero(hidden[0])[None].astype("int32")
        logits = to_numpy(model({**inputs, "permutation_mask": dense, "masked_positions": slots}))[0]
        scores = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
        for candidates, expected in zip(masks, scores, strict=True):
            assert [one["id"] for one in candidates] == list(np.argsort(-expected)[:3])
            assert candidates[0]["token"] == tokenizer.token(candidates[0]["id"])
            np.testing.assert_allclose([one["score"] for one in candidates], np.sort(expected)[:-4:-1], rtol=1e-4)
    assert model.fill_mask(texts[1], top_k=3)[0][0]["score"] == pytest.approx(answers[1][0][0]["score"], rel=1e-5)
    with pytest.raises(ValueError, match="must have the mask token <mask>. Received: 'no mask here'"):
        model.fill_mask(["no mask here"])


@pytest.mark.one_backend
def test_presets_and_keras_files_round_trip(tmp_path, model):
    check_keras_file(model, tmp_path)
    model.save_to_preset(tmp_path / "preset")
    again = PermutationLM.from_preset(tmp_path / "preset")
    ids = {"token_ids": np.arange(8, dtype="int32").reshape(2, 4)}
    np.testing.assert_array_equal(to_numpy(model(ids)), to_numpy(again(ids)))


@pytest.mark.one_backend
def test_bad_input_is_an_error(model, corpus):
    x, y, weight = batches_of(corpus)[0]
    x = stateless(x)
    model.compile(keras.optimizers.SGD(0.0))
    plain = {key: value for key, value in x.items() if "rank" not in key}
    sees = x["query_ranks"][:, :, None] > x["key_ranks"][:, None, :]
    slot = x["masked_positions"][2, 1]
    leak = ~sees
    leak[2, slot, slot] = False
    shifted = x["query_ranks"].copy()
    shifted[2, slot] = x["key_ranks"][2, slot] + 1
    for wrong, message in (
        (plain, "without `query_ranks`"),
        ({**plain, "permutation_mask": leak}, "with a visible token in row 2"),
        ({**x, "query_ranks": shifted}, "with a visible token in row 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(wrong, y, sample_weight=weight, verbose=0)
    with pytest.raises(ValueError, match="without a permutation"):
        model(plain)
    with pytest.raises(ValueError, match="Labels must be between 0 and 149"):
        model.fit(x, y + 149, sample_weight=weight, verbose=0)
    with pytest.raises(ValueError, match="computes its own loss"):
        model.compile("sgd", loss="mse")
