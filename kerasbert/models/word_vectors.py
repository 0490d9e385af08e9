"""Word vectors (word2vec): one vector per word, regardless of its context. A baseline for contextual models.

Mikolov, Sutskever, Chen, Corrado, Dean 2013, arXiv 1310.4546. New in this paper: skip-gram learns to distinguish the
context words of a word from random words (negative sampling), which makes training on billions of words affordable;
relations between words correspond to differences between vectors.
"""

import dataclasses
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, uniform
from ..data.text.files import written_whole
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.heads import TokenHead, of_config
from ..layers.masks import real_tokens
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class WordVectorsConfig(Config):
    vocabulary_size: int = 30_000
    hidden_dim: int = 300
    classifier_dropout: float = 0.0  # before fine-tuning heads
    initializer_range: float = 0.02  # standard deviation of the normal distribution, for fine-tuning heads
    pad_id: int = 0
    model_type: str = "word_vectors"

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"google_news": dict(vocabulary_size=3_000_000)}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class WordVectors(Backbone):
    """A table with one vector per word.

    During training, the `skip_gram` head has a second table, whose vectors represent words as contexts. It is not part
    of the backbone.

    Args:
        config: a `WordVectorsConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask`, `lengths` or `sequence_ids`.

    Returns: a dict of `sequence_output`, float (b, s, m), and `real_tokens`, bool (b, s), False at padding.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: WordVectorsConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            uniform(0.5 / config.hidden_dim),
            name="token_embedding",
            dtype=self.dtype_policy,
        )
        self.build_now()

    def call(self, inputs):
        return {"sequence_output": self.token_embedding(inputs["token_ids"]), "real_tokens": all_real(inputs)}

    def input_limits(self):
        return [*super().input_limits(), ("context_ids", self.config.vocabulary_size, "vocabulary_size")]

    def nearest(self, vector, count=10, without=()):
        """Finds the words whose vectors are most similar to a vector.

        Args:
            vector: float (m,).
            count: number of words to return.
            without: token ids that are excluded.

        Returns: a list of (token id, cosine similarity), with the most similar word first.
        """
        table = _directions(ops.convert_to_numpy(self.token_table).astype("float32"))
        cosines = table @ _directions(np.asarray(vector, "float32"))
        cosines[list(without)] = -np.inf
        return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:count]]

    def analogy(self, first, second, third, count=1):
        """Finds the words that are related to `third` as `second` is related to `first`.

        The words are those nearest to second - first + third, where vectors are normalized to length 1.

        Args:
            first, second, third: token ids, which are excluded from the result.
            count: number of words to return.

        Returns: a list of (token id, cosine similarity), with the most similar word first.
        """
        table = ops.convert_to_numpy(self.token_table).astype("float32")
        first_vector, second_vector, third_vector = _directions(table[[first, second, third]])
        return self.nearest(second_vector - first_vector + third_vector, count, without=(first, second, third))

    def save_word2vec(self, path: str | PathLike, words: Sequence[str], binary: bool = False) -> None:
        """Writes the vectors in the file format of word2vec, which `KeyedVectors.load_word2vec_format` of gensim reads.

        Args:
            path: the file, which is replaced if it exists.
            words: the word of each id, such as `tokenizer.tokens`. An id whose word is "" is left out.
            binary: whether to write float32 numbers instead of their decimal digits.
        """
        table = ops.convert_to_numpy(self.token_table).astype("<f4")
        if len(words) > len(table):
            raise ValueError(
                f"Every word needs a vector. Received: {len(words)} words for {len(table)} vectors. Pass the words of "
                "the tokenizer that the model was trained with."
            )
        entries = [(word, vector) for word, vector in zip(words, table, strict=False) if word]
        wrong = [word for word, _ in entries if word.split() != [word]]
        if wrong:
            raise ValueError(f"Words must have no white space, which ends a word in the file. Received: {wrong[:3]}.")
        with written_whole(Path(path)) as file:
            file.write(f"{len(entries)} {table.shape[1]}\n".encode())
            for word, vector in entries:
                numbers = vector.tobytes() if binary else " ".join(map(str, vector)).encode()
                file.write(f"{word} ".encode() + numbers + b"\n")


def _directions(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def all_real(inputs):
    """Returns bool (b, s), True at tokens that are not padding."""
    real = real_tokens(inputs)
    return ops.ones_like(inputs["token_ids"], dtype="bool") if real is None else real


# === Heads ===


class ContextHead(Composite):
    """Scores how likely words are as contexts of a word, using a separate table of context vectors.

    Args:
        config: a `WordVectorsConfig`.

    Call:
        x: float (b, m), word vectors.
        ids: int32 (b, k), the ids of candidate context words.

    Returns: logits, float (b, k).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.contexts = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, "zeros", name="contexts", dtype=self.dtype_policy
        )

    def call(self, x, ids):
        return ops.einsum("bm,bcm->bc", x, self.contexts(ids))


class MeanHead(Composite):
    """Dropout and one dense layer on the mean of the real tokens.

    Args:
        num_labels: number of logits.
        dropout: dropout rate before the dense layer.
        kernel_initializer: initializer of the dense layer.

    Call:
        outputs: dict of the outputs of a backbone, of which `sequence_output` (b, s, m) and `real_tokens` (b, s) are
            used.

    Returns: logits, float (b, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.dense = Dense(num_labels, kernel_initializer=kernel_initializer, name="dense", **common)

    def call(self, outputs):
        x = outputs["sequence_output"]
        real = ops.cast(outputs["real_tokens"], x.dtype)[:, :, None]
        mean = ops.sum(x * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1)
        return self.dense(self.dropout(mean))


HEADS = {
    "skip_gram": lambda config, **common: ContextHead(config, **common),
    "classifier": lambda config, num_labels, **common: MeanHead(
        num_labels, config.classifier_dropout, config.kernel_initializer(), **common
    ),
    "tagger": of_config(TokenHead, "classifier_dropout"),
}

# === Files: kerasbert's layout, similar to those of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(WordVectorsConfig)}

HUGGINGFACE_CLASSES = {name: name for name in ("SkipGram", "TextClassifier", "TokenClassifier")} | {
    "Backbone": "WordVectors"
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embedding",  # as sentence-transformers names the table of a static embedding
    "skip_gram/contexts": "skip_gram.contexts",
    "classifier/dense": "classifier",
    "tagger/dense": "tagger",
}

register_family(
    WordVectors,
    Family(
        config=WordVectorsConfig,
        model_types=("word_vectors",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            classes=HUGGINGFACE_CLASSES,
            prefix="",
            names=HUGGINGFACE_NAMES,
        ),
    ),
)
