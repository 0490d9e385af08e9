"""TSDAE: loss and gradients of sentence-transformers, what the decoder sees, every family, a loss that falls."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.backend.keras_adapter import all_layers
from kerasbert.data import Corpus, Tokenizer, TSDAEBatches
from kerasbert.models import GPT2, Bert, BertConfig, DebertaV2, DebertaV2Config, GPT2Config
from kerasbert.objectives import TSDAE, MaskedLM
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw
from tests.models.reference import randomize, to_numpy
from tests.objectives.test_retro_mae import FAMILIES, TINY, backbone_of


def batch(rows=3, length=9, seed=0):
    """Random texts, and what is left of them."""
    rng = np.random.default_rng(seed)
    lengths = np.array([length, length - 3, length - 1][:rows], "int32")
    ids = rng.integers(5, 31, (rows, length)).astype("int32")
    ids[:, 0] = 2
    ids[np.arange(length) >= lengths[:, None]] = 0
    ids[np.arange(rows), lengths - 1] = 3
    x = {"token_ids": ids[:, [0, 2, 4, 3]].copy(), "lengths": np.array([4, 3, 4][:rows], "int32")}
    weights = np.arange(1, length) < lengths[:, None]
    return {**x, "decoder_token_ids": ids[:, :-1].copy()}, ids[:, 1:].copy(), weights.astype("float32")


@pytest.mark.one_backend
def test_loss_and_gradients_are_those_of_sentence_transformers(tmp_path):
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    model = randomize(TSDAE(Bert(BertConfig(**{**TINY, "num_layers": 2}), pooler=False)), 0.3)
    model.save_to_preset(tmp_path)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(26))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    encoder = Transformer(str(tmp_path))
    peer = SentenceTransformer(modules=[encoder, Pooling(12, pooling_mode="cls")], device="cpu")
    loss = DenoisingAutoEncoderLoss(peer, tie_encoder_decoder=True).eval()
    pairs = []
    for block, part in zip(loss.decoder.bert.encoder.layer, model.cross_attention.parts, strict=True):
        cross = block.crossattention
        pairs += [(cross.self.value.weight, part.value.kernel), (cross.self.value.bias, part.value.bias)]
        pairs += [(cross.output.dense.weight, part.project.kernel), (cross.output.dense.bias, part.project.bias)]
        pairs += [(cross.output.LayerNorm.weight, part.norm.gamma), (cross.output.LayerNorm.bias, part.norm.beta)]
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(torch.tensor(np.ascontiguousarray(to_numpy(ours).T)))
    x, y, weights = batch()
    seen = (np.arange(4) < x["lengths"][:, None]).astype("int64")
    source = {"input_ids": torch.tensor(x["token_ids"]).long(), "attention_mask": torch.tensor(seen)}
    target = {"input_ids": torch.tensor(np.concatenate([x["decoder_token_ids"][:, :1], y], 1)).long()}
    expected = loss([source, target], None)
    expected.backward()
    tensors = {key: keras.ops.convert_to_tensor(array) for key, array in x.items()}
    found = model.compute_loss(tensors, keras.ops.convert_to_tensor(y), model(tensors), weights)
    found.backward()
    assert found.item() == pytest.approx(expected.item(), abs=1e-5)
    bert, blocks = loss.decoder.bert, model.backbone.blocks
    pairs += [(bert.embeddings.word_embeddings.weight, model.backbone.token_embedding.embeddings)]
    pairs += [(bert.embeddings.LayerNorm.weight, model.backbone.embedding_norm.gamma)]
    pairs += [(loss.decoder.cls.predictions.transform.dense.weight, model.masked_lm.dense.kernel)]
    for theirs, ours in zip(bert.encoder.layer, blocks, strict=True):
        attention = theirs.attention.self
        pairs += [
            (attention.query.weight, ours.attention.query.kernel),
            (attention.value.bias, ours.attention.value.bias),
        ]
        pairs += [(theirs.output.dense.weight, ours.feed_forward.outer.kernel)]
        pairs += [(theirs.attention.output.LayerNorm.weight, ours.attention_norm.gamma)]
    for theirs, ours in pairs:
        gradient = ours.value.grad.numpy()
        table = ours is model.backbone.token_embedding.embeddings
        wanted = theirs.grad.numpy() if table else theirs.grad.numpy().T
        np.testing.assert_allclose(gradient, wanted, atol=1e-5, err_msg=ours.path)


def check_what_the_decoder_sees(model):
    rng = np.random.default_rng(1)
    ids = rng.integers(5, 24, (3, 8)).astype("int32")
    h = keras.ops.convert_to_tensor(rng.normal(size=(3, 1, 12)).astype("float32"))
    before = to_numpy(model.decode(ids, h))
    ids[:, 5] += 7
    after = to_numpy(model.decode(ids, h))
    np.testing.assert_allclose(after[:, :5], before[:, :5], atol=1e-5)
    assert (np.abs(after - before)[:, 5:].max(-1) > 1e-6).all()
    assert (np.abs(to_numpy(model.decode(ids, h + 1)) - after).max(-1) > 1e-6).all()
    assert not [layer.path for layer in all_layers(model) if "call" in vars(layer)]


@pytest.mark.one_backend
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_encoders(name, tmp_path):
    """The decoder sees the embedding and earlier tokens only, all weights learn, and the folder is a MaskedLM's."""
    model = randomize(TSDAE(backbone_of(name, num_layers=2)), 0.2)
    check_what_the_decoder_sees(model)
    x, y, weights = batch()
    states = [to_numpy(model.backbone({key: x[key] for key in ("token_ids", "lengths")})["sequence_output"])]
    before = [to_numpy(variable).copy() for variable in model.cross_attention.trainable_variables]
    model.save_to_preset(tmp_path)
    again = MaskedLM.from_preset(tmp_path).backbone
    states.append(to_numpy(again({key: x[key] for key in ("token_ids", "lengths")})["sequence_output"]))
    np.testing.assert_allclose(states[1], states[0], atol=1e-5)
    assert type(kerasbert.load(tmp_path)) is TSDAE
    model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    assert np.isfinite(model.train_on_batch(x, y, weights, return_dict=True)["loss"])
    after = model.cross_attention.trainable_variables
    still = [v.path for v, old in zip(after, before, strict=True) if (to_numpy(v) == old).all()]
    assert not still


@pytest.mark.one_backend
def test_padding_changes_nothing():
    model, (x, y, weights) = randomize(TSDAE(Bert(BertConfig(**TINY)))), batch()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    plain = model.test_on_batch(x, y, weights, return_dict=True)
    wide = {"token_ids": np.pad(x["token_ids"], [(0, 1), (0, 2)]), "lengths": np.array([4, 3, 4, 0], "int32")}
    wide["decoder_token_ids"] = np.pad(x["decoder_token_ids"], [(0, 1), (0, 2)])
    y, weights = (np.pad(array, [(0, 1), (0, 2)]) for array in (y, weights))
    assert model.test_on_batch(wide, y, weights, return_dict=True) == pytest.approx(plain, rel=1e-5)


def test_a_compiled_step_is_that_of_the_formulas():
    """The calls of layers that the decoder replaces are those of its own pass, also in compiled programs."""
    model, (x, y, weights) = randomize(TSDAE(Bert(BertConfig(**TINY)))), batch()
    tensors = {key: keras.ops.convert_to_tensor(array) for key, array in x.items()}
    logits = to_numpy(model(tensors)).astype("float64")
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, y[..., None], -1)[..., 0]
    model.compile(keras.optimizers.SGD(0.1))
    first, second = (model.fit(x, y, sample_weight=weights, verbose=0).history["loss"][0] for _ in range(2))
    assert first == pytest.approx(np.average(losses, weights=weights), rel=1e-5) and second < first
    assert not [layer.name for layer in all_layers(model) if "call" in vars(layer)]


@pytest.mark.one_backend
def test_it_learns_and_an_embedder_starts_from_it(tmp_path):
    words = [f"w{i}" for i in range(24)]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(words[4 * (i % 6) : 4 * (i % 6) + 4])) for i in range(60)]
    tokenizer = Tokenizer.train("wordpiece", texts, 48)
    config = dict(TINY, vocabulary_size=tokenizer.vocabulary_size, hidden_dim=32, initializer_range=0.1)
    model = TSDAE(Bert(BertConfig(**config), pooler=False), tokenizer=tokenizer)
    model.compile(adamw(1e-2, 5, 50), run_eagerly=True)
    corpus = Corpus.in_memory(texts, tokenizer)
    model.fit(TSDAEBatches(corpus, 20, 6, steps=50), verbose=0)
    found = model.evaluate(TSDAEBatches(corpus, 20, 6, seed=1), return_dict=True, verbose=0)
    # Of four words in random order and the end, whose place is known, the best perplexity is 24 ** (1 / 5) = 1.9.
    assert found["perplexity"] < 4
    model.save_to_preset(tmp_path)
    vectors = TextEmbedder.from_preset(tmp_path, pooling="cls").embed(["w0 w1 w2", "w3 w1", "w4 w5 w6"])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


@pytest.mark.one_backend
def test_texts_and_bad_input():
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"], 21)
    model = TSDAE(Bert(BertConfig(**{**TINY, "vocabulary_size": 21})), tokenizer=tokenizer)
    model.compile(adamw(1e-3))
    assert np.isfinite(model.fit(["a b c d", "e"], batch_size=2, verbose=0).history["loss"][0])
    with pytest.raises(ValueError, match="TSDAE needs an encoder that predicts masked tokens.* Received: GPT2"):
        TSDAE(GPT2(GPT2Config(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, max_length=4)))
    with pytest.raises(ValueError, match="must not read later tokens. Received: a DebertaV2 with a convolution"):
        TSDAE(DebertaV2(DebertaV2Config(**TINY, distance_buckets=4, convolution_width=3)))
    model, (x, y, weights) = TSDAE(Bert(BertConfig(**TINY))), batch()
    model.compile(adamw(1e-3), run_eagerly=True)
    for changes, labels, message in (
        (dict(decoder_token_ids=None), y, "needs `decoder_token_ids`.*Use TSDAEBatches"),
        (dict(decoder_token_ids=x["decoder_token_ids"] + 31), y, "Labels must be between 0 and 30"),
        ({}, y[:, 1:], "y must have the shape"),
        (dict(lengths=None, padding_mask=np.arange(4) > np.zeros((3, 1))), y, "rows with padding on the left"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit({**x, **changes}, labels, sample_weight=weights[:, -labels.shape[1] :], verbose=0)
    model.backbone.rematerialize()
    with pytest.raises(ValueError, match="activations cannot be recomputed"):
        model.fit(x, y, sample_weight=weights, verbose=0)
