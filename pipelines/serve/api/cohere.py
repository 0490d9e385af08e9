"""Cohere's endpoint for reranking, in its first and its second version."""

import uuid
from typing import Any

import numpy as np

from kerasbert.data.text.json_files import is_text, shortened
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


async def rerank(service: Service, fields: dict[str, Any]) -> dict[str, Any]:
    documents = fields["documents"]
    check_count(documents, "documents", service.limits)
    documents = [one["text"] if isinstance(one, dict) and {*one} == {"text"} else one for one in documents]
    texts = checked_texts(documents, "documents", service.limits)
    top = check_range(fields.get("top_n", len(texts)), "top_n", 10**9)
    answered = await scored(service, fields["query"], texts, fields)
    results = []
    for index in ranked(answered.answers)[:top]:
        document = {"document": {"text": texts[index]}} if fields.get("return_documents") else {}
        results.append({"index": index, "relevance_score": float(answered.answers[index]), **document})
    meta = {"api_version": {"version": "2"}, "tokens": {"input_tokens": answered.tokens}}
    return {"id": str(uuid.uuid4()), "model": answered.model, "results": results, "meta": meta}


FIELDS = {
    **{"query": str, "documents": list[Any], "model": str},
    **{"top_n": int, "return_documents": bool, "truncate": bool},
}
_SUMMARY = "Sorts documents by their scores for a query, as Cohere does."
ENDPOINTS = tuple(
    Endpoint(path, _SUMMARY, FIELDS, rerank, ("query", "documents")) for path in ("/v1/rerank", "/v2/rerank")
)
