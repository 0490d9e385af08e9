"""Writes tokenizer files with which transformers, including older versions, gives the same ids."""

import base64
import json
from pathlib import Path

import tokenizers as hf

from ..text.files import write_text, written_whole
from .classes import class_settings
from .families import FAMILIES, Family
from .reading import READERS
from .sentencepiece import BPE, BYTE, CONTROL, NORMAL, UNIGRAM, UNKNOWN, SentencePieceModel, model_bytes

# All files that loading a tokenizer reads, here or in transformers.
TOKENIZER_FILES = (*READERS, "merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")


def write_files(
    tokenizer, folder: Path, segment_ids: bool, max_length: int | None, truncation: int | None = None
) -> None:
    """Writes the settings, `tokenizer.json`, and the vocabulary in the file format of the family.

    XLM gets no `tokenizer.json`, because no normalizer can express Moses. Its tokenizer class reads the vocabulary
    instead. With `segment_ids`, transformers' tokenizer returns the segments of the template. It truncates texts to
    `max_length` tokens, if asked to. `truncation` is the limit in `tokenizer.json`.
    """
    special = {f"{role}_token": _special_token_entry(tokenizer, role) for role in tokenizer.roles}
    typed = segment_ids and tokenizer.has_segments
    settings = {
        **class_settings(tokenizer),
        "model_max_length": max_length or int(1e30),
        "padding_side": tokenizer.padding_side,
        "model_input_names": ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
        **_normalizer_settings(tokenizer),
    }
    further = [token for token in map(tokenizer.token, tokenizer.special_ids) if token not in tokenizer.roles.values()]
    if further:
        settings["additional_special_tokens"] = further
    if tokenizer.family:
        settings["tokenizer_family"] = tokenizer.family
    if tokenizer.has_segments and not typed:
        settings["tokenizer_segments"] = True
    _write_vocabulary(tokenizer, folder)
    # Here, transformers takes dicts as the arguments of `AddedToken`, which include no type.
    untyped = {
        role: {key: value for key, value in entry.items() if key != "__type"} if isinstance(entry, dict) else entry
        for role, entry in special.items()
    }
    write_text(folder / "special_tokens_map.json", json.dumps(untyped, indent=2, ensure_ascii=False))
    write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=2, ensure_ascii=False))
    if not tokenizer.preparation:
        backend = tokenizer.backend
        if truncation is not None:
            backend = hf.Tokenizer.from_str(backend.to_str())
            backend.enable_truncation(truncation)
        write_text(folder / "tokenizer.json", backend.to_str(pretty=True))


def _special_token_entry(tokenizer, role: str) -> str | dict:
    """Entry of a special token in the settings: its name, or a dict of flags if it absorbs the space before it."""
    token = tokenizer.roles[role]
    added = tokenizer.backend.get_added_tokens_decoder().get(tokenizer.id(token))
    if added is None or not added.lstrip:
        return token
    flags = {name: getattr(added, name) for name in ("content", "lstrip", "normalized", "rstrip", "single_word")}
    return {"__type": "AddedToken", **flags}


def _steps(normalizer: dict | None) -> list[dict]:
    if normalizer is None:
        return []
    return normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]


def _normalizer_settings(tokenizer) -> dict:
    if tokenizer.preparation:
        return {"do_lowercase_and_remove_accent": tokenizer.preparation == "moses"}
    steps = _steps(tokenizer.content["normalizer"])
    if steps and steps[0]["type"] == "BertNormalizer":
        return {
            "do_lower_case": steps[0]["lowercase"],
            "strip_accents": steps[0]["strip_accents"],
            "tokenize_chinese_chars": steps[0]["handle_chinese_chars"],
        }
    if tokenizer.family in ("albert", "xlnet", "deberta-v2"):
        kinds = {step["type"] for step in steps}
        return {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds}
    return {}


def _write_vocabulary(tokenizer, folder: Path) -> None:
    model = tokenizer.content["model"]
    if model["type"] == "WordPiece":
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in tokenizer.tokens))
    elif "Metaspace" in json.dumps(tokenizer.content["pre_tokenizer"]):
        sentencepiece = as_sentencepiece(tokenizer)
        if sentencepiece is not None:
            with written_whole(folder / _family(tokenizer).file) as file:
                file.write(model_bytes(sentencepiece))
    elif model["type"] == "BPE":
        merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
        first = [] if model["end_of_word_suffix"] else ["#version: 0.2"]
        ids = {token: i for i, token in enumerate(tokenizer.tokens)}
        write_text(folder / "vocab.json", json.dumps(ids, ensure_ascii=False))
        write_text(folder / "merges.txt", "".join(f"{line}\n" for line in first + merges))


def _family(tokenizer) -> Family:
    return FAMILIES.get(tokenizer.family) or Family({})


# Normalizers that a SentencePiece model stores, that the reader of a family adds, or that SentencePiece always applies.
_EXPRESSIBLE = {"Precompiled", "Replace", "NFC", "NFKD", "StripAccents", "Lowercase", "Strip"}


def as_sentencepiece(tokenizer) -> SentencePieceModel | None:
    """Converts the tokenizer to a SentencePiece model, or returns None if the model cannot express its normalizer."""
    content, family = tokenizer.content, _family(tokenizer)
    steps = _steps(content["normalizer"])
    of_family = {json.loads(step.__getstate__())["type"] for step in family.steps({})}
    of_families = {"NFC", "NFKD", "StripAccents", "Lowercase"}
    if not {step["type"] for step in steps} <= _EXPRESSIBLE - (of_families - of_family):
        return None
    model = content["model"]
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    if model["type"] == "Unigram":
        scores = dict(model["vocab"])
    else:
        order = ["".join(pair) if isinstance(pair, list) else pair.replace(" ", "", 1) for pair in model["merges"]]
        ranks = {text: -float(rank) for rank, text in reversed(list(enumerate(dict.fromkeys(order))))}
        scores = {text: ranks.get(text, -float(len(ranks))) for text in tokenizer.tokens}
    unk = tokenizer.roles.get("unk") or (model["vocab"][model["unk_id"]][0] if model["type"] == "Unigram" else None)

    def kind_of(text):
        if text == unk:
            return UNKNOWN
        if model["byte_fallback"] and len(text) == 6 and text.startswith("<0x"):
            return BYTE
        return CONTROL if text in special else NORMAL

    pieces = [(text, 0.0 if text in special else scores.get(text, 0.0), kind_of(text)) for text in tokenizer.tokens]
    charsmaps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    metaspace = json.dumps(content["pre_tokenizer"])
    return SentencePieceModel(
        family.to_model(pieces, {}),
        UNIGRAM if model["type"] == "Unigram" else BPE,
        base64.b64decode(charsmaps[0]) if charsmaps else b"",
        bool(model["byte_fallback"]),
        '"prepend_scheme": "never"' not in metaspace,
        any(step["type"] in ("Replace", "Strip") and step.get("pattern") != {"String": "``"} for step in steps)
        or "WhitespaceSplit" in metaspace,
    )
