"""Pictures of predictions, and the bars that they and the neighbors of words are drawn with."""

import io

import keras
import numpy as np
import pytest
from rich.console import Console

from kerasbert.models import GPT2, Bert, BertConfig, Electra, ElectraConfig, GPT2Config
from kerasbert.objectives import CausalLM, Discriminator, MaskedLM
from kerasbert.tasks import TextEmbedder
from pipelines.show.bars import Bars, bars_as_html, bars_figure, print_bars
from pipelines.show.predictions import predictions, predictions_page
from pipelines.show.words import word_tokenizer

TEXT = "the cat sat on the mat"
SIZE = dict(num_layers=1, num_heads=2, hidden_dim=8)


def model_of(objective, backbone, config, family, **fields):
    tokenizer = word_tokenizer([TEXT], family, further=())
    keras.utils.set_random_seed(1)
    return objective(backbone(config(vocabulary_size=tokenizer.vocabulary_size, **SIZE, **fields)), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def bert():
    return model_of(MaskedLM, Bert, BertConfig, "bert", feed_forward_dim=8)


def test_masks_have_their_likeliest_tokens(bert):
    text = "the [MASK] sat on the [MASK]"
    first, second = predictions(bert, (text,), top=3)
    for bars, expected in zip((first, second), bert.fill_mask(text, top_k=3), strict=True):
        assert bars.names == [one["token"] for one in expected]
        assert bars.values == pytest.approx([one["score"] for one in expected])
        assert bars.values == sorted(bars.values, reverse=True)
        assert text[slice(*bars.marked)] == "[MASK]"
    assert (first.title, second.title) == ("Mask 1 of 2", "Mask 2 of 2") and first.marked < second.marked


def test_a_language_model_has_next_tokens():
    model = model_of(CausalLM, GPT2, GPT2Config, "gpt2")
    (bars,) = predictions(model, ("the cat",), top=7)
    logits = model.predict({"token_ids": model.tokenizer.encode(["the cat"])[0][None]}, verbose=0)[0, -1]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert bars.values == pytest.approx(np.sort(expected)[::-1][:7].tolist(), rel=1e-4)
    assert bars.names[0] == model.tokenizer.token(int(expected.argmax()))
    with pytest.raises(ValueError, match="A text to continue must have at least one token"):
        predictions(model, ("",))


def test_a_discriminator_scores_every_token():
    model = model_of(Discriminator, Electra, ElectraConfig, "electra", feed_forward_dim=8, embedding_dim=8)
    (bars,) = predictions(model, (TEXT,))
    assert bars.names == [one["token"] for one in model.score_tokens(TEXT)]
    assert bars.title == "Was the token replaced?"


def test_errors(bert):
    with pytest.raises(ValueError, match="Received: 0 texts, top=5"):
        predictions(bert, ())
    with pytest.raises(ValueError, match=r"must have the mask token \[MASK\]"):
        predictions(bert, ("the cat",))
    with pytest.raises(ValueError, match="fills masks, a causal language model or a discriminator. Received: TextEmb"):
        predictions(TextEmbedder(bert.backbone, tokenizer=bert.tokenizer), (TEXT,))


BARS = Bars("A & B", "the <s> cat", ["cat", "a" * 40], [0.5, 0.125], ["one", "two"], (8, 11))


def printed(width):
    console = Console(file=io.StringIO(), width=width)
    print_bars([BARS], console)
    return console.file.getvalue().splitlines()


def test_bars_in_a_terminal():
    lines = printed(100)
    assert lines[:2] == ["A & B", "the <s> cat"]
    assert lines[2].split() == ["cat", "50.0%", "█" * 13, "one"]
    assert lines[3].split() == ["a" * 23 + "…", "12.5%", "█" * 3 + "▎", "two"]
    assert all(len(line) <= 60 for line in printed(60))


def test_bars_in_html():
    text = bars_as_html(BARS)
    assert "A &amp; B" in text and "the &lt;s&gt; <mark>cat</mark>" in text
    assert 'style="width:50.0%"' in text and 'style="width:12.5%"' in text
    assert "from 0% to 100%" in predictions_page("t", [BARS])


def test_bars_as_a_figure():
    axis, other = bars_figure([BARS, Bars("Cosines", "", ["$x"], [-0.2], unit="{:.2f}".format)], "probability").axes
    assert [bar.get_width() for bar in axis.patches] == [0.5, 0.125] and other.patches[0].get_width() == 0
    assert [text.get_text() for text in axis.texts] == ["50.0%", "12.5%"]
    assert axis.get_xlabel() == "probability" and axis.get_title(loc="left") == "A & B  the <s> cat"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["cat (one)", "a" * 40 + " (two)"]
    assert [label.get_text() for label in axis.get_xticklabels()][:2] == ["0%", "25%"]
    assert other.texts[0].get_text() == "-0.20" and other.get_yticklabels()[0].get_text() == r"\$x"
