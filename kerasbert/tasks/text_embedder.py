"""Text embeddings: pooled hidden states of an encoder. Reads and writes sentence-transformers folders."""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.batches.bucketing import row_lengths
from ..data.text.json_files import inside, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..retrieval.loss import Loss
from ..retrieval.similarity import unit
from ..retrieval.wrappers import AdaptiveLayer
from .embedder import Embedder
from .poolings import POOLINGS, pooled
from .prompts import Prompts
from .sentence_files import read_modules, read_pooling, read_settings, write_embedder


@keras.saving.register_keras_serializable("kerasbert")
class TextEmbedder(Embedder):
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

    SAVES = (*Embedder.SAVES, "normalize", "truncate_dim")
    SAVED_AS = {"pooling": Saved(str | list[str]), "truncate_dim": Saved(int | None, 1)}

    hub_task = "sentence-similarity"
    example_call = 'model.embed(["A first text.", "A second text."])'

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
        super().__init__(backbone, max_length, lowercase, prompts, objective, tokenizer, **kwargs)
        names = [pooling] if isinstance(pooling, str) else list(pooling)
        if not names or not set(names) <= set(POOLINGS):
            raise ValueError(f"`pooling` must be one or several of {', '.join(POOLINGS)}. Received: {pooling!r}.")
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"`truncate_dim` must be at least 1. Received: {truncate_dim}.")
        self.truncate_dim = truncate_dim
        self.poolings = [name for name in POOLINGS if name in names]
        self.normalize = normalize
        if self.reads_layers and "hidden_states" not in inspect.signature(backbone.call).parameters:
            raise ValueError(
                f"AdaptiveLayer needs a backbone that returns its hidden states. Received: {type(backbone).__name__}."
            )
        self.build_now()

    @property
    def reads_layers(self) -> bool:
        """Whether the objective needs the vectors of all layers."""
        return isinstance(self.objective, AdaptiveLayer)

    @property
    def embedding_dim(self) -> int:
        """Number of components of a vector."""
        return min(len(self.poolings) * self._width, self.truncate_dim or math.inf)

    def vectors_of_rows(self, rows, training=False):
        inputs = self.inputs_of_backbone(rows)
        if not training or not self.reads_layers:
            return self._pooled_output(self.backbone(inputs, training=training), rows)
        outputs = self.backbone(inputs, hidden_states=True, training=True)
        states = [*outputs["hidden_states"][:-1], outputs["sequence_output"]]
        return ops.stack([self._pooled_output({"sequence_output": state}, rows) for state in states], axis=1)

    def columns(self, vectors, x):
        if self.reads_layers and len(vectors.shape) == 3:  # evaluation: of the last layer only
            vectors = vectors[:, :, None]
        return super().columns(vectors, x)

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

    # === Text ===

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
        if isinstance(texts, str):
            return self.embed([texts], batch_size, prompt)[0]
        texts, before = self._checked_texts(texts, prompt)
        vectors = np.zeros((len(texts), self.embedding_dim), "float32")
        if not texts:
            return vectors
        encoded = self.encode(texts)
        if before and not self.prompts.pooled:
            encoded["prompt_lengths"] = np.full(len(texts), self._prompt_length(before), "int32")
        for examples, computed in self._computed(encoded, batch_size):
            vectors[examples] = computed
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

    # === Folders ===

    def arguments(self):
        return {"pooling": self.poolings, **super().arguments()}

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
