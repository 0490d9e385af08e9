"""The papers' numbers, and overrides by name and type."""

import pytest

from kerasbert.training import WarmupDecay
from pipelines.pretrain import make_optimizer
from pipelines.recipes.recipe import find_recipe


def test_bert_base_is_the_paper():
    recipe = find_recipe("bert.base")
    assert (recipe.batch_size, recipe.length, recipe.steps) == (256, 128, 1_000_000)
    assert (recipe.long_length, recipe.long_steps) == (512, 100_000)
    config = recipe.backbone_config()
    assert (config.num_layers, config.hidden_dim, config.num_heads, config.dropout) == (12, 768, 12, 0.1)
    optimizer = make_optimizer(recipe)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.bias_correction) == (0.01, 1e-6, False)
    assert optimizer.global_clipnorm == 1.0
    schedule = WarmupDecay(steps=recipe.steps, **recipe.schedule)
    # The rate of the official code at these steps.
    rates = {0: 0.0, 5_000: 5.0e-5, 9_999: 9.999e-5, 10_000: 9.90e-5, 500_000: 5.0e-5}
    assert {step: float(schedule(step)) for step in rates} == pytest.approx(rates, rel=1e-5)


@pytest.mark.parametrize("name", ["large", "large_whole_words", "medium", "small", "mini", "tiny"])
def test_every_recipe_is_complete(name):
    recipe = find_recipe(f"bert.{name}")
    assert recipe.name == f"bert.{name}"
    assert recipe.backbone_config().hidden_dim == {"large": 1024, "large_whole_words": 1024, "medium": 512}.get(
        name, {"small": 512, "mini": 256, "tiny": 128}.get(name)
    )
    for group in ("config", "schedule", "optimizer", "data", "objective_options"):
        assert set(getattr(recipe, group)) <= set(recipe.fields_of(group)), group
    assert make_optimizer(recipe).no_decay


def test_settings_are_read_by_type():
    recipe = find_recipe("bert.tiny").with_settings(
        [
            "steps=100",
            "dtype=mixed_bfloat16",
            "schedule.peak=1",
            "schedule.decay_from=warmup",
            "config.activation=gelu_new",
            "config.classifier_dropout=none",
            "data.whole_words=true",
            "data.max_predictions=20",
            "optimizer.global_clipnorm=0.5",
        ]
    )
    assert (recipe.steps, recipe.dtype) == (100, "mixed_bfloat16")
    assert recipe.schedule["peak"] == 1.0 and isinstance(recipe.schedule["peak"], float)
    assert recipe.schedule["decay_from"] == "warmup"
    assert recipe.backbone_config().activation == "gelu_new"
    assert recipe.backbone_config().classifier_dropout is None
    assert recipe.data["whole_words"] is True and recipe.data["max_predictions"] == 20
    assert recipe.optimizer["global_clipnorm"] == 0.5
    assert find_recipe("bert.tiny").data.get("whole_words") is None, "a recipe is not changed by another"


@pytest.mark.parametrize(
    "setting, message",
    [
        ("steps", "reads name=value"),
        ("stepz=3", "A recipe has name, backbone.*Received: 'stepz=3'"),
        ("steps=many", "`steps` must be of type int. Received: 'many'"),
        ("steps=1.5", "`steps` must be of type int. Received: '1.5'"),
        ("data=3", "A recipe has"),
        ("data.masks=3", "`data` takes .*mask_rate.*Received: 'data.masks=3'"),
        ("config.hidden_dim=wide", "`config.hidden_dim` must be of type int"),
        ("data.whole_words=1", "`data.whole_words` must be of type bool"),
        ("long_steps=3", "give both or neither"),
        ("data.sentence_pairs=false", "must agree"),
    ],
)
def test_wrong_settings_name_the_fix(setting, message):
    with pytest.raises(ValueError, match=message):
        find_recipe("bert.tiny").with_settings([setting])


def test_unknown_recipes_and_sizes():
    with pytest.raises(ValueError, match="The recipes are bert.base, .*Received: 'bert.huge'"):
        find_recipe("bert.huge")
    with pytest.raises(ValueError, match="size of a paper: .*bert_base.*Received: 'bert_huge'"):
        find_recipe("bert.tiny").with_settings(["backbone=bert_huge"]).backbone_config()
