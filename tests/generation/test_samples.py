"""Several samples of one prompt, by every model that generates text."""

import numpy as np
import pytest

from kerasbert import models
from kerasbert.objectives import CausalLM, PermutationLM, Seq2SeqLM
from tests.models.reference import randomize

TINY = dict(vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=12, feed_forward_dim=16)
RECURRENT = dict(vocabulary_size=31, embedding_dim=6, hidden_dim=8, alignment_dim=5, output_dim=6)
MODELS = {
    "GPT": lambda: CausalLM(models.GPT(models.GPTConfig(**TINY))),
    "GPT2": lambda: CausalLM(models.GPT2(models.GPT2Config(**TINY))),
    "ModernBertDecoder": lambda: CausalLM(models.ModernBertDecoder(models.ModernBertDecoderConfig(**TINY))),
    "TransformerXL": lambda: CausalLM(
        models.TransformerXL(models.TransformerXLConfig(**TINY, head_dim=6, memory_length=8, cutoffs=()))
    ),
    "XLNet, causal": lambda: CausalLM(models.XLNet(models.XLNetConfig(**TINY, causal=True))),
    "XLNet": lambda: PermutationLM(models.XLNet(models.XLNetConfig(**TINY))),
    "T5, decoder": lambda: CausalLM(models.T5(models.T5Config(**TINY, head_dim=6, architecture="language_model"))),
    "T5": lambda: Seq2SeqLM(models.T5(models.T5Config(**TINY, head_dim=6))),
    "Transformer": lambda: Seq2SeqLM(models.Transformer(models.TransformerConfig(**TINY))),
    "Seq2SeqAttention": lambda: Seq2SeqLM(models.Seq2SeqAttention(models.Seq2SeqAttentionConfig(**RECURRENT))),
}


@pytest.mark.one_backend
@pytest.mark.parametrize("name", MODELS)
def test_samples_of_a_prompt_alone_equal_those_in_a_batch(name):
    model = randomize(MODELS[name](), 0.7)
    first, second = np.array([5, 7, 9, 4], "int32"), np.array([8, 3, 6, 11], "int32")
    options = dict(sample=True, num_sequences=3, max_new_tokens=5, stop_ids=(), seed=1, scores=True)
    alone = model.generate([first], **options)[0]
    together = model.generate([first, second], **options)[0]
    assert len(alone) == 3 and len({tuple(one["token_ids"]) for one in alone}) > 1
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one["token_ids"], other["token_ids"])
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
