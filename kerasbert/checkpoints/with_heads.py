"""Base class of what has a backbone and heads: what such a model saves in its folder, and what it needs from one."""

from .arguments import check_arguments
from .sharing import Shared


class WithHeads(Shared):
    """The part of an objective or task that checkpoints use. Subclasses override what differs from the usual."""

    SAVES = ()  # the saved constructor arguments; those that are no attributes of the model are added by `arguments`
    SAVED_AS = {}  # {argument: its `arguments.Saved`}, where the annotation in `__init__` says too little
    TRAINING_ONLY = ()  # names of layers that are not saved
    KEPT_APART = ()  # names of layers whose weights are in files that `write_extras` writes and `read_apart` reads
    HEADS_UNDER = None  # prefix of the heads' weights in a folder, for models with several heads
    reads_discriminators = True  # whether a folder with a generator and a discriminator is that of the discriminator

    def arguments(self):
        """A dict of the saved constructor arguments, which JSON can represent."""
        return {name: getattr(self, name) for name in self.SAVES}

    @classmethod
    def check_saved(cls, arguments, path):
        """Raises a ValueError if saved constructor arguments have wrong types or sizes; see `check_arguments`."""
        check_arguments(cls, arguments, path)

    def variant(self):
        """The key of the family's `HuggingFaceLayout.classes` under which this model is saved."""
        return type(self).__name__

    def config_extras(self):
        """A dict of the fields that this model adds to the config.json of its backbone."""
        return {}

    @classmethod
    def arguments_from_config(cls, stored, settings):
        """Completes constructor arguments from a config.json.

        Args:
            stored: the content of config.json.
            settings: the constructor arguments that the caller gave.

        Returns: a dict of constructor arguments.
        """
        return settings

    @classmethod
    def arguments_from_generation(cls, stored, path):
        """Returns a dict of the constructor arguments in a generation_config.json.

        Args:
            stored: the content of the file.
            path: its path, for messages.
        """
        return {}

    @classmethod
    def head_to_renew(cls, stored, settings):
        """Returns the kind of head whose stored weights must be discarded, or None if all heads can be loaded.

        The head of a classifier, for example, is initialized randomly if the stored labels differ from the new ones.

        Args:
            stored: the content of config.json.
            settings: the constructor arguments.
        """
        return None

    @classmethod
    def open_folder(cls, folder, settings):
        """Returns (folder of the backbone, constructor arguments) for a folder of sentence-transformers.

        Overridden by models that read its files. The backbone may be in a subfolder of `folder`.
        """
        return folder, settings

    def write_extras(self, folder):
        """Writes files that this model needs in addition to weights, config and tokenizer.

        The weights of `KEPT_APART` are among them, unless the model is quantized.
        """

    @classmethod
    def read_apart(cls, folder):
        """Reads the weights of `KEPT_APART` in a folder. Returns what `fill_apart` takes."""
        return None

    def fill_apart(self, found, allow_nan):
        """Fills the layers in `KEPT_APART`.

        Args:
            found: the result of `read_apart`.
            allow_nan: whether NaN and infinite weights are accepted.
        """

    @classmethod
    def needs_pooler(cls, family, settings):
        """Whether this model reads the `pooled_output`, so that the backbone must have a pooler.

        Args:
            family: the `Family` of the backbone.
            settings: the constructor arguments.
        """
        return False
