"""Sub-word tokenizers: trained, loaded and saved in the files that transformers reads.

Special tokens in plain text: `encode` reads "[MASK]" in a text as the mask token, as transformers does, which is what
filling masks needs. With `plain_text=True` it is text like any other; corpora are always written that way, so a page
about BERT cannot smuggle separators into a training row.
"""

import functools
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from .documents import checked_documents, lines_of
from .files import write_text

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

# In the order of their ids; byte_bpe puts the mask behind the learnt pieces, as RoBERTa does.
SPECIAL_TOKENS = {
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "byte_bpe": {
        **{"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"},
        "mask": "<mask>",
    },
    "unigram": {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
}

# What the tokens of published files are called where their configuration does not say.
_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>",),
    "eos": ("</s>", "<|endoftext|>"),
}
_MIN_FREQUENCY = 2  # a pair seen once is no evidence for a piece


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
        if kind not in _TRAINERS:
            raise ValueError(f"`kind` must be one of {', '.join(_TRAINERS)}. Received: {kind!r}.")
        roles = dict(special_tokens or SPECIAL_TOKENS[kind])
        lines = (line for document in checked_documents(documents) for line in lines_of(document))
        backend = _TRAINERS[kind](_first_checked(lines), vocabulary_size, lowercase, roles)
        reached = backend.get_vocab_size(with_added_tokens=True)
        if reached < vocabulary_size:
            raise ValueError(
                f"`vocabulary_size` must be one that the text supports. Received: {vocabulary_size}, but training "
                f"ran out of pieces at {reached}. Use at most {reached}, or more text."
            )
        if reached > vocabulary_size:
            raise ValueError(
                f"`vocabulary_size` must hold the alphabet and the special tokens. Received: {vocabulary_size}, "
                f"they alone are {reached}. Use more than {reached}, or kind='byte_bpe'."
            )
        ids = backend.get_vocab(with_added_tokens=True)
        if "cls" in roles and "sep" in roles:
            backend.post_processor = (_roberta_template if kind == "byte_bpe" else _bert_template)(roles, ids)
        return cls(backend, roles)

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
        for name, read in _READERS.items():
            if (folder / name).is_file() and (path.is_dir() or path.name == name):
                settings = _settings(folder)
                backend = read(folder / name, settings)
                roles = _roles(settings, backend.get_vocab(with_added_tokens=True))
                length = settings.get("model_max_length")
                return cls(
                    backend,
                    roles,
                    max_length=int(length) if length and length < 1e9 else None,
                    padding_side=settings.get("padding_side", "right"),
                )
        raise FileNotFoundError(f"There are no tokenizer files at {path}. Known are: {', '.join(_READERS)}.")

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


# ---------------------------------------------------------------------- training


def _first_checked(lines: Iterator[str]) -> Iterator[str]:
    first = next(lines, None)
    if first is None:
        raise ValueError("`documents` must hold text to learn from. Received none.")
    yield first
    yield from lines


def _train_wordpiece(lines: Iterator[str], vocabulary_size: int, lowercase: bool, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.WordPiece(unk_token=roles["unk"]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(dict.fromkeys(roles.values()))
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        characters: set[str] = set()
        for line in lines:
            characters.update(line)
            spool.write(line + "\n")
        spool.seek(0)
        # The trainer numbers "##" letters in the order of a hash map that is new in every process, and breaks ties
        # by number. Given beforehand they are the same every time, and no known letter can be unknown inside a word.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocabulary_size,
            min_frequency=_MIN_FREQUENCY,
            show_progress=False,
            special_tokens=special + [f"##{letter}" for letter in _inner_letters(backend, characters)],
        )
        backend.train_from_iterator((line.rstrip("\n") for line in spool), trainer)
    trained = hf.Tokenizer(models.WordPiece(vocab=backend.get_vocab(), unk_token=roles["unk"]))
    trained.normalizer, trained.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trained.decoder = decoders.WordPiece(prefix="##")
    trained.add_special_tokens([hf.AddedToken(token, special=True, normalized=False) for token in special])
    return trained


def _inner_letters(backend: hf.Tokenizer, characters: Iterable[str]) -> list[str]:
    """Letters that can continue a word: neither punctuation nor ideographs, which stand alone."""
    inner: set[str] = set()
    for character in characters:
        words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(f"a{character}a"))
        for word, _ in words:
            inner.update(word[1:])
    return sorted(inner)


def _train_byte_bpe(lines: Iterator[str], vocabulary_size: int, lowercase: bool, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.BPE())
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    mask = roles.get("mask")
    special = [token for token in dict.fromkeys(roles.values()) if token != mask]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - (mask is not None),
        min_frequency=_MIN_FREQUENCY,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    backend.train_from_iterator(lines, trainer)
    if mask is not None:  # swallows the blank before it, which belongs to the word that it stands for
        backend.add_special_tokens([hf.AddedToken(mask, lstrip=True, special=True, normalized=False)])
    return backend


def _train_unigram(lines: Iterator[str], vocabulary_size: int, lowercase: bool, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.Unigram())
    steps = [normalizers.Nmt(), normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(hf.Regex(r"\s+"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = list(dict.fromkeys(roles.values()))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary_size, special_tokens=special, unk_token=roles["unk"], show_progress=False
    )
    try:
        backend.train_from_iterator(lines, trainer)
    except Exception as error:
        if "ocab" not in str(error):
            raise
        raise ValueError(f"`vocabulary_size`={vocabulary_size} is too small for this text: {error}") from None
    pieces = _in_fixed_order(json.loads(backend.to_str())["model"]["vocab"], special)
    trained = hf.Tokenizer(models.Unigram(pieces, unk_id=special.index(roles["unk"])))
    trained.normalizer, trained.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trained.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    swallow = roles.get("mask")
    trained.add_special_tokens([hf.AddedToken(t, lstrip=t == swallow, special=True, normalized=False) for t in special])
    return trained


def _in_fixed_order(pieces: list, special: list[str]) -> list[tuple[str, float]]:
    """Undoes what the trainer leaves to the order of a hash map.

    Letters that did not survive the pruning get the lowest score plus 0, 1e-4, 2e-4... in no fixed order: here they
    get them in the order of their code points. Scores are rounded, which hides the order of summation.
    """
    scores = {piece: score for piece, score in pieces if piece not in special}
    lowest = min(scores.values(), default=0.0)
    steps = {piece: (score - lowest) / 1e-4 for piece, score in scores.items() if len(piece) == 1}
    late = sorted(p for p, step in steps.items() if step < len(steps) and abs(step - round(step)) < 1e-6)
    values = sorted(scores[piece] for piece in late)
    scores |= dict(zip(late, values, strict=True))
    ordered = sorted(((piece, round(score, 8)) for piece, score in scores.items()), key=lambda p: (-p[1], p[0]))
    return [(token, 0.0) for token in special] + ordered


_TRAINERS = {"wordpiece": _train_wordpiece, "byte_bpe": _train_byte_bpe, "unigram": _train_unigram}


# ---------------------------------------------------------------------- templates


def _bert_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )


def _roberta_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.RobertaProcessing((last, ids[last]), (first, ids[first]), add_prefix_space=False)


# ---------------------------------------------------------------------- reading files


def _settings(folder: Path) -> dict:
    settings: dict = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            settings |= json.loads((folder / name).read_text(encoding="utf-8"))
    return settings


def _roles(settings: dict, vocabulary: dict[str, int]) -> dict[str, str]:
    roles = {}
    for role in ROLES:
        token = settings.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if token in vocabulary:
            roles[role] = token
    if not roles:
        for role, names in _USUAL_NAMES.items():
            known = [name for name in names if name in vocabulary]
            if known and not (role == "sep" and known[0] == "</s>" and "<s>" not in vocabulary):
                roles[role] = known[0]
    return roles


def _read_tokenizer_json(path: Path, settings: dict) -> hf.Tokenizer:
    try:
        return hf.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ValueError(f"{path} is not a tokenizer file: {error}") from None


def _read_wordpiece(path: Path, settings: dict) -> hf.Tokenizer:
    lines = path.read_text(encoding="utf-8").split("\n")
    vocabulary = {token.rstrip("\r"): index for index, token in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    roles = _roles(settings, vocabulary)
    if "unk" not in roles:
        raise ValueError(f"{path} must hold the token [UNK], or name it in tokenizer_config.json.")
    backend = hf.Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=roles["unk"]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    _add_special_tokens(backend, roles)
    if "cls" in roles and "sep" in roles:
        backend.post_processor = _bert_template(roles, vocabulary)
    return backend


def _read_byte_bpe(path: Path, settings: dict) -> hf.Tokenizer:
    merges = path.with_name("merges.txt")
    if not merges.is_file():
        raise FileNotFoundError(f"{path} must have a merges.txt beside it. There is none.")
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    if any(token.endswith("</w>") for token in vocabulary):
        raise ValueError(f"{path} is a BPE that marks the ends of words; from vocab.json only byte-level BPE is read.")
    backend = hf.Tokenizer(models.BPE.from_file(str(path), str(merges)))
    prefix = settings.get("add_prefix_space", False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    roles = _roles(settings, vocabulary)
    _add_special_tokens(backend, roles, swallow=roles.get("mask"))
    if roles.get("cls") == "<s>":
        backend.post_processor = _roberta_template(roles, vocabulary)
    elif "cls" in roles and "sep" in roles:
        backend.post_processor = _bert_template(roles, vocabulary)
    return backend


def _add_special_tokens(backend: hf.Tokenizer, roles: dict, swallow: str | None = None) -> None:
    vocabulary = backend.get_vocab()
    special = sorted(set(roles.values()), key=vocabulary.__getitem__)
    backend.add_special_tokens([hf.AddedToken(t, lstrip=t == swallow, special=True, normalized=False) for t in special])


# One small function a kind of file; the first that is there is read.
_READERS = {"tokenizer.json": _read_tokenizer_json, "vocab.txt": _read_wordpiece, "vocab.json": _read_byte_bpe}
