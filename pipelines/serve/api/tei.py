"""The endpoints of text-embeddings-inference."""

from typing import Any, Literal

from kerasbert import __version__
from kerasbert.data.text.json_files import shortened
from kerasbert.runtime.models import Classifier, Embedder, ExportedModel, Reranker, SparseEmbedder

from . import cohere
from .bodies import check_characters, check_range, checked_texts, text_list
from .endpoint import Endpoint
from .errors import RequestError
from .limits import Limits
from .openai import shortened_vectors, texts_or_pairs, unit
from .service import TOKENIZERS, Service

TEXTS = str | list[Any]
_COMMON = {"model": str, "truncate": bool, "truncation_direction": Literal["right", "Right"]}


async def embed(service: Service, fields: dict[str, Any]) -> list:
    texts = text_list(fields["inputs"], "inputs", service.limits)
    options = {"truncate": fields.get("truncate"), "prompt": fields.get("prompt_name")}
    answered = await service.answer(Embedder, fields.get("model"), texts, **options)
    vectors = shortened_vectors(answered.answers, fields.get("dimensions"), normalize=False)
    return list(unit(vectors) if fields.get("normalize", True) else vectors)


async def embed_sparse(service: Service, fields: dict[str, Any]) -> list:
    texts = text_list(fields["inputs"], "inputs", service.limits)
    options = {"truncate": fields.get("truncate"), "prompt": fields.get("prompt_name")}
    answered = await service.answer(SparseEmbedder, fields.get("model"), texts, **options)
    return await service.in_thread(lambda: [_weights(*one) for one in answered.answers])


def _weights(ids, weights):
    return [{"index": index, "value": value} for index, value in zip(ids.tolist(), weights.tolist(), strict=True)]


async def predict(service: Service, fields: dict[str, Any]) -> list:
    """Answers as text-embeddings-inference does, and requests with `parameters` as huggingface_hub expects it."""
    given, parameters = fields["inputs"], fields.get("parameters", {})
    top = parameters.get("top_k", cohere.MOST)
    if not {*parameters} <= {"top_k"} or type(top) is not int:  # a bool is none
        raise RequestError(400, f"`parameters` may have the integer `top_k`. Received: {shortened(parameters)}.")
    top = check_range(top, "top_k", cohere.MOST)
    single = isinstance(given, str) or isinstance(next(iter(given), None), str)
    if single and isinstance(given, list) and len(given) > 2:  # which would be a pair, not a batch, if it had two
        raise RequestError(
            400,
            "`inputs` must be a text, a pair of texts, or a list of lists of one or two texts. Received: a list of "
            f"{len(given)}. Use [[text], [text]].",
            "invalid_type",
        )
    inputs = texts_or_pairs([given] if single else given, service, "inputs")
    raw = fields.get("raw_scores", False)
    options = {"truncate": fields.get("truncate"), "activate": not raw}
    answered = await service.answer(Classifier, fields.get("model"), inputs, **options)
    found = []
    for one in answered.answers:
        scores = one if raw else one.get("scores") or {service.models[answered.model].labels[0]: one["score"]}
        pairs = sorted(scores.items(), key=lambda pair: -pair[1])
        found.append([{"label": str(label), "score": score} for label, score in pairs[:top]])
    return found[0] if single and "parameters" not in fields else found


async def rerank(service: Service, fields: dict[str, Any]) -> Any:
    """Answers requests with `texts`, and as Cohere does those with `documents`."""
    if "documents" in fields and "texts" not in fields:
        return await cohere.rerank(service, fields)
    texts = checked_texts(fields.get("texts"), "texts", service.limits)
    activate = not fields.get("raw_scores", False)
    answered = await cohere.scored(service, fields["query"], texts, fields, activate=activate)
    return [
        {"index": i, "score": float(answered.answers[i]), **({"text": texts[i]} if fields.get("return_text") else {})}
        for i in cohere.ranked(answered.answers)
    ]


async def tokenize(service: Service, fields: dict[str, Any]) -> list:
    texts = text_list(fields["inputs"], "inputs", service.limits)
    for text in texts:
        check_characters(text, "inputs")
    name = fields.get("model")
    model = next(iter(service.models.values())) if name is None else service.named(name)
    return await service.in_thread(lambda: [_tokens(model, text, fields) for text in texts])


def _tokens(model: ExportedModel, text: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    text = model.prompts.text(fields["prompt_name"]) + text if "prompt_name" in fields else text
    [(ids, offsets)] = model.reader.encode_with_offsets([text], plain_text=False)
    found = [(int(i), *map(int, place)) for i, place in zip(ids, offsets, strict=True)]
    if fields.get("add_special_tokens", True):
        parts = [found if item == "A" else [(item, None, None)] for item, _ in model.info["single"]]
        found = [token for part in parts for token in part]
    special = set(model.tokenizer.special_ids.tolist())
    return [
        {
            "id": i,
            "text": model.tokenizer.token(i) if start is None else text[start:stop],
            **{"special": i in special, "start": start, "stop": stop},
        }
        for i, start, stop in found
    ]


def info(service: Service) -> dict[str, Any]:
    """What `/info` says: the first model in the form of text-embeddings-inference, and all models."""
    described = {name: description(name, model, service.limits) for name, model in service.models.items()}
    return {**next(iter(described.values())), "models": list(described.values())}


def description(name: str, model: ExportedModel, limits: Limits) -> dict[str, Any]:
    labels = list(map(str, model.labels or []))
    of_classifier = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    kind: dict[str, Any] = {model.does: {}}
    if isinstance(model, Embedder):
        kind = {"embedding": {"pooling": str(model.arguments.get("pooling", "splade"))}}
    elif isinstance(model, (Classifier, Reranker)):
        kind = {"reranker" if isinstance(model, Reranker) else "classifier": of_classifier}
    return {
        "model_id": name,
        "model_sha": model.saved["export"]["sha256"],
        "model_dtype": model.saved["export"].get("quantized") or "float32",
        "model_type": kind,
        "max_concurrent_requests": limits.max_requests,
        "max_input_length": model.max_length,
        "max_batch_tokens": limits.batch_tokens,
        "max_client_batch_size": limits.max_texts,
        "auto_truncate": limits.truncate,
        "tokenization_workers": TOKENIZERS,
        "version": __version__,
    }


_TEXTS = {"inputs": TEXTS, "prompt_name": str, **_COMMON}
ENDPOINTS = (
    Endpoint("/embed", "The vectors of texts.", {**_TEXTS, "normalize": bool, "dimensions": int}, embed, ("inputs",)),
    Endpoint("/embed_sparse", "The token weights of texts.", _TEXTS, embed_sparse, ("inputs",)),
    Endpoint(
        "/predict",
        "The labels of texts and pairs of texts.",
        {"inputs": TEXTS, "raw_scores": bool, "parameters": dict, **_COMMON},
        predict,
        ("inputs",),
    ),
    Endpoint(
        "/rerank",
        "Sorts texts by their scores for a query.",
        {**cohere.FIELDS, **_COMMON, "texts": list[Any], "raw_scores": bool, "return_text": bool},
        rerank,
        ("query",),
        cohere.IGNORED,
    ),
    Endpoint(
        "/tokenize",
        "The tokens of texts.",
        {"inputs": TEXTS, "prompt_name": str, "model": str, "add_special_tokens": bool},
        tokenize,
        ("inputs",),
    ),
)
