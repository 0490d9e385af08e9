"""Model cards: the README.md of a model folder, with the metadata that the Hugging Face Hub reads."""

import dataclasses
import math
import re

from ..core.variables import parts_of
from .hub import huggingface_hub

# Families whose model types transformers does not have.
OWN_MODEL_TYPES = {
    "elmo", "gpt_bert", "ib-bert", "neobert", "new", "seq2seq_attention", "transfo-xl", "transformer", "word_vectors",
}  # fmt: skip

_LOADED = """With kerasbert, on JAX, TensorFlow or PyTorch:

```python
import kerasbert

model = kerasbert.load("{name}")
CALL
```"""
_IN_PIPELINES = """With transformers:

```python
from transformers import pipeline

model = pipeline("TASK", model="{name}")
print(model(TEXT))
```"""
_IN_TRANSFORMERS = """With transformers:

```python
from transformers import AutoTokenizer, CLASS

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = CLASS.from_pretrained("{name}")
outputs = model(**tokenizer(TEXT, return_tensors="pt"))
```"""
_IN_SENTENCE_TRANSFORMERS = """With sentence-transformers:

```python
from sentence_transformers import CLASS

model = CLASS("{name}")
print(model.CALL)
```"""
_AS_EMBEDDER = """As an embedder, which is meant to be fine-tuned on pairs of texts:

```python
from kerasbert.tasks import TextEmbedder

model = TextEmbedder.from_preset("{name}", pooling="cls")
print(model.embed(["A first text.", "A second text."]).shape)
```"""
_HALVES = """Where one model is expected, here and in transformers, the folder loads as the discriminator. The generator
is in `{name}/generator`:

```python
kerasbert.load("{name}/generator")
kerasbert.tasks.TextClassifier.from_preset("{name}", labels=["bad", "good"])
```"""

# The Hub's name of a task -> what the model is for, and the class in transformers.
_PURPOSES = {
    "text-classification": ("assigns {labels} to a text or a pair of texts", "AutoModelForSequenceClassification"),
    "token-classification": ("marks words with {labels}", "AutoModelForTokenClassification"),
    "question-answering": ("finds the answer to a question in a text", "AutoModelForQuestionAnswering"),
    "multiple-choice": ("chooses the right one of several continuations or answers", "AutoModelForMultipleChoice"),
    "sentence-similarity": ("maps texts to vectors, which are close for texts of similar meaning", None),
    "fill-mask": ("predicts masked tokens, and is a starting point for fine-tuning", "AutoModelForMaskedLM"),
    "text-generation": ("continues texts", "AutoModelForCausalLM"),
    "text2text-generation": ("turns one text into another", "AutoModelForSeq2SeqLM"),
    "feature-extraction": ("maps tokens to hidden states, and is a starting point for fine-tuning", "AutoModel"),
}


_VOWELS = r"[AIO]|E(?!u)|MP|XL"  # with which the name of a family begins when it is spoken


@dataclasses.dataclass(frozen=True)
class Description:
    """The part of a card that depends only on the model; see `describe`.

    Args:
        task: the Hub's name of the task, or None.
        family: the class of the backbone.
        purpose: a sentence about what the model is for.
        usage: how to use the model, with "{name}" in place of its name.
        libraries: tags of the libraries that load the model.
        labels: labels of the model.
        limits: sentences about what the model cannot do.
    """

    task: str | None
    family: str
    purpose: str
    usage: str
    libraries: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def describe(model, pairs=False, base=None):
    """Returns the `Description` of a model, so that the model can be freed before its card is written.

    Args:
        model: a backbone, objective or task.
        pairs: whether a classifier takes pairs of texts.
        base: for a folder that will contain only an adapter, the model that it belongs to.
    """
    backbone = parts_of(model)
    task = "feature-extraction" if model is backbone else model.hub_task
    labels = () if getattr(model, "problem", None) == "score" else tuple(getattr(model, "labels", ()))
    purpose, auto_class = _PURPOSES.get(task, ("was pretrained, and is a starting point for fine-tuning", None))
    if getattr(model, "problem", None) == "score":
        purpose = "gives a score to a text or a pair of texts"
    purpose = getattr(model, "hub_purpose", None) or purpose
    several = "any number of" if getattr(model, "problem", None) == "labels" else "one of"
    named = f"the labels {', '.join(f'`{label}`' for label in labels)}" if len(labels) <= 8 else f"{len(labels)} labels"
    purpose = purpose.replace("{labels}", f"{several} {named}")
    family = type(backbone).__name__
    unsaved = [getattr(model, name, None) for name in getattr(model, "TRAINING_ONLY", ())]
    left_out = {id(variable) for layer in unsaved if layer is not None for variable in layer.weights}
    count = sum(math.prod(variable.shape) for variable in model.weights if id(variable) not in left_out)
    size = f"{count / 1e6:.3g} million parameters" if count >= 1e6 else f"{count:,} parameters"
    call = "" if model is backbone else _call(model, pairs)
    usage, libraries = [_LOADED.replace("\nCALL", f"\n{call}" if call else "")], []
    is_own = backbone.config.model_type in OWN_MODEL_TYPES
    peer = getattr(model, "in_sentence_transformers", None)
    if base is not None:
        usage, libraries = [_of_adapter(model, base, labels, call)], ["peft"]
    elif hasattr(model, "generator"):
        usage.append(_HALVES)
    elif left_out and task is None:
        usage.append(_AS_EMBEDDER)
    elif peer is not None:
        if not is_own or family == "WordVectors":  # of which static embedders consist
            usage.append(_IN_SENTENCE_TRANSFORMERS.replace("CLASS", peer[0]).replace("CALL", peer[1]))
            libraries.append("sentence-transformers")
    elif auto_class is not None and not is_own and not _decodes_masks(model):
        usage.append(_in_transformers(model, task, auto_class, pairs))
        libraries.append("transformers")
    article = "An" if re.match(_VOWELS, family) else "A"
    purpose = f"{article} {family} model with {size} that {purpose}."
    limits = _limits(model, backbone, labels)
    return Description(task, family, purpose, "\n\n".join(usage), tuple(libraries), labels, limits)


def _decodes_masks(model):
    """Whether a masked LM has DeBERTa's enhanced mask decoder, which the classes of transformers do not have."""
    return getattr(model, "needs_mask_decoder", False) and getattr(model.backbone.config, "mask_decoder", False)


def _of_adapter(model, base, labels, call):
    """Returns how to use a folder that contains only an adapter."""
    task = type(model).__name__
    problem = model.problem if "problem" in getattr(model, "SAVES", ()) else "classes"
    arguments = [f'"{base}"']
    arguments += [f"labels={list(labels)!r}"] if labels else []
    arguments += [f'problem="{problem}"'] if problem != "classes" else []
    lines = [
        f"The folder contains only an adapter, for `{base}`. With kerasbert, on JAX, TensorFlow or PyTorch:\n",
        "```python",
        f"from {type(model).__module__.rpartition('.')[0]} import {task}\n",
        f"model = {task}.from_preset({', '.join(arguments)})",
        'model.load_adapter("{name}")',
        *([call] if call else []),
        "```",
    ]
    return "\n".join(lines)


def _in_transformers(model, task, auto_class, pairs):
    """Returns the code for transformers: a pipeline where there is one that names the labels or tokens."""
    if task in ("text-classification", "token-classification") and getattr(model, "problem", "classes") == "classes":
        text = '{"text": "A first text.", "text_pair": "Its pair."}' if pairs else '"A first text."'
        return _IN_PIPELINES.replace("TASK", task).replace("TEXT", text)
    if task == "fill-mask":
        return _IN_PIPELINES.replace("TASK", task).replace("TEXT", f'"The cat {_mask_of(model)} on the mat."')
    text = '"A first text.", "Its pair."' if pairs else '"A first text."'
    return _IN_TRANSFORMERS.replace("CLASS", auto_class).replace("TEXT", text)


def _limits(model, backbone, labels):
    """Returns sentences about the limits of a model, as far as they follow from its settings."""
    limits, lengths = [], (getattr(model, "max_length", None), getattr(backbone.config, "max_length", None))
    most = min(filter(None, lengths), default=None)
    if most is not None:
        in_parts = getattr(model, "hub_task", None) in ("question-answering", "token-classification")
        fate = "read in parts" if in_parts else "cut"
        limits.append(f"It reads at most {most:,} tokens, special tokens included; longer texts are {fate}.")
    if _decodes_masks(model):
        limits.append("It has an enhanced mask decoder, which the masked language models of transformers do not have.")
    if labels and getattr(model, "problem", None) == "classes":
        limits.append("It gives one of its labels to every text, even if none of them fits.")
    return tuple(limits)


def _call(model, pairs):
    """Returns an example call of a model, which prints what it returns."""
    if pairs and model.hub_task == "text-classification":
        return 'print(model.classify([("A first text.", "Its pair.")]))'
    call = model.example_call.replace("{mask}", _mask_of(model))
    return f"print({call})" if call else ""


def _mask_of(model):
    return model.tokenizer.roles.get("mask", "[MASK]") if model.tokenizer is not None else "[MASK]"


def card(name, title, description, sections=(), **metadata):
    """Returns the text of a model card.

    Args:
        name: the name of the model.
        title: what the model is, or its name.
        description: a `Description`.
        sections: (heading, list of lines) of further sections, in order. Empty ones are left out.
        **metadata: further arguments of `huggingface_hub.ModelCardData`, such as `base_model` and `eval_results`.
    """
    hub = huggingface_hub()
    given = {key: value for key, value in metadata.items() if value}
    if "eval_results" in given:
        given["model_name"] = name
    tags = [*description.libraries, "keras", description.family.lower()]
    data = hub.ModelCardData(library_name="kerasbert", tags=tags, pipeline_tag=description.task, **given)
    heading = name.rpartition("/")[2]
    purpose = description.purpose
    body = [f"# {heading}", "", purpose if title == heading else f"{title}: {purpose[0].lower()}{purpose[1:]}"]
    if description.limits:
        body += ["", "## Limits", "", " ".join(description.limits)]
    body += ["", "## Usage", "", description.usage.replace("{name}", name)]
    for heading, lines in sections:
        if lines:
            body += ["", f"## {heading}", "", *lines]
    return str(hub.ModelCard(f"---\n{data.to_yaml()}\n---\n" + "\n".join(body) + "\n"))
