"""Skip-gram: learns word vectors by distinguishing the context words of a word from random words."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from .objective import Objective, WeightedMean


@keras.saving.register_keras_serializable("kerasbert")
class SkipGram(Objective):
    """Skip-gram with negative sampling (Mikolov et al. 2013, arXiv 1310.4546, section 2.2).

    For a word vector v, the loss is -log sigmoid(u v) for the context vector u of a nearby word, plus
    -log sigmoid(-u v) for the context vector u of each random word. The word vectors are weights of the backbone. The
    context vectors are weights of the head. The loss of a batch is the mean over its rows. `SkipGramBatches` creates
    batches.

    Args:
        backbone: a `WordVectors`.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch with `token_ids` (b, 1), the words, and `context_ids` (b, 1 + n), for each word a nearby word,
            followed by n random words.

    Returns: logits, float (b, 1 + n). The targets y are 1 for nearby words and 0 for random words.

    Raises:
        ValueError: if the backbone has no `skip_gram` head, or a batch has no `context_ids`.

    Example:
        >>> from kerasbert.data import Corpus, SkipGramBatches, Tokenizer
        >>> from kerasbert.models import WordVectors, WordVectorsConfig
        >>> from kerasbert.objectives import SkipGram
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["the cat sat on the mat", "a dog ran home"] * 8, tokenizer)
        >>> model = SkipGram(WordVectors(WordVectorsConfig(8192, hidden_dim=16)), tokenizer=tokenizer)
        >>> history = model.fit(SkipGramBatches(corpus, batch_size=8, steps=4), verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'loss']
    """

    default_learning_rate = 1e-3

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        super().__init__(backbone, tokenizer, **kwargs)
        self.skip_gram = backbone.make_head("skip_gram")
        self.accuracy = WeightedMean(name="accuracy")
        self.build_now()

    def example_inputs(self):
        return {"token_ids": np.zeros((1, 1), "int32"), "context_ids": np.zeros((1, 2), "int32")}

    def call(self, inputs):
        return self.skip_gram(self.backbone(inputs)["sequence_output"][:, 0], inputs["context_ids"])

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        logits, near = ops.cast(y_pred, "float32"), ops.cast(y, "float32")
        weights = ops.ones_like(logits)
        if sample_weight is not None:
            given = ops.cast(sample_weight, "float32")
            weights = weights * (given[:, None] if len(given.shape) == 1 else given)
        pairs = weights[:, 0]
        losses = ops.softplus((1 - 2 * near) * logits)
        right = ops.cast((logits > 0) == (near > 0), "float32")
        self.accuracy.update_state(right, weights)
        losses = ops.sum(weights * losses, axis=1) / ops.where(pairs > 0, pairs, 1.0)
        return self.mean_loss(x, losses, pairs)

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if x.get("context_ids") is None:
            raise ValueError(f"Skip-gram needs `context_ids`. Received: {sorted(x)}. Use `SkipGramBatches`.")

    def target_shapes(self, x):
        return {} if x.get("context_ids") is None else {"near": x["context_ids"].shape}
