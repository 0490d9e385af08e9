"""ELMo: contextual word vectors from two recurrent language models, one in each direction.

Peters et al. 2018, arXiv 1802.05365. New in it: the features of a task are a learned mix of all layers of a
pretrained language model instead of its top layer, because lower layers capture syntax and higher ones word senses.
Words are read as characters, so that none is unknown. The details follow the authors' bilm-tf.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from ..core.backbone import Backbone
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import glorot_uniform, normal, uniform
from ..core.weight_names import Tensor
from ..layers.composite import Composite, Layer
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.heads import TokenHead
from ..layers.recurrence import scan_tokens
from .word_vectors import MeanHead, all_real

# === Config ===

CHARACTER_ROWS = 262  # 256 bytes, sentence and word boundaries, the filler, and 0 for padding


@dataclasses.dataclass(frozen=True)
class ElmoConfig(Config):
    vocabulary_size: int = 793_471  # of the language models; also of the input if `characters` is False
    characters: bool = True  # True: words are read as `character_ids`; False: as `token_ids`
    character_dim: int = 16
    # Width and number of the filters of each convolution.
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1_024))
    num_highways: int = 2
    num_layers: int = 2  # in each direction
    hidden_dim: int = 512  # of word vectors, and of each direction after its projection
    cell_dim: int = 4_096
    clip: float = 3.0  # maximum absolute value of cell states and projections
    dropout: float = 0.1  # on the input of each layer and on the output
    classifier_dropout: float = 0.5  # on the mix, before fine-tuning heads
    mix_penalty: float = 0.001  # L2 penalty on the weights of the mix; 1 keeps it near the mean
    mix_norm: bool = False  # True: each layer is normalised over the batch before it is mixed
    initializer_range: float = 0.02  # standard deviation of the normal distribution, for fine-tuning heads
    pad_id: int = 0
    model_type: str = "elmo"

    def __post_init__(self):
        object.__setattr__(self, "filters", tuple(tuple(pair) for pair in self.filters))

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"elmo": dict()}

# === Words from characters ===


class CharacterEncoder(Composite):
    """Convolutions over the characters of a word, max pooling, highway layers and a projection.

    Kim et al. 2015, arXiv 1508.06615, and Srivastava et al. 2015, arXiv 1505.00387: y = g relu(W x + b) + (1 - g) x.

    Args:
        config: an `ElmoConfig`.

    Call:
        ids: int32 (b, s, c), as returned by `kerasbert.data.character_ids`.

    Returns: float (b, s, m).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        self.hidden_dim = config.hidden_dim
        self.embedding = keras.layers.Embedding(
            CHARACTER_ROWS, config.character_dim, uniform(1.0), name="embedding", **common
        )
        self.convolutions = [
            keras.layers.Conv1D(
                count, width, kernel_initializer=glorot_uniform(), name=f"convolution_{width}", **common
            )
            for width, count in config.filters
        ]
        features = sum(count for _, count in config.filters)
        dense = dict(kernel_initializer=glorot_uniform(), **common)
        self.gates, self.transforms = [], []
        for i in range(config.num_highways):
            closed = keras.initializers.Constant(-2.0)
            self.gates.append(Dense(features, bias_initializer=closed, name=f"gate_{i}", **dense))
            self.transforms.append(Dense(features, activation="relu", name=f"transform_{i}", **dense))
        self.project = Dense(config.hidden_dim, name="project", **dense)

    def call(self, ids):
        batch, length, characters = (-1 if size is None else size for size in ops.shape(ids))
        x = self.embedding(ops.reshape(ids, (-1, characters)))
        x = ops.concatenate([ops.relu(ops.max(conv(x), axis=1)) for conv in self.convolutions], axis=-1)
        for gate, transform in zip(self.gates, self.transforms, strict=True):
            g = ops.sigmoid(gate(x))
            x = g * transform(x) + (1 - g) * x
        return ops.reshape(self.project(x), (batch, length, self.hidden_dim))


# === Recurrence ===


class ProjectedLstm(Layer):
    """An LSTM whose output is projected; cell states and projections are clipped (Sak et al. 2014).

    Args:
        config: an `ElmoConfig`.
        reverse: whether to read from the last token to the first.

    Call:
        x: float (b, s, m).
        real: bool (b, s).

    Returns: float (b, s, m).
    """

    def __init__(self, config, reverse=False, **kwargs):
        super().__init__(**kwargs)
        self.reverse = reverse
        self.sizes, self.clip = (config.hidden_dim, config.cell_dim), config.clip
        self.inputs = Dense(
            4 * config.cell_dim, kernel_initializer=glorot_uniform(), name="inputs", dtype=self.dtype_policy
        )

    def build(self, x_shape, real_shape=None):
        hidden, cells = self.sizes
        self.inputs.build(x_shape)
        self.recurrent = self.add_weight(name="recurrent", shape=(hidden, 4 * cells), initializer=glorot_uniform())
        self.project = self.add_weight(name="project", shape=(cells, hidden), initializer=glorot_uniform())

    def call(self, x, real):
        hidden, cells = self.sizes

        def step(state, x):
            write, candidate, keep, show = ops.split(x + ops.matmul(state["output"], self.recurrent), 4, axis=-1)
            # A forget bias of 1 keeps cell states at first.
            cell = ops.sigmoid(keep + 1) * state["cell"] + ops.sigmoid(write) * ops.tanh(candidate)
            cell = ops.clip(cell, -self.clip, self.clip)
            output = ops.matmul(ops.sigmoid(show) * ops.tanh(cell), self.project)
            return {"cell": cell, "output": ops.clip(output, -self.clip, self.clip)}

        x = self.inputs(x)
        state = {"cell": ops.zeros_like(x[:, 0, :cells]), "output": ops.zeros_like(x[:, 0, :hidden])}
        return scan_tokens(step, state, x, real, self.reverse)[0]["output"]


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Elmo(Backbone):
    """Two language models that share their word vectors: one reads forward, one backward.

    Args:
        config: an `ElmoConfig`.

    Call:
        inputs: a batch; `token_ids` (b, s), `character_ids` (b, s, c) if the config has `characters`, and optionally
            `padding_mask` or `lengths`. Padding may be anywhere.

    Returns: a dict of `sequence_output` (b, s, 2 m), the last layers of the forward and the backward model,
        concatenated; `hidden_states`, the word vectors twice and every layer (num_layers + 1 of (b, s, 2 m));
        `real_tokens`, bool (b, s).
    """

    learned_positions = False

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        common = dict(dtype=self.dtype_policy)
        if config.characters:
            self.character_encoder = CharacterEncoder(config, name="character_encoder", **common)
        else:
            table = dict(embeddings_initializer=uniform(1.0), name="token_embedding", **common)
            self.token_embedding = keras.layers.Embedding(config.vocabulary_size, config.hidden_dim, **table)
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        layers = range(config.num_layers)
        self.forward_layers = [ProjectedLstm(config, name=f"forward_{i}", **common) for i in layers]
        self.backward_layers = [ProjectedLstm(config, reverse=True, name=f"backward_{i}", **common) for i in layers]
        self.build_now()

    def call(self, inputs):
        real = all_real(inputs)
        words = self._words(inputs)
        states = [[words, words]]
        for i, layers in enumerate(zip(self.forward_layers, self.backward_layers, strict=True)):
            states.append([self._layer(layer, x, real, i) for layer, x in zip(layers, states[-1], strict=True)])
        states[-1] = [self.dropout(x) for x in states[-1]]
        states = [ops.concatenate(pair, axis=-1) for pair in states]
        return {"sequence_output": states[-1], "hidden_states": states, "real_tokens": real}

    @property
    def blocks(self):
        """Pairs of layers of the forward and the backward model."""
        return list(zip(self.forward_layers, self.backward_layers, strict=True))

    def _words(self, inputs):
        if self.config.characters:
            return self.character_encoder(inputs["character_ids"])
        return self.token_embedding(inputs["token_ids"])

    def _layer(self, layer, x, real, number):
        y = layer(self.dropout(x), real)
        return y if number == 0 else y + x  # the first layer has no residual connection

    def example_inputs(self):
        inputs = super().example_inputs()
        if self.config.characters:
            longest = max(width for width, _ in self.config.filters)
            inputs["character_ids"] = np.zeros((1, 2, longest), "int32")
        return inputs

    def input_limits(self):
        return [*super().input_limits(), ("character_ids", CHARACTER_ROWS, "bytes and boundaries, 0 for padding")]

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        if inputs.get("sequence_ids") is not None:
            raise ValueError("A recurrent model reads one sequence per row. Received: packed rows (`sequence_ids`).")
        if self.config.characters and inputs.get("character_ids") is None:
            raise ValueError(
                "This model reads words as `character_ids` (b, s, c). "
                f"Received: {sorted(inputs)}. Use kerasbert.data.character_ids, or a config with characters=False."
            )


# === Heads ===


class ScalarMix(Layer):
    """gamma * sum of softmax(w)_j * layer j: a mix of all layers, learned with the task.

    Args:
        num_layers: number of layers to mix.
        penalty: factor of the squared weights in the loss.
        norm: whether each layer is first given mean 0 and variance 1 over all real tokens and dimensions of the batch.

    Call:
        layers: float (b, s, m) each.
        real: bool (b, s).

    Returns: float (b, s, m).
    """

    def __init__(self, num_layers, penalty=0.0, norm=False, **kwargs):
        super().__init__(**kwargs)
        self.num_layers, self.norm = num_layers, norm
        self.regularizer = keras.regularizers.L2(penalty) if penalty else None

    def build(self, layers_shape, real_shape=None):
        self.mix = self.add_weight(
            name="mix", shape=(self.num_layers,), initializer="zeros", regularizer=self.regularizer
        )
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, layers, real):
        shares = ops.unstack(ops.softmax(ops.cast(self.mix, "float32")), self.num_layers)
        layers = [self._normalized(x, real) if self.norm else x for x in layers]
        mixed = sum(share * ops.cast(x, "float32") for share, x in zip(shares, layers, strict=True))
        return ops.cast(ops.cast(self.scale, "float32") * mixed, layers[0].dtype)

    def _normalized(self, x, real):
        dtype, x = x.dtype, ops.cast(x, "float32")
        here = ops.cast(real, "float32")[:, :, None]
        count = ops.maximum(ops.sum(here) * x.shape[-1], 1)
        mean = ops.sum(x * here) / count
        variance = ops.sum(ops.square((x - mean) * here)) / count
        return ops.cast((x - mean) * ops.rsqrt(variance + 1e-12), dtype)


class MixHead(Composite):
    """A mix of all layers, then dropout and a dense layer on each token, or on the mean of the real ones.

    Args:
        config: an `ElmoConfig`.
        num_labels: width of the output.
        mean: True for one output per sequence.

    Call:
        outputs: the dict of the backbone.

    Returns: logits, float (b, num_labels) or (b, s, num_labels).
    """

    def __init__(self, config, num_labels, mean=False, **kwargs):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        layers = config.num_layers + 1
        self.mix = ScalarMix(layers, config.mix_penalty, config.mix_norm, name="mix", **common)
        head = MeanHead if mean else TokenHead
        self.head = head(num_labels, config.classifier_dropout, config.kernel_initializer(), name="head", **common)

    def call(self, outputs):
        x = self.mix(outputs["hidden_states"], outputs["real_tokens"])
        return self.head({"sequence_output": x, "real_tokens": outputs["real_tokens"]})


class DirectionsHead(Composite):
    """Scores over the vocabulary for the next and the previous token, by one output layer for both directions.

    Call:
        x: float (b, s, 2 m), the forward and the backward states.

    Returns: a dict of `forward` and `backward`, logits, float (b, s, v).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.dense = Dense(
            config.vocabulary_size, kernel_initializer=glorot_uniform(), name="dense", dtype=self.dtype_policy
        )

    def call(self, x):
        forward, backward = ops.split(x, 2, axis=-1)
        return {"forward": self.dense(forward), "backward": self.dense(backward)}


HEADS = {
    "bidirectional_lm": lambda config, **common: DirectionsHead(config, **common),
    "classifier": lambda config, num_labels, **common: MixHead(config, num_labels, mean=True, **common),
    "tagger": lambda config, num_labels, **common: MixHead(config, num_labels, **common),
}

# === Files: kerasbert's layout, in the scheme of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(ElmoConfig)}

HUGGINGFACE_CLASSES = {
    "Backbone": "Elmo",
    **{name: name for name in ("BidirectionalLM", "TextClassifier", "TokenClassifier")},
}

_LAYERS = ("embedding", "convolution_{i}", "gate_{i}", "transform_{i}", "project")
_MATRICES = ("recurrent", "project")  # weights of the recurrence, which are not dense layers and are stored unchanged

HUGGINGFACE_NAMES = {
    "token_embedding": "token_embedding",
    **{f"character_encoder/{name}": f"character_encoder.{name}" for name in _LAYERS},
    "bidirectional_lm/dense": "bidirectional_lm",
}
for direction in ("forward_{i}", "backward_{i}"):
    HUGGINGFACE_NAMES[f"{direction}/inputs"] = f"{direction}.inputs"
    HUGGINGFACE_NAMES |= {f"{direction}/{name}": Tensor(f"{direction}.{name}") for name in _MATRICES}
for head in ("classifier", "tagger"):
    HUGGINGFACE_NAMES[f"{head}/head/dense"] = head
    HUGGINGFACE_NAMES |= {f"{head}/mix/{name}": Tensor(f"{head}.mix.{name}") for name in ("mix", "scale")}

register_family(
    Elmo,
    Family(
        config=ElmoConfig,
        model_types=("elmo",),
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
