"""A peer: an endpoint in front of sentence-transformers, as people write it.

python benchmarks/serving/sentence_transformers_server.py MODEL PORT
"""

import sys

import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

model = SentenceTransformer(sys.argv[1], device="cpu")


async def embed(request):
    body = await request.json()
    texts = [body["inputs"]] if isinstance(body["inputs"], str) else body["inputs"]
    vectors = await run_in_threadpool(model.encode, texts)
    return JSONResponse(vectors.tolist())


async def health(request):
    return Response()


app = Starlette(routes=[Route("/embed", embed, methods=["POST"]), Route("/health", health)])
uvicorn.run(app, port=int(sys.argv[2]), access_log=False)
