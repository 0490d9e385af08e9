"""A BERT for masked language modeling, four times: ours, KerasHub's, that of transformers, and one written by hand.

All are loaded from the same folder, which has the layout of transformers.
"""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

SHAPE = dict(num_layers=4, hidden_dim=256, num_heads=4, feed_forward_dim=1_024, vocabulary_size=30_522, max_length=512)


def write(folder: Path, activation: str = "gelu", shape: dict = SHAPE) -> None:
    """Weights by the paper's initialization, biases and scales moved, so that every one of them shows.

    In `keras_hub` lies a second file, with a pooler, which KerasHub insists on.
    """
    from safetensors.numpy import load_file, save_file

    from kerasbert.backend import seed_everything
    from kerasbert.models import Bert, BertConfig
    from kerasbert.objectives import MaskedLM

    seed_everything(0)
    model = MaskedLM(Bert(BertConfig(**shape, activation=activation)))
    random = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) == 1 and "seed" not in weight.path and weight.dtype == "float32":
            weight.assign(np.asarray(weight) + random.normal(0, 0.02, weight.shape))
    model.save_to_preset(folder)
    (folder / "keras_hub").mkdir()
    shutil.copy(folder / "config.json", folder / "keras_hub")
    width = shape["hidden_dim"]
    pooler = {"weight": np.zeros((width, width), "float32"), "bias": np.zeros(width, "float32")}
    file = {**load_file(folder / "model.safetensors"), **{f"bert.pooler.dense.{k}": v for k, v in pooler.items()}}
    save_file(file, folder / "keras_hub" / "model.safetensors", {"format": "pt"})


def training_flops(rows: int, length: int, slots: int, shape: dict = SHAPE) -> float:
    """Of one training step: forward, and twice as much backward; only the slots meet the vocabulary."""
    return 3 * (encoding_flops(rows * length, length, shape) + rows * slots * head_flops(shape))


def encoding_flops(tokens: float, length: float, shape: dict = SHAPE) -> float:
    width, inner = shape["hidden_dim"], shape["feed_forward_dim"]
    return tokens * shape["num_layers"] * (2 * (4 * width**2 + 2 * width * inner) + 4 * width * length)


def head_flops(shape: dict = SHAPE) -> float:
    return 2 * (shape["hidden_dim"] * shape["vocabulary_size"] + shape["hidden_dim"] ** 2)


# === KerasHub ===


def keras_hub_masked_lm(folder: Path):
    """KerasHub imports backbones without heads: that of the masked language model is filled here."""
    import keras_hub
    from safetensors.numpy import load_file

    backbone = keras_hub.models.BertBackbone.from_preset(str(folder / "keras_hub"))
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    head, file = model.masked_lm_head, load_file(folder / "model.safetensors")
    names = "cls.predictions.transform."
    head._intermediate_dense.kernel.assign(file[names + "dense.weight"].T)
    head._intermediate_dense.bias.assign(file[names + "dense.bias"])
    head._intermediate_dense.activation = backbone.transformer_layers[0].activation
    head._intermediate_layer_norm.gamma.assign(file[names + "LayerNorm.weight"])
    head._intermediate_layer_norm.beta.assign(file[names + "LayerNorm.bias"])
    head._intermediate_layer_norm.epsilon = 1e-12
    head._bias.assign(file["cls.predictions.bias"])
    return model


# === By hand, in JAX ===


@dataclasses.dataclass(frozen=True)
class PlainBert:
    """Nothing but jax.numpy: what a careful person writes who needs this one model only."""

    num_layers: int = SHAPE["num_layers"]
    num_heads: int = SHAPE["num_heads"]
    dropout: float = 0.1

    def load(self, folder: Path) -> dict:
        import jax.numpy as jnp
        from safetensors.numpy import load_file

        file = load_file(folder / "model.safetensors")
        return {name: jnp.asarray(array) for name, array in file.items() if not name.endswith("decoder.weight")}

    def drop(self, key, x):
        import jax

        if key is None:
            return x
        return jax.numpy.where(jax.random.bernoulli(key, 1 - self.dropout, x.shape), x / (1 - self.dropout), 0.0)

    def hidden(self, weights: dict, ids, key=None):
        import jax
        from jax import numpy as jnp

        def dense(name, x):
            return x @ weights[name + ".weight"].T + weights[name + ".bias"]

        def norm(name, x):
            x = x - x.mean(axis=-1, keepdims=True)
            x = x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + 1e-12)
            return x * weights[name + ".weight"] + weights[name + ".bias"]

        keys = iter([None] * 99 if key is None else jax.random.split(key, 99))
        table = "bert.embeddings.{}_embeddings.weight"
        x = weights[table.format("word")][ids] + weights[table.format("position")][: ids.shape[1]]
        x = norm("bert.embeddings.LayerNorm", x + weights[table.format("token_type")][0])
        x = self.drop(next(keys), x)
        for i in range(self.num_layers):
            layer = f"bert.encoder.layer.{i}."

            def heads(name, x=x, layer=layer):
                y = dense(layer + "attention.self." + name, x)
                return y.reshape(*y.shape[:2], self.num_heads, -1).transpose(0, 2, 1, 3)

            query, value = heads("query"), heads("value")
            scores = query @ heads("key").transpose(0, 1, 3, 2) * query.shape[-1] ** -0.5
            y = self.drop(next(keys), jax.nn.softmax(scores)) @ value
            y = dense(layer + "attention.output.dense", y.transpose(0, 2, 1, 3).reshape(x.shape))
            x = norm(layer + "attention.output.LayerNorm", x + self.drop(next(keys), y))
            y = jax.nn.gelu(dense(layer + "intermediate.dense", x), approximate=False)
            y = dense(layer + "output.dense", y)
            x = norm(layer + "output.LayerNorm", x + self.drop(next(keys), y))
        return x, norm, dense

    def logits(self, weights: dict, ids, positions, key=None):
        import jax
        from jax import numpy as jnp

        x, norm, dense = self.hidden(weights, ids, key)
        x = jnp.take_along_axis(x, positions[:, :, None], axis=1)
        x = jax.nn.gelu(dense("cls.predictions.transform.dense", x), approximate=False)
        x = norm("cls.predictions.transform.LayerNorm", x)
        return x @ weights["bert.embeddings.word_embeddings.weight"].T + weights["cls.predictions.bias"]

    def step(self, state, ids, positions, labels, rate: float, decay: float):
        """One update by AdamW, in one program; `state` is (weights, means, squares, steps, key)."""
        import jax
        from jax import numpy as jnp

        weights, means, squares, count, key = state
        key, now = jax.random.split(key)

        def loss(weights):
            logits = self.logits(weights, ids, positions, now)
            chosen = jnp.take_along_axis(logits, labels[:, :, None], axis=-1)[:, :, 0]
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

        value, gradients = jax.value_and_grad(loss)(weights)
        count = count + 1
        means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
        squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)
        first, second = 1 - 0.9**count, 1 - 0.999**count

        def moved(w, m, s):
            return w - rate * (m / first / (jnp.sqrt(s / second) + 1e-6) + decay * w)

        return (jax.tree.map(moved, weights, means, squares), means, squares, count, key), value
