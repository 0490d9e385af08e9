"""Two optimizers that take turns train each model as an optimizer of its own would, after the update of the other."""

import keras
import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.models import Electra, ElectraConfig
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection
from kerasbert.objectives.shared_embeddings import with_embeddings
from kerasbert.training import AlternatingOptimizers, Checkpoints, LossScale, WarmupDecay, adamw
from tests.models.reference import randomize, to_numpy
from tests.objectives.test_replaced_token import LARGE, SMALL, batch, corrupted, electra, run_data


def pair(dropout=0.0, dtype=None, **options):
    backbones = (Electra(ElectraConfig(**{**sizes, "dropout": dropout}), dtype=dtype) for sizes in (SMALL, LARGE))
    return randomize(ReplacedTokenDetection(*backbones, embedding_sharing="disentangled", **options), 0.3)


def optimizers(**options):
    """Two optimizers with other rates, other moments, and limits of the norm that all gradients exceed."""
    first = adamw(WarmupDecay(1e-2, 0, 8), clip_norm=1e-2, weight_decay=0.0, **options)
    return first, adamw(WarmupDecay(3e-2, 0, 5), clip_norm=2e-3, weight_decay=0.0, beta_2=0.9, **options)


def alone(model, second_optimizer):
    """A discriminator with ordinary tables, which are the sums of the two of `model`, and its optimizer."""
    backbone = with_embeddings(model.discriminator.backbone)
    found = Discriminator(backbone)
    names = {v.path.split("/", 1)[1]: v for v in model.discriminator.replaced_token.weights}
    for variable in found.replaced_token.weights:
        variable.assign(to_numpy(names[variable.path.split("/", 1)[1]]))
    found.compile(second_optimizer, run_eagerly=True)
    return found


def tables(backbone):
    return [to_numpy(table.embeddings).copy() for table in backbone.embeddings[:3]]


def others(model):
    """All weights of a discriminator but its tables."""
    sizes = {(31, 10), (13, 10), (3, 10)}
    return [to_numpy(v) for v in model.trainable_variables if tuple(v.shape) not in sizes]


def assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(to_numpy(value))


def check_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)


def check_training(accumulation):
    """Trains a pair, and a copy of each of its models alone, with optimizers of the same settings."""
    model = pair(discriminator_weight=7.0)
    model.compile(AlternatingOptimizers(*optimizers(accumulation=accumulation)), run_eagerly=True)
    sampler = pair(discriminator_weight=7.0)  # samples what `model` will sample
    generator = MaskedLM(Electra(ElectraConfig(**SMALL)))
    assign(generator.weights, model.generator.weights)
    first, second = optimizers(accumulation=accumulation)
    generator.compile(first, run_eagerly=True)
    discriminator = alone(model, second)
    for step in range(4):
        x, y = batch(seed=step)
        assign(sampler.generator.weights, generator.weights)
        read = corrupted(x, to_numpy(sampler(x, training=True)["sampled"]))  # before the update
        before = tables(generator.backbone)
        generator.train_on_batch(x, y)
        moves = [new - old for old, new in zip(before, tables(generator.backbone), strict=True)]
        for table, move in zip(discriminator.backbone.embeddings[:3], moves, strict=True):
            table.embeddings.assign(to_numpy(table.embeddings) + move)  # the sum of the generator's and the difference
        assert (np.abs(moves[0]).max() > 1e-3) == (step % accumulation == accumulation - 1)
        inputs, labels = {"token_ids": read, "lengths": x["lengths"]}, (read != corrupted(x, y)).astype("int32")
        discriminator.reset_metrics()
        expected = discriminator.train_on_batch(inputs, labels, return_dict=True)["loss"]

        model.reset_metrics()
        logs = model.train_on_batch(x, y, return_dict=True)
        assert logs["rtd_loss"] == pytest.approx(float(expected), rel=1e-4)
        assert logs["loss"] == pytest.approx(float(logs["mlm_loss"] + 7.0 * logs["rtd_loss"]), rel=1e-5)
        check_equal(model.generator.weights, generator.weights)
        check_equal(tables(model.discriminator.backbone), tables(discriminator.backbone))
        check_equal(others(model.discriminator), others(discriminator))


@pytest.mark.one_backend
def test_each_model_is_trained_as_if_alone_after_the_update_of_the_other():
    check_training(accumulation=1)


@pytest.mark.one_backend
def test_accumulated_gradients_update_both_models_after_the_last_batch():
    check_training(accumulation=2)


def test_the_discriminator_reads_the_updated_embeddings_of_the_generator():
    model = pair()
    model.generator.masked_lm.bias.assign(np.where(np.arange(31) == 5, 60.0, 0.0))  # every sample is token 5
    before = tables(model.generator.backbone)
    x, y = batch()
    model.compile(AlternatingOptimizers(keras.optimizers.SGD(0.5), keras.optimizers.SGD(0.0)))
    found = float(model.train_on_batch(x, y, return_dict=True)["rtd_loss"])

    def loss():
        read = corrupted(x, np.full_like(y, 5))
        logits = to_numpy(model.discriminator({"token_ids": read, "lengths": x["lengths"]}))
        signs = np.where(read != corrupted(x, y), -1, 1)
        return np.logaddexp(0, signs * logits)[np.arange(11) < x["lengths"][:, None]].mean()

    assert found == pytest.approx(loss(), rel=1e-5)
    assert not np.array_equal(before[0], tables(model.generator.backbone)[0])
    assign([table.embeddings for table in model.generator.backbone.embeddings[:3]], before)
    assert abs(found - loss()) > 1e-3


@pytest.mark.one_backend
def test_gradients_are_clipped_separately():
    """The clipped gradient of the generator does not depend on that of the discriminator; in a joint step, it does."""
    moves = {}
    for separate in (True, False):
        for weight in (1.0, 1000.0):
            model = pair(discriminator_weight=weight)
            clipped = [keras.optimizers.SGD(1.0, global_clipnorm=0.1) for _ in range(2)]
            before = [to_numpy(v).copy() for v in model.trainable_variables]
            model.compile(AlternatingOptimizers(*clipped) if separate else clipped[0])
            model.train_on_batch(*batch())
            moved = [to_numpy(v) - old for v, old in zip(model.trainable_variables, before, strict=True)]
            first = {id(variable) for variable in model.generator.trainable_variables}
            squares = [0.0, 0.0]
            for variable, move in zip(model.trainable_variables, moved, strict=True):
                squares[id(variable) not in first] += float((move**2).sum())
            moves[separate, weight] = np.sqrt(squares)
    for weight in (1.0, 1000.0):
        np.testing.assert_allclose(moves[True, weight], 0.1, rtol=1e-4)
        assert np.hypot(*moves[False, weight]) == pytest.approx(0.1, rel=1e-4)
    assert moves[False, 1000.0][0] < 0.01 < moves[False, 1.0][0]


@pytest.mark.one_backend
def test_a_resumed_run_equals_one_without_a_stop(tmp_path):
    """With an odd number of batches of an update behind it, and dropout."""
    final = []
    for stops in ((6,), (3, 6)):
        for stop in stops:
            seed_everything(0 if stop == stops[0] else 1)  # a resumed run restores the seeds of dropout
            model = pair(dropout=0.1)
            model.compile(AlternatingOptimizers(*optimizers(accumulation=2)))
            rest = run_data(6)[0]
            rest._items = stop
            callbacks = [Checkpoints(tmp_path / str(len(stops)))]
            model.fit(rest, steps_per_epoch=3, callbacks=callbacks, verbose=0)
        final.append([to_numpy(variable).copy() for variable in (*model.variables, *model.optimizer.variables)])
        assert [int(to_numpy(part.iterations)) for part in model.optimizer.parts] == [3, 3]  # updates
    for one, other in zip(*final, strict=True):
        np.testing.assert_array_equal(one, other)
    joint = pair(dropout=0.1)
    joint.compile(optimizers(accumulation=2)[0])
    with pytest.raises(ValueError, match="belongs to another model or optimizer"):
        Checkpoints(tmp_path / "1").restore(joint)


@pytest.mark.one_backend
def test_keras_files_keep_both_optimizers(tmp_path):
    model = pair()
    model.compile(AlternatingOptimizers(*optimizers()))
    model.train_on_batch(*batch())
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for one, other in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    again.sampling_seed.state.assign(to_numpy(model.sampling_seed.state))  # such a file has no seeds
    for one in (model, again):
        one.train_on_batch(*batch(seed=1))
    for one, other in zip(model.variables, again.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@pytest.mark.one_backend
def test_rates_schedules_and_averages():
    model = pair()
    model.compile(AlternatingOptimizers(*optimizers()))
    x, y = batch()
    model.fit(x, y, batch_size=4, verbose=0)
    first, second = model.optimizer.parts
    assert float(model.optimizer.learning_rate) == float(first.learning_rate) == pytest.approx(1e-2 * 7 / 8)
    assert float(second.learning_rate) == pytest.approx(3e-2 * 4 / 5)
    second.learning_rate = WarmupDecay(1e-3, 0, 1)
    with pytest.warns(UserWarning, match="this run changes no weights"):
        model.fit(x, y, batch_size=4, verbose=0)
    model.optimizer.learning_rate = 1e-4
    assert float(first.learning_rate) == float(second.learning_rate) == pytest.approx(1e-4)

    averaged = [keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5) for _ in range(2)]
    model.compile(AlternatingOptimizers(*averaged))
    values = []
    for _ in range(2):  # the average begins with the values after the first update
        model.train_on_batch(x, y)
        values.append([to_numpy(v).copy() for v in model.trainable_variables])
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable, old, new in zip(model.trainable_variables, *values, strict=True):
        np.testing.assert_allclose(to_numpy(variable), (old + new) / 2, atol=1e-6)


@pytest.mark.one_backend
def test_float16_scales_each_loss():
    model = pair(dtype="mixed_float16")
    model.compile(AlternatingOptimizers(*optimizers()))
    first, second = model.optimizer.parts
    assert type(first) is type(second) is LossScale
    before = [to_numpy(v).copy() for v in model.discriminator.replaced_token.weights]
    model.optimizer.build(model.trainable_variables)
    first.dynamic_scale.assign(1e30)  # overflows, so the update of the generator is skipped
    second.dynamic_scale.assign(16.0)
    table = tables(model.generator.backbone)[0]
    model.train_on_batch(*batch())
    assert float(first.dynamic_scale) == pytest.approx(5e29) and float(second.dynamic_scale) == 16.0
    assert [int(part.iterations) for part in model.optimizer.parts] == [0, 1]
    np.testing.assert_array_equal(tables(model.generator.backbone)[0], table)
    moved = [
        np.abs(to_numpy(v) - old).max()
        for v, old in zip(model.discriminator.replaced_token.weights, before, strict=True)
    ]
    assert all(0 < move < 0.1 for move in moved)


# === Bad input ===


@pytest.mark.one_backend
def test_what_two_optimizers_cannot_train():
    both = AlternatingOptimizers(*optimizers())
    with pytest.raises(ValueError, match="must not train the same weights. Received: .*embeddings"):
        electra(embedding_sharing="shared").compile(both)
    frozen = pair()
    frozen.generator.trainable = False
    with pytest.raises(ValueError, match="Received: a frozen generator"):
        frozen.compile(both)
    model = MaskedLM(Electra(ElectraConfig(**SMALL)))
    model.compile(both)
    x, y = batch()
    with pytest.raises(ValueError, match="must be passed to the `compile` of a ReplacedTokenDetection"):
        model.fit(x, y, verbose=0)
    one = optimizers()[0]
    with pytest.raises(ValueError, match="the same optimizer twice"):
        AlternatingOptimizers(one, one)
    with pytest.raises(ValueError, match="the same `gradient_accumulation_steps`. Received: None and 4"):
        AlternatingOptimizers(one, adamw(1e-3, accumulation=4))
    trained = pair()
    trained.compile(AlternatingOptimizers("sgd", "adam"))
    trained.optimizer.build(trained.trainable_variables)
    with pytest.raises(ValueError, match="have no joint update"):
        trained.optimizer.apply([np.zeros(1)], trained.trainable_variables[:1])
