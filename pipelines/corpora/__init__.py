"""Prepares corpora: documents in parts, in one process or many, which are assembled to corpora."""
