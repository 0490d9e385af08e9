"""The demo: answers of every tab equal those of the model, and reach programs over the loopback."""

import keras
import numpy as np
import pytest
from gradio_client import Client

from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, Bert, BertConfig, Electra, ElectraConfig, GPT2Config
from kerasbert.objectives import CausalLM, Discriminator, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier
from pipelines.demo import Demo
from pipelines.demo_page import EXAMPLES, build_page, launch
from pipelines.serve import serve

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
