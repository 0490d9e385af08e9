"""Serves models: a page for people, or with --api an HTTP API for programs.

python -m pipelines.serve saved_models/bert_mini_en
python -m pipelines.serve saved_models/mine saved_models/names --port 8000
python -m pipelines.serve embed=saved_models/mine saved_models/reranker --api --port 8000

The page also has endpoints for programs, which the link "Use via API" at its foot lists:

    from gradio_client import Client
    Client("http://127.0.0.1:7860").predict("The [MASK] sat on the mat.", api_name="/fill_mask")
"""

from ..command_line.command import Command
from .api.limits import Limits
from .api.options import Server
from .ports import listen


def serve(
    models: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    port: int = 7860,
    title: str = "kerasbert",
    hosts: tuple[str, ...] = (),
    api: bool = False,
    server: Server = Server(),
    limits: Limits = Limits(),
) -> None:
    """Serves a page that answers with models, or with --api, an HTTP API for programs.

    The page has a tab for everything that a model can do. The API has the endpoints of OpenAI (/v1/embeddings), Cohere
    (/v1/rerank) and text-embeddings-inference, and computes requests together with ONNX Runtime; a model is exported
    when it is served for the first time. Ctrl-C ends the server.

    Args:
        models: folders of models with tokenizers, names of shipped models, or hf://org/name; with --api also exports,
            and NAME=FOLDER.
        host: address to listen on. The default can only be reached from this machine. With 0.0.0.0, everybody who can
            reach this machine can use the page: there is no password. The API then requires a token.
        port: port to listen on; 0 takes any free one.
        title: heading of the page.
        hosts: names under which the server is reached, such as example.org, besides localhost, the name of this machine
            and IP addresses. Requests for other names are refused, as those of web sites that pretend to be this
            machine.
        api: serve the API instead of the page.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"A port is a number from 0 to 65535. Received: {port}.")
    if api:
        from .api.server import serve as serve_api

        serve_api(models, host, port, hosts, limits, server)
        return
    given = server.given + limits.given
    if given:
        raise ValueError(f"{', '.join(given)} belong to the API. Received: them without --api.")
    serve_page(models, host, port, title, hosts)


def serve_page(models: tuple[str, ...], host: str, port: int, title: str, hosts: tuple[str, ...]) -> None:
    """Serves the page; see `serve`."""
    from kerasbert.backend import keep_programs

    from .demo import Demo
    from .page import build_page, launch  # imports Gradio, which takes seconds

    listen(host, port).close()  # an error now, rather than after the models are loaded
    keep_programs()
    demo = Demo.load(models)
    page = build_page(demo, title)
    address = launch(page, host, port, wait=False, hosts=hosts)
    print(f"{', '.join(models)}: {address} (Ctrl-C ends the server)", flush=True)
    page.block_thread()


main = Command(serve, groups={"models": ("models",), "page": ("title",)}, first=("models",))
