"""Reads presets of KerasHub without the package `keras_hub`.

A preset consists of `config.json`, `model.weights.h5` and a vocabulary in `assets/tokenizer`. The config and the
weights of its backbone are translated to the Hugging Face layout of the family, and then loaded from this layout.
`data/tokenizers/reading.py` reads the vocabulary.
"""

import dataclasses

import numpy as np

from ..core.family import FAMILIES
from ..data.text.json_files import check_types
from . import huggingface, huggingface_config
from .config_checks import checked_config

WEIGHTS = "model.weights.h5"

# === Names in KerasHub ===

# {our config field: argument of a KerasHub backbone}. Fields that are constant in KerasHub are in `PRESETS`.
_FIELDS = {
    "vocabulary_size": "vocabulary_size",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "hidden_dim": "hidden_dim",
    "feed_forward_dim": "intermediate_dim",
    "max_length": "max_sequence_length",
    "dropout": "dropout",
    "attention_dropout": "dropout",
}
_SEGMENTS = {**_FIELDS, "num_segments": "num_segments"}

# {our layer: layer in the file}. Files number the layers of a class in order, with the suffixes none, _1, _2, ...
_EMBEDDINGS = {
    "token_embedding": "reversible_embedding",
    "position_embedding": "position_embedding",
    "segment_embedding": "embedding",
    "embedding_norm": "layer_normalization",
}
_JOINT_EMBEDDINGS = {
    "token_embedding": "token_and_position_embedding/token_embedding",
    "position_embedding": "token_and_position_embedding/position_embedding",
    "embedding_norm": "layer_normalization",
}
_BLOCK = {
    "attention/query": "_self_attention_layer/query_dense",
    "attention/key": "_self_attention_layer/key_dense",
    "attention/value": "_self_attention_layer/value_dense",
    "attention/project": "_self_attention_layer/output_dense",
    "attention_norm": "_self_attention_layer_norm",
    "feed_forward/inner": "_feedforward_intermediate_dense",
    "feed_forward/outer": "_feedforward_output_dense",
    "feed_forward_norm": "_feedforward_layer_norm",
}


def _blocks(config):
    """Yields (our layer, layer in the file) for all layers of all blocks."""
    for i in range(config.num_layers):
        for ours, theirs in _BLOCK.items():
            yield f"block_{i}/{ours}", f"{_numbered('transformer_encoder', i)}/{theirs}"


def _albert_blocks(config):
    """Like `_blocks`, but for ALBERT, which has groups of blocks."""
    for i in range(config.num_groups):
        for j in range(config.num_inner_layers):
            number = i * config.num_inner_layers + j
            for ours, theirs in _BLOCK.items():
                half, _, rest = ours.partition("/")
                part = half.removesuffix("_norm")
                ours = f"{part}_{i}_{j}/norm" if half.endswith("_norm") else f"{part}_{i}_{j}/{part}/{rest}"
                yield ours, f"{_numbered('transformer_encoder', number)}/{theirs}"


def _numbered(name, number):
    return f"{name}_{number}" if number else name


@dataclasses.dataclass(frozen=True)
class Preset:
    """Describes how to read one backbone class of KerasHub.

    Args:
        model_type: the `model_type` of our family.
        fields: {our config field: KerasHub's argument}.
        fixed: {our config field: value} for fields that KerasHub has no argument for.
        embeddings: {our layer: KerasHub's layer} for the layers before the blocks.
        dense: our dense layers outside the blocks, in the order of the file. None stands for a layer that our model
            does not have.
        blocks: function that takes our config and yields (our layer, KerasHub's layer) for the layers of the blocks.
    """

    model_type: str
    fields: dict
    fixed: dict
    embeddings: dict
    dense: tuple = ()
    blocks: object = _blocks

    def layers(self, config):
        """Returns {our layer: layer in the file} for all layers of a model with this config."""
        dense = self.dense
        if "embedding_projection" in dense and not self._projects(config):
            dense = dense[1:]
        outer = {ours: _numbered("dense", i) for i, ours in enumerate(dense) if ours}
        return {**self.embeddings, **dict(self.blocks(config)), **outer}

    def _projects(self, config):
        return self.model_type == "albert" or config.embedding_dim != config.hidden_dim


_TANH_GELU = {"activation": "gelu_new", "layer_norm_epsilon": 1e-12}
_ROBERTA = {"activation": "gelu", "layer_norm_epsilon": 1e-5}
_NARROW = {**_SEGMENTS, "embedding_dim": "embedding_dim"}

PRESETS = {
    "BertBackbone": Preset("bert", _SEGMENTS, _TANH_GELU, _EMBEDDINGS, ("pooler",)),
    "RobertaBackbone": Preset("roberta", _FIELDS, _ROBERTA, _JOINT_EMBEDDINGS),
    "XLMRobertaBackbone": Preset("xlm-roberta", _FIELDS, _ROBERTA, _JOINT_EMBEDDINGS),
    "DistilBertBackbone": Preset("distilbert", _FIELDS, {"activation": "gelu"}, _JOINT_EMBEDDINGS),
    "AlbertBackbone": Preset(
        "albert",
        {**_NARROW, "num_groups": "num_groups", "num_inner_layers": "num_inner_repetitions"},
        {**_TANH_GELU, "embedding_projection": True},
        _EMBEDDINGS,
        ("embedding_projection", "pooler"),
        _albert_blocks,
    ),
    "ElectraBackbone": Preset(
        "electra",
        {**_NARROW, "vocabulary_size": "vocab_size"},
        _TANH_GELU,
        _EMBEDDINGS,
        ("embedding_projection", None),
    ),
}

# === Config ===


def is_preset(stored):
    """Whether the content of a `config.json` is from KerasHub, or from KerasNLP, its former name."""
    return str(stored.get("registered_name")).partition(">")[0] in ("keras_hub", "keras_nlp")


def as_huggingface(stored, path):
    """Converts the config of a preset to the `config.json` in the Hugging Face layout of its family.

    Args:
        stored: the content of the preset's `config.json`.
        path: path of this file, for messages.

    Raises: ValueError for a class that has no family here, or for an unknown argument.
    """
    check_types(stored, {"class_name": str, "config": dict}, path)
    preset = _preset(stored)
    given = {k: v for k, v in stored.get("config", {}).items() if k not in ("name", "trainable", "dtype")}
    unknown = set(given) - set(preset.fields.values())
    if unknown:
        raise ValueError(f"kerasbert does not know these arguments of {stored['class_name']}: {sorted(unknown)}.")
    family = FAMILIES[preset.model_type].family
    return huggingface_config.config_fields(family, _config(preset, given, path))


def _preset(stored):
    name = stored.get("class_name")
    if name not in PRESETS:
        raise ValueError(f"Presets of KerasHub are read for {', '.join(PRESETS)}. Received: {name}.")
    return PRESETS[name]


def _config(preset, given, path):
    fields = {ours: given[theirs] for ours, theirs in preset.fields.items() if theirs in given}
    fields |= {**preset.fixed, "model_type": preset.model_type}
    return checked_config(FAMILIES[preset.model_type].family.config, fields, path, preset.fields)


# === Weights ===


class PresetFiles:
    """The tensors of a preset under their Hugging Face names, with the methods of `TensorFiles`.

    Each tensor is read on demand.

    Args:
        folder: folder of the preset.
        stored: the content of the preset's `config.json`.

    Raises: FileNotFoundError if there is no weight file. ValueError if the file is damaged or lacks a layer.
    """

    def __init__(self, folder, stored):
        import h5py

        preset = _preset(stored)
        self.folder, self.path = folder, folder / WEIGHTS
        self.family = FAMILIES[preset.model_type].family
        self.config = _config(preset, stored["config"], folder / "config.json")
        if not (folder / WEIGHTS).exists():
            raise FileNotFoundError(f"A KerasHub preset must contain {WEIGHTS}. Received: {folder} without it.")
        try:
            file = h5py.File(folder / WEIGHTS)
        except OSError as error:
            raise ValueError(f"{folder / WEIGHTS} is not a complete HDF5 file ({error}). Copy it again.") from None
        self.root = file["layers"] if "layers" in file else file["_layer_checkpoint_dependencies"]
        self._read = {}
        for ours, theirs in preset.layers(self.config).items():
            if f"{theirs}/vars" not in self.root:
                raise ValueError(f"{folder / WEIGHTS} must hold layers/{theirs} (our {ours}). It does not.")
            self._add(ours, self.root[theirs]["vars"])
        self._add_segment()

    def _dataset(self, variables, number, layer):
        """Returns the HDF5 dataset of a variable.

        Raises a ValueError unless it is floating-point, uncompressed and stored in this file.
        """
        import h5py

        link, found = variables.get(str(number), getlink=True), variables.get(str(number))
        if not isinstance(link, h5py.HardLink) or not isinstance(found, h5py.Dataset) or found.dtype.kind != "f":
            raise ValueError(f"{self.path} must hold floating-point numbers as layers/{layer}/vars/{number}.")
        if found.external or found.is_virtual or found.id.get_storage_size() < found.nbytes:
            raise ValueError(f"{self.path} must hold all numbers of layers/{layer}/vars/{number}. It does not.")
        return found

    def _add(self, layer, variables):
        if layer.endswith("norm"):
            leaves = ("gamma", "beta")
        else:
            leaves = ("embeddings",) if layer.endswith("embedding") else ("kernel", "bias")
        for number, leaf in enumerate(leaves):
            entry, name = huggingface.stored_as(self.family, f"{layer}/{leaf}")
            self._read[name] = (entry, leaf, self._dataset(variables, number, layer), layer)

    def _add_segment(self):
        """Adds the segment embedding of RoBERTa's files, which KerasHub does not have, as zeros."""
        entry, name = huggingface.stored_as(self.family, "segment_embedding/embeddings")
        if name is not None and name not in self._read:
            zeros = np.zeros((self.config.num_segments, self.config.hidden_dim), "float32")
            self._read[name] = (entry, "embeddings", zeros, "segment_embedding")

    def keys(self):
        return self._read.keys()

    @property
    def num_elements(self):
        return sum(source.size for _, _, source, _ in self._read.values())

    def read(self, name):
        entry, leaf, source, layer = self._read[name]
        array = np.asarray(source, "float32")
        if leaf == "kernel" and array.ndim == 3:  # with an axis for heads: (m, h, d), or (h, d, m) in the output layer
            first = array.shape[0] if not layer.endswith("project") else array.shape[0] * array.shape[1]
            array = array.reshape(first, -1)
        elif leaf == "bias":
            array = array.reshape(-1)
        elif layer == "position_embedding":
            # RoBERTa's files count positions from the padding id + 1, whereas KerasHub counts them from 0.
            missing = getattr(self.config, "max_length", len(array)) + self._first_position() - len(array)
            array = np.pad(array, ((missing, 0), (0, 0)))
        return huggingface.to_theirs(entry, array, leaf, self.config)

    def _first_position(self):
        fields = huggingface_config.config_fields(self.family, self.config)
        return fields["max_position_embeddings"] - self.config.max_length
