"""Training steps of tiny recipes, lowered for an H100 in bfloat16; some for other devices and dtypes.

What is counted are calls of fused attention, as `kerasbert.backend.kernels` promises them. One call is missing in the
backward pass where the gradient is not needed: of teachers, and of the last content stream of XLNet.
Every program that differs in its calls is here; `make test-devices` lowers all recipes for all devices.
"""

import keras
import pytest

pytestmark = pytest.mark.backends("jax")

if keras.backend.backend() == "jax":
    from tests.programs import fused_calls, step_of


def cudnn(forward, backward=None):
    return {"cudnn": forward, "cudnn_backward": forward if backward is None else backward}


def flash(forward, backward=None):
    return {"flash": forward, "flash_backward": forward if backward is None else backward}


# Two layers each, if nothing else is said.
CALLS = {
    "albert.tiny": cudnn(2),
    "bart.tiny": cudnn(6),
    "bert.tiny": cudnn(2),
    "biobert.tiny": flash(2),  # dropout
    "deberta.tiny": flash(3),  # three blocks, the dropout of the paper
    "deberta.v3_tiny": flash(4),  # generator and discriminator
    "distilbert.tiny": cudnn(3, 1),  # two layers of the teacher
    "electra.tiny": cudnn(3),  # one layer of the generator
    "elmo.tiny": {},
    "eurobert.tiny": flash(2),  # packed rows
    "gpt.tiny": cudnn(2),
    "gpt_bert.tiny": flash(2),  # packed rows of both kinds
    "mobilebert.tiny": cudnn(4, 2),
    "modernbert.tiny": flash(2),  # packed rows
    "mpnet.tiny": flash(2),  # the masks of two streams
    "nomic_bert.tiny": flash(2),  # packed rows
    "retromae.tiny": {**cudnn(2), **flash(1)},  # the mask of the decoder differs from position to position
    "seq2seq_attention.tiny": {},
    "spanbert.tiny": cudnn(2),
    "t5.tiny": cudnn(6),
    "t5.tiny_language_model": cudnn(2),
    "t5.tiny_prefix_language_model": flash(2),
    "simcse.tiny": flash(2),  # dropout
    "transformer.tiny": cudnn(6),
    "transformer_xl.tiny": flash(2),  # the memory has no fixed length
    "tsdae.tiny": cudnn(4),  # encoder and decoder
    "word_vectors.tiny": {},
    "xlm.tiny_tlm": cudnn(2),
    "xlnet.tiny": flash(4, 3),
}


@pytest.mark.parametrize("name, calls", CALLS.items())
def test_training_steps_lower_for_a_gpu(name, calls):
    text = step_of(name)
    assert fused_calls(text) == calls
    assert "callback" not in text and "tf.aliasing_output" in text  # no work of the host; buffers are donated


DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1")
LONG = ("length=128", "model.max_length=128")
SAMPLE = [
    ("bert.tiny", "gpu", "mixed_float16", (), {}, cudnn(2)),
    ("bert.tiny", "gpu", "mixed_bfloat16", DROPOUT, {}, flash(2)),
    ("bert.tiny", "gpu", "mixed_bfloat16", DROPOUT, dict(capability=8.0), flash(2)),
    ("t5.tiny_prefix_lm", "gpu", "mixed_float16", ("model.dropout=0.1",), {}, flash(6)),
    ("electra.tiny", "gpu", "mixed_bfloat16", (), dict(capability=8.0), cudnn(3)),
    ("roberta.tiny", "gpu", "mixed_bfloat16", (), dict(cudnn=None), flash(2)),
    ("gpt2.tiny", "gpu", "mixed_bfloat16", (), dict(capability=7.5), {}),
    ("albert.tiny", "gpu", "float32", (), {}, {}),
    ("bert.tiny", "tpu", "mixed_bfloat16", (*DROPOUT, *LONG), {}, {"tpu": 4}),
    ("modernbert.tiny", "tpu", "mixed_bfloat16", (), {}, {"tpu": 6}),
]


@pytest.mark.parametrize("name, kind, dtype, settings, device, calls", SAMPLE)
def test_other_devices_and_dtypes(name, kind, dtype, settings, device, calls):
    assert fused_calls(step_of(name, kind, dtype, settings, **device)) == calls


def test_predictions_and_generation_lower():
    """One program without work of the host; the tokens that are generated attend to the cache."""
    from pipelines.recipes.recipe import find_recipe
    from tests.programs import built, generation_of, prediction_of

    for name, calls in (("bert.tiny", 2), ("gpt2.tiny", 2), ("t5.tiny", 6)):
        model, (x, *_) = built(find_recipe(name).with_settings(["dtype=mixed_bfloat16"]), name)
        text = prediction_of(model, x, "gpu")
        assert fused_calls(text) == {"cudnn": calls} and "callback" not in text
        if name != "bert.tiny":
            text = generation_of(model, "gpu")
            assert "stablehlo.while" in text and "callback" not in text


def test_bert_base_with_the_dropout_of_the_paper():
    """Twelve fused calls forward and twelve backward, and no scores of a row outside the kernels."""
    from tests.programs import abstract_step_of

    text = abstract_step_of("bert.base", settings=("length=512",))
    assert fused_calls(text) == flash(12)
    assert "512x512x" not in text.replace("512x512xi", "")
