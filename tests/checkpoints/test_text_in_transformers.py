"""A saved folder gives the same outputs for text in transformers, with its tokenizer and its model class."""

import inspect
import json

import numpy as np
import pytest
from keras import ops

from kerasbert import models
from kerasbert.data import Tokenizer
from kerasbert.data.tasks.examples import encode_texts
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
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


FAMILIES = sorted({cls.__name__ for cls in models.FAMILIES.values()})


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_folders_say_how_long_a_text_may_be(family, tmp_path):
    """The number of positions, also for families whose positions have no limit, for the clients that require it."""
    tokenizer = Tokenizer.train("wordpiece", DOCUMENTS, 50, lowercase=True)
    config = getattr(models, family + "Config")
    sizes = {**SIZES, "bottleneck_dim": 8, "head_dim": 4, "cutoffs": (), "vocabulary_size": 50, "distance_buckets": 8}
    fields = {name: value for name, value in sizes.items() if name in config.__dataclass_fields__}
    if family in ("Elmo", "Seq2SeqAttention"):
        fields = {"vocabulary_size": 50, "hidden_dim": 6, **({"characters": False} if family == "Elmo" else {})}
    cls = getattr(models, family)
    pooler = {"pooler": True} if "pooler" in inspect.signature(cls.__init__).parameters else {}
    backbone = cls(config(**fields), **pooler)
    kind = {"T5": Seq2SeqLM, "Transformer": Seq2SeqLM, "Seq2SeqAttention": Seq2SeqLM}.get(family, TextClassifier)
    kind(backbone, tokenizer=tokenizer, **({"labels": 2} if kind is TextClassifier else {})).save_to_preset(tmp_path)
    expected = fields.get("max_length", 512)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == expected
    assert Tokenizer.load(tmp_path).max_length == expected


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Roberta", "GPT2", "ModernBert"])
def test_long_texts_are_truncated_as_here(family, tokenizers, tmp_path):
    """RoBERTa has two positions more than tokens, and a text of all of them would be one too long."""
    import torch
    import transformers

    model = saved(TextClassifier, family, tokenizers["bert"], tmp_path, labels=3)
    text = TEXT * 20
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    encoded = transformers.AutoTokenizer.from_pretrained(tmp_path)(text, truncation=True, return_tensors="pt")
    assert encoded["input_ids"].shape == (1, 64)
    with torch.no_grad():
        expected = theirs(**encoded).logits.numpy()
    np.testing.assert_allclose(model.predict([text], verbose=0), expected, atol=1e-4)


def test_a_task_with_a_shorter_limit_says_so(tokenizers, tmp_path):
    saved(TextClassifier, "Bert", tokenizers["bert"], tmp_path, labels=2, max_length=16)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 16
    assert tokenizers["bert"].max_length is None


@pytest.mark.parametrize("name", ["bert_mini_en", "gpt2_mini_en", "modernbert_mini_en", "modernbert_mini_en_embedder"])
def test_shipped_models_are_as_they_would_be_saved(name, repository, tmp_path):
    folder = repository / "saved_models" / name
    config = json.loads((folder / "config.json").read_text())
    length = config.get("n_positions") or config["max_position_embeddings"]
    Tokenizer.load(folder).save(tmp_path, name == "bert_mini_en", length)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name
    assert Tokenizer.load(folder).max_length == length == 128
