"""Serves a page that answers with models: masks, labels, tags, answers, similarities, text, attention.

python -m pipelines.serve saved_models/bert_mini_en
python -m pipelines.serve saved_models/mine saved_models/names --port 8000

The page also has endpoints for programs, which the link "Use via API" at its foot lists:

    from gradio_client import Client
    Client("http://127.0.0.1:7860").predict("The [MASK] sat on the mat.", api_name="/fill_mask")
"""

from ..command_line.command import Command
from .demo import Demo


def serve(
    models: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    port: int = 7860,
    title: str = "kerasbert",
    hosts: tuple[str, ...] = (),
) -> None:
    """Serves a page that answers with models: masks, labels, tags, answers, similarities, text, attention.

    Models may also be given first, without --models. The page has a tab for everything that a model can do. Ctrl-C
    ends the server.

    Args:
        models: folders of models with tokenizers, names of shipped models, or hf://org/name.
        host: address to listen on. The default can only be reached from this machine. With 0.0.0.0, everybody who can
            reach this machine can use the models: there is no password.
        port: port to listen on; 0 takes any free one.
        title: heading of the page.
        hosts: names under which the page is reached, such as example.org, besides localhost, the name of this machine
            and IP addresses. Requests for other names are refused, as those of web sites that pretend to be this
            machine.
    """
    from .page import build_page, launch  # imports Gradio, which takes seconds

    if not 0 <= port <= 65535:
        raise ValueError(f"A port is a number from 0 to 65535. Received: {port}.")
    demo = Demo.load(models)
    page = build_page(demo, title)
    address = launch(page, host, port, wait=False, hosts=hosts)
    print(f"{', '.join(models)}: {address} (Ctrl-C ends the server)", flush=True)
    page.block_thread()


main = Command(serve, first=("models",))
