"""Exports models to formats that run without kerasbert: ONNX, OpenVINO, TensorFlow's SavedModel and LiteRT."""

from .folders import export
from .writing import FORMATS

__all__ = ["FORMATS", "export"]
