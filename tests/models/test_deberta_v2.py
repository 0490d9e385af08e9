"""DeBERTa 2 and 3 against transformers, both ways; buckets, the convolution, the mask decoder; the invariances."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.layers.disentangled import distances_in_use
from kerasbert.layers.masks import AttentionMask
from kerasbert.models import Backbone, DebertaV2, DebertaV2Config
from kerasbert.models.deberta.deberta_v2 import SIZES
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection
from kerasbert.tasks import TextClassifier
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
    **dict(max_distance=9, distance_buckets=5, convolution_width=3, convolution_groups=2),
)


def their_config(**changes):
    import transformers

    return transformers.DebertaV2Config(
        **{
            **dict(vocab_size=61, hidden_size=24, num_attention_heads=3, intermediate_size=40, num_hidden_layers=3),
            **dict(max_position_embeddings=23, relative_attention=True, pos_att_type="p2c|c2p", hidden_act="gelu"),
            **dict(position_biased_input=False, position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm"),
            **dict(legacy=False, cls_dropout=0.25),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    changes = dict(type_vocab_size=2, conv_kernel_size=3, conv_act="gelu", conv_groups=2, pooler_hidden_act="tanh")
    check_head("DebertaV2", head, their_config(**labels, **changes), tmp_path, num_segments=2, tolerance=2e-5)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "changes",
    [
        dict(share_att_key=False, pos_att_type=["c2p"]),
        dict(share_att_key=False, pos_att_type=["p2c"], norm_rel_ebd="none"),
        dict(share_att_key=False, max_relative_positions=4, position_buckets=-1),
        dict(pos_att_type="c2p", position_buckets=0, conv_kernel_size=5),
        dict(pos_att_type="p2c", position_buckets=3, max_relative_positions=5),
        dict(pos_att_type=None, position_biased_input=True),
        dict(relative_attention=False, norm_rel_ebd="none", position_biased_input=True, type_vocab_size=2),
        dict(embedding_size=10, position_biased_input=True, legacy=True, hidden_act="gelu_new"),
        dict(attention_head_size=8, conv_kernel_size=1, conv_act="relu", position_buckets=5),
    ],
)
def test_every_combination_equals_transformers_both_ways(changes, tmp_path):
    check_head("DebertaV2", "ForMaskedLM", their_config(**changes), tmp_path, tolerance=2e-5)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):
    import torch

    config = their_config(conv_kernel_size=3, output_hidden_states=True, output_attentions=True)
    theirs = their_model("DebertaV2Model", config, tmp_path)
    ours, inputs, real = example(61, padding)
    found = Backbone.from_preset(tmp_path)(ours, hidden_states=True, attention_weights=True)
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

    theirs = their_model("DebertaV2Model", their_config(max_relative_positions=7), tmp_path)
    ids = np.random.default_rng(0).integers(1, 61, (2, 40)).astype("int32")
    found = Backbone.from_preset(tmp_path)({"token_ids": ids})["sequence_output"]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids.astype("int64"))).last_hidden_state
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=2e-5)


# === Files ===


@pytest.mark.one_backend
def test_published_files_give_both_heads_and_the_positions_of_the_mask_decoder(tmp_path):
    """They hold the names of the official code, whatever their config says, and a table that transformers ignores."""
    from safetensors.numpy import load_file, save_file

    model = randomize(MaskedLM(DebertaV2(DebertaV2Config(**TINY, mask_decoder=True))))
    model.save_to_preset(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {"lm_predictions.lm_head.bias", "deberta.embeddings.position_embeddings.weight"} < set(tensors)
    rng = np.random.default_rng(0)
    shapes = {"dense.weight": (24, 24), "dense.bias": 24, "LayerNorm.weight": 24, "LayerNorm.bias": 24}
    shapes = {**shapes, "classifier.weight": (1, 24), "classifier.bias": 1}
    rtd = {f"mask_predictions.{name}": rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    save_file({**tensors, **rtd}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "kerasbert.json").unlink()
    _change(tmp_path / "config.json", legacy=None, mask_decoder=None)

    inputs, _, _ = example(61, "right")
    expected = model.masked_lm(model.backbone(inputs)["sequence_output"], model.backbone.token_table)
    plain = MaskedLM.from_preset(tmp_path)
    np.testing.assert_array_equal(to_numpy(plain(inputs)), to_numpy(expected))
    decoding = MaskedLM.from_preset(tmp_path, mask_decoder=True)
    np.testing.assert_array_equal(to_numpy(decoding(inputs)), to_numpy(model(inputs)))
    assert not np.allclose(to_numpy(decoding(inputs)), to_numpy(expected), atol=1e-2)

    head = Discriminator.from_preset(tmp_path)
    outputs = {name: to_numpy(x) for name, x in head.backbone(inputs).items()}
    x = outputs["sequence_output"] + outputs["sequence_output"][:, :1]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-7)
    x = x * rtd["mask_predictions.LayerNorm.weight"] + rtd["mask_predictions.LayerNorm.bias"]
    x = x @ rtd["mask_predictions.dense.weight"].T + rtd["mask_predictions.dense.bias"]
    x = to_numpy(keras.activations.gelu(keras.ops.convert_to_tensor(x), approximate=False))
    x = x @ rtd["mask_predictions.classifier.weight"].T + rtd["mask_predictions.classifier.bias"]
    np.testing.assert_allclose(to_numpy(head(inputs)), x[..., 0], rtol=1e-4, atol=1e-4)


def _change(path, **fields):
    stored = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in stored.items() if value is not None}))


@pytest.mark.one_backend
def test_a_folder_with_a_mask_decoder_is_one_for_transformers(tmp_path):
    import torch
    import transformers

    model = randomize(MaskedLM(DebertaV2(DebertaV2Config(**TINY, mask_decoder=True))))
    model.save_to_preset(tmp_path)
    theirs, report = transformers.DebertaV2ForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    inputs, their_inputs, real = example(61, "right")
    with torch.no_grad():
        expected = theirs.deberta(**{key: torch.from_numpy(x.astype("int64")) for key, x in their_inputs.items()})
    found = to_numpy(Backbone.from_preset(tmp_path)(inputs)["sequence_output"])
    np.testing.assert_allclose(found[real], to_numpy(expected.last_hidden_state)[real], atol=2e-5)
    again = kerasbert.load(tmp_path)
    assert again.backbone.config.mask_decoder
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))


@pytest.mark.one_backend
def test_a_mask_decoder_can_be_made_new(tmp_path):
    randomize(MaskedLM(DebertaV2(DebertaV2Config(**TINY)))).save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="no weights for mask_decoder: new head"):
        model = MaskedLM.from_preset(tmp_path, mask_decoder=True)
    table = model.backbone.mask_decoder.embeddings
    assert any(variable is table for variable in model.trainable_variables)
    # A task does not read it, and does not train it.
    task = TextClassifier(model.backbone, labels=2)
    assert not any(variable is table for variable in task.trainable_variables)


@pytest.mark.one_backend
def test_the_mask_decoder_attends_from_positions_to_what_the_last_block_reads():
    backbone = randomize(DebertaV2(DebertaV2Config(**TINY, mask_decoder=True)))
    inputs, _, real = example(61, "right")
    states = backbone(inputs, hidden_states=True)["hidden_states"]
    outputs = backbone(inputs, decode=True, hidden_states=True, attention_weights=True)
    used, rows = distances_in_use(backbone.config.distance_rows(), 11)
    distances = (backbone.relative_norm(backbone.relative_embedding(used)), rows)
    mask = AttentionMask(sequence_ids=keras.ops.cast(inputs["padding_mask"], "int32"))
    query = states[-2] + backbone.mask_decoder(np.arange(11))
    for _ in range(2):
        query, extras = backbone.blocks[-1](
            states[-2], query=query, distances=distances, attention_mask=mask, return_weights=True
        )
    np.testing.assert_allclose(to_numpy(outputs["sequence_output"]), to_numpy(query), atol=1e-5)
    np.testing.assert_allclose(to_numpy(outputs["attention_weights"][-1]), to_numpy(extras.weights), atol=1e-5)
    assert len(outputs["hidden_states"]) == 3


# === Sizes and initial weights ===


def _closed_form(config):
    m, f, rows = config.hidden_dim, config.feed_forward_dim, 2 * config.distance_buckets
    layer = 4 * (m * m + m) + 2 * m * f + f + m + 4 * m
    convolution = config.convolution_width * m * m + 3 * m if config.convolution_width else 0
    return config.vocabulary_size * m + 2 * m + rows * m + 2 * m + config.num_layers * layer + convolution


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "without_tokens", "with_tokens"),
    [
        ("deberta_v2_xlarge", 687.8, 884.6),
        ("deberta_v2_xxlarge", 1367.8, 1564.5),
        ("deberta_v3_xsmall", 21.5, 70.7),
        ("deberta_v3_small", 42.9, 141.3),
        ("deberta_v3_base", 85.5, 183.8),
        ("deberta_v3_large", 302.8, 434.0),
    ],
)
def test_parameter_counts_of_the_papers(name, without_tokens, with_tokens):
    config = DebertaV2Config(**SIZES[name])
    count = _closed_form(config)
    assert round(count / 1e6, 1) == with_tokens
    # The largest was counted from a rounded number.
    assert abs((count - config.vocabulary_size * config.hidden_dim) / 1e6 - without_tokens) < 0.06
    assert config.hidden_dim == 64 * config.num_heads
    generator = SIZES.get(f"{name}_generator")
    if generator is not None:
        assert {**SIZES[name], "num_layers": config.num_layers // 2, "mask_decoder": True} == generator


@pytest.mark.one_backend
def test_the_closed_form_is_that_of_the_layers():
    config = DebertaV2Config(**{**TINY, "convolution_groups": 1})
    assert DebertaV2(config).count_params() == _closed_form(config)


@pytest.mark.one_backend
def test_initial_weights_are_those_of_the_official_code():
    config = DebertaV2Config(**{**TINY, "vocabulary_size": 3_000, "hidden_dim": 240, "mask_decoder": True})
    backbone = DebertaV2(config)
    head = Discriminator(backbone).replaced_token
    for variable in (
        backbone.token_embedding.embeddings,
        backbone.blocks[0].attention.query.kernel,
        backbone.blocks[1].feed_forward.outer.kernel,
        backbone.mask_decoder.embeddings,
        head.dense.kernel,
    ):
        assert abs(to_numpy(variable).std() - 0.02) < 6e-4
    bound = (3 * 120) ** -0.5
    kernel = to_numpy(backbone.convolution.kernel)
    assert 0.99 * bound < np.abs(kernel).max() <= bound


@pytest.mark.one_backend
def test_dropout_is_where_the_paper_has_it():
    rates = dict(dropout=0.2, attention_dropout=0.3, pooler_dropout=0.4)
    backbone = DebertaV2(DebertaV2Config(**TINY, **rates))
    block = backbone.blocks[1]
    assert (backbone.embed.dropout.rate, backbone.convolution.dropout.rate) == (0.2, 0.2)
    assert (block.attention.distance_dropout.rate, block.attention.dropout.rate) == (0.2, 0.3)
    assert (block.attention_output_dropout.rate, block.feed_forward_dropout.rate) == (0.2, 0.2)
    for kind, labels in (("classifier", dict(num_labels=2)), ("choice", {})):
        head = backbone.make_head(kind, **labels)
        assert (head.input_dropout.rate, head.dropout.rate) == (0.4, 0.2)
    assert backbone.make_head("tagger", num_labels=2).dropout.rate == 0.2
    assert backbone.make_head("span").dropout.rate == 0.0
    other = DebertaV2(DebertaV2Config(**TINY, classifier_dropout=0.1)).make_head("choice")
    assert (other.input_dropout.rate, other.dropout.rate) == (0.0, 0.1)


# === Invariances ===


@pytest.mark.one_backend
@pytest.mark.parametrize("shared", [True, False])
def test_invariances(shared):
    backbone = randomize(DebertaV2(DebertaV2Config(**TINY, shared_projections=shared)))
    check_batch_invariance(backbone, 2e-5)
    check_padding_invariance(backbone, left=True, tolerance=2e-5)
    check_packing(backbone, 2e-5)


@pytest.mark.one_backend
def test_heads_see_their_own_sequence_of_a_packed_row():
    model = randomize(Discriminator(DebertaV2(DebertaV2Config(**TINY))))
    ids = np.random.default_rng(0).integers(1, 61, (1, 9)).astype("int32")
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]], "int32")}
    found = to_numpy(model(packed))
    for start, stop in ((0, 4), (4, 7)):
        alone = to_numpy(model({"token_ids": ids[:, start:stop]}))
        np.testing.assert_allclose(found[:, start:stop], alone, atol=2e-5)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: DebertaV2(DebertaV2Config(**TINY), dtype=dtype))


@pytest.mark.optimized
def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=2)
    none = dict(dropout=0.0, attention_dropout=0.0)
    backbone = DebertaV2(DebertaV2Config(**TINY, **none, shared_projections=False, num_segments=2, embedding_dim=10))
    y = np.eye(2, 11, dtype="int32")
    # Softmax cancels what all keys have in common, in the content and in the vectors of distances.
    without = ["key/bias"]
    check_gradients(randomize(Discriminator(backbone)), (x, y), without)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    model = randomize(MaskedLM(DebertaV2(DebertaV2Config(**TINY, **none, mask_decoder=True))))
    check_gradients(model, (x, np.array([[5, 60, 1], [7, 0, 3]], "int32")))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(DebertaV2(DebertaV2Config(**TINY)), labels=["a", "b", "c"])), tmp_path)


# === Replaced token detection ===


@pytest.mark.one_backend
def test_replaced_tokens_train_both_encoders_and_the_mask_decoder(tmp_path):
    none = dict(dropout=0.0, attention_dropout=0.0)
    generator = randomize(DebertaV2(DebertaV2Config(**{**TINY, "num_layers": 1}, **none, mask_decoder=True)))
    discriminator = randomize(DebertaV2(DebertaV2Config(**TINY, **none)), seed=1)
    model = ReplacedTokenDetection(generator, discriminator, embedding_sharing="disentangled")
    before = {variable.path: to_numpy(variable).copy() for variable in model.trainable_variables}
    x, _, _ = example(61, "right")
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    model.compile(keras.optimizers.SGD(0.1))
    model.train_on_batch(x, np.array([[5, 60, 1], [7, 0, 3]], "int32"))
    assert not [v.path for v in model.trainable_variables if np.array_equal(before[v.path], to_numpy(v))]

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert again.generator.backbone.config.mask_decoder
    inputs, _, _ = example(61, "right")
    for one, other in ((model.generator, again.generator), (model.discriminator, again.discriminator)):
        np.testing.assert_allclose(to_numpy(one(inputs)), to_numpy(other(inputs)), atol=1e-6)


# === Bad input ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(position_terms="c2p|p2p"), "`position_terms` may contain c2p"),
        (dict(position_terms=("c2p", "c2p")), "each at most once"),
        (dict(num_heads=5), "`hidden_dim` must be a multiple of `num_heads`"),
        (dict(max_distance=0), "`max_distance` must be at least 1"),
        (dict(distance_buckets=1), "`distance_buckets` must be at least 1"),
        (dict(distance_buckets=16), "less than `max_distance` - 1"),
        (dict(convolution_width=4), "`convolution_width` must be odd"),
        (dict(convolution_groups=5), "`convolution_groups` must divide"),
        (dict(mask_decoder=True, absolute_positions=True), "Set one of them to False"),
    ],
)
def test_configs_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DebertaV2Config(**{**TINY, **changes})


@pytest.mark.one_backend
def test_long_rows_are_refused_only_where_positions_are_learned():
    rows = {"token_ids": np.ones((1, 24), "int32")}
    assert DebertaV2(DebertaV2Config(**TINY))(rows)["sequence_output"].shape == (1, 24, 24)
    for changes in (dict(absolute_positions=True), dict(mask_decoder=True)):
        with pytest.raises(ValueError, match="max_length=23"):
            DebertaV2(DebertaV2Config(**TINY, **changes))(rows)
