"""A training step of BERT written by hand in plain JAX, to compare the compiled step of `fit` with.

It is what a careful person writes who needs this one model only: masked tokens and sentence pairs, bfloat16 products,
float32 layer norms and losses, the package's `attend`, the last block at the target slots and the first token only,
AdamW with clipped gradients, donated buffers. Weights are a dict by the paths of the package's variables.
"""

import jax
from jax import numpy as jnp

EPSILON = 1e-12  # of layer norms
NO_DECAY = ("bias", "gamma", "beta")


def dense(weights, name, x):
    kernel, bias = weights[f"{name}/kernel"].astype(x.dtype), weights[f"{name}/bias"].astype(x.dtype)
    return x @ kernel + bias


def layer_norm(weights, name, x):
    y = x.astype("float32")
    y = y - y.mean(axis=-1, keepdims=True)
    y = y * jax.lax.rsqrt(jnp.square(y).mean(axis=-1, keepdims=True) + EPSILON)
    return (y * weights[f"{name}/gamma"] + weights[f"{name}/beta"]).astype(x.dtype)


def block(weights, name, x, mask, heads, positions=None):
    """One block of post-norm, at all positions or at those given (b, p)."""
    from kerasbert.layers.attention import attend

    context = x
    if positions is not None:
        x = jnp.take_along_axis(x, positions[:, :, None], axis=1)

    def in_heads(part, x):
        return dense(weights, f"{name}/attention/{part}", x).reshape(*x.shape[:2], heads, -1)

    y = attend(in_heads("query", x), in_heads("key", context), in_heads("value", context), mask)
    y = dense(weights, f"{name}/attention/project", y.reshape(x.shape))
    x = layer_norm(weights, f"{name}/attention_norm", x + y)
    y = jax.nn.gelu(dense(weights, f"{name}/feed_forward/inner", x), approximate=False)
    y = dense(weights, f"{name}/feed_forward/outer", y)
    return layer_norm(weights, f"{name}/feed_forward_norm", x + y)


def logits_of(weights, inputs, layers, heads, dtype):
    """Returns the logits of the target slots (b, p, v) and of the sentence pairs (b, 2)."""
    from kerasbert.layers.masks import AttentionMask

    tables = [weights[f"bert/{kind}_embedding/embeddings"] for kind in ("token", "segment", "position")]
    x = tables[0][inputs["token_ids"]] + tables[1][inputs["segment_ids"]] + tables[2][: inputs["token_ids"].shape[1]]
    x = layer_norm(weights, "bert/embedding_norm", x.astype(dtype))
    mask = AttentionMask(lengths=inputs["lengths"])
    first = jnp.zeros_like(inputs["masked_positions"][:, :1])
    positions = jnp.concatenate([first, jnp.maximum(inputs["masked_positions"], 0)], axis=1)
    for number in range(layers):
        x = block(weights, f"bert/block_{number}", x, mask, heads, positions if number == layers - 1 else None)
    pooled = jnp.tanh(dense(weights, "bert/pooler", x[:, 0]))
    head = "masked_lm/masked_lm"
    y = layer_norm(weights, f"{head}/norm", jax.nn.gelu(dense(weights, f"{head}/dense", x[:, 1:]), approximate=False))
    tokens = y @ tables[0].astype(dtype).T + weights[f"{head}/bias"].astype(dtype)
    return tokens, dense(weights, "masked_lm/sentence_pair/dense", pooled)


def mean_loss(logits, labels, sample_weight):
    """Returns the weighted means of the cross-entropy and of the accuracy."""
    logits = logits.astype("float32")
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    right = (logits.argmax(axis=-1) == labels).astype("float32")
    total = jnp.maximum(sample_weight.sum(), 1e-9)
    return (losses * sample_weight).sum() / total, (right * sample_weight).sum() / total


def updated(weights, gradients, means, squares, rate):
    """AdamW without bias correction, as in BERT's code; gradients are clipped to a global norm of 1."""
    norm = jnp.sqrt(sum(jnp.square(gradient).sum() for gradient in gradients.values()))
    scale = 1 / jnp.maximum(norm, 1.0)
    new = {}, {}, {}
    for name, weight in weights.items():
        gradient = gradients[name] * scale
        mean, square = 0.9 * means[name] + 0.1 * gradient, 0.999 * squares[name] + 0.001 * jnp.square(gradient)
        step = mean / (jnp.sqrt(square) + 1e-6)
        decay = 0.0 if name.endswith(NO_DECAY) else 0.01
        new[0][name], new[1][name], new[2][name] = weight - rate * (step + decay * weight), mean, square
    return new


def train_step(layers, heads, dtype="bfloat16"):
    """Returns the function of (weights, means, squares, batch, rate) that updates the weights.

    Its result is (the updated arguments, metrics). Compile it with `donate_argnums=(0, 1, 2)`.
    """

    def loss_of(weights, inputs, labels, sample_weight):
        tokens, pairs = logits_of(weights, inputs, layers, heads, dtype)
        loss, accuracy = mean_loss(tokens, labels["tokens"], sample_weight["tokens"])
        pair_loss, pair_accuracy = mean_loss(pairs, labels["sentence_pair"], sample_weight["sentence_pair"])
        return loss + pair_loss, (accuracy, pair_accuracy)

    def step(weights, means, squares, batch, rate):
        (loss, metrics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, *batch)
        return updated(weights, gradients, means, squares, rate), (loss, *metrics)

    return step


def lowered_step(model_of, layers, rows, device, **target):
    """Lowers the step for a `compiled_steps.Model` of BERT, on one described device, with the package's batch."""
    from benchmarks.devices import compiled_steps
    from kerasbert.backend import compiling_for
    from kerasbert.core.initializers import zero_weights

    with zero_weights():  # only their shapes are used
        model, batch = compiled_steps.built(model_of, layers, rows)
    place = jax.sharding.SingleDeviceSharding(device)

    def shape(array):
        return jax.ShapeDtypeStruct(array.shape, str(array.dtype), sharding=place)

    weights = {variable.path: shape(variable.value) for variable in model.trainable_variables}
    heads = model.backbone.config.num_heads
    step = jax.jit(train_step(layers, heads), donate_argnums=(0, 1, 2), out_shardings=place)
    with compiling_for(**target):
        rate = jax.ShapeDtypeStruct((), "float32", sharding=place)
        return step.lower(weights, weights, weights, jax.tree.map(shape, batch), rate)
