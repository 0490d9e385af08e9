"""Which inputs and outputs the exported program of a model has."""

import dataclasses
from collections.abc import Callable

import numpy as np
from keras import ops

from ..checkpoints.description import description
from ..core.inputs import checked_inputs
from ..objectives import CausalLM, Discriminator, MaskedLM, Seq2SeqLM
from ..runtime.inputs import OUR_NAMES
from ..tasks import (
    MultipleChoice,
    MultiVectorEmbedder,
    QuestionAnswerer,
    Reranker,
    SparseEmbedder,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)

# Class -> (what the program does, {output: its axes}), for the classes that can be exported. Subclasses come first.
KINDS = {
    TextClassifier: ("classify", {"logits": ("batch", "labels")}),
    Reranker: ("score", {"logits": ("batch", "labels")}),
    TokenClassifier: ("tag", {"logits": ("batch", "length", "labels")}),
    QuestionAnswerer: ("answer", {"start": ("batch", "length"), "end": ("batch", "length")}),
    MultipleChoice: ("choose", {"logits": ("batch", "choices")}),
    TextEmbedder: ("embed", {"vector": ("batch", "width")}),
    MultiVectorEmbedder: (
        "embed_tokens",
        {"vectors": ("batch", "length", "width"), "scored": ("batch", "length")},
    ),
    SparseEmbedder: ("embed", {"vector": ("batch", "vocabulary")}),
    MaskedLM: ("fill_mask", {"logits": ("batch", "length", "vocabulary")}),
    Discriminator: ("score_tokens", {"logits": ("batch", "length")}),
    CausalLM: ("continue_text", {"logits": ("batch", "length", "vocabulary")}),
    Seq2SeqLM: ("generate", {"logits": ("batch", "decoder_length", "vocabulary")}),
}
# Sizes of the inputs with which a program is traced. They differ, so that no two axes are taken for the same one.
EXAMPLE = {"batch": 3, "choices": 5, "length": 11, "decoder_length": 13}


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of a model that is exported as one file.

    Args:
        name: name of its files, without the ending.
        function: takes {input: tensor} and returns {output: tensor}.
        inputs: {input: (example, tuple with the name of each axis, or None if its size is fixed)}.
        outputs: {output: tuple with the name of each axis}.
    """

    name: str
    function: Callable
    inputs: dict
    outputs: dict

    def described(self):
        """The inputs and outputs as a dict for a JSON file."""
        inputs = {}
        for name, (example, axes) in self.inputs.items():
            shape = [axis or size for axis, size in zip(axes, example.shape, strict=True)]
            inputs[name] = {"dtype": str(example.dtype), "shape": shape}
        return {"inputs": inputs, "outputs": {name: list(axes) for name, axes in self.outputs.items()}}


def kind_of(model):
    """Returns (what the exported program of a model does, {output: its axes}). Raises a ValueError if there is none."""
    for cls, kind in KINDS.items():
        if isinstance(model, cls):
            return kind
    names = ", ".join(cls.__name__ for cls in KINDS)
    raise ValueError(
        f"A model with one of these classes can be exported: {names}. Received: a {type(model).__name__}. For the "
        "vectors of an encoder, use TextEmbedder(backbone); for its hidden states, load the folder in transformers."
    )


def input_names(model):
    """The names of the arrays that the text methods of a model compute, with `padding_mask` instead of `lengths`."""
    model.require_tokenizer()
    if isinstance(model, Seq2SeqLM):
        return ["token_ids", "padding_mask", "decoder_token_ids", "decoder_padding_mask"]
    return ["token_ids", "padding_mask", *(["segment_ids"] if model.texts_have_segments else [])]


def default_names(model, format):
    """Whose names the inputs have by default: those of transformers where its clients could load the folder.

    They read ONNX and OpenVINO, `tokenizer.json`, and a `config.json` with a class of transformers.
    """
    [architecture] = description(model)[0]["architectures"]
    theirs = architecture.endswith("Model") or "For" in architecture or "LMHead" in architecture
    clients = format in ("onnx", "onnxruntime", "openvino") and not model.tokenizer.preparation
    return "transformers" if clients and theirs else "kerasbert"


def renamed(program):
    """The program with the names that transformers has for inputs and outputs, and with its int64 inputs."""
    theirs = {ours: name for name, ours in OUR_NAMES.items()}

    def function(inputs):
        found = program.function({OUR_NAMES[name]: ops.cast(x, "int32") for name, x in inputs.items()})
        return {theirs.get(name, name): output for name, output in found.items()}

    inputs = {theirs[name]: (example.astype("int64"), axes) for name, (example, axes) in program.inputs.items()}
    outputs = {theirs.get(name, name): axes for name, axes in program.outputs.items()}
    return Program(program.name, function, inputs, outputs)


def whole_program(model):
    """The program that computes the outputs of `predict`."""
    _, outputs = kind_of(model)
    tokens = ("batch", "length", "vocabulary")
    if isinstance(model, MaskedLM) and model.sentence_pair is not None:
        outputs = {"tokens": tokens, "sentence_pair": ("batch", "order")}
    elif isinstance(model, Discriminator) and model.masked_lm is not None:
        outputs = {"replaced": ("batch", "length"), "tokens": tokens}

    def function(inputs):
        inputs = {name: (x != 0) if name.endswith("padding_mask") else x for name, x in inputs.items()}
        with checked_inputs():
            found = model(inputs, training=False)
        return found if isinstance(found, dict) else {next(iter(outputs)): found}

    inputs = {}
    for name in input_names(model):
        axes = ["batch", "decoder_length" if name.startswith("decoder_") else "length"]
        axes[1:1] = ["choices"] if isinstance(model, MultipleChoice) else []
        inputs[name] = np.ones([EXAMPLE[axis] for axis in axes], "int32"), tuple(axes)
    return Program("model", function, inputs, outputs)
