"""Reads examples: tables, layouts of data sets, cells, tags, choices, and the inputs of predictions."""
