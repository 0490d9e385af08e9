"""Every family and head in int8: all dense kernels are integers, answers stay close, and a folder keeps them."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert import models
from kerasbert.core.quantization import layers_by_path
from kerasbert.objectives import CausalLM, MaskedLM, PermutationLM, Seq2SeqLM, SpanBoundary
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier
from tests.models.reference import to_numpy
from tests.models.test_blocks import RECURRENT, TINY, make

pytestmark = pytest.mark.one_backend

TASKS = {
    "classifier": lambda backbone: TextClassifier(backbone, labels=3),
    "tagger": lambda backbone: TokenClassifier(backbone, labels=3),
    "span": QuestionAnswerer,
    "choice": MultipleChoice,
    "embedder": TextEmbedder,
}
ENCODERS = ["Albert", "Bert", "Deberta", "DistilBert", "Electra", "MobileBert", "ModernBert", "Roberta", "XLM"]
CASES = [(name, head) for name in [*ENCODERS, "DebertaV2"] for head in ("masked_lm", "classifier")]
CASES += [("Bert", head) for head in ("tagger", "span", "choice", "embedder", "span_boundary")]
CASES += [("XLNet", "permutation_lm"), ("XLNet", "span"), ("T5", "seq2seq_lm"), ("Transformer", "seq2seq_lm")]
CASES += [(name, "causal_lm") for name in ("GPT", "GPT2", "ModernBertDecoder", "TransformerXL")]
OBJECTIVES = {
    "masked_lm": MaskedLM,
    "span_boundary": SpanBoundary,
    "permutation_lm": PermutationLM,
    "seq2seq_lm": Seq2SeqLM,
    "causal_lm": CausalLM,
}
IDS = np.random.default_rng(0).integers(4, 31, (2, 7)).astype("int32")


def backbone_of(name):
    if name == "DebertaV2":  # without its convolution, which is as large as a dense layer in such a small model
        return models.DebertaV2(models.DebertaV2Config(**TINY, num_layers=2, max_length=16, distance_buckets=8))
    return make(name)


def outputs_of(model, head):
    x = {"token_ids": IDS}
    if head == "choice":
        x = {"token_ids": IDS[:, None]}
    if head == "seq2seq_lm":
        x["decoder_token_ids"] = IDS[:, :5]
    if head in ("span_boundary", "permutation_lm"):
        x = model.example_inputs()
    outputs = model(x)
    return np.concatenate([to_numpy(value).ravel() for value in keras.tree.flatten(outputs)])


@pytest.mark.filterwarnings("ignore:.*keep their precision")  # of models that are mostly tables
@pytest.mark.parametrize("name, head", CASES)
def test_int8_of_every_family_and_head(name, head, tmp_path):
    keras.utils.set_random_seed(0)
    model = {**TASKS, **OBJECTIVES}[head](backbone_of(name))
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(to_numpy(variable) + rng.normal(0, 0.15, variable.shape))
    before = outputs_of(model, head)
    model.quantize("int8")
    assert all(layer.quantization_mode == "int8" for layer in layers_by_path(model).values())
    sizes = {True: 0, False: 0}
    for variable in model.weights:
        if variable.path.endswith("/kernel"):
            sizes[str(variable.dtype) == "int8"] += np.prod(variable.shape)
    assert sizes[True] >= 0.95 * sum(sizes.values())
    after = outputs_of(model, head)
    assert np.isfinite(after).all()
    assert np.linalg.norm(after - before) <= 0.08 * np.linalg.norm(before)

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is type(model)
    np.testing.assert_array_equal(outputs_of(again, head), after)


def test_word_vectors_and_recurrent_families(tmp_path):
    vectors = models.WordVectors(models.WordVectorsConfig(vocabulary_size=31, hidden_dim=8))
    before = to_numpy(vectors.token_table)
    vectors.quantize("int8")
    assert np.abs(to_numpy(vectors.token_table) - before).max() <= np.abs(before).max() / 127
    for backbone in (make("Elmo"), models.Seq2SeqAttention(models.Seq2SeqAttentionConfig(**RECURRENT))):
        with pytest.raises(ValueError, match='from_preset.path, dtype="bfloat16"'):
            backbone.quantize("int8")
