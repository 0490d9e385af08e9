"""Answers texts with exports in ONNX. Imports numpy, tokenizers and ONNX Runtime, but neither Keras nor a backend."""

from .models import ExportedModel, TooLong, is_export, open_export
from .programs import Threads
from .rows import Job, Row

__all__ = ["ExportedModel", "Job", "Row", "Threads", "TooLong", "is_export", "open_export"]
