"""Compares the folder of a checkpoint here and in the library of its authors, and the folder that is saved here."""

import functools

import keras
import numpy as np
from safetensors.numpy import load_file

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.data.tasks.examples import encode_texts
from kerasbert.models import Backbone
from kerasbert.objectives import Discriminator, MaskedLM
from kerasbert.tasks import QuestionAnswerer, Reranker, TextClassifier, TokenClassifier
from tests.checkpoints.fleet.folders import write_checkpoint
from tests.checkpoints.fleet.texts import PAIRS, READ, TEXTS

# RoBERTa's position of a padding token depends on whether its name stood in the text; here, it does not.
EMBEDDED = [text for text in TEXTS if "<pad>" not in text]
TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def to_numpy(tensor):
    return keras.ops.convert_to_numpy(tensor) if not isinstance(tensor, np.ndarray) else tensor


# === Tokens ===


def check_tokens(tokenizer, folder, reference=None):
    """The ids of all texts are those of transformers, or of the tokenizer.json of `reference`."""
    import tokenizers
    import transformers

    if reference is None:
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        wanted, of_pairs = theirs(TEXTS)["input_ids"], theirs(*map(list, zip(*PAIRS, strict=True)))["input_ids"]
    else:
        theirs = tokenizers.Tokenizer.from_str(reference()["tokenizer.json"])
        wanted, of_pairs = ([row.ids for row in theirs.encode_batch(texts)] for texts in (TEXTS, PAIRS))
    found = [row.tolist() for row in tokenizer.encode(TEXTS)]
    different = [text for text, one, other in zip(TEXTS, found, wanted, strict=True) if one != other]
    assert not different, (len(different), different[:3])
    assert [row.tolist() for row in tokenizer.encode(PAIRS)] == of_pairs


# === Heads: (our class, theirs, {our output: theirs}) ===

HEADS = {
    "encoder": (Backbone, "AutoModel", {"sequence_output": "last_hidden_state"}),
    "masked LM": (MaskedLM, "AutoModelForMaskedLM", {"": "logits"}),
    "discriminator": (Discriminator, "AutoModelForPreTraining", {"": "logits"}),
    "classifier": (TextClassifier, "AutoModelForSequenceClassification", {"": "logits"}),
    "tagger": (TokenClassifier, "AutoModelForTokenClassification", {"": "logits"}),
    "answers": (QuestionAnswerer, "AutoModelForQuestionAnswering", {"start": "start_logits", "end": "end_logits"}),
}
PRETRAINING = {"tokens": "prediction_logits", "sentence_pair": "seq_relationship_logits"}


def their_model(name, folder):
    import transformers

    return getattr(transformers, name).from_pretrained(folder, dtype="float32").eval()


def is_real(inputs):
    """bool (b, s), False for padding."""
    return np.arange(inputs["token_ids"].shape[1]) < inputs["lengths"][:, None]


def check_outputs(model, theirs, tokenizer, names):
    """The outputs of a padded batch, at the tokens that are not padding."""
    import torch

    inputs = encode_texts(tokenizer, READ, 60)
    real = is_real(inputs)
    backbone = getattr(model, "backbone", model)
    if not (backbone.reads_segments and getattr(backbone.config, "num_segments", 2)):
        inputs.pop("segment_ids", None)
    given = {"input_ids": inputs["token_ids"], "attention_mask": real}
    if "segment_ids" in inputs:
        given["token_type_ids"] = inputs["segment_ids"]
    with torch.no_grad():
        expected = theirs(**{key: torch.from_numpy(np.asarray(array, "int64")) for key, array in given.items()})
    outputs = model(inputs)
    for ours, name in names.items():
        found, wanted = to_numpy(outputs[ours] if ours else outputs), expected[name].numpy()
        if found.ndim == 1:
            wanted = wanted.reshape(found.shape)
        assert found.shape == wanted.shape, (found.shape, wanted.shape)
        if found.shape[:2] == real.shape:
            found, wanted = found[real], wanted[real]
        np.testing.assert_allclose(found, wanted, **TOLERANCE)


def check_head(kind, record, folder, native, saved):
    cls, name, outputs = HEADS[kind]
    model = kerasbert.load(folder)
    assert isinstance(model, cls)
    tokenizer = Tokenizer.load(folder)
    check_outputs(model, their_model(name, native), tokenizer, outputs)
    model.save_to_preset(saved)
    if isinstance(model, Backbone):
        tokenizer.save(saved)
    check_outputs(model, their_model(name, saved), tokenizer, outputs)


def check_pairs_too(record, folder, native, saved):
    """A masked language model, and its head for pairs of sentences."""
    check_head("masked LM", record, folder, native, saved)
    model = MaskedLM.from_preset(folder, sentence_pair=True)
    theirs = their_model("AutoModelForPreTraining", native)
    check_outputs(model, theirs, model.tokenizer, PRETRAINING)
    model.save_to_preset(saved)
    check_outputs(model, their_model("AutoModelForPreTraining", saved), model.tokenizer, PRETRAINING)


# === Models of sentence-transformers ===


def peer(name, folder, **options):
    import sentence_transformers

    cls = getattr(sentence_transformers, name)
    return cls(str(folder), device="cpu", model_kwargs={"dtype": "float32"}, **options)


def check_embedder(record, folder, native, saved):
    model, theirs = kerasbert.load(folder), peer("SentenceTransformer", native)
    model.save_to_preset(saved)
    again = peer("SentenceTransformer", saved)
    expected = theirs.encode(EMBEDDED, batch_size=40)
    np.testing.assert_allclose(model.embed(EMBEDDED), expected, **TOLERANCE)
    np.testing.assert_allclose(again.encode(EMBEDDED, batch_size=40), expected, **TOLERANCE)
    if "prompts" in record.layers:
        for ours, their_name in (("embed_queries", "encode_query"), ("embed_documents", "encode_document")):
            expected = getattr(theirs, their_name)(READ)
            np.testing.assert_allclose(getattr(model, ours)(READ), expected, **TOLERANCE)
            np.testing.assert_allclose(getattr(again, their_name)(READ), expected, **TOLERANCE)


def check_reranker(record, folder, native, saved):
    """Scores, and the logits before the activation."""
    from torch import nn

    model, theirs = Reranker.from_preset(folder), peer("CrossEncoder", native)
    expected = theirs.predict(PAIRS)
    np.testing.assert_allclose(model.score(PAIRS), expected, **TOLERANCE)
    classifier = TextClassifier.from_preset(folder)
    logits = theirs.predict(PAIRS, activation_fn=nn.Identity())
    np.testing.assert_allclose(classifier.predict(PAIRS, verbose=0).reshape(logits.shape), logits, **TOLERANCE)
    model.save_to_preset(saved)
    np.testing.assert_allclose(peer("CrossEncoder", saved).predict(PAIRS), expected, **TOLERANCE)


def check_sparse(record, folder, native, saved):
    model, theirs = kerasbert.load(folder), peer("SparseEncoder", native)
    model.save_to_preset(saved)
    expected = theirs.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    for found in (model.embed(TEXTS).toarray(), peer("SparseEncoder", saved).encode(TEXTS).to_dense().numpy()):
        np.testing.assert_allclose(found, expected, **TOLERANCE)


def check_late(record, folder, native, saved):
    model, theirs = kerasbert.load(folder), peer("MultiVectorEncoder", native)
    model.save_to_preset(saved)
    again = peer("MultiVectorEncoder", saved)
    for ours, their_name in (("embed_queries", "encode_query"), ("embed_documents", "encode_document")):
        expected = getattr(theirs, their_name)(READ)
        for found in (getattr(model, ours)(READ), getattr(again, their_name)(READ)):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), **TOLERANCE)


def check_neobert(record, folder, native, saved):
    """The scores of tokens, by the arithmetic of the authors' code."""
    from tests.models.test_neobert import authors_states

    model = kerasbert.load(folder)
    model.save_to_preset(saved)
    inputs = encode_texts(model.tokenizer, READ)
    real, tensors = is_real(inputs), load_file(folder / "model.safetensors")
    states = authors_states(tensors, inputs["token_ids"], real)
    expected = states @ tensors["decoder.weight"].T + tensors["decoder.bias"]
    inputs.pop("segment_ids")
    np.testing.assert_allclose(to_numpy(model(inputs))[real], expected[real], **TOLERANCE)
    again = load_file(saved / "model.safetensors")
    assert again.keys() == tensors.keys() and all(np.array_equal(again[name], tensors[name]) for name in tensors)


KINDS = {
    **{kind: functools.partial(check_head, kind) for kind in HEADS},
    "masked LM and pairs": check_pairs_too,
    "embedder": check_embedder,
    "reranker": check_reranker,
    "sparse": check_sparse,
    "late interaction": check_late,
    "neobert": check_neobert,
}


def compare(record, folder):
    """Checks a checkpoint: its tokens and outputs, and those of the folder that is saved here.

    Args:
        record: a `Checkpoint`.
        folder: an empty folder for temporary files.
    """
    published, native, saved = folder / "published", folder / "published", folder / "saved"
    write_checkpoint(record, published)
    if record.native is not None:
        native = folder / "native"
        write_checkpoint(record, native, native=True)
    check_tokens(Tokenizer.load(published), native, record.tokens_of)
    KINDS[record.kind](record, published, native, saved)
    check_tokens(Tokenizer.load(saved), saved)
