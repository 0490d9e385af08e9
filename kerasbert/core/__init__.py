"""What every family stands on: base classes, the record of a family, the batch contract."""

from .batch import BATCH_KEYS, Batch, BatchKey

__all__ = ["BATCH_KEYS", "Batch", "BatchKey"]
