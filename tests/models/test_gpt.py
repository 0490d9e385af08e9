"""GPT against transformers, both ways, and its invariances."""

import numpy as np
import pytest

from kerasbert.models import GPT, Backbone, GPTConfig
from kerasbert.objectives import CausalLM
from kerasbert.tasks import MultipleChoice, TextClassifier
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
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, max_length=23, pad_id=4)

# Theirs -> ours, and how theirs names the output.
HEADS = {
    "OpenAIGPTModel": (Backbone, {"sequence_output": "last_hidden_state"}),
    "OpenAIGPTLMHeadModel": (CausalLM, {"": "logits"}),
    "OpenAIGPTForSequenceClassification": (TextClassifier, {"": "logits"}),
    "OpenAIGPTDoubleHeadsModel": (MultipleChoice, {"": "mc_logits"}),
}


def their_config(**changes):
    import transformers

    return transformers.OpenAIGPTConfig(
        **{
            **dict(vocab_size=61, n_embd=24, n_layer=3, n_head=3, n_positions=23, pad_token_id=4),
            **dict(layer_norm_epsilon=1e-7),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("class_name", HEADS)
def test_heads_equal_transformers_both_ways(class_name, tmp_path):
    cls, names = HEADS[class_name]
    labels = dict(num_labels=5) if "Classification" in class_name else {}
    theirs = their_model(class_name, their_config(**labels), tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs")
    assert getattr(ours, "backbone", ours).config.activation == "gelu_new"
    if cls is MultipleChoice:  # theirs takes no attention mask
        import torch

        ids = np.random.default_rng(0).integers(0, 61, (2, CHOICES, 11)).astype("int32")
        with torch.no_grad():
            expected = theirs(torch.from_numpy(ids.astype("int64"))).mc_logits
        np.testing.assert_allclose(to_numpy(ours({"token_ids": ids})), to_numpy(expected), atol=1e-5)
    for padding in PADDINGS if cls is not MultipleChoice else ():
        check_outputs(ours, theirs, theirs.config, names, padding)
    check_way_back(ours, theirs, tmp_path / "ours")


def test_other_activations(tmp_path):
    theirs = their_model("OpenAIGPTModel", their_config(afn="swish"), tmp_path)
    names = {"sequence_output": "last_hidden_state"}
    check_outputs(GPT.from_preset(tmp_path), theirs, theirs.config, names, "right")


@pytest.mark.one_backend
def test_parameters_are_the_papers():
    config = GPTConfig()
    m, f = config.hidden_dim, config.feed_forward_dim

    def count(v, s, layers):
        return v * m + s * m + layers * (4 * (m * m + m) + 2 * m * f + f + m + 4 * m)

    assert count(40_478, 512, 12) == 116_534_784
    m, f = 24, 96
    assert GPT(GPTConfig(**TINY)).count_params() == count(61, 23, 3)


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(GPT(GPTConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


@pytest.mark.one_backend
def test_the_cache_gives_what_the_whole_text_gives():
    backbone = randomize(GPT(GPTConfig(**TINY)))
    ids = np.random.default_rng(0).integers(0, 61, (2, 8)).astype("int32")
    first = backbone({"token_ids": ids[:, :5]}, cache=backbone.empty_cache(2, 11))
    found = backbone({"token_ids": ids[:, 5:]}, cache=first["cache"])["sequence_output"]
    np.testing.assert_allclose(
        to_numpy(found), to_numpy(backbone({"token_ids": ids})["sequence_output"])[:, 5:], atol=1e-5
    )


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: GPT(GPTConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x = {"token_ids": np.random.default_rng(0).integers(0, 61, (2, 23)).astype("int32")}
    quiet = dict(dropout=0.0, embedding_dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    model = randomize(TextClassifier(GPT(GPTConfig(**TINY, **quiet)), labels=3))
    check_gradients(model, (x, np.array([0, 2], "int32")), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(CausalLM(GPT(GPTConfig(**TINY)))), tmp_path)
