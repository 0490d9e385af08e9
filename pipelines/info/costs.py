"""Costs of a model, determined without running it: weights, operations per token, and memory for training and use."""

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np

from kerasbert.backend.keras_adapter import all_layers
from kerasbert.core.batch import BATCH_KEYS
from kerasbert.core.initializers import zero_weights
from kerasbert.core.inputs import checked_inputs
from kerasbert.models import Backbone
from kerasbert.objectives import Distillation, KnowledgeTransfer, MaskedLM, PermutationLM, SpanBoundary
from kerasbert.tasks import MultipleChoice
from kerasbert.training import adamw

from .operations import Operations, counting, traced, without_values

CHOICES = 4  # number of choices in a multiple-choice example
MASK_RATE = 0.15  # share of tokens that a masked language model predicts
# Keys in the example inputs of XLNet that only its query stream reads, which only its objective uses.
QUERY_STREAM = ("query_ranks", "key_ranks", "masked_positions")
HALF = ("mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class Rows:
    """The shape of a batch.

    Args:
        count: number of rows.
        length: number of tokens per row, or for an encoder-decoder, per source.
        slots: number of tokens per row that a masked language model predicts. Default: 15% of `length`.
        target_length: number of tokens per target of an encoder-decoder. Default: `length`.
    """

    count: int
    length: int
    slots: int | None = None
    target_length: int | None = None

    def tokens(self, shapes: dict) -> int:
        """Number of tokens in a batch of these shapes, including both sides of an encoder-decoder."""
        return sum(math.prod(shapes[key]) for key in ("token_ids", "decoder_token_ids") if key in shapes)


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of a model with one dtype. Memory is in bytes.

    Args:
        parts: {part of the model: number of weights}. Weights that several parts share are counted for the first of
            them.
        trained: number of trainable weights.
        tokens: number of tokens in the batch.
        forward, training: number of operations for a forward pass and for a training step on the batch.
        weights: bytes of all weights.
        half_weights: bytes of the half-precision copies of the weights, with a mixed dtype.
        gradients: bytes of the gradients.
        optimizer: bytes of the state of the optimizer.
        activations: bytes of the activations that the backward pass needs, without attention weights.
        attention_weights: bytes of the attention weights, which fused attention kernels do not store.
        forward_activations: bytes of the activations of a forward pass without a backward pass.
        cache: bytes of the keys and values of all tokens of the batch during generation, or 0 for a model without a
            cache.
    """

    parts: dict[str, int]
    trained: int
    tokens: int
    forward: int
    training: int
    weights: int
    half_weights: int
    gradients: int
    optimizer: int
    activations: int
    attention_weights: int
    forward_activations: int
    cache: int

    @property
    def memory_to_train(self) -> int:
        state = self.weights + self.half_weights + self.gradients + self.optimizer
        return state + self.activations + self.attention_weights

    @property
    def memory_to_serve(self) -> int:
        return self.weights + self.half_weights + self.forward_activations + self.cache


def costs(make: Callable, rows: Rows, optimizer: Callable | None = None) -> Costs:
    """Determines the costs of a model on a batch.

    Args:
        make: function that returns the model. No memory is allocated for the weights.
        rows: the shape of the batch.
        optimizer: function that returns the optimizer. Default: AdamW.
    """
    updates = (optimizer or _adamw)()  # its own counters cannot be created in a trace

    def measure():
        with zero_weights():
            model = make()
        shapes = batch_shapes(model, rows)
        inputs = {key: without_values(shape, dtype_of(key)) for key, shape in shapes.items()}
        found = {}
        for training in (False, True):
            with counting(model) as found[training], checked_inputs():
                model(inputs, training=training)
        updates._var_key = id  # on TensorFlow, variables have no other key in a trace
        updates.build(model.trainable_variables)
        return _costs(model, rows.tokens(shapes), *found.values(), updates, _cache_size(model, rows))

    return traced(measure)


def _adamw():
    return adamw(learning_rate=1e-4, warmup=1, steps=2)


def _costs(model, tokens: int, forward: Operations, training: Operations, optimizer, cache: int) -> Costs:
    weights = {id(variable): variable for variable in model.weights}.values()
    half = getattr(model.dtype_policy, "name", "") in HALF
    return Costs(
        parts=weights_by_part(model),
        trained=sum(math.prod(variable.shape) for variable in model.trainable_variables),
        tokens=tokens,
        forward=forward.forward,
        training=training.training,
        weights=_bytes(weights),
        half_weights=_bytes(weights) // 2 if half else 0,
        gradients=_bytes(model.trainable_variables),
        optimizer=_bytes(optimizer.variables),
        activations=training.kept,
        attention_weights=training.attention_weights,
        forward_activations=forward.largest,
        cache=cache,
    )


def _bytes(tensors) -> int:
    return sum(math.prod(x.shape) * np.dtype(_NUMPY.get(x.dtype, x.dtype)).itemsize for x in tensors)


_NUMPY = {"bfloat16": "float16"}


def _cache_size(model, rows: Rows) -> int:
    """Size in bytes of the cache for generation. For an encoder-decoder, only the tokens of the decoder are counted."""
    backbone = getattr(model, "backbone", model)
    if not hasattr(backbone, "empty_cache"):
        return 0
    return _bytes_of_tree(backbone.empty_cache(rows.count, rows.length))


def _bytes_of_tree(tree) -> int:
    leaves = [x for x in keras.tree.flatten(tree) if hasattr(x, "shape")]
    sizes = [np.dtype(_NUMPY.get(name := keras.backend.standardize_dtype(x.dtype), name)).itemsize for x in leaves]
    return sum(math.prod(x.shape) * size for x, size in zip(leaves, sizes, strict=True))


# === Batches ===


def batch_shapes(model, rows: Rows) -> dict[str, tuple]:
    """Returns {batch key: shape} for a training step of the model."""
    letters = {"b": rows.count, "s": rows.length, "t": rows.target_length or rows.length}
    letters["p"] = rows.slots or max(1, round(MASK_RATE * rows.length))
    letters["k"] = None
    examples = dict(model.example_inputs())
    if not isinstance(model, (PermutationLM, SpanBoundary)) and not getattr(model, "PARTS", ()):
        examples = {key: x for key, x in examples.items() if key not in QUERY_STREAM}
    shapes = {}
    for key, x in examples.items():
        known = [letters.get(letter) for letter in BATCH_KEYS[key].shape]
        sizes = tuple(size or own for size, own in zip(known, x.shape[-len(known) :], strict=True))
        several = (CHOICES,) if isinstance(model, MultipleChoice) else tuple(x.shape[1 : len(x.shape) - len(known) + 1])
        shapes[key] = (sizes[0], *several, *sizes[1:])
    if isinstance(model, (MaskedLM, Distillation, KnowledgeTransfer)):
        shapes["masked_positions"] = (rows.count, letters["p"])
    return shapes


def dtype_of(key: str) -> str:
    """Returns the dtype of a batch key."""
    return {"mask": "bool"}.get(BATCH_KEYS[key].kind, "int32")


# === Weights ===


def weights_by_part(model) -> dict[str, int]:
    """Returns {part: number of weights} for a model: embeddings, blocks, layers after the blocks, and each head."""
    found, seen = {}, set()

    def add(part, variables):
        new = {id(v): v for v in variables if id(v) not in seen}
        seen.update(new)
        size = sum(math.prod(v.shape) for v in new.values())
        if size:
            found[part] = found.get(part, 0) + size

    halves = {name: getattr(model, name) for name in getattr(model, "PARTS", ())} or {"": model}
    for name, half in halves.items():
        prefix = f"{name}: " if name else ""
        backbone = getattr(half, "backbone", half)
        for part, variables in _backbone_parts(backbone):
            add(prefix + part, variables)
        if half is not backbone:
            for layer in all_layers(half, include_self=False, recursive=False):
                if not isinstance(layer, Backbone):
                    add(f"{prefix}head {layer.name}", layer.weights)
    add("others", model.weights)
    return found


def _backbone_parts(backbone):
    stages = backbone.stages()
    if stages is None:
        for layer in all_layers(backbone, include_self=False, recursive=False):
            yield layer.name, layer.weights
        return
    inside = {id(v) for stage in stages for layer in stage for v in layer.weights}
    after = [v for layer in backbone.layers_after_blocks() for v in layer.weights]
    others = inside | {id(v) for v in after}
    yield "embeddings", [v for v in backbone.weights if id(v) not in others]
    yield f"{len(stages)} block{'s' * (len(stages) > 1)}", [v for v in backbone.weights if id(v) in inside]
    yield "after the blocks", after
