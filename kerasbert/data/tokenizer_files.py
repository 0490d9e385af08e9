"""Tokenizer files of published models: one small function a kind of file."""

import json
from pathlib import Path

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

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


def bert_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, ids[first]), (last, ids[last])],
    )


def roberta_template(roles: dict, ids: dict[str, int]) -> processors.PostProcessor:
    first, last = roles["cls"], roles["sep"]
    return processors.RobertaProcessing((last, ids[last]), (first, ids[first]), add_prefix_space=False)


def read_settings(folder: Path) -> dict:
    settings: dict = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            settings |= json.loads((folder / name).read_text(encoding="utf-8"))
    return settings


def special_roles(settings: dict, vocabulary: dict[str, int]) -> dict[str, str]:
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
    roles = special_roles(settings, vocabulary)
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
        backend.post_processor = bert_template(roles, vocabulary)
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
    roles = special_roles(settings, vocabulary)
    _add_special_tokens(backend, roles, swallow=roles.get("mask"))
    if roles.get("cls") == "<s>":
        backend.post_processor = roberta_template(roles, vocabulary)
    elif "cls" in roles and "sep" in roles:
        backend.post_processor = bert_template(roles, vocabulary)
    return backend


def _add_special_tokens(backend: hf.Tokenizer, roles: dict, swallow: str | None = None) -> None:
    vocabulary = backend.get_vocab()
    special = sorted(set(roles.values()), key=vocabulary.__getitem__)
    backend.add_special_tokens([hf.AddedToken(t, lstrip=t == swallow, special=True, normalized=False) for t in special])


# One small function a kind of file; the first that is there is read.
READERS = {"tokenizer.json": _read_tokenizer_json, "vocab.txt": _read_wordpiece, "vocab.json": _read_byte_bpe}
