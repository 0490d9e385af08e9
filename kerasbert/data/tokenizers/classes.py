"""Which class of transformers the settings of a tokenizer name.

The classes of the families take only the vocabulary from `tokenizer.json`. They build the other parts as in the
published models, with options such as `add_prefix_space`, which pre-split words need for byte-level BPE.
`PreTrainedTokenizerFast` reads `tokenizer.json` unchanged and has no such options.
"""

import json

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

from .families import FAMILIES

_WORDPIECE = {
    "bert": "BertTokenizer",
    "electra": "ElectraTokenizer",
    "mobilebert": "MobileBertTokenizer",
    "distilbert": "DistilBertTokenizer",
}


def class_settings(tokenizer) -> dict:
    """Returns the entries of `tokenizer_config.json` that name the class and the parts that it builds.

    The class is that of the family, if it builds exactly this tokenizer. The class of DeBERTa would not, because in
    transformers 5 it ends pairs with two separators; that of GPT-2 has the same options and keeps the template.
    """
    if tokenizer.preparation:
        return {"tokenizer_class": "XLMTokenizer"}
    parts = _parts(tokenizer.content)
    if parts == _bert_parts(tokenizer):
        if _has_rows_of(tokenizer, "bert"):
            return {"tokenizer_class": _WORDPIECE.get(tokenizer.family, "BertTokenizer")}
        if tokenizer.family == "mpnet" and _has_rows_of(tokenizer, "mpnet"):
            return {"tokenizer_class": "MPNetTokenizer"}
    for add_prefix_space in (False, True):
        if parts == _byte_level_parts(add_prefix_space):
            options = {"add_prefix_space": add_prefix_space}
            if tokenizer.family in (None, "roberta") and _has_rows_of(tokenizer, "roberta"):
                return {"tokenizer_class": "RobertaTokenizer", **options}
            # Without these entries, the class would add its own tokens.
            absent = {f"{role}_token": None for role in FAMILIES["gpt2"].roles if role not in tokenizer.roles}
            return {"tokenizer_class": "GPT2Tokenizer", **options, **absent}
    return {"tokenizer_class": "PreTrainedTokenizerFast"}


def _has_rows_of(tokenizer, family: str) -> bool:
    """Whether the tokenizer has all special tokens of the family, and its templates.

    A tokenizer without segments may leave out those of the template, because its settings do not ask for them.
    """
    record, roles = FAMILIES[family], tokenizer.roles
    if not set(record.roles) <= set(roles):
        return False
    segmented = any(segment for _, segment in tokenizer.template(pair=True))
    for pair, row in ((False, record.single), (True, record.pair)):
        expected = []
        for name, _, segment in (item.partition(":") for item in row.split()):
            item = name if name in "AB" else tokenizer.id(roles[name])
            expected.append((item, int(segment or 0) if segmented else 0))
        if tokenizer.template(pair) != tuple(expected):
            return False
    return True


def _parts(content: dict) -> dict:
    """The parts of `tokenizer.json` that classes build, without the vocabulary."""
    model = {name: value for name, value in content["model"].items() if name not in ("vocab", "merges")}
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    model |= {name: model[name] or None for name in affixes if name in model}
    return {"model": model, **{name: content[name] for name in ("normalizer", "pre_tokenizer", "decoder")}}


def _bert_parts(tokenizer) -> dict | None:
    backend = hf.Tokenizer(models.WordPiece({}, unk_token=tokenizer.roles.get("unk", "[UNK]")))
    found = tokenizer.content["normalizer"] or {}
    if found.get("type") != "BertNormalizer":
        return None
    flags = {name: found[name] for name in ("handle_chinese_chars", "strip_accents", "lowercase")}
    backend.normalizer = normalizers.BertNormalizer(clean_text=True, **flags)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return _parts(json.loads(backend.to_str()))


def _byte_level_parts(add_prefix_space: bool) -> dict:
    backend = hf.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    return _parts(json.loads(backend.to_str()))
