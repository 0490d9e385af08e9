"""The page of a `Demo` in Gradio: one tab for each kind of answer, and the same answers as JSON for programs."""

import functools
import html
import json
from collections.abc import Callable

import gradio as gr
from starlette.middleware import Middleware

from ..show.bars import STYLE, Bars, bars_as_html
from .demo import MASK, Demo, checked_settings
from .request_limits import RequestLimits

MOST_WAITING = 64  # requests

# Gradio's variables of color for the pictures, which follow its light and dark themes.
COLORS = """
.gradio-container { --text: var(--body-text-color); --page: var(--background-fill-primary);
  --line: var(--border-color-primary); --muted: var(--body-text-color-subdued); --blue: #2f7fc0;
  --mono: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.picture { color: var(--text); overflow-wrap: anywhere; } .picture section { margin: .8rem 0; }
.picture h2 { font-size: 1.05rem; margin: 0; } .picture table { border-collapse: collapse; }
.picture .bars, .picture .bars tr, .picture .bars td { border: 0; }
.grid { overflow-x: auto; } .grid td, .grid th { border: 1px solid var(--line); padding: .2rem .5rem; }
.grid th { text-align: left; font-weight: 500; min-width: 6rem; }
iframe.attention { width: 100%; height: 44rem; border: 1px solid var(--line); border-radius: .4rem; background: #fff; }
"""
# Sentences that fields hold when the page opens.
EXAMPLES = {
    "text": "The house stood on a hill, and the garden ran down to the river.",
    "fill-mask": f"She took off {MASK} hat and sat down.",
    "question": "Where did the house stand?",
    "context": "He opened the door and",
    "choices": "walked in.\nthe river.",
    "texts": "The cat sat on the mat.\nA cat was sitting on a rug.\nThe train was late again.",
    "prompt": "Once upon a time",
}


def build_page(demo: Demo, title: str = "kerasbert") -> gr.Blocks:
    """The page, with the tabs that its models have answers for.

    Args:
        demo: the models.
        title: heading, and name of the window.
    """
    with gr.Blocks(title=title, analytics_enabled=False) as page:
        gr.Markdown(f"# {title}")
        with gr.Tabs():
            for tab in demo.models:
                with gr.Tab(tab, id=tab):
                    _TABS[tab](demo, tab)
        _add_api(demo)
    return page.queue(max_size=MOST_WAITING)


def launch(page: gr.Blocks, host: str, port: int, wait: bool = True, hosts: tuple[str, ...] = ()) -> str:
    """Starts the server of a page.

    Args:
        page: from `build_page`.
        host: address to listen on; that of the loopback can only be reached from this machine.
        port: 0 for any that is free.
        wait: until the program is interrupted.
        hosts: further names of this machine; see `RequestLimits`.

    Returns: the address of the page.
    """
    # Fonts of the system: those of Gradio's themes are downloaded by the browser.
    fonts, mono = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]
    _, address, _ = page.launch(
        server_name=host,
        server_port=port or None,
        share=False,
        quiet=True,
        show_error=True,
        ssr_mode=False,
        prevent_thread_lock=not wait,
        theme=gr.themes.Default(font=fonts, font_mono=mono),
        css=COLORS + STYLE,
        footer_links=["api"],
        app_kwargs={"middleware": [Middleware(RequestLimits, hosts=hosts)]},
    )
    return address


# === Tabs ===


def _choice_of_model(demo: Demo, tab: str):
    names = list(demo.models[tab])
    return gr.Dropdown(names, value=names[0], label="Model", interactive=len(names) > 1)


def _field(label: str, example: str, lines: int = 3):
    return gr.Textbox(label=label, value=EXAMPLES.get(example, ""), lines=lines)


def _answered(ask: Callable[..., str], inputs: list, verb: str) -> None:
    """A button with the text `verb` that shows what `ask` returns for the values of `inputs`, which is HTML."""
    button = gr.Button(verb, variant="primary")
    output = gr.HTML(elem_classes="picture")
    button.click(_with_errors(ask), inputs, output, api_visibility="private", show_progress="minimal")


def _with_errors(function: Callable) -> Callable:
    """The function with errors of the user that the page shows as messages, and others that only the log describes."""

    @functools.wraps(function)
    def run(*values):
        try:
            return function(*values)
        except ValueError as error:
            raise gr.Error(str(error), duration=None, print_exception=False) from error
        except Exception as error:
            message = "The server could not answer this request. Its log has the details."
            raise gr.Error(message, duration=None, print_exception=True) from error

    return run


def _notes(answer: dict) -> str:
    return "".join(f"<p><em>{html.escape(note)}</em></p>" for note in answer["notes"])


def _bars(title: str, names, values, text: str = "", **settings) -> str:
    return bars_as_html(Bars(title, text, list(names), list(values), **settings))


def _fill_mask(demo: Demo, tab: str) -> None:
    text = _field(f"Text with {MASK} in place of the words to fill in", tab)
    with gr.Row():
        top = gr.Slider(1, 20, value=5, step=1, label="Tokens per mask")
        model = _choice_of_model(demo, tab)

    def ask(text, top, model):
        found = demo.fill_mask(text, top, True, model)
        shown = [
            _bars(
                f"Mask {number} of {len(found['masks'])}",
                [one["token"] for one in tokens],
                [one["score"] for one in tokens],
                notes=[one["text"] for one in tokens],
            )
            for number, tokens in enumerate(found["masks"], 1)
        ]
        if found["score"] is not None:
            score = f"pseudo-log-likelihood {found['score']:.1f} nats, pseudo-perplexity {found['perplexity']:.1f}"
            shown.append(f"<p>“{html.escape(found['text'])}”: {score}</p>")
        return "".join(shown) + _notes(found)

    _answered(ask, [text, top, model], "Fill in")


def _replaced(demo: Demo, tab: str) -> None:
    text = _field("Text", "text")
    model = _choice_of_model(demo, tab)

    def ask(text, model):
        found = demo.replaced(text, model)
        tokens = found["tokens"]
        names, scores = [one["token"] for one in tokens], [one["score"] for one in tokens]
        return _bars("Probability that a token was replaced", names, scores) + _notes(found)

    _answered(ask, [text, model], "Detect")


def _classify(demo: Demo, tab: str) -> None:
    text = _field("Text", "text")
    second = _field("Second text, for a model of pairs", "", lines=2)
    model = _choice_of_model(demo, tab)

    def ask(text, second, model):
        found = demo.classify(text, second, model)
        if "scores" not in found:
            return f"<p>Score: {found['score']:.3f}</p>" + _notes(found)
        scores = sorted(found["scores"].items(), key=lambda item: -item[1])
        return _bars("Probability of each label", *zip(*scores, strict=True)) + _notes(found)

    _answered(ask, [text, second, model], "Classify")


def _tag(demo: Demo, tab: str) -> None:
    text = _field("Text", "text")
    model = _choice_of_model(demo, tab)
    button = gr.Button("Tag", variant="primary")
    output = gr.HighlightedText(label="Tags", show_legend=True)

    def ask(text, model):
        found = demo.tag(text, model)
        parts, end = [], 0
        for span in found["spans"]:
            parts += [(text[end : span["start"]], None), (text[span["start"] : span["stop"]], span["type"])]
            end = span["stop"]
        return [part for part in [*parts, (text[end:], None)] if part[0]]

    button.click(_with_errors(ask), [text, model], output, api_visibility="private")


def _answer(demo: Demo, tab: str) -> None:
    question = _field("Question", "question", lines=1)
    context = _field("Context", "text", lines=6)
    with gr.Row():
        top = gr.Slider(1, 10, value=3, step=1, label="Answers")
        model = _choice_of_model(demo, tab)

    def ask(question, context, top, model):
        found = demo.answer(question, context, top, model)
        answers = found["answers"]
        names = [one["text"] or "(no answer)" for one in answers]
        marked = (answers[0]["start"], answers[0]["stop"])
        bars = _bars("Answers", names, [one["score"] for one in answers], context, marked=marked)
        return bars + _notes(found)

    _answered(ask, [question, context, top, model], "Answer")


def _choose(demo: Demo, tab: str) -> None:
    context = _field("Context", "context")
    choices = _field("Choices, one per line", "choices")
    model = _choice_of_model(demo, tab)

    def ask(context, choices, model):
        found = demo.choose(context, choices.splitlines(), model)
        names, scores = [one["text"] for one in found["choices"]], [one["score"] for one in found["choices"]]
        return _bars("Probability of each choice", names, scores) + _notes(found)

    _answered(ask, [context, choices, model], "Choose")


def _compare(demo: Demo, tab: str) -> None:
    texts = _field("Texts, one per line", "texts", lines=5)
    model = _choice_of_model(demo, tab)

    def ask(texts, model):
        found = demo.compare(texts.splitlines(), model)
        head = "".join(f"<th>{number}</th>" for number in range(1, len(found["texts"]) + 1))
        rows = [
            f"<tr><th>{number}. {html.escape(text)}</th>"
            + "".join(f"<td>{value:.2f}</td>" for value in values)
            + "</tr>"
            for number, (text, values) in enumerate(zip(found["texts"], found["similarities"], strict=True), 1)
        ]
        table = f'<div class="grid"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'
        return f"<section><h2>Cosine similarity of the texts</h2>{table}</section>" + _notes(found)

    _answered(ask, [texts, model], "Compare")


def _generate(demo: Demo, tab: str) -> None:
    prompt = _field("Prompt", "prompt")
    with gr.Row():
        length = gr.Slider(1, 200, value=40, step=1, label="New tokens")
        sample = gr.Checkbox(value=True, label="Sample (otherwise the most likely token at each step)")
        temperature = gr.Slider(0.1, 2, value=0.8, step=0.1, label="Temperature")
        model = _choice_of_model(demo, tab)

    def ask(prompt, length, sample, temperature, model):
        settings = dict(sample=True, temperature=temperature) if sample else {}
        found = demo.generate(prompt, model, max_new_tokens=int(length), **settings)
        texts = [
            f"<section><p>{html.escape(one['text'])}</p><p>log probability {one['score']:.1f} nats</p></section>"
            for one in found["texts"]
        ]
        return "".join(texts) + _notes(found)

    _answered(ask, [prompt, length, sample, temperature, model], "Generate")


def _attention(demo: Demo, tab: str) -> None:
    text = _field("Text", "text")
    second = _field("Second text; for an encoder-decoder, the text that the decoder reads", "", lines=2)
    model = _choice_of_model(demo, tab)

    def ask(text, second, model):
        found = demo.attention(text, second, model)
        # Within a frame of its own, as a script that is inserted into a page does not run.
        frame = f'<iframe class="attention" title="Attention" srcdoc="{html.escape(found["page"])}"></iframe>'
        return frame + _notes(found)

    _answered(ask, [text, second, model], "Show attention")


_TABS = {
    "fill-mask": _fill_mask,
    "replaced": _replaced,
    "classify": _classify,
    "tag": _tag,
    "answer": _answer,
    "choose": _choose,
    "compare": _compare,
    "generate": _generate,
    "attention": _attention,
}


# === API ===


def _add_api(demo: Demo) -> None:
    """An endpoint for each tab, with the name of the method of `Demo` and its arguments; it returns JSON."""

    def fill_mask(text: str, top: int = 5, score: bool = True, model: str = "") -> dict:
        return demo.fill_mask(text, top, score, model)

    def replaced(text: str, model: str = "") -> dict:
        return demo.replaced(text, model)

    def classify(text: str, second: str = "", model: str = "") -> dict:
        return demo.classify(text, second, model)

    def tag(text: str, model: str = "") -> dict:
        return demo.tag(text, model)

    def answer(question: str, context: str, top: int = 3, model: str = "") -> dict:
        return demo.answer(question, context, top, model)

    def choose(context: str, choices: list[str], model: str = "") -> dict:
        return demo.choose(context, choices, model)

    def compare(texts: list[str], model: str = "") -> dict:
        return demo.compare(texts, model)

    def generate(prompt: str, max_new_tokens: int = 40, settings: dict | None = None, model: str = "") -> dict:
        return demo.generate(prompt, model, **{"max_new_tokens": max_new_tokens, **checked_settings(settings)})

    def attention(text: str, second: str = "", model: str = "") -> dict:
        return demo.attention(text, second, model)

    endpoints = (fill_mask, replaced, classify, tag, answer, choose, compare, generate, attention)
    by_tab = dict(zip(_TABS, endpoints, strict=True))
    for tab in demo.models:
        gr.api(_as_json(_with_errors(by_tab[tab])), api_name=by_tab[tab].__name__)


def _as_json(function: Callable) -> Callable:
    """The function with results of plain Python: numbers of numpy are not JSON."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        return json.loads(json.dumps(function(*args, **kwargs), default=lambda value: value.item()))

    return run
