"""BART and mBART against transformers, both ways; every layout of their files; ends of texts, caches, invariances."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasbert
from kerasbert.models import Backbone, Bart, BartConfig
from kerasbert.models.bart import SIZES
from kerasbert.objectives import Seq2SeqLM
from kerasbert.tasks import QuestionAnswerer, TextClassifier
from tests.models.reference import (
    check_batch_invariance,
    check_gradients,
    check_half_precision,
    check_keras_file,
    check_packing,
    check_padding_invariance,
    check_way_back,
    randomize,
    their_model,
    to_numpy,
)

TINY = dict(
    **dict(vocabulary_size=61, num_layers=2, num_decoder_layers=3, num_heads=3, num_decoder_heads=2, hidden_dim=24),
    **dict(feed_forward_dim=40, decoder_feed_forward_dim=36, max_length=23),
)
PREFIXES = ("Bart", "MBart")
END = 2

# Theirs -> ours, and how theirs names the outputs.
HEADS = {
    "Model": (Backbone, {"sequence_output": "last_hidden_state", "encoder_output": "encoder_last_hidden_state"}),
    "ForConditionalGeneration": (Seq2SeqLM, {"": "logits"}),
    "ForSequenceClassification": (TextClassifier, {"": "logits"}),
    "ForQuestionAnswering": (QuestionAnswerer, {"start": "start_logits", "end": "end_logits"}),
}


def their_config(prefix="Bart", **changes):
    import transformers

    sizes = dict(
        **dict(vocab_size=61, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3),
        **dict(decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=36, max_position_embeddings=23),
        scale_embedding=prefix == "MBart",
    )
    return getattr(transformers, f"{prefix}Config")(**{**sizes, **changes})


def pair_of_models(name, tmp_path, **changes):
    """(theirs, ours) of the class `name` of theirs, with a bias of the output layer."""
    import torch

    prefix = next(prefix for prefix in reversed(PREFIXES) if name.startswith(prefix))
    theirs = their_model(name, their_config(prefix, **changes), tmp_path / "theirs")
    if hasattr(theirs, "final_logits_bias"):
        theirs.final_logits_bias.copy_(torch.randn(theirs.final_logits_bias.shape))
        theirs.save_pretrained(tmp_path / "theirs")
    return theirs, HEADS[name.removeprefix(prefix)][0].from_preset(tmp_path / "theirs")


def batch(padding, decoder):
    """(our inputs, their inputs, bool of what is real on the encoder's side); every text has two end tokens, as pairs
    have, and mBART's code of a language behind the last one."""
    rng = np.random.default_rng(1)
    ids = rng.integers(3, 61, (2, 11)).astype("int32")
    lengths = np.array([[11], [7 if padding == "right" else 11]])
    columns = np.arange(11)
    real = columns < lengths
    ids = np.where((columns == 3) | (columns == lengths - 2), END, ids)
    ids = np.where(real, ids, 1).astype("int32")
    ours = {"token_ids": ids} if padding == "none" else {"token_ids": ids, "padding_mask": real}
    theirs = {"input_ids": ids, "attention_mask": real}
    if decoder:
        decoder_ids = rng.integers(3, 61, (2, 8)).astype("int32")
        ours["decoder_token_ids"] = theirs["decoder_input_ids"] = decoder_ids
    return ours, theirs, real


def their_outputs(theirs, inputs, **options):
    import torch

    with torch.no_grad():
        return theirs(**{key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}, **options)


def check_outputs(ours, theirs, names, padding, decoder):
    our_inputs, their_inputs, real = batch(padding, decoder)
    outputs, expected = ours(our_inputs), their_outputs(theirs, their_inputs)
    for our_name, their_name in names.items():
        found, wanted = to_numpy(outputs[our_name] if our_name else outputs), to_numpy(expected[their_name])
        assert found.shape == wanted.shape
        if found.shape[:2] == real.shape:
            found, wanted = found[real], wanted[real]
        np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5, err_msg=f"{padding} {our_name}")


@pytest.mark.one_backend
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(prefix, head, tmp_path):
    labels = dict(num_labels=5) if "SequenceClass" in head else {}
    theirs, ours = pair_of_models(prefix + head, tmp_path, **labels)
    names = HEADS[head][1]
    for padding in ("none", "right"):
        if head != "ForSequenceClassification":
            check_outputs(ours, theirs, names, padding, decoder=True)
        if head != "ForConditionalGeneration":  # which needs its own inputs of the decoder here
            check_outputs(ours, theirs, names, padding, decoder=False)
    check_way_back(ours, theirs, tmp_path / "ours")
    ours, theirs = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert ours["architectures"] == theirs["architectures"] == [prefix + head]
    same = ("forced_eos_token_id", "decoder_start_token_id", "scale_embedding", "decoder_ffn_dim", "is_encoder_decoder")
    assert [ours[name] for name in same] == [theirs[name] for name in same]


@pytest.mark.one_backend
@pytest.mark.parametrize("prefix", PREFIXES)
def test_hidden_states_and_attention_weights_equal_transformers(prefix, tmp_path):
    theirs, backbone = pair_of_models(f"{prefix}Model", tmp_path, activation_function="relu")
    ours, inputs, _ = batch("none", True)
    found = backbone(ours, hidden_states=True, attention_weights=True)
    expected = their_outputs(theirs, inputs, output_hidden_states=True, output_attentions=True)
    states, weights = found["hidden_states"], found["attention_weights"]
    assert [len(states[half]) for half in ("encoder", "decoder")] == [3, 4]
    for one, other in (
        (states["encoder"], expected.encoder_hidden_states),
        (states["decoder"], expected.decoder_hidden_states),
        (weights["encoder"], expected.encoder_attentions),
        (weights["decoder"], expected.decoder_attentions),
        (weights["cross"], expected.cross_attentions),
    ):
        for mine, wanted in zip(one, other, strict=True):
            np.testing.assert_allclose(to_numpy(mine), to_numpy(wanted), atol=1e-5)


def test_a_compiled_mbart_equals_transformers(tmp_path):
    theirs, ours = pair_of_models("MBartForConditionalGeneration", tmp_path)
    inputs, their_inputs, _ = batch("right", True)
    wanted = to_numpy(their_outputs(theirs, their_inputs).logits)
    np.testing.assert_allclose(ours.predict(inputs, verbose=0), wanted, atol=1e-5, rtol=1e-5)


# === Files ===


@pytest.mark.one_backend
def test_every_layout_of_the_table(tmp_path, recwarn):
    """One table under any of its four names, the version numbers of the first files, and no bias."""
    theirs, ours = pair_of_models("BartForConditionalGeneration", tmp_path)
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    table, bias = stored.pop("model.shared.weight"), stored["final_logits_bias"]
    names = ["model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"]
    inputs, _, _ = batch("none", True)
    expected = to_numpy(ours(inputs))
    for present in (names, *([name] for name in names)):
        file = {**stored, **{f"{name}.weight": table.copy() for name in present}, "model.encoder.version": np.ones(1)}
        save_file(file, tmp_path / "theirs" / "model.safetensors")
        np.testing.assert_array_equal(to_numpy(Seq2SeqLM.from_preset(tmp_path / "theirs")(inputs)), expected)
    del file["final_logits_bias"]
    save_file(file, tmp_path / "theirs" / "model.safetensors")
    found = to_numpy(Seq2SeqLM.from_preset(tmp_path / "theirs")(inputs))
    np.testing.assert_allclose(found, expected - bias, atol=1e-5)
    assert not [warning for warning in recwarn if "new head" in str(warning.message)]
    save_file({**file, "model.shared.weight": table + 1}, tmp_path / "theirs" / "model.safetensors")
    with pytest.raises(ValueError, match="untied: lm_head.weight differs"):
        Seq2SeqLM.from_preset(tmp_path / "theirs")


@pytest.mark.one_backend
def test_a_language_model_is_read_from_the_files_of_a_bare_model(tmp_path, recwarn):
    """As those of bart-base and bart-large are."""
    theirs, _ = pair_of_models("BartModel", tmp_path)
    model = Seq2SeqLM.from_preset(tmp_path / "theirs")
    inputs, their_inputs, _ = batch("right", True)
    expected = their_outputs(theirs, their_inputs).last_hidden_state @ theirs.shared.weight.T
    np.testing.assert_allclose(to_numpy(model(inputs)), to_numpy(expected), atol=1e-5)
    assert not [warning for warning in recwarn if "new head" in str(warning.message)]


@pytest.mark.one_backend
def test_forced_tokens_are_those_of_the_generation_config(tmp_path):
    their_model("MBartForConditionalGeneration", their_config("MBart", decoder_start_token_id=7), tmp_path)
    stated = json.loads((tmp_path / "config.json").read_text()) | {"forced_bos_token_id": 9}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    file = tmp_path / "generation_config.json"

    def ids():
        config = kerasbert.load(tmp_path).backbone.config
        return config.decoder_start_id, config.forced_bos_id, config.forced_eos_id

    file.write_text(json.dumps(dict(forced_bos_token_id=8, decoder_start_token_id=5)))
    assert ids() == (5, 8, None)
    file.write_text(json.dumps(dict(forced_eos_token_id=2)))
    assert ids() == (7, None, 2)
    file.unlink()
    assert ids() == (7, 9, 2)


@pytest.mark.one_backend
def test_other_variants_are_refused_by_name(tmp_path):
    their_model("BartModel", their_config(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for field, value in (
        ("tie_word_embeddings", False),
        ("is_decoder", True),
        ("is_encoder_decoder", False),
        ("static_position_embeddings", True),
        ("encoder_layerdrop", 0.1),
        ("forced_bos_token_id", [3, 4]),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))
        with pytest.raises(ValueError, match=field):
            Backbone.from_preset(tmp_path)


# === Sizes and initial weights ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "count"),
    [("bart_base", 139_420_416), ("bart_large", 406_291_456), ("mbart_large", 610_851_840)],
)
def test_sizes_are_the_papers(name, count):
    """In closed form, and with the closed form for a small model."""

    def parameters(c):
        attention, norm = 4 * (c.hidden_dim + 1) * c.hidden_dim, 2 * c.hidden_dim
        feed_forward = 2 * c.hidden_dim * c.feed_forward_dim + c.hidden_dim + c.feed_forward_dim
        embeddings = (c.vocabulary_size + 2 * (c.max_length + 2)) * c.hidden_dim + 2 * norm
        blocks = c.num_layers * (3 * attention + 2 * feed_forward + 5 * norm)
        return embeddings + blocks + 2 * norm * c.norm_first

    config = BartConfig(**SIZES[name])
    assert parameters(config) == count and config.num_decoder_layers == config.num_layers
    sizes = dict(vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=9)
    small = BartConfig(**sizes, model_type=config.model_type)
    assert Bart(small).count_params() == parameters(small)


@pytest.mark.one_backend
def test_initial_weights():
    config = BartConfig(**{**TINY, "vocabulary_size": 400, "hidden_dim": 96})
    backbone = Bart(config)
    table = to_numpy(backbone.token_embedding.embeddings)
    assert not table[config.pad_id].any() and abs(table.std() / 0.02 - 1) < 0.05
    kernel = backbone.decoder_blocks[2].cross_attention.query.kernel
    assert abs(to_numpy(kernel).std() / 0.02 - 1) < 0.05


# === Invariances ===


def decoded(backbone, **inputs):
    return to_numpy(backbone(inputs)["sequence_output"])


@pytest.mark.one_backend
@pytest.mark.parametrize("model_type", ["bart", "mbart"])
def test_invariances(model_type):
    backbone = randomize(Bart(BartConfig(**TINY, model_type=model_type)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone)


@pytest.mark.one_backend
def test_packed_texts_are_classified_by_their_ends():
    backbone = randomize(Bart(BartConfig(**TINY)))
    check_packing(backbone)
    model = randomize(TextClassifier(backbone))
    ids = np.array([[5, 6, END, 9, 7, 8, 9, END, 1, 1]], "int32")  # what follows the end in the first is not read
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2, 0, 0]], "int32")}
    found = to_numpy(model({**packed, "first_positions": np.array([[0, 4]], "int32")}))
    for row, part in zip(found[0], (ids[:, :4], ids[:, 4:8]), strict=True):
        np.testing.assert_allclose(row, to_numpy(model({"token_ids": part}))[0], atol=1e-5)
    with pytest.raises(ValueError, match="do not pack"):
        Bart(BartConfig(**TINY, model_type="mbart"))(packed)


@pytest.mark.one_backend
def test_the_decoder_sees_nothing_behind_it_and_all_of_the_source():
    backbone = randomize(Bart(BartConfig(**TINY)))
    inputs, _, _ = batch("none", True)
    plain = decoded(backbone, **inputs)
    ids = inputs["decoder_token_ids"].copy()
    ids[:, 5:] = (ids[:, 5:] + 7) % 61
    later = decoded(backbone, **{**inputs, "decoder_token_ids": ids})
    np.testing.assert_array_equal(later[:, :5], plain[:, :5])
    assert np.abs(later[:, 5:] - plain[:, 5:]).max() > 1e-3
    ids = inputs["token_ids"].copy()
    ids[:, -1] = 9
    assert (np.abs(decoded(backbone, **{**inputs, "token_ids": ids}) - plain).max(axis=(0, 2)) > 1e-5).all()


@pytest.mark.one_backend
def test_half_precision_is_finite():
    check_half_precision(lambda dtype: Bart(BartConfig(**TINY, model_type="mbart", scale_embedding=True), dtype=dtype))


@pytest.mark.one_backend
def test_every_weight_gets_a_gradient_but_the_bias_of_the_outputs():
    model = randomize(Seq2SeqLM(Bart(BartConfig(**{**TINY, "dropout": 0.0}, model_type="mbart"))))
    rng = np.random.default_rng(0)
    x = {key: rng.integers(3, 61, (3, 23)).astype("int32") for key in ("token_ids", "decoder_token_ids")}
    assert [v.path for v in model.non_trainable_variables if "seed" not in v.path] == [model.seq2seq_lm.bias.path]
    check_gradients(model, (x, rng.integers(0, 61, (3, 23)).astype("int32")), without=("key/bias",))


@pytest.mark.one_backend
def test_keras_files_round_trip(tmp_path):
    model = randomize(Seq2SeqLM(Bart(BartConfig(**TINY, model_type="mbart"))))
    check_keras_file(model, tmp_path, decoder_token_ids=np.full((2, 4), 5, "int32"))


# === Bad input ===


@pytest.mark.one_backend
def test_sequences_beyond_the_tables_of_positions_are_refused():
    model = Seq2SeqLM(Bart(BartConfig(**TINY)))
    short, long = np.ones((1, 4), "int32"), np.full((1, 24), 5, "int32")
    with pytest.raises(ValueError, match="max_length=23"):
        model({"token_ids": long, "decoder_token_ids": short})
    with pytest.raises(ValueError, match="max_length=23"):
        model({"token_ids": short, "decoder_token_ids": long})
    positions = {"decoder_position_ids": np.array([[0, 1, 2, 23]], "int32")}
    with pytest.raises(ValueError, match="`decoder_position_ids` must be between 0 and 22"):
        model({"token_ids": short, "decoder_token_ids": short, **positions})
    with pytest.raises(ValueError, match="at most 23 tokens.*source 1 of 24"):
        model.generate([short[0], long[0]])


@pytest.mark.one_backend
def test_ids_outside_of_the_vocabulary_are_refused():
    for name in ("decoder_start_id", "forced_bos_id", "forced_eos_id"):
        with pytest.raises(ValueError, match=f"`{name}` must be None or an id below vocabulary_size=61. Received: 61"):
            BartConfig(**TINY, **{name: 61})


@pytest.mark.one_backend
def test_a_decoder_without_a_start_token_does_not_generate():
    model = Seq2SeqLM(Bart(BartConfig(**TINY, model_type="mbart", decoder_start_id=None)))
    with pytest.raises(ValueError, match="code of the target language"):
        model.generate(np.array([5, 6, 2]))
