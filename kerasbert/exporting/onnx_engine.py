"""Runs an exported ONNX program in ONNX Runtime, in place of the layers of a model."""

import keras
import numpy as np

from ..data.batches.batches import Batches
from ..data.batches.bucketing import BucketedBatches
from ..data.text.json_files import shortened
from ..runtime.inputs import as_inputs
from ..runtime.programs import Programs
from ..training.convert import num_rows
from ..training.prediction import joined
from .cache import cached_export
from .greedy import greedy


class OnnxEngine:
    """Computes the outputs of a model with ONNX Runtime.

    Several threads may call it at the same time. It uses as many cores as `OMP_NUM_THREADS` says, or all.

    Args:
        folder: folder of the export.
        described: the entry `export` of its `kerasbert.json`.
    """

    def __init__(self, folder, described):
        self.programs = Programs(folder, described)

    @classmethod
    def open(cls, folder, saved, model_class):
        """Opens the program of an export for a model of a class, which must be the class that was exported.

        Args:
            folder: folder of the export.
            saved: the content of its `kerasbert.json`.
            model_class: class of the model.
        """
        name = keras.saving.get_registered_name(model_class).removeprefix("kerasbert>")
        if saved.get("class") != name:
            raise ValueError(
                f"An export has the outputs of the model that was exported. Received: {folder}, the export of a "
                f"{shortened(saved.get('class'))}, for a {name}. Use kerasbert.load, or export a {name}."
            )
        return cls(folder, saved["export"])

    @staticmethod
    def exported(folder, model_class, overrides):
        """Returns the folder of an export of a model; see `cached_export`."""
        return cached_export(folder, model_class, overrides)

    def decoder(self, options, length):
        """Returns a function that generates tokens; see `greedy`."""
        return greedy(self, options, length)

    def __call__(self, x):
        """Returns the outputs for a batch: an array, or a dict of several.

        Args:
            x: a batch of numpy arrays. With `masked_positions`, the logits are those at these positions.
        """
        x = as_inputs(x)
        found = self.programs.run("model", x)
        if "masked_positions" in x:
            positions, name = np.maximum(x["masked_positions"], 0)[..., None], "tokens" if len(found) > 1 else "logits"
            found[name] = np.take_along_axis(found[name], positions, axis=1)
        return found if len(found) > 1 else next(iter(found.values()))

    def empty_cache(self, rows, capacity):
        """Returns a cache for the decoder with space for `capacity` tokens, {input: array}."""
        sizes = {"batch": rows, "capacity": capacity}
        return {
            name: np.zeros([sizes.get(axis, axis) for axis in entry["shape"]], entry["dtype"])
            for name, entry in self.programs.described["decoder"]["inputs"].items()
            if name.partition(".")[0] in ("start", "real", "blocks")
        }

    def predict(self, model, x, batch_size=32):
        """Returns the outputs for all examples, as `predict` does.

        Args:
            model: the model to which the engine belongs; it encodes and checks the examples.
            x: texts, a dict of arrays, or a `Batches`.
            batch_size: number of examples per batch.
        """
        if not isinstance(x, Batches) and not num_rows(x):
            raise ValueError("`predict` needs at least one example. Received: none.")
        batches = x if isinstance(x, Batches) else model.batches_for_prediction(x, batch_size)
        if not isinstance(batches, BucketedBatches):
            rows = sum(len(batches[i][0]["token_ids"]) for i in range(len(batches))) if batches is x else num_rows(x)
            return self._joined(model, batches, rows)
        found, places = [], []
        for part, examples in batches.for_prediction(0.0).parts():  # no program is compiled, so each width costs 0
            found.append(self._joined(model, part, len(examples)))
            places.append(examples)
        order = np.argsort(np.concatenate(places))
        return keras.tree.map_structure(lambda *arrays: joined(arrays, batches.pads_left)[order], *found)

    def _joined(self, model, batches, rows):
        """The outputs for the batches, without those of the padding rows at the end."""
        found = []
        for step in range(len(batches)):
            x = batches[step][0]
            model.check_batch(x)
            found.append(self(x))
        left = getattr(batches, "pads_left", False)
        return keras.tree.map_structure(lambda *arrays: joined(arrays, left)[:rows], *found)
