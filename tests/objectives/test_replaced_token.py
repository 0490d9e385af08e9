"""Replaced token detection: gradients, sampling and labels as ELECTRA has them, folders, resume, ablations."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import ExampleBatches, Tokenizer
from kerasbert.models import Bert, BertConfig, DebertaV2, DebertaV2Config, Electra, ElectraConfig
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection
from kerasbert.objectives.discriminator import copy_cross_entropy
from kerasbert.training import Checkpoints, adamw
from tests.models.reference import randomize, their_model, to_numpy

SMALL = dict(
    **dict(vocabulary_size=31, embedding_dim=10, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=20),
    **dict(max_length=13, num_segments=3, dropout=0.0, attention_dropout=0.0),
)
LARGE = {**SMALL, "num_heads": 3, "hidden_dim": 18}


def electra(**options):
    model = ReplacedTokenDetection(Electra(ElectraConfig(**SMALL)), Electra(ElectraConfig(**LARGE)), **options)
    return randomize(model, 0.3)


def batch(rows=4, length=11, slots=3, seed=0):
    rng = np.random.default_rng(seed)
    positions = np.stack([rng.permutation(length - 2)[:slots] for _ in range(rows)]).astype("int32")
    positions[1, 1:] = -1
    lengths = np.full(rows, length, "int32")
    lengths[2] = length - 2
    x = {"token_ids": rng.integers(0, 31, (rows, length)).astype("int32"), "lengths": lengths}
    return {**x, "masked_positions": positions}, rng.integers(0, 31, (rows, slots)).astype("int32")


def evaluated(model, x, y, **options):
    if not model.compiled:
        model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)  # one program a model would take longer
    return model.evaluate(x, y, batch_size=len(y), verbose=0, return_dict=True, **options)


def answers(model, x):
    """Outputs as `evaluate` would have them first: with the evaluation's seed where it began."""
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(model.seed).state)
    outputs = keras.tree.map_structure(to_numpy, model(x))
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(model.seed).state)
    return outputs


def corrupted(x, sampled):
    ids = x["token_ids"].copy()
    for row, slot in zip(*np.nonzero(x["masked_positions"] >= 0), strict=True):
        ids[row, x["masked_positions"][row, slot]] = sampled[row, slot]
    return ids


# === The loss ===


@pytest.mark.one_backend
def test_a_model_that_knows_nothing_has_the_losses_of_its_two_distributions():
    model = electra()
    for variable in model.trainable_variables:
        variable.assign(np.zeros(variable.shape))
    results = evaluated(model, *batch())
    assert results["loss"] == pytest.approx(np.log(31) + 50 * np.log(2), rel=1e-6)
    assert results["mlm_loss"] == pytest.approx(np.log(31), rel=1e-6)
    assert results["rtd_loss"] == pytest.approx(np.log(2), rel=1e-6)
    assert results["rtd_auc"] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("objective", ["replaced_tokens", "replaced_slots", "replace_mlm", "all_tokens_mlm"])
def test_losses_in_closed_form(objective):
    model = electra(objective=objective)
    x, y = batch()
    outputs = answers(model, x)
    used, real = x["masked_positions"] >= 0, np.arange(11) < x["lengths"][:, None]
    read, originals = corrupted(x, outputs["sampled"]), corrupted(x, y)
    found = keras.tree.map_structure(to_numpy, model.discriminator({**x, "token_ids": read}))
    for name, logits in (found if isinstance(found, dict) else {"": found}).items():
        mine = {"tokens": "originals", "replaced": "replaced"}.get(name) or sorted(
            outputs.keys() - {"tokens", "sampled"}
        )[0]
        np.testing.assert_allclose(outputs[mine], logits, atol=1e-5)

    def mean(losses, weights):
        return (losses * weights).sum() / weights.sum()

    def log_softmax(logits):
        return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)

    def chosen(logits, labels):
        return np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]

    generator = mean(-chosen(outputs["tokens"], y), used)
    if objective == "replace_mlm":
        second = mean(-chosen(outputs["originals"], y), used)
    elif objective == "all_tokens_mlm":
        copy = 1 / (1 + np.exp(outputs["replaced"]))
        shares = copy * (read == originals) + (1 - copy) * np.exp(chosen(outputs["originals"], originals))
        second = mean(-np.log(shares), real)
    else:
        labels, slots = read != originals, corrupted({**x, "token_ids": x["token_ids"] * 0}, y * 0 + 1)
        losses = -np.log(1 / (1 + np.exp(np.where(labels, -1, 1) * outputs["replaced"])))
        second = mean(losses, real * slots if objective == "replaced_slots" else real)
    results = evaluated(model, x, y)
    assert results["mlm_loss"] == pytest.approx(generator, rel=1e-4)
    assert results["rtd_loss"] == pytest.approx(second, rel=1e-4)
    weight = 50.0 if objective.startswith("replaced") else 1.0
    assert model.discriminator_weight == weight
    assert results["loss"] == pytest.approx(generator + weight * second, rel=1e-4)


def test_a_sampled_token_that_is_the_original_counts_as_original():
    """A generator that is sure of token 7: labels are 1 where y is another token, and 0 everywhere else."""
    model = electra()
    model.generator.masked_lm.bias.assign(1e4 * np.eye(31)[7])
    x, y = batch()
    y[:, 0] = 7
    outputs = answers(model, x)
    used = x["masked_positions"] >= 0
    assert (outputs["sampled"][used] == 7).all()
    labels = np.zeros((4, 11))
    for row, slot in zip(*np.nonzero(used & (y != 7)), strict=True):
        labels[row, x["masked_positions"][row, slot]] = 1
    real = np.arange(11) < x["lengths"][:, None]
    results = evaluated(model, x, y)
    assert results["replaced_rate"] == pytest.approx(labels[real].mean()) and 0 < labels.sum() < used.sum()
    right = (outputs["replaced"] > 0) == labels
    assert results["rtd_accuracy"] == pytest.approx(right[real].mean(), abs=1e-6)
    assert results["rtd_auc"] == pytest.approx(_auc(outputs["replaced"][real], labels[real]), abs=0.02)


def _auc(scores, labels):
    above = scores[labels == 1][:, None] - scores[labels == 0]
    return np.mean((above > 0) + 0.5 * (above == 0))


@pytest.mark.one_backend
def test_two_slots_of_one_position_share_the_first_sample():
    model = electra()
    x, y = batch()
    x["masked_positions"][0] = [4, 4, 4]
    y[0] = y[0, 0]
    outputs = answers(model, x)
    read = x["token_ids"].copy()
    for row in range(4):
        for slot in reversed(range(3)):
            if x["masked_positions"][row, slot] >= 0:
                read[row, x["masked_positions"][row, slot]] = outputs["sampled"][row, slot]
    np.testing.assert_allclose(outputs["replaced"], to_numpy(model.discriminator({**x, "token_ids": read})), atol=1e-5)


@pytest.mark.one_backend
def test_padding_and_unused_slots_count_nothing():
    model = electra()
    x, y = batch()
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(0).state)
    plain = evaluated(model, x, y)
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(0).state)
    x["token_ids"][2, 9:] = 30
    y[1, 1:] = 30
    assert evaluated(model, x, y) == pytest.approx(plain, rel=1e-5)
    rows = np.array([1, 0, 1, 1], "float32")
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(0).state)
    weighted = evaluated(model, x, y, sample_weight=rows)
    y[1, 0], x["token_ids"][1] = 0, 5
    model.evaluation_seed.state.assign(keras.random.SeedGenerator(0).state)
    assert evaluated(model, x, y, sample_weight=rows) == pytest.approx(weighted, rel=1e-5)


# === Gradients ===


def _moved(model, batch, replaced_tokens):
    """What one step of plain gradient descent adds to every weight of a half, or of the tables; then goes back."""
    before = [to_numpy(variable).copy() for variable in model.trainable_variables]
    x, y = batch
    x = {**x, "loss_normalizer": {"tokens": np.full(4, 2.5, "float32"), "replaced": replaced_tokens}}
    model.train_on_batch(x, y)
    moved = {}
    for variable, old in zip(model.trainable_variables, before, strict=True):
        moved[id(variable)] = to_numpy(variable) - old
        variable.assign(old)
    tables = [variable for layer in model.generator.backbone.embeddings for variable in layer.weights]
    halves = {
        "tables": tables,
        "generator": [v for v in model.generator.trainable_variables if id(v) not in {id(t) for t in tables}],
        "discriminator": [v for v in model.discriminator.trainable_variables if id(v) not in {id(t) for t in tables}],
    }
    return {name: [moved[id(variable)] for variable in half] for name, half in halves.items()}


@pytest.mark.parametrize("sharing", ["shared", "disentangled"])
def test_no_gradient_passes_through_the_samples_and_embeddings_learn_as_they_are_shared(sharing):
    """The discriminator's loss counts, or is divided by so much that it does not; training draws from its own seed."""
    generator, discriminator = (Electra(ElectraConfig(**sizes)) for sizes in (SMALL, LARGE))
    model = randomize(ReplacedTokenDetection(generator, discriminator, embedding_sharing=sharing), 0.3)
    model.compile(keras.optimizers.SGD(1.0))
    given = [to_numpy(variable).copy() for variable in generator.weights]
    seeds = [to_numpy(seed.state).copy() for seed in (model.sampling_seed, model.evaluation_seed)]
    without, with_both = (_moved(model, batch(), np.full(4, count, "float32")) for count in (1e20, 10.0))
    for one, other in zip(without["generator"], with_both["generator"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert max(np.abs(moved).max() for moved in without["discriminator"]) < 1e-12
    assert sum(moved.any() for moved in with_both["discriminator"]) >= len(with_both["discriminator"]) - 2  # key biases
    same = [
        np.allclose(one, other, atol=1e-6) for one, other in zip(without["tables"], with_both["tables"], strict=True)
    ]
    assert without["tables"][0].any()
    assert not any(same) if sharing == "shared" else all(same)
    assert not np.array_equal(to_numpy(model.sampling_seed.state), seeds[0])
    np.testing.assert_array_equal(to_numpy(model.evaluation_seed.state), seeds[1])
    if sharing == "shared":  # a backbone that was copied is left alone
        assert model.generator.backbone is not generator and model.discriminator.backbone is discriminator
        for old, variable in zip(given, generator.weights, strict=True):
            np.testing.assert_array_equal(old, to_numpy(variable))


@pytest.mark.one_backend
def test_halves_that_share_nothing_keep_their_own_tables():
    model = electra(embedding_sharing="none")
    generator, discriminator = (
        [v for layer in half.backbone.embeddings for v in layer.weights]
        for half in (model.generator, model.discriminator)
    )
    assert [v.shape for v in generator] == [v.shape for v in discriminator]
    assert not {id(v) for v in generator} & {id(v) for v in discriminator}
    assert all(any(v is t for t in model.trainable_variables) for v in generator + discriminator)


def test_disentangled_tables_start_at_the_generators_and_follow_them():
    halves = [randomize(Electra(ElectraConfig(**sizes)), seed=seed) for seed, sizes in enumerate((SMALL, LARGE))]
    model = ReplacedTokenDetection(*halves, embedding_sharing="disentangled")
    theirs, mine = model.generator.backbone.embeddings, model.discriminator.backbone.embeddings
    for one, other in zip(theirs[:3], mine[:3], strict=True):
        np.testing.assert_array_equal(to_numpy(one.embeddings), to_numpy(other.embeddings))
    assert mine[3] is not theirs[3]
    mine[0].difference.assign(np.ones((31, 10)))
    theirs[0].embeddings.assign(np.full((31, 10), 0.5))
    assert (to_numpy(mine[0].embeddings) == 1.5).all()
    np.testing.assert_array_equal(to_numpy(mine[0](np.array([[3, 4]], "int32"))), np.full((1, 2, 10), 1.5))


@pytest.mark.one_backend
def test_the_loss_of_a_batch_is_the_mean_of_those_of_its_pieces():
    """So are accumulated gradients. Sampling at temperature zero, near enough, so that both see one corruption."""
    x, y = batch(rows=8)
    used, real = x["masked_positions"] >= 0, np.arange(11) < x["lengths"][:, None]
    model = electra(temperature=1e-6)
    losses = []
    for rows in (slice(0, 8), slice(0, 4), slice(4, 8)):
        part = {key: value[rows] for key, value in x.items()}
        weights = {"tokens": used[rows].astype("float32"), "replaced": real[rows].astype("float32")}
        if rows != slice(0, 8):
            shares = {"tokens": used.sum() / 8, "replaced": real.sum() / 8}
            part["loss_normalizer"] = {name: np.full(4, share, "float32") for name, share in shares.items()}
        outputs = model(part, training=True)
        losses.append(float(to_numpy(model.compute_loss(part, {"tokens": y[rows]}, outputs, weights))))
    assert losses[0] == pytest.approx(np.mean(losses[1:]), rel=1e-5)
    assert losses[1] != pytest.approx(losses[2], rel=1e-3)


# === Sampling ===


def test_samples_have_the_generators_distribution():
    model = electra()
    chances = np.random.default_rng(0).dirichlet(np.ones(31))
    logits = keras.ops.convert_to_tensor(np.broadcast_to(np.log(chances), (400, 52, 31)).astype("float32"))
    for training, temperature in ((True, 1.0), (False, 2.0)):
        model.temperature = temperature
        sampled = to_numpy(model._sample(logits, training))
        assert sampled.shape == (400, 52) and sampled.dtype == np.int32
        expected = chances ** (1 / temperature)
        expected = expected / expected.sum() * 20_800
        found = np.bincount(sampled.ravel(), minlength=31)
        # Chi-square of 30 degrees: below once in 1e5.
        assert ((found - expected) ** 2 / np.maximum(expected, 1)).sum() < 75
        assert (sampled != to_numpy(model._sample(logits, training))).mean() > 0.5


@pytest.mark.one_backend
def test_evaluation_draws_on_its_own_and_leaves_training_alone():
    model = electra()
    x, _ = batch()
    seeds = {True: model.sampling_seed, False: model.evaluation_seed}
    before = {training: to_numpy(seed.state).copy() for training, seed in seeds.items()}
    model(x, training=False)
    np.testing.assert_array_equal(to_numpy(seeds[True].state), before[True])
    assert not np.array_equal(to_numpy(seeds[False].state), before[False])
    before[False] = to_numpy(seeds[False].state).copy()
    model(x, training=True)
    np.testing.assert_array_equal(to_numpy(seeds[False].state), before[False])
    assert not np.array_equal(to_numpy(seeds[True].state), before[True])


def run_data(steps):
    """Rows whose masked tokens their neighbors tell."""
    rng = np.random.default_rng(3)
    start = rng.integers(0, 10, (steps * 8, 1))
    ids = np.repeat(3 + start, 11, axis=1).astype("int32")
    positions = np.stack([rng.permutation(11)[:2] for _ in ids]).astype("int32")
    y = np.take_along_axis(ids, positions, 1)
    x = ids.copy()
    np.put_along_axis(x, positions, 2, 1)
    x = {"token_ids": x, "masked_positions": positions}
    return ExampleBatches(x, {"tokens": y}, batch_size=8, shuffle=False), (x, y)


@pytest.mark.one_backend
def test_a_resumed_run_equals_one_without_a_stop(tmp_path):
    batches, _ = run_data(4)
    final = []
    for stops in ((4,), (2, 4)):
        for stop in stops:
            model = electra()
            model.compile(adamw(1e-2))
            rest = run_data(4)[0]
            rest._items = stop
            folder = tmp_path / str(len(stops))
            model.fit(rest, steps_per_epoch=2, callbacks=[Checkpoints(folder)], verbose=0)
        final.append([to_numpy(variable).copy() for variable in model.variables])
    for one, other in zip(*final, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(batches) == 4


@pytest.mark.one_backend
def test_losses_fall():
    batches, (x, y) = run_data(120)
    halves = [Electra(ElectraConfig(**sizes, initializer_range=0.1)) for sizes in (SMALL, LARGE)]
    model = ReplacedTokenDetection(*halves)
    model.compile(adamw(1e-2, warmup=10, steps=120))
    model.fit(batches, steps_per_epoch=120, verbose=0)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    results = model.evaluate(x, y, batch_size=960, verbose=0, return_dict=True)
    rate = results["replaced_rate"]
    assert results["mlm_loss"] < np.log(10) - 0.5
    assert results["rtd_loss"] < -rate * np.log(rate) - (1 - rate) * np.log(1 - rate) - 0.05
    assert results["rtd_auc"] > 0.8


# === Files ===


def their_pair(folder):
    """Two models of transformers, in folders `generator` and `discriminator`."""
    import transformers

    sizes = dict(vocab_size=31, embedding_size=10, max_position_embeddings=13, type_vocab_size=3)
    small = dict(hidden_size=12, num_attention_heads=2, intermediate_size=20, num_hidden_layers=1)
    large = dict(hidden_size=18, num_attention_heads=3, intermediate_size=20, num_hidden_layers=2)
    configs = [transformers.ElectraConfig(**sizes, **size) for size in (small, large)]
    generator = their_model("ElectraForMaskedLM", configs[0], folder / "generator", seed=1)
    return generator, their_model("ElectraForPreTraining", configs[1], folder / "discriminator", seed=2)


@pytest.mark.parametrize(
    "sharing", [*(pytest.param(name, marks=pytest.mark.one_backend) for name in ("none", "disentangled")), "shared"]
)
def test_folders_equal_transformers_both_ways(sharing, tmp_path):
    import torch

    theirs = their_pair(tmp_path)
    model = ReplacedTokenDetection(tmp_path / "generator", tmp_path / "discriminator", embedding_sharing=sharing)
    x, _ = batch()

    def check(model, generator, discriminator, skip_generator=False):
        outputs = answers(model, x)
        mask = torch.from_numpy((np.arange(11) < x["lengths"][:, None]).astype("int64"))
        with torch.no_grad():
            tokens = generator(torch.from_numpy(x["token_ids"].astype("int64")), mask).logits.numpy()
            read = torch.from_numpy(corrupted(x, outputs["sampled"]).astype("int64"))
            replaced = discriminator(read, mask).logits.numpy()
        real = mask.numpy() > 0
        np.testing.assert_allclose(outputs["replaced"][real], replaced[real], atol=2e-5)
        for row, slot in zip(*np.nonzero(x["masked_positions"] >= 0), strict=True):
            expected = tokens[row, x["masked_positions"][row, slot]]
            assert skip_generator or np.abs(outputs["tokens"][row, slot] - expected).max() < 2e-5

    check(model, *theirs, skip_generator=sharing == "shared")  # its tables are the discriminator's now
    model.save_to_preset(tmp_path / "ours")
    halves = []
    for half, name in zip(theirs, ("generator", "discriminator"), strict=True):
        again, report = type(half).from_pretrained(tmp_path / "ours" / name, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"], report
        halves.append(again.eval())
    check(model, *halves)
    loaded = kerasbert.load(tmp_path / "ours")
    assert type(loaded) is ReplacedTokenDetection and loaded.arguments() == model.arguments()
    check(loaded, *halves)
    assert type(kerasbert.load(tmp_path / "ours" / "generator")) is MaskedLM
    assert type(kerasbert.load(tmp_path / "ours" / "discriminator")) is Discriminator


@pytest.mark.one_backend
def test_a_pair_of_folders_and_a_lone_discriminator_are_recognized(tmp_path):
    _, theirs = their_pair(tmp_path)
    assert type(kerasbert.load(tmp_path)) is ReplacedTokenDetection
    lone = kerasbert.load(tmp_path / "discriminator")
    assert type(lone) is Discriminator and lone.backbone.config.num_layers == theirs.config.num_hidden_layers


@pytest.mark.one_backend
@pytest.mark.parametrize("objective", ["replace_mlm", "all_tokens_mlm"])
def test_ablations_round_trip(objective, tmp_path):
    model = electra(objective=objective)
    model.save_to_preset(tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    x, _ = batch()
    for again in (kerasbert.load(tmp_path / "folder"), keras.saving.load_model(tmp_path / "model.keras")):
        assert again.objective == objective
        found = answers(again, x)
        for name, expected in answers(model, x).items():
            np.testing.assert_array_equal(found[name], expected)


@pytest.mark.one_backend
def test_keras_files_keep_the_difference(tmp_path):
    model = electra(embedding_sharing="disentangled")
    model.discriminator.backbone.token_embedding.difference.assign(np.full((31, 10), 0.25))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert (to_numpy(again.discriminator.backbone.token_embedding.difference) == 0.25).all()
    x, _ = batch()
    np.testing.assert_array_equal(answers(again, x)["replaced"], answers(model, x)["replaced"])


@pytest.mark.one_backend
def test_deberta_trains_a_pair_with_disentangled_tables(tmp_path):
    """Version 3: a generator with the mask decoder, a discriminator without; position tables are shared or absent."""
    sizes = dict(vocabulary_size=31, num_heads=2, hidden_dim=12, feed_forward_dim=20, max_length=23, distance_buckets=8)
    generator = DebertaV2(DebertaV2Config(**sizes, num_layers=1, mask_decoder=True))
    discriminator = DebertaV2(DebertaV2Config(**sizes, num_layers=1))
    model = ReplacedTokenDetection(generator, discriminator, embedding_sharing="disentangled")
    model.compile(keras.optimizers.SGD(0.1))
    x, y = batch()
    model.train_on_batch(x, y)
    assert to_numpy(model.discriminator.backbone.token_embedding.difference).any()
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    found = answers(again, x)
    for name, expected in answers(model, x).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-5)
    assert type(kerasbert.load(tmp_path / "discriminator")) is Discriminator


@pytest.mark.one_backend
def test_a_size_brings_its_generator():
    model = ReplacedTokenDetection.from_preset("electra_small", load_weights=False, num_layers=1, vocabulary_size=50)
    assert model.generator.backbone.config.hidden_dim == 64
    assert model.discriminator.backbone.config.hidden_dim == 256
    assert model.generator.backbone.token_embedding is model.discriminator.backbone.token_embedding
    assert model.discriminator_weight == 50.0


# === Text ===


@pytest.mark.one_backend
def test_text_in_scores_out():
    texts = ["the cat sat on the mat", "a dog ran to the log", "the dog sat", "a cat ran on"] * 3
    tokenizer = Tokenizer.train("wordpiece", texts, 40)
    sizes = dict(vocabulary_size=tokenizer.vocabulary_size, max_length=13)
    halves = [Electra(ElectraConfig(**{**size, **sizes})) for size in (SMALL, LARGE)]
    model = ReplacedTokenDetection(*halves, tokenizer=tokenizer)
    model.fit(texts, batch_size=4, epochs=2, verbose=0)
    scores = Discriminator(halves[1], tokenizer=tokenizer).score_tokens("the cat sat")
    assert [entry["token"] for entry in scores] == [
        tokenizer.token(i) for i in tokenizer.encode(["the cat sat"], False)[0]
    ]
    assert all(0 < entry["score"] < 1 for entry in scores)
    with pytest.raises(ValueError, match="are in the text"):
        model.fit(texts, [0] * 12, verbose=0)


# === Bad input ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(embedding_sharing="half"), "`embedding_sharing` must be one of"),
        (dict(objective="mlm"), "`objective` must be one of"),
        (dict(temperature=0.0), "`temperature` must be above 0"),
    ],
)
def test_arguments_that_mean_nothing(options, message):
    with pytest.raises(ValueError, match=message):
        ReplacedTokenDetection(Electra(ElectraConfig(**SMALL)), Electra(ElectraConfig(**LARGE)), **options)


@pytest.mark.one_backend
def test_pairs_that_do_not_match():
    large = Electra(ElectraConfig(**LARGE))
    with pytest.raises(ValueError, match="must have the same vocabulary"):
        ReplacedTokenDetection(Electra(ElectraConfig(**{**SMALL, "vocabulary_size": 30})), large)
    with pytest.raises(ValueError, match="Shared embeddings must have the shapes"):
        ReplacedTokenDetection(Electra(ElectraConfig(**{**SMALL, "embedding_dim": 8})), large)
    with pytest.raises(ValueError, match="needs Discriminator\\(masked_lm=True\\)"):
        ReplacedTokenDetection(Electra(ElectraConfig(**SMALL)), Discriminator(large), objective="all_tokens_mlm")
    with pytest.raises(ValueError, match="Expected a Discriminator, a backbone or a folder. Received: MaskedLM"):
        ReplacedTokenDetection(Electra(ElectraConfig(**SMALL)), MaskedLM(large))
    bert = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=20, max_length=13)
    with pytest.raises(ValueError, match='embedding_sharing="none"'):
        ReplacedTokenDetection(Bert(BertConfig(**bert)), large)
    model = ReplacedTokenDetection(Bert(BertConfig(**bert)), large, embedding_sharing="none")
    assert model(batch()[0])["replaced"].shape == (4, 11)


@pytest.mark.one_backend
def test_batches_that_cannot_be_used():
    model = electra()
    x, y = batch()
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.raises(ValueError, match="needs `masked_positions`"):
        model.fit({"token_ids": x["token_ids"]}, y, verbose=0)
    y[0, 0] = 31
    with pytest.raises(ValueError, match="Labels must be between 0 and 30"):
        model.fit(x, y, verbose=0)


def test_copying_in_closed_form():
    """Equal logits over 4 tokens and an even gate: 1/2 + 1/8 where the token is its original, 1/8 where not."""
    logits, gate = np.zeros((1, 2, 4), "float32"), np.zeros((1, 2), "float32")
    ids, originals = np.array([[1, 1]], "int32"), np.array([[1, 2]], "int32")
    losses = to_numpy(copy_cross_entropy(*map(keras.ops.convert_to_tensor, (logits, gate, ids, originals))))
    np.testing.assert_allclose(losses, [[-np.log(5 / 8), -np.log(1 / 8)]], rtol=1e-6)


@pytest.mark.one_backend
def test_a_trained_generator_gives_its_embeddings_to_a_new_discriminator():
    generator = randomize(MaskedLM(Electra(ElectraConfig(**SMALL))), 0.3)
    x, _ = batch()
    before = to_numpy(generator(x))
    model = ReplacedTokenDetection(generator, Electra(ElectraConfig(**LARGE)))
    np.testing.assert_array_equal(to_numpy(model.generator(x)), before)
    tables = [part.backbone.embeddings[0] for part in (model.generator, model.discriminator)]
    assert tables[0] is tables[1]
