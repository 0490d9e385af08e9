"""Exports that are written by hand, which takes no time: their outputs depend on the tokens of each row."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kerasbert.data import Tokenizer
from kerasbert.data.text.files import digest_of
from kerasbert.runtime import Threads, open_export

WORDS = "the cat sat on a mat and dog ran home who where red blue one two three four five six seven".split()
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
PROMPTS = {"texts": {"query": "who "}, "default": None, "pooled": True}
LABELS = {"classifier": ["bad", "good", "fine"], "tagger": ["O", "B-X", "I-X"], "reranker": ["LABEL_0"]}
LABELS |= {"multi-label": LABELS["classifier"], "regression": ["stars"]}
PROBLEMS = {"multi-label": "labels", "regression": "score"}
# Name -> (class, arguments, what it does, {output: its width}, whether there is an output for each token).
MODELS = {
    "embedder": ("TextEmbedder", {"normalize": True, "prompts": PROMPTS}, "embed", {"vector": 8}, False),
    "other": ("TextEmbedder", {"prompts": PROMPTS}, "embed", {"vector": 5}, False),
    "rounded": ("TextEmbedder", {}, "embed", {"vector": 8}, False),
    "sparse": ("SparseEmbedder", {}, "embed", {"vector": 61}, False),
    "reranker": ("Reranker", {"activation": "sigmoid"}, "score", {"logits": 1}, False),
    "classifier": ("TextClassifier", {}, "classify", {"logits": 3}, False),
    "multi-label": ("TextClassifier", {}, "classify", {"logits": 3}, False),
    "regression": ("TextClassifier", {}, "classify", {"logits": 1}, False),
    "tagger": ("TokenClassifier", {}, "tag", {"logits": 3}, True),
    "answerer": (
        "QuestionAnswerer",
        {"stride": 8, "max_question_length": 8, "max_answer_length": 5},
        "answer",
        {"start_logits": 1, "end_logits": 1},
        True,
    ),
    "filler": ("MaskedLM", {}, "fill_mask", {"logits": 61}, True),
}


def write_export(folder, tokenizer, name):
    """Writes an export whose outputs are the embeddings of the tokens, or their means over the rows."""
    cls, arguments, does, outputs, per_token = MODELS[name]
    generator = np.random.default_rng(len(name))
    nodes = [helper.make_node("Cast", ["attention_mask"], ["real"], to=TensorProto.FLOAT)]
    nodes += [helper.make_node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT)]
    axes = numpy_helper.from_array(np.array([-1]), "last"), numpy_helper.from_array(np.array([1]), "tokens")
    nodes += [helper.make_node("Unsqueeze", [one, "last"], [f"{one}_column"]) for one in ("real", "second")]
    tables, values = [], []
    for output, width in outputs.items():
        table = generator.standard_normal((tokenizer.vocabulary_size, width)).astype("float32")
        tables.append(numpy_helper.from_array(table, f"{output}_table"))
        nodes.append(helper.make_node("Gather", [f"{output}_table", "input_ids"], [f"{output}_ids"]))
        nodes.append(helper.make_node("Add", [f"{output}_ids", "second_column"], [f"{output}_all"]))
        nodes.append(helper.make_node("Mul", [f"{output}_all", "real_column"], [f"{output}_read"]))
        if name == "rounded":  # as by int8: the largest value of a batch says how all of them are rounded
            nodes.append(helper.make_node("ReduceSum", [f"{output}_read", "tokens"], [f"{output}_sum"], keepdims=0))
            rounded = ["integers", "scale", "zero"]
            nodes.append(helper.make_node("DynamicQuantizeLinear", [f"{output}_sum"], rounded))
            nodes.append(helper.make_node("DequantizeLinear", rounded, [output]))
        elif not per_token:
            nodes.append(helper.make_node("ReduceSum", [f"{output}_read", "tokens"], [output], keepdims=0))
        elif width == 1:
            nodes.append(helper.make_node("Squeeze", [f"{output}_read", "last"], [output]))
        else:
            nodes.append(helper.make_node("Identity", [f"{output}_read"], [output]))
        shape = ["b", "s"] if per_token else ["b"]
        values.append(
            helper.make_tensor_value_info(output, TensorProto.FLOAT, shape + [width] * (width > 1 or not per_token))
        )
    inputs = [helper.make_tensor_value_info(one, TensorProto.INT64, ["b", "s"]) for one in INPUTS]
    read = {one for node in nodes for one in node.input}
    graph = helper.make_graph(nodes, name, inputs, values, [one for one in (*axes, *tables) if one.name in read])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    tokenizer.save(folder)
    onnx.save(model, folder / "model.onnx")
    export = {"format": "onnx", "file": "model.onnx", "sha256": digest_of(folder / "model.onnx"), "does": does}
    export |= {"inputs": {one: {"dtype": "int64", "shape": ["batch", "length"]} for one in INPUTS}}
    export |= {"outputs": {output: ["batch"] for output in outputs}, "labels": LABELS.get(name)}
    export["quantized"] = "int8" if name == "rounded" else None
    export["problem"] = PROBLEMS.get(name, "classes")
    export |= {"tokenizer": {"mask": "[MASK]"}}
    saved = {"class": cls, "arguments": {"max_length": 32, **arguments}, "export": export}
    (folder / "kerasbert.json").write_text(json.dumps(saved))


@pytest.fixture(scope="session")
def exports(tmp_path_factory):
    """{name: folder} of exports."""
    tokenizer = Tokenizer.train("wordpiece", [" ".join(WORDS)] * 9, vocabulary_size=61, lowercase=True)
    folders = {name: tmp_path_factory.mktemp(name) for name in MODELS}
    for name, folder in folders.items():
        write_export(folder, tokenizer, name)
    return folders


@pytest.fixture(scope="session")
def models(exports):
    return {name: open_export(folder, Threads(1)) for name, folder in exports.items()}
