"""Determines the uses of a model: its methods for text, the commands that accept it, and the tabs of the demo page."""

import inspect

from kerasbert.exporting.folders import check_model
from kerasbert.models import Backbone
from kerasbert.objectives import Discriminator, MaskedLM, PermutationLM, ReplacedTokenDetection
from kerasbert.objectives.next_token import NextToken
from kerasbert.retrieval.evaluation import is_embedder
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

METHODS = ("fill_mask", "score", "score_tokens", "classify", "tag", "answer", "choose", "embed", "rank", "generate")
# {kind of head: names of the tasks of `finetune --task` that use it}
FINETUNED = {
    "classifier": ("classes", "labels", "score"),
    "tagger": ("ner",),
    "span": ("questions",),
    "choice": ("choices",),
    "seq2seq_lm": ("sequences",),
}
# {class: tab of the demo page}
TABS = {
    MaskedLM: "fill-mask",
    Discriminator: "replaced",
    TextClassifier: "classify",
    TokenClassifier: "tag",
    QuestionAnswerer: "answer",
    MultipleChoice: "choose",
    TextEmbedder: "compare",
    NextToken: "generate",
}


def uses(model) -> dict[str, list[str]]:
    """Returns the uses of a model.

    Returns: a dict of "methods", "commands", "finetune" (names of tasks) and "serve" (tabs), each a list of names.
    """
    methods = [name for name in METHODS if callable(getattr(model, name, None))]
    if "generate" in methods and not generates(model):
        methods.remove("generate")
    if "rank" in methods and not ranks(model):
        methods.remove("rank")
    backbone = getattr(model, "backbone", model)
    finetuned = [task for head, tasks in FINETUNED.items() if head in backbone.family.heads for task in tasks]
    tabs = tabs_of(model)
    found = {"predict": not isinstance(model, Backbone) and bool(methods), "evaluate": not isinstance(model, Backbone)}
    found |= {"finetune": bool(finetuned), "serve": bool(tabs), "show": bool(tabs)}
    found |= {"embed": is_embedder(model), "search": is_embedder(model) or ranks(model)}
    found |= {"mine": found["search"], "export": is_exportable(model)}
    commands = [name for name, is_possible in found.items() if is_possible]
    return {"methods": methods, "commands": commands, "finetune": finetuned, "serve": tabs}


def tabs_of(model) -> list[str]:
    """Returns the tabs of the demo page for a model, in order."""
    if isinstance(model, ReplacedTokenDetection):
        return [*tabs_of(model.discriminator), *(tab for tab in tabs_of(model.generator) if tab == "fill-mask")]
    tabs = [tab for cls, tab in TABS.items() if isinstance(model, cls)]
    if "generate" in tabs and not generates(model):
        tabs.remove("generate")
    if shows_attention(getattr(model, "backbone", model)):
        tabs.append("attention")
    return tabs


def generates(model) -> bool:
    """Whether a language model generates text, which needs a cache of earlier tokens or a permutation."""
    backbone = getattr(model, "backbone", model)
    return isinstance(model, PermutationLM) or any(hasattr(backbone, name) for name in ("empty_cache", "start_cache"))


def ranks(model) -> bool:
    """Whether a model orders documents: a reranker of classes has several scores for a pair, and does not."""
    return hasattr(model, "rank") and len(getattr(model, "labels", ())) < 2


def is_exportable(model) -> bool:
    """Whether `kerasbert.export` writes a model."""
    try:
        check_model(model)
    except ValueError:
        return False
    return True


def shows_attention(backbone) -> bool:
    """Whether a backbone returns attention weights on request."""
    return "attention_weights" in inspect.signature(type(backbone).call).parameters
