"""Reads tokenizer files of published models."""

from pathlib import Path
from typing import Literal

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from ..text.json_files import SETTINGS_LIMIT, VOCABULARY_LIMIT, check_types, is_text, read_json, shortened
from .added_tokens import add_listed, add_missing, merged, named_tokens, text_of
from .checks import rust_errors
from .families import (
    FAMILIES,
    LANGUAGE,
    Family,
    check_file,
    family_named,
    family_of_class,
    family_of_pieces,
    mark_special,
)
from .options import apply_options
from .sentencepiece import CONTROL, UNKNOWN, USER_DEFINED, build_backend, read_model
from .settings import FIELDS, check_class, check_fields, option

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

# What `clean_up_tokenization_spaces` replaces in decoded text.
_CLEANED = [(f" {mark}", mark) for mark in (*".?!,", "n't", "'m", "'s", "'ve", "'re")]
_CLEANED.insert(4, (" ' ", "'"))


def bert_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    return FAMILIES["bert"].template(roles, ids)


def roberta_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.RobertaProcessing((last, ids[last]), (first, ids[first]), add_prefix_space=False)


# === Settings ===


_TYPES = {name: field.type for name, field in FIELDS.items()} | {f"{role}_token": str | dict | None for role in ROLES}
_ADDED_TOKEN = {"content": str, **dict.fromkeys(("special", "lstrip", "rstrip", "single_word", "normalized"), bool)}
_MAX_EXTRA_IDS = 10_000


def read_settings(path: Path) -> dict:
    """Reads the tokenizer settings beside a tokenizer file. The key "family" is the family they belong to, or None.

    Settings that are null are left out. Special tokens are an exception, because null means that there is no such
    token. The key "family_of_class" is the family of the class that AutoTokenizer takes, or None if this class has no
    options and no special tokens of its own.

    Raises:
        ValueError: a setting has the wrong type, or asks for something that is not built.
    """
    folder = path.parent
    found = [_checked_settings(folder / name) for name in ("tokenizer_config.json", "special_tokens_map.json")]
    settings = merged(*found, path.suffix == ".model")
    roles = {f"{role}_token" for role in ROLES}
    settings = {key: value for key, value in settings.items() if value is not None or key in roles}
    settings.setdefault("tokenizer_family", None)
    config = _read_json(folder / "config.json")
    check_types(config, {"model_type": str | None, "tokenizer_class": str | None}, folder / "config.json")
    stated = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if settings["tokenizer_family"] is None:
        check_class(stated, path)
    check_fields(settings, path)
    settings["family_of_class"] = family_of_class(stated, config.get("model_type"))
    check_file(settings["family_of_class"], path, stated or config.get("model_type"))
    settings["family"] = settings["tokenizer_family"] or family_named(stated, config.get("model_type"))
    return settings


def has_segments(settings: dict) -> bool:
    """Whether the tokenizer of a folder gives its models segment ids.

    If the settings do not list the inputs of models, the class decides. The classes of ALBERT and XLNet, and those
    without a family, return no segment ids in transformers 5, but they did in the versions with which their published
    models were trained. Only transformers 5 writes the field "backend".
    """
    if "tokenizer_segments" in settings:
        return settings["tokenizer_segments"]
    if "model_input_names" in settings:
        return "token_type_ids" in settings["model_input_names"]
    before_5 = () if "backend" in settings else ("albert", "xlnet", None)
    return settings["family_of_class"] in ("bert", "electra", "mobilebert", "deberta", "deberta-v2", *before_5)


def _checked_settings(path: Path) -> dict:
    """The content of tokenizer_config.json or special_tokens_map.json, whose values have the right types."""
    found = _read_json(path)
    check_types(found, _TYPES, path)
    tokens = [found.get(f"{role}_token") for role in ROLES]
    for name in ("extra_special_tokens", "additional_special_tokens"):
        more = found.get(name) or ()
        tokens += more.values() if isinstance(more, dict) else more
    if not all(token is None or isinstance(token, (str, dict)) for token in tokens):
        raise ValueError(f"Special tokens in {path} must be text. Received: {shortened(tokens)}.")
    for token in tokens:
        _check_added(token, path)
    for index, token in (found.get("added_tokens_decoder") or {}).items():
        _check_added(token, path)
        if not index.isdecimal() or len(index) > 9:
            raise ValueError(f"The keys of `added_tokens_decoder` in {path} must be ids. Received: {shortened(index)}.")
    if not 0 <= (found.get("extra_ids") or 0) <= _MAX_EXTRA_IDS:
        raise ValueError(
            f"`extra_ids` in {path} must be between 0 and {_MAX_EXTRA_IDS}. Received: {shortened(found['extra_ids'])}."
        )
    for name in ("model_max_length", "max_len"):
        if (found.get(name) or 1) < 1:
            raise ValueError(f"`{name}` in {path} must be at least 1. Received: {shortened(found[name])}.")
    return found


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
        token = text_of(settings.get(f"{role}_token", usual.get(role)))
        if token in vocabulary:
            roles[role] = token
    if not roles and settings.get("family_of_class") is None:
        for role, names in _USUAL_NAMES.items():
            known = [name for name in names if name in vocabulary]
            if known and not (role == "sep" and known[0] == "</s>" and "<s>" not in vocabulary):
                roles[role] = known[0]
    return roles


def _finish(backend: hf.Tokenizer, path: Path, settings: dict, swallow: bool = False) -> hf.Tokenizer:
    """Registers special tokens, adds tokens that are stored outside the vocabulary, and sets the template.

    If the settings do not say whether the mask token absorbs the space before it (`lstrip`), `swallow` decides. Callers
    pass the behavior of transformers 5 for the kind of vocabulary.
    """
    stated = settings.get("mask_token")
    swallow = stated.get("lstrip", False) if isinstance(stated, dict) else swallow
    vocabulary = backend.get_vocab()
    roles = special_roles(settings, vocabulary)
    family = FAMILIES.get(settings["family"])
    special = {*roles.values(), *(token for token in (family.special if family else ()) if token in vocabulary)}
    mark_special(backend, sorted(special, key=vocabulary.__getitem__), roles.get("mask") if swallow else None)
    register_added(backend, path, settings)
    vocabulary = backend.get_vocab(with_added_tokens=True)
    roles = special_roles(settings, vocabulary)
    if family is not None:
        has_ends = {"cls", "sep"} <= roles.keys()
        layout = roberta_template(roles, vocabulary) if family is FAMILIES["roberta"] and has_ends else None
        layout = layout or family.template(roles, vocabulary, option(settings, "src_lang", LANGUAGE))
    elif "cls" in roles and "sep" in roles:
        layout = (roberta_template if roles["cls"] == "<s>" else bert_template)(roles, vocabulary)
    else:
        layout = None
    if layout is None:
        layout = _bos_and_eos(roles, vocabulary, settings)
    if layout is not None:
        backend.post_processor = layout
    if option(settings, "clean_up_tokenization_spaces", False) and isinstance(backend.model, models.Unigram):
        rules = [decoders.Replace(old, new) for old, new in _CLEANED]
        backend.decoder = decoders.Sequence([backend.decoder, decoders.Fuse(), *rules])
    return backend


def register_added(backend: hf.Tokenizer, path: Path, settings: dict) -> None:
    """Registers the added tokens, and the special tokens that the vocabulary lacks, as transformers does."""
    special = stated_special(settings)
    add_listed(backend, _listed(path, settings), {*map(text_of, special)}, path.parent)
    add_missing(backend, special)


def stated_special(settings: dict) -> list[str | dict]:
    """All special tokens that the settings state, or else the class, in the order in which transformers adds them."""
    family = FAMILIES.get(settings["family_of_class"])
    roles = [settings.get(f"{role}_token", family and family.roles.get(role)) for role in ROLES]
    roles = [token for token in roles if text_of(token)]
    return [*roles, *named_tokens(settings, ROLES), *settings.get("extra_special_tokens", ())]


def _listed(path: Path, settings: dict) -> dict[int, dict]:
    """The added tokens of a folder by id: "added_tokens_decoder", or else added_tokens.json."""
    stated = settings.get("added_tokens_decoder")
    if stated is not None:
        return {int(index): token for index, token in stated.items()}
    return {index: {"content": text} for text, index in _read_ids(path.with_name("added_tokens.json")).items()}


def _bos_and_eos(roles: dict, ids: dict[str, int], settings: dict) -> processors.PostProcessor | None:
    """The template of GPT-2 with `add_bos_token` or `add_eos_token`."""
    ends = [role if role in roles and option(settings, f"add_{role}_token", False) else "" for role in ("bos", "eos")]
    if not any(ends):
        return None
    row = " ".join(filter(None, (ends[0], "A", ends[1])))
    return Family({}, row, f"{row} {row.replace('A', 'B')}").template(roles, ids)


# === Readers: functions from (path, settings) to (backend, further arguments of the Tokenizer) ===


def _read_tokenizer_json(path: Path, settings: dict) -> tuple[hf.Tokenizer, dict]:
    try:
        with rust_errors(f"{path} is not a tokenizer file"):
            backend = hf.Tokenizer.from_file(str(path))
    except ValueError:
        stored = _read_json(path, VOCABULARY_LIMIT)
        if stored.get("registered_name") is not None or stored.get("class_name") is not None:
            return _read_keras_hub(path, settings, stored)
        raise
    backend = apply_options(backend, settings, settings["family_of_class"])
    register_added(backend, path, settings)
    family = FAMILIES.get(settings["family_of_class"])
    if family is not None and family.has_language:
        vocabulary = backend.get_vocab(with_added_tokens=True)
        language = option(settings, "src_lang", LANGUAGE)
        backend.post_processor = family.template(special_roles(settings, vocabulary), vocabulary, language)
    return backend, {}


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
        lowercase=option(settings, "do_lower_case", True),
        strip_accents=option(settings, "strip_accents", None),
        handle_chinese_chars=option(settings, "tokenize_chinese_chars", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return _finish(backend, path, settings, swallow=settings["family"] == "mpnet"), {}


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
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=option(settings, "add_prefix_space", False))
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return _finish(backend, path, settings), {}


def _read_bpe_of_words(path: Path, settings: dict, vocabulary: dict, pairs: list) -> tuple[hf.Tokenizer, dict]:
    """Reads BPE vocabularies that mark the ends of words: those of XLM and GPT."""
    settings["family"] = settings["family"] or ("xlm" if "<special1>" in vocabulary else "openai-gpt")
    # Intermediate merges get ids behind those of the added tokens.
    listed = [token.get("content") for _, token in sorted(_listed(path, settings).items())]
    for token in filter(None, [*listed, *map(text_of, stated_special(settings))]):
        vocabulary.setdefault(token, max(vocabulary.values()) + 1)
    size = max(vocabulary.values()) + 1
    backend = hf.Tokenizer(bpe_of_words(vocabulary, pairs))
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    if settings["family"] == "xlm":
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        lowercase = option(settings, "do_lowercase_and_remove_accent", True)
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
    user_defined = [text for text, _, kind in model.pieces if kind == USER_DEFINED]
    unk = text_of(settings.get("unk_token", family.roles.get("unk")))
    unk = unk if any(text == unk for text, _, _ in model.pieces) else None
    there, listed = {text for text, _, _ in model.pieces}, _listed(path, settings)
    for role in family.roles:
        stated = settings.setdefault(f"{role}_token", family.roles[role])
        token, place = text_of(stated), len(model.pieces)
        # A token that is listed for this id comes first.
        if token and token not in there and listed.get(place, {"content": token}).get("content") == token:
            model.pieces.append((token, 0.0, CONTROL))
            there.add(token)
    prefix = option(settings, "add_prefix_space", True)
    scheme = None if prefix else family.without_prefix
    steps = family.steps({**settings, "has_rules": bool(model.charsmap)})
    backend = build_backend(model, steps, unk, family.split_whitespace, scheme, family.strips)
    if option(settings, "split_by_punct", False):
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("isolated"), backend.pre_tokenizer])
    mark_special(backend, [text for text, _, kind in model.pieces if kind in (CONTROL, UNKNOWN)])
    # SentencePiece finds these symbols before it tokenizes.
    backend.add_tokens([hf.AddedToken(text, normalized=False) for text in user_defined])
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
