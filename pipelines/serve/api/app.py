"""The application: the routes of the server, and what leads from a request to its response."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kerasbert.runtime import ExportedModel

from . import cohere, openai, tei
from .bodies import parse, read_body
from .endpoint import Endpoint, encoded
from .errors import RequestError, error_response
from .gate import OPEN, Access, Gate
from .limits import Limits
from .log import NOTES
from .metrics import Metrics
from .openapi import document
from .service import Service

ENDPOINTS = (*openai.ENDPOINTS, *cohere.ENDPOINTS, *tei.ENDPOINTS)


def create_app(models: Mapping[str, ExportedModel], limits: Limits, access: Access) -> Starlette:
    """Creates the application that answers with models.

    Args:
        models: {name: model}.
        limits: what a request may ask for.
        access: who may use it.
    """
    metrics = Metrics()
    service = Service(models, limits, metrics)
    routes = [Route(each.path, answering(each, service), methods=["POST"]) for each in ENDPOINTS]
    routes += documents(service, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield
        await asyncio.get_running_loop().run_in_executor(None, service.close)

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _not_found})
    app.add_middleware(Gate, access, limits, metrics, [route.path for route in routes])
    return app


def answering(endpoint: Endpoint, service: Service) -> Any:
    """Returns the function of a route that answers the requests of an endpoint."""
    known = {**endpoint.fields, **endpoint.ignored}

    async def run(request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, f"A request must have the content type application/json. Received: {kind[:60]!r}.")
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            message = f"A request must not be compressed. Received: the content encoding {coding[:60]!r}."
            raise RequestError(415, message, headers={"Accept-Encoding": "identity"})
        body = await read_body(request, service.limits)
        service.check()
        NOTES.get()["bytes"] = len(body)

        async def work():
            fields = await service.in_thread(lambda: parse(body, known, endpoint.required))
            content = await endpoint.answer(service, fields)
            return await service.in_thread(lambda: encoded(content))

        return Response(await unless_left(request, work()), media_type="application/json")

    return run


async def unless_left(request: Request, work: Awaitable) -> Any:
    """Waits for work, which is canceled if the client leaves meanwhile."""
    answer, message = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({answer, message}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise ClientDisconnect
    finally:
        answer.cancel()
        message.cancel()


def documents(service: Service, metrics: Metrics) -> list[Route]:
    """The routes of what a server says about itself. The docstring of each function describes it to clients."""
    created = int(time.time())

    def described(name):
        return {"id": name, "object": "model", "created": created, "owned_by": "kerasbert"}

    async def models(request):
        """The models, as of OpenAI."""
        return JSONResponse({"object": "list", "data": list(map(described, service.models))})

    async def model(request):
        """A model, as of OpenAI."""
        name = request.path_params["name"]
        service.named(name)
        return JSONResponse(described(name))

    async def info(request):
        """The first model in the form of text-embeddings-inference, and all models."""
        return JSONResponse(tei.info(service))

    async def health(request):
        """Answers when the models are open."""
        return Response()

    async def openapi(request):
        """This document."""
        return JSONResponse(document(ENDPOINTS, summaries, OPEN))

    async def scraped(request):
        """The metrics, for Prometheus."""
        text, kind = metrics.text()
        return Response(text, headers={"Content-Type": kind})

    paths = {"/v1/models": models, "/v1/models/{name}": model, "/info": info, "/health": health}
    paths |= {"/openapi.json": openapi, "/metrics": scraped}
    summaries = {path: get.__doc__ or "" for path, get in paths.items()}
    return [Route(path, get, methods=["GET"]) for path, get in paths.items()]


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = "There is no such endpoint." if status == 404 else "This endpoint has another method."
    headers = getattr(error, "headers", None)  # `Allow`
    return error_response(
        request.url.path, RequestError(status, f"{message} /openapi.json lists them.", headers=headers)
    )
