"""The classes and the fields of tokenizer settings: which classes of transformers read each field, and what is done.

`tokenizer_config.json`, `special_tokens_map.json` and `config.json` name a class, and hold the arguments of this class.
A class that is not in `CLASSES` is refused by name, unless the folder has a `tokenizer.json`, which says everything.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from ..text.json_files import shortened

# {class of transformers, without "Tokenizer" and "Fast": family}. The classes of a family read the same files.
CLASSES = {
    **dict.fromkeys(("Bert", "ConvBert", "SqueezeBert", "LayoutLM", "Lxmert", "RetriBert", "Nezha", "Realm"), "bert"),
    **dict.fromkeys(("DPRQuestionEncoder", "DPRContextEncoder"), "bert"),
    **{"Electra": "electra", "MobileBert": "mobilebert", "DistilBert": "distilbert", "MPNet": "mpnet"},
    **dict.fromkeys(("Roberta", "Longformer", "Bart", "LED", "Mvp"), "roberta"),
    **{"GPT2": "gpt2", "OpenAIGPT": "openai-gpt", "Deberta": "deberta", "ModernBert": "modernbert"},
    **{"Albert": "albert", "XLNet": "xlnet", "T5": "t5", "MT5": "mt5", "UMT5": "umt5"},
    **{"XLMRoberta": "xlm-roberta", "Camembert": "camembert", "DebertaV2": "deberta-v2", "XLM": "xlm"},
    **{"MBart": "mbart", "MBart50": "mbart50"},
}
# Classes that say nothing about the family.
GENERIC = ("PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")
# Classes that find words with another program, or have no subwords: their folders are refused even with other files.
_OTHER_WORDS = (
    *("BertJapanese", "Bertweet", "Phobert", "BioGpt", "Flaubert", "RoFormer", "RoCBert", "Cpm", "CpmAnt", "Jieba"),
    *("Canine", "ByT5", "MyT5", "Perceiver", "Esm", "Tapas", "ProphetNet", "CTRL", "FSMT", "Bartpho"),
)

_WORDPIECE = ("bert", "electra", "mobilebert", "distilbert", "mpnet")
_BYTES = ("roberta", "gpt2", "deberta")
_ALL = "every class"


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of the settings.

    Args:
        type: what its value must be.
        families: the families whose classes read it, or "every class". Other classes ignore it, and so do we.
        what: what is done with it: "followed", "ignored", or "refused" if its value is not `neutral`.
        neutral: the values that change nothing.
        note: details, and the differences from transformers.
    """

    type: Any
    families: tuple[str, ...] | str
    what: Literal["followed", "ignored", "refused"]
    neutral: tuple = (None,)
    note: str = ""

    def is_read_by(self, family: str | None) -> bool:
        """Whether the classes of a family read the field. If the family is not known, the file decides."""
        return family is None or self.families == _ALL or family in self.families


FIELDS = {
    "do_lower_case": Field(bool | None, (*_WORDPIECE, "albert", "xlnet", "deberta-v2"), "followed"),
    "strip_accents": Field(bool | None, _WORDPIECE, "followed", note="null: where letters are lower-cased"),
    "tokenize_chinese_chars": Field(bool | None, _WORDPIECE, "followed"),
    "keep_accents": Field(bool | None, ("albert",), "followed", note="XLNet's class removes accents in any case"),
    "add_prefix_space": Field(bool | None, (*_BYTES, "albert", "xlm-roberta", "camembert", "deberta-v2"), "followed"),
    "split_by_punct": Field(bool | None, ("deberta-v2",), "followed"),
    "extra_ids": Field(int | None, ("t5", "mt5", "umt5"), "followed"),
    "src_lang": Field(str | None, ("mbart", "mbart50"), "followed", note="null: en_XX"),
    "tgt_lang": Field(str | None, ("mbart", "mbart50"), "ignored", note="rows have the code of the source language"),
    "do_lowercase_and_remove_accent": Field(bool | None, ("xlm",), "followed"),
    "add_bos_token": Field(bool | None, ("gpt2",), "followed", note="not with tokenizer.json, as in transformers"),
    "add_eos_token": Field(bool | None, ("gpt2",), "followed", note="not with tokenizer.json, as in transformers"),
    "added_tokens_decoder": Field(
        dict[str, dict] | None, _ALL, "followed", note="replaces special_tokens_map.json and added_tokens.json"
    ),
    "extra_special_tokens": Field(list | dict | None, _ALL, "followed"),
    "additional_special_tokens": Field(list | None, _ALL, "followed", note="where there are no extra_special_tokens"),
    "tokenizer_class": Field(str | None, _ALL, "followed"),
    "tokenizer_family": Field(str | None, (), "followed", note="written by this package"),
    "tokenizer_segments": Field(bool | None, (), "followed", note="written by this package, for other models"),
    "model_input_names": Field(list[str] | None, _ALL, "followed", note="pairs have segments if it has token_type_ids"),
    "backend": Field(str | None, _ALL, "followed", note="written by transformers 5; see `reading.has_segments`"),
    "model_max_length": Field(float | None, _ALL, "followed"),
    "max_len": Field(float | None, _ALL, "followed", note="where there is no model_max_length"),
    "padding_side": Field(Literal["left", "right"] | None, _ALL, "followed"),
    "truncation_side": Field(Literal["left", "right"] | None, _ALL, "refused", (None, "right")),
    "split_special_tokens": Field(bool | None, _ALL, "refused", (None, False)),
    "clean_up_tokenization_spaces": Field(
        bool | None, _ALL, "followed", note="only vocabularies of SentencePiece without a tokenizer.json"
    ),
    # Arguments that the classes of transformers 5 accept, and that change no ids.
    **{
        name: Field(Any, _ALL, "ignored")
        for name in (
            *("do_basic_tokenize", "never_split", "remove_space", "trim_offsets", "errors", "legacy", "unk_id"),
            *("sp_model_kwargs", "lang2id", "id2lang", "name_or_path", "processor_class"),
        )
    },
}


def class_stem(name: str | None) -> str:
    """The name of a tokenizer class without "Tokenizer" and "Fast", or "" if it says nothing about the family."""
    return "" if name is None or name in GENERIC else name.removesuffix("Fast").removesuffix("Tokenizer")


def check_class(name: str | None, path: Path) -> None:
    """Raises a ValueError if a tokenizer class is not built.

    Args:
        name: the name of the class, or None.
        path: the tokenizer file that is read. With `tokenizer.json`, the class only matters if it finds words itself.
    """
    stem = class_stem(name)
    if stem in _OTHER_WORDS or (stem and stem not in CLASSES and path.name != "tokenizer.json"):
        raise ValueError(
            f"The tokenizer class of {path.parent} must be one of "
            f"{', '.join(f'{known}Tokenizer' for known in CLASSES)}, or the folder must have a tokenizer.json of a "
            f"class that uses it. Received: {shortened(name)}, which is not built."
        )


def check_fields(settings: dict, path: Path) -> None:
    """Raises a ValueError if the settings ask for something that is not built."""
    for name, field in FIELDS.items():
        if field.what == "refused" and settings.get(name) not in field.neutral:
            raise ValueError(
                f"`{name}` in the tokenizer settings of {path.parent} must be {shortened(field.neutral[-1])}: nothing "
                f"else is built. Received: {shortened(settings[name])}."
            )


def option(settings: dict, name: str, default: Any) -> Any:
    """The value of a field that the class of the family reads. Otherwise, or if the value is null, `default`."""
    value = settings.get(name)
    return value if value is not None and FIELDS[name].is_read_by(settings["family"]) else default
