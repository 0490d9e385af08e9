"""ELECTRA against transformers, both ways; embeddings shared by generator and discriminator; its invariances."""

import keras
import numpy as np
import pytest

from kerasbert.models import Backbone, Electra, ElectraConfig
from kerasbert.models.electra import SIZES
from kerasbert.objectives import Discriminator, MaskedLM
from kerasbert.objectives.shared_embeddings import with_embeddings
from kerasbert.tasks import MultipleChoice, TextClassifier
from tests.models.reference import (
    HEADS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_outputs,
    check_packing,
    check_padding_invariance,
    check_states,
    check_way_back,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    **dict(vocabulary_size=61, embedding_dim=10, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40),
    **dict(max_length=23, num_segments=3),
)


def their_config(**changes):
    import transformers

    return transformers.ElectraConfig(
        **{
            **dict(vocab_size=61, embedding_size=10, hidden_size=24, num_attention_heads=3, intermediate_size=40),
            **dict(num_hidden_layers=3, max_position_embeddings=23, type_vocab_size=3, hidden_act="gelu_new"),
            **dict(layer_norm_eps=1e-7, summary_last_dropout=0.25),
            **changes,
        }
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
def test_heads_equal_transformers_both_ways(head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    ours, _ = check_head("Electra", head, their_config(**labels), tmp_path, num_segments=3)
    if labels:
        assert ours.labels == [f"LABEL_{i}" for i in range(5)]


@pytest.mark.one_backend
@pytest.mark.parametrize("changes", [dict(), dict(embedding_size=24, hidden_act="silu")])
def test_discriminator_equals_transformers_both_ways(changes, tmp_path):
    theirs = their_model("ElectraForPreTraining", their_config(**changes), tmp_path / "theirs")
    ours = Discriminator.from_preset(tmp_path / "theirs")
    for padding in ("none", "right", "left"):
        check_outputs(ours, theirs, theirs.config, {"": "logits"}, padding, num_segments=3)
    check_way_back(ours, theirs, tmp_path / "ours")
    assert (ours.backbone.embedding_projection is None) == ("embedding_size" in changes)


@pytest.mark.one_backend
def test_masked_lm_without_projection_equals_transformers_both_ways(tmp_path):
    check_head("Electra", "ForMaskedLM", their_config(embedding_size=24, hidden_act="relu"), tmp_path, num_segments=3)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("ElectraModel", their_config(hidden_act="gelu"), tmp_path)
    ours, inputs, real = example(61, padding, num_segments=3)
    found, expected = check_states(Backbone.from_preset(tmp_path), theirs, ours, inputs, real, blocks=3)
    np.testing.assert_array_equal(to_numpy(found["first_output"]), to_numpy(found["sequence_output"])[:, 0])
    np.testing.assert_array_equal(to_numpy(found["pooled_output"]), to_numpy(found["first_output"]))


# === Sizes, initial values, dropout ===


def _closed_form(config):
    e, m, f = config.embedding_dim, config.hidden_dim, config.feed_forward_dim
    tables = (config.vocabulary_size + config.max_length + config.num_segments) * e + 2 * e
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    return tables + (e * m + m) * (e != m) + config.num_layers * block


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("electra_small", 13_483_008),
        ("electra_base", 108_891_648),
        ("electra_large", 334_092_288),
        ("electra_small_generator", 4_580_928),
        ("electra_base_generator", 33_511_168),
        ("electra_large_generator", 50_999_552),
    ],
)
def test_sizes_have_the_parameters_of_the_paper(name, parameters):
    assert _closed_form(ElectraConfig(**SIZES[name])) == parameters


@pytest.mark.one_backend
def test_a_size_is_built_with_its_parameters():
    backbone = Electra.from_preset("electra_small_generator", load_weights=False, num_layers=2)
    assert backbone.count_params() == _closed_form(backbone.config) == 4_580_928 - 10 * 49_984


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "width", "added"), [("small", 0.25, 647_162), ("base", 0.33333, 9_903_418), ("large", 0.25, 19_512_378)]
)
def test_generators_have_the_widths_and_the_added_parameters_of_the_paper(name, width, added):
    discriminator = ElectraConfig(**SIZES[f"electra_{name}"])
    generator = ElectraConfig(**SIZES[f"electra_{name}_generator"])
    assert generator.hidden_dim == round(width * discriminator.hidden_dim) == generator.feed_forward_dim // 4
    assert generator.num_heads == max(1, generator.hidden_dim // 64)
    assert generator.num_layers == discriminator.num_layers
    assert generator.embedding_dim == discriminator.embedding_dim
    e, m, v = generator.embedding_dim, generator.hidden_dim, generator.vocabulary_size
    head = m * e + e + 2 * e + v
    assert _closed_form(generator) - (v + 512 + 2) * e - 2 * e + head == added


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = Electra(ElectraConfig(**{**TINY, "vocabulary_size": 5_000, "embedding_dim": 16, "hidden_dim": 240}))
    table = to_numpy(backbone.token_embedding.embeddings)
    # A normal cut at two standard deviations keeps 0.88 of its spread. (On torch Keras lets a few through.)
    assert abs(table.std() - 0.0176) < 2e-4 and np.mean(np.abs(table) > 0.04) < 1e-4
    # Projection and outputs are uniform within sqrt(6 / (inputs + outputs)).
    head = Discriminator(backbone).replaced_token
    assert abs(to_numpy(head.dense.kernel).std() - 0.0176) < 2e-4
    for kernel in (backbone.embedding_projection.kernel, head.project.kernel):
        bound = (6 / sum(kernel.shape)) ** 0.5
        assert 0.9 * bound < np.abs(to_numpy(kernel)).max() <= bound


@pytest.mark.one_backend
def test_new_heads_on_a_loaded_backbone_have_their_own_initial_weights(tmp_path):
    randomize(Electra(ElectraConfig(**TINY))).save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="classifier/dense, classifier/project: new head"):
        classifier = TextClassifier.from_preset(tmp_path, labels=40).classifier
    bound = (6 / 64) ** 0.5
    assert 0.9 * bound < np.abs(to_numpy(classifier.project.kernel)).max() <= bound


@pytest.mark.one_backend
def test_dropout_is_where_transformers_has_it():
    backbone = Electra(ElectraConfig(**TINY, dropout=0.2, choice_dropout=0.4))
    classifier = backbone.make_head("classifier", num_labels=2)
    assert (classifier.input_dropout.rate, classifier.dropout.rate) == (0.2, 0.2)
    choice = MultipleChoice(backbone).choice
    assert (choice.input_dropout.rate, choice.dropout.rate) == (0.0, 0.4)
    assert backbone.make_head("tagger", num_labels=2).dropout.rate == 0.2
    assert backbone.make_head("span").dropout.rate == 0.0
    other = Electra(ElectraConfig(**TINY, classifier_dropout=0.3)).make_head("classifier", num_labels=2)
    assert (other.input_dropout.rate, other.dropout.rate) == (0.3, 0.3)


# === Embeddings of two backbones ===


def _pair():
    discriminator = randomize(Electra(ElectraConfig(**TINY), name="discriminator"))
    small = {**TINY, "hidden_dim": 12, "feed_forward_dim": 20, "num_layers": 2}
    return discriminator, ElectraConfig(**small)


@pytest.mark.one_backend
def test_a_generator_can_have_its_discriminators_embeddings(tmp_path):
    discriminator, config = _pair()
    generator = Electra(config, embeddings=discriminator.embeddings, name="generator")
    for one, other in zip(generator.embeddings, discriminator.embeddings, strict=True):
        assert one is other
    discriminator.token_embedding.embeddings.assign(np.full((61, 10), 0.25, "float32"))
    assert to_numpy(generator.token_table).max() == 0.25
    both = {id(variable) for backbone in (generator, discriminator) for variable in backbone.trainable_variables}
    assert len(both) == len(generator.trainable_variables) + len(discriminator.trainable_variables) - 5

    # A folder of its own all the same: the shared tables are in both.
    model = MaskedLM(generator)
    model.save_to_preset(tmp_path)
    again = MaskedLM.from_preset(tmp_path)
    inputs, _, _ = example(61, "right", num_segments=3)
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))


@pytest.mark.one_backend
def test_a_loaded_generator_can_be_given_other_embeddings():
    discriminator, config = _pair()
    alone = randomize(Electra(config, name="generator"), seed=5)
    tied = with_embeddings(alone, discriminator.embeddings)
    assert tied.token_embedding is discriminator.token_embedding and tied.name == "generator"
    assert alone.token_embedding is not discriminator.token_embedding
    inputs, _, _ = example(61, "right", num_segments=3)
    assert not np.allclose(to_numpy(tied(inputs)["sequence_output"]), to_numpy(alone(inputs)["sequence_output"]))
    for mine, theirs in zip(alone.embeddings, discriminator.embeddings, strict=True):
        for one, other in zip(mine.weights, theirs.weights, strict=True):
            one.assign(other)
    np.testing.assert_array_equal(to_numpy(tied(inputs)["sequence_output"]), to_numpy(alone(inputs)["sequence_output"]))


@pytest.mark.one_backend
def test_shared_embeddings_learn_from_both():
    """The gradient that reaches the shared table is that of the generator plus that of the discriminator."""
    discriminator, config = _pair()
    generator = Electra(config, embeddings=discriminator.embeddings, name="generator")
    before = to_numpy(discriminator.token_table).copy()
    x, _, _ = example(61, "none")
    model = MaskedLM(generator)
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch({**x, "masked_positions": np.array([[1, 4], [2, 3]], "int32")}, np.ones((2, 2), "int32"))
    assert not np.array_equal(to_numpy(discriminator.token_table), before)


@pytest.mark.one_backend
@pytest.mark.parametrize("changes", [dict(embedding_dim=12), dict(vocabulary_size=60), dict(max_length=24)])
def test_embeddings_of_other_sizes_are_refused(changes):
    discriminator, _ = _pair()
    with pytest.raises(ValueError, match="Shared embeddings must have the shapes that the config requires"):
        Electra(ElectraConfig(**{**TINY, **changes}), embeddings=discriminator.embeddings)


# === Invariances ===


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(Electra(ElectraConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)
    check_packing(backbone)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Electra(ElectraConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=3)
    backbone = randomize(Electra(ElectraConfig(**TINY, dropout=0.0, attention_dropout=0.0)))
    check_gradients(randomize(Discriminator(backbone)), (x, np.eye(2, 11, dtype="float32")), without=["key/bias"])
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    model = randomize(MaskedLM(Electra(backbone.config)))
    check_gradients(model, (x, np.array([[5, 60, 1], [7, 0, 3]], "int32")), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    check_keras_file(randomize(TextClassifier(Electra(ElectraConfig(**TINY)), labels=["a", "b", "c"])), tmp_path)


# === Packed rows and bad input ===


@pytest.mark.one_backend
def test_packed_rows_without_starts_have_no_first_token():
    backbone = Electra(ElectraConfig(**TINY))
    packed = {"token_ids": np.ones((1, 5), "int32"), "sequence_ids": np.array([[1, 1, 2, 2, 0]], "int32")}
    assert "first_output" not in backbone(packed)
    assert MaskedLM(backbone)(packed).shape == (1, 5, 61)
    starts = {**packed, "first_positions": np.array([[0, 2]], "int32")}
    classifier = TextClassifier(backbone, labels=3)
    assert classifier(starts).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="first_positions"):
        classifier(packed)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        ({"token_ids": np.ones((1, 4), int), "segment_ids": np.full((1, 4), 3)}, "`segment_ids` must be"),
        ({"token_ids": np.ones((1, 4), int), "position_ids": np.full((1, 4), 23)}, "`position_ids` must be"),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        Electra(ElectraConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})


@pytest.mark.one_backend
@pytest.mark.parametrize("changes", [dict(summary_type="mean"), dict(is_decoder=True), dict(summary_use_proj=False)])
def test_what_this_file_lacks_is_refused(changes, tmp_path):
    their_config(**changes).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"only with {next(iter(changes))}="):
        Electra.from_preset(tmp_path, load_weights=False)
