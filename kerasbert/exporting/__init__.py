"""Exports models to formats that run without kerasbert: ONNX, OpenVINO, TensorFlow's SavedModel and LiteRT."""

from ..checkpoints.exports import FORMATS
from .folders import export

__all__ = ["FORMATS", "export"]
