"""The text that `info` prints."""

import re
from collections.abc import Iterable
from textwrap import TextWrapper

from ..recipes.tree import flat

SIZES = re.compile(r"^(num|max)_|_(dim|size|length|type)$")  # fields of configs that say how large a model is
UNITS = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MEMORY = {
    "weights": "weights",
    "half_weights": "copies of the weights in half precision",
    "gradients": "gradients",
    "optimizer": "state of the optimizer",
    "activations": "activations",
    "attention_weights": "attention weights (none with a fused kernel)",
    "forward_activations": "activations",
    "cache": "keys and values of earlier tokens",
    "total": "together",
}


def as_text(found: dict, settings: bool = False) -> str:
    """Formats the result of `info` as a text with several sections.

    Args:
        found: the result of `info`.
        settings: whether all settings are listed. Otherwise, those of the config are sizes and what differs from the
            defaults of the family.
    """
    kinds = {"installation": _installation, "corpus": _corpus}
    return "\n".join(kinds[found["kind"]](found) if found["kind"] in kinds else _model(found, settings))


def _installation(found: dict) -> list[str]:
    packages = {name: version or "not installed" for name, version in found["packages"].items()}
    general = {"Python": found["python"], "system": f"{found['system']}, {found['processors']} processors"}
    general["Keras backend"] = found["backend"]
    if found["devices"]:
        general["devices"] = ", ".join(found["devices"])
    return [f"kerasbert {found['kerasbert']}", *_pairs(general), *_section("Packages"), *_pairs(packages)]


def _corpus(found: dict) -> list[str]:
    counts = {name: f"{found[name]:,}" for name in ("documents", "sequences", "tokens")}
    counts["size"] = in_bytes(found["bytes"])
    counts["unigram entropy"] = f"{found['unigram_entropy']:.3f} nats per token"
    return [f"{found['subject']}: a corpus", *_pairs(counts), *_tokenizer(found["tokenizer"])]


def _model(found: dict, settings: bool) -> list[str]:
    lines = [f"{found['subject']}: {_class(found)}"]
    if found["kind"] == "size":
        lines.append("A size from a paper, without weights. To select another class: --model-class TextClassifier.")
    if found["kind"] == "recipe":
        lines.append("A recipe. The vocabulary size is the paper's. In a run, the corpus determines it.")
    lines += _weights(found["weights"])
    for name, config in found["configs"].items():
        lines += _config(config, name, settings)
    lines += _operations(found["operations"], found["batch"])
    lines += _memory(found["memory"], found["batch"])
    if found["tokenizer"]:
        lines += _tokenizer(found["tokenizer"])
    elif found["kind"] == "folder":
        lines += [*_section("Tokenizer"), "  none: the folder has no tokenizer files, so the model takes ids, not text"]
    if "files" in found:
        lines += [*_section("Files that were read"), *_pairs(found["files"]["read"])]
        if found["files"]["ignored"]:
            lines += [*_section("Files that were not read"), *_pairs(found["files"]["ignored"])]
    if "run" in found:
        lines += _run(found["run"], settings)
    return [*lines, *_uses(found["uses"])]


def _class(found: dict) -> str:
    labels = found["arguments"].get("labels")
    of = "" if found["class"] == found["backbone"] else f" of {found['backbone']}"
    return f"{found['class']}{of} (model_type {found['model_type']})" + (
        f", labels {', '.join(labels[:8])}{', ...' * (len(labels) > 8)}" if labels else ""
    )


def _weights(weights: dict) -> list[str]:
    lines = _section(f"Weights: {weights['total']:,}")
    total = max(weights["total"], 1)
    for part, count in weights["parts"].items():
        lines.append(f"  {part:30} {count:>16,}  {count / total:6.1%}")
    if weights["trained"] != weights["total"]:
        lines.append(f"  {'trained':30} {weights['trained']:>16,}  {weights['trained'] / total:6.1%}")
    return lines


def _config(config: dict, name: str, settings: bool) -> list[str]:
    title = f"Config of the {name}" if name else "Config"
    lines = _section(f"{title} (* differs from the default of the family)")
    listed = {key: one for key, one in config.items() if settings or "default" in one or SIZES.search(key)}
    width = max(map(len, listed))
    for field, one in listed.items():
        differs = "default" in one
        default = f"  (default {one['default']})" if differs else ""
        lines.append(f"{'*' if differs else ' ':>2} {field:{width}}  {one['value']}{default}")
    if others := len(config) - len(listed):
        lines.append(f"   and {others} more, which have their defaults (--settings)")
    return lines


def _operations(operations: dict, batch: dict) -> list[str]:
    both = ", source and target" if "target_length" in batch else ""
    lines = _section(f"Operations in rows of {_lengths(batch)}{both}")
    for name, one in operations.items():
        lines.append(f" {name:10} {in_units(one['per_token'])}FLOP per token, {in_units(one['per_row'])}FLOP per row")
    return lines


def _lengths(batch: dict) -> str:
    target = f" and {batch['target_length']:,}" if "target_length" in batch else ""
    return f"{batch['length']:,}{target} tokens"


def _memory(memory: dict, batch: dict) -> list[str]:
    lines = []
    for use in ("train", "serve"):
        lines += _section(f"Memory to {use} with {batch['count']:,} rows of {_lengths(batch)} (estimated)")
        lines.append("  " + " " * 46 + "".join(f"{dtype:>17}" for dtype in memory))
        for name in next(iter(memory.values()))[use]:
            values = [one[use][name] for one in memory.values()]
            if any(values):
                lines.append(f"  {MEMORY[name]:46}" + "".join(f"{in_bytes(value):>17}" for value in values))
    return lines


def _tokenizer(tokenizer: dict) -> list[str]:
    tokens = ", ".join(f"{role} {one['token']} ({one['id']})" for role, one in tokenizer["special_tokens"].items())
    case = "lower case" if tokenizer["lowercases"] else "case is kept"
    facts = {
        "kind": f"{tokenizer['kind']}, {tokenizer['vocabulary_size']:,} pieces",
        "text": case + (", accents are removed" if tokenizer["strips_accents"] else ""),
        "special tokens": tokens,
        "rows": f"{tokenizer['row']}; pairs {tokenizer['pair']}",
        "padding": f"on the {tokenizer['padding_side']}",
        "longest row": f"{tokenizer['max_length']:,} tokens" if tokenizer["max_length"] else "any",
    }
    if tokenizer["preparation"]:
        facts["preparation"] = tokenizer["preparation"]
    return [*_section("Tokenizer"), *_pairs(facts)]


def _run(run: dict, settings: bool) -> list[str]:
    phases = "; ".join(f"{p['updates']:,} of {p['rows']:,} rows of {p['length']:,} tokens" for p in run["phases"])
    facts = {
        "objective": run["objective"],
        "data": run["data"],
        "updates": phases,
        "tokens": f"{in_units(run['tokens'])}tokens with padding ({run['tokens']:,})",
        "operations": f"{in_units(run['operations'])}FLOP, {run['operations'] / 8.64e19:,.3g} PFLOP/s-days",
        "optimizer": run["optimizer"],
        "dtype": run["dtype"],
    }
    if "hours" in run:
        facts["time"] = f"{run['hours']:,.3g} hours at {run['teraflops']:g} TFLOP/s"
    others = ("held_out", "evaluation", "teacher", "init_from")
    facts |= {name.replace("_", " "): run[name] for name in others if name in run}
    names = {name: "''" if value == "" else value for name, value in flat(run["recipe"]).items() if name != "name"}
    lines = [*_section("Run"), *_pairs(facts)]
    if settings:
        return [*lines, *_section("Settings, for --set NAME=VALUE"), *_pairs(names)]
    return [*lines, f"  All {len(names)} settings, with their names for --set: --settings"]


def _uses(uses: dict) -> list[str]:
    kinds = ", ".join(uses["finetune"])
    facts = {
        "methods": ", ".join(uses["methods"]) or "none for text",
        "commands": ", ".join(uses["commands"]) or "none",
    }
    facts |= {"tasks of finetune": kinds} if kinds else {}
    facts |= {"tabs of serve": ", ".join(uses["serve"])} if uses["serve"] else {}
    return [*_section("Uses"), *_pairs(facts)]


def _section(title: str) -> list[str]:
    return ["", title]


def _pairs(facts: dict) -> Iterable[str]:
    width = max(map(len, facts))
    wrapped = TextWrapper(120, subsequent_indent=" " * (width + 4), break_long_words=False, break_on_hyphens=False)
    return [line for name, value in facts.items() for line in wrapped.wrap(f"  {name:{width}}  {value}")]


def in_units(count: float) -> str:
    """Formats a number with a metric prefix: 1234567 -> "1.23 M"."""
    size, letter = next(((size, letter) for size, letter in UNITS if count >= size), (1, ""))
    return f"{count / size:.3g} {letter}"


def in_bytes(count: int) -> str:
    """Formats a number of bytes: 3221225472 -> "3.00 GiB"."""
    for exponent, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**exponent:
            return f"{count / 1024**exponent:,.2f} {unit}"
    return f"{count} B"
