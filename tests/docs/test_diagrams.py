"""The figures of the families: their boxes are the layers of the source, in the order in which they are applied."""

import ast
import importlib
import inspect
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

import pytest

from kerasbert.models import FAMILIES
from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "_ext"))
diagrams = importlib.import_module("diagrams")
stacks = importlib.import_module("stacks")

pytestmark = pytest.mark.one_backend

NAMES = sorted(stacks.DIAGRAMS)


def boxes_of(element):
    """The boxes of a stack or of a part of it, from the bottom to the top."""
    if isinstance(element, diagrams.Box):
        return [element]
    parts = getattr(element, "elements", None) or getattr(element, "boxes", ())
    return [box for part in parts for box in boxes_of(part)]


def applied_layers(dotted):
    """The layers that `call` of a class applies, in the order of evaluation, without dropouts."""
    module, _, name = dotted.rpartition(".")
    source = textwrap.dedent(inspect.getsource(getattr(importlib.import_module(module), name)))
    call = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == "call")
    found = []

    def visit(node):
        for child in ast.iter_child_nodes(node):
            visit(child)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if ast.unparse(node.func.value) in ("self", "self.score"):
                found.append(node.func.attr)

    visit(call)
    return [name for name in found if not name.endswith("dropout")]


def test_the_reader_sees_layers_in_order():
    post_norm = ["attention", "attention_norm", "feed_forward", "feed_forward_norm"]
    assert applied_layers("kerasbert.models.bert.BertBlock") == post_norm
    pre_norm = ["attention_norm", "attention", "feed_forward_norm", "feed_forward"]
    assert applied_layers("kerasbert.models.gpt2.GPT2Block") == pre_norm


def test_every_family_has_a_figure():
    assert set(NAMES) == {cls.__name__ for cls in FAMILIES.values() if cls.__module__.startswith("kerasbert.")}


@pytest.mark.parametrize("name", NAMES)
def test_boxes_of_the_block_are_the_layers_of_its_call(name):
    for stack in stacks.DIAGRAMS[name]:
        repeated = [element for element in stack.elements if isinstance(element, diagrams.Repeat)]
        for classes, left_out in stack.block.items():
            applied = [layer for cls in classes.split() for layer in applied_layers(cls) if layer not in left_out]
            assert [box.layer for part in repeated for box in boxes_of(part) if box.layer] == applied, stack.title


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_drawn_inside_their_frame(name):
    root = ElementTree.fromstring(diagrams.draw(stacks.DIAGRAMS[name], "layers & more"))
    _, _, width, height = map(float, root.get("viewBox").split())
    assert root.get("aria-label") == "layers & more"
    rectangles = [node for node in root.iter() if node.tag.endswith("rect")]
    for node in rectangles:
        x, y, w, h = (float(node.get(key)) for key in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
    assert len(rectangles) >= sum(len(boxes_of(stack)) for stack in stacks.DIAGRAMS[name])
