"""Unsupervised SimCSE: a text is recognized among others by the embedding that it has with other dropout."""

from typing import Any

import keras
from keras import ops

from ..checkpoints.arguments import Saved
from ..core.initializers import truncated_normal
from ..data import Batches, Corpus, WholeTextBatches
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.dense import Dense
from ..models.backbone import Backbone
from .objective import Objective, WeightedMean, cross_entropy, predicted_correctly
from .retro_mae import check_first_tokens

PADDING_SCORE = -1e9  # of padding rows, which are no candidates


@keras.saving.register_keras_serializable("kerasbert")
class SimCSE(Objective):
    """Trains the output at the first token to be an embedding of the text (Gao, Yao, Chen 2021, arXiv 2104.08821).

    Every text is read twice in one batch, with different dropout. The loss is the cross-entropy of finding the second
    embedding of a text among the second embeddings of all texts, from cosine similarities divided by `temperature`.
    Embeddings pass through a dense layer with tanh. Saved folders contain only the backbone, without this layer. A
    `TextEmbedder` with pooling="cls" starts from them.

    The backbone must have dropout, because otherwise both embeddings of a text are the same. For embeddings that are
    trained on pairs of texts, use a `TextEmbedder`.

    Args:
        backbone: an encoder.
        temperature: temperature of the similarities, 0.05 in the paper.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch of `WholeTextBatches`.

    Returns: similarities, float32 (b, b), of the first embedding of each text with the second embedding of each text.
        The target of a row is its own place. The values of y, int32 (b,), do not count.

    Raises:
        ValueError: if `temperature` is not above 0, the backbone does not predict masked tokens, or it has no dropout.
            In training, if all batches have a single text.

    Example:
        >>> from kerasbert.data import Corpus, WholeTextBatches
        >>> from kerasbert.objectives import SimCSE
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = SimCSE.from_preset("bert_mini_en", dropout=0.1)
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, model.tokenizer)
        >>> history = model.fit(WholeTextBatches(corpus, batch_size=4, length=16, steps=2), verbose=0)
        >>> model.save_to_preset("saved_models/simcse")
        >>> TextEmbedder.from_preset("saved_models/simcse", pooling="cls").embed(["A cat sat."]).shape
        (1, 256)
    """

    SAVES = ("temperature",)
    SAVED_AS = {"temperature": Saved(float, 0.0)}
    TRAINING_ONLY = ("projection",)
    default_learning_rate = 3e-5

    def __init__(
        self, backbone: Backbone, temperature: float = 0.05, tokenizer: Tokenizer | None = None, **kwargs: Any
    ):
        if not temperature > 0:
            raise ValueError(f"`temperature` must be above 0. Received: {temperature}.")
        if isinstance(backbone, Backbone) and not _is_encoder(backbone):
            causal = " with causal=True" if getattr(backbone.config, "causal", False) else ""
            raise ValueError(
                "SimCSE needs an encoder that predicts masked tokens, such as Bert or ModernBert. Received: a "
                f"{type(backbone).__name__}{causal}."
            )
        if isinstance(backbone, Backbone) and backbone.stages() is not None and not _has_dropout(backbone.config):
            raise ValueError(
                "SimCSE compares two embeddings of a text that differ by dropout. Received: a "
                f"{type(backbone).__name__} without dropout. Set {_dropout_names(backbone.config)}."
            )
        super().__init__(backbone, tokenizer, **kwargs)
        self.temperature = float(temperature)
        start: Any = truncated_normal(getattr(backbone.config, "initializer_range", 0.02))
        self.projection = Dense(
            backbone.config.hidden_dim,
            "tanh",
            kernel_initializer=start,
            name="projection",
            dtype=self.dtype_policy,
        )
        self.accuracy = WeightedMean(name="accuracy")
        self.contrastive_loss = WeightedMean(name="contrastive_loss")
        self.build_now()

    def call(self, inputs):
        twice = {key: ops.concatenate([array, array]) for key, array in inputs.items() if array is not None}
        x: Any = ops.cast(self.projection(self.backbone.summarize(twice)["sequence_output"][:, 0]), "float32")
        x = x / ops.maximum(ops.norm(x, axis=-1, keepdims=True), 1e-8)
        halves: Any = ops.split(x, 2)
        scores: Any = ops.matmul(halves[0], ops.transpose(halves[1]))
        return scores / self.temperature

    def compute_loss(self, x: Any = None, y=None, y_pred=None, sample_weight=None, training=True):
        weights: Any = ops.ones_like(y, "float32") if sample_weight is None else ops.cast(sample_weight, "float32")
        scores = ops.where(weights[None, :] > 0, y_pred, PADDING_SCORE)
        y = ops.subtract(ops.cumsum(ops.ones_like(y)), 1)  # mixtures number the rows of each corpus apart
        losses = cross_entropy(scores, y)
        self.contrastive_loss.update_state(losses, weights)
        self.accuracy.update_state(predicted_correctly(scores, y), weights)
        return self.mean_loss(x, losses, weights)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        if isinstance(x, Batches):
            _check_batch_size(x.batch_size)
        return super().fit(x, *args, **kwargs)

    # === Text ===

    def check_training(self, x, y, batch_size):
        _check_batch_size(min(batch_size, len(x)))

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns `WholeTextBatches` for texts, each of which is one document."""
        if y is not None:
            raise ValueError("Unsupervised SimCSE has no targets. Received: y. Use a TextEmbedder.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(self.backbone.config.max_length, 128)
        once = WholeTextBatches(corpus, batch_size, length, seed)
        return once if epochs == 1 else WholeTextBatches(corpus, batch_size, length, seed, steps=len(once) * epochs)

    # === Checks and configuration ===

    def target_shapes(self, x):
        return {"tokens": x["token_ids"].shape[:1]}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        check_first_tokens(x, "SimCSE")

    def variant(self):
        return "Backbone"


def _check_batch_size(size):
    """Raises a ValueError for batches in which a text has no other one. The last batch of a run may be smaller."""
    if size == 1:
        raise ValueError("SimCSE compares the texts of a batch. Received: one text. Use a larger batch_size.")


def _is_encoder(backbone):
    return "masked_lm" in backbone.family.heads and not getattr(backbone.config, "causal", False)


def _dropout_rates(config):
    """The names of the rates of dropout in a config, other than that of classifiers."""
    return [name for name in vars(config) if name.endswith("dropout") and name != "classifier_dropout"]


def _has_dropout(config):
    return any(getattr(config, name) for name in _dropout_rates(config))


def _dropout_names(config):
    """How to set them: "dropout=0.1, or with a recipe, --set model.dropout=0.1"."""
    names = _dropout_rates(config)
    given = " or ".join(f"{name}=0.1" for name in names) or "a rate of dropout"
    return f"{given}, or with a recipe, --set model.{names[0]}=0.1" if names else given
