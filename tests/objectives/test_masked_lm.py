"""Masked language modeling: the loss in closed form, its weights, and training equal to a plain torch loop."""

import keras
import numpy as np
import pytest

from kerasbert.checkpoints.tensor_files import TensorFiles
from kerasbert.data import ExampleBatches, Tokenizer
from kerasbert.models import Albert, AlbertConfig, Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.training import adamw
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(
    vocabulary_size=61,
    num_layers=1,
    num_heads=3,
    hidden_dim=24,
    feed_forward_dim=40,
    max_length=23,
    dropout=0.0,
    attention_dropout=0.0,
)


def batch(rows=8, length=11, slots=3, seed=0, pairs=False):
    """A random batch with an uneven number of used slots a row."""
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.permutation(length)[:slots] for _ in range(rows)]).astype("int32")
    positions[np.arange(slots) >= rng.integers(1, slots + 1, rows)[:, None]] = -1
    x = {
        "token_ids": rng.integers(0, 61, (rows, length)).astype("int32"),
        "lengths": np.full(rows, length, "int32"),
        "masked_positions": positions,
    }
    y = rng.integers(0, 9, (rows, slots)).astype("int32")  # few, so that there is something to learn
    weights = (positions >= 0).astype("float32")
    if pairs:
        x["segment_ids"] = rng.integers(0, 2, (rows, length)).astype("int32")
        y = {"tokens": y, "sentence_pair": rng.integers(0, 2, rows).astype("int32")}
        weights = {"tokens": weights, "sentence_pair": np.ones(rows, "float32")}
    return x, y, weights


def loss_of(model, *data):
    if not model.compiled:
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # a program for each call would take longer
    return model.test_on_batch(*data, return_dict=True)


def zeros(model):
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape))
    return model


@pytest.mark.one_backend
def test_a_model_that_knows_nothing_has_the_loss_of_the_vocabulary():
    """5 of 96 slots used, all logits equal: ln 61, whatever the slots that are not used hold."""
    model = zeros(MaskedLM(Bert(BertConfig(**TINY), pooler=False)))
    x, y, weights = batch(rows=8, length=12, slots=12)
    x["masked_positions"][:] = -1
    x["masked_positions"].reshape(-1)[:5] = 3
    results = loss_of(model, x, y, (x["masked_positions"] >= 0).astype("float32"))
    assert results["loss"] == pytest.approx(np.log(61), rel=1e-6)
    assert results["perplexity"] == pytest.approx(61, rel=1e-5)
    assert loss_of(model, x, y)["loss"] == pytest.approx(np.log(61), rel=1e-6)  # weights default to the used slots


@pytest.mark.one_backend
def test_weights_of_rows_count_for_their_slots():
    model = randomize(MaskedLM(Bert(BertConfig(**TINY), pooler=False)))
    x, y, weights = batch(rows=8)
    rows = np.array([1, 1, 0, 1, 0, 0, 1, 1], "float32")

    def results(**given):
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # one program takes weights of one rank
        return model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True, **given)

    assert results() == pytest.approx(results(sample_weight=weights))
    assert results(sample_weight=rows) == pytest.approx(results(sample_weight=weights * rows[:, None]))


@pytest.mark.one_backend
def test_a_batch_without_slots_has_loss_zero_and_changes_nothing():
    model = randomize(MaskedLM(Bert(BertConfig(**TINY), pooler=False)))
    before = [to_numpy(v).copy() for v in model.trainable_variables]
    x, y, _ = batch()
    x["masked_positions"][:] = -1
    model.compile(keras.optimizers.SGD(1.0))
    results = model.train_on_batch(x, y, np.zeros_like(y, "float32"), return_dict=True)
    assert results["loss"] == 0.0
    for value, variable in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(value, to_numpy(variable))


@pytest.mark.one_backend
def test_gathered_slots_equal_all_positions():
    model = randomize(MaskedLM(Bert(BertConfig(**TINY), pooler=False)))
    x, _, _ = batch()
    gathered = to_numpy(model(x))
    everywhere = to_numpy(model({key: value for key, value in x.items() if key != "masked_positions"}))
    for row, slot in zip(*np.nonzero(x["masked_positions"] >= 0), strict=True):
        expected = everywhere[row, x["masked_positions"][row, slot]]
        np.testing.assert_allclose(gathered[row, slot], expected, atol=1e-5)


@pytest.mark.one_backend
def test_sentence_pairs_add_their_mean():
    model = zeros(MaskedLM(Bert(BertConfig(**TINY)), sentence_pair=True))
    results = loss_of(model, *batch(pairs=True))
    assert results["loss"] == pytest.approx(np.log(61) + np.log(2), rel=1e-6)
    assert results["sentence_pair_loss"] == pytest.approx(np.log(2), rel=1e-6)


@pytest.mark.one_backend
@pytest.mark.parametrize(("family", "strangers"), [((Bert, BertConfig), True), ((Albert, AlbertConfig), False)])
def test_pairs_of_text_are_those_of_the_family(family, strangers):
    """BERT's B is of another document half of the time, ALBERT's never is: A and B are exchanged."""
    documents = ["\n".join([f"{word} {word} {word} {word}"] * 40) for word in ("one", "two", "three", "four", "five")]
    tokenizer = Tokenizer.train("wordpiece", documents, vocabulary_size=42)
    config = family[1](**{**TINY, "vocabulary_size": tokenizer.vocabulary_size})
    model = MaskedLM(family[0](config), sentence_pair=True, tokenizer=tokenizer)
    batches = model.text_batches(documents, None, None, 8, 1, seed=0, shuffle=True)
    mixed, labels = [], []
    for x, y, weights in (batches[i] for i in range(len(batches))):
        ids = x["token_ids"].copy()
        rows, slots = np.nonzero(weights["tokens"])
        ids[rows, x["masked_positions"][rows, slots]] = y["tokens"][rows, slots]
        for row, length in zip(ids, x["lengths"], strict=True):
            mixed.append(len(set(tokenizer.decode(row[:length]).split())) > 1)
        labels.extend(y["sentence_pair"])
    assert set(labels) == {0, 1}
    assert mixed == [strangers and label == 1 for label in labels]


@pytest.mark.parametrize("pairs", [pytest.param(False, marks=pytest.mark.one_backend), True])
def test_accumulated_gradients_equal_those_of_the_large_batch(pairs):
    """Four micro-batches of two rows, with uneven counts of slots, and one batch of eight."""
    x, y, weights = batch(rows=8, pairs=pairs)
    tokens = weights["tokens"] if pairs else weights
    share = np.full(2, tokens.sum() / 8, "float32")
    normalizer = {"tokens": share, "sentence_pair": np.ones(2, "float32")} if pairs else share
    moved = []
    for pieces in (1, 4):
        model = randomize(MaskedLM(Bert(BertConfig(**TINY), pooler=pairs), sentence_pair=pairs))
        model.compile(keras.optimizers.SGD(1.0, gradient_accumulation_steps=pieces if pieces > 1 else None))
        for piece in range(pieces):
            rows = slice(piece * 8 // pieces, (piece + 1) * 8 // pieces)
            part = keras.tree.map_structure(lambda array, rows=rows: array[rows], (x, y, weights))
            if pieces > 1:
                part[0]["loss_normalizer"] = normalizer
            model.train_on_batch(*part)
        moved.append([to_numpy(v).copy() for v in model.trainable_variables])
    for one, other in zip(*moved, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.one_backend
def test_a_pooler_that_is_not_read_is_neither_trained_nor_written(tmp_path):
    backbone = Bert(BertConfig(**TINY))
    model = MaskedLM(backbone)
    model.compile(keras.optimizers.SGD(1.0))
    before = to_numpy(backbone.pooler.kernel).copy()
    model.train_on_batch(*batch())
    np.testing.assert_array_equal(before, to_numpy(backbone.pooler.kernel))
    model.save_to_preset(tmp_path)
    assert not [name for name in TensorFiles(tmp_path).keys() if "pooler" in name]
    assert backbone.pooler.trainable  # a model that reads it trains it


@pytest.mark.one_backend
def test_packed_rows_need_no_starts_where_nothing_is_pooled():
    model = randomize(MaskedLM(Bert(BertConfig(**TINY))))
    x = {"token_ids": np.ones((1, 6), "int32"), "sequence_ids": np.array([[1, 1, 1, 2, 2, 0]], "int32")}
    logits = to_numpy(model({**x, "masked_positions": np.array([[0, 3, -1]], "int32")}))
    alone = to_numpy(model({"token_ids": np.ones((1, 2), "int32"), "masked_positions": np.array([[0]], "int32")}))
    np.testing.assert_allclose(logits[0, 1], alone[0, 0], atol=1e-5)


@pytest.mark.one_backend
def test_compile_refuses_a_loss():
    with pytest.raises(ValueError, match="computes its own loss"):
        MaskedLM(Bert(BertConfig(**TINY), pooler=False)).compile("sgd", loss="mse")


@pytest.mark.one_backend
def test_labels_outside_the_vocabulary_are_an_error_before_training():
    model = MaskedLM(Bert(BertConfig(**TINY), pooler=False))
    model.compile(keras.optimizers.SGD(0.0))
    x, y, weights = batch()
    for wrong in (61, -1):
        y[0, 0] = wrong
        with pytest.raises(ValueError, match=f"Labels must be between 0 and 60.*Received: {wrong}"):
            model.fit(x, y, sample_weight=weights, verbose=0)
    y[0, 0] = 0
    model.fit(x, y, sample_weight=weights, verbose=0)  # nothing was lost


@pytest.mark.one_backend
@pytest.mark.optimized
def test_training_equals_a_plain_torch_loop(tmp_path):
    """30 steps from the same weights on the same batches: every loss within 1e-3 of BertForMaskedLM's."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=23,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=None,  # torch gives the padding row no gradient, which is not BERT's rule
    )
    theirs = their_model("BertForMaskedLM", config, tmp_path, std=0.05).train()
    ours = MaskedLM.from_preset(tmp_path)
    batches = [batch(seed=seed) for seed in range(30)]

    plain = ("bias", "LayerNorm.weight")
    named = list(theirs.named_parameters())
    groups = [
        {"params": [p for name, p in named if not name.endswith(plain)], "weight_decay": 0.01},
        {"params": [p for name, p in named if name.endswith(plain)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-3, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 5, 30)
    expected = []
    for x, y, _ in batches:
        labels = np.full(x["token_ids"].shape, -100)
        for row, slot in zip(*np.nonzero(x["masked_positions"] >= 0), strict=True):
            labels[row, x["masked_positions"][row, slot]] = y[row, slot]
        loss = theirs(torch.from_numpy(x["token_ids"].astype("int64")), labels=torch.from_numpy(labels)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        expected.append(loss.item())

    found = []

    class Losses(keras.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            found.append(float(logs["loss"]))

    ours.compile(adamw(5e-3, warmup=5, steps=30))
    x = {key: np.concatenate([b[0][key] for b in batches]) for key in batches[0][0]}
    y, weights = (np.concatenate([b[part] for b in batches]) for part in (1, 2))
    ours.fit(ExampleBatches(x, y, weights, batch_size=8, shuffle=False), callbacks=[Losses()], verbose=0)
    means = np.array(found)  # Keras reports the mean of the epoch so far
    losses = means * np.arange(1, 31) - np.concatenate([[0.0], means[:-1] * np.arange(1, 30)])
    np.testing.assert_allclose(losses, expected, atol=1e-3)
    assert expected[-1] < expected[0] - 0.4
