"""GPT-2 against transformers, both ways, its initial weights, its cache, and its invariances."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kerasbert.models import GPT2, Backbone, GPT2Config
from kerasbert.models.gpt2 import SIZES
from kerasbert.objectives import CausalLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from tests.models.reference import (
    CHOICES,
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

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, pad_id=4)

# Theirs -> ours, and how theirs names the output.
HEADS = {
    "GPT2Model": (Backbone, {"sequence_output": "last_hidden_state"}),
    "GPT2LMHeadModel": (CausalLM, {"": "logits"}),
    "GPT2ForSequenceClassification": (TextClassifier, {"": "logits"}),
    "GPT2ForTokenClassification": (TokenClassifier, {"": "logits"}),
    "GPT2ForQuestionAnswering": (QuestionAnswerer, {"start": "start_logits", "end": "end_logits"}),
    "GPT2DoubleHeadsModel": (MultipleChoice, {"": "mc_logits"}),
}


def their_config(**changes):
    import transformers

    return transformers.GPT2Config(
        **{
            **dict(vocab_size=61, n_embd=24, n_layer=3, n_head=3, n_inner=40, n_positions=23, pad_token_id=4),
            **dict(activation_function="gelu", layer_norm_epsilon=1e-7, eos_token_id=60, bos_token_id=59),
            **changes,
        }
    )


def segments(shape):
    """Token types, which this family looks up in the token table."""
    ids = np.random.default_rng(5).integers(0, 61, shape).astype("int32")
    return {"segment_ids": ids}, {"token_type_ids": ids}


@pytest.mark.one_backend
@pytest.mark.parametrize("class_name", HEADS)
def test_heads_equal_transformers_both_ways(class_name, tmp_path):
    cls, names = HEADS[class_name]
    labels = dict(num_labels=5) if "Classification" in class_name else {}
    theirs = their_model(class_name, their_config(**labels), tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs")
    choices = CHOICES if cls is MultipleChoice else 0
    for padding in PADDINGS if not choices else ("none", "left"):  # their choice reads the last column
        check_outputs(ours, theirs, theirs.config, names, padding, choices=choices)
    check_outputs(ours, theirs, theirs.config, names, "none", choices=choices, extra=segments)
    check_way_back(ours, theirs, tmp_path / "ours")


def test_hidden_states_and_attention_weights_equal_transformers(tmp_path):
    import torch

    theirs = their_model("GPT2Model", their_config(n_inner=None), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    assert backbone.config.feed_forward_dim == 96
    ours, inputs, _ = example(61, "none", pad_id=4)
    found = backbone(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        tensors = {key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}
        expected = theirs(**tensors, output_hidden_states=True, output_attentions=True)
    assert len(found["hidden_states"]) == 4 and len(found["attention_weights"]) == 3
    for name, other in (("hidden_states", expected.hidden_states), ("attention_weights", expected.attentions)):
        for one, two in zip(found[name], other, strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(two), atol=1e-5)


@pytest.mark.one_backend
def test_old_files_hold_causal_buffers_and_no_prefix(tmp_path):
    theirs = their_model("GPT2Model", their_config(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for i in range(3):
        tensors[f"h.{i}.attn.bias"] = np.tri(23, dtype="float32")[None, None]
        tensors[f"h.{i}.attn.masked_bias"] = np.array(-1e4, "float32")
    save_file(tensors, tmp_path / "model.safetensors")
    model = CausalLM.from_preset(tmp_path)
    check_outputs(model.backbone, theirs, theirs.config, {"sequence_output": "last_hidden_state"}, "none")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "scales",
    [
        dict(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True),
        dict(scale_attn_weights=False),
        dict(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False),
    ],
)
def test_scales_of_the_scores_equal_transformers(scales, tmp_path):
    theirs = their_model("GPT2LMHeadModel", their_config(**scales), tmp_path / "theirs")
    ours = CausalLM.from_preset(tmp_path / "theirs")
    check_outputs(ours, theirs, theirs.config, {"": "logits"}, "right")
    check_way_back(ours, theirs, tmp_path / "ours")


@pytest.mark.one_backend
@pytest.mark.parametrize("switch", ["add_cross_attention"])
def test_what_we_do_not_have_is_refused(switch, tmp_path):
    GPT2(GPT2Config(**TINY)).save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, switch: True}))
    with pytest.raises(ValueError, match=f"only with {switch}=False"):
        GPT2.from_preset(tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2_small", 124_439_808),
        ("gpt2_medium", 354_823_168),
        ("gpt2_large", 774_030_080),
        ("gpt2_xl", 1_557_611_200),
    ],
)
def test_sizes_are_the_papers(name, parameters):
    config = GPT2Config(**SIZES[name])
    m, f = config.hidden_dim, config.feed_forward_dim
    block = 4 * (m * m + m) + 2 * m * f + f + m + 4 * m
    assert config.vocabulary_size * m + config.max_length * m + config.num_layers * block + 2 * m == parameters
    assert m % config.num_heads == 0


@pytest.mark.one_backend
def test_layers_and_parameters_agree_with_the_closed_form():
    m, f = 24, 40
    block = 4 * (m * m + m) + 2 * m * f + f + m + 4 * m
    assert GPT2(GPT2Config(**TINY)).count_params() == 61 * m + 23 * m + 3 * block + 2 * m


@pytest.mark.one_backend
def test_weights_that_write_into_the_residual_stream_shrink_with_depth():
    wide = GPT2(GPT2Config(**{**TINY, "num_layers": 2, "hidden_dim": 192, "max_length": 300}))
    block = wide.blocks[1]
    for kernel, std in (
        (block.attention.query.kernel, 0.02),
        (block.feed_forward.inner.kernel, 0.02),
        (block.attention.project.kernel, 0.01),
        (block.feed_forward.outer.kernel, 0.01),
        (wide.token_embedding.embeddings, 0.02),
        (wide.position_embedding.embeddings, 0.01),
    ):
        assert abs(to_numpy(kernel).std() - std) < 0.03 * std


@pytest.mark.one_backend
def test_a_token_sees_nothing_behind_it():
    backbone = randomize(GPT2(GPT2Config(**TINY)))
    ids = example(61, "none")[0]["token_ids"]
    changed = ids.copy()
    changed[:, 6:] = (changed[:, 6:] + 7) % 61
    found, other = (to_numpy(backbone({"token_ids": rows})["sequence_output"]) for rows in (ids, changed))
    np.testing.assert_array_equal(found[:, :6], other[:, :6])
    assert np.abs(found[:, 6:] - other[:, 6:]).min(axis=-1).max() > 1e-3


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(GPT2(GPT2Config(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows_are_classified_by_their_last_tokens():
    model = randomize(TextClassifier(GPT2(GPT2Config(**TINY))))
    ids = np.arange(9, dtype="int32")[None]
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 2, 0, 0]], "int32")}
    found = to_numpy(model({**packed, "first_positions": np.array([[0, 3]], "int32")}))
    for row, part in zip(found[0], (ids[:, :3], ids[:, 3:7]), strict=True):
        np.testing.assert_allclose(row, to_numpy(model({"token_ids": part}))[0], atol=1e-5)
    with pytest.raises(ValueError, match="first_positions"):
        model(packed)


@pytest.mark.optimized
def test_the_cache_gives_what_the_whole_text_gives():
    """In pieces of 4, 1 and 3 tokens, behind padding on the left in one row."""
    backbone = randomize(GPT2(GPT2Config(**TINY)))
    ids = np.random.default_rng(0).integers(0, 61, (2, 8)).astype("int32")
    real = np.arange(8) >= np.array([[0], [2]])
    positions = np.maximum(np.cumsum(real, axis=1) - 1, 0).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": real, "position_ids": positions}
    whole = to_numpy(backbone(inputs)["sequence_output"])
    cache, parts = backbone.empty_cache(2, 13), []
    for start, stop in ((0, 4), (4, 5), (5, 8)):
        outputs = backbone({key: value[:, start:stop] for key, value in inputs.items()}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    found = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(found[real], whole[real], atol=1e-5)
    assert int(cache["start"]) == 8
    # Positions and padding may be left out: all tokens are real, and counted from the start of the cache.
    again = backbone({"token_ids": ids[:, :5]}, cache=backbone.empty_cache(2, 9))
    again = backbone({"token_ids": ids[:, 5:]}, cache=again["cache"])
    expected = backbone({"token_ids": ids})["sequence_output"]
    np.testing.assert_allclose(to_numpy(again["sequence_output"]), to_numpy(expected)[:, 5:], atol=1e-5)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: GPT2(GPT2Config(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x = {"token_ids": np.random.default_rng(0).integers(0, 61, (2, 23)).astype("int32")}
    quiet = dict(dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0)
    model = randomize(TokenClassifier(GPT2(GPT2Config(**TINY, **quiet)), labels=3))
    labels = np.random.default_rng(1).integers(0, 3, (2, 23)).astype("int32")
    check_gradients(model, (x, labels), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(CausalLM(GPT2(GPT2Config(**TINY)))), tmp_path)
