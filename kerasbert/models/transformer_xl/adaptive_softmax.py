"""Embedding and softmax for a vocabulary that is divided into clusters, with fewer dimensions for rarer tokens.

Grave et al. 2016, arXiv 1609.04309 (the softmax); Baevski & Auli 2018, arXiv 1809.10853 (the embedding).
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ...core.registered import Config
from ...layers.composite import Layer

# Losses are computed in blocks of tokens. These are the minimum block size, and the maximum number of blocks, which
# limits the size of the compiled program.
BLOCK, MOST_BLOCKS = 1_024, 16


@dataclasses.dataclass(frozen=True)
class Clusters(Config):
    """The division of a vocabulary, sorted by decreasing frequency, into clusters.

    Args:
        bounds: the first token id of each cluster, followed by the size of the vocabulary.
        embedding_dim: width of the embeddings in the first cluster.
        divisor: factor by which the embeddings of each cluster are narrower than those of the previous cluster.
        hidden_dim: width m of the model.
        tied: one bool per cluster, True if the softmax shares the projection of the embedding.
    """

    bounds: tuple
    embedding_dim: int
    divisor: int
    hidden_dim: int
    tied: tuple

    def __post_init__(self):
        object.__setattr__(self, "bounds", tuple(self.bounds))
        object.__setattr__(self, "tied", tuple(self.tied))
        count = len(self.bounds) - 1
        if any(start >= stop for start, stop in zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            raise ValueError(
                "`cutoffs` must be strictly increasing, above 0 and below the vocabulary size. Received: "
                f"{self.bounds[1:-1]} for {self.bounds[-1]} tokens."
            )
        if len(self.tied) != count:
            raise ValueError(
                f"`tied_projections` must have an entry for each of {count} clusters. Received: {self.tied}."
            )
        if self.divisor < 1 or self.embedding_dim < self.divisor ** (count - 1):
            raise ValueError(
                f"`embedding_dim` must be at least embedding_divisor ** {count - 1} for {count} clusters. Received: "
                f"embedding_dim={self.embedding_dim}, embedding_divisor={self.divisor}."
            )

    def __iter__(self):
        """Yields (first token id, last token id + 1) of each cluster."""
        return zip(self.bounds[:-1], self.bounds[1:], strict=True)

    @property
    def tables(self):
        """List of the shape (tokens, width) of each embedding table.

        There is one table per cluster, or a single table if all clusters have the same width.
        """
        if self.divisor == 1:
            return [(self.bounds[-1], self.embedding_dim)]
        return [(stop - start, self.embedding_dim // self.divisor**i) for i, (start, stop) in enumerate(self)]

    @property
    def projected(self):
        """Whether embeddings are projected to the width of the model."""
        return self.divisor > 1 or self.embedding_dim != self.hidden_dim


class AdaptiveEmbedding(Layer):
    """Token embeddings of different widths for different clusters, projected to the width m of the model.

    Args:
        clusters: a `Clusters`.
        initializer: initializer of the embedding tables.
        projection_initializer: initializer of the projections.

    Call:
        token_ids: int32 (b, s).

    Returns: float (b, s, m), the embeddings multiplied by sqrt(m).
    """

    def __init__(self, clusters, initializer="normal", projection_initializer="normal", **kwargs):
        super().__init__(**kwargs)
        self.clusters = clusters
        self.initializer, self.projection_initializer = initializer, projection_initializer

    def build(self, ids_shape=None):
        sizes = self.clusters.tables
        self.tables = [
            self.add_weight(name=f"table_{i}", shape=size, initializer=self.initializer) for i, size in enumerate(sizes)
        ]
        options: dict[str, Any] = dict(initializer=self.projection_initializer)
        self.projections = [
            self.add_weight(name=f"projection_{i}", shape=(width, self.clusters.hidden_dim), **options)
            for i, (_, width) in enumerate(sizes)
            if self.clusters.projected
        ]

    def call(self, token_ids):
        start, parts = 0, []
        for i, table in enumerate(self.tables):
            stop = start + table.shape[0]
            inside = (token_ids >= start) & (token_ids < stop)
            part = ops.take(table, ops.where(inside, token_ids - start, 0), axis=0)
            if self.projections:
                part = ops.matmul(part, self.projections[i])
            parts.append(ops.where(inside[..., None], part, 0))
            start = stop
        return sum(parts[1:], parts[0]) * self.clusters.hidden_dim**0.5


class AdaptiveSoftmax(Layer):
    """Log probabilities of tokens, computed in two steps.

    The first softmax covers the tokens of the first cluster, and one entry for each other cluster as a whole. For a
    token in another cluster, a second softmax covers the tokens of that cluster. The embedding tables are used as
    output weights.

    Args:
        clusters: a `Clusters`.
        initializer: initializer of the output weights for the entries of whole clusters.
        projection_initializer: initializer of the projections that are not tied.

    Call:
        x: float (b, s, m), hidden states.
        table: dict of the lists `tables` and `projections` of the `AdaptiveEmbedding`.
        labels: int32 (b, s), or None. If given, only the losses of these tokens are computed. Clusters to which no
            label belongs are skipped, which makes large vocabularies affordable.

    Returns: log probabilities, float32 (b, s, v). With `labels`, a tuple of two arrays, float32 (b, s), instead: the
        losses (negative log probabilities) of the labels; and hits, which are 1 for labels that are the most likely
        choice in both steps, otherwise 0.
    """

    def __init__(self, clusters, initializer="normal", projection_initializer="normal", **kwargs):
        super().__init__(**kwargs)
        self.clusters = clusters
        self.initializer, self.projection_initializer = initializer, projection_initializer

    def build(self, x_shape=None, table_shape=None):
        clusters, sizes = self.clusters, self.clusters.tables
        self.biases = [
            self.add_weight(name=f"bias_{i}", shape=(rows,), initializer="zeros") for i, (rows, _) in enumerate(sizes)
        ]
        self.projections = [None] * len(clusters.tied)
        for i, tied in enumerate(clusters.tied):
            if clusters.projected and not tied:
                shape = (sizes[min(i, len(sizes) - 1)][1], clusters.hidden_dim)
                self.projections[i] = self.add_weight(
                    name=f"projection_{i}", shape=shape, initializer=self.projection_initializer
                )
        count = len(clusters.tied) - 1
        if count:
            shape = (count, clusters.embedding_dim)
            self.cluster_weight = self.add_weight(name="cluster_weight", shape=shape, initializer=self.initializer)
            self.cluster_bias = self.add_weight(name="cluster_bias", shape=(count,), initializer="zeros")

    @property
    def takes_labels(self):
        """Whether it is cheaper to compute only the losses of labels than the log probabilities of all tokens."""
        return len(self.clusters.tied) > 1

    def call(self, x, table, labels=None):
        clusters = list(self._weights(table))
        if labels is not None:
            return self._label_losses(x, labels, clusters)
        head, *tails = (_log_probabilities(x, *cluster) for cluster in clusters)
        frequent = self.clusters.bounds[1]
        parts = [head[..., :frequent]]
        for i, tail in enumerate(tails):
            parts.append(head[..., frequent + i : frequent + i + 1] + tail)
        return ops.concatenate(parts, axis=-1)

    def _label_losses(self, x, labels, clusters):
        """Computes losses and hits in blocks of tokens.

        The tokens are sorted by label, so that most blocks need the probabilities of only one cluster.
        """
        shape = [-1 if size is None else size for size in ops.shape(labels)]
        x, labels = ops.reshape(x, (-1, x.shape[-1])), ops.reshape(labels, (-1,))
        order = ops.argsort(labels)
        x, labels = ops.take(x, order, axis=0), ops.take(labels, order, axis=0)
        rows = x.shape[0]  # None in a TensorFlow graph of unknown size, where there is only one block
        size = None if rows is None else max(BLOCK, -(-rows // MOST_BLOCKS))
        blocks = [slice(0, None)] if rows is None else [slice(i, i + size) for i in range(0, rows, size)]
        weights = [[part for part in cluster if part is not None] for cluster in clusters]
        count, flat = len(weights[0]), [part for parts in weights for part in parts]
        # Log probabilities are recomputed for the gradients, because storing them would dominate the memory use.
        block = keras.remat(lambda *inputs: self._block_losses(*inputs[:2], _in_groups(inputs[2:], count)))
        found = [block(x[here], labels[here], *flat) for here in blocks]
        back = ops.argsort(order)
        return tuple(ops.reshape(ops.take(ops.concatenate(part), back), shape) for part in zip(*found, strict=True))

    def _block_losses(self, x, labels, weights):
        """Returns the losses and hits of one block, both float32 (n,), for x (n, m) and labels (n,)."""
        head, bounds = _log_probabilities(x, *weights[0]), self.clusters.bounds
        number = sum(ops.cast(labels >= bound, "int32") for bound in bounds[1:-1])
        losses, hits = _chosen(head, ops.where(number == 0, labels, bounds[1] + number - 1))
        nothing = ops.zeros_like(losses)
        for i, (start, stop) in enumerate(list(self.clusters)[1:], 1):
            here = (labels >= start) & (labels < stop)
            inside = ops.where(here, labels - start, 0)
            tail_losses, tail_hits = ops.cond(
                ops.any(here),
                lambda i=i, inside=inside: _chosen(_log_probabilities(x, *weights[i]), inside),
                lambda: (nothing, nothing),
            )
            losses = losses + ops.where(here, tail_losses, 0.0)
            hits = hits * ops.where(here, tail_hits, 1.0)
        return losses, hits

    def _weights(self, table):
        """Yields (weight, bias, projection) for each cluster, with v tokens and embeddings of width e.

        Shapes are (v, e), (v,) and (e, m); the projection may be None. The weight and bias of the first cluster have
        one more row for each of the other clusters.
        """
        tables, projections, biases = table["tables"], table["projections"], self.biases
        one_table = len(tables) == 1
        for i, (start, stop) in enumerate(self.clusters):
            number = 0 if one_table else i
            rows = slice(start, stop) if one_table else slice(None)
            weight, bias = tables[number][rows], ops.convert_to_tensor(biases[number])[rows]
            if i == 0 and len(self.clusters.tied) > 1:
                weight = ops.concatenate([weight, self.cluster_weight], axis=0)
                bias = ops.concatenate([bias, self.cluster_bias], axis=0)
            projection = None
            if self.clusters.projected:
                tied = self.clusters.tied[i]
                projection = ops.convert_to_tensor(projections[number] if tied else self.projections[i])
            yield weight, bias, projection


def _log_probabilities(x, weight, bias, projection=None):
    if projection is not None:
        x = ops.matmul(x, ops.transpose(projection))
    return ops.log_softmax(ops.cast(ops.matmul(x, ops.transpose(weight)) + bias, "float32"), axis=-1)


def _chosen(log_probabilities, labels):
    """Returns the losses of the labels, and 1 for labels that are the most likely choice, otherwise 0.

    Both are float32 (n,), for log probabilities (n, v) and labels (n,).
    """
    losses = -ops.take_along_axis(log_probabilities, labels[:, None], axis=-1)[:, 0]
    likeliest = ops.cast(ops.argmax(log_probabilities, axis=-1), labels.dtype)
    return losses, ops.cast(ops.equal(likeliest, labels), "float32")


def _in_groups(parts, size):
    return [parts[i : i + size] for i in range(0, len(parts), size)]
