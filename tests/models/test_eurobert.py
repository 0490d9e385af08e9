"""EuroBERT against transformers, both ways: grouped keys, three kinds of classifiers, two outputs; its invariances."""

import json

import numpy as np
import pytest

from kerasbert.models import Backbone, EuroBert, EuroBertConfig
from kerasbert.models.eurobert import SIZES, GroupedAttention
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import (
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

TINY = dict(
    **dict(vocabulary_size=61, num_layers=3, num_heads=6, num_key_heads=2, hidden_dim=24, feed_forward_dim=40),
    **dict(pad_id=4, bos_id=1, eos_id=4, mask_id=7),
)
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")


def their_config(**changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2)
    ids = dict(pad_token_id=4, bos_token_id=1, eos_token_id=4, mask_token_id=7, intermediate_size=40)
    rope = dict(rope_parameters={"rope_type": "default", "rope_theta": 250_000.0})
    return transformers.EuroBertConfig(**{**sizes, **ids, **rope, **changes})


@pytest.mark.one_backend
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head.endswith("Classification") else {}
    check_head("EuroBert", head, their_config(**labels), tmp_path)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [f"EuroBert{head}"]
    for name in ("rope_parameters", "num_key_value_heads", "head_dim", "rms_norm_eps", "mask_token_id", "mlp_bias"):
        assert ours[name] == theirs[name], name


@pytest.mark.one_backend
@pytest.mark.parametrize("pooling", ["bos", "mean", "late"])
def test_poolings_of_classifiers_equal_transformers(pooling, tmp_path):
    config = their_config(num_labels=3, classifier_pooling=pooling, num_key_value_heads=6)
    ours, _ = check_head("EuroBert", "ForSequenceClassification", config, tmp_path)
    assert ours.backbone.config.classifier_pooling == pooling


@pytest.mark.one_backend
@pytest.mark.parametrize("head", ["ForMaskedLM", "ForTokenClassification"])
def test_biases_and_wide_heads_equal_transformers(head, tmp_path):
    config = their_config(attention_bias=True, mlp_bias=True, head_dim=10, num_key_value_heads=3, num_labels=2)
    ours, _ = check_head("EuroBert", head, config, tmp_path)
    assert (ours.backbone.config.head_dim, ours.backbone.config.num_key_heads) == (10, 3)


@pytest.mark.parametrize("padding", [pytest.param("none", marks=pytest.mark.one_backend), "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("EuroBertModel", their_config(), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, padding, pad_id=4)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)


@pytest.mark.one_backend
def test_consecutive_query_heads_share_keys():
    attention = GroupedAttention(EuroBertConfig(**TINY))
    x = np.random.default_rng(0).normal(size=(2, 5, 24)).astype("float32")
    attention(x)
    key, value = (to_numpy(array) for array in attention.keys_and_values(x))
    assert key.shape == value.shape == (2, 5, 6, 4)
    narrow = to_numpy(attention.key(x)).reshape(2, 5, 2, 4)
    np.testing.assert_array_equal(key, narrow[:, :, [0, 0, 0, 1, 1, 1]])
    assert attention.key.kernel.shape == (24, 8)


# === Files ===


@pytest.mark.one_backend
@pytest.mark.parametrize("stored", [True, False])
def test_tied_outputs(stored, tmp_path):
    """A tied output is the table of tokens; a file that has the matrix all the same is loaded from it."""
    from safetensors.numpy import load_file, save_file

    model = randomize(MaskedLM(EuroBert(EuroBertConfig(**TINY, tied_output=True))))
    assert not model.masked_lm.weights
    model.save_to_preset(tmp_path)
    path, inputs = tmp_path / "model.safetensors", example(61, "right", pad_id=4)[0]
    tensors = load_file(path)
    assert "lm_head.weight" not in tensors
    (tmp_path / "kerasbert.json").unlink()
    if stored:
        save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].copy()}, path)
    again = MaskedLM.from_preset(tmp_path)
    assert again.backbone.config.tied_output != stored
    np.testing.assert_allclose(to_numpy(again(inputs)), to_numpy(model(inputs)), atol=1e-5)
    if not stored:
        import transformers

        assert transformers.EuroBertForMaskedLM.from_pretrained(tmp_path).config.tie_word_embeddings


@pytest.mark.one_backend
def test_configs_of_the_hub(tmp_path):
    """With the fields of transformers 4 and of the remote code."""
    EuroBert(EuroBertConfig(**TINY, rope_theta=77.0)).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["rope_parameters"] == {"rope_type": "default", "rope_theta": 77.0} and stored["rope_theta"] == 77.0
    del stored["rope_parameters"], stored["classifier_pooling"], stored["num_key_value_heads"], stored["head_dim"]
    older = {**stored, "clf_pooling": "bos", "rope_scaling": None, "auto_map": {}, "pretraining_tp": 1}

    def read(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return EuroBert.from_preset(tmp_path, load_weights=False).config

    config = read(older)
    assert (config.rope_theta, config.classifier_pooling, config.num_key_heads, config.head_dim) == (77.0, "bos", 6, 4)
    del older["rope_theta"]
    assert read(older).rope_theta == 10_000.0
    assert read({**older, "classifier_pooling": "mean"}).classifier_pooling == "mean"


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(rope_parameters={"rope_type": "yarn", "factor": 4.0}), "only rope_type='default'. .*'yarn'"),
        (dict(rope_scaling={"type": "linear", "factor": 2.0}), "only with rope_scaling=None"),
        (dict(classifier_pooling="max"), "must be one of bos, mean, late. Received: 'max'"),
        (dict(num_key_value_heads=4), "num_heads=6, num_key_heads=4"),
    ],
)
def test_what_we_do_not_have_is_refused(change, message, tmp_path):
    EuroBert(EuroBertConfig(**TINY)).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=message):
        EuroBert.from_preset(tmp_path, load_weights=False)


# === The encoder ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "encoder", "with_head"),
    [("eurobert_210m", 211.8, 310.3), ("eurobert_610m", 607.9, 755.6), ("eurobert_2b", 2_107.6, 2_403.1)],
)
def test_sizes_are_those_of_the_paper(name, encoder, with_head):
    """In millions."""
    config = EuroBertConfig(**SIZES[name])
    m, f, v, d = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size, config.head_dim
    assert d == (128 if name == "eurobert_2b" else 64)
    attention = 2 * m * d * (config.num_heads + config.num_key_heads)
    found = v * m + config.num_layers * (attention + 3 * m * f + 2 * m) + m
    assert round(found / 1e6, 1) == encoder and round((found + v * m) / 1e6, 1) == with_head


@pytest.mark.one_backend
def test_parameters_agree_with_the_closed_form():
    m, f = 24, 40
    model = MaskedLM(EuroBert(EuroBertConfig(**TINY)))
    assert model.backbone.count_params() == 61 * m + 3 * (2 * m * 4 * (6 + 2) + 3 * m * f + 2 * m) + m
    assert model.count_params() == model.backbone.count_params() + 61 * m


@pytest.mark.one_backend
def test_invariances():
    for pooling in ("late", "bos"):
        backbone = randomize(EuroBert(EuroBertConfig(**TINY, classifier_pooling=pooling)))
        check_batch_invariance(backbone)
        check_padding_invariance(backbone, left=True)
        check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows_are_classified_by_sequence():
    ids = np.arange(9, dtype="int32")[None]
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 2, 0, 0]], "int32")}
    for pooling in ("bos", "mean", "late"):
        model = randomize(TextClassifier(EuroBert(EuroBertConfig(**TINY, classifier_pooling=pooling))))
        found = to_numpy(model({**packed, "first_positions": np.array([[0, 3]], "int32")}))
        for row, part in zip(found[0], (ids[:, :3], ids[:, 3:7]), strict=True):
            np.testing.assert_allclose(row, to_numpy(model({"token_ids": part}))[0], atol=1e-5)
        with pytest.raises(ValueError, match="first_positions"):
            model(packed)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: EuroBert(EuroBertConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", pad_id=4)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    biases = dict(attention_bias=True, feed_forward_bias=True)
    config = EuroBertConfig(**{**TINY, "num_layers": 2}, **biases)
    check_gradients(randomize(MaskedLM(EuroBert(config))), (x, labels), without=["key/bias"])
    del x["masked_positions"]
    classifier = randomize(TextClassifier(EuroBert(EuroBertConfig(**{**TINY, "num_layers": 1}))))
    check_gradients(classifier, (x, np.array([0, 1], "int32")))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(EuroBert(EuroBertConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)
