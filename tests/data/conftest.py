"""Small tokenizers and corpora that the data tests share."""

import numpy as np
import pytest

from kerasbert.data import Corpus, Tokenizer

ALPHABET = "etaoinshrdlucmfwypvbgkjqxz"


def make_documents(seed=0, documents=12, lines=(1, 30), words=(2, 14)):
    """Random words in lines: one document a str."""
    random = np.random.default_rng(seed)
    vocabulary = ["".join(random.choice(list(ALPHABET), random.integers(1, 8))) for _ in range(300)]
    return [
        "\n".join(
            " ".join(random.choice(vocabulary, random.integers(*words))) + "." for _ in range(random.integers(*lines))
        )
        for _ in range(documents)
    ]


@pytest.fixture(scope="session")
def documents():
    return make_documents()


@pytest.fixture(scope="session")
def wordpiece(documents):
    return Tokenizer.train("wordpiece", documents, 200, lowercase=True)


@pytest.fixture(scope="session")
def byte_bpe(documents):
    return Tokenizer.train("byte_bpe", documents, 400)


@pytest.fixture(scope="session")
def unigram(documents):
    return Tokenizer.train("unigram", documents, 150)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, documents, wordpiece):
    return Corpus.write(tmp_path_factory.mktemp("corpus") / "en", documents, wordpiece, ["made up"])
