"""Text embeddings: pooled hidden states of an encoder. Reads and writes sentence-transformers folders."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend.compilation import compiled, compiles_shapes
from ..backend.distribution import num_replicas
from ..checkpoints.arguments import Saved
from ..core.inputs import checked_inputs
from ..data.batches.bucketing import batches_by_length, resized, row_lengths
from ..data.tasks.examples import encode_texts
from ..data.tasks.labels import indices_of
from ..data.text.json_files import inside, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .poolings import POOLINGS
from .sentence_files import read_modules, read_pooling, read_settings, write_embedder
from .sentence_objectives import (
    OBJECTIVES,
    cosine_losses,
    objective_options,
    pair_features,
    ranking_losses,
    triplet_losses,
    unit,
)
from .task import Task, as_rows, check_texts_together, zipped_columns


@keras.saving.register_keras_serializable("kerasbert")
class TextEmbedder(Task):
    """Maps texts to vectors that can be compared by cosine similarity (Reimers, Gurevych 2019, arXiv 1908.10084).

    Mean pooling includes [CLS] and [SEP], but not padding. `from_preset` and `save_to_preset` read and write
    sentence-transformers folders; for any other folder of an encoder, the default is mean pooling.

    Args:
        backbone: an encoder.
        pooling: a name from `poolings.POOLINGS`, or a list of names. The vectors of several poolings are concatenated
            in the order of that table.
        normalize: whether the vectors are scaled to length 1.
        max_length: maximum number of tokens per text; longer texts are truncated. Default: the maximum length of the
            backbone and the tokenizer, at most 512.
        lowercase: whether texts are converted to lower case before tokenization.
        prompts: {name: text to put before each text}, such as {"query": "query: "}.
        default_prompt: the name of the prompt that `embed` uses by default.
        objective: the training objective of `fit`, whose examples are tuples of texts. Either a name, or a dict of
            `name` and options, such as {"name": "triplet", "margin": 0.5}:

            - "cosine": pairs with a score from -1 to 1, which is the target of their cosine similarity. For STS-B,
              divide the scores by 5.
            - "classes": pairs with a label, which a layer on [u; v; |u - v|] predicts. The layer is only used in
              training. The option `labels` is a list of the label names, or their number (default: 3).
            - "triplet": (anchor, positive, negative). The negative should be further from the anchor than the positive,
              by at least the option `margin` (default: 1, as in the paper).
            - "ranking": (anchor, positive), optionally with negatives. The model identifies the positive among all
              texts of the batch. The option `scale` is the factor of the cosine similarities in the softmax (default:
              20).

            Default: no objective. `compile` then requires a loss on the vectors.
        truncate_dim: if given, vectors consist of their first `truncate_dim` components (Kusupati et al. 2022, arXiv
            2205.13147), which are not normalised again, as in sentence-transformers.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. `token_ids` may be (b, c, s) for examples of c texts.

    Returns: float32 (b, embedding_dim), or (b, c, embedding_dim). Without `truncate_dim`, the dimension is the hidden
        size times the number of poolings.
    """

    SAVES = ("normalize", "max_length", "lowercase", "prompts", "default_prompt", "truncate_dim")
    SAVED_AS = {
        "pooling": Saved(str | list[str]),
        "truncate_dim": Saved(int | None, 1),
        "objective": Saved(str | dict[str, str | float | list[str | int | float | bool]] | None, highest=10_000),
    }

    hub_task = "sentence-similarity"
    example_call = 'model.embed(["A first text.", "A second text."])'
    TRAINING_ONLY = ("pair_classifier",)
    needs_targets = False  # triplets and rankings have no targets besides the order of the texts

    def __init__(
        self,
        backbone: Backbone,
        pooling: str | Sequence[str] = "mean",
        normalize: bool = False,
        max_length: int | None = None,
        lowercase: bool = False,
        prompts: dict[str, str] | None = None,
        default_prompt: str | None = None,
        objective: str | dict[str, Any] | None = None,
        truncate_dim: int | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        names = [pooling] if isinstance(pooling, str) else list(pooling)
        if not names or not set(names) <= set(POOLINGS):
            raise ValueError(f"`pooling` must be one or several of {', '.join(POOLINGS)}. Received: {pooling!r}.")
        if default_prompt is not None and default_prompt not in (prompts or {}):
            raise ValueError(f"`default_prompt` must be one of the prompts, {prompts}. Received: {default_prompt!r}.")
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"`truncate_dim` must be at least 1. Received: {truncate_dim}.")
        self.truncate_dim = truncate_dim
        self.poolings = [name for name in POOLINGS if name in names]
        self.normalize = normalize
        limits = (getattr(backbone.config, "max_length", None), tokenizer and tokenizer.max_length, 512)
        self.max_length = self.row_length(max_length, min(limit for limit in limits if limit), shorten=True)
        self.lowercase = lowercase
        self.prompts = dict(prompts or {})
        self.default_prompt = default_prompt
        self.objective_options = {"name": None} if objective is None else objective_options(objective)
        self.objective = self.objective_options["name"]
        self._program = None
        self.pair_classifier = None
        if self.objective == "classes":
            options = dict(kernel_initializer=backbone.config.kernel_initializer(), dtype="float32")
            count = len(self.objective_options["labels"])
            self.pair_classifier = keras.layers.Dense(count, name="pair_classifier", **options)
        self.build_now()

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector."""
        return min(len(self.poolings) * self._width, self.truncate_dim or math.inf)

    def example_inputs(self):
        inputs = super().example_inputs()
        return {k: np.stack([v, v], axis=1) for k, v in inputs.items()} if self.objective == "classes" else inputs

    def call(self, inputs):
        if inputs.get("sequence_ids") is not None:
            raise ValueError(
                "A TextEmbedder computes one vector per row, so every row must hold a single text. Received: packed "
                "rows (`sequence_ids`)."
            )
        if len(inputs["token_ids"].shape) == 3:
            vectors = self.call(as_rows(inputs))
            vectors = ops.reshape(vectors, (-1, ops.shape(inputs["token_ids"])[1], vectors.shape[-1]))
            if self.pair_classifier is not None and not self.pair_classifier.built:
                self.pair_classifier(pair_features(vectors))
            return vectors
        x = ops.cast(self.backbone(inputs)["sequence_output"], "float32")
        self._width = x.shape[-1]  # in ELMo, twice hidden_dim because of the two directions
        real = real_tokens(inputs)
        real = ops.ones(ops.shape(x)[:2], "bool") if real is None else real
        pooled = ops.concatenate([POOLINGS[name][0](x, real) for name in self.poolings], axis=-1)
        if self.normalize:
            pooled = unit(pooled)
        return pooled if self.truncate_dim is None else pooled[:, : self.truncate_dim]

    def inputs_of_backbone(self, x):
        if not isinstance(x, dict) or len(getattr(x.get("token_ids"), "shape", ())) != 3:
            return x
        check_texts_together(x, "(b, c, s), for examples of c texts")
        return as_rows(x)

    # === Training ===

    def default_loss(self):
        if self.objective is None:
            raise ValueError(
                f"Training a TextEmbedder needs an objective: {', '.join(OBJECTIVES)}. Received: None. Use "
                'TextEmbedder.from_preset(path, objective="ranking"), or compile(optimizer, loss=...).'
            )
        return None

    def default_metrics(self):
        return None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.objective is None:
            return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        weights = ops.ones(ops.shape(y_pred)[:1]) if sample_weight is None else ops.cast(sample_weight, "float32")
        if self.objective == "cosine":
            losses = cosine_losses(y_pred, y)
        elif self.objective == "classes":
            logits = self.pair_classifier(pair_features(y_pred))
            losses = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
        elif self.objective == "triplet":
            losses = triplet_losses(y_pred, self.objective_options["margin"])
        else:
            token_ids = ops.convert_to_tensor(x["token_ids"])
            losses = ranking_losses(y_pred, token_ids, weights, self.objective_options["scale"])
        total = ops.sum(weights)
        return ops.sum(losses * weights) / ops.where(total > 0, total, 1.0) / num_replicas()

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.objective is not None:
            return {metric.name: metric.result() for metric in self.metrics}
        return super().compute_metrics(x, y, y_pred, sample_weight)

    # === Text ===

    def encode(self, texts):
        if self.lowercase:
            texts = [t.lower() if isinstance(t, str) else tuple(part.lower() for part in t) for t in texts]
        return encode_texts(self.require_tokenizer(), texts, self.max_length)

    def examples_of(self, x):
        return zipped_columns(x)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of texts, or of tuples with as many texts as the objective requires.

        Args:
            y: the targets of the objective, if it has any.
        """
        texts = list(x)
        many = 1 if isinstance(texts[0], str) else len(texts[0])
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        if len({len(part) for part in parts}) > 1:
            wrong = next(i for i, part in enumerate(parts) if len(part) != many)
            raise ValueError(
                f"All examples must have the same number of texts. Received: {many} texts in example 0, "
                f"but {len(parts[wrong])} in example {wrong}."
            )
        least, most, _ = OBJECTIVES.get(self.objective, (1, None, {}))
        if shuffle and not least <= many <= (most or many):
            wanted = str(least) if least == most else f"{least} or more"
            raise ValueError(f"The objective {self.objective!r} needs {wanted} texts per example. Received: {many}.")
        encoded = self.encode([text for part in parts for text in part])
        if many > 1:
            encoded = {key: array.reshape(len(texts), many, *array.shape[1:]) for key, array in encoded.items()}
        if self.objective is not None and (y is not None or shuffle):
            y = self._targets(y, len(texts))
        return self.bucketed_batches(encoded, y, sample_weight, batch_size, epochs, seed, shuffle)

    def _targets(self, y, rows):
        if self.objective in ("triplet", "ranking"):
            if y is not None:
                raise ValueError(
                    f"The objective {self.objective!r} has no targets besides the texts. Received: y. Leave it out."
                )
            return np.zeros(rows, "float32")
        if y is None:
            raise ValueError(f"The objective {self.objective!r} needs targets. Received: y=None.")
        if self.objective == "classes":
            return indices_of(self.objective_options["labels"], y)
        scores = np.asarray(y, "float32").reshape(-1)
        wrong = scores[~(np.abs(scores) <= 1)]
        if len(wrong):
            raise ValueError(f"Scores must lie between -1 and 1. Received: {wrong[0]}. Divide them by the maximum.")
        return scores

    def array_targets(self, y):
        return indices_of(self.objective_options["labels"], y) if self.objective == "classes" else y

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> np.ndarray:
        """Computes the vectors of texts. The order of the texts is kept.

        Internally, texts of similar length are put into the same batch, and batches are padded to a few fixed widths.

        Args:
            texts: a str, or a list of str.
            batch_size: number of texts per batch, for texts of 64 tokens. Batches of shorter texts are larger, and
                those of longer texts are smaller.
            prompt: the name of one of the prompts. Default: `default_prompt`.

        Returns: numpy float32 (embedding_dim,), or (number of texts, embedding_dim).
        """
        texts = read_texts(texts, "embed")
        if isinstance(texts, str):
            return self.embed([texts], batch_size, prompt)[0]
        prompt = self.default_prompt if prompt is None else prompt
        if prompt is not None and prompt not in self.prompts:
            raise ValueError(f"`prompt` must be one of {sorted(self.prompts)}. Received: {prompt!r}.")
        wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"Each text must be a str. Received: {texts[wrong]!r:.60}, as text {wrong}.")
        texts = [self.prompts.get(prompt, "") + text for text in texts]
        vectors = np.zeros((len(texts), self.embedding_dim), "float32")
        if not texts:
            return vectors
        encoded = self.encode(texts)
        self.check_batch(encoded)
        left = "padding_mask" in encoded
        exact = self.engine is not None or not compiles_shapes()
        parts = batches_by_length(row_lengths(encoded), batch_size, self.max_length, exact=exact)
        before = None  # the previous batch; its vectors are fetched while the device computes the next one
        for examples, rows, width in parts:
            batch = {}
            for key, array in encoded.items():
                array = array[examples] if array.ndim == 1 else resized(array[examples], width, left)
                batch[key] = np.pad(array, [(0, rows - len(examples)), *[(0, 0)] * (array.ndim - 1)])
            computed = examples, self._vectors_of(batch)
            if before is not None:
                self._keep(vectors, *before)
            before = computed
        self._keep(vectors, *before)
        return vectors

    def _vectors_of(self, batch):
        """Starts computing the vectors of a batch, by one program per shape, without waiting for the device."""
        if self.engine is not None:
            return self.engine(batch)
        if self._program is None:
            self._program = compiled(lambda batch: self(batch, training=False), lambda: self.weights, waits=False)
        with checked_inputs():
            return self._program(batch)

    @staticmethod
    def _keep(vectors, examples, computed):
        vectors[examples] = ops.convert_to_numpy(computed)[: len(examples)]

    # === Folders ===

    def arguments(self):
        objective = None if self.objective is None else self.objective_options
        return {"pooling": self.poolings, **super().arguments(), "objective": objective}

    @classmethod
    def open_folder(cls, folder, constructor_arguments):
        """Reads files of sentence-transformers, if any. Returns (folder of the encoder, constructor arguments)."""
        if not (folder / "modules.json").exists():
            return folder, constructor_arguments
        modules = read_modules(folder)
        kinds = [module["type"].rpartition(".")[2] for module in modules]
        if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            raise ValueError(
                "A sentence-transformers folder must have a Transformer module, a Pooling module and optionally a "
                f"Normalize module. Received: {folder} with {shortened(kinds)}."
            )
        encoder, pooling = (inside(folder, module["path"], folder / "modules.json") for module in modules[:2])
        settings, prompts = read_settings(encoder, folder)
        stored = {
            "pooling": _stored_pooling(pooling / "config.json"),
            "normalize": len(kinds) == 3,
            "max_length": settings.get("max_seq_length"),
            "lowercase": settings.get("do_lower_case") or False,
            "prompts": {name: text for name, text in (prompts.get("prompts") or {}).items() if text is not None},
            "default_prompt": prompts.get("default_prompt_name"),
            "truncate_dim": prompts.get("truncate_dim"),
        }
        return encoder, {**stored, **constructor_arguments}

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except those of the encoder."""
        pooling = {"word_embedding_dimension": self._width}
        pooling |= {flag: name in self.poolings for name, (_, flag) in POOLINGS.items()}
        lengths = {"max_seq_length": self.max_length, "do_lower_case": self.lowercase}
        prompts = {"prompts": self.prompts, "default_prompt_name": self.default_prompt}
        truncation = {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}
        write_embedder(folder, self.normalize, pooling, lengths, {**prompts, **truncation})


def _stored_pooling(path):
    config = read_pooling(path, [flag for _, flag in POOLINGS.values()])
    if config.get("include_prompt") is False:
        raise ValueError(f"Pooling must include the prompts (`include_prompt`: true). Received: false in {path}.")
    names = config.get("pooling_mode") or [name for name, (_, flag) in POOLINGS.items() if config.get(flag)]
    return names or "mean"
