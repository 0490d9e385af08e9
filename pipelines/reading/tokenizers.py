"""Loads the tokenizer that an option names: a folder, a model of the package, or hf://org/name."""

from pathlib import Path

from kerasbert.data import Tokenizer


def load_tokenizer(name: str | Path) -> Tokenizer:
    """Loads a tokenizer. The model of a name hf://org/name is downloaded, if it is not in the cache."""
    if not str(name).startswith("hf://"):
        return Tokenizer.load(name)
    from kerasbert.checkpoints.folder import find_folder  # imports Keras

    return Tokenizer.load(find_folder(name))
