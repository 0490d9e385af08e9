"""ELMo: contextual word vectors from two recurrent language models, one for each direction.

Peters et al. 2018, arXiv 1802.05365. New in this paper: the features for a task are a learned weighted sum of all
layers of a pretrained language model instead of its top layer, because lower layers capture syntax and higher layers
word senses. Words are read as characters, so that no word is unknown. The details follow the authors' code, bilm-tf.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import glorot_uniform, normal, uniform
from ..core.weight_names import Tensor
from ..layers.composite import Composite, Layer
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.heads import TokenHead
from ..layers.recurrence import scan_tokens
from .backbone import Backbone
from .word_vectors import MeanHead, all_real

# === Config ===

CHARACTER_ROWS = 262  # number of character ids: 256 bytes, sentence and word boundaries, the filler, 0 for padding


@dataclasses.dataclass(frozen=True)
class ElmoConfig(Config):
    vocabulary_size: int = 793_471  # of the predicted words, and if `characters` is False also of the inputs
    characters: bool = True  # whether words are read as `character_ids` rather than `token_ids`
    character_dim: int = 16
    # (width, number of filters) of each convolution.
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1_024))
    num_highways: int = 2
    num_layers: int = 2  # in each direction
    hidden_dim: int = 512  # width of the word vectors, and of each direction's projected output
    cell_dim: int = 4_096  # width of the LSTM cells
    clip: float = 3.0  # maximum absolute value of cell states and projections
    dropout: float = 0.1  # of the input of each layer and of the output
    classifier_dropout: float = 0.5  # of the weighted sum of layers, before fine-tuning heads
    mix_penalty: float = 0.001  # L2 penalty on the weights of the sum; a penalty of 1 keeps it near the mean
    mix_norm: bool = False  # whether each layer is normalized over the batch before it is added to the sum
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
    """Word vectors from characters: convolutions, max pooling, highway layers and a projection.

    The convolutions are described in Kim et al. 2015, arXiv 1508.06615. The highway layers, y = g relu(W x + b) + (1 -
    g) x with a learned gate g, are described in Srivastava et al. 2015, arXiv 1505.00387.

    Args:
        config: an `ElmoConfig`.

    Call:
        ids: int32 (b, s, c), as returned by `kerasbert.data.character_ids`.

    Returns: float (b, s, m).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
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
        dense: dict[str, Any] = dict(kernel_initializer=glorot_uniform(), **common)
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
    """An LSTM with a projected output (Sak et al. 2014), whose cell states and projections are clipped.

    Args:
        config: an `ElmoConfig`.
        reverse: whether to read from the last token to the first.

    Call:
        x: float (b, s, m).
        real: bool (b, s), True at real tokens.

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
            # The forget gate has a bias of 1, so that cells remember their states at the start of training.
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
    """Two language models that share their word vectors. One reads forward, and the other backward.

    Args:
        config: an `ElmoConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), `character_ids` (b, s, c) if `config.characters` is True, and
            optionally `padding_mask` or `lengths`. Padding may be anywhere in a row.

    Returns: a dict of
        `sequence_output`, float (b, s, 2 m): the concatenated last layers of the forward and the backward model;
        `hidden_states`, a list of num_layers + 1 tensors (b, s, 2 m): the word vectors, concatenated with themselves,
            and the concatenated outputs of each pair of layers;
        `real_tokens`, bool (b, s), False at padding.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: ElmoConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        if config.characters:
            self.character_encoder = CharacterEncoder(config, name="character_encoder", **common)
        else:
            table: dict[str, Any] = dict(embeddings_initializer=uniform(1.0), name="token_embedding", **common)
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
        """List of (layer of the forward model, layer of the backward model) for each depth."""
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
    """A learned weighted sum of layers: gamma * sum_j softmax(w)_j * layer_j (equation 1 of the paper).

    Args:
        num_layers: number of layers in the sum.
        penalty: factor of the L2 penalty on the weights w, which is added to the loss.
        norm: whether each layer is first normalized to mean 0 and variance 1 over all real tokens and dimensions of the
            batch.

    Call:
        layers: list of the outputs of the layers, each float (b, s, m).
        real: bool (b, s), True at real tokens.

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
    """A weighted sum of all layers, followed by dropout and a dense layer.

    Args:
        config: an `ElmoConfig`.
        num_labels: number of logits.
        mean: whether the dense layer is applied to the mean of the real tokens rather than to each token.

    Call:
        outputs: dict of the outputs of the backbone.

    Returns: logits, float (b, num_labels) or (b, s, num_labels).
    """

    def __init__(self, config, num_labels, mean=False, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        layers = config.num_layers + 1
        self.mix = ScalarMix(layers, config.mix_penalty, config.mix_norm, name="mix", **common)
        head = MeanHead if mean else TokenHead
        self.head = head(num_labels, config.classifier_dropout, config.kernel_initializer(), name="head", **common)

    def call(self, outputs):
        x = self.mix(outputs["hidden_states"], outputs["real_tokens"])
        return self.head({"sequence_output": x, "real_tokens": outputs["real_tokens"]})


class DirectionsHead(Composite):
    """Logits of the next token and of the previous token. Both directions share one output layer.

    Args:
        config: an `ElmoConfig`.

    Call:
        x: float (b, s, 2 m), the concatenated hidden states of the forward and the backward model.

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

# === Files: kerasbert's layout, similar to those of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(ElmoConfig)}

HUGGINGFACE_CLASSES = {
    "Backbone": "Elmo",
    **{name: name for name in ("BidirectionalLM", "TextClassifier", "TokenClassifier")},
}

_LAYERS = ("embedding", "convolution_{i}", "gate_{i}", "transform_{i}", "project")
_MATRICES = ("recurrent", "project")  # matrices of the LSTM, which are not dense layers and are stored unchanged

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
