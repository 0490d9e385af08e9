"""The wrappers on the page about other libraries, with stand-ins for the base classes that they inherit from."""

import re
import sys
import types

import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextEmbedder
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

PAGE = (REPOSITORY / "docs" / "guides" / "other_libraries.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"```\{code-block\} python\n:caption: With (\w+)\n\n(.*?)```", PAGE, flags=re.DOTALL))
TEXTS = ["the cat sat", "on the mat"]


class Given:
    """What a library does with the wrapper that it is given: it keeps it."""

    def __init__(self, embedding_model=None, word_embedding_model=None):
        self.embedding_model, self.word_embedding_model = embedding_model, word_embedding_model

    def extract_keywords(self, text):
        return self.embedding_model.embed(np.array([text]))


@pytest.fixture
def libraries(monkeypatch):
    found = {
        "keybert": dict(KeyBERT=Given),
        "keybert.backend": dict(BaseEmbedder=Given),
        "bertopic": dict(BERTopic=Given),
        "bertopic.backend": dict(BaseEmbedder=Given),
        "langchain_core": {},
        "langchain_core.embeddings": dict(Embeddings=object),
        "mteb": dict(evaluate=lambda model, tasks: None, get_tasks=lambda tasks: tasks),
        "mteb.models": dict(ModelMeta=types.SimpleNamespace(create_empty=dict)),
        "mteb.models.abs_encoder": dict(AbsEncoder=object),
    }
    for name, content in found.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(scope="module")
def embedder():
    tokenizer = Tokenizer.train("wordpiece", ["the cat sat on the mat"] * 20, 28)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=20, max_length=32)
    return TextEmbedder(Bert(BertConfig(vocabulary_size=28, **sizes)), tokenizer=tokenizer)


CALLS = {
    "KeyBERT": lambda cls, embedder: cls(embedder).embed(np.array(TEXTS)),
    "BERTopic": lambda cls, embedder: cls(embedder).embed(TEXTS, verbose=True),
    "LangChain": lambda cls, embedder: cls(embedder).embed_documents(TEXTS),
    "mteb": lambda cls, embedder: cls(embedder, "a name").encode(
        [{"text": [text]} for text in TEXTS], task_metadata=None, hf_split="test", hf_subset="default"
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrappers_give_the_vectors_of_the_embedder(name, libraries, embedder):
    names = {"embedder": embedder}
    exec(BLOCKS[name], names)
    np.testing.assert_allclose(CALLS[name](names["Embedder"], embedder), embedder.embed(TEXTS), atol=1e-6)
    if name == "LangChain":
        one = names["Embedder"](embedder).embed_query(TEXTS[0])
        assert type(one) is list and type(one[0]) is float
        np.testing.assert_allclose(one, embedder.embed(TEXTS[0]), atol=1e-6)


def test_every_wrapper_is_tested():
    assert set(BLOCKS) == {*CALLS, "gensim"}  # see tests/objectives/test_skip_gram.py
