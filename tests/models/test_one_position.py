"""A position table of one row: models are built on no more positions than they have, and say how many these are."""

import dataclasses

import numpy as np
import pytest

from kerasbert.models import FAMILIES, Bert, BertConfig
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

SIZES = dict(
    vocabulary_size=17, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, embedding_dim=16, max_length=1
)
LEARNED = ["albert", "bert", "distilbert", "electra", "gpt2", "mobilebert", "openai-gpt", "roberta", "xlm"]


def one_position(name):
    cls = FAMILIES[name]
    fields = {field.name for field in dataclasses.fields(cls.family.config)}
    return cls(cls.family.config(**{key: value for key, value in SIZES.items() if key in fields}, pad_id=1))


@pytest.mark.parametrize("name", LEARNED)
def test_every_family_with_a_position_table(name):
    model = one_position(name)
    assert model.position_limit == 1
    found = model({"token_ids": np.array([[3], [4]], "int32")})["sequence_output"]
    assert tuple(found.shape)[:2] == (2, 1)
    with pytest.raises(ValueError, match="1"):
        model({"token_ids": np.array([[3, 4]], "int32")})


@pytest.mark.one_backend
def test_objectives_and_tasks():
    bert = one_position("bert")
    ids = np.array([[3], [4]], "int32")
    assert MaskedLM(bert).predict({"token_ids": ids}, verbose=0).shape == (2, 1, 17)
    assert CausalLM(one_position("gpt2")).predict({"token_ids": ids}, verbose=0).shape == (2, 1, 17)
    assert TextClassifier(bert, labels=3).predict({"token_ids": ids}, verbose=0).shape == (2, 3)


@pytest.mark.one_backend
@pytest.mark.parametrize("cls", [TextClassifier, TokenClassifier, QuestionAnswerer, MultipleChoice, TextEmbedder])
def test_the_length_of_rows(cls):
    sizes = {**SIZES, "max_length": 20}
    del sizes["embedding_dim"]
    bert = Bert(BertConfig(**sizes))
    labels = {"labels": 2} if "Classifier" in cls.__name__ else {}
    for wrong in (0, -1, 2.5, "3", True):
        with pytest.raises(
            ValueError, match=f"`max_length` must be a number of tokens, at least 1. Received: {wrong!r}"
        ):
            cls(bert, max_length=wrong, **labels)
    assert cls(bert, max_length=20, **labels).max_length == cls(bert, **labels).max_length == 20
    if cls is TextEmbedder:  # sentence-transformers folders may say more than their model has
        with pytest.warns(UserWarning, match="`max_length` is 21, but the model has 20 positions"):
            assert cls(bert, max_length=21).max_length == 20
        return
    with pytest.raises(ValueError, match="`max_length` must be at most the 20 positions of the model. Received: 21"):
        cls(bert, max_length=21, **labels)
