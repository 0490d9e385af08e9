"""Reads `adapter_config.json` of PEFT: what an adapter computes, and the rank and factor of each of its modules.

`rank_pattern` and `alpha_pattern` map regular expressions to values. Python's `re` backtracks, so that an expression
such as `(a+)+` can take longer than the age of the universe. The time of the expressions that are accepted here is
bounded by their numbers of choices.
"""

import math
import re

from ..data.text.json_files import check_types, read_json, shortened

CONFIG = "adapter_config.json"

# Settings of PEFT's LoRA that change what an adapter computes, and their only supported values.
_ONLY = {
    "peft_type": "LORA",
    "bias": "none",
    "use_dora": False,
    "lora_bias": False,
    "use_qalora": False,
    "alora_invocation_tokens": None,
    "layer_replication": None,
    "target_parameters": None,
    "trainable_token_indices": None,
}
_CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # initializations that change the base model, too
_TYPES = {
    "r": int,
    "lora_alpha": float,
    "use_rslora": bool | None,
    "rank_pattern": dict[str, int] | None,
    "alpha_pattern": dict[str, float] | None,
}
_MOST_PATTERNS, _LONGEST_PATTERN = 1_000, 500
_MOST_WAYS = 1_000_000  # in which all patterns together can match a name
_NAME_LENGTH = 100  # characters; a repeated character can end at each of them


def read_adapter_config(path):
    """Reads and checks an `adapter_config.json`. The patterns are compiled: {pattern: value} of `re.Pattern`."""
    if not path.is_file():
        raise FileNotFoundError(f"An adapter folder must contain {CONFIG}. Received: {path.parent} without it.")
    config = read_json(path)
    check_types(config, _TYPES, path)
    for name, only in _ONLY.items():
        if (config.get(name, only) or only) != only:
            raise ValueError(
                f"kerasbert reads LoRA adapters with {name}={only!r}. Received in {path}: {shortened(config[name])}."
            )
    start = str(config.get("init_lora_weights")).lower()
    if start.startswith(_CHANGED_BASE):
        raise ValueError(
            f"An adapter must fit the unchanged base model. Received: {path} with init_lora_weights={start!r}, which "
            "changes it. Convert it with `save_pretrained(path_initial_model_for_weight_conversion=...)` of PEFT."
        )
    for name in ("rank_pattern", "alpha_pattern"):
        config[name] = _compiled(config.get(name) or {}, f"`{name}` in {path}")
    for rank in (config.get("r", 1), *config["rank_pattern"].values()):
        if rank < 1:
            raise ValueError(f"The ranks in {path} must be at least 1. Received: {rank}.")
    return config


def scale_of(config, module, rank, folder):
    """Returns the factor of a module's product, computed in the same way as PEFT.

    Args:
        config: from `read_adapter_config`.
        module: name of the module.
        rank: rank of its two matrices. It must be the one that the config states.
        folder: folder of the adapter, for messages.
    """
    stated = _of_module(config["rank_pattern"], module, config.get("r", rank))
    if rank != stated or rank < 1:
        raise ValueError(
            f"The matrices of {module} must have the rank that {CONFIG} states, {stated}, and at least 1. Received: "
            f"matrices of rank {rank} in {folder}."
        )
    alpha = _of_module(config["alpha_pattern"], module, config.get("lora_alpha", 8))
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _of_module(patterns, module, default):
    return next((value for pattern, value in patterns.items() if pattern.match(module)), default)


def _compiled(patterns, where):
    """Compiles {pattern: value} in the same way as PEFT: a pattern matches the last parts of a module's name."""
    if len(patterns) > _MOST_PATTERNS:
        raise ValueError(f"{where} must have at most {_MOST_PATTERNS:,} patterns. Received: {len(patterns):,}.")
    compiled, ways = {}, 0
    for pattern, value in patterns.items():
        ways += _ways(pattern)
        if ways > _MOST_WAYS:
            raise ValueError(
                f"The patterns of {where} must be names of modules or simple expressions: without repeated groups, and "
                f"with few repeated characters. Received: {shortened(pattern)}."
            )
        try:
            compiled[re.compile(rf"(.*\.)?({pattern})$")] = value
        except (re.error, OverflowError, RecursionError) as error:
            message = f"{where} must have valid expressions. Received: {shortened(pattern)} ({error})."
            raise ValueError(message) from None
    return compiled


def _ways(pattern):
    """Returns an upper bound of the number of ways in which an expression can match a name.

    The alternatives of groups multiply, as do the ends of repeated characters. Repeated groups have no bound.
    """
    plain = re.sub(r"\\.", "x", pattern)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)  # a class of characters is one character
    plain = plain.replace("(?:", "(")
    repeats_a_group = re.search(r"\)[*+?{]", plain) or re.search(r"\\[1-9]", pattern)
    if len(pattern) > _LONGEST_PATTERN or "(?" in plain or repeats_a_group:
        return math.inf
    alternatives = math.prod(1 + part.count("|") for part in plain.split("("))
    return alternatives * 2 ** plain.count("?") * _NAME_LENGTH ** len(re.findall(r"[*+{]", plain))
