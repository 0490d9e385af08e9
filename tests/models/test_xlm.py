"""XLM against transformers, both ways, with one language and several, and its invariances."""

import json

import numpy as np
import pytest

import kerasbert
from kerasbert.layers import sinusoidal_table
from kerasbert.models import XLM, Backbone, XLMConfig
from kerasbert.models.xlm import SIZES
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from tests.models.reference import (
    HEADS,
    PADDINGS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_keras_file,
    check_outputs,
    check_packing,
    check_padding_invariance,
    check_way_back,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, num_languages=3
)

# Theirs -> how `reference.HEADS` calls what it holds.
THEIRS = {
    "XLMModel": "Model",
    "XLMWithLMHeadModel": "ForMaskedLM",
    "XLMForSequenceClassification": "ForSequenceClassification",
    "XLMForTokenClassification": "ForTokenClassification",
    "XLMForQuestionAnsweringSimple": "ForQuestionAnswering",
    "XLMForMultipleChoice": "ForMultipleChoice",
}


def their_config(**changes):
    import transformers

    return transformers.XLMConfig(
        **{
            **dict(vocab_size=61, emb_dim=24, n_layers=3, n_heads=3, max_position_embeddings=23),
            **dict(n_langs=3, layer_norm_eps=1e-7, bos_token_id=0, eos_token_id=1, pad_token_id=2),
            **changes,
        }
    )


def languages(shape):
    """The languages of an input, as both sides are given them."""
    ids = np.random.default_rng(5).integers(0, 3, shape).astype("int32")
    return {"language_ids": ids}, {"langs": ids}


def check(class_name, config, tmp_path, extra=languages):
    """One class of transformers: outputs under three paddings, and the way back."""
    cls, defaults, names = HEADS[THEIRS[class_name]]
    theirs = their_model(class_name, config, tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs", **defaults)
    choices = 3 if "MultipleChoice" in class_name else 0
    for padding in PADDINGS:
        check_outputs(ours, theirs, config, names, padding, choices=choices, extra=extra)
    check_way_back(ours, theirs, tmp_path / "ours")
    return ours


@pytest.mark.one_backend
@pytest.mark.parametrize("class_name", THEIRS)
def test_heads_equal_transformers_both_ways(class_name, tmp_path):
    labels = dict(num_labels=5) if "QuestionAnswering" not in class_name else {}
    ours = check(class_name, their_config(n_layers=2, **labels), tmp_path)
    if class_name == "XLMForMultipleChoice":
        assert tuple(ours.choice.summary.dense.kernel.shape) == (24, 5)
    elif hasattr(ours, "labels"):
        assert ours.labels == [f"LABEL_{i}" for i in range(5)]


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        (dict(n_langs=1), None),
        (dict(n_langs=1), languages),  # ids of languages that the model does not tell apart
        (dict(use_lang_emb=False), languages),
        (dict(), None),  # without ids, no language is added
        (dict(sinusoidal_embeddings=True, gelu_activation=False), languages),
        (dict(causal=True), languages),
    ],
    ids=["one-language", "one-language-with-ids", "no-table", "no-ids", "sinusoidal-relu", "causal"],
)
def test_each_switch_equals_transformers_both_ways(changes, extra, tmp_path):
    ours = check("XLMWithLMHeadModel", their_config(**{"n_layers": 1, **changes}), tmp_path, extra)
    has_table = changes.get("n_langs", 3) > 1 and changes.get("use_lang_emb", True)
    assert (ours.backbone.language_embedding is not None) == has_table


@pytest.mark.one_backend
def test_a_causal_model_is_a_causal_lm_too(tmp_path):
    config = their_config(n_layers=1, causal=True)
    theirs = their_model("XLMWithLMHeadModel", config, tmp_path / "theirs")
    ours = CausalLM.from_preset(tmp_path / "theirs")
    check_outputs(ours, theirs, config, {"": "logits"}, "right", extra=languages)
    check_way_back(ours, theirs, tmp_path / "ours")
    assert type(kerasbert.load(tmp_path / "theirs")) is MaskedLM
    with pytest.raises(ValueError, match="needs causal=True"):
        CausalLM.from_preset(tmp_path / "theirs", causal=False)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [
        dict(summary_type="last", summary_activation="tanh"),
        dict(summary_type="mean", summary_activation="relu"),
        dict(summary_type="cls_index"),
    ],
    ids=lambda changes: changes["summary_type"],
)
def test_every_summary_equals_transformers_both_ways(changes, tmp_path):
    check("XLMForSequenceClassification", their_config(n_layers=1, num_labels=4, **changes), tmp_path)


def test_segments_positions_hidden_states_and_attention_weights_equal_transformers(tmp_path):
    import torch

    theirs = their_model("XLMModel", their_config(), tmp_path)
    ours, inputs, real = example(61, "right", num_segments=2, pad_id=2)
    ours["language_ids"] = inputs["langs"] = languages(real.shape)[0]["language_ids"]
    ours["position_ids"] = inputs["position_ids"] = np.tile(np.r_[0:6, 0:5].astype("int32"), (2, 1))
    found = Backbone.from_preset(tmp_path)(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        tensors = {key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}
        expected = theirs(**tensors, output_hidden_states=True, output_attentions=True)
    assert len(found["hidden_states"]) == 4 and len(found["attention_weights"]) == 3
    for one, other in zip(found["hidden_states"], expected.hidden_states, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)  # padding is zero in both
        assert not to_numpy(one)[~real].any()
    for one, other in zip(found["attention_weights"], expected.attentions, strict=True):
        one, other = (np.moveaxis(to_numpy(weights), 1, 2)[real] for weights in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.one_backend
def test_the_names_of_the_first_years_are_read(tmp_path):
    theirs = their_model("XLMModel", their_config(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for now, then in (("vocab_size", "n_words"), ("pad_token_id", "pad_index")):
        config[then] = config.pop(now)
    config["lang2id"] = {"en": 0, "sw": 1, "ur": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = Backbone.from_preset(tmp_path)
    assert (ours.config.vocabulary_size, ours.config.pad_id) == (theirs.config.vocab_size, 2)
    assert ours.config.language_names == {"en": 0, "sw": 1, "ur": 2}
    ours.save_to_preset(tmp_path / "ours")
    assert Backbone.from_preset(tmp_path / "ours").config == ours.config


@pytest.mark.one_backend
def test_what_is_not_here_is_refused(tmp_path):
    their_model("XLMForQuestionAnswering", their_config(n_layers=1), tmp_path / "beam")
    with pytest.raises(ValueError, match="whose end scores depend on the chosen start"):
        QuestionAnswerer.from_preset(tmp_path / "beam")
    assert Backbone.from_preset(tmp_path / "beam").config.num_layers == 1

    adaptive = their_config(n_layers=1, asm=True)
    adaptive.asm_cutoffs, adaptive.asm_div_value = [20], 2.0
    their_model("XLMWithLMHeadModel", adaptive, tmp_path / "asm")
    with pytest.raises(ValueError, match="only with asm=False. Received in config.json: asm=True"):
        MaskedLM.from_preset(tmp_path / "asm")


# === What needs no reference ===


def number_of_parameters(config):
    m, f = config.hidden_dim, config.feed_forward_dim
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    rows = config.vocabulary_size + config.max_length
    rows += config.num_languages if config.num_languages > 1 and config.language_embeddings else 0
    return rows * m + 2 * m + config.num_layers * block


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("xlm_mlm_en_2048", 667_119_041),
        ("xlm_mlm_xnli15_1024", 249_071_384),
        ("xlm_mlm_17_1280", 571_696_960),
        ("xlm_mlm_100_1280", 571_696_960),
    ],
)
def test_sizes_have_the_parameters_of_the_paper(name, parameters):
    config = XLMConfig(**SIZES[name])
    assert number_of_parameters(config) + config.vocabulary_size == parameters  # the bias of the output layer
    assert config.feed_forward_dim == 4 * config.hidden_dim
    assert config.embedding_initializer_range == config.hidden_dim**-0.5
    small = XLMConfig(**{**SIZES[name], **dict(num_layers=2, hidden_dim=32, vocabulary_size=99)})
    assert XLM(small).count_params() == number_of_parameters(small)


@pytest.mark.one_backend
def test_invariances():
    for changes in (dict(), dict(causal=True), dict(sinusoidal_positions=True)):
        backbone = randomize(XLM(XLMConfig(**{**TINY, "num_layers": 2, **changes})))
        check_batch_invariance(backbone)
        check_padding_invariance(backbone)
        check_packing(backbone)


@pytest.mark.one_backend
def test_a_causal_model_sees_no_later_token():
    backbone = randomize(XLM(XLMConfig(**TINY, causal=True)))
    ids = example(61, "none", pad_id=2)[0]["token_ids"]
    changed = ids.copy()
    changed[:, 6:] = (changed[:, 6:] + 7) % 61
    before, after = (to_numpy(backbone({"token_ids": each})["sequence_output"]) for each in (ids, changed))
    np.testing.assert_allclose(before[:, :6], after[:, :6], atol=1e-6)
    assert np.abs(before[:, 6:] - after[:, 6:]).max(axis=-1).min() > 1e-4


@pytest.mark.one_backend
def test_languages_are_told_apart():
    backbone = randomize(XLM(XLMConfig(**TINY)))
    ids = np.full((1, 4), 9, "int32")
    outputs = [to_numpy(backbone({"token_ids": ids, "language_ids": 0 * ids + i})["sequence_output"]) for i in (0, 1)]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


@pytest.mark.one_backend
def test_packed_rows_are_summed_up_by_their_first_tokens():
    inputs, _, _ = example(61, "none", pad_id=2)
    ids = inputs["token_ids"]
    packed = {
        "token_ids": ids,
        "sequence_ids": np.array([[1] * 6 + [2] * 5] * 2, "int32"),
        "first_positions": np.array([[0, 6]] * 2, "int32"),
    }
    model = randomize(TextClassifier(XLM(XLMConfig(**TINY)), labels=4))
    found = to_numpy(model(packed))
    assert found.shape == (2, 2, 4)
    np.testing.assert_allclose(found[:, 1], to_numpy(model({"token_ids": ids[:, 6:]})), atol=1e-5)
    del packed["first_positions"]
    assert MaskedLM(model.backbone)(packed).shape == (2, 11, 61)
    with pytest.raises(ValueError, match="first_positions"):
        model(packed)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: XLM(XLMConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", pad_id=2)
    x["language_ids"] = languages(x["token_ids"].shape)[0]["language_ids"]
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    model = randomize(MaskedLM(XLM(XLMConfig(**TINY, dropout=0.0, attention_dropout=0.0))))
    check_gradients(model, (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    config = XLMConfig(**TINY, sinusoidal_positions=True, num_summary_labels=7, language_names={"en": 0})
    check_keras_file(randomize(TokenClassifier(XLM(config), labels=["a", "b", "c"])), tmp_path)


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = XLM(XLMConfig(**{**TINY, "vocabulary_size": 5_000, "embedding_initializer_range": 24**-0.5}))
    table = to_numpy(backbone.token_embedding.embeddings)
    assert abs(table.std() - 24**-0.5) < 2e-3 and not table[2].any() and table[3].any()
    attention = backbone.blocks[0].attention
    query, key = to_numpy(attention.query.kernel), to_numpy(attention.key.kernel)
    assert 0.9 * 24**-0.5 < np.abs(query).max() <= 24**-0.5 and abs(query.std() - (24 * 3) ** -0.5) < 0.01
    assert not np.array_equal(query, key)
    outer = to_numpy(backbone.blocks[0].feed_forward.outer.kernel)
    assert 0.9 * 40**-0.5 < np.abs(outer).max() <= 40**-0.5


@pytest.mark.one_backend
def test_sinusoidal_positions_are_not_trained():
    backbone = XLM(XLMConfig(**TINY, sinusoidal_positions=True))
    table = backbone.position_embedding.embeddings
    np.testing.assert_allclose(to_numpy(table), sinusoidal_table(23, 24), atol=1e-7)
    assert all(variable is not table for variable in backbone.trainable_variables)


@pytest.mark.one_backend
def test_choices_keep_the_width_of_their_summary(tmp_path):
    model = randomize(MultipleChoice(XLM(XLMConfig(**{**TINY, "feed_forward_dim": None}, num_summary_labels=5))))
    model.save_to_preset(tmp_path)
    again = MultipleChoice.from_preset(tmp_path)
    assert again.backbone.config.num_summary_labels == 5 and again.backbone.config.feed_forward_dim == 96
    inputs, _, _ = example(61, "right", choices=3, pad_id=2)
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(activation="gelu_new"), "`activation` must be gelu or relu in XLM. Received: 'gelu_new'"),
        (dict(summary_type="attn"), "`summary_type` must be first, last, cls_index or mean. Received: 'attn'"),
        (dict(summary_to_labels=False), "must be projected to the labels"),
    ],
)
def test_a_config_that_cannot_be_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(XLM(XLMConfig(**{**TINY, **changes})))


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        (
            {"token_ids": np.ones((1, 4), int), "language_ids": np.full((1, 4), 3)},
            "`language_ids` must be between 0 and 2",
        ),
        (
            {"token_ids": np.ones((1, 4), int), "segment_ids": np.full((1, 4), -1)},
            "`segment_ids` must be between 0 and 60",
        ),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        XLM(XLMConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})
