"""A peer: ONNX Runtime behind a queue, in 60 lines; requests that wait are computed together.

python benchmarks/serving/onnx_server.py EXPORT PORT
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer

folder = Path(sys.argv[1])
session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_truncation(json.loads((folder / "kerasbert.json").read_text())["export"]["max_length"])
tokenizer.enable_padding()
queue: asyncio.Queue = asyncio.Queue()


def compute(texts):
    parts = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    encodings = tokenizer.encode_batch(texts)
    inputs = {name: np.array([getattr(e, part) for e in encodings], "int64") for name, part in parts.items()}
    return session.run(None, {entry.name: inputs[entry.name] for entry in session.get_inputs()})[0]


async def work():
    while True:
        items = [await queue.get()]
        await asyncio.sleep(0.002)
        while len(items) < 32 and not queue.empty():
            items.append(queue.get_nowait())
        vectors = await asyncio.to_thread(compute, [text for text, _ in items])
        for (_, future), vector in zip(items, vectors, strict=True):
            future.set_result(vector)


async def embed(request):
    body = await request.json()
    texts = [body["inputs"]] if isinstance(body["inputs"], str) else body["inputs"]
    futures = [asyncio.get_running_loop().create_future() for _ in texts]
    for item in zip(texts, futures, strict=True):
        queue.put_nowait(item)
    return JSONResponse([vector.tolist() for vector in await asyncio.gather(*futures)])


async def health(request):
    return Response()


@contextlib.asynccontextmanager
async def lifespan(app):
    worker = asyncio.create_task(work())
    yield
    worker.cancel()


routes = [Route("/embed", embed, methods=["POST"]), Route("/health", health)]
uvicorn.run(Starlette(routes=routes, lifespan=lifespan), port=int(sys.argv[2]), access_log=False)
