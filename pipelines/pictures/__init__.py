"""The pictures of `python -m pipelines.show`: corrupted text, attention, masks, curves, predictions and neighbours."""
