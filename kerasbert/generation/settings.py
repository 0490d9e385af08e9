"""Settings of generation that come with a model, as those in the generation_config.json of transformers."""

from collections.abc import Mapping
from typing import Any

from ..data.text.json_files import check_types, shortened

# {argument of `generate`: (name in generation_config.json, type, value without a setting)}
ARGUMENTS: dict[str, tuple[str, Any, Any]] = {
    "max_new_tokens": ("max_new_tokens", int, None),
    "min_new_tokens": ("min_new_tokens", int, 0),
    "num_beams": ("num_beams", int, 1),
    "length_penalty": ("length_penalty", float, 1.0),
    "early_stopping": ("early_stopping", bool | str, False),
    "sample": ("do_sample", bool, False),
    "temperature": ("temperature", float, 1.0),
    "top_k": ("top_k", int, None),
    "top_p": ("top_p", float, None),
    "repetition_penalty": ("repetition_penalty", float, 1.0),
    "no_repeat_ngram_size": ("no_repeat_ngram_size", int, 0),
    "num_sequences": ("num_return_sequences", int, 1),
    "stop_ids": ("eos_token_id", int | list[int], None),
}
# Limits of all tokens that the decoder reads and writes, which `generate` converts to limits of the new ones.
LENGTHS = {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}
BEAMS_ONLY = ("length_penalty", "early_stopping")
SAMPLING_ONLY = ("temperature", "top_k", "top_p")
# Fields of config.json that transformers ignores as soon as there is a generation_config.json.
GENERATION_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
GENERATION_IDS += ("forced_eos_token_id",)
# {setting of transformers that changes the texts, and that `generate` does not have: its value without effect}
_OTHERS: dict[str, Any] = {
    **dict.fromkeys(("typical_p", "encoder_repetition_penalty", "guidance_scale", "num_beam_groups"), 1),
    **dict.fromkeys(("min_p", "epsilon_cutoff", "eta_cutoff", "diversity_penalty", "encoder_no_repeat_ngram_size"), 0),
    **dict.fromkeys(("bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens"), []),
    **dict.fromkeys(("top_h", "penalty_alpha", "exponential_decay_length_penalty", "sequence_bias"), None),
    **dict.fromkeys(("constraints", "forced_decoder_ids", "stop_strings", "max_time"), None),
    **dict.fromkeys(("watermarking_config", "dola_layers"), None),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id"), None),  # unless the config has them, as BART's
    **dict.fromkeys(("renormalize_logits", "remove_invalid_values", "token_healing"), False),
}
_SAMPLING_ONLY_OTHERS = ("typical_p", "min_p", "top_h", "epsilon_cutoff", "eta_cutoff")
# The number of tokens from which transformers samples if the settings do not say it; 0 is no limit.
_USUAL_TOP_K = 50


def read_settings(stored: Mapping[str, Any], path: Any) -> dict[str, Any]:
    """Returns the settings {argument of `generate`, or name in `LENGTHS`: value} in a generation_config.json.

    Settings that `generate` does not have keep their names, so that it can refuse them.

    Args:
        stored: the content of the file.
        path: the file, for messages.

    Raises: ValueError for values of a wrong type.
    """
    names = {theirs: ours for ours, (theirs, _, _) in ARGUMENTS.items()} | {name: name for name in (*LENGTHS, *_OTHERS)}
    kinds = {theirs: kind for theirs, kind, _ in ARGUMENTS.values()} | dict.fromkeys(LENGTHS, int)
    given = {name: value for name, value in stored.items() if value is not None}
    check_types(given, kinds, path)
    if given.get("do_sample"):
        given.setdefault("top_k", _USUAL_TOP_K)
    without = [name for name, value in {**_OTHERS, "top_k": 0}.items() if given.get(name) == value]
    return {ours: given[theirs] for theirs, ours in names.items() if theirs in given and theirs not in without}


def settings_of_config(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in a config.json, where they were before transformers 4.27; see `read_settings`.

    Those of a folder with a generation_config.json are not read. The end of a text is a field of the model's config.
    """
    given = {name: value for name, value in stored.items() if name != "eos_token_id"}
    if given.get("max_length") == 20:  # what transformers has without a setting
        del given["max_length"]
    return read_settings(given, "config.json")


def written_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings under the names of transformers, the inverse of `read_settings`."""
    named = {ARGUMENTS[name][0] if name in ARGUMENTS else name: value for name, value in settings.items()}
    return {"top_k": 0, **named} if settings.get("sample") else named


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises a ValueError for names that are not settings."""
    unknown = sorted(set(settings) - {*ARGUMENTS, *LENGTHS, *_OTHERS})
    if unknown:
        raise ValueError(f"`generation` may set {', '.join([*ARGUMENTS, *LENGTHS])}. Received: {', '.join(unknown)}.")


def with_settings(given: Mapping[str, Any], settings: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Completes arguments of `generate`.

    Settings for beams do not apply to a call that asks for one beam, and those for sampling not to one that does not
    sample. A smaller `max_new_tokens` of the call limits the `min_new_tokens` of the settings.

    Args:
        given: {argument: value}, None for those that the caller has not given.
        settings: the settings of the model.
        start: number of tokens of the longest prompt, as the decoder reads it.

    Returns: {argument: value}, for all of `ARGUMENTS`.

    Raises: ValueError for settings that `generate` does not have.
    """
    samples = settings.get("sample", False) if given.get("sample") is None else given["sample"]
    others = {name: value for name, value in settings.items() if name in _OTHERS}
    others = {name: value for name, value in others.items() if samples or name not in _SAMPLING_ONLY_OTHERS}
    if others:
        raise ValueError(
            "`generate` must have each setting of the model, or its texts would differ from those of transformers. "
            f"Received in `model.generation`: {shortened(others, 200)}. To generate without, delete them there: "
            f"model.generation.pop({next(iter(others))!r})."
        )
    settings = {name: value for name, value in settings.items() if name not in _OTHERS}
    for name, new in LENGTHS.items():
        total = settings.pop(name, None)
        if total is not None and new not in settings:
            settings[new] = max(total - start, 0)
            if name == "max_length" and total <= start and given.get(new) is None:
                raise ValueError(
                    f"A prompt must be shorter than the `max_length` in the settings of the model, {total}. Received: "
                    f"a prompt of {start} tokens. Pass max_new_tokens=..., or change `model.generation`."
                )
    found = {name: default for name, (_, _, default) in ARGUMENTS.items()}
    chosen = {name: value for name, value in given.items() if value is not None}
    both = {**found, **settings, **chosen}
    unused = {*(BEAMS_ONLY if both["num_beams"] == 1 else ()), *(() if both["sample"] else SAMPLING_ONLY)}
    found |= {name: value for name, value in settings.items() if name not in unused} | chosen
    if found["max_new_tokens"] is not None and "min_new_tokens" not in chosen:
        found["min_new_tokens"] = min(found["min_new_tokens"], found["max_new_tokens"])
    return found
