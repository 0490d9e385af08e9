"""LoRA adapters in the layout of PEFT: PEFT and this package compute the same; bad adapters change nothing."""

import dataclasses
import functools
import json
import re
import time

import keras
import numpy as np
import peft
import pytest
import safetensors.numpy
import torch
import transformers

from kerasbert.models import (
    GPT2,
    T5,
    Bert,
    BertConfig,
    DebertaV2,
    DebertaV2Config,
    DistilBert,
    DistilBertConfig,
    Electra,
    ElectraConfig,
    EuroBert,
    EuroBertConfig,
    GPT2Config,
    Gte,
    GteConfig,
    JinaEmbeddingsV3,
    JinaEmbeddingsV3Config,
    ModernBert,
    ModernBertConfig,
    NomicBert,
    NomicBertConfig,
    Roberta,
    RobertaConfig,
    T5Config,
    XLNet,
    XLNetConfig,
)
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import TextClassifier, TextEmbedder
from kerasbert.training import add_lora
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend

SIZES = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40)
POSITIONS = dict(max_length=16, **SIZES)
IDS = np.random.default_rng(0).integers(3, 61, (2, 11)).astype("int32")


@dataclasses.dataclass
class Case:
    make: object
    config: object
    auto: type
    targets: tuple = ("query", "value")
    head: object = None

    def build(self):
        return self.head(self.make(self.config))


def classifier(backbone):
    return TextClassifier(backbone, labels=3)


def pooled(make):
    return functools.partial(make, pooler=True)


GATED = ("query", "value", "gate")
SEQUENCE = transformers.AutoModelForSequenceClassification
CASES = {
    "bert": Case(Bert, BertConfig(**POSITIONS), SEQUENCE, ("query", "value", "outer"), classifier),
    "bert_masked_lm": Case(Bert, BertConfig(**POSITIONS), transformers.AutoModelForMaskedLM, head=MaskedLM),
    "bert_embedder": Case(Bert, BertConfig(**POSITIONS), transformers.AutoModel, head=TextEmbedder),
    "roberta": Case(Roberta, RobertaConfig(**POSITIONS), SEQUENCE, head=classifier),
    "distilbert": Case(DistilBert, DistilBertConfig(**POSITIONS), SEQUENCE, head=classifier),
    "electra": Case(Electra, ElectraConfig(embedding_dim=12, **POSITIONS), SEQUENCE, head=classifier),
    "deberta": Case(DebertaV2, DebertaV2Config(distance_buckets=8, **POSITIONS), SEQUENCE, head=classifier),
    "modernbert": Case(
        ModernBert, ModernBertConfig(pad_id=0, **POSITIONS), SEQUENCE, ("query", "value", "gate"), classifier
    ),
    "eurobert": Case(EuroBert, EuroBertConfig(pad_id=0, **POSITIONS), SEQUENCE, GATED, classifier),
    "nomic_bert": Case(
        functools.partial(NomicBert, pooler=True), NomicBertConfig(**POSITIONS), SEQUENCE, GATED, classifier
    ),
    "nomic_bert_embedder": Case(NomicBert, NomicBertConfig(**POSITIONS), transformers.AutoModel, GATED, TextEmbedder),
    "gte": Case(pooled(Gte), GteConfig(**POSITIONS), SEQUENCE, GATED, classifier),
    "gte_masked_lm": Case(Gte, GteConfig(**POSITIONS), transformers.AutoModelForMaskedLM, GATED, MaskedLM),
    "jina": Case(JinaEmbeddingsV3, JinaEmbeddingsV3Config(**POSITIONS), SEQUENCE, ("query", "outer"), classifier),
    "gpt2": Case(GPT2, GPT2Config(**POSITIONS), transformers.AutoModelForCausalLM, ("query", "value"), CausalLM),
    "t5": Case(T5, T5Config(head_dim=8, **SIZES), transformers.AutoModelForSeq2SeqLM, head=Seq2SeqLM),
}


def randomized(variables, scale, seed):
    rng = np.random.default_rng(seed)
    for variable in variables:
        variable.assign(to_numpy(variable) + rng.normal(0, scale, variable.shape))


def ours(model):
    more = {"decoder_token_ids": IDS[:, :7]} if isinstance(model, Seq2SeqLM) else {}
    return to_numpy(model({"token_ids": IDS, **more}))


def theirs(model):
    ids = torch.tensor(IDS).long()
    more = {"decoder_input_ids": ids[:, :7]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids), **more)
    return outputs.logits.numpy() if "logits" in outputs else outputs.last_hidden_state.mean(1).numpy()


@pytest.fixture
def quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.mark.filterwarnings("ignore")  # from peft
@pytest.mark.parametrize("name", CASES)
def test_adapters_of_peft_and_ours_are_the_same(name, tmp_path, quiet):
    case = CASES[name]
    keras.utils.set_random_seed(1)
    model = case.build()
    randomized(model.weights, 0.1, 0)
    model.save_to_preset(tmp_path / "base")
    add_lora(model, rank=3, targets=case.targets, alpha=6)
    randomized(model.trainable_variables, 0.1, 1)
    model.save_adapter(tmp_path / "ours", base=tmp_path / "base")
    base = case.auto.from_pretrained(tmp_path / "base").eval()
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "ours").eval()
    np.testing.assert_allclose(theirs(adapted), ours(model), atol=1e-5)
    again = type(model).from_preset(tmp_path / "base")
    again.load_adapter(tmp_path / "ours")
    np.testing.assert_allclose(ours(again), ours(model), atol=1e-6)
    count = sum(np.prod(variable.shape) for variable in model.trainable_variables)
    assert sum(np.prod(variable.shape) for variable in again.trainable_variables) == count

    torch.manual_seed(0)
    with torch.no_grad():
        for path, parameter in adapted.named_parameters():
            tied = "predictions.decoder" in path or path.endswith("decoder.weight")
            if not tied and ("lora_" in path or "modules_to_save" in path):
                parameter.copy_(torch.randn_like(parameter) * 0.1)
    adapted.save_pretrained(tmp_path / "theirs")
    expected = theirs(adapted)
    assert np.abs(expected - ours(model)).max() > 0.01
    for merge in (False, True):
        again = type(model).from_preset(tmp_path / "base")
        again.load_adapter(tmp_path / "theirs", merge=merge)
        np.testing.assert_allclose(ours(again), expected, atol=1e-5)
        assert any("lora" in variable.path for variable in again.weights) != merge


@pytest.mark.parametrize(
    "name, prefix",
    [
        *[("nomic_bert", "nomic_bert."), ("nomic_bert", "bert."), ("nomic_bert_embedder", ""), ("gte", "gte.")],
        *[("gte", "new."), ("jina", "roberta."), ("modernbert", "model."), ("gpt2", "transformer.")],
    ],
)
def test_adapters_with_the_names_of_the_file(name, prefix, tmp_path):
    """The code of the Hub has the layers of the files, of which some are fused, and older prefixes."""
    rng, model = np.random.default_rng(0), CASES[name].build()
    randomized(model.weights, 0.1, 0)
    own_prefix = f"{model.backbone.family.huggingface.prefix}."
    model.save_to_preset(tmp_path / "base")
    (tmp_path / "adapter").mkdir()
    stored, tensors = safetensors.numpy.load_file(tmp_path / "base" / "model.safetensors"), {}
    conv1d = name == "gpt2"
    for weight, array in stored.items():
        if array.ndim != 2 or not re.search(r"(layers?|h)\.\d", weight):
            continue
        inputs, outputs = array.shape if conv1d else array.shape[::-1]
        a, b = (rng.normal(0, 0.1, shape).astype("float32") for shape in ((3, inputs), (outputs, 3)))
        stored[weight] = array + 2 * (b @ a).T if conv1d else array + 2 * b @ a
        module = prefix + weight.removesuffix(".weight").removeprefix(own_prefix)
        tensors |= {f"base_model.model.{module}.lora_A.weight": a, f"base_model.model.{module}.lora_B.weight": b}
    safetensors.numpy.save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    config = dict(peft_type="LORA", r=3, lora_alpha=6, target_modules=[], fan_in_fan_out=conv1d)
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    adapted = type(model).from_preset(tmp_path / "base")
    adapted.load_adapter(tmp_path / "adapter")
    merged = type(model).from_preset(tmp_path / "base")
    merged.load_adapter(tmp_path / "adapter", merge=True)
    safetensors.numpy.save_file(stored, tmp_path / "base" / "model.safetensors", {"format": "pt"})
    expected = ours(type(model).from_preset(tmp_path / "base"))
    assert np.abs(expected - ours(model)).max() > 1e-3
    for found in (adapted, merged):
        np.testing.assert_allclose(ours(found), expected, atol=1e-5)


@pytest.fixture
def trained(tmp_path):
    """(a classifier with LoRA, the folder of its adapter, a function that makes its base)."""
    keras.utils.set_random_seed(0)
    model = classifier(Bert(BertConfig(**POSITIONS)))
    model.save_to_preset(tmp_path / "base")
    add_lora(model, rank=2)
    model.save_adapter(tmp_path / "adapter", base="hf://org/base")
    return model, tmp_path / "adapter", lambda: TextClassifier.from_preset(tmp_path / "base")


def test_the_config(trained):
    config = json.loads((trained[1] / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "org/base" and config["task_type"] == "SEQ_CLS"
    assert config["target_modules"] == ["query", "value"] and config["modules_to_save"] == ["classifier"]
    assert (config["r"], config["lora_alpha"], config["rank_pattern"]) == (2, 2, {})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"peft_type": "LOHA"}, "adapters with peft_type='LORA'"),
        ({"use_dora": True}, "adapters with use_dora=False"),
        ({"bias": "all"}, "adapters with bias='none'"),
        ({"init_lora_weights": "pissa_niter_4"}, "must fit the unchanged base model"),
        ({"r": "eight"}, "`r` in"),
    ],
)
def test_other_kinds_of_adapters_are_refused(trained, change, message):
    _, folder, make = trained
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        make().load_adapter(folder)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda tensors: tensors.pop(next(n for n in tensors if "lora_B" in n)), "with two matrices"),
        (lambda tensors: tensors.update({"base_model.model.other.weight": np.zeros(2)}), "other.weight"),
        (lambda tensors: tensors.update({"base_model.model.classifier.bias": np.zeros(4)}), "must have the shape"),
        (
            lambda tensors: tensors.update({n: a[:, :-1] for n, a in tensors.items() if "lora_A" in n}),
            r"must be \(r, 24\)",
        ),
    ],
)
def test_an_adapter_that_does_not_fit_changes_nothing(trained, change, message):
    _, folder, make = trained
    tensors = safetensors.numpy.load_file(folder / "adapter_model.safetensors")
    change(tensors)
    safetensors.numpy.save_file(
        {name: np.ascontiguousarray(array, "float32") for name, array in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    model = make()
    before = ours(model)
    with pytest.raises(ValueError, match=message):
        model.load_adapter(folder)
    np.testing.assert_array_equal(ours(model), before)
    assert all(variable.trainable for variable in model.backbone.weights)


def changed(folder, tensors=None, **config):
    """Changes tensors of an adapter by a function of their names and values, and fields of its config."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    if tensors:
        stored = safetensors.numpy.load_file(folder / "adapter_model.safetensors")
        stored = {name: np.ascontiguousarray(tensors(name, array)) for name, array in stored.items()}
        safetensors.numpy.save_file(stored, folder / "adapter_model.safetensors")


def with_value(value, part):
    """Puts a value into the tensors whose names contain `part`."""

    def change(name, array):
        array = array.copy()
        if part in name:
            array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize(
    "tensors, config, message",
    [
        (with_value(np.nan, "lora_A"), {}, "finite floating-point numbers.*float32 with NaN or infinite"),
        (with_value(np.inf, "lora_B"), {}, "finite floating-point numbers"),
        (with_value(-np.inf, "classifier.bias"), {}, "finite floating-point numbers.*classifier.bias"),
        (lambda name, array: array.astype("float64") * 1e300 + 1e300, {}, "finite floating-point numbers.*float64"),
        (lambda name, array: array.astype("int32"), {}, "finite floating-point numbers.*int32"),
        (None, {"lora_alpha": 1e308}, "numbers that float32 can represent. Received: nan.*lora_alpha"),
        (None, {"alpha_pattern": {"query": -1e308}}, "numbers that float32 can represent.*query"),
        (lambda name, array: array * 0 + np.float32(1e25) if "lora" in name else array, {}, "float32 can represent"),
        (None, {"r": 0}, "ranks in .* must be at least 1. Received: 0"),
        (None, {"rank_pattern": {"query": -3}}, "ranks in .* must be at least 1. Received: -3"),
        (None, {"r": 4}, "the rank that adapter_config.json states, 4, and at least 1. Received: matrices of rank 2"),
        (None, {"rank_pattern": {"query": 1}}, "states, 1, .*matrices of rank 2"),
        (
            lambda name, array: array[:0] if "lora_A" in name else array[:, :0] if "lora_B" in name else array,
            {},
            "at least 1. Received: matrices of rank 0",
        ),
        (None, {"alpha_pattern": {"query": float("nan")}}, "`alpha_pattern` in"),
        (None, {"use_rslora": "yes"}, "`use_rslora` in"),
    ],
)
def test_numbers_of_an_adapter_that_destroy_weights(trained, tensors, config, message, merge):
    _, folder, make = trained
    changed(folder, tensors, **config)
    model = make()
    before = ours(model)
    with pytest.raises(ValueError, match=message):
        model.load_adapter(folder, merge=merge)
    np.testing.assert_array_equal(ours(model), before)
    assert all(variable.trainable for variable in model.backbone.weights)


@pytest.mark.parametrize("field, value", [("alpha_pattern", 3.0), ("rank_pattern", 2)])
@pytest.mark.parametrize(
    "patterns",
    [
        ["(a+)+$"],
        ["(.*.)*x"],
        ["(?:[a-z.]+)*!"],
        ["(.|.)" * 40],
        [".*" * 12 + "x"],
        [".?" * 30 + "x"],
        [r"(.*)\1\1\1x"],
        ["(?=.*x)y"],
        ["(query"],
        ["a" * 10_000],
        [f"layer{i}" for i in range(2_000)],
        [f"{i}.*.*.*x" for i in range(20)],
    ],
)
def test_patterns_that_take_long_are_refused(trained, field, value, patterns):
    """Expressions with exponential time, and many that are slow together."""
    _, folder, make = trained
    changed(folder, **{field: dict.fromkeys(patterns, value)})
    model, start = make(), time.process_time()
    with pytest.raises(ValueError, match=f"`{field}` in .*(simple expressions|valid expressions|at most 1,000)"):
        model.load_adapter(folder)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "pattern, factor",
    [
        ("query", 5.0),
        (r"encoder\.layer\.\d+\.attention\.self\.query", 5.0),
        (r"bert\.encoder\.layer\.(0|1|10)\.attention.*(query|key)", 5.0),
        ("^bert.encoder.layer.[01].attention.self.query", 5.0),
        ("uery", 1.0),
        ("layer.7.attention.self.query", 1.0),
    ],
)
def test_patterns_have_the_meaning_of_peft(trained, pattern, factor):
    _, folder, make = trained
    changed(folder, alpha_pattern={pattern: 10})
    model = make()
    model.load_adapter(folder)
    reference = peft.PeftModel.from_pretrained(SEQUENCE.from_pretrained(folder.parent / "base"), folder)
    scaling = {
        name: module.scaling["default"]
        for name, module in reference.named_modules()
        if name.endswith("query") and hasattr(module, "scaling")
    }
    query = model.backbone.blocks[0].attention.query
    assert query.lora_alpha / query.lora_rank == factor == next(iter(scaling.values()))


def test_an_adapter_without_products_is_refused(trained):
    _, folder, make = trained
    path = folder / "adapter_model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({name: array for name, array in tensors.items() if "lora" not in name}, path)
    with pytest.raises(ValueError, match="must contain LoRA products"):
        make().load_adapter(folder)
    tensors["classifier.bias"] = np.ones(3, "float32")
    safetensors.numpy.save_file(tensors, path)
    with pytest.raises(ValueError, match="each weight once. Received: .* with classifier.bias twice"):
        make().load_adapter(folder)


def test_what_the_layout_cannot_hold(trained, tmp_path):
    model, folder, make = trained
    with pytest.raises(ValueError, match="needs a model with LoRA"):
        make().save_adapter(tmp_path / "none")
    model.backbone.blocks[0].attention.key.bias.trainable = True
    with pytest.raises(ValueError, match="also trains block_0/attention/key/bias"):
        model.save_adapter(tmp_path / "none")
    with pytest.raises(ValueError, match="can have one LoRA product"):
        model.load_adapter(folder)
    xlnet = XLNet(XLNetConfig(**SIZES))
    add_lora(xlnet, rank=2)
    with pytest.raises(ValueError, match="stores as a bare parameter"):
        xlnet.save_adapter(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileNotFoundError, match="must contain adapter_config.json"):
        make().load_adapter(tmp_path)


def test_a_new_pooler_is_trained_and_kept(tmp_path):
    """The file of a masked LM has no pooler: that of the classifier is new, so an adapter must hold it."""
    MaskedLM(Bert(BertConfig(**POSITIONS), pooler=False)).save_to_preset(tmp_path / "base")
    with pytest.warns(UserWarning, match="has no weights for classifier/dense, pooler"):
        model = TextClassifier.from_preset(tmp_path / "base", labels=3)
    add_lora(model, rank=2)
    assert model.backbone.pooler.kernel.trainable
    model.save_adapter(tmp_path / "adapter")
    with pytest.warns(UserWarning):
        again = TextClassifier.from_preset(tmp_path / "base", labels=3)
    again.load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(ours(again), ours(model), atol=1e-6)
