"""A backbone may serve several models: none of them changes it, and each selects the variables that it trains."""

import keras
import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig, DebertaV2, DebertaV2Config, Electra, ElectraConfig, XLNet, XLNetConfig
from kerasbert.objectives import Distillation, MaskedLM, PermutationLM, ReplacedTokenDetection
from kerasbert.tasks import MultiTask, TextClassifier, TokenClassifier
from kerasbert.training import adamw, add_lora
from tests.models.reference import to_numpy

TINY = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40)
IDS = np.random.default_rng(0).integers(1, 61, (4, 7)).astype("int32")
X = {"token_ids": IDS, "padding_mask": np.ones((4, 7), bool)}
LABELS = np.array([0, 1, 1, 0], "int32")


def bert(**options):
    return Bert(BertConfig(**TINY, max_length=16), **options)


def moved(model, x, y, optimizer=None):
    """The paths of the variables of a model that one step of training changes."""
    losses = {"loss": model.default_loss()} if hasattr(model, "default_loss") else {}
    model.compile(optimizer or keras.optimizers.SGD(1.0), **losses)
    before = [to_numpy(variable).copy() for variable in model.weights]
    model.train_on_batch(x, y)
    pairs = zip(before, model.weights, strict=True)
    return {v.path for value, v in pairs if "seed" not in v.path and not np.array_equal(value, to_numpy(v))}


def is_trained(model, layer):
    selected = {id(variable) for variable in model.trainable_variables}
    return all(id(variable) in selected for variable in layer.variables)


def test_a_second_model_takes_nothing_from_the_first():
    backbone = bert()
    classifier = TextClassifier(backbone, labels=2)
    before = [variable.path for variable in classifier.trainable_variables]
    model = MaskedLM(backbone)
    assert [variable.path for variable in classifier.trainable_variables] == before
    assert backbone.pooler.trainable and is_trained(classifier, backbone.pooler)
    assert not is_trained(model, backbone.pooler)
    assert not any("pooler" in path for path in moved(model, X, IDS))
    assert {"bert/pooler/kernel", "bert/pooler/bias"} <= {
        path.replace(backbone.name, "bert") for path in moved(classifier, X, LABELS)
    }


@pytest.mark.one_backend
def test_features_leave_the_backbone_to_others():
    backbone = bert()
    features = TextClassifier(backbone, labels=2, features="mix")
    assert backbone.trainable and all(layer.trainable for layer in backbone._flatten_layers())
    assert {path.split("/")[1] for path in moved(features, X, LABELS)} == {"feature_head"}
    assert any("block_0" in path for path in moved(TextClassifier(backbone, labels=2), X, LABELS))


@pytest.mark.one_backend
def test_a_teacher_stays_what_it_was():
    student, teacher = MaskedLM(bert()), MaskedLM(bert())
    model = Distillation(student, teacher)
    assert teacher.trainable and teacher.trainable_variables
    found = moved(model, X, IDS)
    assert found and all(path.startswith((student.name, student.backbone.name + "/")) for path in found)
    assert {id(v) for v in model.trainable_variables} == {id(v) for v in student.trainable_variables}
    # It can be trained on by itself.
    assert any("block_0" in path for path in moved(teacher, X, IDS))


@pytest.mark.one_backend
def test_several_tasks_train_what_any_of_them_reads():
    tasks = {"texts": {"labels": 2}, "words": {"task": TokenClassifier, "labels": 3}}
    backbone = bert()
    model = MultiTask(backbone, tasks)
    assert is_trained(model, backbone.pooler) and not is_trained(model.tasks["words"], backbone.pooler)
    words = {"words": (X, np.where(IDS > 30, 1, 0).astype("int32"))}
    model.fit({"texts": (X, LABELS), **words}, batch_size=4, verbose=0)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "part, backbone, reads",
    [
        ("query_embedding", lambda: XLNet(XLNetConfig(**TINY)), PermutationLM),
        (
            "mask_decoder",
            lambda: DebertaV2(DebertaV2Config(**TINY, distance_buckets=8, max_length=16, mask_decoder=True)),
            MaskedLM,
        ),
    ],
)
def test_parts_of_pretraining(part, backbone, reads):
    backbone = backbone()
    reader, classifier = reads(backbone), TextClassifier(backbone, labels=2)
    layer = getattr(backbone, part)
    assert layer.trainable and is_trained(reader, layer) and not is_trained(classifier, layer)


@pytest.mark.one_backend
def test_replaced_token_detection_trains_both_halves():
    sizes = [ElectraConfig(**{**TINY, "hidden_dim": m}, embedding_dim=24, max_length=16) for m in (12, 24)]
    model = ReplacedTokenDetection(Electra(sizes[0]), Electra(sizes[1]))
    kept = {v.path for v in model.weights if "seed" not in v.path} - {v.path for v in model.trainable_weights}
    assert not kept


@pytest.mark.one_backend
def test_what_the_user_freezes_stays_frozen():
    backbone = bert()
    backbone.token_embedding.trainable = False
    model = TextClassifier(backbone, labels=2)
    assert not backbone.token_embedding.trainable and not is_trained(model, backbone.token_embedding)
    assert not any("token_embedding" in path for path in moved(model, X, LABELS))
    backbone.trainable = False
    TextClassifier(backbone, labels=2), MaskedLM(backbone)
    assert not backbone.pooler.trainable and {v.path.split("/")[1] for v in model.trainable_variables} == {"classifier"}
    model.trainable = False
    assert not model.trainable_variables and len(model.non_trainable_variables) == len(model.variables)


@pytest.mark.one_backend
def test_every_variable_is_trained_or_not():
    model = MaskedLM(bert())
    for both, all_of_them in (
        ((model.trainable_variables, model.non_trainable_variables), model.variables),
        ((model.trainable_weights, model.non_trainable_weights), model.weights),
    ):
        assert {id(v) for part in both for v in part} == {id(v) for v in all_of_them}
        assert sum(map(len, both)) == len(all_of_them)


@pytest.mark.one_backend
def test_low_rank_adaptation_of_one_model():
    model = TextClassifier(bert(), labels=2)
    add_lora(model, rank=2)
    # The second matrix of a product starts at zero, so the first one has no gradient in the first step.
    assert {path.rpartition("/")[2] for path in moved(model, X, LABELS, adamw(1e-2))} >= {"lora_kernel_b", "kernel"}
    assert all("lora" in v.path or "classifier" in v.path for v in model.trainable_variables)


@pytest.mark.one_backend
def test_keras_files_train_on(tmp_path):
    model = MaskedLM(bert())
    moved(model, X, IDS, adamw(1e-2))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(again.optimizer.variables) == len(model.optimizer.variables)
    again.train_on_batch(X, IDS)
    model.train_on_batch(X, IDS)
    assert [v.path.partition("/")[2] for v in again.trainable_variables] == [
        v.path.partition("/")[2] for v in model.trainable_variables
    ]
