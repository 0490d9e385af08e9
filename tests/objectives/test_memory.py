"""Memory inside `fit`: what an explicit loop gives that carries it by hand; resuming; evaluation on its own."""

import keras
import numpy as np
import pytest

from kerasbert.backend.compilation import compiled
from kerasbert.data import Corpus, StreamBatches, Tokenizer
from kerasbert.data.batches.batches import Batches
from kerasbert.models import GPT2, GPT2Config, TransformerXL, TransformerXLConfig
from kerasbert.objectives import CausalLM
from kerasbert.training import Checkpoints
from tests.models.reference import randomize, to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=2, num_heads=3, head_dim=6, hidden_dim=24, feed_forward_dim=40, cutoffs=(),
    memory_length=7, dropout=0.0,
)  # fmt: skip
RATE, SEGMENTS, LENGTH = 0.5, 4, 5


class Columns(Batches):
    """Rows of random tokens as streams; row 1 also starts anew in the middle of every pass."""

    def __init__(self, rows, steps, seed=0):
        self.length = LENGTH
        self.columns = np.random.default_rng(seed).integers(0, 61, (rows, SEGMENTS * LENGTH + 1)).astype("int32")
        super().__init__(rows, steps)

    def _rows(self, update, first, last):
        segment = update % SEGMENTS
        places = segment * LENGTH + np.arange(LENGTH + 1)
        tokens = self.columns[first:last][:, places]
        start = np.full(last - first, segment == 0)
        start[1] |= segment == 2
        x = {"token_ids": tokens[:, :-1], "stream_start": start}
        return x, tokens[:, 1:], np.ones(tokens[:, 1:].shape, "float32")


def new_model(seed=3, **changes):
    return randomize(CausalLM(TransformerXL(TransformerXLConfig(**{**TINY, **changes}))), std=0.3, seed=seed)


def carried(model, batches, train):
    """Losses of the batches, the memory carried by hand; with `train` a step of SGD after each."""
    memory, losses = None, []
    run = compiled(model.backbone, lambda: model.backbone.weights)
    stateless = CausalLM(model.backbone)
    for ours, weight in zip(stateless.weights, model.weights, strict=True):
        ours.assign(weight)
    stateless.compile(keras.optimizers.SGD(RATE if train else 0.0))
    for x, y, weights in batches:
        start = x["stream_start"]
        if memory is None:
            memory = model.backbone.empty_memory(len(start))
        memory["memory_mask"] = to_numpy(memory["memory_mask"]) & ~start[:, None]
        x = {"token_ids": x["token_ids"], **memory}
        following = run(x)
        results = stateless.train_on_batch(x, y, weights, return_dict=True)
        losses.append(float(results["loss"]))
        memory = {key: following[key] for key in memory}
    for ours, weight in zip(stateless.weights, model.weights, strict=True):
        weight.assign(ours)
    return losses


def test_two_epochs_with_validation_in_between_equal_an_explicit_loop():
    batches, held_out = Columns(3, 2 * SEGMENTS), Columns(2, SEGMENTS, seed=1)
    model, by_hand = new_model(), new_model()
    model.compile(keras.optimizers.SGD(RATE))
    history = model.fit(batches, steps_per_epoch=SEGMENTS, validation_data=held_out, verbose=0).history
    for epoch in range(2):
        losses = carried(by_hand, [batches[epoch * SEGMENTS + step] for step in range(SEGMENTS)], train=True)
        np.testing.assert_allclose(history["loss"][epoch], np.mean(losses), rtol=1e-6)
        losses = carried(by_hand, held_out, train=False)
        np.testing.assert_allclose(history["val_loss"][epoch], np.mean(losses), rtol=1e-6)
    for ours, weight in zip(model.weights, by_hand.weights, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(weight), atol=1e-6)
    # The memory made a difference, and evaluation alone gives what validation gave.
    forgetful = [({**x, "stream_start": np.ones(2, bool)}, y, weight) for x, y, weight in held_out]
    assert abs(np.mean(carried(by_hand, forgetful, train=False)) - np.mean(losses)) > 1e-4
    found = model.evaluate(held_out, verbose=0, return_dict=True)
    np.testing.assert_allclose(found["loss"], np.mean(losses), rtol=1e-6)
    # Neither weights nor presets know of it.
    assert not any("memory" in weight.path for weight in model.weights)
    assert sum("memory" in variable.path for variable in model.variables) == 4


def test_predictions_go_on_with_their_streams():
    batches = Columns(2, SEGMENTS)
    model = new_model(memory_length=40)
    tokens = batches.columns[:, :-1]
    alone = np.pad(tokens[1:, 10:], ((0, 0), (0, 10)))  # a row of its own, behind which nothing counts
    expected = model.predict({"token_ids": np.concatenate([tokens, alone])}, verbose=0)
    found = model.predict(batches, verbose=0).reshape(SEGMENTS, 2, LENGTH, 61)
    np.testing.assert_allclose(np.concatenate(list(found[:, 0])), expected[0], atol=1e-5)
    np.testing.assert_allclose(np.concatenate(list(found[:2, 1])), expected[1, :10], atol=1e-5)
    np.testing.assert_allclose(np.concatenate(list(found[2:, 1])), expected[2, :10], atol=1e-5)


@pytest.mark.one_backend
def test_resuming_in_the_middle_of_a_stream_is_exact(tmp_path):
    def run(steps, *parts):
        for part in parts:
            model = new_model()
            model.compile(keras.optimizers.Adam(1e-2))
            checkpoints = [Checkpoints(tmp_path / f"{len(parts)}")]
            batches = Columns(3, part)
            history = model.fit(batches, steps_per_epoch=3, callbacks=checkpoints, verbose=0).history
        return model, history["loss"]

    (whole, losses), (resumed, last) = run(6, 6), run(6, 3, 6)
    assert losses[1:] == last
    for one, other in zip(whole.variables, resumed.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other), err_msg=one.path)


@pytest.mark.one_backend
def test_keras_files_and_presets_are_without_memory(tmp_path):
    model = new_model()
    model.compile(keras.optimizers.SGD(RATE))
    model.fit(Columns(3, SEGMENTS), verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    x = {"token_ids": np.arange(10, dtype="int32").reshape(2, 5)}
    for again in (keras.saving.load_model(tmp_path / "model.keras"), CausalLM.from_preset(tmp_path / "preset")):
        np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(model(x)))


@pytest.mark.one_backend
def test_streams_in_whatever_keras_takes():
    """A generator, a PyDataset and batches one by one carry the memory as `Batches` do; other sizes begin anew."""

    class Dataset(keras.utils.PyDataset):
        def __len__(self):
            return SEGMENTS

        def __getitem__(self, index):
            return Columns(2, SEGMENTS)[index]

    model = new_model()
    model.compile(keras.optimizers.SGD(0.0))
    expected = model.evaluate(Columns(2, SEGMENTS), verbose=0)
    held_out = (batch for batch in Columns(2, SEGMENTS))
    history = model.fit(Columns(3, SEGMENTS), validation_data=held_out, verbose=0).history
    np.testing.assert_allclose(history["val_loss"], expected[0], rtol=1e-6)
    model.evaluate(Columns(3, SEGMENTS), verbose=0)
    np.testing.assert_allclose(model.evaluate(Dataset(), verbose=0), expected, rtol=1e-6)
    np.testing.assert_allclose(model.evaluate((b for b in Columns(2, SEGMENTS)), verbose=0), expected, rtol=1e-6)
    losses = [model.test_on_batch(*batch, return_dict=True)["loss"] for batch in Columns(2, SEGMENTS)]
    np.testing.assert_allclose(np.mean(losses), expected[0], rtol=1e-6)
    trained = model.fit(Dataset(), shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(trained, expected[0], rtol=1e-6)


@pytest.mark.one_backend
def test_text_is_learnt_as_streams(tmp_path):
    texts = ["one two three four five six seven eight nine ten"] * 12
    tokenizer = Tokenizer.train("byte_bpe", texts, 280)
    config = TransformerXLConfig(**{**TINY, "vocabulary_size": 280})
    model = CausalLM(TransformerXL(config), tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(2e-2))
    batches = StreamBatches(Corpus.write(tmp_path, texts, tokenizer), 2, 16, steps=160)
    assert model.fit(batches, steps_per_epoch=40, verbose=0).history["loss"][-1] < 1.0
    assert model.evaluate(texts, batch_size=2, verbose=0, return_dict=True)["loss"] < 1.0


@pytest.mark.one_backend
def test_fit_compiles_a_model_with_memory():
    model = new_model()
    model.fit(Columns(2, SEGMENTS), verbose=0)
    assert model.memory.rows(training=True) == 2 and model.memory.rows(training=False) is None


@pytest.mark.one_backend
def test_what_a_memory_cannot_do_is_an_error():
    model = new_model()
    model.compile(keras.optimizers.SGD(RATE, gradient_accumulation_steps=2))
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2"):
        model.fit(Columns(2, SEGMENTS), verbose=0)
    if keras.backend.backend() == "tensorflow":  # whose graphs do not know how many rows a batch has
        return
    model.compile(keras.optimizers.SGD(RATE))
    with pytest.raises(ValueError, match="rows of a stream must stay the same.*batch of 3 rows.*has 2"):
        model.fit((Columns(rows, SEGMENTS)[0] for rows in (2, 3)), steps_per_epoch=2, verbose=0)


@pytest.mark.one_backend
def test_backbones_without_memory_ignore_streams():
    sizes = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40)
    model = CausalLM(GPT2(GPT2Config(**sizes)))
    batch = Columns(2, SEGMENTS)[0][0]
    np.testing.assert_array_equal(to_numpy(model(batch)), to_numpy(model({"token_ids": batch["token_ids"]})))
    assert model.memory is None


# === Generation with the memory as the cache ===


def continued_without_cache(model, prompts, count, width):
    """The likeliest tokens, each from the whole text so far; one program, behind which padding counts nothing."""
    texts = [list(prompt) for prompt in prompts]
    for _ in range(count):
        ids = np.zeros((len(texts), width), "int32")
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = text
        logits = model.predict({"token_ids": ids}, verbose=0)
        for text, scores in zip(texts, logits, strict=True):
            text.append(int(scores[len(text) - 1].argmax()))
    return texts


@pytest.mark.one_backend
@pytest.mark.parametrize("changes", [dict(cutoffs=(20,), embedding_divisor=2), dict(memory_length=0, pre_norm=True)])
def test_greedy_tokens_equal_those_of_the_whole_text_at_once(changes):
    model = new_model(**{"memory_length": 64, **changes})
    prompts = [np.arange(3, 3 + length, dtype="int32") for length in (4, 1, 9)]
    found = model.generate(prompts, max_new_tokens=6, stop_ids=())
    assert [text.tolist() for text in found] == continued_without_cache(model, prompts, 6, 15)


@pytest.mark.one_backend
def test_generation_sees_as_far_as_the_memory_reaches():
    """As a loop by hand: the prompt as one segment, then every token with the memory of those before."""
    model = new_model(memory_length=5)
    prompt = np.arange(3, 12, dtype="int32")
    found = model.generate(prompt, max_new_tokens=6, stop_ids=())
    memory, text, tokens = model.backbone.empty_memory(1), prompt, prompt
    run = compiled(model.backbone, lambda: model.weights)
    for _ in range(6):
        outputs = run({"token_ids": tokens[None], **memory})
        memory = {key: outputs[key] for key in memory}
        logits = model.causal_lm(outputs["sequence_output"][:, -1:], model.backbone.token_table)
        tokens = to_numpy(logits)[0, -1].argmax().astype("int32")[None]
        text = np.append(text, tokens)
    np.testing.assert_array_equal(found, text)
