"""Distillation: worked examples, losses in closed form, a teacher that is not touched, the student's first weights."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import ExampleBatches, Tokenizer
from kerasbert.models import (
    Bert,
    BertConfig,
    DistilBert,
    DistilBertConfig,
    MobileBert,
    MobileBertConfig,
    ModernBert,
    ModernBertConfig,
)
from kerasbert.objectives import Distillation, KnowledgeTransfer, MaskedLM, start_from_teacher
from kerasbert.objectives.distillation import cosine_distance, soft_divergence, spread_layers
from kerasbert.objectives.knowledge_transfer import attention_divergence
from kerasbert.training import ProgressiveAdamW, adamw
from tests.models.reference import randomize, to_numpy

SIZES = dict(vocabulary_size=31, num_heads=2, hidden_dim=12, feed_forward_dim=20, max_length=13)
PLAIN = dict(dropout=0.0, attention_dropout=0.0)
MOBILE = dict(
    **dict(vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=12, max_length=13, num_segments=2),
    **dict(embedding_dim=6, feed_forward_dim=10),
)


def bert(layers=2, std=0.3, **options):
    backbone = Bert(BertConfig(**SIZES, num_layers=layers, **{**PLAIN, **options}), pooler=False)
    return randomize(MaskedLM(backbone), std)


def distilbert(layers=1, std=0.3, **options):
    return randomize(MaskedLM(DistilBert(DistilBertConfig(**SIZES, num_layers=layers, **{**PLAIN, **options}))), std, 5)


def mobile_pair(**options):
    """A student and its teacher: the same stream, bottleneck and inverted bottleneck."""
    student = MobileBertConfig(**MOBILE, bottleneck_dim=8, num_feed_forwards=2, attention_dropout=0.2)
    teacher = dict(normalization="layer_norm", activation="gelu_new", key_query_shared_bottleneck=False)
    teacher = MobileBertConfig(**MOBILE, bottleneck_dim=16, num_feed_forwards=1, dropout=0.2, **teacher)
    pair = [MaskedLM(MobileBert(config), **options) for config in (student, teacher)]
    return [randomize(half, 0.3, seed) for seed, half in enumerate(pair)]


def batch(rows=4, seed=0, pairs=False):
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.permutation(9)[:3] for _ in range(rows)]).astype("int32")
    positions[1, 1:] = -1
    lengths = np.full(rows, 11, "int32")
    lengths[2] = 9
    x = {"token_ids": rng.integers(0, 31, (rows, 11)).astype("int32"), "lengths": lengths}
    y = rng.integers(0, 31, (rows, 3)).astype("int32")
    if pairs:
        y = {"tokens": y, "sentence_pair": rng.integers(0, 2, rows).astype("int32")}
    return {**x, "masked_positions": positions}, y


def evaluated(model, *data):
    if not model.compiled:
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # a program for each model would take longer
    return model.evaluate(*data, verbose=0, return_dict=True)


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def tensors(*arrays):
    return [keras.ops.convert_to_tensor(np.array(array, "float32")) for array in arrays]


# === Worked examples ===


@pytest.mark.one_backend
def test_layers_of_the_paper():
    assert spread_layers(12, 6) == [0, 2, 4, 7, 9, 11]
    assert spread_layers(6, 3) == [0, 2, 5] and spread_layers(4, 4) == [0, 1, 2, 3]


def test_divergence_of_the_sheet():
    assert float(soft_divergence(*tensors([1, 0, -1], [2, 0, -2]), 2.0)) == pytest.approx(0.241076, abs=1e-6)
    assert float(soft_divergence(*tensors([2, 0, -2], [2, 0, -2]), 2.0)) == pytest.approx(0, abs=1e-6)


def test_cosine_of_the_sheet():
    losses = to_numpy(cosine_distance(*tensors([[[1, 0], [1, 1], [0, 0]]], [[[1, 0], [1, 0], [1, 0]]])))
    np.testing.assert_allclose(losses, [[0, 0.2929, 1]], atol=1e-4)


def test_attention_divergence_by_hand():
    mine, theirs = tensors([[[[0.5, 0.5, 0.0]]]], [[[[0.25, 0.75, 0.0]]]])
    expected = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    assert float(attention_divergence(mine, theirs)[0, 0]) == pytest.approx(expected, rel=1e-5)


# === DistilBERT ===


@pytest.mark.parametrize("slots_only", [False, True])
def test_loss_in_closed_form(slots_only):
    student, teacher = distilbert(), bert()
    model = Distillation(student, teacher, slots_only=slots_only)
    x, y = batch()
    everywhere = {key: value for key, value in x.items() if key != "masked_positions"}
    logits, soft = (to_numpy(half(everywhere)).astype("float64") for half in (student, teacher))
    states = [to_numpy(half.backbone(everywhere)["sequence_output"]) for half in (student, teacher)]
    real, slots = np.arange(11) < x["lengths"][:, None], np.zeros((4, 11), bool)
    used = x["masked_positions"] >= 0
    hard = []
    for row, slot in zip(*np.nonzero(used), strict=True):
        position = x["masked_positions"][row, slot]
        slots[row, position] = True
        hard.append(-np.log(softmax(logits[row, position])[y[row, slot]]))
    mine, theirs = softmax(logits / 2), softmax(soft / 2)
    divergence = 4 * (theirs * np.log(theirs / mine)).sum(axis=-1)
    cosine = 1 - (states[0] * states[1]).sum(-1) / np.prod([np.linalg.norm(s, axis=-1) for s in states], axis=0)
    expected = {"soft_loss": divergence[slots if slots_only else real].mean(), "mlm_loss": np.mean(hard)}
    expected["cosine_loss"] = cosine[real].mean()
    results = evaluated(model, x, y)
    for name, value in expected.items():
        assert results[name] == pytest.approx(value, rel=1e-4), name
    total = 5 * expected["soft_loss"] + 2 * expected["mlm_loss"] + expected["cosine_loss"]
    assert results["loss"] == pytest.approx(total, rel=1e-4)


@pytest.mark.one_backend
def test_the_teacher_has_no_dropout_no_gradient_and_no_place_in_the_folder(tmp_path):
    teacher = bert(dropout=0.5, attention_dropout=0.5)
    model = Distillation(distilbert(dropout=0.5, attention_dropout=0.5), teacher)
    x, y = batch()
    first, second = (model(x, training=True) for _ in range(2))
    np.testing.assert_array_equal(to_numpy(first["teacher_soft"]), to_numpy(second["teacher_soft"]))
    assert not np.array_equal(to_numpy(first["soft"]), to_numpy(second["soft"]))

    before = [to_numpy(variable).copy() for variable in teacher.weights]
    student = [to_numpy(variable).copy() for variable in model.student.trainable_variables]
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch(x, y)
    assert not [v for v in model.trainable_variables if any(v is other for other in teacher.weights)]
    for old, variable in zip(before, teacher.weights, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    moved = [
        not np.array_equal(a, to_numpy(b)) for a, b in zip(student, model.student.trainable_variables, strict=True)
    ]
    assert sum(moved) >= len(moved) - 1  # the key bias

    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is MaskedLM and type(again.backbone) is DistilBert
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(model.student(x)))


@pytest.mark.one_backend
def test_the_student_that_starts_from_its_teacher_is_a_thinner_bert():
    """Equal to a BERT of the chosen layers whose segment table is zero, head included."""
    teacher = bert(layers=4)
    student = distilbert(layers=2)
    filled = start_from_teacher(student, teacher, transform=True)
    assert len(filled) == 4 + 2 * 16 + 5
    thin = bert(layers=2)
    start_from_teacher(thin, teacher, layers=[0, 3], transform=True)
    thin.backbone.segment_embedding.embeddings.assign(np.zeros((2, 12)))
    x, _ = batch()
    np.testing.assert_allclose(to_numpy(student(x)), to_numpy(thin(x)), atol=1e-5)
    for layer, source in ((0, 0), (1, 3)):
        for one, other in zip(
            student.backbone.blocks[layer].attention.weights,
            teacher.backbone.blocks[source].attention.weights,
            strict=True,
        ):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    fresh = distilbert(layers=2)
    assert len(start_from_teacher(fresh, teacher)) == 4 + 2 * 16 + 1  # all but the layers of the head


@pytest.mark.one_backend
def test_layers_are_found_below_scopes():
    """The paths of variables begin with the scope in which they were created, and with names that Keras counts."""
    plain = set(start_from_teacher(distilbert(layers=2), bert(layers=4), transform=True))
    with keras.name_scope("outer"), keras.name_scope("masked_lm"):
        student = distilbert(layers=2)
    assert set(start_from_teacher(student, bert(layers=4), transform=True)) == plain


@pytest.mark.one_backend
def test_a_head_without_common_layers_cannot_be_copied():
    """The layers of ModernBERT's head have other names than BERT's. Token embeddings and the output bias are common."""
    teacher = MaskedLM(ModernBert(ModernBertConfig(**SIZES, num_layers=2)))
    with pytest.raises(
        ValueError, match="For transform=True, .* Received: heads of Bert and ModernBert, .* Use transform=False"
    ):
        start_from_teacher(bert(), teacher, layers=(), transform=True)
    filled = start_from_teacher(bert(), teacher, layers=())
    assert {"token_embedding/embeddings", "masked_lm/bias"} <= set(filled)


@pytest.mark.one_backend
def test_weights_of_rows_and_unused_slots_and_padding():
    model = Distillation(distilbert(), bert())
    x, y = batch()
    rows = np.array([1, 1, 1, 0], "float32")
    plain = evaluated(model, *[{key: value[:3] for key, value in x.items()}, y[:3]])
    x["token_ids"][2, 9:], y[1, 1:] = 7, 7
    assert evaluated(model, x, y, 32, rows) == pytest.approx(plain, rel=1e-4)


def constant_rows(count):
    """Rows of one token each, two of them masked."""
    rng = np.random.default_rng(3)
    ids = np.repeat(rng.integers(3, 13, (count, 1)), 11, axis=1).astype("int32")
    positions = np.stack([rng.permutation(11)[:2] for _ in ids]).astype("int32")
    y = np.take_along_axis(ids, positions, 1)
    np.put_along_axis(ids, positions, 2, 1)
    return {"token_ids": ids, "masked_positions": positions}, y


@pytest.mark.one_backend
def test_a_student_learns_what_its_teacher_says():
    teacher, (x, y) = bert(layers=2), constant_rows(640)
    student = distilbert(layers=1, std=0.05)
    start_from_teacher(student, teacher)
    model = Distillation(student, teacher, mlm_weight=0.0)
    some = {key: value[:64] for key, value in x.items()}, y[:64]
    before = evaluated(model, *some)
    model.compile(adamw(1e-2, warmup=8, steps=80))
    model.fit(ExampleBatches(x, y, batch_size=8, shuffle=False), steps_per_epoch=80, verbose=0)
    after = evaluated(model, *some)
    assert after["soft_loss"] < 0.25 * before["soft_loss"] and after["cosine_loss"] < before["cosine_loss"]


@pytest.mark.one_backend
def test_distillation_from_folders_and_keras_files(tmp_path):
    bert().save_to_preset(tmp_path / "teacher")
    distilbert().save_to_preset(tmp_path / "student")
    model = Distillation(tmp_path / "student", tmp_path / "teacher", temperature=3.0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.arguments() == model.arguments()
    assert not {id(v) for v in again.trainable_variables} & {id(v) for v in again.teacher.variables}
    x, _ = batch()
    found = again(x)
    for name, expected in model(x).items():
        np.testing.assert_array_equal(to_numpy(found[name]), to_numpy(expected))


@pytest.mark.one_backend
def test_texts_train_it():
    texts = ["the cat sat on the mat and the dog ran"] * 8
    tokenizer = Tokenizer.train("wordpiece", texts, 31)
    size = dict(vocabulary_size=tokenizer.vocabulary_size)
    teacher = MaskedLM(Bert(BertConfig(**{**SIZES, **size}, num_layers=1), pooler=False), tokenizer=tokenizer)
    student = DistilBert(DistilBertConfig(**{**SIZES, **size}, num_layers=1))
    history = Distillation(student, teacher).fit(texts, batch_size=4, verbose=0).history
    assert history["soft_loss"][0] > 0


# === MobileBERT ===


@pytest.mark.one_backend
def test_layer_losses_in_closed_form():
    student, teacher = mobile_pair()
    model = KnowledgeTransfer(student, teacher, transfer_steps=4)
    x, y = batch()
    outputs = keras.tree.map_structure(to_numpy, model(x))
    real, layers = np.arange(11) < x["lengths"][:, None], []
    for layer in range(2):
        mine, theirs = (outputs[name][layer].astype("float64") for name in ("features", "teacher_features"))
        normal = [(f - f.mean(-1, keepdims=True)) / f.std(-1, keepdims=True) for f in (mine, theirs)]
        attention, target = (outputs[name][layer].astype("float64") for name in ("attention", "teacher_attention"))
        ratio = np.log(np.maximum(target, 1e-30) / np.maximum(attention, 1e-30))
        of_tokens = 100 * np.square(normal[0] - normal[1]).mean(-1)
        of_tokens += 5000 * np.square(mine.mean(-1) - theirs.mean(-1)) + 5 * np.abs(mine.var(-1) - theirs.var(-1))
        of_tokens += (target * ratio).sum(-1).mean(1)
        layers.append(of_tokens[real].mean())
    assert evaluated(model, x, y)["loss"] == pytest.approx(layers[0] / 2, rel=1e-3)  # the first phase
    model.step.assign(2)
    results = evaluated(model, x, y)
    assert results["loss"] == pytest.approx(layers[1] / 2, rel=1e-3)
    assert results["transfer_loss"] == pytest.approx(sum(layers) / 2, rel=1e-3)

    used = x["masked_positions"] >= 0
    mine, theirs = (softmax(outputs[name].astype("float64")) for name in ("tokens", "teacher_tokens"))
    mixed = 0.5 * np.eye(31)[y] + 0.5 * theirs
    distilled = -(mixed * np.log(mine)).sum(-1)[used].mean()
    model.step.assign(4)
    assert evaluated(model, x, y)["loss"] == pytest.approx(distilled, rel=1e-4)
    for strategy, step, expected in (
        ("joint", 0, sum(layers) / 2),
        ("joint", 4, distilled),
        ("auxiliary", 0, sum(layers) / 2 + distilled),
    ):
        if model.strategy != strategy:
            model.strategy = strategy
        model.step.assign(step)
        assert evaluated(model, x, y)["loss"] == pytest.approx(expected, rel=1e-3), strategy


@pytest.mark.one_backend
def test_sentence_pairs_are_part_of_the_distillation():
    student, teacher = mobile_pair(sentence_pair=True)
    model = KnowledgeTransfer(student, teacher, transfer_steps=0, strategy="joint", hard_share=1.0)
    x, y = batch(pairs=True)
    expected = evaluated(student, x, y)
    results = evaluated(model, x, y)
    assert results["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert results["sentence_pair_loss"] == pytest.approx(expected["sentence_pair_loss"], rel=1e-4)


@pytest.mark.one_backend
def test_steps_are_counted_and_nobody_has_dropout():
    student, teacher = mobile_pair()
    model = KnowledgeTransfer(student, teacher, transfer_steps=2)
    x, y = batch()
    first, second = (to_numpy(model(x, training=True)["tokens"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    model.compile(keras.optimizers.SGD(0.0))
    for _ in range(3):
        model.train_on_batch(x, y)
    model.evaluate(x, y, verbose=0)
    assert int(to_numpy(model.step)) == 3


@pytest.mark.one_backend
def test_every_block_learns_in_its_phase():
    student, teacher = mobile_pair()
    filled = start_from_teacher(student, teacher, layers=(), transform=True)
    assert "token_embedding/embeddings" in filled and "masked_lm/extra_table" in filled
    assert not [path for path in filled if path.startswith(("block_", "embedding_norm"))]
    model = KnowledgeTransfer(student, teacher, transfer_steps=4)
    optimizer = ProgressiveAdamW(1e-2, transfer_steps=4, weight_decay=0.1)
    model.compile(optimizer)
    x, y = batch()
    parts = {"block_0": [], "block_1": [], "token_embedding": [], "masked_lm": []}

    def values():
        return {
            part: np.concatenate([to_numpy(v).ravel() for v in model.trainable_variables if f"{part}/" in v.path])
            for part in parts
        }

    before = values()
    for _ in range(5):
        model.train_on_batch(x, y)
        after = values()
        for part, moves in parts.items():
            moves.append(float(np.abs(after[part] - before[part]).max()))
        before = after
    # Phases of two updates; a phase's first one has rate 0. Then all learn.
    assert [move > 0 for move in parts["block_0"]] == [False, True, False, True, True]
    assert [move > 0 for move in parts["block_1"]] == [False, False, False, True, True]
    assert [move > 0 for move in parts["token_embedding"]] == [False, False, False, False, True]
    assert [move > 0 for move in parts["masked_lm"]] == [False, False, False, False, True]


@pytest.mark.one_backend
def test_losses_of_the_layers_fall():
    student, teacher = mobile_pair()
    start_from_teacher(student, teacher, layers=(), transform=True)
    model = KnowledgeTransfer(student, teacher, strategy="joint", transfer_steps=100)
    x, y = constant_rows(640)
    some = {key: value[:64] for key, value in x.items()}, y[:64]
    before = evaluated(model, *some)["transfer_loss"]
    model.compile(adamw(1e-2, warmup=8, steps=80))
    model.fit(ExampleBatches(x, y, batch_size=8, shuffle=False), steps_per_epoch=80, verbose=0)
    assert evaluated(model, *some)["transfer_loss"] < 0.3 * before


# === Bad input ===


@pytest.mark.one_backend
def test_pairs_that_do_not_match():
    teacher = bert(layers=2)
    with pytest.raises(ValueError, match="only a backbone"):
        Distillation(distilbert(), teacher.backbone)
    with pytest.raises(ValueError, match="must have the same vocabulary"):
        Distillation(Bert(BertConfig(**{**SIZES, "vocabulary_size": 30}, num_layers=1), pooler=False), teacher)
    narrow = Bert(BertConfig(**{**SIZES, "hidden_dim": 8}, num_layers=2), pooler=False)
    with pytest.raises(ValueError, match="cosine_weight=0"):
        Distillation(narrow, teacher)
    with pytest.raises(ValueError, match="must have the same `hidden_dim`"):
        KnowledgeTransfer(narrow, teacher)
    with pytest.raises(ValueError, match="`temperature` must be above 0"):
        Distillation(distilbert(), teacher, temperature=0)
    with pytest.raises(ValueError, match="must have the same `num_layers`"):
        KnowledgeTransfer(bert(layers=1), teacher)
    for options, message in (
        (dict(strategy="slow"), "`strategy` must be one of"),
        (dict(transfer_steps=3), "a multiple of 2 layers"),
        (dict(hard_share=2.0), "`hard_share` must be between"),
    ):
        with pytest.raises(ValueError, match=message):
            KnowledgeTransfer(bert(layers=2), teacher, **options)
    with pytest.raises(ValueError, match="none"):
        start_from_teacher(MaskedLM(narrow), teacher_of_another_width())


def teacher_of_another_width():
    sizes = dict(vocabulary_size=37, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=15)
    return MaskedLM(Bert(BertConfig(**sizes, num_segments=3, num_layers=1), pooler=False))
