"""Every recipe's training step for every device: `make test-devices`, which takes an hour.

Tiny recipes as `fit` runs them, in both half precisions, with and without dropout; the other recipes in the sizes of
the papers, as shapes without values. What a kernel does not take must be computed without it, never raise an error.
"""

import pytest

from pipelines.recipes.models import KnowledgeTransfer
from pipelines.recipes.recipe import all_recipes, find_recipe
from tests.programs import abstract_step_of, fused_calls, step_of, tiny_recipes

pytestmark = pytest.mark.backends("jax")

DEVICES = {
    "H100": dict(kind="gpu", capability=9.0),
    "A100": dict(kind="gpu", capability=8.0),
    "TPU": dict(kind="tpu"),
}
WITHOUT_ATTENTION = ("elmo", "seq2seq_attention", "word_vectors")
RATES = ("dropout", "attention_dropout")
PAPERS = [name for name in all_recipes() if name not in tiny_recipes()]


def rates(name, rate):
    """Overrides of all dropout rates that a recipe has."""
    recipe = find_recipe(name)
    sizes = {"model": recipe.model, "model.objective.generator": getattr(recipe.model.objective, "generator", None)}
    known = [(path, size.config_fields(size.size)) for path, size in sizes.items() if size]
    return tuple(f"{path}.{field}={rate}" for path, fields in known for field in RATES if field in fields)


def check(name, calls, device, rate):
    """Attention on GPUs is fused in every family that has some, on TPUs if the rows are long enough."""
    assert not calls if name.startswith(WITHOUT_ATTENTION) else calls or device == "TPU", calls
    backward = sum(calls.get(key, 0) for key in ("cudnn_backward", "flash_backward"))
    assert backward or device == "TPU" or name.startswith(WITHOUT_ATTENTION)
    drops = rate and not isinstance(
        find_recipe(name).model.objective, KnowledgeTransfer
    )  # which runs both models without dropout
    assert not drops or not calls.get("cudnn_backward"), "cuDNN's dropout is not used"


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", tiny_recipes())
def test_tiny_recipes(name, device, dtype, rate):
    check(name, fused_calls(step_of(name, dtype=dtype, settings=rates(name, rate), **DEVICES[device])), device, rate)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PAPERS)
def test_sizes_of_papers(name, device):
    check(name, fused_calls(abstract_step_of(name, **DEVICES[device])), device, 0.0)
