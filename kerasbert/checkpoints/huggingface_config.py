"""Converts configs to and from the `config.json` of Hugging Face, which each family describes by a table."""

from ..core.weight_names import Field
from ..data.text.json_files import shortened


def read_config(family, stored, source="config.json"):
    """Converts the content of a `config.json` to the config fields of a family.

    Args:
        family: the `Family`.
        stored: the content of the file.
        source: path of the file, for messages.

    Returns: {config field: value}.

    Raises: ValueError if the file requires something that the family does not support.
    """
    layout = family.huggingface
    stored = {**{layout.aliases[name]: value for name, value in stored.items() if name in layout.aliases}, **stored}
    stored = {**layout.of_type("defaults", stored.get("model_type")), **stored}
    for name, only in layout.only.items():
        if stored.get(name, only) != only:
            raise ValueError(
                f"kerasbert supports {stored.get('model_type')} only with {name}={only!r}. "
                f"Received in config.json: {name}={shortened(stored[name])}."
            )
    fields = {}
    for ours, entry in layout.config.items():
        if isinstance(entry, Field) and entry.name in stored:
            fields[ours] = _loaded(entry, stored, source)
        elif entry in stored:
            fields[ours] = stored[entry]
    return fields


def _loaded(entry, stored, source):
    try:
        return entry.load(stored)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        raise ValueError(
            f"`{entry.name}` in {source} must have the form that transformers writes. Received: "
            f"{shortened(stored[entry.name])} ({error})."
        ) from None


def config_fields(family, config):
    """Returns {Hugging Face field: value} for a config of a family."""
    fields = {}
    for ours, entry in family.huggingface.config.items():
        if isinstance(entry, Field):
            fields[entry.name] = entry.save(config)
        else:
            fields[entry] = getattr(config, ours)
    # Fields that other versions of transformers read in place of some of the above.
    for name, save in family.huggingface.written.items():
        fields[name] = save(config)
    return fields


def write_config(backbone, architecture, extra=()):
    """Returns the content of `config.json` for a backbone, which transformers 4 and 5 can read.

    Args:
        backbone: the backbone.
        architecture: name of the class in transformers.
        extra: (field, value) pairs of additional fields.
    """
    fields = config_fields(backbone.family, backbone.config)
    return {"architectures": [architecture], **fields, "dtype": "float32", "torch_dtype": "float32", **dict(extra)}
