"""DeBERTa against transformers, both ways; its mask decoder; the invariances."""

import numpy as np
import pytest

import kerasbert
from kerasbert.models import Deberta, DebertaConfig
from kerasbert.models.deberta.deberta import SIZES
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
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    **dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23),
    **dict(max_distance=7),
)


def their_config(**changes):
    import transformers

    return transformers.DebertaConfig(
        **{
            **dict(vocab_size=61, hidden_size=24, num_attention_heads=3, intermediate_size=40, num_hidden_layers=3),
            **dict(max_position_embeddings=23, relative_attention=True, pos_att_type="c2p|p2c", legacy=False),
            **dict(position_biased_input=False, cls_dropout=0.25, pooler_hidden_act="tanh"),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head not in ("ForPreTraining", "ForMultipleChoice")])
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    config = their_config(type_vocab_size=2, **labels)
    check_head("Deberta", head, config, tmp_path, num_segments=2, tolerance=2e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [
        dict(pos_att_type=["c2p"], max_relative_positions=4),
        dict(pos_att_type=["p2c"], talking_head=True, legacy=True),
        dict(pos_att_type=None, position_biased_input=True, max_relative_positions=30),
        dict(relative_attention=False, position_biased_input=True, type_vocab_size=2, talking_head=True),
        dict(embedding_size=10, position_biased_input=True, legacy=True, hidden_act="gelu_new"),
    ],
)
def test_every_combination_equals_transformers_both_ways(changes, tmp_path):
    check_head("Deberta", "ForMaskedLM", their_config(**changes), tmp_path, tolerance=2e-5)


@pytest.mark.parametrize("talking_heads", [False, True])
def test_hidden_states_and_attention_weights_equal_transformers(talking_heads, tmp_path):
    import torch

    config = their_config(talking_head=talking_heads, output_hidden_states=True, output_attentions=True)
    theirs = their_model("DebertaModel", config, tmp_path)
    ours, inputs, real = example(61, "left")
    found = Deberta.from_preset(tmp_path)(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        expected = theirs(**{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()})
    assert len(found["hidden_states"]) == 4 and len(found["attention_weights"]) == 3
    for one, other in zip(found["hidden_states"], expected.hidden_states, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=2e-5)
    for one, other in zip(found["attention_weights"], expected.attentions, strict=True):
        one, other = (np.moveaxis(to_numpy(x), 1, 2)[real] for x in (one, other))
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.one_backend
def test_rows_longer_than_any_table_equal_transformers(tmp_path):
    import torch

    theirs = their_model("DebertaModel", their_config(max_relative_positions=7), tmp_path)
    ids = np.random.default_rng(0).integers(1, 61, (2, 40)).astype("int32")
    found = Deberta.from_preset(tmp_path)({"token_ids": ids})["sequence_output"]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids.astype("int64"))).last_hidden_state
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=2e-5)


@pytest.mark.one_backend
def test_choices_are_kept_though_transformers_has_no_class_for_them(tmp_path):
    model = randomize(MultipleChoice(Deberta(DebertaConfig(**TINY))))
    model.save_to_preset(tmp_path)
    inputs, _, _ = example(61, "right", choices=3)
    again = kerasbert.load(tmp_path)
    assert type(again) is MultipleChoice
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))


@pytest.mark.one_backend
def test_the_mask_decoder_is_kept_with_its_positions(tmp_path):
    import transformers

    model = randomize(MaskedLM(Deberta(DebertaConfig(**TINY, mask_decoder=True, talking_heads=True))))
    model.save_to_preset(tmp_path)
    _, report = transformers.DebertaForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    inputs, _, _ = example(61, "right")
    decoded = to_numpy(kerasbert.load(tmp_path)(inputs))
    np.testing.assert_array_equal(decoded, to_numpy(model(inputs)))
    plain = MaskedLM.from_preset(tmp_path, mask_decoder=False)
    assert plain.backbone.mask_decoder is None and not np.allclose(to_numpy(plain(inputs)), decoded, atol=1e-2)

    # Without positions, one run of it from the last block's own input is that block.
    model.backbone.mask_decoder.embeddings.assign(np.zeros((23, 24), "float32"))
    states = model.backbone(inputs, hidden_states=True)["hidden_states"]
    outputs = model.backbone(inputs, decode=True, hidden_states=True)
    for one, other in zip(states[:-1], outputs["hidden_states"][:-1], strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    assert not np.allclose(to_numpy(states[-1]), to_numpy(outputs["sequence_output"]), atol=1e-2)


# === Sizes and initial weights ===


def _closed_form(config):
    m, f = config.hidden_dim, config.feed_forward_dim
    attention = 3 * m * m + 2 * m + m * m + 2 * (m * m + m)  # projections of the content, of distances, and the output
    layer = attention + 2 * m * f + f + m + 4 * m
    return config.vocabulary_size * m + 2 * m + 2 * config.max_distance * m + config.num_layers * layer


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "without_tokens", "with_tokens"),
    [("deberta_base", 100.0, 138.6), ("deberta_large", 353.7, 405.2), ("deberta_xlarge", 706.3, 757.8)],
)
def test_parameter_counts_of_the_paper(name, without_tokens, with_tokens):
    config = DebertaConfig(**SIZES[name])
    count = _closed_form(config)
    assert round(count / 1e6, 1) == with_tokens
    assert round((count - config.vocabulary_size * config.hidden_dim) / 1e6, 1) == without_tokens


@pytest.mark.one_backend
def test_the_closed_form_is_that_of_the_layers():
    assert Deberta(DebertaConfig(**TINY)).count_params() == _closed_form(DebertaConfig(**TINY))


@pytest.mark.one_backend
def test_initial_weights_are_those_of_the_official_code():
    backbone = Deberta(DebertaConfig(**{**TINY, "vocabulary_size": 3_000, "hidden_dim": 240, "max_distance": 99}))
    attention = backbone.blocks[1].attention
    for variable in (
        backbone.token_embedding.embeddings,
        backbone.relative_embedding.embeddings,
        attention.in_projection.kernel,
        attention.relative_key.kernel,
    ):
        assert abs(to_numpy(variable).std() - 0.02) < 6e-4
    for variable in (attention.query_bias, attention.value_bias, attention.relative_query.bias):
        assert not to_numpy(variable).any()


# === Invariances ===


@pytest.mark.one_backend
@pytest.mark.parametrize("talking_heads", [False, True])
def test_invariances(talking_heads):
    backbone = randomize(Deberta(DebertaConfig(**TINY, talking_heads=talking_heads)))
    check_batch_invariance(backbone, 2e-5)
    check_padding_invariance(backbone, left=True, tolerance=2e-5)
    check_packing(backbone, 2e-5)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Deberta(DebertaConfig(**TINY, talking_heads=dtype == "float16"), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=2)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    none = dict(dropout=0.0, attention_dropout=0.0)
    config = DebertaConfig(**TINY, **none, mask_decoder=True, talking_heads=True, num_segments=2, embedding_dim=10)
    check_gradients(randomize(MaskedLM(Deberta(config))), (x, np.array([[5, 60, 1], [7, 0, 3]], "int32")))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = TextClassifier(Deberta(DebertaConfig(**TINY, position_terms=["p2c"])), labels=["a", "b", "c"])
    check_keras_file(randomize(model), tmp_path)


# === Bad input ===


@pytest.mark.one_backend
def test_packed_rows_without_starts_have_no_first_token():
    backbone = Deberta(DebertaConfig(**TINY))
    packed = {"token_ids": np.ones((1, 5), "int32"), "sequence_ids": np.array([[1, 1, 2, 2, 0]], "int32")}
    assert "first_output" not in backbone(packed)
    classifier = TextClassifier(backbone, labels=3)
    assert classifier({**packed, "first_positions": np.array([[0, 2]], "int32")}).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="first_positions"):
        classifier(packed)


@pytest.mark.one_backend
def test_embeddings_of_another_backbone_must_have_the_sizes_of_the_config():
    backbone = Deberta(DebertaConfig(**TINY))
    assert Deberta(backbone.config, embeddings=backbone.embeddings).token_embedding is backbone.token_embedding
    for changes in (dict(vocabulary_size=60), dict(num_segments=2)):
        with pytest.raises(ValueError, match="Shared embeddings must have the shapes that the config requires"):
            Deberta(DebertaConfig(**{**TINY, **changes}), embeddings=backbone.embeddings)
