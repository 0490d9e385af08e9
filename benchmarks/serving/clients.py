"""Asks `kerasbert serve --api` with the clients that people have.

pip install openai langchain-openai llama-index-embeddings-openai-like cohere huggingface_hub
python benchmarks/serving/clients.py http://localhost:8000 --embedder NAME --reranker NAME --classifier NAME

The token, if the server has one, is read from KERASBERT_TOKEN.
"""

import argparse
import json
import os
import subprocess

import numpy as np

TOKEN = os.environ.get("KERASBERT_TOKEN", "none")
QUERY, TEXTS = "how are names bound?", ["a name is bound by an assignment", "slices have a start and a stop"]


def of_curl(options):
    body = json.dumps({"inputs": TEXTS, "model": options.embedder})
    headers = ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {TOKEN}"]
    command = ["curl", "-s", "-f", f"{options.url}/embed", *headers, "-d", body]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def of_openai(options):
    import openai

    client = openai.OpenAI(base_url=f"{options.url}/v1", api_key=TOKEN)
    assert options.embedder in [model.id for model in client.models.list()]
    found = client.embeddings.create(model=options.embedder, input=TEXTS)
    floats = client.embeddings.create(model=options.embedder, input=TEXTS, encoding_format="float")
    assert [one.embedding for one in found.data] == [one.embedding for one in floats.data]
    short = client.embeddings.create(model=options.embedder, input=TEXTS[0], dimensions=16)
    assert len(short.data[0].embedding) == 16 and found.usage.prompt_tokens > 0
    try:
        client.embeddings.create(model="another", input=TEXTS)
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    return [one.embedding for one in found.data]


def of_langchain(options):
    import openai
    from langchain_openai import OpenAIEmbeddings

    where = dict(base_url=f"{options.url}/v1", api_key=TOKEN, model=options.embedder)
    embeddings = OpenAIEmbeddings(**where, check_embedding_ctx_length=False)
    assert np.allclose(embeddings.embed_query(TEXTS[0]), embeddings.embed_documents(TEXTS)[0], atol=1e-5)
    if options.online:  # the tokenizer that it uses otherwise is read from the network
        try:
            OpenAIEmbeddings(**where).embed_documents(TEXTS)
        except openai.BadRequestError as error:
            assert "check_embedding_ctx_length=False" in str(error)
    return embeddings.embed_documents(TEXTS)


def of_llama_index(options):
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    embedding = OpenAILikeEmbedding(model_name=options.embedder, api_base=f"{options.url}/v1", api_key=TOKEN)
    assert np.allclose(embedding.get_query_embedding(TEXTS[0]), embedding.get_text_embedding(TEXTS[0]), atol=1e-5)
    return embedding.get_text_embedding_batch(TEXTS)


def of_huggingface_hub(options):
    from huggingface_hub import InferenceClient

    client = InferenceClient(base_url=options.url, token=TOKEN)
    found = client.feature_extraction(TEXTS, model=f"{options.url}/embed")
    if options.classifier:
        labels = client.text_classification(TEXTS[0], model=f"{options.url}/predict")
        assert abs(sum(label.score for label in labels) - 1) < 1e-3
        assert client.text_classification(TEXTS[0], model=f"{options.url}/predict", top_k=1) == labels[:1]
    return found


def of_cohere(options):
    import cohere

    for client in cohere.ClientV2(TOKEN, base_url=options.url), cohere.Client(TOKEN, base_url=options.url):
        found = client.rerank(model=options.reranker, query=QUERY, documents=TEXTS, top_n=2)
        assert sorted(one.index for one in found.results) == [0, 1]
        assert found.results[0].relevance_score >= found.results[1].relevance_score


EMBEDDERS = (of_curl, of_openai, of_langchain, of_llama_index, of_huggingface_hub)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--embedder", required=True)
    parser.add_argument("--reranker")
    parser.add_argument("--classifier")
    parser.add_argument("--online", action="store_true")
    options = parser.parse_args()
    expected = of_curl(options)
    for client in EMBEDDERS:
        assert np.allclose(client(options), expected, atol=1e-5), client
        print(f"{client.__name__[3:]}: the same vectors")
    if options.reranker:
        of_cohere(options)
        print("cohere: ranks")


if __name__ == "__main__":
    main()
