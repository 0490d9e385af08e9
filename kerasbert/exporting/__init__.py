"""Exports models to formats that run without kerasbert: ONNX, OpenVINO, TensorFlow's SavedModel and LiteRT."""

from .folders import FORMATS, export

__all__ = ["FORMATS", "export"]
