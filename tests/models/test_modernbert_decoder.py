"""ModernBERT as a decoder against transformers, both ways, with its generation, and its invariances."""

import json

import numpy as np
import pytest

from kerasbert.models import Backbone, ModernBertDecoder, ModernBertDecoderConfig
from kerasbert.models.modernbert.decoder import SIZES
from kerasbert.models.modernbert.modernbert import SIZES as ENCODER_SIZES
from kerasbert.objectives import CausalLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import (
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
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, local_attention=6, pad_id=4
)
HEADS = {
    "Model": (Backbone, {"sequence_output": "last_hidden_state"}),
    "ForCausalLM": (CausalLM, {"": "logits"}),
    "ForSequenceClassification": (TextClassifier, {"": "logits"}),
}
ODD = dict(
    **dict(attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, decoder_bias=False),
    **dict(num_hidden_layers=4, local_attention=5),
    layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
    rope_parameters={"full_attention": {"rope_theta": 50.0}, "sliding_attention": {"rope_theta": 7.0}},
)


def their_config(**changes):
    import transformers

    return transformers.ModernBertDecoderConfig(
        **{
            **dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40),
            **dict(local_attention=8, norm_eps=1e-7, pad_token_id=4, bos_token_id=1, eos_token_id=2, cls_token_id=1),
            **dict(sep_token_id=2, hidden_activation="gelu_pytorch_tanh", classifier_activation="silu"),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("changes", [{}, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(head, changes, tmp_path):
    cls, names = HEADS[head]
    labels = dict(num_labels=5) if head == "ForSequenceClassification" else {}
    config = their_config(**labels, **changes)
    theirs = their_model("ModernBertDecoder" + head, config, tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs")
    for padding in PADDINGS:
        check_outputs(ours, theirs, config, names, padding)
    check_way_back(ours, theirs, tmp_path / "ours")


@pytest.mark.one_backend
@pytest.mark.parametrize("length", [37, 150])
def test_where_the_window_bites(length, tmp_path):
    """Whole rows and blocks, hidden states and attention weights."""
    import torch

    theirs = their_model("ModernBertDecoderModel", their_config(num_hidden_layers=4), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, "right", pad_id=4, length=length)
    found = backbone(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        tensors = {key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}
        expected = theirs(**tensors, output_hidden_states=True, output_attentions=True)
    for one, other in zip(found["hidden_states"], expected.hidden_states, strict=True):
        np.testing.assert_allclose(to_numpy(one)[real], to_numpy(other)[real], atol=1e-5)
    for one, other in zip(found["attention_weights"], expected.attentions, strict=True):
        one, other = (np.moveaxis(to_numpy(weights), 1, 2)[real] for weights in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-5)
    alone = to_numpy(backbone(ours)["sequence_output"])
    np.testing.assert_allclose(alone[real], to_numpy(expected.last_hidden_state)[real], atol=1e-5)


@pytest.mark.parametrize("changes", [pytest.param({}, marks=pytest.mark.one_backend), ODD], ids=["plain", "odd"])
def test_generation_equals_transformers(changes, tmp_path):
    """One prompt a call on their side, all in one on ours, far beyond the window."""
    import torch

    theirs = their_model("ModernBertDecoderForCausalLM", their_config(**{**changes, "eos_token_id": 9}), tmp_path, 0.5)
    ours = CausalLM.from_preset(tmp_path)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(10, 61, length).astype("int32") for length in (1, 2, 6, 17)]
    for options in (dict(), dict(num_beams=3)):
        answers = ours.generate(prompts, max_new_tokens=20, **options)
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.from_numpy(prompt[None].astype("int64"))
            expected = theirs.generate(ids, max_new_tokens=20, do_sample=False, **options)[0]
            np.testing.assert_array_equal(answer, expected.numpy())


@pytest.mark.one_backend
def test_what_is_not_here_is_refused(tmp_path):
    ModernBertDecoder(ModernBertDecoderConfig(**TINY)).save_to_preset(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    yarn = {"full_attention": {"rope_type": "yarn", "factor": 2.0}}
    for change, message in (
        ({"rope_parameters": yarn}, "only rope_type='default'"),
        ({"tie_word_embeddings": False}, "only with tie_word_embeddings=True"),
        ({"layer_types": ["chunked_attention"] * 3}, "full_attention or sliding_attention"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**stored, **change}))
        with pytest.raises(ValueError, match=message):
            Backbone.from_preset(tmp_path)
    with pytest.raises(ValueError, match="`classifier_pooling` must be last. Received: 'cls'"):
        ModernBertDecoderConfig(classifier_pooling="cls")
    with pytest.raises(ValueError, match="`local_attention` must be at least 2. Received: 1"):
        ModernBertDecoderConfig(local_attention=1)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("size", "millions"), [("17m", 17), ("32m", 32), ("68m", 68), ("150m", 149), ("400m", 395), ("1b", 1_028)]
)
def test_sizes_are_the_papers(size, millions):
    """By the closed form; encoder and decoder have the same weights."""
    fields = SIZES[f"ettin_decoder_{size}"]
    config = ModernBertDecoderConfig(**fields)
    m, f = config.hidden_dim, config.feed_forward_dim
    count = 50_368 * m + config.num_layers * (4 * m * m + 3 * m * f + 2 * m) + m
    assert round(count / 1e6) == millions and m // config.num_heads == 64
    shape = {**ENCODER_SIZES[f"ettin_encoder_{size}"], "local_rope_theta": fields["local_rope_theta"]}
    assert shape == fields


@pytest.mark.one_backend
def test_parameters_agree_with_the_closed_form():
    backbone = ModernBertDecoder(ModernBertDecoderConfig(**TINY))
    assert backbone.count_params() == 61 * 24 + 3 * (4 * 24 * 24 + 3 * 24 * 40 + 2 * 24) + 24


@pytest.mark.one_backend
def test_invariances_and_causality():
    backbone = randomize(ModernBertDecoder(ModernBertDecoderConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)
    rows = np.tile(np.random.default_rng(0).integers(5, 61, 12), (13, 1)).astype("int32")
    rows[np.arange(12), np.arange(12)] = 4
    states = to_numpy(backbone({"token_ids": rows})["sequence_output"])
    moved = np.abs(states[:-1] - states[-1]).max(axis=-1) > 1e-6
    np.testing.assert_array_equal(moved, np.triu(np.ones((12, 12), bool)))


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: ModernBertDecoder(ModernBertDecoderConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", pad_id=4, length=130)
    biases = dict(attention_bias=True, feed_forward_bias=True, norm_bias=True, head_bias=True)
    model = CausalLM(ModernBertDecoder(ModernBertDecoderConfig(**TINY, **biases, attention_output_dropout=0.0)))
    check_gradients(randomize(model), (x, np.roll(x["token_ids"], -1, axis=1)), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    config = ModernBertDecoderConfig(**TINY, global_layers=(1,))
    check_keras_file(randomize(TextClassifier(ModernBertDecoder(config), labels=["a", "b", "c"])), tmp_path)
