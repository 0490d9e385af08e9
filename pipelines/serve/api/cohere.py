"""Cohere's endpoint for reranking, in its first and its second version."""

import uuid
from functools import partial
from typing import Any

import numpy as np

from kerasbert.data.text.json_files import is_text, shortened
from kerasbert.runtime import ExportedModel
from kerasbert.runtime.cutting import cut_text
from kerasbert.runtime.models import Reranker

from .bodies import check_count, check_range, checked_texts
from .endpoint import Endpoint
from .errors import RequestError
from .service import Answered, Service


async def scored(service: Service, query: str, texts: list[str], fields: dict[str, Any], **options: Any) -> Answered:
    """The scores of texts for a query, which a reranker with one output computes."""
    if not is_text(query):
        raise RequestError(400, f"`query` must be a text in Unicode. Received: {shortened(query)}.", param="query")
    name, model = service.model(Reranker, fields.get("model"))
    if len(model.labels or ()) > 1:
        raise RequestError(
            400, f"`rank` needs one score per pair. Received: {name}, a model with {len(model.labels or ())} outputs."
        )
    pairs = [(query, text) for text in texts]
    return await service.answer(Reranker, name, pairs, truncate=fields.get("truncate"), **options)


def ranked(scores: np.ndarray) -> list[int]:
    """The places of the texts from the highest score; equal ones keep their order."""
    return np.argsort(-scores, kind="stable").tolist()


async def rerank(service: Service, fields: dict[str, Any], version: str = "2") -> dict[str, Any]:
    documents = fields["documents"]
    check_count(documents, "documents", service.limits)
    texts = [_text(one, fields.get("rank_fields") or ["text"]) for one in documents]
    texts = checked_texts(texts, "documents", service.limits)
    top = check_range(fields.get("top_n", len(texts)), "top_n", MOST)
    check_range(fields.get("max_chunks_per_doc", 1), "max_chunks_per_doc", MOST)  # a document is never split
    if "max_tokens_per_doc" in fields:
        most = check_range(fields["max_tokens_per_doc"], "max_tokens_per_doc", MOST)
        _, model = service.model(Reranker, fields.get("model"))
        texts = await service.in_thread(lambda: [first_tokens(model, text, most) for text in texts])
    answered = await scored(service, fields["query"], texts, fields)
    results = []
    for index in ranked(answered.answers)[:top]:
        result = {"index": index, "relevance_score": float(answered.answers[index])}
        if fields.get("return_documents"):
            given = documents[index]
            result["document"] = given if isinstance(given, dict) else {"text": given}
        results.append(result)
    meta = {"api_version": {"version": version}, "tokens": {"input_tokens": answered.tokens}}
    return {"id": str(uuid.uuid4()), "model": answered.model, "results": results, "meta": meta}


def _text(document, names):
    """The text of a document, which is a text or an object: that of the fields that it has of some, in their order."""
    if not isinstance(document, dict):
        return document
    parts = [document[name] for name in names if name in document]
    if not parts or not all(isinstance(part, str) for part in parts):
        raise RequestError(
            400,
            f"A document must have a text in one of the fields {', '.join(names)}. Received: {shortened(document)}. "
            "`rank_fields` names others.",
            "invalid_type",
            "documents",
        )
    return "\n".join(parts)


def first_tokens(model: ExportedModel, text: str, count: int) -> str:
    """The beginning of a text that has at most `count` tokens."""
    text = cut_text(text, count, model.count_tokens)
    [(_, offsets)] = model.reader.encode_with_offsets([text], plain_text=False)
    return text if len(offsets) <= count else text[: offsets[count - 1, 1]]


MOST = 10**9  # of `top_n` and other numbers that may be above what there is
FIELDS = {
    **{"query": str, "documents": list[Any], "model": str, "top_n": int, "return_documents": bool},
    **{"rank_fields": list[str], "max_chunks_per_doc": int, "max_tokens_per_doc": int, "truncate": bool},
}
IGNORED = {"priority": int}
ENDPOINTS = tuple(
    Endpoint(
        f"/v{version}/rerank",
        "Sorts documents by their scores for a query, as Cohere does.",
        FIELDS,
        partial(rerank, version=version),
        ("query", "documents"),
        IGNORED,
    )
    for version in ("1", "2")
)
