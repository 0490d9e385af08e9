"""RetroMAE: the formulas of the paper in numpy, what the decoder does not see, every family, a loss that falls."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert import models
from kerasbert.data import Corpus, RetroMAEBatches, Tokenizer
from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config, GPTBert, GPTBertConfig, MobileBert, MobileBertConfig
from kerasbert.objectives import MaskedLM, RetroMAE
from kerasbert.objectives.retro_mae import bag_of_words_losses
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw
from tests.models.reference import gradient, randomize, to_numpy

SIZES = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=24, max_length=13)
TINY = dict(**SIZES, dropout=0.0, attention_dropout=0.0)


def objective(**options):
    return randomize(RetroMAE(Bert(BertConfig(**TINY), pooler=False), **options), 0.3)


def batch(rows=3, length=9, seed=0):
    """Random rows of different lengths. Positions see random others, and special tokens are not predicted."""
    rng = np.random.default_rng(seed)
    lengths = np.array([length, length - 3, length - 1, length][:rows], "int32")
    real = np.arange(length) < lengths[:, None]
    text = real & (np.arange(length) > 0) & (np.arange(length) < lengths[:, None] - 1)
    ids = rng.integers(5, 12, (rows, length)).astype("int32")  # few different tokens, so that some occur twice
    slots = np.tile(np.array([2, 4, -1], "int32"), (rows, 1))
    x = {"token_ids": ids.copy(), "lengths": lengths, "masked_positions": slots, "decoder_token_ids": ids}
    x["token_ids"][:, [2, 4]] = 4
    x["decoder_visible"] = (rng.random((rows, length, length)) < 0.5) & real[:, None] & ~np.eye(length, dtype=bool)
    x["decoder_visible"][:, :, 0] = np.arange(length) > 0
    y = {"tokens": np.take_along_axis(ids, slots.clip(0), 1), "decoder": ids}
    return x, y, {"tokens": (slots >= 0).astype("float32"), "decoder": text.astype("float32")}


def run(model, x, y, weights):
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    return model.test_on_batch(x, y, weights, return_dict=True)


# === The formulas, in numpy ===


def norm(x, layer):
    centerd = x - x.mean(-1, keepdims=True)
    scale = np.sqrt(np.square(centerd).mean(-1, keepdims=True) + layer.epsilon)
    return centerd / scale * to_numpy(layer.gamma) + to_numpy(layer.beta)


def dense(x, layer):
    return x @ to_numpy(layer.kernel) + to_numpy(layer.bias)


def gelu(x):
    return to_numpy(keras.activations.gelu(keras.ops.convert_to_tensor(x.astype("float32")), approximate=False))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def decoded(model, x, h, heads=2):
    """The logits of the decoder for embeddings h (b, m), position by position."""
    backbone, block = model.backbone, model.decoder
    table, places = to_numpy(backbone.token_table), to_numpy(backbone.position_embedding.embeddings)
    ids = x["decoder_token_ids"]
    rows, length = ids.shape
    keys = norm(
        table[ids] + places[:length] + to_numpy(backbone.segment_embedding.embeddings)[0], backbone.embedding_norm
    )
    keys[:, 0] = h
    queries = places[None, :length] + h[:, None]
    k, v = (
        dense(keys, layer).reshape(rows, length, heads, -1) for layer in (block.attention.key, block.attention.value)
    )
    q = dense(queries, block.attention.query).reshape(rows, length, heads, -1)
    outputs = np.zeros_like(queries)
    for row in range(rows):
        for i in range(length):
            seen = np.flatnonzero(x["decoder_visible"][row, i])
            scores = np.einsum("hd,khd->hk", q[row, i], k[row, seen]) / np.sqrt(q.shape[-1])
            if len(seen):
                outputs[row, i] = np.einsum("hk,khd->hd", softmax(scores), v[row, seen]).reshape(-1)
    y = norm(queries + dense(outputs, block.attention.project), block.attention_norm)
    inner = dense(gelu(dense(y, block.feed_forward.inner)), block.feed_forward.outer)
    y = norm(y + inner, block.feed_forward_norm)
    return head(model, y)


def head(model, x):
    x = norm(gelu(dense(x, model.masked_lm.dense)), model.masked_lm.norm)
    return x @ to_numpy(model.backbone.token_table).T + to_numpy(model.masked_lm.bias)


def losses(logits, labels):
    logits = logits - logits.max(-1, keepdims=True)
    return np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def test_the_loss_equals_the_formulas():
    model = objective(bag_of_words_weight=0.1)
    x, y, weights = batch()
    states = to_numpy(model.backbone({key: x[key] for key in ("token_ids", "lengths")})["sequence_output"])
    every = head(model, states.astype("float64"))
    slots = x["masked_positions"].clip(0)
    tokens = np.take_along_axis(every, slots[..., None], 1)
    decoder = decoded(model, x, states[:, 0].astype("float64"))
    logits = {name: to_numpy(array) for name, array in model(x).items()}
    np.testing.assert_allclose(logits["tokens"], tokens, atol=1e-5)
    some = x["decoder_visible"].any(2)
    np.testing.assert_allclose(logits["decoder"][some], decoder[some], atol=2e-5)
    expected = {
        "tokens": np.average(losses(tokens, y["tokens"]), weights=weights["tokens"]),
        "decoder": np.average(losses(decoder, y["decoder"]), weights=weights["decoder"]),
    }
    bags = []
    for row, length in enumerate(x["lengths"]):
        largest, words = every[row, 1:length].max(0), x["decoder_token_ids"][row, 1 : length - 1]
        np.testing.assert_allclose(logits["bag_of_words"][row], largest, atol=1e-5)
        bags.append(sum(losses(largest, np.array(word)) for word in set(words.tolist())) / len(words))
    found = run(model, x, y, weights)
    assert found["loss"] == pytest.approx(sum(expected.values()) + 0.1 * np.mean(bags), rel=1e-5)
    assert found["bag_of_words_loss"] == pytest.approx(np.mean(bags), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(expected["tokens"]), rel=1e-4)
    assert found["decoder_perplexity"] == pytest.approx(np.exp(expected["decoder"]), rel=1e-4)
    hits = (decoder.argmax(-1) == y["decoder"]) * weights["decoder"]
    assert found["decoder_accuracy"] == pytest.approx(hits.sum() / weights["decoder"].sum(), rel=1e-5)


@pytest.mark.one_backend
def test_worked_examples():
    """Losses 1, 3 of masked tokens and 2, 2, 4, 4 of the decoder make 5; the words 7 7 9 have the weights 1/3, 1/3."""
    model = objective()

    def with_losses(values):
        """Logits of two tokens, of which token 0 has the given negative log likelihoods."""
        values = np.array(values, "float32")[None]
        return np.stack([-values, np.log1p(-np.exp(-values))], -1)

    x = {"token_ids": np.zeros((1, 6), "int32"), "masked_positions": np.array([[1, 3]], "int32")}
    y = {"tokens": np.zeros((1, 2), "int32"), "decoder": np.zeros((1, 6), "int32")}
    y_pred = {"tokens": with_losses([1, 3]), "decoder": with_losses([9, 2, 2, 4, 4, 9])}
    weights = {"tokens": None, "decoder": np.array([[0, 1, 1, 1, 1, 0]], "float32")}
    y_pred = {name: keras.ops.convert_to_tensor(array) for name, array in y_pred.items()}
    assert float(model.compute_loss(x, y, y_pred, weights)) == pytest.approx(5.0, rel=1e-5)
    logits = np.random.default_rng(0).normal(size=(2, 11)).astype("float32")
    ids, counted = np.array([[7, 7, 9], [0, 0, 0]]), np.array([[True] * 3, [False] * 3])
    found = to_numpy(bag_of_words_losses(logits, ids, keras.ops.convert_to_tensor(counted)))
    of = -np.log(softmax(logits[0]))
    np.testing.assert_allclose(found, [of[7] / 3 + of[9] / 3, 0], rtol=1e-5)


# === What is not seen ===


@pytest.mark.one_backend
def test_a_position_does_not_see_its_own_token_nor_those_hidden_from_it():
    model, (x, _, _) = objective(), batch()
    h = keras.ops.convert_to_tensor(np.random.default_rng(1).normal(size=(3, 1, 12)).astype("float32"))
    before = to_numpy(model.decode(x, h))
    other = {**x, "decoder_token_ids": x["decoder_token_ids"].copy()}
    other["decoder_token_ids"][:, 3] += 7
    changed = np.abs(to_numpy(model.decode(other, h)) - before).max(-1) > 1e-6
    seeing = x["decoder_visible"][:, :, 3]
    assert not changed[:, 3].any() and not changed[~seeing & x["decoder_visible"].any(2)].any()
    assert changed[seeing].all()
    first = {**x, "decoder_token_ids": x["decoder_token_ids"].copy()}
    first["decoder_token_ids"][:, 0] += 7  # the embedding of the text is in the place of the first token
    np.testing.assert_array_equal(to_numpy(model.decode(first, h)), before)


@pytest.mark.one_backend
def test_a_position_that_sees_only_the_embedding_reads_the_same_whatever_its_query():
    model, (x, _, _) = objective(), batch()
    x["decoder_visible"][:] = np.arange(9) == 0
    h = np.random.default_rng(1).normal(size=(3, 1, 12)).astype("float32")
    mask = models.bert.AttentionMask(allowed=keras.ops.convert_to_tensor(x["decoder_visible"][:, None]))
    queries = keras.ops.convert_to_tensor(np.random.default_rng(2).normal(size=(3, 9, 12)).astype("float32"))
    context = keras.ops.convert_to_tensor(np.concatenate([h, np.ones((3, 8, 12), "float32")], 1))
    y = to_numpy(model.decoder.attention(queries, context, attention_mask=mask)[0])
    np.testing.assert_allclose(y, np.broadcast_to(y[:, :1], y.shape), atol=1e-6)


@pytest.mark.one_backend
def test_padding_changes_nothing():
    model, (x, y, weights) = objective(bag_of_words_weight=0.1), batch()
    wide = {
        key: np.pad(array, [(0, 0), (0, 3)], constant_values=9)
        for key, array in x.items()
        if array.shape[-1] == 9 and array.ndim == 2
    }
    wide = {
        **x,
        **wide,
        "decoder_visible": np.pad(x["decoder_visible"], [(0, 0), (0, 3), (0, 3)], constant_values=True),
    }
    targets = {**y, "decoder": np.pad(y["decoder"], [(0, 0), (0, 3)])}
    of_targets = {**weights, "decoder": np.pad(weights["decoder"], [(0, 0), (0, 3)])}
    assert run(model, wide, targets, of_targets) == pytest.approx(run(model, x, y, weights), rel=1e-5)
    empty = {key: np.concatenate([array, np.zeros_like(array[:1])]) for key, array in x.items()}  # a row of padding
    empty["masked_positions"][-1] = -1
    more = [{key: np.concatenate([a, np.zeros_like(a[:1])]) for key, a in part.items()} for part in (y, weights)]
    assert run(model, empty, *more) == pytest.approx(run(model, x, y, weights), rel=1e-5)


@pytest.mark.one_backend
def test_the_embedding_gets_gradients_from_the_decoder_alone():
    model, (x, _, weights) = objective(), batch()
    tensors = {key: keras.ops.convert_to_tensor(array) for key, array in x.items()}

    def loss(h):
        logits = model.masked_lm(model.decode(tensors, h), model.backbone.token_table)
        return keras.ops.sum(logits * keras.ops.convert_to_tensor(weights["decoder"][..., None]))

    assert np.abs(gradient(loss, np.zeros((3, 1, 12), "float32"))).min() > 0


# === Families ===

FAMILIES = {
    "Bert": {},
    "Albert": dict(embedding_dim=8),
    "Roberta": {},
    "DistilBert": {},
    "Electra": dict(embedding_dim=8),
    "MPNet": {},
    "MobileBert": dict(trigram_input=False, normalization="layer_norm", bottleneck_dim=8, embedding_dim=8),
    "Deberta": {},
    "DebertaV2": dict(distance_buckets=4),
    "ModernBert": {},
    "NomicBert": {},
    "EuroBert": {},
    "NeoBert": {},
    "Gte": {},
    "JinaEmbeddingsV3": {},
    "XLM": {},
}


def backbone_of(name, **fields):
    """A tiny backbone of a family, with the vocabulary and the padding token of the tests."""
    config = getattr(models, f"{name}Config")
    known = config.__dataclass_fields__
    fields = {**SIZES, **FAMILIES[name], **fields}
    return getattr(models, name)(config(**{field: value for field, value in fields.items() if field in known}))


@pytest.mark.one_backend
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_encoders(name, tmp_path):
    """All weights get gradients, hidden tokens are not seen, and the folder is that of a MaskedLM."""
    model = randomize(RetroMAE(backbone_of(name), bag_of_words_weight=0.1), 0.3)
    x, y, weights = batch()
    before = [to_numpy(variable).copy() for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    assert np.isfinite(model.train_on_batch(x, y, weights, return_dict=True)["loss"])
    still = [v.path for v, old in zip(model.trainable_variables, before, strict=True) if (to_numpy(v) == old).all()]
    assert not [path for path in still if "key/bias" not in path and "distance" not in path], still
    h = keras.ops.convert_to_tensor(np.ones((3, 1, 12), "float32"))
    other = {**x, "decoder_token_ids": x["decoder_token_ids"].copy()}
    other["decoder_token_ids"][:, 3] += 7
    same = ~x["decoder_visible"][:, :, 3] & x["decoder_visible"].any(2)
    first, second = (to_numpy(model.decode(inputs, h))[same] for inputs in (x, other))
    np.testing.assert_allclose(first, second, atol=1e-6)
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is RetroMAE and again.arguments() == {"bag_of_words_weight": 0.1}
    plain = {key: x[key] for key in ("token_ids", "lengths", "masked_positions")}
    tokens = to_numpy(MaskedLM.from_preset(tmp_path)(plain))
    np.testing.assert_allclose(to_numpy(again(plain)["tokens"]), tokens, atol=1e-5)
    np.testing.assert_allclose(to_numpy(model(plain)["tokens"]), tokens, atol=1e-5)


@pytest.mark.one_backend
def test_embeddings_of_tokens_are_those_that_the_blocks_read():
    x, _, _ = batch()
    inputs = {key: x[key] for key in ("token_ids", "lengths")}
    for name in FAMILIES:
        backbone = randomize(backbone_of(name, dropout=0.0))
        expected = to_numpy(backbone(inputs, hidden_states=True)["hidden_states"][0])
        np.testing.assert_array_equal(to_numpy(backbone.embed_tokens(inputs)), expected, err_msg=name)


# === Training ===


def test_a_compiled_step():
    model, (x, y, weights) = objective(bag_of_words_weight=0.1), batch()
    expected = run(model, x, y, weights)["loss"]
    model.compile(keras.optimizers.SGD(0.1))
    losses = [model.fit(x, y, sample_weight=weights, verbose=0).history["loss"][0] for _ in range(2)]
    assert losses[0] == pytest.approx(expected, rel=1e-5) and losses[1] < losses[0]


@pytest.mark.one_backend
def test_it_learns_and_an_embedder_starts_from_it(tmp_path):
    """The decoder restores texts of which each has its own words, which only the embedding can tell it."""
    words = [f"w{i}" for i in range(24)]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(words[4 * (i % 6) : 4 * (i % 6) + 4])) for i in range(60)]
    tokenizer = Tokenizer.train("wordpiece", texts, 48)
    corpus = Corpus.in_memory(texts, tokenizer)
    config = dict(TINY, vocabulary_size=tokenizer.vocabulary_size, hidden_dim=32, initializer_range=0.1)
    model = RetroMAE(Bert(BertConfig(**config), pooler=False), tokenizer=tokenizer)
    model.compile(adamw(1e-2, 5, 60), run_eagerly=True)
    model.fit(RetroMAEBatches(corpus, 20, 6, steps=60, decoder_rate=0.7), verbose=0)
    found = model.evaluate(RetroMAEBatches(corpus, 20, 6, seed=1, decoder_rate=0.9), return_dict=True, verbose=0)
    assert found["decoder_perplexity"] < 8  # 24 words; 4 of the right group
    model.save_to_preset(tmp_path)
    embedder = TextEmbedder.from_preset(tmp_path, pooling="cls")
    vectors = embedder.embed([" ".join(words[:4]), " ".join(words[3::-1]), " ".join(words[4:8])])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


@pytest.mark.one_backend
def test_texts_and_bad_input():
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"], 21)
    model = RetroMAE(Bert(BertConfig(**{**TINY, "vocabulary_size": 21})), tokenizer=tokenizer)
    model.compile(adamw(1e-3))
    assert np.isfinite(model.fit(["a b c d", "e"], batch_size=2, verbose=0).history["loss"][0])
    with pytest.raises(ValueError, match="RetroMAE needs an encoder that predicts masked tokens.* Received: GPT2"):
        RetroMAE(GPT2(GPT2Config(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=4, max_length=4)))
    gpt_bert = dict(
        vocabulary_size=20,
        num_layers=1,
        num_heads=1,
        hidden_dim=8,
        feed_forward_dim=8,
        max_length=32,
        distance_buckets=8,
    )
    with pytest.raises(ValueError, match="Received: GPTBert"):
        RetroMAE(GPTBert(GPTBertConfig(**gpt_bert)))
    with pytest.raises(ValueError, match="Received: a XLM with causal=True"):
        RetroMAE(backbone_of("XLM", causal=True))
    with pytest.raises(ValueError, match="Received: a MobileBert that embeds neighbors"):
        RetroMAE(MobileBert(MobileBertConfig(**SIZES, bottleneck_dim=8, embedding_dim=8)))
    with pytest.raises(ValueError, match="`bag_of_words_weight` must be at least 0. Received: -1"):
        RetroMAE(Bert(BertConfig(**TINY)), bag_of_words_weight=-1)
    model = objective()
    x, y, weights = batch()
    model.compile(adamw(1e-3))
    left = {key: value for key, value in x.items() if key != "lengths"}
    for changes, message in (
        (dict(decoder_visible=None), "needs `decoder_token_ids`.*Use RetroMAEBatches"),
        (dict(decoder_visible=x["decoder_visible"][:, :3]), r"`decoder_visible` must have the shape \(b, 9, 9\)"),
        (dict(decoder_token_ids=x["decoder_token_ids"] + 31), "Labels must be between 0 and 30"),
        (dict(lengths=None, padding_mask=np.arange(9) > np.zeros((3, 1))), "rows with padding on the left"),
        (dict(lengths=None, sequence_ids=np.ones((3, 9), "int32")), "one text per row. Received: packed rows"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit({**left, "lengths": x["lengths"], **changes}, y, sample_weight=weights, verbose=0)
    modern = RetroMAE(backbone_of("ModernBert"))
    long, targets, _ = batch(length=14)
    with pytest.raises(ValueError, match="position table of RetroMAE's decoder, max_length=13. Received: 14"):
        modern.check_batch(long, targets)
