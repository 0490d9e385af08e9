"""The conventions of each family's tokenizer: special tokens, templates, and numbering of ids.

Model types with the same conventions share an entry of the table. `files.py` uses it to read tokenizer files.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import normalizers, processors

from .added_tokens import text_of
from .sentencepiece import BREAKS, CONTROL, NORMAL, SPACES_AT_ENDS, SPACES_BEHIND, UNKNOWN
from .settings import CLASSES, GENERIC, class_stem, option

Pieces = list[tuple[str, float, int]]

LANGUAGE = "en_XX"  # of texts whose language is not stated, as in transformers


def _same(pieces: Pieces, settings: dict) -> Pieces:
    return pieces


@dataclasses.dataclass(frozen=True)
class Family:
    """The tokenizer conventions of a family.

    Args:
        roles: the token of each role, in the order of their ids.
        single, pair: templates for single texts and pairs, which consist of roles, of the texts A and B, and of `lang`,
            the code of their language. `:1` after an item is its segment id, which is 0 by default.
        file: name of the published vocabulary file.
        special: further special tokens.
        behind: special tokens whose ids come after those of the pieces.
        padding_side: "left" or "right".
        to_ids: function that puts the pieces of a SentencePiece model into the order of the ids, which may be
            different. For example, fairseq puts its special tokens first.
        to_model: the inverse of `to_ids`.
        steps: function from the settings to normalizers that are applied before that of SentencePiece.
        split_whitespace: as in `sentencepiece.build_backend`.
        without_prefix: its `scheme` if the settings say that `add_prefix_space` is False.
        strips: as in `sentencepiece.build_backend`.
    """

    roles: dict[str, str]
    single: str = "A"
    pair: str = "A B"
    file: str = "spiece.model"
    special: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    padding_side: str = "right"
    to_ids: Callable = _same
    to_model: Callable = _same
    steps: Callable = lambda settings: []
    split_whitespace: bool = True
    without_prefix: str = "never"
    strips: str | None = SPACES_AT_ENDS

    @property
    def kind(self) -> str:
        """The kind of vocabulary, as in `Tokenizer.train`."""
        if self.special and self.file == "vocab.json":
            return "bpe"
        return {"vocab.txt": "wordpiece", **dict.fromkeys(("vocab.json", "tokenizer.json"), "byte_bpe")}.get(
            self.file, "unigram"
        )

    @property
    def has_language(self) -> bool:
        """Whether rows have the code of a language."""
        return "lang" in self.single.split()

    def template(
        self, roles: dict[str, str], ids: dict[str, int], language: str = LANGUAGE
    ) -> processors.PostProcessor | None:
        """Returns the post-processor for the templates, or None if the vocabulary lacks one of their tokens.

        Raises: ValueError if the vocabulary lacks the code of the language.
        """
        if self.has_language:
            if language not in ids:
                raise ValueError(
                    f"The language must have a code in the vocabulary, such as {LANGUAGE}. Received: {language!r}."
                )
            roles = {**roles, "lang": language}
        used = {item.partition(":")[0] for item in f"{self.single} {self.pair}".split()} - {"A", "B"}
        if not used or not used <= set(roles):
            return None
        single, pair = (
            " ".join(("$" if name in "AB" else "") + roles.get(name, name) + ":" + (segment or "0")
                     for name, _, segment in (item.partition(":") for item in row.split()))
            for row in (self.single, self.pair)
        )  # fmt: skip
        special = sorted({(roles[name], ids[roles[name]]) for name in used})
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


# === How families number pieces ===


def _extra_ids(settings: dict) -> list[str]:
    return [f"<extra_id_{i}>" for i in reversed(range(settings.get("extra_ids", 100)))]


def _t5_to_ids(pieces: Pieces, settings: dict) -> Pieces:
    """Appends the sentinels to the pieces in reverse order, so that the first sentinel has the last id."""
    there = {text for text, _, _ in pieces}
    return pieces + [(token, 0.0, CONTROL) for token in _extra_ids(settings) if token not in there]


def _t5_to_model(pieces: Pieces, settings: dict) -> Pieces:
    return [piece for piece in pieces if not piece[0].startswith("<extra_id_")]


_ANGLES = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
_FAIRSEQ = [("<s>", 0.0, CONTROL), ("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
_MASK = [("<mask>", 0.0, CONTROL)]
_SPM = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]


def _renamed(pieces: Pieces, settings: dict) -> Pieces:
    """Gives special pieces the names that the settings state for their roles."""
    roles = ("bos", "pad", "eos", "unk", "mask")
    names = {_ANGLES[role]: text_of(settings.get(f"{role}_token")) or _ANGLES[role] for role in roles}
    return [(names.get(text, text), score, kind) for text, score, kind in pieces]


def _xlm_roberta_to_ids(pieces: Pieces, settings: dict) -> Pieces:
    return _renamed(_FAIRSEQ, settings) + pieces[3:] + _renamed(_MASK, settings)


def _xlm_roberta_to_model(pieces: Pieces, settings: dict) -> Pieces:
    return _SPM + [piece for piece in pieces[4:] if piece[0] != "<mask>"]


# The languages of mBART, and those of mBART-50, of which the model has two more than its name says.
_LANGUAGES = tuple(
    """ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX
    ro_RO ru_RU si_LK tr_TR vi_VN zh_CN""".split()
)
_FURTHER_LANGUAGES = tuple(
    """af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN
    te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI""".split()
)


def _mbart(languages: tuple[str, ...], roles: tuple[str, ...], **templates) -> Family:
    """The tokenizer of an mBART: the ids of XLM-RoBERTa, with the codes of the languages before the mask."""
    codes = [(code, 0.0, CONTROL) for code in languages]

    def to_ids(pieces: Pieces, settings: dict) -> Pieces:
        pieces = _xlm_roberta_to_ids(pieces, settings)
        return [*pieces[:-1], *codes, pieces[-1]]

    def to_model(pieces: Pieces, settings: dict) -> Pieces:
        return [piece for piece in _xlm_roberta_to_model(pieces, settings) if piece[0] not in languages]

    return Family(
        {role: _ANGLES[role] for role in roles},
        file="sentencepiece.bpe.model",
        behind=(*languages, "<mask>"),
        to_ids=to_ids,
        to_model=to_model,
        **templates,
    )


_CAMEMBERT = [
    ("<s>NOTUSED", 0.0, CONTROL),
    ("<pad>", 0.0, CONTROL),
    ("</s>NOTUSED", 0.0, CONTROL),
    ("<unk>", 0.0, UNKNOWN),
    ("<unk>NOTUSED", -100.0, CONTROL),
]


def _camembert_to_ids(pieces: Pieces, settings: dict) -> Pieces:
    return _renamed(_CAMEMBERT, settings) + pieces[1:] + _renamed(_MASK, settings)


def _camembert_to_model(pieces: Pieces, settings: dict) -> Pieces:
    return _SPM[:1] + [piece for piece in pieces[5:] if piece[0] != "<mask>"]


def _ends_in_number_and_comma(piece: tuple) -> bool:
    text = piece[0]
    return len(text) > 1 and text[-1] == "," and text[-2].isdigit() and piece[2] == NORMAL


def _without_number_commas(pieces: Pieces, settings: dict) -> Pieces:
    """Lowers the scores of pieces such as "9,", so that they are not used: ALBERT and XLNet split them in two."""
    return [(p[0], p[1] - 100.0, p[2]) if _ends_in_number_and_comma(p) else p for p in pieces]


def _with_number_commas(pieces: Pieces, settings: dict) -> Pieces:
    return [(p[0], p[1] + 100.0, p[2]) if _ends_in_number_and_comma(p) and p[1] < -100.0 else p for p in pieces]


# === How families normalize text ===


def _quotes_accents_case(family: str, lowercase: bool) -> Callable:
    def steps(settings: dict) -> list[normalizers.Normalizer]:
        settings = {**settings, "family": family}
        out = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not option(settings, "keep_accents", False):
            out += [normalizers.NFKD(), normalizers.StripAccents()]
        return out + ([normalizers.Lowercase()] if option(settings, "do_lower_case", lowercase) else [])

    return steps


def deberta_v2_steps(settings: dict) -> list[normalizers.Normalizer]:
    """The normalizers of the class of transformers. A space before the text is kept: "▁a" after it becomes "▁▁a".

    If the model has rules of its own ("has_rules"), they decide which characters are spaces, as in SentencePiece.
    """
    lowercase = [normalizers.Lowercase()] if settings.get("do_lower_case") else []
    if settings.get("has_rules"):
        return [*lowercase, normalizers.Replace(hf.Regex(BREAKS), " "), normalizers.NFC()]
    spaces = normalizers.Replace(hf.Regex(rf"\s{{2,}}|{BREAKS}"), " ")
    return [*lowercase, spaces, normalizers.NFC(), normalizers.Strip(left=False)]


# === The table ===

_BRACKETS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_SEGMENTS: dict[str, Any] = dict(single="cls A sep", pair="cls A sep B:1 sep:1")
_DOUBLE: dict[str, Any] = dict(single="cls A sep", pair="cls A sep sep B sep")
_ENDS: dict[str, Any] = dict(single="bos A eos", pair="bos A eos eos B eos")

_BERT = Family(_BRACKETS, **_SEGMENTS, file="vocab.txt")
_T5 = Family(
    {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
    "A eos",
    "A eos B eos",
    behind=tuple(_extra_ids({})),
    to_ids=_t5_to_ids,
    to_model=_t5_to_model,
)
_DEBERTA = {
    "pad": "[PAD]",
    **{"bos": "[CLS]", "cls": "[CLS]", "eos": "[SEP]", "sep": "[SEP]"},
    **{"unk": "[UNK]", "mask": "[MASK]"},
}

FAMILIES = {
    "bert": _BERT,
    "electra": _BERT,
    "mobilebert": _BERT,
    "distilbert": Family(_BRACKETS, "cls A sep", "cls A sep B sep", file="vocab.txt"),
    "roberta": Family(_ANGLES, **_DOUBLE, file="vocab.json"),
    "gpt2": Family(dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>"), file="vocab.json"),
    "gpt_bert": Family(
        {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>"},
        "bos A",
        "bos A bos B",
        file="tokenizer.json",
        special=tuple(f"<special_{i}>" for i in range(12)),  # so that other tokens begin with id 16; the mask is last
    ),
    "openai-gpt": Family({"unk": "<unk>"}, file="vocab.json"),
    "deberta": Family(_DEBERTA, **_SEGMENTS, file="vocab.json"),
    "mpnet": Family({**_ANGLES, "unk": "[UNK]"}, **_DOUBLE, file="vocab.txt", behind=("<mask>",)),
    "modernbert": Family(_BRACKETS, "cls A sep", "cls A sep B sep", file="vocab.json"),
    "xlm": Family(
        {"bos": "<s>", "cls": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<special1>"},
        "bos A sep",
        "bos A sep B sep",
        file="vocab.json",
        special=tuple(f"<special{i}>" for i in range(10)),
    ),
    "albert": Family(
        {**{"pad": "<pad>", "unk": "<unk>"}, **{k: v for k, v in _DEBERTA.items() if k not in ("pad", "unk")}},
        **_SEGMENTS,
        to_ids=_without_number_commas,
        to_model=_with_number_commas,
        steps=_quotes_accents_case("albert", lowercase=True),
    ),
    "xlnet": Family(
        {
            **{"unk": "<unk>", "bos": "<s>", "eos": "</s>", "cls": "<cls>", "sep": "<sep>"},
            **{"pad": "<pad>", "mask": "<mask>"},
        },
        "A sep cls:2",
        "A sep B:1 sep:1 cls:2",
        special=("<eod>", "<eop>"),
        padding_side="left",
        to_ids=_without_number_commas,
        to_model=_with_number_commas,
        steps=_quotes_accents_case("xlnet", lowercase=False),
    ),
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "xlm-roberta": Family(
        _ANGLES,
        **_ENDS,
        file="sentencepiece.bpe.model",
        behind=("<mask>",),
        to_ids=_xlm_roberta_to_ids,
        to_model=_xlm_roberta_to_model,
    ),
    "camembert": Family(
        _ANGLES,
        **_ENDS,
        file="sentencepiece.bpe.model",
        special=("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"),
        to_ids=_camembert_to_ids,
        to_model=_camembert_to_model,
    ),
    "mbart": _mbart(_LANGUAGES, tuple(_ANGLES), single="A eos lang", pair="A B eos lang"),
    "mbart50": _mbart(
        _LANGUAGES + _FURTHER_LANGUAGES,
        tuple(role for role in _ANGLES if role != "bos"),
        single="lang A eos",
        pair="lang A B eos",
        split_whitespace=False,
        strips=None,
    ),
    "deberta-v2": Family(
        _DEBERTA,
        **_SEGMENTS,
        file="spm.model",
        behind=("[MASK]",),
        steps=deberta_v2_steps,
        split_whitespace=False,
        without_prefix="first",
        strips=SPACES_BEHIND,
    ),
}


# Model types whose tokenizers are those of another family, and those that use tokenizer.json as it is.
_OF_MODELS = {"bart": "roberta", "nomic_bert": "bert", "gte": "xlm-roberta", "jina_embeddings_v3": "xlm-roberta"}
_GENERIC_MODELS = ("modernbert", "modernbert-decoder", "umt5", "gpt_bert")


def family_named(tokenizer_class: str | None, model_type: str | None) -> str | None:
    """Finds a family by tokenizer class, or else by model type (config.json). May be None."""
    of_model = _OF_MODELS.get(model_type or "", model_type)
    return CLASSES.get(class_stem(tokenizer_class), of_model if of_model in FAMILIES else None)


def family_of_class(tokenizer_class: str | None, model_type: str | None) -> str | None:
    """Finds the family of the class that AutoTokenizer takes, or None if this class uses tokenizer.json as it is."""
    if model_type in _GENERIC_MODELS or tokenizer_class in GENERIC:
        return None
    return family_named(tokenizer_class, model_type) if class_stem(tokenizer_class) in ("", *CLASSES) else None


def check_file(family: str | None, path: Path, named: str | None) -> None:
    """Raises a ValueError if a vocabulary file is of another kind than those that the class of a family reads."""
    if family is None or path.name == "tokenizer.json":
        return
    file = FAMILIES[family].file
    if path.suffix != Path(file).suffix:
        raise ValueError(
            f"The vocabulary must be in a file that the tokenizer class reads, here {file}. Received: {path} in a "
            f"folder of {named}. State the class of the vocabulary as `tokenizer_class` in tokenizer_config.json."
        )


def family_of_pieces(pieces: Sequence[tuple], file_name: str) -> str | None:
    """Infers the family of a SentencePiece model without settings from its special tokens and its file name."""
    texts = [text for text, _, _ in pieces]
    if "<cls>" in texts:
        return "xlnet"
    if "[CLS]" in texts:
        return "deberta-v2" if "[PAD]" in texts else "albert"
    if file_name == "sentencepiece.bpe.model":
        return "xlm-roberta"
    return "t5" if texts[:2] == ["<pad>", "</s>"] else None


def mark_special(backend: hf.Tokenizer, tokens: Sequence[str], swallow: str | None = None) -> None:
    """Registers special tokens. New tokens get the next ids. The token `swallow` absorbs the space before it."""
    backend.add_special_tokens(
        [hf.AddedToken(token, lstrip=token == swallow, special=True, normalized=False) for token in tokens]
    )
