"""Sequence-to-sequence modeling: the loss as transformers has it and in closed form, its weights, and learning."""

import keras
import numpy as np
import pytest

from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer
from kerasbert.models import T5, Bart, BartConfig, Bert, BertConfig, T5Config
from kerasbert.objectives import Seq2SeqLM
from tests.data.conftest import make_documents
from tests.data.tokenizers.slow_folders import Vocabularies
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, head_dim=5, feed_forward_dim=40, num_buckets=8,
    max_distance=9, dropout=0.0,
)  # fmt: skip


def loss_of(model, *data):
    model.compile(keras.optimizers.SGD(0.0))
    return model.test_on_batch(*data, return_dict=True)


def example(rows=3):
    rng = np.random.default_rng(0)
    sources, targets = (rng.integers(2, 61, (rows, length)).astype("int32") for length in (9, 6))
    start = np.zeros((rows, 1), "int32")
    return {"token_ids": sources, "decoder_token_ids": np.concatenate([start, targets[:, :-1]], axis=1)}, targets


def test_the_loss_is_that_of_transformers(tmp_path):
    import torch
    import transformers

    config = transformers.T5Config(
        vocab_size=61, d_model=24, d_kv=5, d_ff=40, num_layers=1, num_heads=3, decoder_start_token_id=0
    )
    theirs = their_model("T5ForConditionalGeneration", config, tmp_path)
    x, y = example()
    labels = y.astype("int64")
    labels[1, 4:] = -100
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x["token_ids"]).long(), labels=torch.from_numpy(labels)).loss.item()
    model = Seq2SeqLM.from_preset(tmp_path)
    results = loss_of(model, x, y, (labels >= 0).astype("float32"))
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(results["perplexity"], np.exp(expected), rtol=1e-4)
    # Padding weighs nothing by default.
    lengths = {"decoder_lengths": np.array([6, 4, 6], "int32")}
    np.testing.assert_allclose(loss_of(model, {**x, **lengths}, y)["loss"], expected, rtol=1e-5)
    whole = loss_of(model, {**x, **lengths}, y, np.array([1, 0, 1], "float32"))["loss"]
    others = {key: array[[0, 2]] for key, array in {**x, **lengths}.items()}
    np.testing.assert_allclose(whole, loss_of(model, others, y[[0, 2]])["loss"], rtol=1e-5)


def test_smoothing_and_z_loss_in_closed_form():
    """The numbers of T5's fact sheet for logits [2 1 0] and label 0: log Z 2.40761, z-loss 0.00057966."""
    model = Seq2SeqLM(T5(T5Config(**TINY)), label_smoothing=0.3, z_loss=1e-4)
    logits, label = keras.ops.convert_to_tensor([[[2.0, 1.0, 0.0]]]), np.array([[0]], "int32")
    x = {"decoder_token_ids": label}
    plain = to_numpy(model.compute_loss(x, label, logits, None, training=False))
    np.testing.assert_allclose(plain, 0.40761, atol=1e-5)
    log_probabilities = np.log(np.exp([2.0, 1.0, 0.0]) / np.exp([2.0, 1.0, 0.0]).sum())
    smoothed = -np.dot([0.8, 0.1, 0.1], log_probabilities)
    found = to_numpy(model.compute_loss(x, label, logits, None, training=True))
    np.testing.assert_allclose(found, smoothed + 0.00057966, rtol=1e-5)
    with pytest.raises(ValueError, match="Received: label_smoothing=1.0"):
        Seq2SeqLM(model.backbone, label_smoothing=1.0)


def test_a_model_that_knows_nothing_has_the_loss_of_the_vocabulary():
    model = Seq2SeqLM(T5(T5Config(**TINY)), label_smoothing=0.1)
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape))
    x, y = example()
    results = loss_of(model, x, y)
    assert results["loss"] == pytest.approx(np.log(61), rel=1e-6)
    assert results["accuracy"] == 0.0 and results["perplexity"] == pytest.approx(61, rel=1e-5)
    assert loss_of(model, x, y, np.zeros(y.shape, "float32"))["loss"] == 0.0


def test_accumulated_parts_add_up_to_the_update():
    rng = np.random.default_rng(0)
    pairs = [[rng.integers(2, 61, n) for n in rng.integers(1, 9, 8)] for _ in range(2)]
    options = dict(batch_size=8, layout=Seq2SeqLayout(end_id=1), seed=None)
    model = randomize(Seq2SeqLM(T5(T5Config(**TINY))))
    whole = loss_of(model, *Seq2SeqBatches(*pairs, **options)[0])["loss"]
    parts = Seq2SeqBatches(*pairs, **options).accumulated(4)
    np.testing.assert_allclose(np.mean([loss_of(model, *part)["loss"] for part in parts]), whole, rtol=1e-5)


@pytest.mark.one_backend
def test_a_reversal_is_learnt_and_generated():
    rng = np.random.default_rng(0)
    sources = [rng.integers(2, 8, 3) for _ in range(200)]
    targets = [source[::-1] for source in sources]
    config = {**TINY, "vocabulary_size": 8, "num_heads": 4, "hidden_dim": 32, "head_dim": 16}
    model = Seq2SeqLM(T5(T5Config(**config)), z_loss=1e-4)
    model.compile(keras.optimizers.Adam(5e-3))
    batches = Seq2SeqBatches(sources, targets, batch_size=40, layout=Seq2SeqLayout(end_id=1), epochs=40)
    history = model.fit(batches, steps_per_epoch=50, verbose=0).history
    assert history["loss"][-1] < 0.3 < 1.0 < history["loss"][0]
    answers = model.generate(sources[:20], max_new_tokens=8)
    right = [list(answer) == [*target, 1] for target, answer in zip(targets, answers, strict=False)]
    assert np.mean(right) > 0.6


@pytest.mark.one_backend
def test_text_in_and_out():
    sources, targets = ["one two", "three four five", "six"] * 4, ["two", "five four", "one"] * 4
    tokenizer = Tokenizer.train("unigram", [*sources, *targets] * 3, 21)
    model = Seq2SeqLM(T5(T5Config(**{**TINY, "eos_id": tokenizer.sep_id})), tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(sources, targets, batch_size=4, epochs=40, verbose=0).history
    assert history["loss"][-1] < 0.5 < history["loss"][0]
    assert model.evaluate(sources, targets, verbose=0, return_dict=True)["accuracy"] > 0.8
    assert model.generate(["one two", "six"], max_new_tokens=9, num_beams=2) == ["two", "one"]
    assert isinstance(model.generate("six", max_new_tokens=2), str)
    with pytest.raises(ValueError, match="needs targets. Received: sources alone"):
        model.predict(sources)


@pytest.mark.one_backend
def test_bad_input():
    model = Seq2SeqLM(T5(T5Config(**TINY)))
    x, y = example()
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.raises(ValueError, match="Labels must be between 0 and 60.*Received: 61"):
        model.fit(x, np.full(y.shape, 61, "int32"), verbose=0)
    with pytest.raises(ValueError, match="the encoder would read the targets. Received: prefix_mask, token_ids"):
        model.fit({"token_ids": y, "prefix_mask": y > 30}, y, verbose=0)
    bert = Bert(BertConfig(vocabulary_size=61, num_layers=1, num_heads=1, hidden_dim=8, feed_forward_dim=8))
    with pytest.raises(ValueError, match="Bert has no head 'seq2seq_lm'"):
        Seq2SeqLM(bert)


@pytest.mark.parametrize("family, name", [("mbart", "MBartTokenizer"), ("mbart50", "MBart50Tokenizer")])
def test_targets_of_mbart_are_those_of_transformers(family, name, tmp_path):
    """mBART reads "ro_RO a b </s>" and predicts "a b </s> ro_RO"; mBART-50 "</s> ro_RO a b" and "ro_RO a b </s>"."""
    import transformers
    from transformers.models.mbart.modeling_mbart import shift_tokens_right

    settings = {"tokenizer_class": name, "src_lang": "en_XX", "tgt_lang": "ro_RO"}
    Vocabularies(make_documents()).write(tmp_path, "xlm-roberta", settings, config={"model_type": "mbart"})
    ours, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    code = {"decoder_start_id" if family == "mbart" else "forced_bos_id": ours.id("ro_RO")}
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, max_length=32)
    config = BartConfig(vocabulary_size=ours.vocabulary_size, model_type="mbart", **sizes, **code)
    sources, targets = ["the cat sat", "a dog"], ["a dog ran over the hill", "the mat"]
    model = Seq2SeqLM(Bart(config), tokenizer=ours)
    [(x, y, weight)] = list(model.text_batches(sources, targets, None, 2, 1, 0, False))
    wanted = theirs(sources, text_target=targets, padding=True, return_tensors="pt")
    np.testing.assert_array_equal(x["token_ids"], wanted["input_ids"])
    np.testing.assert_array_equal(y, wanted["labels"])
    np.testing.assert_array_equal(weight, wanted["labels"] != ours.pad_id)
    shifted = shift_tokens_right(wanted["labels"], ours.pad_id)
    np.testing.assert_array_equal(np.where(weight, x["decoder_token_ids"], 0), np.where(weight, shifted, 0))


def test_truncated_targets_keep_both_of_their_ends():
    layout = Seq2SeqLayout(target_length=4, start_id=9, end_id=1, last_id=9)
    targets = [[5, 6, 7, 8], [5, 6, 7, 8, 1], [5, 1, 9], [5]]
    [(x, y, _)] = list(Seq2SeqBatches([[3]] * 4, targets, batch_size=4, layout=layout, seed=None))
    assert y.tolist() == [[5, 6, 1, 9], [5, 6, 1, 9], [5, 1, 9, 0], [5, 1, 9, 0]]
    assert x["decoder_token_ids"].tolist() == [[9, 5, 6, 1], [9, 5, 6, 1], [9, 5, 1, 0], [9, 5, 1, 0]]


def test_the_language_of_mbart_50_must_be_known():
    tokenizer = Tokenizer.train("unigram", ["the cat sat on the mat"] * 20, 67, family="mbart50")
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, max_length=32)
    config = BartConfig(vocabulary_size=tokenizer.vocabulary_size, model_type="mbart", **sizes)
    with pytest.raises(ValueError, match="begin with the code of their language.*forced_bos_id="):
        Seq2SeqLM(Bart(config), tokenizer=tokenizer).fit(["the cat"], ["the mat"])
