"""Text embeddings: pooled hidden states of an encoder. Reads and writes sentence-transformers folders."""

import dataclasses
import inspect
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend.chunks import in_chunks
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
from ..retrieval.loss import SHORT, Loss, loss_of
from ..retrieval.similarity import unit
from ..retrieval.wrappers import AdaptiveLayer
from ..training.alternating import plain_optimizers
from ..training.convert import read_texts
from .poolings import POOLINGS, pooled
from .sentence_files import read_modules, read_pooling, read_settings, write_embedder
from .task import Task, as_rows, check_texts_together, zipped_columns


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Texts that are put before others.

    Args:
        texts: {name: text}, such as {"query": "query: ", "document": "passage: "}.
        default: the name of the prompt that `TextEmbedder.embed` uses by default. Default: none.
        pooled: whether the hidden states of a prompt's tokens are pooled with those of the text.
    """

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    default: str | None = None
    pooled: bool = True

    def __post_init__(self) -> None:
        if self.default is not None and self.default not in self.texts:
            raise ValueError(f"`default` must be one of the prompts, {self.texts}. Received: {self.default!r}.")

    def text(self, name: str | None = None) -> str:
        """Returns the text of a prompt, by default of the default one, or "" if there is none."""
        name = self.default if name is None else name
        if name is not None and name not in self.texts:
            raise ValueError(f"`prompt` must be one of {sorted(self.texts)}. Received: {name!r}.")
        return self.texts.get(name, "")


def prompts_of(prompts: Any) -> Prompts:
    """Returns a `Prompts`, from one, or from {name: text}, or from the dict of its fields; None gives none."""
    if isinstance(prompts, Prompts):
        return prompts
    prompts = dict(prompts or {})
    return Prompts(**prompts) if isinstance(prompts.get("texts"), dict) else Prompts(prompts)


def text_keys(token_ids: Any) -> Any:
    """Two numbers for each text, which are equal for equal texts: int32 (b, c, 2), or (b, 1, 2) for token ids (b, s).

    Equal numbers for different texts have a probability of 2^-64.
    """
    ids = ops.cast(token_ids, "int32")
    ids = ids[:, None] if len(ids.shape) == 2 else ids
    factors = np.random.default_rng(0).integers(-(2**31), 2**31, (2, ids.shape[-1]), dtype=np.int64)
    factors = ops.convert_to_tensor((factors | 1).astype("int32"))
    return ops.cast(ops.sum((ids[:, :, None] + 1) * factors, axis=-1), "int32")


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
        prompts: {name: text to put before each text}, such as {"query": "query: "}; or a `Prompts`, which also says
            which of them `embed` uses by default.
        objective: the training objective of `fit`, whose examples are tuples of texts: a loss of
            `kerasbert.retrieval`, such as CoSENT(scale=20), or its name, or a dict of its name and options. Short names
            are "ranking" (MultipleNegatives), "cosine" (CosineSimilarity), "triplet" and "classes" (PairClasses). Its
            docstring says how many texts an example has, and what `y` is. Default: no objective. `compile` then
            requires a loss on the vectors.
        truncate_dim: if given, vectors consist of their first `truncate_dim` components (Kusupati et al. 2022, arXiv
            2205.13147), which are not normalised again, as in sentence-transformers.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. `token_ids` may be (b, c, s) for examples of c texts. `prompt_lengths`, int (b,), is the number
            of tokens at the start of each row that are not pooled.

    Returns: float32 (b, embedding_dim), or (b, c, embedding_dim). Without `truncate_dim`, the dimension is the hidden
        size times the number of poolings. In training for an `AdaptiveLayer`, there is a vector for each layer, (b, c,
        layers + 1, embedding_dim).
    """

    SAVES = ("normalize", "max_length", "lowercase", "truncate_dim")
    SAVED_AS = {
        "pooling": Saved(str | list[str]),
        "truncate_dim": Saved(int | None, 1),
        "prompts": Saved(dict[str, str | dict[str, str] | bool | None] | None),
        "objective": Saved(str | dict | None, highest=10_000),
    }

    hub_task = "sentence-similarity"
    example_call = 'model.embed(["A first text.", "A second text."])'
    TRAINING_ONLY = ("pair_classifier",)
    extra_inputs = ("prompt_lengths",)
    needs_targets = False  # many objectives have no targets besides the order of the texts

    def __init__(
        self,
        backbone: Backbone,
        pooling: str | Sequence[str] = "mean",
        normalize: bool = False,
        max_length: int | None = None,
        lowercase: bool = False,
        prompts: Prompts | dict[str, str] | None = None,
        objective: Loss | str | dict[str, Any] | None = None,
        truncate_dim: int | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        names = [pooling] if isinstance(pooling, str) else list(pooling)
        if not names or not set(names) <= set(POOLINGS):
            raise ValueError(f"`pooling` must be one or several of {', '.join(POOLINGS)}. Received: {pooling!r}.")
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"`truncate_dim` must be at least 1. Received: {truncate_dim}.")
        self.truncate_dim = truncate_dim
        self.poolings = [name for name in POOLINGS if name in names]
        self.normalize = normalize
        limits = (getattr(backbone.config, "max_length", None), tokenizer and tokenizer.max_length, 512)
        self.max_length = self.row_length(max_length, min(limit for limit in limits if limit), shorten=True)
        self.lowercase = lowercase
        self.prompts = prompts_of(prompts)
        self.objective = None if objective is None else loss_of(objective)
        if self.reads_layers and "hidden_states" not in inspect.signature(backbone.call).parameters:
            raise ValueError(
                f"AdaptiveLayer needs a backbone that returns its hidden states. Received: {type(backbone).__name__}."
            )
        self._program = None
        self.pair_classifier = self.choices = None
        if self.objective is not None:
            self.pair_classifier = self.objective.make_layer(backbone.config.kernel_initializer())
            self.choices = keras.random.SeedGenerator(seed=0, name="choices") if self.objective.is_random else None
        self.build_now()

    @property
    def reads_layers(self) -> bool:
        """Whether the objective needs the vectors of all layers."""
        return isinstance(self.objective, AdaptiveLayer)

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector."""
        return min(len(self.poolings) * self._width, self.truncate_dim or math.inf)

    def example_inputs(self):
        inputs = super().example_inputs()
        if self.pair_classifier is None:
            return inputs
        return {key: np.stack([array] * self.objective.min_texts, axis=1) for key, array in inputs.items()}

    def call(self, inputs, training=None):
        if inputs.get("sequence_ids") is not None:
            raise ValueError(
                "A TextEmbedder computes one vector per row, so every row must hold a single text. Received: packed "
                "rows (`sequence_ids`)."
            )
        several = len(inputs["token_ids"].shape) == 3
        rows, texts = (as_rows(inputs), ops.shape(inputs["token_ids"])[1]) if several else (inputs, 1)
        if training and self.objective is not None:
            chunk = self.objective.chunk and self.objective.chunk * texts
            vectors = in_chunks(self._training_vectors, rows, chunk, self.backbone)
        else:
            vectors = self._pooled_output(self.backbone(super().inputs_of_backbone(rows)), rows)
        if not several:
            return vectors
        vectors = ops.reshape(vectors, (-1, texts, *vectors.shape[1:]))
        if self.pair_classifier is not None and not self.pair_classifier.built:
            self.pair_classifier(self.objective.features([vectors[:, i] for i in range(texts)]))
        return vectors

    def _training_vectors(self, rows):
        """The vectors of texts, float32 (b, m), or for an objective on all layers, (b, l, m)."""
        inputs = super().inputs_of_backbone(rows)
        if not self.reads_layers:
            return self._pooled_output(self.backbone(inputs, training=True), rows)
        outputs = self.backbone(inputs, hidden_states=True, training=True)
        states = [*outputs["hidden_states"][:-1], outputs["sequence_output"]]
        return ops.stack([self._pooled_output({"sequence_output": state}, rows) for state in states], axis=1)

    def _pooled_output(self, outputs, rows):
        """Pools the outputs of the backbone, (b, s, m), to vectors of the texts, float32 (b, m)."""
        x = ops.cast(outputs["sequence_output"], "float32")
        self._width = x.shape[-1]  # in ELMo, twice hidden_dim because of the two directions
        real = real_tokens(rows)
        real = ops.ones(ops.shape(x)[:2], "bool") if real is None else real
        lengths = rows.get("prompt_lengths")
        vectors = ops.concatenate([pooled(name, x, real, lengths) for name in self.poolings], axis=-1)
        if self.normalize:
            vectors = unit(vectors)
        return vectors if self.truncate_dim is None else vectors[:, : self.truncate_dim]

    def inputs_of_backbone(self, x):
        x = super().inputs_of_backbone(x)
        if not isinstance(x, dict) or len(getattr(x.get("token_ids"), "shape", ())) != 3:
            return x
        check_texts_together(x, "(b, c, s), for examples of c texts")
        return as_rows(x)

    # === Training ===

    def default_loss(self):
        if self.objective is None:
            raise ValueError(
                f"Training a TextEmbedder needs an objective: {', '.join(SHORT)}, or a loss of kerasbert.retrieval. "
                'Received: None. Use TextEmbedder.from_preset(path, objective="ranking"), or compile(optimizer, '
                "loss=...)."
            )
        return None

    def default_metrics(self):
        return None

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if self.objective is None:
            return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
        single = len(x["token_ids"].shape) == 2
        if self.reads_layers and len(y_pred.shape) == (2 if single else 3):  # evaluation: of the last layer only
            y_pred = ops.expand_dims(y_pred, -2)
        columns = [y_pred] if single else [y_pred[:, i] for i in range(y_pred.shape[1])]
        step = {"texts": text_keys(x["token_ids"]), "layer": self.pair_classifier}
        if training:
            step["number"] = plain_optimizers(self.optimizer)[0].iterations
            step["seed"] = self.choices
        return self.objective(columns, y, sample_weight, **step) / num_replicas()

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
        if self.objective is not None and (y is not None or shuffle):
            self.objective.check_texts(parts, batch_size)
            y = self.objective.read_labels(y, len(texts), many)
            y = np.zeros(len(texts), "float32") if y is None else y
        encoded = self.encode([text for part in parts for text in part])
        if many > 1:
            encoded = {key: array.reshape(len(texts), many, *array.shape[1:]) for key, array in encoded.items()}
        return self.bucketed_batches(encoded, y, sample_weight, batch_size, epochs, seed, shuffle)

    def array_targets(self, y):
        is_named = self.objective is not None and self.objective.targets == "classes"
        return indices_of(self.objective.labels, y) if is_named else y

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> np.ndarray:
        """Computes the vectors of texts. The order of the texts is kept.

        Internally, texts of similar length are put into the same batch, and batches are padded to a few fixed widths.

        Args:
            texts: a str, or a list of str.
            batch_size: number of texts per batch, for texts of 64 tokens. Batches of shorter texts are larger, and
                those of longer texts are smaller.
            prompt: the name of one of the prompts. Default: the default of `prompts`.

        Returns: numpy float32 (embedding_dim,), or (number of texts, embedding_dim).
        """
        texts = read_texts(texts, "embed")
        if isinstance(texts, str):
            return self.embed([texts], batch_size, prompt)[0]
        before = self.prompts.text(prompt)
        wrong = next((number for number, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise ValueError(f"Each text must be a str. Received: {texts[wrong]!r:.60}, as text {wrong}.")
        texts = [before + text for text in texts]
        vectors = np.zeros((len(texts), self.embedding_dim), "float32")
        if not texts:
            return vectors
        encoded = self.encode(texts)
        if before and not self.prompts.pooled:
            encoded["prompt_lengths"] = np.full(len(texts), self._prompt_length(before), "int32")
        self.check_batch(encoded)
        left = "padding_mask" in encoded
        exact = self.engine is not None or not compiles_shapes()
        parts = batches_by_length(row_lengths(encoded), batch_size, self.max_length, exact=exact)
        previous = None  # its vectors are fetched while the device computes the next ones
        for examples, rows, width in parts:
            batch = {}
            for key, array in encoded.items():
                array = array[examples] if array.ndim == 1 else resized(array[examples], width, left)
                batch[key] = np.pad(array, [(0, rows - len(examples)), *[(0, 0)] * (array.ndim - 1)])
            computed = examples, self._vectors_of(batch)
            if previous is not None:
                self._keep(vectors, *previous)
            previous = computed
        self._keep(vectors, *previous)
        return vectors

    def _prompt_length(self, prompt):
        """The number of tokens before the text: those of the prompt, and the special ones before it."""
        if self.engine is not None:
            raise ValueError(
                "Prompts that are not pooled need the layers. Received: a prompt for a model with an engine. Load the "
                "model without `engine`."
            )
        items = [item for item, _ in self.tokenizer.template()]
        return int(row_lengths(self.encode([prompt]))[0]) - (len(items) - 1 - items.index("A"))

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
        objective = None if self.objective is None else self.objective.config()
        prompts = dataclasses.asdict(self.prompts)
        return {"pooling": self.poolings, **super().arguments(), "prompts": prompts, "objective": objective}

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
        stored_pooling = read_pooling(pooling / "config.json", [flag for _, flag in POOLINGS.values()])
        stored = {
            "pooling": _stored_poolings(stored_pooling),
            "normalize": len(kinds) == 3,
            "max_length": settings.get("max_seq_length"),
            "lowercase": settings.get("do_lower_case") or False,
            "prompts": Prompts(
                {name: text for name, text in (prompts.get("prompts") or {}).items() if text is not None},
                prompts.get("default_prompt_name"),
                stored_pooling.get("include_prompt") is not False,
            ),
            "truncate_dim": prompts.get("truncate_dim"),
        }
        return encoder, {**stored, **constructor_arguments}

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except those of the encoder."""
        pooling = {"word_embedding_dimension": self._width, "include_prompt": self.prompts.pooled}
        pooling |= {flag: name in self.poolings for name, (_, flag) in POOLINGS.items()}
        lengths = {"max_seq_length": self.max_length, "do_lower_case": self.lowercase}
        prompts = {"prompts": self.prompts.texts, "default_prompt_name": self.prompts.default}
        truncation = {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}
        write_embedder(folder, self.normalize, pooling, lengths, {**prompts, **truncation})


def _stored_poolings(config):
    """Returns the poolings in the settings of a pooling module."""
    names = config.get("pooling_mode") or [name for name, (_, flag) in POOLINGS.items() if config.get(flag)]
    return names or "mean"
