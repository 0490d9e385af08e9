"""T5, mT5 and umT5 against transformers, both ways; the architectures of the study; weights, cache, invariances."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasbert
from kerasbert.models import T5, Backbone, T5Config
from kerasbert.models.t5.t5 import SIZES
from kerasbert.objectives import CausalLM, Seq2SeqLM
from kerasbert.tasks import QuestionAnswerer, TextClassifier, TokenClassifier
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
    vocabulary_size=61, num_layers=2, num_decoder_layers=3, num_heads=3, hidden_dim=24, head_dim=5, feed_forward_dim=40,
    num_buckets=8, max_distance=9,
)  # fmt: skip
ALONE = {**TINY, "num_decoder_layers": 2}
END = 1

# Theirs -> ours, and how theirs names the outputs.
HEADS = {
    "Model": (
        Backbone,
        {"sequence_output": "last_hidden_state", "encoder_output": "encoder_last_hidden_state"},
    ),
    "EncoderModel": (Backbone, {"sequence_output": "last_hidden_state"}),
    "ForConditionalGeneration": (Seq2SeqLM, {"": "logits"}),
    "ForSequenceClassification": (TextClassifier, {"": "logits"}),
    "ForTokenClassification": (TokenClassifier, {"": "logits"}),
    "ForQuestionAnswering": (QuestionAnswerer, {"start": "start_logits", "end": "end_logits"}),
}


def their_config(prefix="T5", **changes):
    import transformers

    sizes = dict(
        vocab_size=61, d_model=24, d_kv=5, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
        relative_attention_num_buckets=8, relative_attention_max_distance=9,
    )  # fmt: skip
    return getattr(transformers, f"{prefix}Config")(**{**sizes, "decoder_start_token_id": 0, **changes})


def untied(theirs, folder):
    """The same model with an output layer of its own, written to `folder`."""
    import torch

    theirs.lm_head.weight = torch.nn.Parameter(torch.randn_like(theirs.lm_head.weight) * 0.2)
    theirs.save_pretrained(folder)
    return theirs


def batch(padding, decoder):
    """(our inputs, their inputs, bool of what is real on the encoder's side); every text has one end token."""
    rng = np.random.default_rng(1)
    ids = rng.integers(2, 61, (2, 11)).astype("int32")
    columns, lengths = np.arange(11), np.array([[11], [7 if padding != "none" else 11]])
    real = columns >= 11 - lengths if padding == "left" else columns < lengths
    last = 10 if padding == "left" else lengths - 1
    ids = np.where(real, np.where(columns == last, END, ids), 0).astype("int32")
    ours = {"token_ids": ids} if padding == "none" else {"token_ids": ids, "padding_mask": real}
    theirs = {"input_ids": ids, "attention_mask": real}
    if decoder:
        decoder_ids = rng.integers(2, 61, (2, 8)).astype("int32")
        ours["decoder_token_ids"] = theirs["decoder_input_ids"] = decoder_ids
    return ours, theirs, real


def check_outputs(ours, theirs, names, padding, decoder, tolerance=1e-5):
    import torch

    our_inputs, their_inputs, real = batch(padding, decoder)
    with torch.no_grad():
        expected = theirs(**{key: torch.from_numpy(value.astype("int64")) for key, value in their_inputs.items()})
    outputs = ours(our_inputs)
    for our_name, their_name in names.items():
        found = to_numpy(outputs[our_name] if our_name else outputs)
        wanted = to_numpy(expected[their_name])
        assert found.shape == wanted.shape
        if found.shape[:2] == real.shape:
            found, wanted = found[real], wanted[real]
        np.testing.assert_allclose(found, wanted, atol=tolerance, rtol=tolerance, err_msg=f"{padding} {our_name}")


@pytest.mark.one_backend
@pytest.mark.parametrize("prefix", ["T5", "MT5", "UMT5"])
@pytest.mark.parametrize("head", HEADS)
def test_heads_equal_transformers_both_ways(prefix, head, tmp_path):
    cls, names = HEADS[head]
    labels = dict(num_labels=5) if "SequenceClass" in head or "TokenClass" in head else {}
    theirs = their_model(prefix + head, their_config(prefix, **labels), tmp_path / "theirs")
    ours = cls.from_preset(tmp_path / "theirs")
    decoder = head in ("Model", "ForConditionalGeneration")
    paddings = ("none", "right", "left") if prefix == "T5" else ("right",)
    for padding in (
        paddings if decoder or "T5" + head in ("T5EncoderModel", "T5ForTokenClassification") else paddings[:2]
    ):
        check_outputs(ours, theirs, names, padding, decoder)  # (their own decoder inputs show padding on the left)
    check_way_back(ours, theirs, tmp_path / "ours")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("prefix", "own_output", "scaled"),
    [("T5", True, False), ("T5", True, True), ("T5", False, False), ("MT5", True, False), ("UMT5", True, True)],
)
def test_output_layers(prefix, own_output, scaled, tmp_path):
    """Their config always says that outputs are tied; those of mT5 are never scaled, those of umT5 always."""
    name = f"{prefix}ForConditionalGeneration"
    flag = {} if prefix != "T5" or scaled else dict(tie_word_embeddings=False)
    flag |= dict(scale_decoder_outputs=True) if prefix == "MT5" else {}  # which their mT5 does not read
    theirs = their_model(name, their_config(prefix, feed_forward_proj="gated-gelu", **flag), tmp_path / "theirs")
    theirs = untied(theirs, tmp_path / "theirs") if own_output else theirs
    ours = Seq2SeqLM.from_preset(tmp_path / "theirs")
    config = ours.backbone.config
    assert (config.tied_output, config.scale_output, config.activation) == (not own_output, scaled, "gelu_new")
    check_outputs(ours, theirs, {"": "logits"}, "right", True)
    check_way_back(ours, theirs, tmp_path / "ours")
    again = Seq2SeqLM.from_preset(tmp_path / "ours")
    check_outputs(again, theirs, {"": "logits"}, "right", True)


@pytest.mark.one_backend
def test_files_of_older_versions(tmp_path):
    """Version 1.1 as version 4 of transformers wrote it, with a table that nothing reads, as the first T5 has it; and a
    token table that is stored as the decoder's alone."""
    theirs = their_model(
        "T5ForConditionalGeneration", their_config(feed_forward_proj="gated-gelu", tie_word_embeddings=False), tmp_path
    )
    theirs = untied(theirs, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act", "is_decoder", "classifier_dropout"):
        config.pop(key)
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    tensors[unread] = tensors[unread.replace("1.EncDec", "0.Self")] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    model = Seq2SeqLM.from_preset(tmp_path)
    assert not model.backbone.config.scale_output and not model.backbone.config.tied_output
    check_outputs(model, theirs, {"": "logits"}, "none", True)
    random = Seq2SeqLM.from_preset(tmp_path, load_weights=False)
    assert not random.backbone.config.tied_output


@pytest.mark.one_backend
def test_outputs_of_the_first_umt5_are_not_scaled(tmp_path):
    """Version 4 of transformers wrote no field for it, and scaled outputs of tied embeddings only."""
    theirs = their_model("UMT5ForConditionalGeneration", their_config("UMT5"), tmp_path / "theirs")
    theirs = untied(theirs, tmp_path / "theirs")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config.pop("scale_decoder_outputs")
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    read = type(theirs.config).from_pretrained(tmp_path / "theirs")
    assert not read.scale_decoder_outputs
    model = Seq2SeqLM.from_preset(tmp_path / "theirs")
    assert not model.backbone.config.scale_output and not model.backbone.config.tied_output
    theirs.lm_head.weight.data *= 24**0.5
    check_outputs(model, theirs, {"": "logits"}, "right", True)
    model.save_to_preset(tmp_path / "ours")
    assert Seq2SeqLM.from_preset(tmp_path / "ours").backbone.config == model.backbone.config


def test_hidden_states_and_attention_weights_equal_transformers(tmp_path):
    import torch

    theirs = their_model("T5Model", their_config(), tmp_path)
    backbone = Backbone.from_preset(tmp_path)
    ours, inputs, _ = batch("none", True)
    found = backbone(ours, hidden_states=True, attention_weights=True)
    with torch.no_grad():
        tensors = {key: torch.from_numpy(value.astype("int64")) for key, value in inputs.items()}
        expected = theirs(**tensors, output_hidden_states=True, output_attentions=True)
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


@pytest.mark.one_backend
def test_an_encoder_is_read_from_a_whole_model(tmp_path):
    """As transformers does, taggers leave the decoder out."""
    theirs = their_model("T5ForConditionalGeneration", their_config(), tmp_path)
    import torch

    inputs, _, real = batch("right", False)
    encoder = Backbone.from_preset(tmp_path, architecture="encoder")
    with torch.no_grad():
        wanted = theirs.encoder(torch.from_numpy(inputs["token_ids"]).long(), torch.from_numpy(real).long())
    found = to_numpy(encoder(inputs)["sequence_output"])
    np.testing.assert_allclose(found[real], wanted.last_hidden_state.numpy()[real], atol=1e-5)
    with pytest.warns(UserWarning, match="new head"):
        tagger = TokenClassifier.from_preset(tmp_path, labels=3)
    assert tagger.backbone.decoder is None and to_numpy(tagger(inputs)).shape == (2, 11, 3)


# === Sizes and initial weights ===


def parameters(vocabulary_size, hidden_dim, head_dim, feed_forward_dim, layers, heads, gated, tied, tables=1):
    """Of both halves, in closed form."""
    inner = heads * head_dim
    attention = 4 * hidden_dim * inner + hidden_dim
    feed_forward = (3 if gated else 2) * hidden_dim * feed_forward_dim + hidden_dim
    stacks = layers * (3 * attention + 2 * feed_forward) + 2 * hidden_dim + 2 * tables * 32 * heads
    return vocabulary_size * hidden_dim * (1 if tied else 2) + stacks


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("t5_small", 60_506_624),
        ("t5_base", 222_903_552),
        ("t5_large", 737_668_096),
        ("t5_3b", 2_851_598_336),
        ("t5_11b", 11_307_321_344),
        ("t5_v1_1_small", 76_961_152),
        ("t5_v1_1_base", 247_577_856),
        ("t5_v1_1_large", 783_150_080),
        ("t5_v1_1_xl", 2_849_757_184),
        ("t5_v1_1_xxl", 11_135_332_352),
        ("mt5_small", 300_176_768),
        ("mt5_base", 582_401_280),
    ],
)
def test_sizes_are_the_papers(name, count):
    c = T5Config(**SIZES[name])
    shape = (c.vocabulary_size, c.hidden_dim, c.head_dim, c.feed_forward_dim, c.num_layers, c.num_heads)
    assert parameters(*shape, c.gated, c.tied_output) == count
    assert c.num_decoder_layers == c.num_layers and (c.activation == "gelu_new") == c.gated


@pytest.mark.one_backend
def test_parameters_agree_with_the_closed_form():
    sizes = dict(vocabulary_size=61, num_heads=3, hidden_dim=24, head_dim=5, feed_forward_dim=40, num_layers=2)
    shape = (61, 24, 5, 40, 2, 3)
    assert T5(T5Config(**sizes)).count_params() == parameters(*shape, False, True)
    multilingual = Seq2SeqLM(T5(T5Config(**sizes, gated=True, tied_output=False, model_type="umt5")))
    assert multilingual.count_params() == parameters(*shape, True, False, tables=2)
    halved = T5(T5Config(**sizes, architecture="shared")).count_params()
    attention, feed_forward = 4 * 24 * 15 + 24, 2 * 24 * 40 + 24
    assert halved == 61 * 24 + 2 * (2 * attention + feed_forward) + 24 + 32 * 3
    alone = T5(T5Config(**sizes, architecture="prefix_language_model")).count_params()
    assert alone == halved - 2 * attention == T5(T5Config(**sizes, architecture="encoder")).count_params()


@pytest.mark.one_backend
def test_initial_weights():
    config = T5Config(
        vocabulary_size=400, num_layers=1, num_heads=4, hidden_dim=96, head_dim=48, feed_forward_dim=300, gated=True,
        activation="gelu_new", tied_output=False, initializer_factor=2.0,
    )  # fmt: skip
    model = Seq2SeqLM(T5(config))
    block = model.backbone.decoder.blocks[0]
    for kernel, std, cut in (
        (model.backbone.token_embedding.embeddings, 1.0, False),
        (block.attention.query.kernel, (96 * 48) ** -0.5, False),
        (block.cross_attention.key.kernel, 96**-0.5, False),
        (block.attention.value.kernel, 96**-0.5, False),
        (block.attention.project.kernel, 192**-0.5, False),
        (block.feed_forward.inner.kernel, 96**-0.5, True),
        (block.feed_forward.gate.kernel, 96**-0.5, True),
        (block.feed_forward.outer.kernel, 300**-0.5, True),
        (model.seq2seq_lm.dense.kernel, 96**-0.5, True),
    ):
        values = to_numpy(kernel) / (2.0 * std)
        assert abs(values.std() / (0.8796 if cut else 1.0) - 1) < 0.03
        assert (np.abs(values).max() <= 2.0 + 1e-6) == cut
    table = to_numpy(model.backbone.encoder.relative_bias[0].embeddings)
    limit = (6 / 36) ** 0.5
    assert table.shape == (32, 4) and 0.9 * limit < np.abs(table).max() <= limit


@pytest.mark.one_backend
def test_dropout_hides_the_same_of_all_positions():
    model = T5(T5Config(**{**TINY, "dropout": 0.5}))
    block = model.decoder.blocks[0]
    dropped = to_numpy(block.attention_dropout(np.ones((2, 6, 24), "float32"), training=True))
    assert (dropped == dropped[:, :1]).all() and (dropped[0] != dropped[1]).any()
    keys = to_numpy(block.attention.dropout(np.ones((2, 3, 5, 7), "float32"), training=True))
    assert (keys == keys[:, :, :1]).all() and (keys[0, 0] != keys[0, 1]).any()


# === Invariances ===


def decoded(backbone, **inputs):
    return to_numpy(backbone(inputs)["sequence_output"])


@pytest.mark.one_backend
def test_invariances():
    backbone = randomize(T5(T5Config(**TINY)))
    check_batch_invariance(backbone)
    check_padding_invariance(backbone, left=True)
    check_packing(backbone)


@pytest.mark.one_backend
def test_packed_rows_on_both_sides():
    backbone = randomize(T5(T5Config(**TINY)))
    rng = np.random.default_rng(0)
    sources = [rng.integers(2, 61, (1, n)).astype("int32") for n in (5, 5)]
    targets = [rng.integers(2, 61, (1, n)).astype("int32") for n in (4, 4)]
    padding = np.zeros((1, 2), "int32")
    packed = decoded(
        backbone,
        token_ids=np.concatenate([*sources, padding], axis=1),
        sequence_ids=np.array([[1] * 5 + [2] * 5 + [0] * 2], "int32"),
        decoder_token_ids=np.concatenate([*targets, padding], axis=1),
        decoder_sequence_ids=np.array([[1] * 4 + [2] * 4 + [0] * 2], "int32"),
    )
    start = 0
    for source, target in zip(sources, targets, strict=True):
        alone = decoded(backbone, token_ids=source, decoder_token_ids=target)
        stop = start + target.shape[1]
        np.testing.assert_allclose(packed[:, start:stop], alone, atol=1e-5)
        start = stop


@pytest.mark.one_backend
def test_packed_texts_are_classified_by_their_ends():
    model = randomize(TextClassifier(T5(T5Config(**TINY))))
    ids = np.array([[5, 6, 1, 9, 7, 8, 9, 1, 0, 0]], "int32")  # what follows the end in the first is not read
    packed = {"token_ids": ids, "sequence_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2, 0, 0]], "int32")}
    found = to_numpy(model({**packed, "first_positions": np.array([[0, 4]], "int32")}))
    for row, part in zip(found[0], (ids[:, :4], ids[:, 4:8]), strict=True):
        np.testing.assert_allclose(row, to_numpy(model({"token_ids": part}))[0], atol=1e-5)
    with pytest.raises(ValueError, match="first_positions"):
        model(packed)


@pytest.mark.one_backend
def test_the_decoder_sees_nothing_behind_it_and_all_of_the_source():
    backbone = randomize(T5(T5Config(**TINY)))
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


def test_half_precision_is_finite():
    check_half_precision(lambda dtype: T5(T5Config(**TINY), dtype=dtype))


@pytest.mark.one_backend
def test_float16_is_finite_where_its_range_is_too_small():
    """Weights as large as those of trained models: hidden values of the feed-forward layers beyond 65,504."""
    precise = randomize(T5(T5Config(**{**TINY, "gated": True, "activation": "gelu_new"})))
    for half in (precise.encoder, precise.decoder):
        for block in half.blocks:
            block.feed_forward.outer.kernel.assign(to_numpy(block.feed_forward.outer.kernel) * 3e6)
    model = T5(precise.config, dtype="float16")
    for one, other in zip(model.weights, precise.weights, strict=True):
        one.assign(to_numpy(other))
    inputs, _, _ = batch("right", True)
    assert np.abs(to_numpy(precise(inputs, hidden_states=True)["hidden_states"]["decoder"][-2])).max() > 65_504
    found, expected = (decoded(m, **inputs).astype("float32") for m in (model, precise))
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.optimized
def test_every_weight_gets_a_gradient():
    config = {**TINY, "dropout": 0.0, "gated": True, "activation": "gelu_new", "tied_output": False}
    model = randomize(Seq2SeqLM(T5(T5Config(**config, model_type="umt5"))))
    rng = np.random.default_rng(0)
    x = {"token_ids": rng.integers(0, 61, (2, 23)), "decoder_token_ids": rng.integers(0, 61, (2, 19))}
    x = {key: value.astype("int32") for key, value in x.items()}
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    model.compile(keras.optimizers.SGD(1.0))
    model.train_on_batch(x, x["decoder_token_ids"])
    still = [v.path for v in model.trainable_variables if np.array_equal(before[v.path], to_numpy(v))]
    assert not still
    tagger = randomize(TokenClassifier(T5(T5Config(**{**ALONE, "dropout": 0.0}, architecture="encoder")), labels=3))
    check_gradients(tagger, ({"token_ids": x["token_ids"]}, rng.integers(0, 3, (2, 23)).astype("int32")))


@pytest.mark.one_backend
@pytest.mark.parametrize("architecture", ["encoder_decoder", "shared", "prefix_language_model"])
def test_keras_files_round_trip(architecture, tmp_path):
    cls = CausalLM if "language" in architecture else Seq2SeqLM
    config = T5Config(**ALONE, gated=True, tied_output=False, activation="gelu_new", architecture=architecture)
    decoder = {} if cls is CausalLM else {"decoder_token_ids": np.full((2, 4), 5, "int32")}
    check_keras_file(randomize(cls(T5(config))), tmp_path, **decoder)


# === Architectures ===


@pytest.mark.one_backend
def test_shared_weights_are_an_encoder_decoder_of_equal_halves(tmp_path):
    """So transformers reads them, too."""
    import transformers

    model = randomize(Seq2SeqLM(T5(T5Config(**ALONE, architecture="shared"))))
    model.save_to_preset(tmp_path)
    theirs, report = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    check_outputs(model, theirs.eval(), {"": "logits"}, "right", True)
    again = Seq2SeqLM.from_preset(tmp_path)
    assert again.backbone.encoder is again.backbone.decoder
    inputs, _, _ = batch("right", True)
    np.testing.assert_array_equal(to_numpy(again(inputs)), to_numpy(model(inputs)))
    theirs.encoder.block[1].layer[0].SelfAttention.k.weight.data += 1.0
    theirs.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"encoder.block.1.layer.0.SelfAttention.k.weight must be equal to decoder"):
        Seq2SeqLM.from_preset(tmp_path)
    apart = Seq2SeqLM.from_preset(tmp_path, architecture="encoder_decoder")
    check_outputs(apart, theirs, {"": "logits"}, "right", True)


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["language_model", "prefix_language_model"])
def test_language_models_are_saved_in_a_layout_of_our_own(kind, tmp_path):
    model = randomize(CausalLM(T5(T5Config(**ALONE, tied_output=False, architecture=kind, model_type="umt5"))))
    model.save_to_preset(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "umt5-lm" and not config["is_encoder_decoder"]
    (tmp_path / "kerasbert.json").unlink()
    again = kerasbert.load(tmp_path)
    assert type(again) is CausalLM and again.backbone.config == model.backbone.config
    ids = {"token_ids": np.arange(2, 20, dtype="int32")[None]}
    np.testing.assert_array_equal(to_numpy(again(ids)), to_numpy(model(ids)))


@pytest.mark.one_backend
def test_who_sees_whom_in_a_prefix_language_model():
    """The rows of the paper's code for inputs [9 4 6 1] and targets [3 9 1]: 1111100 five times, 1111110, 1111111."""
    backbone = randomize(T5(T5Config(**ALONE, architecture="prefix_language_model")))
    ids, prefix = np.array([[0, 9, 4, 6, 1, 3, 9]], "int32"), np.array([[1, 1, 1, 1, 1, 0, 0]], bool)

    def seen(**inputs):
        weights = backbone({"token_ids": ids, **inputs}, attention_weights=True)["attention_weights"]["decoder"]
        return [(to_numpy(w)[0].min(axis=0) > 0).astype(int).tolist() for w in weights]

    expected = [[1] * 5 + [0] * 2] * 5 + [[1] * 6 + [0], [1] * 7]
    assert seen(prefix_mask=prefix) == [expected] * 2
    assert seen() == [np.tri(7, dtype=int).tolist()] * 2
    packed = {"sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 0]], "int32")}
    mask = {"prefix_mask": np.array([[1, 1, 0, 1, 1, 0, 0]], bool)}
    both = [[1, 1, 0, 0, 0, 0, 0]] * 2 + [[1, 1, 1, 0, 0, 0, 0]] + [[0, 0, 0, 1, 1, 0, 0]] * 2 + [[0, 0, 0, 1, 1, 1, 0]]
    assert all(rows[:6] == both for rows in seen(**packed, **mask))


@pytest.mark.one_backend
def test_prefixes_weigh_nothing():
    """The conversion of the paper's code: weights 0 0 0 0 1 1 1 beside the flags 1 1 1 1 1 0 0."""
    model = CausalLM(T5(T5Config(**ALONE, architecture="prefix_language_model")))
    x = {"token_ids": np.array([[0, 9, 4, 6, 1, 3, 9]], "int32"), "prefix_mask": np.array([[1] * 5 + [0] * 2], bool)}
    weights = model.default_weights(x, np.array([[9, 4, 6, 1, 3, 9, 1]], "int32"))
    assert to_numpy(weights).astype(int).tolist() == [[0, 0, 0, 0, 1, 1, 1]]


# === Cache ===


def test_the_cache_gives_what_the_whole_text_gives():
    """In pieces of 5, 1 and 5 tokens, behind padding on the left in one row, and with distances beyond the buckets."""
    backbone = randomize(T5(T5Config(**TINY)))
    context, _, _ = batch("right", False)
    ids = np.random.default_rng(0).integers(0, 61, (2, 11)).astype("int32")
    real = np.arange(11) >= np.array([[0], [2]])
    inputs = {"decoder_token_ids": ids, "decoder_padding_mask": real}
    whole = decoded(backbone, **context, **inputs)
    cache, parts = backbone.start_cache(context, 2, 13), []
    for start, stop in ((0, 5), (5, 6), (6, 11)):
        outputs = backbone({key: value[:, start:stop] for key, value in inputs.items()}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1)[real], whole[real], atol=1e-5)
    assert int(cache["start"]) == 11


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["language_model", "prefix_language_model"])
def test_the_cache_of_a_decoder_alone(kind):
    """What the first call gives is the prefix."""
    backbone = randomize(T5(T5Config(**ALONE, architecture=kind)))
    ids = np.random.default_rng(0).integers(0, 61, (2, 9)).astype("int32")
    real = np.arange(9) >= np.array([[0], [2]])
    prefix = (np.arange(9) < 5) & real
    mask = {"prefix_mask": prefix} if kind == "prefix_language_model" else {}
    whole = decoded(backbone, token_ids=ids, padding_mask=real, **mask)
    cache, parts = backbone.empty_cache(2, 11), []
    for start, stop in ((0, 5), (5, 6), (6, 7), (7, 8), (8, 9)):
        outputs = backbone({"token_ids": ids[:, start:stop], "padding_mask": real[:, start:stop]}, cache=cache)
        cache = outputs["cache"]
        parts.append(to_numpy(outputs["sequence_output"]))
    np.testing.assert_allclose(np.concatenate(parts, axis=1)[real], whole[real], atol=1e-5)


# === Bad input ===


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(architecture="decoder"), "`architecture` must be one of"),
        (dict(architecture="shared"), "same number of layers. Received: num_layers=2, num_decoder_layers=3"),
        (dict(num_buckets=2), "`num_buckets` must be at least 4"),
        (dict(model_type="mt5"), "mT5 does not scale its outputs"),
        (dict(max_distance=4), "`max_distance` above `num_buckets`"),
        (dict(gated=True, activation="gelu"), "gelu_new"),
    ],
)
def test_configs_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        T5Config(**{**TINY, **changes})


@pytest.mark.one_backend
def test_heads_of_other_architectures_are_refused():
    encoder = T5(T5Config(**ALONE, architecture="encoder"))
    with pytest.raises(ValueError, match="T5 has the head 'seq2seq_lm' only as encoder_decoder or shared"):
        Seq2SeqLM(encoder)
    with pytest.raises(ValueError, match="T5 has the head 'tagger' only as encoder. Received: 'shared'"):
        TokenClassifier(T5(T5Config(**ALONE, architecture="shared")))


@pytest.mark.one_backend
def test_bad_ids_are_an_error():
    backbone = T5(T5Config(**TINY))
    ids = np.full((1, 3), 5, "int32")
    with pytest.raises(ValueError, match="`decoder_token_ids` must be between 0 and 60.*Received: 61"):
        backbone({"token_ids": ids, "decoder_token_ids": np.array([[3, 61]], "int32")})
    with pytest.raises(ValueError, match="`token_ids`"):
        backbone({"decoder_token_ids": ids})
    with pytest.raises(ValueError, match="Received: decoder_sequence_ids only"):
        backbone({"token_ids": ids, "decoder_token_ids": ids, "decoder_sequence_ids": ids})
