"""What all model families have in common: base classes, the `Family` record, and the batch contract."""

from .batch import BATCH_KEYS, Batch, BatchKey

__all__ = ["BATCH_KEYS", "Batch", "BatchKey"]
