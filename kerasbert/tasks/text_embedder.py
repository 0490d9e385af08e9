"""Text embeddings: pooled hidden states of an encoder. Reads and writes sentence-transformers folders."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.tasks.prompts import Prompts
from ..data.text.json_files import read_json
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..retrieval.loss import Loss
from ..retrieval.wrappers import AdaptiveLayer
from . import dense_modules
from .embedder import Embedder, in_training
from .poolings import Pooling, parsed_poolings
from .sentence_transformers.encoder import read_encoder, write_encoder
from .sentence_transformers.model import read_model, write_model
from .sentence_transformers.modules import OLD_TYPE
from .vector_layers import Normalize, VectorLayer, width_after


@keras.saving.register_keras_serializable("kerasbert")
class TextEmbedder(Embedder):
    """Maps texts to vectors that can be compared by cosine similarity (Reimers, Gurevych 2019, arXiv 1908.10084).

    Mean pooling includes [CLS] and [SEP], but not padding. `from_preset` and `save_to_preset` read and write
    sentence-transformers folders. For any other folder of an encoder, the default is mean pooling.

    Args:
        backbone: an encoder.
        pooling: "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken". The vectors of a list of
            these are concatenated. A list may also have layers: ["mean", Dense(128), LayerNorm()]. Layers before the
            names are applied to the hidden states of the tokens, and layers after them to the vectors. The layers are
            `Dense`, `LayerNorm`, `Normalize` and `Dropout`.
        normalize: whether the vectors are scaled to length 1; short for a `Normalize` at the end of `pooling`.
        max_length: maximum number of tokens per text; longer texts are truncated. Default: the maximum length of the
            backbone and the tokenizer, at most 512.
        lowercase: whether texts are converted to lower case before tokenization.
        prompts: {name: text to put before each text}, such as {"query": "query: "}. A `Prompts` also says which of them
            `embed` uses by default.
        objective: the training objective of `fit`, whose examples are tuples of texts. It is a loss of
            `kerasbert.retrieval`, such as CoSENT(scale=20), or its name, or a dict of its name and options. Short names
            are "ranking" (MultipleNegatives), "cosine" (CosineSimilarity), "triplet" and "classes" (PairClasses). The
            docstring of the loss says how many texts an example has, and what `y` is. Default: no objective. `compile`
            then requires a loss on the vectors.
        truncate_dim: if given, vectors consist of their first `truncate_dim` components (Kusupati et al. 2022, arXiv
            2205.13147). As in sentence-transformers, they are not normalized again.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        **kwargs: `name`, `dtype` and `similarity`. The last is how the method `similarity` compares vectors: "cosine"
            (the default), "dot", or the negated distances "euclidean" and "manhattan".

    Call:
        inputs: a batch. `token_ids` may be (b, c, s) for examples of c texts. `prompt_lengths`, int (b,), is the number
            of tokens at the start of each row that are not pooled.

    Returns: float32 (b, embedding_dim), or (b, c, embedding_dim). Without `truncate_dim` and layers, the dimension is
        the hidden size times the number of poolings. In training for an `AdaptiveLayer`, there is a vector for each
        layer, (b, c, layers + 1, embedding_dim).

    Raises:
        ValueError: if `pooling`, `objective` or `similarity` is unknown, `max_length` or `truncate_dim` is below 1, or
            an `AdaptiveLayer` needs hidden states that the backbone does not return.

    Example:
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder")
        >>> documents = ["The parcel has not arrived.", "How do I reset my password?"]
        >>> vectors = model.embed_documents(documents)
        >>> vectors.shape
        (2, 256)
        >>> scores = model.similarity(model.embed_queries(["I forgot my password."]), vectors)
        >>> documents[scores[0].argmax()]
        'How do I reset my password?'
    """

    SAVES = (*Embedder.SAVES, "normalize", "truncate_dim")
    SAVED_AS = {"pooling": Saved(str | list[str | dict]), "truncate_dim": Saved(int | None, 1)}
    KEPT_APART = ("pooling",)
    skips_prompts = True

    hub_task = "sentence-similarity"
    in_sentence_transformers = ("SentenceTransformer", 'encode(["A first text.", "A second text."]).shape')
    example_call = 'model.embed(["A first text.", "A second text."])'

    def __init__(
        self,
        backbone: Backbone,
        pooling: str | Sequence[str | VectorLayer] = "mean",
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
        before, self.poolings, after = parsed_poolings(pooling)
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"`truncate_dim` must be at least 1. Received: {truncate_dim}.")
        self.truncate_dim = truncate_dim
        self.normalize = normalize or after[-1:] == [Normalize()]
        after = after[:-1] if after[-1:] == [Normalize()] else after
        self.records = before, [*after, *([Normalize()] if self.normalize else [])]  # of tokens, of vectors
        parts = [*_configs(before), *self.poolings, *_configs(self.records[1])]
        self.pooling = Pooling(parts, name="pooling")
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
        width = width_after(self.records[1], len(self.poolings) * width_after(self.records[0], self.encoder_width))
        return min(width, self.truncate_dim or width)

    @property
    def encoder_width(self) -> int:
        """Number of components of a hidden state; in ELMo twice `hidden_dim`, because of the two directions."""
        return self._width

    def vectors_of_rows(self, rows, training=False):
        inputs = self.inputs_of_backbone(rows)
        if not training or not self.reads_layers:
            return self._pooled_output(self.outputs_of_backbone(inputs, training), rows, training)
        outputs = self.outputs_of_backbone(inputs, training, hidden_states=True)
        states = [*outputs["hidden_states"][:-1], outputs["sequence_output"]]
        return ops.stack([self._pooled_output({"sequence_output": state}, rows, training) for state in states], axis=1)

    def columns(self, vectors, x):
        if self.reads_layers and len(vectors.shape) == 3:  # evaluation: of the last layer only
            vectors = vectors[:, :, None]
        return super().columns(vectors, x)

    def _pooled_output(self, outputs, rows, training):
        """Pools the outputs of the backbone, (b, s, m), to vectors of the texts, float32 (b, m)."""
        x = outputs["sequence_output"]
        self._width = x.shape[-1]
        real = real_tokens(rows)
        real = ops.ones(ops.shape(x)[:2], "bool") if real is None else real
        vectors = self.pooling(x, real, rows.get("prompt_lengths"), **in_training(training))
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

        Raises:
            ValueError: if a text is no str, `prompt` has the name of no prompt, or the model has no tokenizer.
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
        row = self.encode([prompt])
        row = row["token_ids"][0][row["padding_mask"][0]] if "padding_mask" in row else row["token_ids"][0]
        return len(row) - int(row[-1] in self.tokenizer.special_ids)  # the last one stands after the text

    # === Folders ===

    def arguments(self):
        after = self.records[1][:-1] if self.normalize else self.records[1]
        parts = [*_configs(self.records[0]), *self.poolings, *_configs(after)]
        return {"pooling": parts, **super().arguments()}

    @classmethod
    def open_folder(cls, folder, constructor_arguments):
        """Reads files of sentence-transformers, if any. Returns (folder of the encoder, constructor arguments)."""
        if not (folder / "modules.json").exists():
            return folder, constructor_arguments
        model = read_model(folder, _types_of_others(folder))
        encoder = read_encoder(model.modules[0])
        chain = dense_modules.read_chain(model)
        stored = {
            "pooling": chain.parts,
            "normalize": chain.normalize,
            "max_length": encoder.max_length,
            "lowercase": encoder.lowercase,
            "prompts": dataclasses.replace(model.prompts, pooled=chain.pools_prompts),
            "truncate_dim": model.truncate_dim,
            "similarity": model.similarity or "cosine",
        }
        return encoder.folder, {**stored, **constructor_arguments}

    @classmethod
    def read_apart(cls, folder):
        return dense_modules.read_weights_of(folder) if (folder / "modules.json").exists() else []

    def fill_apart(self, found, allow_nan):
        dense_modules.fill(self, found, allow_nan)

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except those of the encoder."""
        write_encoder(folder, self.max_length, self.lowercase)
        write_model(folder, "SentenceTransformer", self.prompts, self.similarity_name, truncate_dim=self.truncate_dim)
        dense_modules.write(self, folder, [(OLD_TYPE.format("Transformer"), "")])


def _configs(records):
    return [record.config() for record in records]


def _types_of_others(folder):
    """Returns {type of a module: the class of sentence-transformers} for code of others that a folder uses.

    The encoder of jina-embeddings-v3 chooses an adapter for each text. Here, the adapter is chosen when the folder is
    loaded, which leaves an ordinary Transformer.
    """
    path = folder / "config.json"
    adapted = path.is_file() and "lora_adaptations" in read_json(path)
    return {"custom_st.Transformer": "Transformer"} if adapted else {}
