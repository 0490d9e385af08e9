"""MPNet against transformers, both ways; its two streams against a forward pass in permuted order; its invariances."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, MPNet, MPNetConfig
from kerasbert.models.mpnet import HUGGINGFACE_CONFIG, SIZES, visible
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, TextClassifier
from tests.models.reference import (
    HEADS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    check_states,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=33)


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40)
    rates = dict(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    # The LM head has the exact gelu, whatever the activation is.
    others = dict(max_position_embeddings=35, hidden_act="gelu_new", layer_norm_eps=1e-5, bos_token_id=7)
    return transformers.MPNetConfig(**{**sizes, **rates, **others, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    check_head("MPNet", head, their_config(**labels), tmp_path)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [f"MPNet{head}"]
    for stored in [getattr(entry, "name", entry) for entry in HUGGINGFACE_CONFIG.values()]:
        assert ours[stored] == theirs[stored], stored
    assert ours["relative_attention_num_buckets"] == 32


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):
    """In rows that are long enough for buckets of several distances."""

    theirs = their_model("MPNetModel", their_config(), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, padding, pad_id=1, length=33)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)
    if padding != "left":  # there the first column is padding
        np.testing.assert_allclose(to_numpy(found["pooled_output"]), to_numpy(expected.pooler_output), atol=1e-5)
    positions = np.array([[4, 0, -1], [20, 8, 4]], "int32")
    some = to_numpy(backbone(ours, output_positions=positions)["sequence_output"])
    all_of_them = to_numpy(found["hidden_states"][-1])
    for row, column in zip(*np.nonzero(positions >= 0), strict=True):
        np.testing.assert_allclose(some[row, column], all_of_them[row, positions[row, column]], atol=1e-5)


# === The objective ===


def test_which_tokens_are_visible():
    """The worked example of the paper's figure: positions 3 and 4 of 5 are predicted, in this order."""
    found = to_numpy(visible(keras.ops.convert_to_tensor([[3, 4]]), 5)).astype(int)
    content = ["1110011"] * 3 + ["1111001", "1111100"] + ["1110011"] * 2
    assert ["".join(map(str, row)) for row in found[0]] == [*content, "1110011", "1111001"]
    other_order = to_numpy(visible(keras.ops.convert_to_tensor([[4, 1, -1]]), 5)).astype(int)[0]
    assert "".join(map(str, other_order[-3])) == "10110" + "110"  # 4 sees itself and 1 as masks
    assert "".join(map(str, other_order[-2])) == "10111" + "010"  # 1 sees the token at 4
    assert "".join(map(str, other_order[1])) == "11111" + "000"  # the token at 1, the last of the order
    assert not other_order[:, -1].any()  # an unused entry
    assert (other_order[:-1].sum(axis=1) == 5).all()


def official_logits(theirs, ids, order, num_predicted, masked):
    """The logits of the official pretraining for one row, on the modules of transformers.

    The row is permuted, its last tokens are predicted, and the masks of both streams are those of the official code.

    Args:
        theirs: an `MPNetForMaskedLM`.
        ids: int (n,), the original tokens.
        order: the permutation of 0...n-1.
        num_predicted: p, how many tokens at its end are predicted.
        masked: int (p,), what they are replaced by.
    """
    import torch

    n, p, encoder = len(ids), num_predicted, theirs.mpnet.encoder
    order, embeddings = torch.tensor(order), theirs.mpnet.embeddings
    content = torch.cat([torch.tensor(ids)[order], torch.tensor(masked)])
    places = torch.cat([order, order[n - p :]])
    c = embeddings(input_ids=content[None].long(), position_ids=places[None] + 2)
    q = c[:, -p:]
    buckets = encoder.relative_position_bucket(places - places[:, None])
    bias = encoder.relative_attention_bias(buckets).permute(2, 0, 1)[None]
    ones, lower = torch.ones(p, p).bool(), torch.ones(p, p).tril().bool()
    known, none = torch.ones(p, n - p).bool(), torch.zeros(p, p).bool()
    others = torch.cat([known, none, ones], dim=1)[:1].repeat(n - p, 1)
    mask = torch.cat([others, torch.cat([known, lower, ~lower], 1), torch.cat([known, none, ones], 1)])
    q_mask = torch.cat([known, lower & ~torch.eye(p).bool(), ~(lower & ~torch.eye(p).bool())], 1)

    def split(x):
        return x.view(1, x.shape[1], 3, 8).transpose(1, 2)

    for layer in encoder.layer:
        attn, outputs = layer.attention.attn, []
        for x, b, m in ((c, bias, mask), (q, bias[:, :, -p:], q_mask)):
            scores = split(attn.q(x)) @ split(attn.k(c)).transpose(2, 3) / 8**0.5 + b
            weights = scores.masked_fill(~m, float("-inf")).softmax(-1)
            y = attn.o((weights @ split(attn.v(c))).transpose(1, 2).flatten(2))
            y = layer.attention.LayerNorm(x + y)
            outputs.append(layer.output(layer.intermediate(y), y))
        c, q = outputs
    return theirs.lm_head(q)[0]


def pretraining_batch(padded=False):
    """Two rows of 11 tokens, of which the second may end in 4 tokens of padding; 3 and 2 tokens are predicted."""
    originals, _, real = example(61, "right" if padded else "none", pad_id=1)
    originals = originals["token_ids"]
    slots = np.array([[7, 2, 4], [5, 0, -1]], "int32")
    targets = np.where(slots >= 0, np.take_along_axis(originals, np.maximum(slots, 0), 1), 0).astype("int32")
    ids = originals.copy()
    for row, masks in ((0, [60, 60, 9]), (1, [60, originals[1, 0]])):  # masks, a random token, an unchanged one
        ids[row, slots[row, : len(masks)]] = masks
    x = {"token_ids": ids, "masked_positions": slots, "original_ids": targets}
    return ({**x, "padding_mask": real} if padded else x), targets, originals


@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.one_backend), True])
def test_the_objective_equals_the_official_algorithm(padded, tmp_path):
    import torch

    theirs = their_model("MPNetForMaskedLM", their_config(num_hidden_layers=2), tmp_path)
    x, _, originals = pretraining_batch(padded)
    found = MaskedLM.from_preset(tmp_path).predict_on_batch(x)  # compiled
    for row, length in ((0, 11), (1, 7 if padded else 11)):
        slots = x["masked_positions"][row]
        slots = slots[slots >= 0]
        order = [i for i in range(length)[::-1] if i not in slots] + slots.tolist()  # of the others, any order
        with torch.no_grad():
            masked = x["token_ids"][row, slots]
            expected = official_logits(theirs, originals[row, :length], order, len(slots), masked)
        np.testing.assert_allclose(found[row, : len(slots)], to_numpy(expected), atol=2e-5, rtol=1e-5)


@pytest.mark.one_backend
def test_predictions_depend_on_earlier_tokens_only():
    model = randomize(MaskedLM(MPNet(MPNetConfig(**TINY), pooler=False)))
    x, _, _ = pretraining_batch()
    before = to_numpy(model(x))
    for entry in range(3):
        changed = x["original_ids"].copy()
        changed[0, entry] = 33
        moved = np.abs(to_numpy(model({**x, "original_ids": changed})) - before).max(axis=-1) > 1e-6
        assert moved[0].tolist() == [later > entry for later in range(3)] and not moved[1].any()


@pytest.mark.one_backend
def test_a_single_prediction_is_masked_language_modeling():
    model = randomize(MaskedLM(MPNet(MPNetConfig(**TINY), pooler=False)))
    x, _, _ = pretraining_batch(padded=True)
    one = {**x, "masked_positions": x["masked_positions"][:, :1], "original_ids": x["original_ids"][:, :1]}
    ids = example(61, "right", pad_id=1)[0]["token_ids"].copy()
    ids[[0, 1], one["masked_positions"][:, 0]] = 60
    plain = {"token_ids": ids, "padding_mask": x["padding_mask"], "masked_positions": one["masked_positions"]}
    np.testing.assert_allclose(to_numpy(model({**one, "token_ids": ids})), to_numpy(model(plain)), atol=1e-5)


@pytest.mark.one_backend
def test_packed_rows_and_columns_of_padding_change_no_predictions():
    model = randomize(MaskedLM(MPNet(MPNetConfig(**TINY), pooler=False)))
    x, _, _ = pretraining_batch(padded=True)
    alone = to_numpy(model(x))
    row = np.concatenate([x["token_ids"][0], x["token_ids"][1, :7], np.full(4, 8)]).astype("int32")[None]
    slots = np.array([[16, 7, 2, 11, -1, 4]], "int32")  # the order within each sequence is kept
    first, second = x["original_ids"]
    originals = np.array([[second[0], first[0], first[1], second[1], 0, first[2]]], "int32")
    sequences = np.array([[1] * 11 + [2] * 7 + [0] * 4], "int32")
    batch = {"token_ids": row, "sequence_ids": sequences, "masked_positions": slots, "original_ids": originals}
    found = to_numpy(model(batch))[0]
    np.testing.assert_allclose(found[[1, 2, 5]], alone[0], atol=1e-5)
    np.testing.assert_allclose(found[[0, 3]], alone[1, :2], atol=1e-5)
    left = {key: x[key] for key in ("masked_positions", "original_ids")}
    left["masked_positions"] = np.where(x["masked_positions"] >= 0, x["masked_positions"] + 3, -1).astype("int32")
    left["token_ids"] = np.pad(x["token_ids"], ((0, 0), (3, 0)), constant_values=5)
    left["padding_mask"] = np.pad(x["padding_mask"], ((0, 0), (3, 0)))
    np.testing.assert_allclose(to_numpy(model(left))[:, :2], alone[:, :2], atol=1e-5)


def test_every_weight_gets_a_gradient():
    config = MPNetConfig(**{**TINY, "num_layers": 2}, dropout=0.0, attention_dropout=0.0)
    x, targets, _ = pretraining_batch(padded=True)
    check_gradients(randomize(MaskedLM(MPNet(config, pooler=False))), (x, targets), without=["key/bias"])


@pytest.mark.one_backend
def test_gradients_of_other_heads():
    config = MPNetConfig(**{**TINY, "num_layers": 1}, dropout=0.0, attention_dropout=0.0)
    x, _, _ = example(61, "right", pad_id=1)
    classifier = randomize(TextClassifier(MPNet(config, pooler=False)))
    check_gradients(classifier, (x, np.array([0, 1], "int32")), without=["key/bias"])


# === The encoder ===


@pytest.mark.one_backend
def test_the_size_has_the_parameters_of_the_paper():
    config = MPNetConfig(**SIZES["mpnet_base"])
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    encoder = (v + 514) * m + 2 * m + 32 * 12 + config.num_layers * block
    assert (encoder + m * m + m, encoder + m * m + 3 * m + v) == (109_486_464, 109_518_527)
    m, f = 24, 40
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    expected = (61 + 35) * m + 2 * m + 32 * 3 + 3 * block
    assert MPNet(MPNetConfig(**TINY), pooler=False).count_params() == expected


@pytest.mark.one_backend
def test_positions_count_what_is_not_padding():
    backbone = randomize(MPNet(MPNetConfig(**TINY), pooler=False))
    ids = np.array([[0, 7, 8, 2, 1]], "int32")
    first = backbone({"token_ids": ids, "padding_mask": ids != 1}, hidden_states=True)["hidden_states"][0]
    rows = backbone.token_embedding(ids) + backbone.position_embedding(np.array([[2, 3, 4, 5, 1]]))
    np.testing.assert_allclose(to_numpy(first), to_numpy(backbone.embedding_norm(rows)), atol=1e-6)
    with pytest.raises(ValueError, match="max_length=33"):
        backbone({"token_ids": np.full((1, 34), 5, "int32")})


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(MPNet(MPNetConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: MPNet(MPNetConfig(**TINY), dtype=dtype))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = randomize(TextClassifier(MPNet(MPNetConfig(**TINY), pooler=False), labels=["a", "b", "c"]))
    check_keras_file(model, tmp_path)


@pytest.mark.one_backend
def test_initial_weights():
    backbone = MPNet(MPNetConfig(**{**TINY, "vocabulary_size": 5_000}))
    for table in (backbone.token_embedding.embeddings, backbone.position_embedding.embeddings):
        assert not to_numpy(table)[1].any() and np.delete(to_numpy(table), 1, axis=0).all(axis=1).all()
    assert 0.015 < to_numpy(backbone.relative_bias.embeddings).std() < 0.025


@pytest.mark.one_backend
def test_older_files_hold_ties_and_buffers(tmp_path):
    from safetensors.numpy import load_file, save_file

    model = randomize(MaskedLM(MPNet(MPNetConfig(**TINY), pooler=False)))
    model.save_to_preset(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")
    tensors["lm_head.decoder.weight"] = tensors["mpnet.embeddings.word_embeddings.weight"].copy()
    tensors["mpnet.embeddings.position_ids"] = np.arange(35)[None]
    save_file(tensors, path)
    inputs, _, _ = example(61, "right", pad_id=1)
    np.testing.assert_array_equal(to_numpy(MaskedLM.from_preset(tmp_path)(inputs)), to_numpy(model(inputs)))
    assert type(kerasbert.load(tmp_path)) is MaskedLM


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(relative_attention_num_buckets=48), "only with relative_attention_num_buckets=32. .*: .*=48"),
        (dict(pad_token_id=0), "only with pad_token_id=1. .*: pad_token_id=0"),
        (dict(pad_token_id=None), "pad_token_id=None"),
        (dict(tie_word_embeddings=False), "only with tie_word_embeddings=True"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, tmp_path):
    MPNet(MPNetConfig(**TINY)).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=message):
        MPNet.from_preset(tmp_path, load_weights=False)


@pytest.mark.one_backend
def test_bad_input():
    with pytest.raises(ValueError, match='`pad_id` must be 1.*Received: 0.*family="mpnet"'):
        MPNetConfig(**TINY, pad_id=0)
    with pytest.raises(ValueError, match="pooler=True"):
        MultipleChoice(MPNet(MPNetConfig(**TINY), pooler=False))
    backbone, (x, _, _) = MPNet(MPNetConfig(**TINY)), pretraining_batch()
    for change, message in (
        (dict(masked_positions=None), "without `masked_positions`"),
        (dict(masked_positions=np.array([[7, 2, 7], [5, -1, -1]], "int32")), "position 7 twice"),
        (dict(original_ids=x["original_ids"][:, :2]), r"must have the shape \(b, p\), here \(2, 3\)"),
        (dict(original_ids=x["original_ids"] + 61), "`original_ids` must be between 0 and 60"),
    ):
        with pytest.raises(ValueError, match=message):
            backbone({**x, **change})
    with pytest.raises(ValueError, match="hidden_states=True"):
        backbone(x, hidden_states=True)
