"""The demo: answers of every tab equal those of the model, and reach programs over the loopback."""

import contextlib

import httpx
import keras
import numpy as np
import pytest
from gradio_client import Client

from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, Bert, BertConfig, Electra, ElectraConfig, GPT2Config
from kerasbert.objectives import CausalLM, Discriminator, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier
from pipelines.serve.command import serve
from pipelines.serve.demo import Demo
from pipelines.serve.page import EXAMPLES, build_page, launch

pytestmark = pytest.mark.one_backend

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=16, max_length=24)
TEXT = "the cat sat in the big house"


@pytest.fixture(scope="module")
def models(tokenizer_folder):
    """A model for each tab."""
    keras.utils.set_random_seed(0)
    tokenizer = Tokenizer.load(tokenizer_folder)
    size = tokenizer.vocabulary_size
    bert = Bert(BertConfig(vocabulary_size=size, feed_forward_dim=24, **SIZES))
    electra = Electra(ElectraConfig(vocabulary_size=size, embedding_dim=16, feed_forward_dim=24, **SIZES))
    writer = GPT2(GPT2Config(vocabulary_size=size, **{**SIZES, "max_length": 64}))
    made = {
        "filler": MaskedLM(bert, tokenizer=tokenizer),
        "detector": Discriminator(electra, tokenizer=tokenizer),
        "classifier": TextClassifier(bert, labels=["bad", "good"], tokenizer=tokenizer),
        "tagger": TokenClassifier(bert, labels=["O", "B-PER", "I-PER"], tokenizer=tokenizer),
        "reader": QuestionAnswerer(bert, tokenizer=tokenizer),
        "chooser": MultipleChoice(bert, tokenizer=tokenizer),
        "embedder": TextEmbedder(bert, tokenizer=tokenizer),
        "writer": CausalLM(writer, tokenizer=tokenizer),
    }
    return made


@pytest.fixture(scope="module")
def demo(models):
    return Demo(models)


def test_models_have_their_tabs(demo):
    expected = ["fill-mask", "replaced", "classify", "tag", "answer", "choose", "compare", "generate", "attention"]
    assert list(demo.models) == expected
    assert {tab: list(demo.models[tab]) for tab in ("fill-mask", "tag")} == {"fill-mask": ["filler"], "tag": ["tagger"]}


def test_masks(demo, models):
    found = demo.fill_mask("the [MASK] sat in the [MASK]", top=2)
    (first, second) = models["filler"].fill_mask("the [MASK] sat in the [MASK]", top_k=2)
    assert [one["token"] for one in found["masks"][0]] == [one["token"] for one in first]
    assert [one["score"] for one in found["masks"][1]] == pytest.approx([one["score"] for one in second])
    best = f"the {first[0]['token']} sat in the {second[0]['token']}".replace(" ##", "")
    assert found["text"] == found["masks"][0][0]["text"] == best
    assert found["score"] == pytest.approx(models["filler"].score(best)["score"]) and not found["notes"]
    assert demo.fill_mask("the [MASK] sat", score=False)["perplexity"] is None


def test_answers_of_tasks(demo, models):
    pair, choices = ("who sat", TEXT), ["red tree", "dog"]
    assert demo.replaced(TEXT)["tokens"] == models["detector"].score_tokens(TEXT)
    assert demo.classify(TEXT) == {**models["classifier"].classify(TEXT), "notes": []}
    assert demo.classify(TEXT, "dog") == {**models["classifier"].classify((TEXT, "dog")), "notes": []}
    assert demo.tag(TEXT)["spans"] == models["tagger"].tag(TEXT)["entities"]
    assert demo.answer(*pair, top=3)["answers"] == models["reader"].answer(pair, n_best=3)
    assert demo.answer(*pair, top=1)["answers"] == [models["reader"].answer(pair)]
    assert [c["score"] for c in demo.choose(TEXT, choices)["choices"]] == models["chooser"].choose((TEXT, choices))[
        "scores"
    ]
    vectors = np.asarray(models["embedder"].embed([TEXT, "dog"]))
    cosine = vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors, axis=1))
    assert demo.compare([TEXT, " ", "dog"])["similarities"][0][1] == pytest.approx(cosine, abs=1e-6)
    text = models["writer"].generate("the cat", max_new_tokens=3)
    assert demo.generate("the cat", max_new_tokens=3)["texts"][0]["text"] == text
    assert "<svg" in demo.attention("the cat sat", model="writer")["page"]


def test_what_is_not_read_is_said(demo, models):
    text = "the big " * 15
    offsets = models["classifier"].tokenizer.encode_with_offsets([text], plain_text=False)[0][1]
    rest = text[offsets[22][0] :]
    rest = rest if len(rest) <= 60 else rest[:59] + "…"
    (note,) = demo.classify(text)["notes"]
    assert note == f"The text has {len(offsets)} tokens; the model reads 22. It did not read: {rest!r}"
    (note,) = demo.classify(text, text)["notes"]
    count = f"{2 * len(offsets)} tokens together"
    assert note == f"The texts have {count}; the model reads 21 and drops ends of the longer one."


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda demo: demo.classify(" "), "must not be empty"),
        (lambda demo: demo.classify("a\x00b"), "NUL"),
        (lambda demo: demo.choose(TEXT, ["one", " "]), "two or more choices.*Received: 1"),
        (lambda demo: demo.compare([TEXT]), "two or more texts.*Received: 1"),
        (lambda demo: demo.classify(TEXT, model="tagger"), "models of 'classify' are classifier. Received: 'tagger'"),
        (lambda demo: demo.model("translate"), "tabs of this page are fill-mask, .*Received: 'translate'"),
        (lambda demo: Demo.load(()), "Received: none"),
        (lambda demo: demo.classify(3), r"`text` in the request must be str. Received: 3 \(int\)"),
        (lambda demo: demo.classify(None), r"`text` in the request must be str. Received: None"),
        (lambda demo: demo.classify(TEXT, ["a"]), "`second` in the request must be str"),
        (lambda demo: demo.classify("a" * 10_001), "at most 10,000 characters. Received: 10,001"),
        (lambda demo: demo.answer("who", "a " * 6_000), "at most 10,000 characters. Received: 12,000"),
        (lambda demo: demo.answer("who", TEXT, top=10**9), "number of answers must be from 1 to 100"),
        (lambda demo: demo.answer("who", TEXT, top="3"), r"`top` in the request must be float. Received: '3'"),
        (lambda demo: demo.fill_mask("[MASK] " * 17), "at most 16 masks. Received: 17"),
        (lambda demo: demo.fill_mask("the [MASK]", top=0), "number of answers must be from 1 to 100. Received: 0"),
        (lambda demo: demo.fill_mask("the [MASK]", score=1), "`score` in the request must be bool"),
        (lambda demo: demo.choose(TEXT, ["a"] * 33), "at most 32 choices. Received: 33"),
        (lambda demo: demo.choose(TEXT, "ab"), r"`choices` in the request must be list\[str\]"),
        (lambda demo: demo.compare([TEXT, 3]), r"`texts` in the request must be list\[str\]"),
        (lambda demo: demo.compare([TEXT, "a" * 20_000]), "at most 10,000 characters"),
        (
            lambda demo: demo.generate("the", num_sequences=20_000),
            "`num_sequences` must be from 0 to 8. Received: 20000",
        ),
        (lambda demo: demo.generate("the", max_new_tokens=10**9), "`max_new_tokens` must be from 0 to 512"),
        (lambda demo: demo.generate("the", temperature="hot"), "`temperature` in the request must be float"),
        (lambda demo: demo.generate("the", batch_size=3), "`settings` may contain max_new_tokens, .*'batch_size'"),
        (lambda demo: demo.generate("the", model=["writer"]), "`model` in the request must be str"),
    ],
)
def test_mistakes(demo, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(demo)


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    Bert(BertConfig(vocabulary_size=11, feed_forward_dim=8, **SIZES)).save_to_preset(tmp_path / "bert")
    with pytest.raises(ValueError, match="has no tokenizer files"):
        Demo.load((str(tmp_path / "bert"),))
    with pytest.raises(ValueError, match="from 0 to 65535. Received: 70000"):
        serve((str(tmp_path / "bert"),), port=70000)


def test_programs_get_the_same_answers(demo):
    page = build_page(demo, "A title")
    try:
        client = Client(launch(page, "127.0.0.1", 0, wait=False), verbose=False)
        endpoints = {
            "/fill_mask": (("the [MASK] sat", 2, True, ""), demo.fill_mask("the [MASK] sat", 2)),
            "/tag": ((TEXT, ""), demo.tag(TEXT)),
            "/compare": (([TEXT, "dog"], "embedder"), demo.compare([TEXT, "dog"])),
            "/generate": (
                ("the cat", 3, {"num_beams": 2}, ""),
                demo.generate("the cat", max_new_tokens=3, num_beams=2),
            ),
        }
        for name, (arguments, expected) in endpoints.items():
            assert client.predict(*arguments, api_name=name) == expected, name
        names = {"fill_mask", "replaced", "classify", "tag", "answer", "choose", "compare", "generate", "attention"}
        assert {name.strip("/") for name in client.view_api(return_format="dict")["named_endpoints"]} == names
        with pytest.raises(Exception, match="The text must not be empty"):
            client.predict(" ", "", api_name="/tag")
    finally:
        page.close()


@pytest.fixture(scope="module")
def address(demo):
    page = build_page(demo)
    yield launch(page, "127.0.0.1", 0, wait=False, hosts=("models.example.org",))
    page.close()


def answer_of(address, name, body, **headers):
    """(status, text of the answer) of a call through the interface for programs."""
    url = f"{address}gradio_api/call/{name}"
    started = httpx.post(url, json=body, headers=headers)
    if started.status_code != 200:
        return started.status_code, started.text
    return 200, httpx.get(f"{url}/{started.json()['event_id']}").text


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("classify", [3, "", ""], "`text` in the request must be str. Received: 3 (int)."),
        ("compare", [{"a": 1}, ""], "`texts` in the request must be list[str]"),
        (
            "generate",
            ["the", 4, {"num_sequences": 20_000}, ""],
            "`num_sequences` must be from 0 to 8. Received: 20000.",
        ),
        ("generate", ["the", 4, {"prompt": "a"}, ""], "`settings` may contain"),
        ("generate", ["the", 4, [1], ""], "`settings` in the request must be dict or null"),
        ("tag", [["x"] * 4, ""], "`text` in the request must be str"),
    ],
)
def test_wrong_types_of_programs(address, name, data, message):
    status, text = answer_of(address, name, {"data": data})
    assert status == 200 and text.startswith("event: error") and message in text, text


def test_errors_of_the_server_are_not_shown(demo, address, monkeypatch):
    monkeypatch.setattr(demo, "classify", lambda *values: {}["/secret/path"])
    _, text = answer_of(address, "classify", {"data": ["the cat", "", ""]})
    assert "The server could not answer this request. Its log has the details." in text and "secret" not in text


def test_requests_that_the_page_does_not_need(address):
    """No uploads, no large bodies, no requests of other sites, no other names of this machine."""
    good = {"data": ["the cat", "", ""]}
    assert answer_of(address, "classify", good)[1].startswith("event: complete")
    assert answer_of(address, "classify", good, host="MODELS.example.org:7860")[0] == 200
    port = address.rstrip("/").rpartition(":")[2]
    for name in ("localhost", "192.168.1.7", "[::1]"):
        assert httpx.get(f"{address}config", headers={"host": f"{name}:{port}"}).status_code == 200, name
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"host": f"127.0.0.1.evil.example:{port}"}, 421),
        ({"host": "[::1"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain", "origin": f"http://127.0.0.1:{int(port) + 1}"}, 403),
    ):
        assert answer_of(address, "classify", good, **headers)[0] == status, headers
    assert httpx.get(address, headers={"host": "evil.example"}).status_code == 421
    for path in ("upload", "upload?upload_id=1", "process_recording", "stream/1", "component_server", "vibe-edit"):
        files = {"files": ("a.txt", b"text")}
        assert httpx.post(f"{address}gradio_api/{path}", files=files).status_code == 404, path
    assert httpx.get(f"{address}gradio_api/proxy=https://example.org").status_code == 404
    status, text = answer_of(address, "classify", {"data": ["a" * 1_100_000]})
    assert (status, text) == (413, "A request must have at most 1,000,000 bytes.")

    def parts():  # a body without a stated length
        for _ in range(40):
            yield b"a" * 100_000

    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.post(f"{address}gradio_api/call/classify", content=parts())
        assert answer.status_code >= 400


def test_every_tab_shows_its_answer(demo, monkeypatch):
    """Runs the functions behind the buttons, with the examples of their fields."""
    monkeypatch.setitem(EXAMPLES, "text", "the cat sat")
    page = build_page(demo)
    shown = {}
    for block in page.fns.values():
        if block.api_visibility == "private":
            shown[block.fn.__qualname__.split(".")[0]] = block.fn(*(one.value for one in block.inputs))
    assert shown.pop("_tag")
    assert len(shown) == 8
    for name, html in shown.items():
        assert html.startswith(("<section>", "<iframe")) and html.count("<section>") == html.count("</section>"), name
    assert "Mask 1 of 1" in shown["_fill_mask"] and "srcdoc=" in shown["_attention"]
