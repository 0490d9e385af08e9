"""Sub-word tokenizers: trained, loaded and saved in the files that transformers reads.

Special tokens in plain text: `encode` reads "[MASK]" in a text as the mask token, as transformers does, which is what
filling masks needs. With `plain_text=True` it is text like any other; corpora are always written that way, so a page
about BERT cannot smuggle separators into a training row.
"""

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tokenizers as hf

from .files import write_text
from .tokenizer_files import READERS, ROLES, read_settings, special_roles
from .tokenizer_training import SPECIAL_TOKENS, train_backend


class Tokenizer:
    """Text to ids and back.

    Args:
        backend: a `tokenizers.Tokenizer`; its truncation and padding are switched off.
        roles: which token is which, such as `{"mask": "[MASK]"}`; keys out of `ROLES`.
        max_length: tokens a model takes, or None.
        padding_side: "right" or "left".
    """

    def __init__(
        self, backend: hf.Tokenizer, roles: dict[str, str], max_length: int | None = None, padding_side: str = "right"
    ):
        backend.no_truncation()
        backend.no_padding()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        for role, token in roles.items():
            if role not in ROLES or token not in vocabulary:
                raise ValueError(f"Special token {token!r} ({role}) must be in the vocabulary; roles are {ROLES}.")
        self.backend = backend
        self.roles = {role: roles[role] for role in ROLES if role in roles}
        self.max_length = max_length
        self.padding_side = padding_side
        self.vocabulary_size = max(vocabulary.values()) + 1
        for role in ROLES:
            setattr(self, f"{role}_id", vocabulary[roles[role]] if role in roles else None)

    # ------------------------------------------------------------------ making

    @classmethod
    def train(
        cls,
        kind: str,
        documents: Iterable[str],
        vocabulary_size: int,
        lowercase: bool = False,
        special_tokens: dict[str, str] | None = None,
    ) -> "Tokenizer":
        """Learns a vocabulary; the same documents always give the same one.

        Args:
            kind: "wordpiece" (BERT's normaliser, `##`), "byte_bpe" (RoBERTa's form) or "unigram"
                (SentencePiece's form, `▁`).
            documents: str each, read once, line by line.
            vocabulary_size: pieces, special tokens included.
            lowercase: lower-case the text; WordPiece then strips accents, too.
            special_tokens: token of each role, in the order of their ids. Default: `SPECIAL_TOKENS[kind]`.

        Raises:
            ValueError: no text, or a vocabulary that is larger than the text supports or smaller than its alphabet.
        """
        roles = dict(special_tokens or SPECIAL_TOKENS.get(kind, {}))
        return cls(train_backend(kind, documents, vocabulary_size, lowercase, roles), roles)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Reads a folder, or one tokenizer file with its neighbours; `tokenizer.json` comes first.

        Without it: `vocab.txt` (WordPiece) or `vocab.json` with `merges.txt` (byte-level BPE), by the settings in
        `tokenizer_config.json`.

        Raises:
            FileNotFoundError: no tokenizer files there.
        """
        path = Path(path)
        folder = path if path.is_dir() else path.parent
        for name, read in READERS.items():
            if (folder / name).is_file() and (path.is_dir() or path.name == name):
                settings = read_settings(folder)
                backend = read(folder / name, settings)
                roles = special_roles(settings, backend.get_vocab(with_added_tokens=True))
                length = settings.get("model_max_length")
                return cls(
                    backend,
                    roles,
                    max_length=int(length) if length and length < 1e9 else None,
                    padding_side=settings.get("padding_side", "right"),
                )
        raise FileNotFoundError(f"There are no tokenizer files at {path}. Known are: {', '.join(READERS)}.")

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """The inverse of `to_json`."""
        content = json.loads(text)
        return cls(hf.Tokenizer.from_str(json.dumps(content.pop("tokenizer"))), **content)

    def to_json(self) -> str:
        """Everything in one text, for files that carry a tokenizer as an asset."""
        content = {"roles": self.roles, "max_length": self.max_length, "padding_side": self.padding_side}
        return json.dumps({"tokenizer": self._content, **content}, ensure_ascii=False)

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json`, its settings, and the vocabulary in the files that older readers want.

        `transformers.AutoTokenizer` gives the same ids: the class in the settings is the one that takes
        `tokenizer.json` as it is (the classes of the families rebuild parts of it).
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        special = {f"{role}_token": token for role, token in self.roles.items()}
        normalizer = self._content["normalizer"] or {}
        typed = any(segment for _, segment in self.template(pair=True))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": self.max_length or int(1e30),
            "padding_side": self.padding_side,
            "model_input_names": ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"],
            "clean_up_tokenization_spaces": False,
            **special,
        }
        if normalizer.get("type") == "BertNormalizer":
            settings |= {
                "do_lower_case": normalizer["lowercase"],
                "strip_accents": normalizer["strip_accents"],
                "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
            }
        if self._content["model"]["type"] == "WordPiece":
            write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self.tokens))
        elif self._content["model"]["type"] == "BPE":
            merges = (" ".join(pair) if isinstance(pair, list) else pair for pair in self._content["model"]["merges"])
            write_text(folder / "vocab.json", json.dumps({t: i for i, t in enumerate(self.tokens)}, ensure_ascii=False))
            write_text(folder / "merges.txt", "#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges))
        write_text(folder / "special_tokens_map.json", json.dumps(special, indent=2, ensure_ascii=False))
        write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=2, ensure_ascii=False))
        write_text(folder / "tokenizer.json", self.backend.to_str(pretty=True))

    # ------------------------------------------------------------------ using

    def encode(self, texts: Iterable, add_special_tokens: bool = True, plain_text: bool = False) -> list[np.ndarray]:
        """Ids of each text, int32; a pair of texts is a tuple.

        Args:
            texts: list of str or of (str, str).
            add_special_tokens: put the texts into the tokenizer's template, such as [CLS] A [SEP].
            plain_text: read the names of special tokens in a text as text.
        """
        if isinstance(texts, str):
            raise ValueError("`texts` must be a list of str. Received one str. Use [text].")
        self.backend.encode_special_tokens = plain_text
        try:
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except TypeError:
            raise ValueError("`texts` must be a list of str or of (str, str) tuples.") from None
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)

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
        """All tokens in the order of their ids; a gap is an empty str."""
        tokens = [""] * self.vocabulary_size
        for token, index in self.backend.get_vocab(with_added_tokens=True).items():
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
        """bool (vocabulary,): the piece begins a word. A row's first piece begins one whatever it is."""
        model = self._content["model"]
        if model["type"] == "WordPiece":
            prefix = model["continuing_subword_prefix"]
            starts = [not token.startswith(prefix) for token in self.tokens]
        elif model["type"] == "Unigram" or "Metaspace" in json.dumps(self._content["pre_tokenizer"]):
            starts = [token.startswith("▁") for token in self.tokens]
        elif "ByteLevel" in json.dumps([self._content["pre_tokenizer"], self._content["decoder"]]):
            starts = [token.startswith("Ġ") for token in self.tokens]
        else:
            raise ValueError(f"Word starts are not known for {model['type']} without a mark at the start of words.")
        starts = np.array(starts)
        starts[self.special_ids] = True
        return starts

    def template(self, pair: bool = False) -> tuple[tuple[int | str, int], ...]:
        """How rows are laid out: ids of special tokens, "A" and "B", each with its segment id.

        BERT's pair -> ((101, 0), ("A", 0), (102, 0), ("B", 1), (102, 1))
        """
        probe = next(e for t in ("a", "0", *self.tokens) if (e := self.backend.encode(t, add_special_tokens=False)).ids)
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

    @functools.cached_property
    def facts(self) -> dict:
        """What a data pipeline needs to know, JSON-able: hash, sizes, ids of the roles, templates."""
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
        """sha256 (hex) of all that decides which ids a text gets."""
        parts = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")
        content = {part: self._content[part] for part in parts}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> dict:
        return json.loads(self.backend.to_str())
