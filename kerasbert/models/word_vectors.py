"""Word vectors: one vector per word, regardless of its context; a baseline for contextual models.

Mikolov, Sutskever, Chen, Corrado, Dean 2013, arXiv 1310.4546. New in it: skip-gram is trained to distinguish the words
around a word from words drawn at random (negative sampling), which makes billions of words affordable, and relations
between words are differences of vectors.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from ..core.backbone import Backbone
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, uniform
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.heads import TokenHead
from ..layers.masks import real_tokens

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
    """A table of vectors. The training head has a second one, for words as contexts, which is not saved with it.

    Args:
        config: a `WordVectorsConfig`.

    Call:
        inputs: a batch; `token_ids` (b, s), and optionally `padding_mask`, `lengths` or `sequence_ids`.

    Returns: a dict of `sequence_output` (b, s, m) and `real_tokens`, bool (b, s).
    """

    learned_positions = False

    def __init__(self, config, **kwargs):
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
        """[(token id, cosine)] of the `count` vectors most similar to `vector` (m,), except the ids in `without`."""
        table = _directions(ops.convert_to_numpy(self.token_table).astype("float32"))
        cosines = table @ _directions(np.asarray(vector, "float32"))
        cosines[list(without)] = -np.inf
        return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:count]]

    def analogy(self, first, second, third, count=1):
        """Ids related to `third` as `second` is to `first`: `nearest` to the sum of directions, without these three."""
        table = ops.convert_to_numpy(self.token_table).astype("float32")
        first_vector, second_vector, third_vector = _directions(table[[first, second, third]])
        return self.nearest(second_vector - first_vector + third_vector, count, without=(first, second, third))


def _directions(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def all_real(inputs):
    """bool (b, s), True at real tokens; all True if the batch has no padding key."""
    real = real_tokens(inputs)
    return ops.ones_like(inputs["token_ids"], dtype="bool") if real is None else real


# === Heads ===


class ContextHead(Composite):
    """Scores of words as contexts of a word, by a separate table that starts at zero.

    Args:
        config: a `WordVectorsConfig`.

    Call:
        x: float (b, m), vectors of words.
        ids: int32 (b, c), candidate context words.

    Returns: float (b, c).
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
        num_labels: width of the output.
        dropout: rate before the dense layer.
        kernel_initializer: of the dense layer.

    Call:
        outputs: the dict of a backbone; `sequence_output` (b, s, m) and `real_tokens` (b, s) are read.

    Returns: logits, float (b, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
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
    "tagger": lambda config, num_labels, **common: TokenHead(
        num_labels, config.classifier_dropout, config.kernel_initializer(), **common
    ),
}

# === Files: kerasbert's layout, in the scheme of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(WordVectorsConfig)}

HUGGINGFACE_CLASSES = {name: name for name in ("SkipGram", "TextClassifier", "TokenClassifier")} | {
    "Backbone": "WordVectors"
}

HUGGINGFACE_NAMES = {
    "token_embedding": "token_embedding",
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
