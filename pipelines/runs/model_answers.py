"""The answers of models that Keras loads."""

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

import kerasbert
from kerasbert.backend import keep_programs
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection, Seq2SeqLM
from kerasbert.objectives.next_token import NextToken
from kerasbert.tasks import (
    MultipleChoice,
    MultiVectorEmbedder,
    QuestionAnswerer,
    Reranker,
    SparseEmbedder,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)

from .answers import Answers, Options, chunks_of, scored, texts_lengths, weights_of
from .cutting import longest_choices
from .task_models import longest_row, reader_of

# {class: form of its inputs}; see `inputs.read_line`.
FORMS = {
    TokenClassifier: "words", QuestionAnswerer: "questions", MultipleChoice: "choices", TextClassifier: "pairs",
    Reranker: "pairs", MaskedLM: "pairs", Discriminator: "texts", Seq2SeqLM: "sources", NextToken: "texts",
    TextEmbedder: "texts", SparseEmbedder: "texts", MultiVectorEmbedder: "texts",
}  # fmt: skip

# The models that cut texts. The others split them into windows, or refuse texts that are too long.
CUTTING = (TextClassifier, MultipleChoice, Reranker, Seq2SeqLM, TextEmbedder, SparseEmbedder, MultiVectorEmbedder)


def model_answers(model: str | Path, options: Options) -> Answers:
    """The answers of the model in a folder.

    Args:
        model: see `kerasbert.load`.
        options: how inputs are answered.
    """
    keep_programs()
    loaded = kerasbert.load(model)
    if isinstance(loaded, ReplacedTokenDetection):
        print(f"{model}: using its discriminator; to fill masks, use {model}/generator", file=sys.stderr)
        loaded = loaded.discriminator
    labels = loaded.labels if isinstance(loaded, TextClassifier) and loaded.problem == "classes" else ()
    kind = next((cls.__name__ for cls in (MaskedLM, TextClassifier) if isinstance(loaded, cls)), "")
    chunk, limit = options.batch_size * chunks_of(kind), longest_row(loaded) if isinstance(loaded, CUTTING) else None
    lengths = None if limit is None else lengths_of(loaded)
    return Answers(form_of(loaded), answerer(loaded, options), chunk, labels, limit, lengths)


def lengths_of(model) -> Callable[[list], np.ndarray]:
    """Returns a function from inputs of a model to their numbers of tokens."""
    tokenizer = reader_of(model)
    if isinstance(model, MultipleChoice):
        return functools.partial(longest_choices, tokenizer)
    return texts_lengths(tokenizer)


def form_of(model) -> str:
    """Returns the form of a model's inputs; see `inputs.read_line`."""
    for cls, form in FORMS.items():
        if isinstance(model, cls):
            return form
    raise ValueError(f"Predictions need a task model or a language model. Received: a {type(model).__name__}.")


def answerer(model, options: Options) -> Callable[[list], list[dict]]:
    """Returns a function from a list of inputs to a list of answers (dicts)."""
    top, batch_size = options.top, options.batch_size

    def best(questions):
        found = model.answer(questions, n_best=top, null_threshold=options.null_threshold, batch_size=batch_size)
        return [{"answers": answers if top > 1 else [answers]} for answers in found]

    def written(texts):
        prompts = [options.prefix + text for text in texts]
        answers = model.generate(prompts, batch_size=batch_size, **asdict(options.generation))
        return [{"text": text} for text in answers]

    def token_weights(texts):
        return [weights_of(row) for row in model.decode(model.embed(texts, batch_size=batch_size), top_k=top)]

    functions = {
        MaskedLM: lambda texts: [{"masks": masks} for masks in model.fill_mask(texts, top_k=top)],
        Discriminator: lambda texts: [{"tokens": tokens} for tokens in model.score_tokens(texts)],
        TextClassifier: lambda texts: model.classify(texts, batch_size=batch_size),
        TokenClassifier: lambda texts: model.tag(texts, batch_size=batch_size),
        QuestionAnswerer: best,
        MultipleChoice: lambda examples: model.choose(examples, batch_size=batch_size),
        TextEmbedder: lambda texts: [{"vector": v.tolist()} for v in model.embed(texts, batch_size=batch_size)],
        SparseEmbedder: token_weights,
        MultiVectorEmbedder: lambda texts: [{"vectors": v.tolist()} for v in model.embed(texts, batch_size=batch_size)],
        Reranker: lambda pairs: scored(model.score(pairs, batch_size=batch_size), model.labels),
        NextToken: written,
    }
    return next(function for cls, function in functions.items() if isinstance(model, cls))
