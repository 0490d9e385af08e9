"""A saved folder gives the same outputs for text in transformers, with its tokenizer and its model class."""

import numpy as np
import pytest
from keras import ops

from kerasbert import models
from kerasbert.data import Tokenizer
from kerasbert.data.tasks.examples import encode_texts
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.one_backend

SIZES = dict(num_layers=2, num_heads=2, hidden_dim=8, embedding_dim=8, feed_forward_dim=32, max_length=64)
TEXT, PAIR = "the cat sat on the mat", ("the cat sat", "on the mat")
DOCUMENTS = [TEXT, "a dog ran over the hill", "they sat on a chair"] * 20


@pytest.fixture(scope="module")
def tokenizers():
    """A tokenizer whose template has segments, and one without a template."""
    return {
        "bert": Tokenizer.train("wordpiece", DOCUMENTS, 50, lowercase=True),
        "gpt2": Tokenizer.train("byte_bpe", DOCUMENTS, 270, family="gpt2"),
    }


def saved(kind, family, tokenizer, folder, **arguments):
    config = getattr(models, family + "Config")
    fields = dict(SIZES, vocabulary_size=tokenizer.vocabulary_size, initializer_range=0.5)
    if family == "ModernBert":
        fields["pad_id"] = tokenizer.pad_id
    fields = {name: value for name, value in fields.items() if name in config.__dataclass_fields__}
    backbone = getattr(models, family)(config(**fields))
    model = kind(backbone, tokenizer=tokenizer, **arguments)
    model.save_to_preset(folder)
    return model


def their_logits(name, folder, text):
    import torch
    import transformers

    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    pair = text if isinstance(text, tuple) else (text,)
    encoded = transformers.AutoTokenizer.from_pretrained(folder)(*pair, return_tensors="pt")
    with torch.no_grad():
        return theirs(**encoded).logits.numpy(), set(encoded)


@pytest.mark.parametrize("text", [TEXT, PAIR], ids=["text", "pair"])
@pytest.mark.parametrize("family", ["Bert", "Electra", "MobileBert", "DistilBert", "Roberta", "ModernBert"])
def test_masked_lm(family, text, tokenizers, tmp_path):
    """Not all of the models read the segments of the tokenizer's template."""
    model = saved(MaskedLM, family, tokenizers["bert"], tmp_path)
    expected, names = their_logits("AutoModelForMaskedLM", tmp_path, text)
    assert ("token_type_ids" in names) == (family in ("Bert", "Electra", "MobileBert"))
    inputs = encode_texts(tokenizers["bert"], [text])
    if not model.texts_have_segments:
        del inputs["segment_ids"]
    np.testing.assert_allclose(ops.convert_to_numpy(model(inputs)), expected, atol=1e-4)


@pytest.mark.parametrize("family", ["GPT", "GPT2"])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_causal_lm(family, kind, tokenizers, tmp_path):
    """GPT and GPT-2 would add the embeddings of the tokens whose ids are the segments."""
    tokenizer = tokenizers[kind]
    model = saved(CausalLM, family, tokenizer, tmp_path)
    expected, names = their_logits("AutoModelForCausalLM", tmp_path, TEXT)
    assert names == {"input_ids", "attention_mask"}
    ids = np.array(tokenizer.encode([TEXT]))
    np.testing.assert_allclose(ops.convert_to_numpy(model({"token_ids": ids})), expected, atol=1e-4)


@pytest.mark.parametrize("text", [TEXT, PAIR], ids=["text", "pair"])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_classifier(kind, text, tokenizers, tmp_path):
    """GPT-2 reads the segments of a tokenizer whose template has some, here and in transformers."""
    model = saved(TextClassifier, "GPT2", tokenizers[kind], tmp_path, labels=3)
    expected, names = their_logits("AutoModelForSequenceClassification", tmp_path, text)
    assert ("token_type_ids" in names) == (kind == "bert")
    np.testing.assert_allclose(model.predict([text], verbose=0), expected, atol=1e-4)


@pytest.mark.parametrize(("family", "expected"), [("Bert", True), ("ModernBert", False), ("GPT2", True), ("T5", False)])
def test_a_subclass_reads_segments_as_its_family_does(family, expected):
    base, config = getattr(models, family), getattr(models, family + "Config")
    fields = {name: value for name, value in SIZES.items() if name in config.__dataclass_fields__}
    backbone = type("Mine", (base,), {})(config(vocabulary_size=50, **fields))
    assert backbone.reads_segments == expected
