"""Static embeddings: the mean of one vector for each token, without an encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.tasks.prompts import Prompts
from ..data.text.json_files import VOCABULARY_LIMIT, check_types, read_json
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.word_vectors import WordVectors, WordVectorsConfig
from ..retrieval.loss import Loss
from . import dense_modules
from .sentence_transformers.encoder import NO_LIMIT
from .sentence_transformers.model import read_model, write_model
from .sentence_transformers.modules import OLD_TYPE
from .text_embedder import TextEmbedder
from .unmarked import encode_unmarked, unmarked_rows
from .vector_layers import VectorLayer, vector_layer

TEXTS_AT_A_TIME = 512  # whose vectors are added up together


@keras.saving.register_keras_serializable("kerasbert")
class StaticEmbedder(TextEmbedder):
    """Maps texts to the means of the vectors of their tokens, which are looked up in a table.

    Training with `MultipleNegatives` in a `Matryoshka` gives vectors for search that a CPU computes 100 to 400 times as
    fast as the vectors of a small encoder (Aarsen 2025, "Train 400x faster static embedding models"). The table is
    random, or comes from trained `WordVectors`, or is distilled from an encoder by `distil`. `from_preset` and
    `save_to_preset` read and write folders of sentence-transformers. `from_preset` also reads folders of model2vec.

    Args:
        backbone: a `WordVectors`.
        layers: layers that are applied to the mean: `Dense`, `LayerNorm`, `Normalize`, `Dropout`.
        normalize: whether the vectors are scaled to length 1 at the end.
        max_length: maximum number of tokens per text; longer texts are truncated. Default: no limit.
        prompts: {name: text to put before each text}, or a `Prompts`.
        objective: the training objective of `fit`; see `TextEmbedder`.
        truncate_dim: if given, vectors consist of their first `truncate_dim` components.
        tokenizer: a `Tokenizer`, which is required for text inputs. Its special tokens are not added to texts.
        **kwargs: `name`, `dtype`, and `similarity`, as for a `TextEmbedder`.

    Call:
        inputs: a batch. `token_ids` may be (b, c, s) for examples of c texts.

    Returns: float32 (b, embedding_dim), or (b, c, embedding_dim); 0 for texts without tokens.

    Raises:
        ValueError: if `backbone` is no `WordVectors`, a layer or `objective` is unknown, or `max_length` or
            `truncate_dim` is below 1.

    Example:
        >>> from kerasbert.data import Tokenizer
        >>> from kerasbert.models import WordVectors, WordVectorsConfig
        >>> from kerasbert.tasks import StaticEmbedder
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> table = WordVectors(WordVectorsConfig(tokenizer.vocabulary_size, hidden_dim=64))
        >>> model = StaticEmbedder(table, tokenizer=tokenizer)
        >>> vectors = model.embed(["It will rain.", "She baked bread.", "It may rain."])
        >>> vectors.shape
        (3, 64)
        >>> int(model.similarity(vectors[:1], vectors[1:]).argmax())
        1
    """

    SAVED_AS = {"layers": Saved(list[dict])}
    hub_purpose = "maps a text to the mean of the vectors of its tokens"
    skips_prompts = False

    def __init__(
        self,
        backbone: WordVectors,
        layers: Sequence[VectorLayer] = (),
        normalize: bool = False,
        max_length: int | None = None,
        prompts: Prompts | dict[str, str] | None = None,
        objective: Loss | str | dict[str, Any] | None = None,
        truncate_dim: int | None = None,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        if not isinstance(backbone, WordVectors):
            raise ValueError(
                f"`backbone` of a StaticEmbedder must be a WordVectors. Received: {type(backbone).__name__}. For the "
                "vectors of an encoder, use TextEmbedder, or StaticEmbedder.distil."
            )
        super().__init__(
            backbone,
            ["mean", *map(vector_layer, layers)],
            normalize,
            NO_LIMIT if max_length is None else max_length,
            False,
            prompts,
            objective,
            truncate_dim,
            tokenizer,
            **kwargs,
        )

    @classmethod
    def distil(
        cls,
        encoder: TextEmbedder,
        width: int | None = 256,
        rarity: float | None = 1e-4,
        batch_size: int = 256,
        **arguments: Any,
    ) -> Self:
        """Creates a static embedder whose vector of a token is that of an encoder for the token alone.

        The vectors are projected onto their principal components. Frequent tokens get smaller weights, a / (a + p).
        Here, p is the probability of a token by Zipf's law, where the ids of a vocabulary are taken for the ranks of
        its tokens. Sources: Tulkens and van Dongen 2024, model2vec; Arora et al. 2017 (SIF).

        Args:
            encoder: an embedder with a tokenizer.
            width: number of principal components, or None for the vectors themselves.
            rarity: a, or None for equal weights.
            batch_size: number of tokens that are encoded together.
            **arguments: those of this class, such as `objective`.

        Raises:
            ValueError: if the encoder has no tokenizer, or an argument is invalid.
        """
        if width is not None and width < 1:
            raise ValueError(f"`width` must be at least 1, or None for the width of the encoder. Received: {width}.")
        tokenizer = encoder.require_tokenizer()
        template = [item for item, _ in tokenizer.template()]
        at, count = template.index("A"), encoder.backbone.config.vocabulary_size
        rows = np.tile(np.array([0 if item == "A" else item for item in template], "int32"), (count, 1))
        rows[:, at] = np.arange(count)
        batches = [rows[start : start + batch_size] for start in range(0, count, batch_size)]
        parts = [ops.convert_to_numpy(encoder({"token_ids": batch}, training=False)) for batch in batches]
        table = np.concatenate(parts)
        if width is not None and width < table.shape[1]:
            table = table - table.mean(axis=0)
            table = table @ np.linalg.eigh(table.T @ table)[1][:, ::-1][:, :width]
        if rarity is not None:
            share = 1 / np.arange(2, count + 2)
            table = table * (rarity / (rarity + share / share.sum()))[:, None]
        backbone = WordVectors(WordVectorsConfig(vocabulary_size=count, hidden_dim=table.shape[1]))
        backbone.token_embedding.embeddings.assign(table.astype("float32"))
        return cls(backbone, **{"tokenizer": tokenizer, **arguments})

    # === Text ===

    def encode(self, texts, query=False):
        return encode_unmarked(self.require_tokenizer(), texts, self.max_length)

    def embed(self, texts: str | Sequence[str], batch_size: int = 32, prompt: str | None = None) -> np.ndarray:
        """Computes the vectors of texts, by additions in numpy. The order of the texts is kept.

        Args:
            texts: a str, or a list of str.
            batch_size: has no effect.
            prompt: the name of one of the prompts. Default: the default of `prompts`.

        Returns: numpy float32 (embedding_dim,), or (number of texts, embedding_dim).

        Raises:
            ValueError: if a text is no str, `prompt` has the name of no prompt, or the model has no tokenizer.
        """
        if isinstance(texts, str):
            return self.embed([texts], batch_size, prompt)[0]
        if self.engine is not None:
            return super().embed(texts, batch_size, prompt)
        texts, _ = self._checked_texts(texts, prompt)
        vectors = np.zeros((len(texts), self.embedding_dim), "float32")
        table = ops.convert_to_numpy(self.backbone.token_table).astype("float32", copy=False)
        for start in range(0, len(texts), TEXTS_AT_A_TIME):
            rows = unmarked_rows(self.require_tokenizer(), texts[start : start + TEXTS_AT_A_TIME], self.max_length)
            found = _means(table, rows)
            for layer in self.pooling.vector_layers:
                found = layer(found)
            vectors[start : start + len(rows)] = ops.convert_to_numpy(found)[:, : self.embedding_dim]
        return vectors

    # === Folders ===

    def arguments(self):
        arguments = super().arguments()
        layers = [part for part in arguments.pop("pooling") if not isinstance(part, str)]
        del arguments["lowercase"]
        return {"layers": layers, **arguments}

    @classmethod
    def open_folder(cls, folder, constructor_arguments):
        """Reads files of sentence-transformers, if any. Returns (folder of the table, constructor arguments)."""
        if not (folder / "modules.json").exists():
            return folder, constructor_arguments
        model = read_model(folder)
        layers, normalize = dense_modules.read_layers(model)
        stored = {
            "layers": layers,
            "normalize": normalize,
            "max_length": _truncation(model.modules[0].path / "tokenizer.json"),
            "prompts": model.prompts,
            "truncate_dim": model.truncate_dim,
            "similarity": model.similarity or "cosine",
        }
        return model.modules[0].path, {**stored, **constructor_arguments}

    def save_tokenizer(self, folder):
        if self.tokenizer is not None:
            limit = self.max_length if self.max_length < NO_LIMIT else None
            self.tokenizer.save(Path(folder), self.texts_have_segments, self.max_length, truncation=limit)

    def write_extras(self, folder):
        """Writes the files of a sentence-transformers folder, except the table and the tokenizer."""
        write_model(folder, "SentenceTransformer", self.prompts, self.similarity_name, truncate_dim=self.truncate_dim)
        dense_modules.write(self, folder, [(OLD_TYPE.format("StaticEmbedding"), "")], pools=False)


def _truncation(path):
    """The number of tokens to which sentence-transformers truncates texts, or None: it reads no file but this one."""
    found = read_json(path, limit=VOCABULARY_LIMIT).get("truncation") if path.is_file() else None
    check_types({"truncation": found}, {"truncation": dict | None}, path)
    found = {} if found is None else found
    check_types(found, {"max_length": int}, path)
    if found.get("direction", "Right") != "Right":
        raise ValueError(
            f"`direction` of the truncation in {path} must be Right. Received: {found['direction']!r:.40}."
        )
    return found.get("max_length")


def _means(table, rows):
    """The means of the vectors in a table, float32 (n, m), for the ids of n texts; 0 without ids."""
    sums = np.zeros((len(rows), table.shape[1]), "float32")
    for row, total in zip(rows, sums, strict=True):  # several times as fast as one `np.add.reduceat`
        np.add.reduce(table[row], axis=0, out=total)
    lengths = np.maximum([len(row) for row in rows], 1).astype("float32")
    return sums / lengths[:, None]
