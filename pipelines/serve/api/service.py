"""Answers requests with the models of a server: chooses the model, encodes, waits for the batch, and reads outputs."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kerasbert.command_line import did_you_mean
from kerasbert.data.text.json_files import shortened
from kerasbert.runtime import ExportedModel, TooLong

from .batching import Batcher, Overloaded
from .errors import RequestError
from .limits import Limits
from .log import NOTES
from .metrics import Metrics

TOKENIZERS = 2  # threads, and one more for large requests, so that the others need not wait for these
LARGE_BYTES, LARGE_INPUTS = 32_768, 64


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Has a request refused for which the queue has no place."""
    try:
        yield
    except Overloaded as error:
        raise RequestError(429, str(error), "overloaded", headers={"Retry-After": str(error.seconds)}) from None


@dataclass(frozen=True)
class Answered:
    """The answers to a request.

    Args:
        model: name of the model.
        answers: the answers; see the class of the model in `kerasbert.runtime.models`.
        tokens: number of tokens that were read.
    """

    model: str
    answers: Any
    tokens: int


class Service:
    """The models of a server.

    Args:
        models: {name: model}.
        limits: what a request may ask for.
        metrics: where batches are counted.
    """

    def __init__(self, models: Mapping[str, ExportedModel], limits: Limits, metrics: Metrics):
        self.models, self.limits, self.metrics = models, limits, metrics
        queue = limits.queue_tokens, limits.queue_seconds
        self.batcher = Batcher(limits.batch_tokens, *queue, metrics.observe_batch, limits.parallel or 1)
        metrics.watch_queue(lambda: self.batcher.waiting)
        self.tokenizers = ThreadPoolExecutor(TOKENIZERS, thread_name_prefix="tokenizer")
        self.large = ThreadPoolExecutor(1, thread_name_prefix="large")

    def model(self, kind: type[ExportedModel], name: str | None = None) -> tuple[str, ExportedModel]:
        """Returns (name, model) of the first model of a class, or of the one that a request names."""
        of_kind = [known for known, model in self.models.items() if type(model) is kind]
        if name is not None:
            self.named(name)
        if (name is None and not of_kind) or (name is not None and name not in of_kind):
            received = f"the model {name}" if of_kind else f"the models {', '.join(self.models)}"
            raise RequestError(
                424 if name is None else 400,
                f"This endpoint answers with a model that can `{kind.does}`: {', '.join(of_kind) or 'there is none'}. "
                f"Received: {received}.",
                "model_not_supported",
                "model",
            )
        chosen = of_kind[0] if name is None else name
        return chosen, self.models[chosen]

    def named(self, name: str) -> ExportedModel:
        """Returns the model of a name."""
        if name not in self.models:
            known = f"The models of this server are {', '.join(self.models)}."
            suggestion = did_you_mean(name[:100], self.models)
            raise RequestError(404, f"{known} Received: {shortened(name)}.{suggestion}", "model_not_found", "model")
        return self.models[name]

    async def answer(self, kind: type[ExportedModel], name: str | None, inputs: Sequence, **options: Any) -> Answered:
        """Answers the inputs of a request.

        Args:
            kind: class of the model.
            name: name of the model, or None for the first of the class.
            inputs: the inputs; see `ExportedModel.job`.
            **options: options of `ExportedModel.job`.

        Raises: RequestError if the request is refused.
        """
        name, model = self.model(kind, name)
        options["truncate"] = self.limits.truncate if options.get("truncate") is None else options["truncate"]
        NOTES.get().update(model=name, inputs=len(inputs))
        job = await self.in_thread(lambda: model.job(inputs, **options))
        NOTES.get()["tokens"] = job.tokens
        if job.tokens > self.limits.max_tokens:
            raise RequestError(
                413, f"A request may have at most {self.limits.max_tokens:,} tokens. Received: {job.tokens:,}."
            )
        with refusing():
            outputs = await asyncio.wrap_future(self.batcher.submit(model, job))
        self.metrics.observe_tokens(name, job.tokens)
        return Answered(name, await self.in_thread(lambda: job.read(outputs)), job.tokens)

    def check(self) -> None:
        """Raises a RequestError if the queue is full, before anything is done for a request."""
        with refusing():
            self.batcher.check()

    async def in_thread(self, function: Callable) -> Any:
        """Calls a function in a thread, and returns what it returns. Its errors are those of the request."""
        notes = NOTES.get()
        large = notes.get("bytes", 0) > LARGE_BYTES or notes.get("inputs", 0) > LARGE_INPUTS
        try:
            return await asyncio.get_running_loop().run_in_executor(self.large if large else self.tokenizers, function)
        except TooLong as error:
            raise RequestError(413, str(error), "context_length_exceeded", "input") from None
        except ValueError as error:
            raise RequestError(400, str(error), "invalid_value") from None

    def close(self) -> None:
        """Waits for the requests in the queue."""
        self.batcher.close()
        self.tokenizers.shutdown()
        self.large.shutdown()
