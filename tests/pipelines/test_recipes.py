"""The papers' numbers, and overrides by name and type."""

import inspect
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from kerasbert.backend import compiling_for
from kerasbert.data import RareTokens
from kerasbert.training import WarmupDecay
from pipelines.recipes.recipe import all_recipes, find_recipe
from pipelines.runs.building import _task_rates, make_optimizer, one_optimizer

pytestmark = pytest.mark.one_backend


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


@pytest.mark.parametrize("name", all_recipes())
def test_every_recipe_is_complete(name):
    recipe = find_recipe(name)
    assert recipe.name == name and recipe == find_recipe(name.replace(".", "_"))
    recipe.backbone_config()
    groups = ["config", "evaluation_config", "schedule", "optimizer", "data", "held_out", "evaluation_data"]
    groups += ["objective_options"]
    groups += ["generator_config"] if recipe.generator else []
    groups += ["pair_data"] if recipe.pairs else []
    for group in groups:
        assert set(getattr(recipe, group)) <= set(recipe.fields_of(group)), group
    optimizer = one_optimizer(recipe)
    rates = [float(optimizer._learning_rate(step)) for step in (0, recipe.steps // 2, recipe.steps)]
    assert min(rates) >= 0 and 0 < rates[1] and all(rate < 30 for rate in rates)
    assert inspect.getdoc(all_recipes()[name]).splitlines()[0].endswith(".")


def test_every_family_has_a_tiny_recipe():
    families = {name.partition(".")[0] for name in all_recipes()}
    assert families >= {"bert", "roberta", "electra", "t5", "xlnet", "xlm", "transformer", "modernbert", "mobilebert"}
    assert not [family for family in families if f"{family}.tiny" not in all_recipes()]


# Of the sheets: rows of an update, tokens of a row, updates; then rates at updates.
NUMBERS = {
    "roberta.base": ((8_192, 512, 500_000), {24_000: 6e-4, 500_000: 0.0}),
    "roberta.base_books": ((2_048, 512, 125_000), {10_000: 7e-4, 67_500: 3.5e-4}),
    "roberta.full_sentences": ((256, 512, 1_000_000), {10_000: 1e-4}),
    "spanbert.large": ((256, 512, 2_400_000), {1_200_000: 5e-5}),
    "albert.base": ((4_096, 512, 125_000), {3_125: 0.001716}),
    "electra.small": ((128, 128, 1_000_000), {5_000: 2.4875e-4, 10_000: 4.95e-4, 500_000: 2.5e-4}),
    "electra.large": ((2_048, 512, 1_750_000), {}),
    "deberta.v3_large": ((8_192, 512, 500_000), {250_000: 1.5e-4}),
    "t5.base": ((128, 512, 524_288), {0: 0.01, 10_000: 0.01, 40_000: 0.005, 524_288: 0.00138107}),
    "t5.mixture_base": ((2_048, 512, 1_000_000), {10_000: 0.01, 1_000_000: 0.001}),
    "gpt.base": ((64, 512, 3_000_000), {2_000: 2.5e-4, 1_501_000: 1.25e-4}),
    "transformer_xl.wikitext103": ((60, 150, 200_000), {0: 2.5e-4, 100_000: 1.25e-4}),
    "xlnet.large": ((8_192, 512, 500_000), {40_000: 4e-4, 500_000: 4e-7}),
    "xlnet.base": ((256, 512, 1_000_000), {10_000: 1e-4, 1_000_000: 1e-7}),
    "xlm.mlm": ((64, 256, 1_000_000), {4_000: 1e-4, 16_000: 5e-5}),
    "xlm.mlm_tlm": ((64, 256, 1_000_000), {4_000: 1e-4, 16_000: 5e-5}),
    "xlm.english": ((64, 256, 1_000_000), {30_000: 1e-4, 120_000: 5e-5}),
    "distilbert.base": ((4_000, 512, 6_000), {300: 5e-4}),
    "modernbert.base_decay": ((576, 8_192, 10_600), {2_650: 3e-4 * (0.001 + 0.999 * 0.5)}),
    "modernbert.large_restart": ((4_928, 1_024, 158_500), {0: 5e-5, 158_500: 5e-5}),
    "modernbert.large_long": ((616, 8_192, 49_500), {0: 5e-5, 49_500: 5e-5}),
    "modernbert.large_decay": ((624, 8_192, 9_780), {2_445: 5e-5 * (0.001 + 0.999 * 0.5), 9_780: 5e-8}),
    "transformer.base": ((832, 256, 100_000), {3_999: 6.988e-4, 99_999: 1.3975e-4}),
    "mobilebert.base": ((2_048, 512, 500_000), {10_000: 1.5e-3}),
}


def test_the_dtype_is_that_of_the_device():
    """Half precision on GPUs and TPUs, for whose fused attention it is needed; a run records what it began with."""
    automatic = [name for name in all_recipes() if find_recipe(name).dtype == "auto"]
    assert {"bert.base", "t5.base", "xlnet.base", "electra.base", "roberta.tiny"} <= set(automatic)
    assert find_recipe("roberta.base").dtype == "mixed_bfloat16"
    assert {find_recipe(f"{name}.tiny").dtype for name in ("word_vectors", "elmo", "seq2seq_attention")} == {"float32"}
    recipe = find_recipe("bert.base")
    with compiling_for("gpu"):
        assert recipe.policy == "mixed_bfloat16"
    with compiling_for("cpu"):
        assert recipe.policy == "float32"
        assert recipe.with_settings(["dtype=mixed_float16"]).policy == "mixed_float16"


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_the_papers(name):
    recipe, (sizes, rates) = find_recipe(name), NUMBERS[name]
    assert (recipe.batch_size, recipe.length, recipe.steps) == sizes
    schedule = one_optimizer(recipe)._learning_rate
    assert {step: float(schedule(step)) for step in rates} == pytest.approx(rates, rel=2e-4, abs=1e-11)


def test_batches_of_modernbert_grow():
    """As many updates of each size, within 50 billion tokens; ModernBERT's example is 2 to 5 within 900."""
    recipe = find_recipe("modernbert.base")
    assert recipe.small_batches == (768, 1_536, 2_304, 3_072, 3_840) and recipe.batch_size == 4_608
    assert sum(recipe.small_batches) * recipe.small_steps * 1_024 == pytest.approx(50e9, rel=1e-3)
    full = recipe.steps - 5 * recipe.small_steps
    assert 50e9 + full * 4_608 * 1_024 == pytest.approx(1.719e12, rel=2e-3)
    assert recipe.schedule["warmup"] * 768 * 1_024 == pytest.approx(3e9, rel=1e-3)
    large = find_recipe("modernbert.large")
    assert (large.small_batches[0], large.small_batches[-1] + 448) == (448, large.batch_size)
    assert sum(large.small_batches) * large.small_steps * 1_024 == pytest.approx(10e9, rel=2e-3)


def test_stages_of_modernbert_large():
    """Tokens, weight decay, and where the rotations of global layers change."""
    tokens = {"large_restart": 800e9, "large_long": 250e9, "large_decay": 50e9}
    before = "modernbert.large"
    for name, count in tokens.items():
        recipe = find_recipe(f"modernbert.{name}")
        assert recipe.batch_size * recipe.length * recipe.steps == pytest.approx(count, rel=2e-3)
        assert (recipe.init_from, recipe.optimizer["weight_decay"], recipe.average) == (before, 1e-6, 0)
        assert recipe.backbone_config().global_rope_theta == (10_000 if name == "large_restart" else 160_000)
        before = recipe.name
    assert find_recipe("modernbert.large").optimizer["weight_decay"] == 1e-5


def test_updates_of_elmo_are_those_of_its_code():
    """Which minimises 20 times the mean loss, clips at a norm of 10, and starts accumulators at 1."""
    optimizer = make_optimizer(find_recipe("elmo.base"))
    weights = keras.Variable(np.zeros(3, "float32"))
    expected, accumulator = np.zeros(3), np.ones(3)
    for gradient in ([0.01, -0.002, 0.3], [0.5, 0.001, -0.7], [3.0, -4.0, 0.0]):  # the first is not clipped
        scaled = 20 * np.array(gradient)
        scaled *= 10 / max(10, np.linalg.norm(scaled))
        accumulator += scaled**2
        expected -= 0.2 * scaled / np.sqrt(accumulator)
        optimizer.apply([keras.ops.convert_to_tensor(gradient, "float32")], [weights])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(weights), expected, rtol=1e-5)


def test_shares_of_text_and_tasks():
    """T5's caps on the numbers of examples; the shares of two tasks and of text."""
    parts = {"text": None, "en-fr": SimpleNamespace(num_pairs=36_000_000), "cola": SimpleNamespace(num_pairs=8_551)}
    sizes = {
        "t5.multitask": np.array([2**19, 2**19, 8_551]),
        "t5.multitask_temperature": np.sqrt([2**21, 2**21, 8_551]),
        "t5.mixture_small": np.array([710_000, 1_000_000, 8_551]),
        "t5.mixture_base": np.array([2_620_000, 1_000_000, 8_551]),
        "t5.mixture_large": np.array([8_660_000, 1_000_000, 8_551]),
        "t5.mixture_3b": np.array([33_500_000, 1_000_000, 8_551]),
        "t5.mixture_11b": np.array([133_000_000, 1_000_000, 8_551]),
    }
    for name, counts in sizes.items():
        recipe = find_recipe(name)
        rates = _task_rates(recipe, parts)
        assert [rates[part] for part in parts] == pytest.approx(counts / counts.sum()), name
        assert recipe.data["target_length"] == recipe.pair_data["target_length"] == 512
        is_final = name.startswith("t5.mixture")
        assert recipe.data["objective"] == ("random_spans" if is_final else "replace_spans")


def test_evaluation_of_transformer_xl():
    """Tokens per segment, and the memory, clipping of distances and attention length of the official scripts."""
    numbers = {
        "wikitext103": (64, 640, 400),
        "wikitext103_large": (128, 1_600, 1_000),
        "enwik8": (80, 2_100, 820),
        "enwik8_large": (128, 3_800, 1_000),
    }
    for name, numbers_of_run in numbers.items():
        recipe = find_recipe(f"transformer_xl.{name}")
        config = recipe.backbone_config(**recipe.evaluation_config)
        assert (recipe.evaluation_data["length"], config.memory_length, config.clamp_length) == numbers_of_run
        assert config.same_length
        assert recipe.backbone_config().memory_length == recipe.length
        assert recipe.held_out == dict(batch_size=10)


def test_short_rows_are_more():
    """Of RoBERTa's table 2, whose rows have about as many tokens per update; 131,072 are 256 full rows."""
    tokens = {"segment_pairs": 512, "sentence_pairs": 50, "full_sentences": 512, "doc_sentences": 370}
    for name, mean in tokens.items():
        assert find_recipe(f"roberta.{name}").batch_size * mean == pytest.approx(131_072, rel=0.03)


def test_models_for_translation_have_6_layers():
    config = find_recipe("xlm.clm").backbone_config()
    assert (config.num_layers, config.hidden_dim, config.num_heads, config.causal) == (6, 1_024, 8, True)
    assert find_recipe("xlm.mlm").backbone_config().num_layers == 12


def test_recipes_share_no_numbers():
    changed = find_recipe("albert.base")
    changed.data["ngrams"] = 1
    changed.schedule["peak"] = 1.0
    assert find_recipe("albert.large").data["ngrams"] == find_recipe("albert.base").data["ngrams"] == 3
    tiny = find_recipe("gpt.tiny")
    tiny.schedule["peak"] = 1.0
    assert find_recipe("deberta.tiny").schedule["peak"] == 2e-3


def test_optimizers_of_the_papers():
    kinds = {
        "albert.base": "TransformerLamb",
        "t5.base": "TransformerAdafactor",
        "modernbert.base": "StableAdamW",
        "mobilebert.transfer": "ProgressiveLamb",
        "seq2seq_attention.attention": "Adadelta",
        "electra.base": "TransformerAdamW",
    }
    assert {name: type(make_optimizer(find_recipe(name))).__name__ for name in kinds} == kinds
    assert make_optimizer(find_recipe("roberta.base")).beta_2 == 0.98
    assert make_optimizer(find_recipe("roberta.base")).no_decay == ()
    assert make_optimizer(find_recipe("transformer_xl.enwik8")).global_clipnorm == 0.25
    assert find_recipe("electra.large").data["mask_rate"] == 0.25
    assert find_recipe("mbert.base").sampling_exponent == 0.7


def test_deberta_v3_has_two_optimizers_of_equal_settings():
    for name in ("xsmall", "small", "base", "large", "tiny"):
        first, second = make_optimizer(find_recipe(f"deberta.v3_{name}")).parts
        assert first is not second and {**first.get_config(), "name": ""} == {**second.get_config(), "name": ""}
    joint = find_recipe("deberta.v3_base").with_settings(["alternating=false"])
    assert type(make_optimizer(joint)).__name__ == "TransformerAdamW"
    half = find_recipe("deberta.v3_base").with_settings(["dtype=mixed_float16", "accumulation=4"])
    optimizer = make_optimizer(half)
    assert optimizer.gradient_accumulation_steps == 4
    assert [type(part).__name__ for part in optimizer.parts] == ["LossScale", "LossScale"]


def test_distilbert_samples_rare_tokens_of_a_whole_batch():
    recipe = find_recipe("distilbert.base")
    noise = recipe.class_of("data").arguments(recipe.length, **recipe.data)["noise"]
    assert noise == RareTokens(0.15, exponent=0.7, whole_batch=True)


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


@pytest.mark.parametrize("name", all_recipes())
def test_the_learning_rate_is_one_setting_for_all(name):
    recipe = find_recipe(name).with_settings(["learning_rate=1e-3"])
    schedule, warmup = one_optimizer(recipe)._learning_rate, recipe.schedule.get("warmup", 0)
    rates = [float(schedule(step)) for step in (0, max(warmup - 1, 0), warmup, warmup + 1)]
    assert max(rates) == pytest.approx(1e-3, rel=0.03)
    assert recipe == find_recipe(name).with_settings(["learning_rate=0.001"])


def test_the_learning_rate_goes_with_other_settings():
    recipe = find_recipe("transformer.base").with_settings(
        ["learning_rate=1e-3", "schedule_class=WarmupDecay", "schedule.warmup=7"]
    )
    assert recipe.schedule == dict(peak=1e-3, warmup=7)
    constant = find_recipe("elmo.base").with_settings(["learning_rate=0.1"])
    assert (constant.schedule["peak"], constant.schedule["final"]) == (0.1, 0.1)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("learning_rate=0", "`learning_rate` must be above 0. Received: 0.0"),
        ("learning_rate=fast", "`learning_rate` must be of type float. Received: 'fast'"),
        ("steps", "must have the form name=value"),
        ("stepz=3", "A recipe has name, backbone.*Received: 'stepz=3'"),
        ("steps=many", "`steps` must be of type int. Received: 'many'"),
        ("steps=0", "`steps` must be at least 1"),
        ("average=-1", "`average` at least 0. Received: steps=2000, average=-1"),
        ("steps=1.5", "`steps` must be of type int. Received: '1.5'"),
        ("data=3", "A recipe has"),
        ("data.masks=3", "`data` takes .*mask_rate.*Received: 'data.masks=3'"),
        ("config.hidden_dim=wide", "`config.hidden_dim` must be of type int"),
        ("data.whole_words=1", "`data.whole_words` must be of type bool"),
        ("long_steps=3", "`long_length` must be given together"),
        ("small_steps=3", "`small_batches` must be given together"),
        ("small_batches=[8,16]", "`small_batches` must be given together"),
        ("data.sentence_pairs=false", "must agree"),
        ("teacher=runs/bert", "`teacher` must be given for the objectives Distillation, KnowledgeTransfer"),
        ("objective=ReplacedTokenDetection", "`generator` must be given for the objectives ReplacedTokenDetection"),
        ("optimizer.learning_rate=1.0", r"`optimizer` takes .*\(17 in all\). Received: 'optimizer.learning_rate=1.0'"),
    ],
)
def test_wrong_settings_name_the_fix(setting, message):
    with pytest.raises(ValueError, match=message):
        find_recipe("bert.tiny").with_settings([setting])


@pytest.mark.parametrize(
    "name, setting, message",
    [
        ("mobilebert.tiny", "optimizer.transfer_steps=200", "must be the same. Received: 200 and 300. Set both"),
        ("spanbert.tiny", "data.max_targets=20", "`objective_options.max_targets` and `data.max_targets` must"),
        ("xlnet.tiny", "data.reuse_length=16", "Received: 32 and 16. Set both"),
        ("xlnet.tiny", "config.bidirectional_data=false", "Received: False and True. Set both"),
        ("electra.tiny", "alternating=true", "Received: objective=ReplacedTokenDetection, embedding_sharing='shared'"),
        ("bert.tiny", "alternating=true", "Received: objective=MaskedLM.*Set alternating=false"),
    ],
)
def test_numbers_of_model_and_data_agree(name, setting, message):
    with pytest.raises(ValueError, match=message):
        find_recipe(name).with_settings([setting])


def test_classes_are_settings_too():
    recipe = find_recipe("bert.tiny").with_settings(
        ["schedule.flat=true", "schedule_class=RootDecay", "optimizer_class=TransformerLamb", "optimizer.beta_2=0.98"]
    )
    assert recipe.schedule == dict(peak=1e-3, warmup=200, flat=True)
    assert make_optimizer(recipe).beta_2 == 0.98 and recipe.class_of("optimizer").__name__ == "TransformerLamb"
    with pytest.raises(ValueError, match="There is no class 'Rocket' for `optimizer` in kerasbert.training"):
        find_recipe("bert.tiny").with_settings(["optimizer_class=Rocket"]).class_of("optimizer")
    languages = find_recipe("xlm.tiny").with_settings(["languages=['en','de']"]).languages
    assert languages == ("en", "de")
    decay = find_recipe("modernbert.tiny").with_settings(["schedule.decay_from=7"]).schedule["decay_from"]
    assert decay == 7


def test_a_size_of_another_family():
    recipe = find_recipe("bert.tiny").with_settings(["backbone=modernbert_base"])
    assert recipe.config == dict(initializer_range=0.08, attention_dropout=0.0)  # what a ModernBERT has, too
    assert type(recipe.backbone_config()).__name__ == "ModernBertConfig"
    settings = ["backbone=t5_small", "config.num_layers=2"]
    recipe = find_recipe("bert.tiny").with_settings(settings)
    assert recipe.config == dict(num_layers=2, dropout=0.0) and recipe.backbone_config().num_layers == 2


def test_unknown_recipes_and_sizes():
    with pytest.raises(ValueError, match="The recipes are .*bert.base, .*Received: 'bert.huge'"):
        find_recipe("bert.huge")
    with pytest.raises(ValueError, match="size of a paper: .*bert_base.*Received: 'bert_huge'"):
        find_recipe("bert.tiny").with_settings(["backbone=bert_huge"]).backbone_config()
