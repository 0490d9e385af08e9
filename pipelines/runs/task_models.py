"""Task models: created from a pretrained backbone, fed with examples, and scored."""

import warnings
from pathlib import Path

import numpy as np

from kerasbert.data import Tokenizer
from kerasbert.objectives import Seq2SeqLM
from kerasbert.retrieval import Loss
from kerasbert.retrieval.evaluation import is_embedder
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from kerasbert.tasks.sentence_transformers.encoder import NO_LIMIT

from ..reading.examples import Examples
from ..reading.text_columns import Searches
from .cutting import cut_sentence, longest_choices, longest_rows
from .losses import EMBEDDERS, KINDS, labels_of, model_class
from .reports import spread
from .scores import choice_scores, question_scores, sequence_scores, tag_scores, text_scores
from .text_scores import text_pair_scores
from .text_to_text import Wording

MEASURED = 1_000  # examples whose tokens are counted


def new_model(
    kind: str,
    folder: str | Path,
    labels: list | None = None,
    max_length: int | None = None,
    objective: Loss | None = None,
    **options,
):
    """Creates a task model from a pretrained backbone, with a newly initialized head.

    For a sequence-to-sequence model, `max_length` sets the maximum length of the tokenizer, which truncates sources.
    `objective` is the loss of an embedder or a reranker.
    """
    if max_length is not None and kind != "sequences":
        options["max_length"] = max_length
    if kind in ("classes", "labels", "score"):
        cls, options = TextClassifier, {**options, "problem": kind, **({"labels": labels} if labels else {})}
    elif kind == "tags":
        cls, options = TokenClassifier, {**options, "labels": labels}
    elif kind in KINDS:
        cls, options = model_class(kind), {**options, "objective": objective}
    else:
        cls = {"questions": QuestionAnswerer, "choices": MultipleChoice, "sequences": Seq2SeqLM}[kind]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*new head; expected when fine-tuning")
        model = cls.from_preset(folder, **options)
    if kind == "sequences":
        limit = model.backbone.position_limit
        if max_length and limit and max_length > limit:
            raise ValueError(
                f"`max_length` must be at most the {limit} positions of the model. Received: {max_length}."
            )
        limits = (model.require_tokenizer().max_length, getattr(model.backbone.config, "max_length", None), 512)
        model.tokenizer.max_length = max_length or min(filter(None, limits))
    return model


def batches_of(
    model,
    kind: str,
    examples: Examples,
    wording: Wording | None = None,
    balanced: bool = False,
    batch_size: int = 32,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = True,
):
    """Creates the batches of all epochs. For a text-to-text model, examples are first converted to text."""
    weights = None
    if balanced:
        if kind != "classes":
            raise ValueError(f"`balanced` is only for tasks of kind classes. Received: {kind}. Leave out --balanced.")
        names, numbers, counts = np.unique(examples.y, return_inverse=True, return_counts=True)
        weights = (len(numbers) / (len(names) * counts))[numbers].astype("float32")
    examples = wording(examples) if wording else examples
    if kind in KINDS:
        targets = labels_of(examples)
    else:
        targets = encoded_targets(model, kind, examples) if kind == "score" else examples.y
    if shuffle:
        model.check_training(examples.x, targets, batch_size)
    return model.text_batches(examples.x, targets, weights, batch_size, epochs, seed, shuffle)


def longest_row(model) -> int | None:
    """The number of tokens, with special tokens, after which a model cuts a document. None if there is no limit."""
    limits = [getattr(model, "max_length", None) or model.require_tokenizer().max_length]
    limits.append(getattr(getattr(model, "tokens", None), "document_length", None))  # of a multi-vector embedder
    limit = min(filter(None, limits), default=NO_LIMIT)
    return limit if limit < NO_LIMIT else None


def reader_of(model) -> Tokenizer:
    """The tokenizer that reads the texts of a model: of embedders and rerankers in lower case, if they say so."""
    return model.tokenizer_of_texts() if hasattr(model, "tokenizer_of_texts") else model.require_tokenizer()


def cut_texts(model, kind: str, examples: Examples, wording: Wording | None = None) -> str | None:
    """Returns a sentence about the examples with more tokens than the model reads, or None if there are none.

    It counts the tokens of at most MEASURED examples, evenly spaced; of searches, those of documents. Questions and
    tagged sentences are never cut.
    """
    if isinstance(examples, Searches):
        return cut_documents(model, list(examples.collection.documents.values()))
    limit = longest_row(model)
    if kind in ("questions", "tags") or limit is None:
        return None
    sample = spread(examples, MEASURED)
    sample = wording(sample) if wording else sample
    tokenizer = reader_of(model)
    if kind == "choices":
        lengths = longest_choices(tokenizer, sample.x)
    else:
        lengths = longest_rows(tokenizer, [_rows_of(x, kind) for x in sample.x])
    what = "examples" if len(sample.x) == len(examples) else "examples that were looked at"
    return cut_sentence(int((lengths > limit).sum()), len(sample.x), limit, what)


def cut_documents(model, texts: list[str]) -> str | None:
    """Returns a sentence about the documents that an embedder or a reranker cuts; see `cut_texts`."""
    return cut_texts(model, "embed", Examples(texts, [None] * len(texts)))


def _rows_of(x, kind: str) -> list:
    """The texts, and pairs of texts, that a model encodes as one row each."""
    if kind == "rerank":
        return [(x[0], text) for one in x[1:] for text in ([one] if isinstance(one, str) else one)]
    return list(x) if kind in EMBEDDERS and not isinstance(x, str) else [x]


def encoded_targets(model, kind: str, examples: Examples) -> np.ndarray | list:
    """Converts the targets to the form that the model's `fit` accepts."""
    if kind != "score":
        return examples.y if kind in ("questions", "choices", "sequences") else model.encode_labels(examples.y)
    try:
        return model.encode_labels([float(label) for label in examples.y])
    except ValueError as error:
        raise ValueError(f"Scores must be numbers ({error}). For names use --task classes.") from None


def score(model, examples: Examples, batch_size: int = 32, **writing) -> tuple[dict[str, float], list]:
    """Evaluates a task model. Returns (scores, answers). `writing` are options of `generate`."""
    if is_embedder(model) or hasattr(model, "rank"):
        return text_pair_scores(model, examples, batch_size)
    if isinstance(model, TextClassifier):
        targets = encoded_targets(model, model.problem, examples)
        return text_scores(model, examples, targets, batch_size)
    for cls, function in (
        (TokenClassifier, tag_scores),
        (QuestionAnswerer, question_scores),
        (MultipleChoice, choice_scores),
        (Seq2SeqLM, sequence_scores),
    ):
        if isinstance(model, cls):
            return function(model, examples, batch_size, **writing)
    raise ValueError(f"Scores on examples need a task model. Received: a {type(model).__name__}.")
