"""Prints the table of families: model types, formats of files and heads.

python -m pipelines.info.families
"""

import kerasbert.objectives
import kerasbert.tasks
from kerasbert.checkpoints import keras_hub
from kerasbert.models import FAMILIES

COLUMNS = ("family", "model types", "layout of files", "heads")


def rows():
    """Yields one row per backbone class, with a text for each of `COLUMNS`."""
    types = {}
    for model_type, cls in FAMILIES.items():
        if not cls.__module__.startswith("kerasbert."):
            continue  # a family that a user has registered
        types.setdefault(cls, []).append(model_type)
    hub = {preset.model_type for preset in keras_hub.PRESETS.values()}
    for cls, model_types in sorted(types.items(), key=lambda item: item[0].__name__.lower()):
        family = cls.family
        variants = dict.fromkeys(v for t in model_types for v in family.huggingface.of_type("classes", t))
        layout = "kerasbert" if family.huggingface.classes.get("Backbone") == cls.__name__ else "transformers"
        layout += " with code of the hub" if family.huggingface.remote_code else ""
        known = {*kerasbert.objectives.__all__, *kerasbert.tasks.__all__}
        heads = dict.fromkeys(name for name in (v.partition(" with ")[0] for v in variants) if name in known)
        yield (
            cls.__name__,
            ", ".join(f"`{model_type}`" for model_type in model_types),
            layout + (", KerasHub (read)" if hub & set(model_types) else ""),
            ", ".join(heads),
        )


def table():
    """Returns the table of families in Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(table(), end="")
