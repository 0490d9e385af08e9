"""Model folders with int8 or int4 weights.

`kerasbert.safetensors` contains all weights under the names of this package, and `kerasbert.json` the scheme of every
quantized layer and the whole config. There is no `model.safetensors`, which other programs would read as floats. They
reject the folder, because they find no weights, and `config.json` names an unknown quantization method.
"""

import dataclasses

import keras

from ..core.quantization import layers_by_path, quantize_layers, schemes_of
from ..core.variables import parts_of
from ..core.weight_names import Tensor
from ..data.text.json_files import check_types
from .huggingface import named_variables
from .tensor_files import EXTRA_WEIGHTS, TensorFiles


def description(model):
    """Returns the value of `quantization` in `kerasbert.json`."""
    return {"layers": schemes_of(layers_by_path(model)), "config": dataclasses.asdict(parts_of(model).config)}


def export_weights(model):
    """Returns {stored name: numpy array} for the weights of a quantized model."""
    if any(getattr(layer, "lora_enabled", False) for layer in layers_by_path(model).values()):
        raise ValueError(
            "Products of LoRA cannot be merged into integers. Received: a quantized model with LoRA. Save its adapter "
            "with `save_adapter`, or merge the adapter into the model of full precision."
        )
    variables = named_variables(model, apart=True).items()
    return {f"kerasbert.{path}": keras.ops.convert_to_numpy(variable) for path, variable in variables}


class _Files(TensorFiles):
    """The tensors in the `kerasbert.safetensors` of a folder, which contains all of its weights."""

    def _find(self):
        if not (self.folder / EXTRA_WEIGHTS).exists():
            raise FileNotFoundError(
                f"A folder with quantized weights must contain {EXTRA_WEIGHTS}. Received: {self.folder} without it."
            )
        self._files, self.where = {}, {}


class QuantizedWeights:
    """The weights of a folder with int8 or int4 weights, with the methods of `huggingface.StoredWeights`.

    Args:
        family: the `Family`.
        folder: the folder.
        saved: the value of `quantization` in its `kerasbert.json`.
    """

    holds_all = True
    left_out: str | None = None

    def __init__(self, family, folder, saved):
        check_types(saved, {"layers": dict[str, str], "config": dict}, folder / "kerasbert.json")
        self.family, self.files = family, _Files(folder)
        self.layers, self.config_fields = saved.get("layers", {}), saved.get("config", {})
        self.names = {name.removeprefix("kerasbert."): name for name in self.files.keys()}  # path -> name in the file
        self.bare, self.untied = True, []

    @property
    def num_elements(self):
        return 2 * self.files.num_elements  # int4 weights are stored in pairs

    def prepare(self, model):
        """Quantizes the layers of a new model that have quantized weights in the folder."""
        quantize_layers(model, self.layers)

    def locate(self, path):
        """Returns (table entry, name in `names`) for the path of a variable."""
        return Tensor(path), path

    def leave_out(self, kind):
        """Ignores the weights of one kind of head, because they were trained for other labels."""
        self.left_out = kind if any(path.split("/")[0] == kind for path in self.names) else None
        self.names = {path: name for path, name in self.names.items() if path.split("/")[0] != kind}
        self.layers = {path: scheme for path, scheme in self.layers.items() if path.split("/")[0] != kind}

    def __contains__(self, path):
        return path in self.names

    def read(self, path):
        return self.files.read(self.names[path])
