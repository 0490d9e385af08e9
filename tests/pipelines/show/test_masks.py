"""Pictures of attention masks."""

import numpy as np
import pytest

from kerasbert.models import FAMILIES
from pipelines.show.masks import masks, masks_as_text, masks_figure, masks_page, two_streams


@pytest.fixture(scope="module")
def pictures():
    return {mask.name: mask for mask in masks()}


def test_masks_follow_from_their_definitions(pictures):
    distance = np.arange(10)[:, None] - np.arange(10)
    same = (np.arange(10) < 5)[:, None] == (np.arange(10) < 5)
    expected = {
        "BERT": np.broadcast_to(np.arange(10) < 8, (10, 10)),
        "GPT": distance >= 0,
        "Prefix language model": (distance >= 0) | (np.arange(10) < 5),
        "ModernBERT, local layers": abs(distance) <= 2,
        "ModernBERT, global layers": np.ones((10, 10), bool),
        "Packed rows": same,
        "Packed rows in a local layer": same & (abs(distance) <= 2),
    }
    for name, allowed in expected.items():
        np.testing.assert_array_equal(pictures[name].allowed, allowed, err_msg=name)
    assert pictures["BERT"].keys[-2:] == ("[PAD]", "[PAD]")


def test_the_two_streams_of_xlnet():
    """Figures 1 and 4 of the paper: order 3, 2, 4, 1."""
    content, query = two_streams((3, 2, 4, 1))
    expected = np.array([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 1, 1]], bool)
    np.testing.assert_array_equal(content.allowed, expected)
    np.testing.assert_array_equal(query.allowed, expected & ~np.eye(4, dtype=bool))
    assert "3 → 2 → 4 → 1" in content.about


def test_the_window_of_the_paper_is_that_of_the_config(pictures):
    config = FAMILIES["modernbert"].family.config()
    assert f"({config.local_attention // 2} in ModernBERT's paper)" in pictures["ModernBERT, local layers"].about


def test_text(pictures):
    lines = masks_as_text([pictures["GPT"]]).splitlines()
    assert lines[0] == "GPT" and lines[2] == "  the  ■ · · · · · · · · ·" and lines[-1].count("■") == 10


def test_page_and_figure(pictures):
    page = masks_page(list(pictures.values()))
    assert page.count("<svg") == len(pictures) == 9 and "http" not in page
    seen = sum(int(mask.allowed.sum()) for mask in pictures.values())
    assert page.count('class="seen"') == seen
    assert 'aria-label="Mask of GPT: A token attends to itself and to the tokens before it."' in page
    figure = masks_figure(list(pictures.values()))
    assert [axes.get_title() for axes in figure.axes] == list(pictures)
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()][:3] == ["the", "cat", "sat"]


def test_long_words_are_shortened():
    words = ("antidisestablishmentarianism", "<b>", "c", "d")
    page = masks_page(masks(words))
    assert "antidisesta…" in page and words[0] not in page and "&lt;b&gt;" in page


def test_errors():
    with pytest.raises(ValueError, match="at least four words, and a window of at least 1. Received: 2, 2"):
        masks(("a", "b"))
    with pytest.raises(ValueError, match="every number from 1 to 3 once"):
        two_streams((1, 1, 3))
