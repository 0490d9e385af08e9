"""The papers' numbers, and overrides by name and type."""

import inspect
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from kerasbert.backend import compiling_for
from kerasbert.data import RareTokens, SentenceOrder, Tokens, WholeWords
from pipelines.recipes import tree
from pipelines.recipes.data import Data, Phase
from pipelines.recipes.optimizers import RootDecay, WarmupDecay
from pipelines.recipes.recipe import Evaluation, all_recipes, find_recipe
from pipelines.runs.building import evaluation_batches, make_optimizer, one_optimizer

pytestmark = pytest.mark.one_backend


def test_bert_base_is_the_paper():
    recipe = find_recipe("bert.base")
    assert recipe.phases == (Phase(900_000, 256, 128), Phase(100_000, 256, 512)) and recipe.steps == 1_000_000
    assert recipe.data.labeled and recipe.data.noise == Tokens(0.15) and recipe.data.static_masks == 10
    config = recipe.config()
    assert (config.num_layers, config.hidden_dim, config.num_heads, config.dropout) == (12, 768, 12, 0.1)
    optimizer = make_optimizer(recipe)
    assert (optimizer.weight_decay, optimizer.epsilon, optimizer.bias_correction) == (0.01, 1e-6, False)
    assert optimizer.global_clipnorm == 1.0
    schedule = recipe.optimizer.schedule(recipe.steps)
    # The rate of the official code at these steps.
    rates = {0: 0.0, 5_000: 5.0e-5, 9_999: 9.999e-5, 10_000: 9.90e-5, 500_000: 5.0e-5}
    assert {step: float(schedule(step)) for step in rates} == pytest.approx(rates, rel=1e-5)


@pytest.mark.parametrize("name", all_recipes())
def test_every_recipe_is_complete(name):
    recipe = find_recipe(name)
    assert recipe.name == name and recipe == find_recipe(name.replace(".", "_"))
    recipe.config(**recipe.evaluation.config)
    for path, value in (recipe.held_out | recipe.evaluation).data.items():
        assert tree.changed(tree.written(recipe.data), Data, path, value, tree.checked)
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
    "bart.base": ((256, 512, 1_000_000), {10_000: 1e-4, 505_000: 5e-5}),
    "bart.large": ((8_000, 512, 500_000), {10_000: 4e-4, 255_000: 2e-4}),
    "eurobert.base": ((2_304, 2_048, 1_017_000), {2_000: 1e-4, 1_017_000: 1e-4}),
    "eurobert.base_decay": ((576, 8_192, 42_400), {0: 1e-4, 21_200: 5e-5}),
    "nomic_bert.base": ((4_096, 2_048, 100_000), {6_000: 5e-4, 53_000: 2.5e-4}),
    "mpnet.base": ((8_192, 512, 500_000), {24_000: 6e-4, 262_000: 3e-4}),
    "gpt_bert.strict_small": (
        (9_408, 128, 7_812),
        {125: 1.41e-2, 3_906: 1.41e-2 * (0.1 + 0.9 * 0.5), 7_687: 1.41e-3, 7_749: 7.1064e-4, 7_812: 0.0},
    ),
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
    assert (recipe.phases[-1 if "modern" in name else 0].batch_size, recipe.phases[0].length, recipe.steps) == sizes
    schedule = one_optimizer(recipe)._learning_rate
    assert {step: float(schedule(step)) for step in rates} == pytest.approx(rates, rel=2e-4, abs=1e-11)


def tokens_of(phases):
    return sum(phase.batch_size * phase.length * phase.steps for phase in phases)


def test_batches_of_modernbert_grow():
    """As many updates of each size, within 50 billion tokens; ModernBERT's example is 2 to 5 within 900."""
    recipe = find_recipe("modernbert.base")
    *small, full = recipe.phases
    assert [phase.batch_size for phase in recipe.phases] == [768, 1_536, 2_304, 3_072, 3_840, 4_608]
    assert len({phase.steps for phase in small}) == 1 and tokens_of(small) == pytest.approx(50e9, rel=1e-3)
    assert 50e9 + tokens_of([full]) == pytest.approx(1.719e12, rel=2e-3)
    assert recipe.optimizer.schedule.warmup * 768 * 1_024 == pytest.approx(3e9, rel=1e-3)
    *small, full = find_recipe("modernbert.large").phases
    assert (small[0].batch_size, small[-1].batch_size + 448) == (448, full.batch_size)
    assert tokens_of(small) == pytest.approx(10e9, rel=2e-3)


def test_stages_of_modernbert_large():
    """Tokens, weight decay, and where the rotations of global layers change."""
    tokens = {"large_restart": 800e9, "large_long": 250e9, "large_decay": 50e9}
    before = "modernbert.large"
    for name, count in tokens.items():
        recipe = find_recipe(f"modernbert.{name}")
        assert tokens_of(recipe.phases) == pytest.approx(count, rel=2e-3)
        assert (recipe.init_from, recipe.optimizer.weight_decay, recipe.average) == (before, 1e-6, 0)
        assert recipe.config().global_rope_theta == (10_000 if name == "large_restart" else 160_000)
        before = recipe.name
    assert find_recipe("modernbert.large").optimizer.weight_decay == 1e-5


def test_updates_of_elmo_are_those_of_its_code():
    """Which minimizes 20 times the mean loss, clips at a norm of 10, and starts accumulators at 1."""
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
        rates = recipe.data.rates({}, parts)
        assert [rates[part] for part in parts] == pytest.approx(counts / counts.sum()), name
        assert recipe.data.text.layout.target_length == recipe.data.tasks.target_length == 512
        is_final = name.startswith("t5.mixture")
        assert recipe.data.text.noise.objective == ("random_spans" if is_final else "replace_spans")


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
        config = recipe.config(**recipe.evaluation.config)
        assert (recipe.evaluation.length, config.memory_length, config.clamp_length) == numbers_of_run
        assert config.same_length
        assert recipe.config().memory_length == recipe.phases[0].length
        assert recipe.held_out == Evaluation(batch_size=10)


def test_short_rows_are_more():
    """Of RoBERTa's table 2, whose rows have about as many tokens per update; 131,072 are 256 full rows."""
    tokens = {"segment_pairs": 512, "sentence_pairs": 50, "full_sentences": 512, "doc_sentences": 370}
    for name, mean in tokens.items():
        assert find_recipe(f"roberta.{name}").phases[0].batch_size * mean == pytest.approx(131_072, rel=0.03)


def test_models_for_translation_have_6_layers():
    config = find_recipe("xlm.clm").config()
    assert (config.num_layers, config.hidden_dim, config.num_heads, config.causal) == (6, 1_024, 8, True)
    assert find_recipe("xlm.mlm").config().num_layers == 12


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
    assert find_recipe("electra.large").data.noise.rate == 0.25
    assert find_recipe("mbert.base").data.mixing.exponent == 0.7


def test_deberta_v3_has_two_optimizers_of_equal_settings():
    for name in ("xsmall", "small", "base", "large", "tiny"):
        first, second = make_optimizer(find_recipe(f"deberta.v3_{name}")).parts
        assert first is not second and {**first.get_config(), "name": ""} == {**second.get_config(), "name": ""}
    joint = find_recipe("deberta.v3_base").with_settings(["model.objective.alternating=false"])
    assert type(make_optimizer(joint)).__name__ == "TransformerAdamW"
    half = find_recipe("deberta.v3_base").with_settings(["dtype=mixed_float16", "accumulation=4"])
    optimizer = make_optimizer(half)
    assert optimizer.gradient_accumulation_steps == 4
    assert [type(part).__name__ for part in optimizer.parts] == ["LossScale", "LossScale"]


def test_distilbert_samples_rare_tokens_of_a_whole_batch():
    assert find_recipe("distilbert.base").data.noise == RareTokens(0.15, exponent=0.7, whole_batch=True)


def test_settings_are_read_by_type():
    recipe = find_recipe("bert.tiny").with_settings(
        [
            "steps=100",
            "dtype=mixed_bfloat16",
            "optimizer.schedule.peak=1",
            "optimizer.schedule.decay_from=warmup",
            "model.activation=gelu_new",
            "model.classifier_dropout=none",
            "data.noise=WholeWords",
            "data.noise.max_predictions=20",
            "data.noise.shares=[0.9, 0]",
            "optimizer.global_clipnorm=0.5",
        ]
    )
    assert (recipe.steps, recipe.dtype) == (100, "mixed_bfloat16")
    schedule = recipe.optimizer.schedule
    assert (schedule.peak, schedule.decay_from) == (1.0, "warmup") and isinstance(schedule.peak, float)
    assert (recipe.config().activation, recipe.config().classifier_dropout) == ("gelu_new", None)
    assert recipe.data.noise == WholeWords(0.15, max_predictions=20, shares=(0.9, 0.0))
    assert recipe.optimizer.global_clipnorm == 0.5
    assert find_recipe("bert.tiny").data.noise == Tokens(0.15), "a recipe is not changed by another"


@pytest.mark.parametrize("name", all_recipes())
def test_the_learning_rate_is_one_setting_for_all(name):
    recipe = find_recipe(name).with_settings(["learning_rate=1e-3"])
    schedule, warmup = one_optimizer(recipe)._learning_rate, recipe.optimizer.schedule.warmup
    rates = [float(schedule(step)) for step in (0, max(warmup - 1, 0), warmup, warmup + 1)]
    assert max(rates) == pytest.approx(1e-3, rel=0.03)
    assert recipe == find_recipe(name).with_settings(["learning_rate=0.001"])


def test_the_learning_rate_goes_with_other_settings():
    recipe = find_recipe("transformer.base").with_settings(
        ["learning_rate=1e-3", "optimizer.schedule=WarmupDecay", "optimizer.schedule.peak=2", "warmup=7"]
    )
    assert recipe.optimizer.schedule == WarmupDecay(1e-3, warmup=7)
    constant = find_recipe("elmo.base").with_settings(["learning_rate=0.1"])
    assert (constant.optimizer.schedule.peak, constant.optimizer.schedule.final) == (0.1, 0.1)


@pytest.mark.parametrize(
    "setting, message",
    [
        ("learning_rate=0", "`learning_rate` must be above 0. Received: 0.0"),
        ("learning_rate=fast", "`learning_rate` must be of type float. Received: 'fast'"),
        ("steps", "must have the form path=value"),
        ("stepz=3", r"A recipe has steps, .*model.*Received: 'stepz=3'. Did you mean steps\?"),
        ("steps=many", "`steps` must be of type int. Received: 'many'"),
        ("steps=0", "`steps`, `batch_size` and `length` of a phase must be at least 1. Received: 0, 16, 64"),
        ("average=-1", "`average` of at least 0. Received: .*average=-1"),
        ("steps=1.5", "`steps` must be of type int. Received: '1.5'"),
        ("data=3", "`data` must be MaskedLMData or .*. Received: '3'"),
        ("data.masks=3", "`data` has mixing, noise, rows, static_masks. Received: data.masks"),
        ("data.noise.rates=3", r"Received: data.noise.rates. Did you mean rate\?"),
        ("data.noise=Words", "`data.noise` must be .*WholeWords.*Received: 'Words'"),
        ("data.noise.rate=2", "masking rate must be above 0 and below 1. Received: 2.0"),
        ("data.rows=pages", "`rows` must be one of chunks"),
        ("data.rows.passes=0", "`passes` must be at least 1"),
        ("model.hidden_dim=wide", "`model.hidden_dim` must be of type int"),
        ("model.start.num_block=1", r"Did you mean num_blocks\?"),
        ("data.noise.mask_special=1", "`data.noise.mask_special` must be of type bool"),
        ("phases.1.steps=3", "`phases` has the entries 0 to 0. Received: phases.1"),
        ("phases=[]", "must have phases with `steps`"),
        ("phases=[(9, 8)]", "`phases.0` is a Phase, which needs length. Set them, too"),
        ("held_out.data.noise=3", None),
        ("teacher=runs/bert", "`teacher` must be given for the objectives Distillation and KnowledgeTransfer"),
        ("model.objective=ReplacedTokenDetection", "is a ReplacedTokenDetection, which needs generator"),
        ("model.objective=CausalLM", "The objective CausalLM takes no arguments from the data. .*sentence_pair"),
        ("model.objective=SpanBoundary", "The objective SpanBoundary takes max_targets"),
        ("optimizer=ProgressiveLamb", "needs an objective with `transfer_steps`. Received: MaskedLM"),
        ("optimizer=Rocket", "`optimizer` must be .*AdamW.* Received: 'Rocket'"),
        ("optimizer.schedule.shape=line", "must be 'polynomial' or 'cosine' or 'sqrt'. Received: 'line'"),
        ("optimizer.learning_rate=1.0", r"`optimizer` has .*\(14 in all\). Received: optimizer.learning_rate"),
        ("model.size=bert_huge", "size of a paper: .*bert_base.*Received: 'bert_huge'"),
        ("dtype.x=1", "`dtype` is 'auto', which has no fields. Received: dtype.x"),
    ],
)
def test_wrong_settings_name_the_fix(setting, message):
    if message is None:  # the data of an evaluation are changed when its batches are made
        recipe = find_recipe("bert.tiny").with_settings([setting])
        with pytest.raises(ValueError, match="`noise` must be"):
            evaluation_batches(recipe, {})
        return
    with pytest.raises(ValueError, match=message):
        find_recipe("bert.tiny").with_settings([setting])


@pytest.mark.parametrize(
    "name, setting, message",
    [
        ("xlnet.tiny", "model.reuse_length=16", "`model.reuse_length` is determined by the data.*Set only data"),
        ("electra.tiny", "model.objective.alternating=true", "Received: embedding_sharing='shared'. Set model"),
        ("distilbert.tiny", "teacher=", "`teacher` must be given"),
        ("xlm.tiny", "data.names=3", "`data.names` must be of type tuple"),
        ("xlm.tiny", "data.names=[3]", "`data.names.0` must be of type str. Received: 3"),
    ],
)
def test_parts_agree(name, setting, message):
    with pytest.raises(ValueError, match=message):
        find_recipe(name).with_settings([setting])


def test_numbers_of_model_and_data_are_set_once():
    """Heads and memories follow the data, the optimizer of a transfer follows the objective."""
    recipe = find_recipe("xlnet.tiny").with_settings(["data.reuse_length=16", "data.bidirectional_data=false"])
    assert (recipe.config().reuse_length, recipe.config().bidirectional_data) == (16, False)
    recipe = find_recipe("spanbert.tiny").with_settings(["data.max_targets=7"])
    assert recipe.data.objective() == {"max_targets": 7}
    recipe = find_recipe("bert.tiny").with_settings(["data.rows=packed"])
    assert not recipe.data.labeled and recipe.data.objective() == {}
    recipe = find_recipe("mobilebert.tiny").with_settings(["model.objective.transfer_steps=9"])
    assert one_optimizer(recipe).transfer_steps == 9


def test_classes_are_settings_too():
    recipe = find_recipe("bert.tiny").with_settings(
        ["optimizer.schedule=RootDecay", "optimizer.schedule.flat=true", "optimizer=Lamb", "optimizer.beta_2=0.98"]
    )
    assert recipe.optimizer.schedule == RootDecay(1e-3, warmup=200, flat=True)
    made = make_optimizer(recipe)
    assert type(made).__name__ == "TransformerLamb" and (made.beta_2, made.global_clipnorm) == (0.98, 1.0)
    assert made.bias_correction is False, "a default of the former class is not kept"
    recipe = find_recipe("bert.tiny").with_settings(["data.rows=SentenceOrder", "data.rows.passes=3"])
    assert recipe.data.rows == SentenceOrder(3)
    assert find_recipe("xlm.tiny").with_settings(["data.names=['en','de']"]).data.names == ("en", "de")
    decay = find_recipe("modernbert.tiny").with_settings(["optimizer.schedule.decay_from=7"])
    assert decay.optimizer.schedule.decay_from == 7
    assert find_recipe("bert.tiny").with_settings(["model.start=none"]).model.start is None


def test_short_forms_are_for_the_whole_run():
    recipe = find_recipe("bert.base").with_settings(["steps=1000", "batch_size=8", "length=64"])
    assert recipe.phases == (Phase(900, 8, 64), Phase(100, 8, 64))
    assert [phase.steps for phase in find_recipe("bert.base").with_settings(["steps=7"]).phases] == [6, 1]
    recipe = find_recipe("bert.base").with_settings(["phases.1.steps=5"])
    assert [phase.steps for phase in recipe.phases] == [900_000, 5]
    recipe = find_recipe("bert.tiny").with_settings(["phases=[(90,16,64),(10,16,128)]", "warmup=3"])
    assert recipe.phases == (Phase(90, 16, 64), Phase(10, 16, 128)) and recipe.optimizer.schedule.warmup == 3


@pytest.mark.parametrize("name", all_recipes())
def test_a_short_run_of_every_recipe_has_a_schedule_or_the_setting_for_one(name):
    recipe = find_recipe(name).with_settings(["steps=60", "warmup=6"])
    try:
        make_schedule = recipe.optimizer.schedule(60)
    except ValueError as error:
        said = str(error)
        assert "must be at most" in said and "which `steps` does not change" in said
        setting = said.partition("Use --set ")[2].removesuffix(".")
        make_schedule = recipe.with_settings([setting]).optimizer.schedule(60)
    assert float(make_schedule(30)) > 0


def test_a_size_of_another_family():
    recipe = find_recipe("bert.tiny").with_settings(["model.size=modernbert_base"])
    assert recipe.model.config == dict(initializer_range=0.08, attention_dropout=0.0)  # what a ModernBERT has, too
    assert type(recipe.config()).__name__ == "ModernBertConfig"
    recipe = find_recipe("bert.tiny").with_settings(["model.size=t5_small", "model.num_layers=2"])
    assert recipe.model.config == dict(num_layers=2, dropout=0.0) and recipe.config().num_layers == 2


def test_unknown_recipes_and_sizes():
    with pytest.raises(ValueError, match="The recipes are .*bert.base, .*Received: 'bert.huge'"):
        find_recipe("bert.huge")
