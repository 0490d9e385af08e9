"""Reads tokenizer files of published models."""

import dataclasses
import typing
from pathlib import Path
from typing import Literal

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from ..text.json_files import SETTINGS_LIMIT, VOCABULARY_LIMIT, check_types, is_text, read_json, shortened
from .checks import rust_errors
from .families import FAMILIES, Family, family_named, family_of_pieces, mark_special
from .sentencepiece import CONTROL, UNKNOWN, build_backend, read_model

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
MAX_IDS = 2**31  # ids are int32

# The usual names of special tokens, for published files whose settings do not name them.
_USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>",),
    "eos": ("</s>", "<|endoftext|>"),
}


def bert_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    return FAMILIES["bert"].template(roles, ids)


def roberta_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.RobertaProcessing((last, ids[last]), (first, ids[first]), add_prefix_space=False)


# === Settings ===


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings in `tokenizer_config.json` and `special_tokens_map.json`, besides the token of each role."""

    tokenizer_class: str | None = None
    tokenizer_family: str | None = None
    model_max_length: float | None = None
    padding_side: Literal["left", "right"] = "right"
    do_lower_case: bool | None = None
    do_lowercase_and_remove_accent: bool | None = None
    strip_accents: bool | None = None
    keep_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    add_prefix_space: bool | None = None
    extra_ids: int | None = None
    added_tokens_decoder: dict[str, dict] | None = None


_TYPES = typing.get_type_hints(Settings) | {f"{role}_token": str | dict | None for role in ROLES}
_ADDED_TOKEN = {"content": str, **dict.fromkeys(("special", "lstrip", "rstrip", "single_word", "normalized"), bool)}
_MAX_EXTRA_IDS = 10_000


def read_settings(folder: Path) -> dict:
    """Reads the tokenizer settings in a folder. The key "family" is the family they belong to, or None.

    Settings that are null are left out. Special tokens are an exception, because null means that there is no such
    token.
    """
    settings: dict = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = folder / name
        found = _read_json(path)
        check_types(found, _TYPES, path)
        for role in ROLES:
            _check_added(found.get(f"{role}_token"), path)
        for index, token in (found.get("added_tokens_decoder") or {}).items():
            _check_added(token, path)
            if not index.isdecimal() or len(index) > 9:
                raise ValueError(
                    f"The keys of `added_tokens_decoder` in {path} must be ids. Received: {shortened(index)}."
                )
        if not 0 <= (found.get("extra_ids") or 0) <= _MAX_EXTRA_IDS:
            raise ValueError(
                f"`extra_ids` in {path} must be between 0 and {_MAX_EXTRA_IDS}. Received: "
                f"{shortened(found['extra_ids'])}."
            )
        if (found.get("model_max_length") or 1) < 1:
            raise ValueError(
                f"`model_max_length` in {path} must be at least 1. Received: {shortened(found['model_max_length'])}."
            )
        known = set(_TYPES) - {f"{role}_token" for role in ROLES}
        settings |= {key: value for key, value in found.items() if value is not None or key not in known}
    settings.setdefault("tokenizer_family", None)
    config = _read_json(folder / "config.json")
    check_types(config, {"model_type": str | None}, folder / "config.json")
    named = family_named(settings.get("tokenizer_class"), config.get("model_type"))
    settings["family"] = settings["tokenizer_family"] or named
    return settings


def _check_added(token: object, path: Path) -> None:
    if isinstance(token, dict):
        check_types({"content": None, **token}, _ADDED_TOKEN, path)


def _read_json(path: Path, limit: int = SETTINGS_LIMIT) -> dict:
    return read_json(path, dict, limit) if path.is_file() else {}


def _read_ids(path: Path) -> dict[str, int]:
    """Reads a JSON object that maps tokens to ids."""
    vocabulary = _read_json(path, VOCABULARY_LIMIT)
    for token, index in vocabulary.items():
        if type(index) is not int or not 0 <= index < MAX_IDS or not is_text(token):
            raise ValueError(
                f"{path} must map tokens to non-negative integer ids. Received: {shortened(token)} with "
                f"{shortened(index)}."
            )
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError(f"{path} must give each token a unique id. Received: duplicate ids.")
    return vocabulary


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(f"{path} must be UTF-8. Received: {error.reason} in line {line}.") from None


def special_roles(settings: dict, vocabulary: dict[str, int]) -> dict[str, str]:
    """Finds the token of each role in the settings, or else in the family, or else by its usual name."""
    family = FAMILIES.get(settings.get("family"))
    usual = {} if family is None else family.roles
    roles = {}
    for role in ROLES:
        token = settings.get(f"{role}_token", usual.get(role))
        token = token.get("content") if isinstance(token, dict) else token
        if token in vocabulary:
            roles[role] = token
    if not roles:
        for role, names in _USUAL_NAMES.items():
            known = [name for name in names if name in vocabulary]
            if known and not (role == "sep" and known[0] == "</s>" and "<s>" not in vocabulary):
                roles[role] = known[0]
    return roles


def _finish(backend: hf.Tokenizer, path: Path, settings: dict, swallow: bool = False) -> hf.Tokenizer:
    """Registers special tokens, adds tokens that are stored outside the vocabulary, and sets the template.

    If the settings do not say whether the mask token absorbs the space before it (`lstrip`), `swallow` decides. Callers
    pass the behaviour of transformers 5 for the kind of vocabulary.
    """
    stated = settings.get("mask_token")
    swallow = stated.get("lstrip", False) if isinstance(stated, dict) else swallow
    vocabulary = backend.get_vocab()
    roles = special_roles(settings, vocabulary)
    family = FAMILIES.get(settings["family"])
    special = {*roles.values(), *(token for token in (family.special if family else ()) if token in vocabulary)}
    mark_special(backend, sorted(special, key=vocabulary.__getitem__), roles.get("mask") if swallow else None)
    listed = {int(i): token for i, token in settings.get("added_tokens_decoder", {}).items()}
    for text, index in _read_ids(path.with_name("added_tokens.json")).items():
        listed.setdefault(index, {"content": text, "special": True})
    for index, token in sorted(listed.items()):
        flags = {name: token[name] for name in ("lstrip", "rstrip", "single_word", "normalized") if name in token}
        if not isinstance(token.get("content"), str):
            raise ValueError(f"Every added token must have a text. Received: no text for id {index} in {path.parent}.")
        added = hf.AddedToken(token["content"], special=token.get("special", False), **flags)
        (backend.add_special_tokens if added.special else backend.add_tokens)([added])
        if backend.token_to_id(token["content"]) != index:
            raise ValueError(
                f"The ids of added tokens must follow those of the vocabulary. Received: {index} for "
                f"{token['content']!r} in {path.parent}, but its id is {backend.token_to_id(token['content'])}."
            )
    vocabulary = backend.get_vocab(with_added_tokens=True)
    roles = special_roles(settings, vocabulary)
    if family is not None:
        has_ends = {"cls", "sep"} <= roles.keys()
        layout = roberta_template(roles, vocabulary) if family is FAMILIES["roberta"] and has_ends else None
        layout = layout or family.template(roles, vocabulary)
    elif "cls" in roles and "sep" in roles:
        layout = (roberta_template if roles["cls"] == "<s>" else bert_template)(roles, vocabulary)
    else:
        layout = None
    if layout is not None:
        backend.post_processor = layout
    return backend


# === Readers: functions from (path, settings) to (backend, further arguments of the Tokenizer) ===


def _read_tokenizer_json(path: Path, settings: dict) -> tuple[hf.Tokenizer, dict]:
    try:
        with rust_errors(f"{path} is not a tokenizer file"):
            return hf.Tokenizer.from_file(str(path)), {}
    except ValueError:
        stored = _read_json(path, VOCABULARY_LIMIT)
        if stored.get("registered_name") is not None or stored.get("class_name") is not None:
            return _read_keras_hub(path, settings, stored)
        raise


# KerasHub's presets have a different tokenizer.json, and a separate vocabulary file. {tokenizer class: (family, file)}
_KERAS_HUB = {
    "BertTokenizer": ("bert", "vocabulary.txt"),
    "DistilBertTokenizer": ("distilbert", "vocabulary.txt"),
    "ElectraTokenizer": ("electra", "vocabulary.txt"),
    "RobertaTokenizer": ("roberta", "vocabulary.json"),
    "XLMRobertaTokenizer": ("xlm-roberta", "vocabulary.spm"),
    "AlbertTokenizer": ("albert", "vocabulary.spm"),
}


def _read_keras_hub(path: Path, settings: dict, stored: dict) -> tuple[hf.Tokenizer, dict]:
    check_types(stored, {"class_name": Literal[*_KERAS_HUB], "config": dict}, path)
    check_types(stored.get("config", {}), {"lowercase": bool}, path)
    if "class_name" not in stored:
        raise ValueError(f"{path} must describe a tokenizer of transformers or KerasHub. Received: neither.")
    settings["family"], file = _KERAS_HUB[stored["class_name"]]
    settings["do_lower_case"] = stored.get("config", {}).get("lowercase", settings["family"] == "albert")
    vocabulary = path.parent / "assets" / "tokenizer" / file
    if not vocabulary.is_file():
        raise FileNotFoundError(f"The tokenizer of a KerasHub preset needs {vocabulary}. There is no such file.")
    readers = {".txt": _read_wordpiece, ".json": _read_bpe, ".spm": _read_sentencepiece}
    return readers[vocabulary.suffix](vocabulary, settings)


def _read_wordpiece(path: Path, settings: dict) -> tuple[hf.Tokenizer, dict]:
    lines = _read_text(path).split("\n")
    vocabulary = {token.rstrip("\r"): index for index, token in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    roles = special_roles(settings, vocabulary)
    if "unk" not in roles:
        raise ValueError(
            f"{path} must contain the unknown token: [UNK], or the one named in tokenizer_config.json. Received: "
            "neither."
        )
    backend = hf.Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=roles["unk"]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return _finish(backend, path, settings), {}


def _read_bpe(path: Path, settings: dict) -> tuple[hf.Tokenizer, dict]:
    merges = path.with_name("merges.txt")
    if not merges.is_file():
        raise FileNotFoundError(f"{path} requires the file merges.txt in the same folder. There is no such file.")
    vocabulary = _read_ids(path)
    lines = _read_text(merges).split("\n")
    pairs = [tuple(line.split()[:2]) for line in lines if line.strip() and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"Each line of {merges} must have the two parts of a merge. Received: a line with one part.")
    if not vocabulary:
        raise ValueError(f"{path} must contain tokens. Received: an empty vocabulary.")
    if any(token.endswith("</w>") for token in vocabulary):
        return _read_bpe_of_words(path, settings, vocabulary, pairs)
    unknown = sorted({part for pair in pairs for part in (*pair, "".join(pair))} - set(vocabulary))
    if unknown:
        raise ValueError(f"{merges} must match {path}, which lacks {', '.join(unknown[:5])}.")
    backend = hf.Tokenizer(models.BPE(vocabulary, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return _finish(backend, path, settings), {}


def _read_bpe_of_words(path: Path, settings: dict, vocabulary: dict, pairs: list) -> tuple[hf.Tokenizer, dict]:
    """Reads BPE vocabularies that mark the ends of words: those of XLM and GPT."""
    settings["family"] = settings["family"] or ("xlm" if "<special1>" in vocabulary else "openai-gpt")
    size = max(vocabulary.values()) + 1
    backend = hf.Tokenizer(bpe_of_words(vocabulary, pairs))
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    if settings["family"] == "xlm":
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        lowercase = settings.get("do_lowercase_and_remove_accent", True)
        further = {"preparation": "moses" if lowercase else "moses_cased"}
    else:
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        further = {}
    return _finish(backend, path, settings), {**further, "vocabulary_size": size}


def bpe_of_words(vocabulary: dict[str, int], pairs: list[tuple[str, str]]) -> models.BPE:
    """Builds a BPE model with marks at the ends of words. Merges that are not in the vocabulary get further ids."""
    parts = dict.fromkeys(part for pair in pairs for part in (*pair, "".join(pair)))
    first = max(vocabulary.values()) + 1
    steps = {part: first + i for i, part in enumerate(part for part in parts if part not in vocabulary)}
    unk = "<unk>" if "<unk>" in vocabulary else None
    return models.BPE({**vocabulary, **steps}, pairs, unk_token=unk, end_of_word_suffix="</w>")


def _read_sentencepiece(path: Path, settings: dict) -> tuple[hf.Tokenizer, dict]:
    model = read_model(path)
    settings["family"] = settings["family"] or family_of_pieces(model.pieces, path.name)
    family = FAMILIES.get(settings["family"]) or Family({}, split_whitespace=False)
    model.pieces = family.to_ids(model.pieces, settings)
    there = {text for text, _, _ in model.pieces}
    for token in (settings.get(f"{role}_token", family.roles.get(role)) for role in family.roles):
        token = token.get("content") if isinstance(token, dict) else token
        if token and token not in there:
            model.pieces.append((token, 0.0, CONTROL))
            there.add(token)
    unk = settings.get("unk_token", family.roles.get("unk"))
    unk = unk.get("content") if isinstance(unk, dict) else unk
    unk = unk if unk in there else None
    backend = build_backend(model, family.steps(settings), unk, family.split_whitespace)
    mark_special(backend, [text for text, _, kind in model.pieces if kind in (CONTROL, UNKNOWN)])
    return _finish(backend, path, settings, swallow=True), {}


# Only the first of these files that exists is read.
READERS = {
    "tokenizer.json": _read_tokenizer_json,
    "vocab.txt": _read_wordpiece,
    "vocab.json": _read_bpe,
    "spiece.model": _read_sentencepiece,
    "sentencepiece.bpe.model": _read_sentencepiece,
    "spm.model": _read_sentencepiece,
    "tokenizer.model": _read_sentencepiece,
}
