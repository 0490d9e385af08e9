"""Pushes models to the Hub at HF_ENDPOINT, and loads them and another model from there. Prints a JSON object."""

import json
import sys

import numpy as np

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from tests.models.reference import to_numpy

SIZES = dict(vocabulary_size=40, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=8)
X = {"token_ids": np.array([[3, 4, 5]], "int32")}

tokenizer = Tokenizer.train("wordpiece", ["A first text. The cat sat on the mat."] * 3, 40)
models = {
    "me/backbone": Bert(BertConfig(**SIZES)),
    "me/objective": MaskedLM(Bert(BertConfig(**SIZES)), tokenizer=tokenizer),
    "me/task": TextClassifier(Bert(BertConfig(**SIZES)), labels=["bad", "good"], tokenizer=tokenizer),
}
found = {"commits": {}, "differences": {}, "classes": {}}
for name, model in models.items():
    found["commits"][name] = model.push_to_hub(name)
    again = kerasbert.load(f"hf://{name}")
    found["classes"][name] = type(again).__name__
    outputs = [output["sequence_output"] if isinstance(output, dict) else output for output in (model(X), again(X))]
    found["differences"][name] = float(np.abs(to_numpy(outputs[0]) - to_numpy(outputs[1])).max())
kerasbert.load("hf://them/many_formats")
try:
    kerasbert.load("hf://them/nothing")
except Exception as error:
    found["missing"] = type(error).__name__
json.dump(found, sys.stdout)
