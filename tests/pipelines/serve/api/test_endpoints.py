"""Each endpoint answers in the form of its API, with the numbers of the model."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from starlette.testclient import TestClient

from pipelines.serve.api.app import create_app
from pipelines.serve.api.gate import Access
from pipelines.serve.api.limits import Limits

pytestmark = pytest.mark.one_backend

TEXTS = ["the cat sat on a mat", "who ran home", "blue"]
PAIRS = [("who ran", text) for text in TEXTS]


@pytest.fixture(scope="module")
def client(models):
    limits = Limits(max_bytes=100_000, max_texts=50, max_tokens=600)
    with TestClient(create_app(models, limits, Access({"testserver"}))) as opened:
        yield opened


@pytest.fixture(scope="module")
def post(client):
    """Posts the fields of a request. Returns the content of the response."""

    def run(path, **fields):
        response = client.post(path, json=fields)
        assert response.status_code == 200, response.text
        return response.json()

    return run


def test_embeddings_of_openai(post, models):
    expected = models["embedder"].answer(TEXTS)
    found = post("/v1/embeddings", input=TEXTS, model="embedder", user="me")
    assert (found["object"], found["model"]) == ("list", "embedder")
    assert [(one["object"], one["index"]) for one in found["data"]] == [("embedding", i) for i in range(3)]
    np.testing.assert_allclose([one["embedding"] for one in found["data"]], expected, atol=1e-6)
    tokens = sum(len(row) for row in models["embedder"].job(TEXTS).rows)
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}

    encoded = post("/v1/embeddings", input=TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(encoded), "<f4"), expected[0], atol=1e-6)
    short = [one["embedding"] for one in post("/v1/embeddings", input=TEXTS, dimensions=3)["data"]]
    wanted = expected[:, :3] / np.linalg.norm(expected[:, :3], axis=-1, keepdims=True)  # as the model's, of length 1
    np.testing.assert_allclose(short, wanted, atol=1e-6)
    short = post("/v1/embeddings", input=TEXTS[0], dimensions=3, model="other")["data"][0]["embedding"]
    np.testing.assert_allclose(short, models["other"].answer(TEXTS[:1])[0, :3], atol=1e-6)


def test_embeddings_of_text_embeddings_inference(post, models):
    expected = models["other"].answer(TEXTS)
    np.testing.assert_allclose(post("/embed", inputs=TEXTS, normalize=False, model="other"), expected, atol=1e-5)
    unit = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(post("/embed", inputs=TEXTS, model="other"), unit, atol=1e-6)
    asked = post("/embed", inputs=TEXTS[0], model="other", normalize=False, prompt_name="query", truncate=True)
    np.testing.assert_allclose(asked, models["other"].answer(TEXTS[:1], prompt="query"), atol=1e-5)
    short = post("/embed", inputs=TEXTS, model="other", dimensions=3)
    np.testing.assert_allclose(
        short, expected[:, :3] / np.linalg.norm(expected[:, :3], axis=-1, keepdims=True), atol=1e-6
    )
    [ids, weights] = models["sparse"].answer(TEXTS[:1])[0]
    found = post("/embed_sparse", inputs=TEXTS[0])[0]
    assert [one["index"] for one in found] == ids.tolist()
    np.testing.assert_allclose([one["value"] for one in found], weights, atol=1e-5)


def test_reranking(post, models):
    scores = models["reranker"].answer(PAIRS)
    order = np.argsort(-scores).tolist()
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        found = post(path, model="reranker", query="who ran", documents=TEXTS, top_n=2)
        assert [one["index"] for one in found["results"]] == order[:2] and found["id"]
        np.testing.assert_allclose([one["relevance_score"] for one in found["results"]], scores[order[:2]], atol=1e-6)
    found = post("/v1/rerank", query="who ran", documents=[{"text": text} for text in TEXTS], return_documents=True)
    assert [one["document"] for one in found["results"]] == [{"text": TEXTS[i]} for i in order]
    objects = [{"text": "blue", "title": "who", "body": text} for text in TEXTS]
    options = {"rank_fields": ["body", "absent"], "max_chunks_per_doc": 10, "priority": 1, "return_documents": True}
    found = post("/v2/rerank", query="who ran", documents=objects, **options)
    assert [one["document"] for one in found["results"]] == [objects[i] for i in order]
    np.testing.assert_allclose([one["relevance_score"] for one in found["results"]], scores[order], atol=1e-6)
    tokens = models["reranker"].tokenizer.encode_with_offsets(TEXTS)
    pairs = [("who ran", text[: offsets[1, 1]]) for text, (_, offsets) in zip(TEXTS, tokens, strict=True)]
    cut = models["reranker"].answer(pairs)
    found = post("/v1/rerank", query="who ran", documents=TEXTS, max_tokens_per_doc=2)
    np.testing.assert_allclose([one["relevance_score"] for one in found["results"]], -np.sort(-cut), atol=1e-6)
    found = post("/rerank", query="who ran", texts=TEXTS, return_text=True)
    assert [(one["index"], one["text"]) for one in found] == [(i, TEXTS[i]) for i in order]
    np.testing.assert_allclose([one["score"] for one in found], scores[order], atol=1e-6)
    raw = models["reranker"].answer(PAIRS, activate=False)[order]
    found = post("/rerank", query="who ran", texts=TEXTS, raw_scores=True)
    np.testing.assert_allclose([one["score"] for one in found], raw, atol=1e-5)


def test_classes(post, models):
    inputs = [*TEXTS, ("the cat", "ran")]
    expected = models["classifier"].answer(inputs)
    found = post("/v1/classify", input=inputs)["data"]
    assert [one["label"] for one in found] == [answer["label"] for answer in expected]
    assert [one["scores"] for one in found] == [pytest.approx(answer["scores"], abs=1e-6) for answer in expected]
    found = post("/predict", inputs=TEXTS[0])
    assert found == sorted(found, key=lambda one: -one["score"])
    assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in found} == expected[0]["scores"]
    assert post("/predict", inputs=TEXTS[0], parameters={"top_k": 2}) == [found[:2]]  # of huggingface_hub
    raw = post("/predict", inputs=TEXTS[0], raw_scores=True)
    assert [one["label"] for one in raw] == [one["label"] for one in found]
    logits = np.exp([one["score"] for one in raw])
    np.testing.assert_allclose(logits / logits.sum(), [one["score"] for one in found], atol=1e-6)
    pair = post("/predict", inputs=["the cat", "ran"])
    assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in pair} == expected[3]["scores"]
    assert len(post("/predict", inputs=[[TEXTS[0]], ["the cat", "ran"]])) == 2


def test_tags_answers_and_masks(post, models):
    assert post("/v1/tag", input=[*TEXTS, ["one", "two"]])["data"] == [
        {"index": i, **answer} for i, answer in enumerate(models["tagger"].answer([*TEXTS, ["one", "two"]]))
    ]
    context = "one two three four the cat sat on a mat and ran home " * 3
    expected = models["answerer"].answer([("who", context)], n_best=3, null_threshold=0.5)
    options = {"top": 3, "null_threshold": 0.5}
    assert post("/v1/answer", question="who", context=context, **options)["data"][0]["answers"] == expected[0]
    listed = post("/v1/answer", input=[{"question": "who", "context": context}] * 2, **options)["data"]
    assert [one["answers"] for one in listed] == expected * 2
    masked = ["the [MASK] sat", "[MASK] two [MASK]"]
    found = [one["masks"] for one in post("/v1/fill-mask", input=masked, top=2)["data"]]
    assert found == models["filler"].answer(masked, top_k=2)


# Endpoint -> (models, the fields of a request for texts, what the model is asked, its options, where the answers are)
ASKED = {
    "/v1/embeddings": (["embedder", "other", "rounded"], lambda texts: {"input": texts}, list, {}, "data.embedding"),
    "/embed": (["other"], lambda texts: {"inputs": texts, "normalize": False}, list, {}, ""),
    "/embed_sparse": (["sparse"], lambda texts: {"inputs": texts}, list, {}, ""),
    "/v1/rerank": (
        ["reranker"],
        lambda texts: {"query": "who ran", "documents": texts},
        lambda texts: [("who ran", text) for text in texts],
        {},
        "results.relevance_score",
    ),
    "/v1/classify": (["classifier", "multi-label", "regression"], lambda texts: {"input": texts}, list, {}, "data"),
    "/v1/tag": (["tagger"], lambda texts: {"input": texts}, list, {}, "data"),
    "/v1/answer": (
        ["answerer"],
        lambda texts: {"input": [{"question": "who ran", "context": text} for text in texts], "top": 3},
        lambda texts: [("who ran", text) for text in texts],
        {"n_best": 3},
        "data.answers",
    ),
    "/v1/fill-mask": (
        ["filler"],
        lambda texts: {"input": [f"[MASK] {text}" for text in texts], "top": 2},
        lambda texts: [f"[MASK] {text}" for text in texts],
        {"top_k": 2},
        "data.masks",
    ),
}


def answers_in(content, path):
    """The answers in the content of a response, in the order of the inputs."""
    name, _, part = path.partition(".")
    listed = content[name] if name else content
    if name:
        listed = sorted(listed, key=lambda one: one["index"])
        listed = [one[part] if part else {key: one[key] for key in one if key != "index"} for one in listed]
    return listed


def numbers_of(value):
    """A value of lists and dicts as pairs of what is not a number, and its numbers."""
    if isinstance(value, dict):
        value = sorted(value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        parts = [numbers_of(one) for one in value]
        return [part[0] for part in parts], sum([part[1] for part in parts], [])
    return (None, [value]) if isinstance(value, (float, np.floating)) else (value, [])


def test_answers_do_not_depend_on_what_else_is_asked(models):
    """Requests of all endpoints at a time, of 1 to 500 words: in every order and mixture, the answers of the models."""
    generator, words, requests = np.random.default_rng(0), " ".join(TEXTS).split(), []
    for _ in range(80):
        path = generator.choice(list(ASKED))
        name = generator.choice(ASKED[path][0])
        lengths = np.exp(generator.uniform(0, 6.2, generator.integers(1, 6))).astype(int)
        requests.append((path, name, [" ".join(generator.choice(words, length)) for length in lengths]))
    app = create_app(models, Limits(batch_tokens=128), Access({"testserver"}))
    with TestClient(app) as client, ThreadPoolExecutor(16) as threads:

        def posted(path, name, texts):
            return client.post(path, json={**ASKED[path][1](texts), "model": name}).json()

        found = list(threads.map(posted, *zip(*requests, strict=True)))
    for (path, name, texts), content in zip(requests, found, strict=True):
        _, _, inputs, options, place = ASKED[path]
        alone = models[name].answer(inputs(texts), batch_size=1, **options)
        if path == "/embed_sparse":
            alone = [
                [{"index": int(i), "value": value} for i, value in zip(ids, values, strict=True)]
                for ids, values in alone
            ]
        (said, numbers), (expected, wanted) = numbers_of(answers_in(content, place)), numbers_of(alone)
        assert said == expected, path
        np.testing.assert_allclose(numbers, wanted, atol=1e-5, rtol=1e-5, err_msg=path)


def test_tokens(post, models):
    [found] = post("/tokenize", inputs="the cat", prompt_name="query")
    ids = models["embedder"].tokenizer.encode(["who the cat"])[0]
    assert [one["id"] for one in found] == ids.tolist()
    assert [one["special"] for one in found] == [True] + [False] * (len(ids) - 2) + [True]
    assert [one["text"] for one in (found[0], found[-1])] == ["[CLS]", "[SEP]"] and found[0]["start"] is None
    assert all("who the cat"[one["start"] : one["stop"]] == one["text"] for one in found[1:-1])
    assert post("/tokenize", inputs=["the cat"], add_special_tokens=False)[0][0]["special"] is False


def test_what_a_server_says_about_itself(client, models):
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == list(models)
    assert client.get("/v1/models/sparse").json()["id"] == "sparse"
    assert client.get("/v1/models/absent").json()["error"]["code"] == "model_not_found"
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"], info["model_dtype"]) == ("embedder", 32, "float32")
    assert [one["model_id"] for one in info["models"]] == list(models)
    assert client.get("/health").status_code == 200
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/health"]["get"]["security"] == [] and "get" in paths["/v1/models/{name}"]
    schema = paths["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["input"] and schema["properties"]["dimensions"] == {"type": "integer"}
    client.post("/embed", json={"inputs": TEXTS})
    text = client.get("/metrics").text
    assert 'kerasbert_requests_total{endpoint="/embed",status="200"}' in text
    assert 'kerasbert_tokens_total{model="embedder"}' in text and "kerasbert_batch_rows_bucket" in text


LONG = "the cat " * 20
REFUSED = [
    ("/v1/embeddings", {"input": [1, 2]}, 400, "token ids, which belong to the vocabulary of another model"),
    ("/v1/embeddings", {"input": [[1, 2], [3]]}, 400, "Received: token ids"),
    ("/v1/embeddings", {"input": [["a"]]}, 400, "must have texts in Unicode. Received: ['a']"),
    ("/v1/embeddings", {"input": []}, 400, "at least one text"),
    ("/v1/embeddings", {"input": ["a", 3]}, 400, "must have texts in Unicode. Received: 3"),
    ("/v1/embeddings", {"input": "\ud800"}, 400, "must be str or list"),
    ("/v1/embeddings", {"input": ["\ud800"]}, 400, "must have texts in Unicode"),
    ("/v1/embeddings", {"input": ["a"] * 51}, 413, "at most 50 texts. Received: 51"),
    ("/v1/embeddings", {"input": [LONG] * 20}, 413, "at most 600 tokens. Received: 640"),
    ("/v1/embeddings", {"input": LONG, "truncate": False}, 413, "at most 32 tokens. Received: at least"),
    ("/v1/embeddings", {"input": "a", "dimensions": 9}, 400, "from 1 to 8. Received: 9"),
    ("/v1/embeddings", {"input": "a", "dimensions": True}, 400, "`dimensions` in the request must be int"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, 400, "'float' or 'base64'"),
    ("/v1/embeddings", {"input": "a", "sample": True}, 400, "A request may have the fields input, model"),
    ("/v1/embeddings", {"input": "a", "model": "gpt"}, 404, "The models of this server are embedder, other"),
    ("/v1/embeddings", {"input": "a", "model": "embeder"}, 404, "Received: 'embeder'. Did you mean embedder?"),
    ("/v1/embeddings", {"input": "a", "model": "tagger"}, 400, "can `embed`: embedder, other, rounded. Received: the"),
    ("/v1/embeddings", {}, 400, "must have the field `input`"),
    ("/v1/rerank", {"query": "a", "documents": [{"title": "a"}]}, 400, "a text in one of the fields text. Received"),
    ("/v1/rerank", {"query": "a", "documents": ["a", 3]}, 400, "must have texts in Unicode. Received: 3"),
    ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, 400, "`top_n` must be from 1"),
    ("/rerank", {"query": "a"}, 400, "`texts` must be a list"),
    ("/embed", {"inputs": "a", "prompt_name": "nothing"}, 400, "`prompt` must be one of"),
    ("/embed", {"inputs": "a", "truncation_direction": "left"}, 400, "'right' or 'Right'"),
    ("/predict", {"inputs": "a", "parameters": {"function_to_apply": "none"}}, 400, "may have the integer `top_k`"),
    ("/predict", {"inputs": "a", "parameters": {"top_k": True}}, 400, "may have the integer `top_k`. Received"),
    ("/predict", {"inputs": "a", "parameters": {"top_k": 0}}, 400, "`top_k` must be from 1"),
    ("/predict", {"inputs": ["a", "b", "c"]}, 400, "Received: a list of 3. Use [[text], [text]]"),
    ("/v1/classify", {"input": [["a", "b", "c"]]}, 400, "a list of texts and pairs of texts"),
    ("/v1/tag", {"input": [["a", 3]]}, 400, "must have texts in Unicode"),
    ("/v1/tag", {"input": ["a" * 200_001]}, 413, "at most 100,000 bytes"),
    ("/v1/answer", {"question": "who"}, 400, "must have the texts `question` and `context`"),
    ("/v1/answer", {"question": "who", "context": " "}, 400, "A question needs a context"),
    ("/v1/answer", {"question": "who", "context": "a", "top": 101}, 400, "from 1 to 100"),
    ("/v1/fill-mask", {"input": "no mask"}, 400, "must have the mask token"),
    ("/v1/fill-mask", {"input": "[MASK]" * 257}, 413, "at most 256 masks. Received: 257"),
    ("/nothing", {}, 404, "There is no such endpoint"),
]


@pytest.mark.parametrize("path, fields, status, message", REFUSED)
def test_what_is_refused(client, path, fields, status, message):
    headers = {"content-type": "application/json"}
    response = client.post(path, content=json.dumps(fields).encode(), headers=headers)
    content = response.json()
    assert response.status_code == status, content
    if path == "/v1/rerank":
        said = content["message"]
    elif path.startswith("/v1/"):
        assert {*content["error"]} == {"message", "type", "param", "code"}
        said = content["error"]["message"]
    else:
        said = content["error"]
        assert content["error_type"] in ("validation", "tokenizer", "backend", "overloaded")
    assert message in said


def test_an_endpoint_without_a_model(models):
    app = create_app({"tagger": models["tagger"]}, Limits(truncate=False), Access({"testserver"}))
    with TestClient(app) as client:
        response = client.post("/embed", json={"inputs": "a"})
        assert response.status_code == 424 and "can `embed`: there is none" in response.json()["error"]
