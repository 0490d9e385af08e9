import keras
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig

SENTENCES = [
    "Ann lives in Rome .", "Bob lives in Bonn .", "in Rome lives Bob", "Ann met Bob in Bonn", "a cat met a dog",
    "who lives in Bonn ?", "who met Bob ?", "where lives Ann ?", "the cat sat in Rome",
]  # fmt: skip


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer.train("wordpiece", SENTENCES * 20, vocabulary_size=70)


@pytest.fixture
def tiny_backbone(tokenizer):
    """A function that makes a BERT which learns fast."""

    def make(dtype=None, **changes):
        keras.utils.set_random_seed(0)
        sizes = dict(num_layers=1, num_heads=2, hidden_dim=32, feed_forward_dim=48, max_length=32, dropout=0.0)
        sizes |= {"vocabulary_size": tokenizer.vocabulary_size, "initializer_range": 0.2, **changes}
        return Bert(BertConfig(**sizes), dtype=dtype)

    return make
