"""RoBERTa, XLM-RoBERTa and CamemBERT against transformers, both ways, and their invariances."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, Bert, Roberta, RobertaConfig
from kerasbert.models.roberta import HUGGINGFACE_CONFIG, SIZES, position_rows
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import MultipleChoice, TextClassifier
from tests.models.reference import (
    HEADS,
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_head,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    check_states,
    example,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    vocabulary_size=61, num_layers=3, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, num_segments=2
)

# What differs between the three in these tests. `gelu_new` and `relu` show that the LM head keeps the exact gelu.
TYPES = {
    "Roberta": dict(type_vocab_size=1, hidden_act="gelu_new", layer_norm_eps=1e-5, bos_token_id=7),
    "XLMRoberta": dict(type_vocab_size=2, hidden_act="relu", layer_norm_eps=1e-7, pad_token_id=4),
    "Camembert": dict(type_vocab_size=3, layer_norm_eps=1e-3, pad_token_id=0, bos_token_id=5, eos_token_id=6),
}


def their_config(name, **changes):
    import transformers

    sizes = dict(vocab_size=61, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40)
    dropouts = dict(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2, classifier_dropout=0.25)
    changes = {**dict(max_position_embeddings=23), **TYPES[name], **dropouts, **changes}
    return getattr(transformers, f"{name}Config")(**sizes, **changes)


@pytest.mark.one_backend
@pytest.mark.parametrize("head", [head for head in HEADS if head != "ForPreTraining"])
@pytest.mark.parametrize("name", TYPES)
def test_heads_equal_transformers_both_ways(name, head, tmp_path):
    labels = dict(num_labels=5) if head in ("ForSequenceClassification", "ForTokenClassification") else {}
    config = their_config(name, **labels)
    check_head(name, head, config, tmp_path, num_segments=config.type_vocab_size)
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [name + head]
    for entry in HUGGINGFACE_CONFIG.values():
        stored = getattr(entry, "name", entry)
        assert ours[stored] == theirs[stored], stored


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_hidden_states_and_attention_weights_equal_transformers(padding, tmp_path):

    theirs = their_model("RobertaModel", their_config("Roberta"), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, real = example(61, padding, pad_id=1)
    found, expected = check_states(backbone, theirs, ours, inputs, real, blocks=3)
    # The embeddings of padding agree, too: it has a position of its own.
    np.testing.assert_allclose(
        to_numpy(found["hidden_states"][0]), to_numpy(expected.hidden_states[0]), atol=1e-5, rtol=1e-5
    )
    if padding != "left":  # there the first column is padding, whose vector means nothing
        np.testing.assert_allclose(to_numpy(found["pooled_output"]), to_numpy(expected.pooler_output), atol=1e-5)


@pytest.mark.one_backend
def test_older_files_hold_ties_and_buffers(tmp_path):
    from safetensors.numpy import load_file, save_file

    model = randomize(MaskedLM(Roberta(RobertaConfig(**TINY), pooler=False)))
    model.save_to_preset(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"].copy()
    tensors["roberta.embeddings.position_ids"] = np.arange(25)[None]
    save_file(tensors, path)
    inputs, _, _ = example(61, "right", pad_id=1)
    np.testing.assert_array_equal(to_numpy(MaskedLM.from_preset(tmp_path)(inputs)), to_numpy(model(inputs)))


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "encoder", "with_lm_head"),
    [
        ("roberta_base", 124_054_272, 124_696_665),
        ("roberta_large", 354_309_120, 355_411_033),
        ("distilroberta_base", 81_527_040, 82_169_433),
        ("xlm_roberta_base", 277_452_288, 278_294_418),
        ("xlm_roberta_large", 558_839_808, 560_141_458),
        ("camembert_base", 110_030_592, 110_654_725),
        ("camembert_large", 335_610_880, 336_694_533),
    ],
)
def test_sizes_have_the_parameters_of_the_papers(name, encoder, with_lm_head):
    config = RobertaConfig(**SIZES[name])
    assert closed_form(config) == (encoder, with_lm_head)
    stem = name.removeprefix("distil").rsplit("_", 1)[0]
    assert config.model_type == stem.replace("_", "-")


def closed_form(config):
    """Parameters of the paper's encoder, and with its LM head."""
    m, f, v = config.hidden_dim, config.feed_forward_dim, config.vocabulary_size
    block = 4 * (m * m + m) + (m * f + f) + (f * m + m) + 4 * m
    encoder = (v + config.max_length + config.pad_id + 1) * m + 2 * m + config.num_layers * block
    return encoder, encoder + m * m + 3 * m + v


@pytest.mark.one_backend
def test_built_models_have_one_segment_row_more():
    config = RobertaConfig(**{**TINY, "num_segments": 1})
    encoder, with_lm_head = closed_form(config)
    backbone = Roberta(config, pooler=False)
    assert backbone.count_params() == encoder + 24
    assert MaskedLM(backbone).count_params() == with_lm_head + 24
    assert Roberta(config).count_params() == encoder + 24 + 24 * 24 + 24


def test_positions_count_what_is_not_padding():
    ids = np.array([[0, 31414, 232, 328, 2, 1, 1]], "int32")

    def rows(token_ids=ids, **inputs):
        inputs = {key: keras.ops.convert_to_tensor(array) for key, array in {"token_ids": token_ids, **inputs}.items()}
        return to_numpy(position_rows(inputs, pad_id=1)).tolist()

    assert rows() == [[2, 3, 4, 5, 6, 7, 8]]
    assert rows(padding_mask=ids != 1) == [[2, 3, 4, 5, 6, 1, 1]]
    assert rows(lengths=np.array([5], "int32")) == [[2, 3, 4, 5, 6, 1, 1]]
    left = ids[:, ::-1].copy()
    assert rows(left, padding_mask=left != 1) == [[1, 1, 2, 3, 4, 5, 6]]
    assert rows(sequence_ids=np.array([[1, 1, 1, 2, 2, 0, 0]], "int32")) == [[2, 3, 4, 2, 3, 1, 1]]
    assert rows(position_ids=np.array([[4, 3, 2, 1, 0, 0, 0]], "int32")) == [[6, 5, 4, 3, 2, 2, 2]]


@pytest.mark.one_backend
def test_a_table_of_23_rows_serves_21_tokens(tmp_path):
    import torch

    theirs = their_model("RobertaModel", their_config("Roberta"), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    assert backbone.config.max_length == 21 and backbone.position_embedding.embeddings.shape == (23, 24)
    ids = np.random.default_rng(0).integers(2, 61, (1, 22)).astype("int32")
    with torch.no_grad():
        expected = theirs(input_ids=torch.from_numpy(ids[:, :21].astype("int64"))).last_hidden_state
    found = backbone({"token_ids": ids[:, :21]})["sequence_output"]
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="max_length=21"):
        backbone({"token_ids": ids})
    with pytest.raises(ValueError, match="`position_ids` must be between 0 and 20"):
        backbone({"token_ids": ids, "position_ids": np.full((1, 22), 21, "int32")})


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(Roberta(RobertaConfig(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows():
    ids = np.random.default_rng(0).integers(2, 61, (1, 40)).astype("int32")
    packed = {"token_ids": ids, "sequence_ids": np.array([[1] * 7 + [2] * 4 + [0] * 29], "int32")}
    backbone = randomize(Roberta(RobertaConfig(**TINY), pooler=False))
    # Longer than the position table, padding included: neither sequence is.
    outputs = backbone({**packed, "first_positions": np.array([[0, 7]], "int32")})
    alone = backbone({"token_ids": ids[:, 7:11]})["sequence_output"]
    np.testing.assert_allclose(to_numpy(outputs["sequence_output"])[:, 7:11], to_numpy(alone), atol=1e-5)
    np.testing.assert_array_equal(to_numpy(outputs["first_output"]), to_numpy(outputs["sequence_output"])[:, [0, 7]])
    assert "first_output" not in backbone(packed)
    assert MaskedLM(backbone)(packed).shape == (1, 40, 61)
    with pytest.raises(ValueError, match="first_positions"):
        TextClassifier(backbone)(packed)


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Roberta(RobertaConfig(**TINY), dtype=dtype))


def test_every_weight_gets_a_gradient():
    x, _, _ = example(61, "right", num_segments=2, pad_id=1)
    x["masked_positions"] = np.array([[1, 4, 9], [2, -1, 0]], "int32")
    labels = np.array([[5, 60, 1], [7, 0, 3]], "int32")
    config = RobertaConfig(**{**TINY, "num_layers": 1}, dropout=0.0, attention_dropout=0.0)
    check_gradients(randomize(MaskedLM(Roberta(config, pooler=False))), (x, labels), without=["key/bias"])
    del x["masked_positions"]
    classifier = randomize(TextClassifier(Roberta(config, pooler=False)))
    check_gradients(classifier, (x, np.array([0, 1], "int32")), without=["key/bias"])


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = randomize(TextClassifier(Roberta(RobertaConfig(**TINY), pooler=False), labels=["a", "b", "c"]))
    check_keras_file(model, tmp_path)


@pytest.mark.one_backend
def test_initial_weights_are_the_papers():
    backbone = Roberta(RobertaConfig(**{**TINY, "vocabulary_size": 5_000}))
    table = to_numpy(backbone.token_embedding.embeddings)
    assert not table[1].any() and np.delete(table, 1, axis=0).all(axis=1).all()
    # A normal that is not cut: three in a thousand lie beyond three standard deviations.
    assert abs(table.std() - 0.02) < 2e-4 and 0.002 < (np.abs(table) > 0.06).mean() < 0.0034
    positions = to_numpy(backbone.position_embedding.embeddings)
    assert positions.shape == (25, 24) and not positions[1].any() and positions[0].any()
    assert not to_numpy(backbone.segment_embedding.embeddings).any()
    assert not to_numpy(backbone.blocks[0].attention.query.bias).any()


@pytest.mark.one_backend
def test_head_dropouts():
    config = RobertaConfig(**TINY, dropout=0.3, classifier_dropout=0.25)
    classifier = TextClassifier(Roberta(config, pooler=False)).classifier
    assert classifier.input_dropout.rate == classifier.dropout.rate == 0.25
    assert MultipleChoice(Roberta(config)).choice.dropout.rate == 0.3
    config = RobertaConfig(**TINY, dropout=0.3)
    assert TextClassifier(Roberta(config, pooler=False)).classifier.dropout.rate == 0.3


@pytest.mark.one_backend
def test_multiple_choice_needs_the_pooler():
    with pytest.raises(ValueError, match="pooler=True"):
        MultipleChoice(Roberta(RobertaConfig(**TINY), pooler=False))


@pytest.mark.one_backend
def test_the_model_type_is_kept(tmp_path):
    backbone = Roberta.from_preset("camembert_base", load_weights=False, **TINY, pooler=False)
    assert backbone.config == RobertaConfig(**{**TINY, "model_type": "camembert", "bos_id": 5, "eos_id": 6})
    MaskedLM(backbone).save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "camembert" and config["architectures"] == ["CamembertForMaskedLM"]
    assert config["max_position_embeddings"] == 25
    again = kerasbert.load(tmp_path)
    assert type(again) is MaskedLM and again.backbone.config == backbone.config


@pytest.mark.one_backend
def test_folders_of_others_are_refused(tmp_path):
    Roberta(RobertaConfig(**TINY)).save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="needs a folder of its family"):
        Bert.from_preset(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "is_decoder": True}))
    with pytest.raises(ValueError, match="only with is_decoder=False"):
        Backbone.from_preset(tmp_path)
    path.write_text(json.dumps({**config, "pad_token_id": None}))
    with pytest.raises(ValueError, match="`pad_id` must be a token"):
        Backbone.from_preset(tmp_path)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("model_type", "vocabulary_size"), [("roberta", 50_265), ("xlm-roberta", 30_522), ("camembert", 30_522)]
)
def test_what_a_config_leaves_out_is_what_transformers_takes(model_type, vocabulary_size):
    import transformers

    from kerasbert.checkpoints.huggingface_config import read_config

    config = RobertaConfig(**read_config(Roberta.family, {"model_type": model_type}))
    theirs = transformers.AutoConfig.for_model(model_type)
    assert config.vocabulary_size == theirs.vocab_size == vocabulary_size
    assert config.max_length == theirs.max_position_embeddings - theirs.pad_token_id - 1
    for ours, name in HUGGINGFACE_CONFIG.items():
        if isinstance(name, str):
            assert getattr(config, ours) == getattr(theirs, name), ours


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"token_ids": np.full((1, 4), 61)}, "`token_ids` must be between 0 and 60"),
        ({"token_ids": np.ones((1, 24), int)}, "max_length=23"),
        ({"token_ids": np.ones((1, 4), int), "segment_ids": np.full((1, 4), 2)}, "`segment_ids` must be"),
        ({"token_ids": np.ones((1, 4), int), "masked_positions": np.array([[4]])}, "`masked_positions` must be"),
    ],
)
def test_input_that_would_be_misread_is_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        Roberta(RobertaConfig(**TINY))({key: value.astype("int32") for key, value in inputs.items()})
