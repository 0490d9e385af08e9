"""OpenAI's endpoint for embeddings, and endpoints for other tasks in the same form."""

import base64
from typing import Any, Literal

import numpy as np

from kerasbert.data.text.json_files import is_text, shortened
from kerasbert.runtime.models import Classifier, Embedder, MaskFiller, QuestionAnswerer, Tagger

from .bodies import check_characters, check_count, check_range, checked_texts, text_list
from .endpoint import Endpoint
from .errors import RequestError
from .limits import MOST_ANSWERS, MOST_MASKS
from .service import Answered, Service

TEXTS = str | list[Any]  # token ids are refused by name


def listed(answered: Answered, data: list[dict]) -> dict[str, Any]:
    """The form of all responses: a list, and the number of tokens."""
    usage = {"prompt_tokens": answered.tokens, "total_tokens": answered.tokens}
    return {"object": "list", "model": answered.model, "data": data, "usage": usage}


async def embeddings(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    texts = text_list(fields["input"], "input", service.limits)
    name, model = service.model(Embedder, fields.get("model"))
    answered = await service.answer(Embedder, name, texts, truncate=fields.get("truncate"))
    vectors = shortened_vectors(answered.answers, fields.get("dimensions"), bool(model.arguments.get("normalize")))
    if fields.get("encoding_format") == "base64":
        vectors = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return listed(answered, data)


def shortened_vectors(vectors: np.ndarray, dimensions: int | None, normalize: bool) -> np.ndarray:
    """The first components of vectors, scaled to length 1 again if `normalize`."""
    if dimensions is None:
        return vectors
    check_range(dimensions, "dimensions", vectors.shape[1])
    return unit(vectors[:, :dimensions]) if normalize else vectors[:, :dimensions]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors to length 1; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


async def classify(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    inputs = texts_or_pairs(fields["input"], service, "input")
    answered = await service.answer(Classifier, fields.get("model"), inputs, truncate=fields.get("truncate"))
    return listed(answered, [{"index": i, **answer} for i, answer in enumerate(answered.answers)])


def texts_or_pairs(value: Any, service: Service, name: str) -> list[Any]:
    """Returns the inputs of a classifier: texts, and pairs of texts as tuples."""
    values = [value] if isinstance(value, str) else value
    check_count(values, name, service.limits)
    for one in values:
        parts = [one] if isinstance(one, str) else one
        if not isinstance(parts, list) or len(parts) > 2 or len(parts) < 1 or not all(map(_is_text, parts)):
            raise RequestError(
                400,
                f"`{name}` must be a text, or a list of texts and pairs of texts. Received: {shortened(one)}.",
                "invalid_type",
                name,
            )
    return [one if isinstance(one, str) else one[0] if len(one) == 1 else tuple(one) for one in values]


def _is_text(value):
    return isinstance(value, str) and is_text(value)


async def tag(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    value = fields["input"]
    sentences = [value] if isinstance(value, str) else value
    check_count(sentences, "input", service.limits)
    for sentence in sentences:
        words = [sentence] if isinstance(sentence, str) else checked_texts(sentence, "input", service.limits)
        checked_texts(words, "input", service.limits)
        check_characters(" ".join(words), "input")
    answered = await service.answer(Tagger, fields.get("model"), sentences)
    return listed(answered, [{"index": i, **answer} for i, answer in enumerate(answered.answers)])


async def answer(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    questions = fields.get("input", [{name: fields.get(name) for name in ("question", "context")}])
    check_count(questions, "input", service.limits)
    for one in questions:
        if not isinstance(one, dict) or {*one} != {"question", "context"} or not all(map(_is_text, one.values())):
            raise RequestError(
                400,
                "A request must have the texts `question` and `context`, or `input`, a list of objects with both. "
                f"Received: {shortened(one)}.",
                param="input",
            )
        check_characters(one["context"], "context")
    options = {
        "n_best": check_range(fields.get("top", 1), "top", MOST_ANSWERS),
        "null_threshold": fields.get("null_threshold"),
    }
    inputs = [(one["question"], one["context"]) for one in questions]
    answered = await service.answer(QuestionAnswerer, fields.get("model"), inputs, **options)
    return listed(answered, [{"index": i, "answers": answers} for i, answers in enumerate(answered.answers)])


async def fill_mask(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    texts = text_list(fields["input"], "input", service.limits)
    top = check_range(fields.get("top", 5), "top", MOST_ANSWERS)
    name, model = service.model(MaskFiller, fields.get("model"))
    mask = model.tokenizer.roles.get("mask", "[MASK]")
    texts = [text.replace("[MASK]", mask) for text in texts]
    masks = sum(text.count(mask) for text in texts)
    if masks > MOST_MASKS:
        raise RequestError(413, f"A request may have at most {MOST_MASKS} masks. Received: {masks:,}.", param="input")
    answered = await service.answer(MaskFiller, name, texts, truncate=fields.get("truncate"), top_k=top)
    return listed(answered, [{"index": i, "masks": masks} for i, masks in enumerate(answered.answers)])


_TEXTS = {"input": TEXTS, "model": str, "truncate": bool}
ENDPOINTS = (
    Endpoint(
        "/v1/embeddings",
        "The vectors of texts, as of OpenAI.",
        {**_TEXTS, "encoding_format": Literal["float", "base64"], "dimensions": int},
        embeddings,
        ("input",),
        {"user": str},
    ),
    Endpoint("/v1/classify", "The labels or scores of texts and pairs of texts.", _TEXTS, classify, ("input",)),
    Endpoint("/v1/tag", "A label for each word, and entities.", {"input": TEXTS, "model": str}, tag, ("input",)),
    Endpoint(
        "/v1/answer",
        "Answers to questions, which are parts of their contexts.",
        {
            **{"question": str, "context": str, "input": list[Any], "model": str},
            **{"top": int, "null_threshold": float},
        },
        answer,
    ),
    Endpoint("/v1/fill-mask", "The likeliest tokens for each mask.", {**_TEXTS, "top": int}, fill_mask, ("input",)),
)
