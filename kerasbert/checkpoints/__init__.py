"""Folders of weights: reading and writing them."""
