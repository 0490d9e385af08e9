"""Subword tokenizers: trained, loaded, and saved in the file formats that transformers reads.

By default, `encode` reads "[MASK]" in a text as the mask token, as transformers does and as filling masks requires.
With `plain_text=True`, names of special tokens are ordinary text. Corpora are always written that way, so that a page
about BERT cannot inject separators into a training row.
"""

import functools
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers as hf
from tokenizers import pre_tokenizers

from ..text import moses
from ..text.json_files import check_types, shortened
from .checks import check_ids, rust_errors
from .export import write_files
from .families import FAMILIES
from .files import READERS, ROLES, read_settings, special_roles
from .offsets import aligned, trimmed
from .training import SPECIAL_TOKENS, train_backend, train_family

_NOT_ENCODED = "The tokenizer cannot encode the text"

# What `to_json` writes besides the backend.
_STORED = {
    "roles": dict[str, str],
    "max_length": int | None,
    "padding_side": Literal["left", "right"],
    "family": str | None,
    "preparation": str | None,
    "vocabulary_size": int,
}
PREPARATIONS = {"moses": moses.prepare, "moses_cased": functools.partial(moses.prepare, lowercase=False)}


class Tokenizer:
    """Text to ids and back.

    Args:
        backend: a `tokenizers.Tokenizer`; its truncation and padding are switched off.
        roles: the special token of each role, such as `{"mask": "[MASK]"}`; the keys are from `ROLES`.
        max_length: maximum number of tokens a model accepts, or None.
        padding_side: "right" or "left".
        family: model type whose file format the vocabulary is stored in, such as "albert", or None.
        preparation: text preprocessing before the backend: one of `PREPARATIONS`, or None.
        vocabulary_size: number of pieces; higher ids are intermediate merges. Default: all pieces of the backend.
    """

    def __init__(
        self,
        backend: hf.Tokenizer,
        roles: dict[str, str],
        max_length: int | None = None,
        padding_side: str = "right",
        family: str | None = None,
        preparation: str | None = None,
        vocabulary_size: int | None = None,
    ):
        backend.no_truncation()
        backend.no_padding()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        check_ids(vocabulary)
        for role, token in roles.items():
            if role not in ROLES or token not in vocabulary:
                raise ValueError(f"Special token {token!r} ({role}) must be in the vocabulary; roles are {ROLES}.")
        self.backend = backend
        self.roles = {role: roles[role] for role in ROLES if role in roles}
        self.max_length = max_length
        self.padding_side = padding_side
        self.family = family
        self.preparation = preparation
        self.vocabulary_size = vocabulary_size or max(vocabulary.values()) + 1
        with rust_errors("The tokenizer must be able to lay out rows"):
            added = backend.encode("").ids + backend.encode("", "").ids
        if max(added, default=0) >= self.vocabulary_size:
            raise ValueError(
                f"The template of rows must have ids below {self.vocabulary_size}. Received: {max(added)}."
            )
        for role in ROLES:
            setattr(self, f"{role}_id", vocabulary[roles[role]] if role in roles else None)

    # ------------------------------------------------------------------ construction

    @classmethod
    def train(
        cls,
        kind: str,
        documents: Iterable[str],
        vocabulary_size: int,
        lowercase: bool = False,
        special_tokens: dict[str, str] | None = None,
        family: str | None = None,
    ) -> "Tokenizer":
        """Trains a vocabulary; the same documents always give the same one.

        Args:
            kind: "wordpiece" (BERT's normaliser, `##`), "byte_bpe" (RoBERTa's form), "unigram" (SentencePiece's form,
                `▁`) or "bpe" (XLM's form: Moses, `</w>`).
            documents: iterable of str, read once, line by line.
            vocabulary_size: number of pieces, including special tokens.
            lowercase: lower-case the text; WordPiece then strips accents, too.
            special_tokens: the token of each role, in the order of their ids. Default: `SPECIAL_TOKENS[kind]`.
            family: a model type such as "t5" or "xlnet", whose special tokens, ids and row layout to use.

        Raises:
            ValueError: no text, or a vocabulary that is larger than the text supports or smaller than its alphabet.
        """
        further = {"preparation": "moses" if lowercase else "moses_cased"} if kind == "bpe" else {}
        if kind == "bpe" and special_tokens is None:
            family = "xlm"
        if family is not None:
            backend, roles = train_family(family, kind, documents, vocabulary_size, lowercase, special_tokens)
            further |= {"family": family, "padding_side": FAMILIES[family].padding_side}
        else:
            roles = dict(special_tokens or SPECIAL_TOKENS.get(kind, {}))
            backend = train_backend(kind, documents, vocabulary_size, lowercase, roles)
        return cls(backend, roles, **further)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Reads a folder, or one tokenizer file and those beside it; `tokenizer.json` takes precedence.

        Without it, reads `vocab.txt` (WordPiece), `vocab.json` with `merges.txt` (byte-level BPE; XLM's and GPT's BPE),
        or a SentencePiece model, with the settings in `tokenizer_config.json` and the family in `config.json`.

        Raises:
            FileNotFoundError: there are no tokenizer files.
        """
        path = Path(path)
        folder = path if path.is_dir() else path.parent
        for name, read in READERS.items():
            if (folder / name).is_file() and (path.is_dir() or path.name == name):
                return cls._read(folder / name, read)
        raise FileNotFoundError(f"There are no tokenizer files at {path}. Known files: {', '.join(READERS)}.")

    @classmethod
    def _read(cls, path: Path, read: Callable) -> "Tokenizer":
        settings = read_settings(path.parent)
        with rust_errors(f"{path} is not a tokenizer file"):
            backend, further = read(path, settings)
            vocabulary = backend.get_vocab(with_added_tokens=True)
        family = FAMILIES.get(settings["family"])
        length = settings.get("model_max_length")
        try:
            return cls(
                backend,
                special_roles(settings, vocabulary),
                max_length=int(length) if length and length < 1e9 else None,
                padding_side=settings.get("padding_side", family.padding_side if family else "right"),
                family=settings["family"],
                **further,
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The inverse of `to_json`.

        Raises:
            ValueError: the text is not what `to_json` writes.
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
        """The whole tokenizer as one str, for files that contain a tokenizer as an asset."""
        names = ("roles", "max_length", "padding_side", "family", "preparation", "vocabulary_size")
        content = {name: getattr(self, name) for name in names}
        return json.dumps({"tokenizer": self.content, **content}, ensure_ascii=False)

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json`, its settings, and the vocabulary in the files that older readers expect.

        `transformers.AutoTokenizer` gives the same ids.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_files(self, folder)

    # ------------------------------------------------------------------ encoding

    def encode(self, texts: Iterable, add_special_tokens: bool = True, plain_text: bool = False) -> list[np.ndarray]:
        """Token ids of each text, int32; a pair of texts is given as a tuple.

        Args:
            texts: list of str or of (str, str).
            add_special_tokens: put the texts into the tokenizer's template, such as [CLS] A [SEP].
            plain_text: treat the names of special tokens in a text as ordinary text.
        """
        if isinstance(texts, str):
            raise ValueError("`texts` must be a list of str. Received one str. Use [text].")
        backend = self._plain_backend if plain_text else self.backend
        try:
            texts = self._prepared(texts, plain_text) if self.preparation else list(texts)
            with rust_errors(_NOT_ENCODED):
                encodings = backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        except TypeError:
            raise ValueError("`texts` must be a list of str or of (str, str) tuples.") from None
        return self._pieces(encodings)

    def encode_with_offsets(self, texts: Iterable[str], plain_text: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each text, the token ids, int32 (n,), and the characters [start, stop) of each token, int32 (n, 2).

        No special tokens are added, and white space at the ends of a token is left out: `text[start:stop]` is the token
        as it was written.
        """
        texts = list(texts)
        backend = self._plain_backend if plain_text else self.backend
        prepared = self._prepared(texts, plain_text) if self.preparation else texts
        with rust_errors(_NOT_ENCODED):
            encodings = backend.encode_batch(prepared, add_special_tokens=False)
        rows = []
        for text, read, ids, encoding in zip(texts, prepared, self._pieces(encodings), encodings, strict=True):
            offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            rows.append((ids, trimmed(text, aligned(read, text)[offsets] if self.preparation else offsets)))
        return rows

    def word_numbers(self, texts: Iterable[str], plain_text: bool = True) -> list[np.ndarray]:
        """For each text, the index of the word of each token, int32 (n,); punctuation marks are separate words."""
        backend = self._plain_backend if plain_text else self.backend
        texts = self._prepared(texts, plain_text) if self.preparation else list(texts)
        with rust_errors(_NOT_ENCODED):
            encodings = backend.encode_batch(texts, add_special_tokens=False)
        return [np.array(encoding.word_ids, dtype=np.int32) for encoding in encodings]

    def _pieces(self, encodings: list) -> list[np.ndarray]:
        rows = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self.preparation:  # an intermediate merge that did not become a piece is unknown
            rows = [np.where(row < self.vocabulary_size, row, np.int32(self.unk_id)) for row in rows]
        return rows

    def _prepared(self, texts: Iterable, plain_text: bool) -> list:
        """Applies the preparation to texts, leaving special tokens unchanged."""
        special = [re.escape(self.token(i)) for i in self.special_ids]
        pattern = re.compile(f"({'|'.join(sorted(special, key=len, reverse=True))})")
        prepare = PREPARATIONS[self.preparation]

        def prepared(text):
            if isinstance(text, (tuple, list)):
                return tuple(map(prepared, text))
            parts = [text] if plain_text else pattern.split(text)
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
        """All tokens in the order of their ids; an id without a token has an empty str."""
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
        """bool (vocabulary,): whether the piece begins a word. The first piece of a row always begins one."""
        model = self.content["model"]
        if model["type"] == "WordPiece":
            prefix = model["continuing_subword_prefix"]
            starts = [not token.startswith(prefix) for token in self.tokens]
        elif model["type"] == "Unigram" or "Metaspace" in json.dumps(self.content["pre_tokenizer"]):
            starts = [token.startswith("▁") for token in self.tokens]
        elif "ByteLevel" in json.dumps([self.content["pre_tokenizer"], self.content["decoder"]]):
            starts = [token.startswith("Ġ") for token in self.tokens]
        else:
            raise ValueError(f"Word starts are unknown for {model['type']} without a mark at the start of words.")
        starts = np.array(starts)
        starts[self.special_ids] = True
        return starts

    def template(self, pair: bool = False) -> tuple[tuple[int | str, int], ...]:
        """The layout of rows: ids of special tokens, "A" and "B", each with its segment id.

        BERT's pair -> ((101, 0), ("A", 0), (102, 0), ("B", 1), (102, 1))
        """
        with rust_errors(_NOT_ENCODED):
            encodings = (self.backend.encode(text, add_special_tokens=False) for text in ("a", "0", *self.tokens))
            probe = next((encoding for encoding in encodings if encoding.ids), None)
            if probe is None:
                raise ValueError(f"{_NOT_ENCODED}: it cannot encode any token of its vocabulary.")
            full = self.backend.post_process(probe, probe if pair else None)
        items: list[tuple[int | str, int]] = []
        texts = 0
        for index, segment, special in zip(full.ids, full.type_ids, full.special_tokens_mask, strict=True):
            if special:
                items.append((index, segment))
                continue
            if texts % len(probe.ids) == 0:
                items.append(("AB"[texts // len(probe.ids)], segment))
            texts += 1
        return tuple(items)

    @property
    def facts(self) -> dict:
        """Deprecated name of `info`."""
        warnings.warn("Tokenizer.facts is now Tokenizer.info.", DeprecationWarning, stacklevel=2)
        return self.info

    @property
    def info(self) -> dict:
        """What a data pipeline needs to know, JSON-serialisable: hash, sizes, ids of the roles, templates."""
        return {
            "hash": self.hash,
            "vocabulary_size": self.vocabulary_size,
            **{f"{role}_id": getattr(self, f"{role}_id") for role in ROLES},
            "single": self.template(),
            "pair": self.template(pair=True),
            "padding_side": self.padding_side,
        }

    @functools.cached_property
    def hash(self) -> str:
        """sha256 (hex) of everything that determines the ids of a text."""
        parts = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")
        # Scores are single precision; their last digits as doubles change when a file is written and read.
        whole = json.loads(self.backend.to_str(), parse_float=lambda text: float(np.float32(text)))
        content = {part: whole[part] for part in parts}
        if self.preparation:
            content["preparation"] = self.preparation
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def _plain_backend(self) -> hf.Tokenizer:
        """A copy of the backend that does not recognise special tokens in text."""
        backend = hf.Tokenizer.from_str(self.backend.to_str())
        backend.encode_special_tokens = True
        # Unigram models have the special tokens among their pieces, with the highest scores. Their first character is
        # split off, so that the piece cannot match.
        names = [name for name in map(self.token, self.special_ids) if len(name) > 1]
        if names:
            pattern = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
            before = [backend.pre_tokenizer] if backend.pre_tokenizer else []
            split = pre_tokenizers.Split(hf.Regex(pattern), "isolated")
            backend.pre_tokenizer = pre_tokenizers.Sequence([*before, split])
        return backend

    @functools.cached_property
    def content(self) -> dict:
        """The backend as a dict, as in `tokenizer.json`."""
        return json.loads(self.backend.to_str())
