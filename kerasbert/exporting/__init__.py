"""Exports models to formats that run without kerasbert: ONNX, OpenVINO and TensorFlow's SavedModel."""

from .folders import FORMATS, export

__all__ = ["FORMATS", "export"]
