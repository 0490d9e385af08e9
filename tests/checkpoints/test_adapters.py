"""LoRA adapters in the layout of PEFT: PEFT and this package compute the same; bad adapters change nothing."""

import dataclasses
import json

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
    GPT2Config,
    ModernBert,
    ModernBertConfig,
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
    "gpt2": Case(GPT2, GPT2Config(**POSITIONS), transformers.AutoModelForCausalLM, ("query", "value"), CausalLM),
    "t5": Case(T5, T5Config(head_dim=8, **SIZES), transformers.AutoModelForSeq2SeqLM, head=Seq2SeqLM),
}


def randomised(variables, scale, seed):
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
    randomised(model.weights, 0.1, 0)
    model.save_to_preset(tmp_path / "base")
    add_lora(model, rank=3, targets=case.targets, alpha=6)
    randomised(model.trainable_variables, 0.1, 1)
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
            tied = "predictions.decoder" in path or "lm_head.decoder" in path
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
