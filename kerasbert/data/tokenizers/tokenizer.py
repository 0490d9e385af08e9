"""Subword tokenizers: trained, loaded, and saved in the file formats that transformers reads.

By default, `encode` converts "[MASK]" in a text to the mask token, as transformers does. Filling masks requires this.
With `plain_text=True`, names of special tokens are ordinary text. Corpora are always written with this option, so that
a page about BERT cannot inject separators into a training row.
"""

import difflib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers as hf

from ..columns import values_of
from ..text import moses
from ..text.folders import folder_at, read_together, replaced_together
from ..text.json_files import check_types, shortened
from ..text.shipped import ONLY_IN_CLONES, SHIPPED, shipped_folder
from .backends import lower_casing_copy, plain_copy, row_template, word_starts
from .checks import check_ids, encoding_errors, rust_errors
from .families import FAMILIES
from .growth import check_growth
from .offsets import aligned, trimmed
from .reading import READERS, ROLES, has_segments, read_settings, special_roles
from .training import SPECIAL_TOKENS, Case, train_backend, train_family
from .word_boundaries import WordBoundaries
from .writing import TOKENIZER_FILES, write_files

# What `to_json` writes in addition to the backend.
_STORED = {
    "roles": dict[str, str],
    "max_length": int | None,
    "padding_side": Literal["left", "right"],
    "family": str | None,
    "preparation": str | None,
    "vocabulary_size": int,
    "segments": bool,
}
PREPARATIONS = {"moses": moses.prepare, "moses_cased": functools.partial(moses.prepare, lowercase=False)}


class Tokenizer:
    """A subword tokenizer, which converts text to token ids and back.

    Args:
        backend: a `tokenizers.Tokenizer`. Its truncation and padding are switched off.
        roles: the special token of each role, such as `{"mask": "[MASK]"}`. The roles are those in `ROLES`.
        max_length: maximum number of tokens that a model accepts, or None for no limit.
        padding_side: "right" or "left".
        family: model type, such as "albert", or None. It determines the file format of the vocabulary.
        preparation: preprocessing of texts before the backend: one of `PREPARATIONS`, or None.
        vocabulary_size: number of tokens. The backend may have additional, higher ids for intermediate merges. Default:
            number of tokens in the backend.
        segments: whether models read the segment ids of the template. Otherwise, encoded rows have none, as if all were
            0.

    Raises:
        ValueError: if a role or its token is unknown, or ids occur twice, are far too large, or exceed
            `vocabulary_size` in the template.

    Example:
        >>> from kerasbert.data import Tokenizer
        >>> tokenizer = Tokenizer.train("wordpiece", ["the cat sat on the mat"] * 10, vocabulary_size=28)
        >>> ids = tokenizer.encode(["the cat sat"])[0]
        >>> [tokenizer.token(number) for number in ids]
        ['[CLS]', 'the', 'cat', 's', '##at', '[SEP]']
        >>> tokenizer.decode(ids)
        'the cat sat'
        >>> tokenizer.save("tokenizer")
        >>> Tokenizer.load("tokenizer").vocabulary_size
        28
    """

    # The id of each special token, or None if the tokenizer does not have it.
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    sep_id: int | None
    pad_id: int | None
    cls_id: int | None
    mask_id: int | None

    def __init__(
        self,
        backend: hf.Tokenizer,
        roles: dict[str, str],
        max_length: int | None = None,
        padding_side: str = "right",
        family: str | None = None,
        preparation: str | None = None,
        vocabulary_size: int | None = None,
        segments: bool = True,
    ):
        backend.no_truncation()
        backend.no_padding()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        check_ids(vocabulary)
        check_growth(backend)
        for role, token in roles.items():
            if role not in ROLES or token not in vocabulary:
                raise ValueError(
                    f"A special token must be in the vocabulary, and its role must be one of {ROLES}. Received: "
                    f"{token!r} as {role!r}."
                )
        self.backend = backend
        self.roles = {role: roles[role] for role in ROLES if role in roles}
        self.max_length = max_length
        self.padding_side = padding_side
        self.family = family
        self.preparation = preparation
        self.segments = segments
        self.vocabulary_size = vocabulary_size or max(vocabulary.values()) + 1
        with rust_errors("The tokenizer must be able to lay out rows"):
            added = backend.encode("").ids + backend.encode("", "").ids
        if max(added, default=0) >= self.vocabulary_size:
            raise ValueError(
                f"The special tokens in rows must have ids below {self.vocabulary_size}. Received: {max(added)}."
            )
        for role in ROLES:
            setattr(self, f"{role}_id", vocabulary[roles[role]] if role in roles else None)

    # === Construction ===

    @classmethod
    def train(
        cls,
        kind: str,
        documents: Iterable[str],
        vocabulary_size: int,
        lowercase: bool = False,
        special_tokens: dict[str, str] | None = None,
        family: str | None = None,
        accents: Literal["keep", "strip"] | None = None,
    ) -> "Tokenizer":
        """Trains a tokenizer. The same documents always give the same vocabulary.

        Args:
            kind: "wordpiece" (BERT's normalizer, `##`), "byte_bpe" (RoBERTa's form), "unigram" (SentencePiece's form,
                `▁`) or "bpe" (XLM's form: Moses, `</w>`).
            documents: iterable of str, which is iterated once.
            vocabulary_size: number of tokens, including special tokens.
            lowercase: whether texts are lower-cased.
            special_tokens: the token of each role, in the order of their ids. Default: `SPECIAL_TOKENS[kind]`.
            family: a model type such as "t5" or "xlnet", whose special tokens, ids and templates are used.
            accents: "keep", or "strip" to remove accents ("canapé" -> "canape"), as uncased BERT does. Default: "keep",
                but "bpe" strips them with `lowercase`, because XLM's preprocessing always does both.

        Raises:
            ValueError: if there is no text, or the vocabulary size is too large for the text or too small for its
                alphabet.
        """
        case = Case.of(kind, lowercase, accents)
        further: dict[str, Any] = {"preparation": "moses" if lowercase else "moses_cased"} if kind == "bpe" else {}
        if kind == "bpe" and special_tokens is None:
            family = "xlm"
        if family is not None:
            backend, roles = train_family(family, kind, documents, vocabulary_size, case, special_tokens)
            further |= {"family": family, "padding_side": FAMILIES[family].padding_side}
        else:
            roles = dict(special_tokens or SPECIAL_TOKENS.get(kind, {}))
            backend = train_backend(kind, documents, vocabulary_size, case, roles)
        return cls(backend, roles, **further)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Loads a tokenizer from a folder, or from a tokenizer file and the files beside it, or of a shipped model.

        The first of these files is used: `tokenizer.json`, `vocab.txt` (WordPiece), `vocab.json` with `merges.txt`
        (byte-level BPE, and the BPE of XLM and GPT), or a SentencePiece model. Settings are read from
        `tokenizer_config.json`, and the family from `config.json`.

        Raises:
            FileNotFoundError: if there are no tokenizer files.
            ValueError: if a file is invalid, or the path is on the Hub.
        """
        given, path = path, folder_at(path)
        if str(given).startswith("hf://"):
            raise ValueError(
                f"A tokenizer is loaded from a folder. Received: {given}. Use kerasbert.load({str(given)!r}).tokenizer."
            )
        path = path if path.exists() else shipped_folder(str(given)) or path
        folder = path if path.is_dir() else path.parent
        with read_together(folder, lambda name: name in TOKENIZER_FILES):
            for name, read in READERS.items():
                if (folder / name).is_file() and (path.is_dir() or path.name == name):
                    return cls._read(folder / name, read)
        if not path.exists():
            near = difflib.get_close_matches(str(given), SHIPPED + ONLY_IN_CLONES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise FileNotFoundError(f"There is no folder or file {path}, and no shipped model of this name.{hint}")
        raise FileNotFoundError(f"There are no tokenizer files at {path}. There must be one of {', '.join(READERS)}.")

    @classmethod
    def from_preset(cls, path: str | Path) -> "Tokenizer":
        """Loads the tokenizer of a model folder or a shipped model; the same as `load`.

        Raises:
            FileNotFoundError: if there are no tokenizer files.
            ValueError: if a file is invalid, or the path is on the Hub.
        """
        return cls.load(path)

    @classmethod
    def _read(cls, path: Path, read: Callable) -> "Tokenizer":
        settings = read_settings(path)
        with rust_errors(f"{path} is not a tokenizer file"):
            backend, further = read(path, settings)
            vocabulary = backend.get_vocab(with_added_tokens=True)
        family = FAMILIES.get(settings["family"])
        length = settings.get("model_max_length", settings.get("max_len"))
        try:
            return cls(
                backend,
                special_roles(settings, vocabulary),
                max_length=int(length) if length and length < 1e9 else None,
                padding_side=settings.get("padding_side", family.padding_side if family else "right"),
                family=settings["family"],
                segments=has_segments(settings),
                **further,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Restores a tokenizer from the result of `to_json`.

        Raises:
            ValueError: if the text was not written by `to_json`.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or not isinstance(content.get("tokenizer"), dict):
            raise ValueError(f"The text must be one that `Tokenizer.to_json` wrote. Received: {shortened(text)}.")
        with rust_errors("The text does not describe a tokenizer"):
            backend = hf.Tokenizer.from_str(json.dumps(content.pop("tokenizer")))
        check_types(content, _STORED, "the text of a tokenizer")
        unknown = sorted(set(content) - set(_STORED))
        if unknown or content.get("preparation") not in (None, *PREPARATIONS):
            raise ValueError(f"The text must be one that `Tokenizer.to_json` wrote. Received: {shortened(content)}.")
        return cls(backend, **content)

    def to_json(self) -> str:
        """Serializes the whole tokenizer to a str, for files that contain a tokenizer as an asset."""
        content = {name: getattr(self, name) for name in _STORED}
        return json.dumps({"tokenizer": self.content, **content}, ensure_ascii=False)

    def save(
        self,
        folder: str | Path,
        segment_ids: bool = True,
        max_length: int | None = None,
        truncation: int | None = None,
    ) -> None:
        """Writes `tokenizer.json`, its settings, and the vocabulary in the file format of the family.

        `transformers.AutoTokenizer` loads the folder and gives the same ids. Files of an earlier tokenizer are removed.

        Args:
            folder: a folder, created if it does not exist.
            segment_ids: False if the model in the folder does not read segment ids. `AutoTokenizer` then does not
                return `token_type_ids`, even if the tokenizer's template has segments.
            max_length: maximum number of tokens that the model in the folder reads. Default: that of the tokenizer.
            truncation: number of tokens to which programs that read only `tokenizer.json` truncate texts. Default: no
                limit.
        """
        with replaced_together(folder_at(folder), last="tokenizer.json", stale=lambda new: TOKENIZER_FILES) as written:
            write_files(self, written, segment_ids, max_length or self.max_length, truncation)

    # === Encoding ===

    def encode(self, texts: Iterable, add_special_tokens: bool = True, plain_text: bool = False) -> list[np.ndarray]:
        """Encodes texts or pairs of texts as token ids, a list of int32 arrays.

        Args:
            texts: list of str or of (str, str).
            add_special_tokens: whether to put the texts into the tokenizer's template, such as [CLS] A [SEP].
            plain_text: whether to treat names of special tokens in a text as ordinary text.

        Raises:
            ValueError: if `texts` is a single str, or a text is no str or has an unpaired surrogate.
        """
        texts = values_of(texts)
        if isinstance(texts, (str, dict)):
            raise ValueError(f"`texts` must be a list of str. Received: one {type(texts).__name__}. Use [text].")
        backend = self._plain_backend if plain_text else self.backend
        with encoding_errors():
            texts = self._prepared(texts, plain_text) if self.preparation else list(texts)
            encodings = backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return self._pieces(encodings)

    def encode_joined(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes plain texts into one array, int32 (tokens,). Also returns their lengths, int32 (texts,).

        Raises:
            ValueError: if a text is no str or has an unpaired surrogate.
        """
        with encoding_errors():
            texts = self._prepared(texts, True) if self.preparation else texts
            encodings = self._plain_backend.encode_batch_fast(texts, add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int32)
        rows = (encoding.ids for encoding in encodings)
        ids = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32, count=lengths.sum())
        if self.preparation:
            ids[ids >= self.vocabulary_size] = self.unk_id
        return ids, lengths

    def encode_with_offsets(self, texts: Iterable[str], plain_text: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """Encodes texts as (token ids, offsets): int32 (n,), and the start and stop of each token, int32 (n, 2).

        No special tokens are added. `text[start:stop]` is the text of a token, without white space at its ends.

        Raises:
            ValueError: if a text is no str or has an unpaired surrogate.
        """
        texts = list(values_of(texts))
        backend = self._plain_backend if plain_text else self.backend
        prepared = self._prepared(texts, plain_text) if self.preparation else texts
        with encoding_errors():
            encodings = backend.encode_batch(prepared, add_special_tokens=False)
        rows = []
        for text, read, ids, encoding in zip(texts, prepared, self._pieces(encodings), encodings, strict=True):
            offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            rows.append((ids, trimmed(text, aligned(read, text)[offsets] if self.preparation else offsets)))
        return rows

    def word_numbers(self, texts: Iterable[str], plain_text: bool = True) -> list[np.ndarray]:
        """For each text, the index of the word of each token, int32 (n,). Punctuation marks count as words.

        Raises:
            ValueError: if a text is no str or has an unpaired surrogate.
        """
        backend = self._plain_backend if plain_text else self.backend
        texts = self._prepared(texts, plain_text) if self.preparation else list(texts)
        with encoding_errors():
            encodings = backend.encode_batch(texts, add_special_tokens=False)
        return [np.array(encoding.word_ids, dtype=np.int32) for encoding in encodings]

    def _pieces(self, encodings: list) -> list[np.ndarray]:
        rows = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self.preparation:  # an intermediate merge that is not in the vocabulary becomes the unknown token
            rows = [np.where(row < self.vocabulary_size, row, np.int32(self.unk_id)) for row in rows]
        return rows

    def _prepared(self, texts: Iterable, plain_text: bool) -> list:
        """Applies the preparation to texts, but leaves special tokens unchanged."""
        names = [re.escape(token.content) for token in self.backend.get_added_tokens_decoder().values()
                 if not (plain_text and token.special)]  # fmt: skip
        pattern = re.compile(f"({'|'.join(sorted(names, key=len, reverse=True)) or '(?!)'})")
        prepare = PREPARATIONS[self.preparation]

        def prepared(text):
            if isinstance(text, (tuple, list)):
                return tuple(map(prepared, text))
            parts = pattern.split(text)
            return "".join(part if i % 2 else prepare(part) for i, part in enumerate(parts))

        return [prepared(text) for text in texts]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        ids = [int(i) for i in ids]
        with rust_errors("The tokenizer cannot decode these ids"):
            return self.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def id(self, token: str) -> int:
        index = self.backend.token_to_id(token)
        if index is None:
            raise KeyError(f"The vocabulary has no token {token!r}.")
        return index

    def token(self, id: int) -> str:
        token = self.backend.id_to_token(int(id))
        if token is None:
            raise KeyError(f"The vocabulary has no id {id}; it has {self.vocabulary_size} tokens.")
        return token

    @functools.cached_property
    def tokens(self) -> list[str]:
        """All tokens in the order of their ids, with "" for an id without a token."""
        tokens = [""] * self.vocabulary_size
        for token, index in self.backend.get_vocab(with_added_tokens=True).items():
            if index < self.vocabulary_size:
                tokens[index] = token
        return tokens

    @functools.cached_property
    def special_ids(self) -> np.ndarray:
        """Ids of all special tokens, int32, ascending."""
        special = {index for index, token in self.backend.get_added_tokens_decoder().items() if token.special}
        special |= {self.id(token) for token in self.roles.values()}
        return np.array(sorted(special), dtype=np.int32)

    @functools.cached_property
    def word_starts(self) -> np.ndarray:
        """bool (vocabulary_size,), True for tokens that begin a word, and for special tokens."""
        starts = word_starts(self.content, self.tokens)
        starts[self.special_ids] = True
        return starts

    @functools.cached_property
    def word_boundaries(self) -> WordBoundaries:
        """Finds the tokens that begin words in rows of token ids, also in scripts without spaces.

        Raises:
            ValueError: if the tokens mark neither the start nor the end of words.
        """
        return WordBoundaries(self.content, self.tokens, self.special_ids)

    def template(self, pair: bool = False) -> tuple[tuple[int | str, int], ...]:
        """The layout of rows as tuples (item, segment id). Items are ids of special tokens, or "A" and "B" for texts.

        BERT, pair=True -> ((101, 0), ("A", 0), (102, 0), ("B", 1), (102, 1))
        """
        return self._templates[pair]

    @functools.cached_property
    def _templates(self) -> list[tuple[tuple[int | str, int], ...]]:
        return [row_template(self.backend, self.tokens, pair) for pair in (False, True)]

    @property
    def has_segments(self) -> bool:
        """Whether encoded rows have segment ids: the template has segments, and models read them."""
        return self.segments and any(segment for _, segment in self.template(pair=True))

    @property
    def info(self) -> dict:
        """The properties of the tokenizer that a data pipeline needs, as a dict that JSON can represent.

        They are its hash, vocabulary size, ids of special tokens, templates, padding side, and whether encoded rows
        have segment ids.
        """
        return {
            "hash": self.hash,
            "vocabulary_size": self.vocabulary_size,
            **{f"{role}_id": getattr(self, f"{role}_id") for role in ROLES},
            "single": self.template(),
            "pair": self.template(pair=True),
            "padding_side": self.padding_side,
            "segments": self.has_segments,
        }

    @functools.cached_property
    def hash(self) -> str:
        """The SHA-256 hash, in hexadecimal, of everything that determines the ids of a text."""
        parts = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")
        # Scores are in single precision. In double precision, writing and reading them can change the last digits.
        whole = json.loads(self.backend.to_str(), parse_float=lambda text: float(np.float32(text)))
        content = {part: whole[part] for part in parts}
        if self.preparation:
            content["preparation"] = self.preparation
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def _plain_backend(self) -> hf.Tokenizer:
        """A copy of the backend that does not recognize special tokens in text."""
        return plain_copy(self.backend, [self.token(i) for i in self.special_ids])

    @functools.cached_property
    def lower_casing(self) -> "Tokenizer":
        """A copy of the tokenizer that converts texts to lower case, but still recognizes special tokens in them."""
        return self._with_backend(lower_casing_copy(self.backend))

    def with_language(self, code: str) -> "Tokenizer":
        """Returns a copy of the tokenizer for texts in another language. Only the tokenizers of mBART have languages.

        Args:
            code: the code of the language in the vocabulary, such as "de_DE", which is added to every row.

        Raises:
            ValueError: if this is no tokenizer of mBART, or the vocabulary lacks the code.
        """
        family = FAMILIES.get(self.family or "")
        if family is None or not family.has_language:
            raise ValueError(
                f"Only tokenizers of mBART add the code of a language to rows. Received: {code!r} for a tokenizer of "
                f"the family {self.family!r}."
            )
        backend = hf.Tokenizer.from_str(self.backend.to_str())
        backend.post_processor = family.template(self.roles, backend.get_vocab(with_added_tokens=True), code)
        return self._with_backend(backend)

    def _with_backend(self, backend: hf.Tokenizer) -> "Tokenizer":
        return Tokenizer(backend, **{name: getattr(self, name) for name in _STORED})

    @functools.cached_property
    def content(self) -> dict:
        """The backend as a dict, as in `tokenizer.json`."""
        return json.loads(self.backend.to_str())
