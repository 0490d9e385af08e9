"""Reads and writes the folders of sentence-transformers: their modules, settings and weights.

`model.read_model` opens `modules.json` and `config_sentence_transformers.json`, and `encoder.read_encoder` the settings
of the module that encodes texts. What the other modules are converted to is up to the class of the model.
"""
