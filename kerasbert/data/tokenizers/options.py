"""Options of tokenizer_config.json that contradict tokenizer.json. They win, as in transformers 5."""

import json

import tokenizers as hf

from .families import FAMILIES, deberta_v2_steps
from .sentencepiece import spaces_removed
from .settings import FIELDS

_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}

# What the classes do if the settings do not state it: those with a `BertNormalizer`, and by family the others.
_BERT_DEFAULTS = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
_DEFAULTS = {
    **dict.fromkeys(("roberta", "gpt2", "deberta"), {"add_prefix_space": False}),
    **dict.fromkeys(("xlm-roberta", "camembert"), {"add_prefix_space": True}),
    "albert": {"do_lower_case": True, "keep_accents": False, "add_prefix_space": True},
    "xlnet": {"do_lower_case": False},
    "deberta-v2": {"do_lower_case": False, "split_by_punct": False, "add_prefix_space": True},
}


def apply_options(backend: hf.Tokenizer, settings: dict, family: str | None) -> hf.Tokenizer:
    """Applies the options of a class to a backend that was read from tokenizer.json.

    Args:
        backend: the backend.
        settings: the settings of the folder. Options that they do not state have the default of the class.
        family: the family of the tokenizer class, or None for a class that uses tokenizer.json as it is.

    Returns: the backend itself if it agrees with the options.
    """
    if family is None:
        return backend
    stated = _DEFAULTS.get(family, {}) | {
        name: settings[name]
        for name, field in FIELDS.items()
        if field.is_read_by(family) and isinstance(settings.get(name), bool)
    }
    states = {name: getattr(backend, name) for name in _PARTS}
    parts = {name: _state(state) if state is not None else None for name, state in states.items()}
    changed = {name: _joined(_changed(_steps(part, name), name, stated, family), name) for name, part in parts.items()}
    if all(_steps(changed[name], name) == _steps(part, name) for name, part in parts.items()):
        return backend
    return hf.Tokenizer.from_str(json.dumps({**json.loads(backend.to_str()), **changed}))


def _state(part: object) -> dict:
    return json.loads(part.__getstate__())


def _steps(part: dict | None, name: str) -> list[dict]:
    if part is None:
        return []
    return part[_PARTS[name]] if part["type"] == "Sequence" else [part]


def _joined(steps: list[dict], name: str) -> dict | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", _PARTS[name]: steps}


def _changed(steps: list[dict], part: str, stated: dict, family: str | None) -> list[dict]:
    """The steps of a part of the backend with the stated options."""
    steps = [_with_fields(step, part, stated, family) for step in steps]
    if part == "normalizer" and family == "deberta-v2":
        of_model = [step for step in steps if step["type"] == "Precompiled"]
        spaces = spaces_removed(FAMILIES[family].strips) if of_model else []
        return [
            *map(_state, deberta_v2_steps({**stated, "has_rules": bool(of_model)})),
            *of_model,
            *map(_state, spaces),
        ]
    if part == "normalizer" and not any(step["type"] == "BertNormalizer" for step in steps):
        keep = stated.get("keep_accents")
        behind: tuple[str, ...] = ("Replace",)
        for kind, wanted in (
            ("NFKD", None if keep is None else not keep),
            ("StripAccents", None if keep is None else not keep),
            ("Lowercase", stated.get("do_lower_case")),
        ):
            steps = _with_step(steps, {"type": kind}, wanted, behind)
            behind += (kind,)
    if part == "pre_tokenizer":
        punctuation = {"type": "Punctuation", "behavior": "Isolated"}
        steps = _with_step(steps, punctuation, stated.get("split_by_punct"), ())
    return steps


def _with_fields(step: dict, part: str, stated: dict, family: str | None) -> dict:
    names = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}
    if step["type"] == "BertNormalizer":
        names["handle_chinese_chars"] = "tokenize_chinese_chars"
        return {**step, **{name: {**_BERT_DEFAULTS, **stated}[field] for name, field in names.items()}}
    if "add_prefix_space" not in stated:
        return step
    prefix = stated["add_prefix_space"]
    if step["type"] == "Metaspace":
        without = "never" if family is None else FAMILIES[family].without_prefix
        return {**step, "prepend_scheme": "always" if prefix else without}
    is_read = step["type"] == "ByteLevel" and part == "pre_tokenizer"  # the decoder has the field, and ignores it
    return {**step, "add_prefix_space": prefix} if is_read else step


def _with_step(steps: list[dict], step: dict, wanted: bool | None, behind: tuple[str, ...]) -> list[dict]:
    """Adds a step after the first steps of the types `behind`, or removes it. None: no change."""
    there = any(other["type"] == step["type"] for other in steps)
    if wanted is None or wanted == there:
        return steps
    if not wanted:
        return [other for other in steps if other["type"] != step["type"]]
    place = next((i for i, other in enumerate(steps) if other["type"] not in behind), len(steps))
    return [*steps[:place], step, *steps[place:]]
