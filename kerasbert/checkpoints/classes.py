"""Finds the class of the model in a folder."""

import keras

from ..core.family import FAMILIES
from ..core.registration import Deferred
from ..data.text.json_files import shortened
from .with_heads import WithHeads


def class_of(folder, arguments):
    """Returns (name of the class of the model in a `ModelFolder`, arguments with those that the name implies)."""
    if folder.class_name is not None:
        return folder.class_name, arguments
    stored = folder.config
    family = family_class(None, stored, folder)
    architecture = (stored.get("architectures") or [None])[0]
    classes = family.family.huggingface.of_type("classes", stored["model_type"])
    names = {theirs: ours for ours, theirs in classes.items()}  # the last class if several have the same name
    name, _, options = names.get(architecture, "Backbone").partition(" with ")
    return name, {options: True, **arguments} if options and name != "Backbone" else arguments


def family_class(cls, stored, folder):
    """Returns the backbone class for a folder, given the class on which `from_preset` was called, or None.

    Raises a ValueError if the folder belongs to another family.
    """
    model_type = stored.get("model_type")
    if model_type not in FAMILIES:
        raise ValueError(
            f"`model_type` of {folder.path / 'config.json'} must be one of {', '.join(sorted(FAMILIES))}. "
            f"Received: {shortened(model_type)}."
            + (" Early configs do not have it: add it to the file." if model_type is None else "")
        )
    found = FAMILIES[model_type]
    if is_any_family(cls):
        return _saved_class(folder, found)
    if not (issubclass(found, cls) or issubclass(cls, found)):
        raise ValueError(
            f"{cls.__name__}.from_preset needs a folder of its family. Received: {folder} with model_type "
            f"{model_type!r}. Use {found.__name__} or Backbone."
        )
    return cls


def is_any_family(cls):
    """Whether `cls` accepts several families: None, `Backbone`, or another base class without a `Family` record."""
    return cls is None or cls.family is None


def _saved_class(folder, found):
    """Returns the class of the saved backbone, which may be a subclass of `found`, the class of its family."""
    name = folder.saved.get("backbone_class")
    return found if name is None else class_named(name, folder, found)


def class_named(name, folder, base=None):
    """Returns the class that is registered with Keras under a name.

    Args:
        name: the registered name, in which "kerasbert>" may be omitted.
        folder: the folder that contains the name, for messages.
        base: a backbone class that must be a base class of the result. None: the result must be an objective or a task.
    """
    cls = keras.saving.get_registered_object(name if ">" in name else f"kerasbert>{name}")
    if isinstance(cls, Deferred):
        cls = cls.resolve()
    if base is None:
        fits = isinstance(cls, type) and issubclass(cls, WithHeads)
    else:
        fits = isinstance(cls, type) and issubclass(cls, base)
    if not fits:
        what = "an objective or task" if base is None else f"a subclass of {base.__name__}"
        raise ValueError(
            f"{folder} must contain {what} that is registered with Keras. Received: {shortened(name)}. "
            "If it is your class, import it first; other versions of kerasbert may have other classes."
        )
    return cls
