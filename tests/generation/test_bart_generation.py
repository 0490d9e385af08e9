"""Generation by BART: token for token what transformers generates, with tokens that are forced at both ends."""

import json

import numpy as np
import pytest

from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer
from kerasbert.generation.settings import read_settings, settings_of_config, written_settings
from kerasbert.models import Bart, BartConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.tasks import TextClassifier, ZeroShotClassifier
from tests.models.reference import randomize, their_model, to_numpy

START, END, FIRST = 2, 2, 9


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(ours, theirs) of the same random weights, so large that texts differ and some of them end."""
    import torch
    import transformers

    config = transformers.BartConfig(
        vocab_size=61, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
        decoder_attention_heads=2, encoder_ffn_dim=40, decoder_ffn_dim=36, max_position_embeddings=48,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bart")
    theirs = their_model("BartForConditionalGeneration", config, folder, std=0.6)
    theirs.final_logits_bias.copy_(torch.randn(1, 61))
    theirs.final_logits_bias[0, END] += 3.0
    theirs.generation_config.forced_bos_token_id = FIRST
    theirs.save_pretrained(folder)
    return Seq2SeqLM.from_preset(folder), theirs


def random_sources(count=40, longest=40):
    rng = np.random.default_rng(0)
    return [rng.integers(3, 61, rng.integers(1, longest)).astype("int32") for _ in range(count)]


def check_equal(ours, theirs, sources, first=None, most=12, least=0, **options):
    """The same tokens, padding behind their end, and for beams the same scores. Returns how many ended early."""
    import torch

    lengths = np.array([len(source) for source in sources])
    real = np.arange(max(lengths)) < lengths[:, None]
    ids = np.ones(real.shape, "int64")
    ids[real] = np.concatenate(sources)
    beams = options.get("num_beams", 1) > 1
    limits = dict(max_new_tokens=most, min_new_tokens=least)
    forced = {} if first is None else dict(forced_bos_token_id=first)
    expected = theirs.generate(
        input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(real.astype("int64")), **limits, **options,
        **forced, do_sample=False, return_dict_in_generate=True, output_scores=beams,
    )  # fmt: skip
    found = ours.generate(sources, **limits, **options, first_token=first, scores=True)
    ended = 0
    for number, (row, other) in enumerate(zip(found, expected.sequences.numpy()[:, 1:], strict=True)):
        new = row["token_ids"]
        np.testing.assert_array_equal(new, other[: len(new)], err_msg=f"source {number}")
        assert new[0] == (FIRST if first is None else first) and new[-1] == END and (other[len(new) :] == 1).all()
        ended += len(new) < most
        if beams:
            np.testing.assert_allclose(row["score"], expected.sequences_scores[number].item(), rtol=1e-4, atol=1e-5)
    return ended


@pytest.mark.one_backend
def test_greedy_equals_transformers(pair):
    assert 0 < check_equal(*pair, random_sources()) < 40
    assert check_equal(*pair, random_sources(), first=17, least=12) == 0


def test_beam_search_equals_transformers(pair):
    assert check_equal(*pair, random_sources(30), num_beams=3, early_stopping=True, length_penalty=2.0)


@pytest.mark.one_backend
def test_beams_of_another_language(pair):
    check_equal(*pair, random_sources(9), num_beams=3, first=17, most=5, length_penalty=-1.0)


@pytest.mark.one_backend
def test_forced_tokens_have_probability_one(pair):
    """The score is that of the other tokens, by whole calls of the model; samples have the same ends."""
    ours, _ = pair
    source = random_sources(2)[1]
    answer = ours.generate(source, max_new_tokens=9, min_new_tokens=9, scores=True)
    ids = answer["token_ids"]
    decoder_ids = np.concatenate([[START], ids[:-1]]).astype("int32")[None]
    logits = to_numpy(ours({"token_ids": source[None], "decoder_token_ids": decoder_ids}))[0].astype("float64")
    scores = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(9), ids]
    np.testing.assert_allclose(answer["score"], scores[1:-1].sum(), atol=1e-4)
    samples = ours.generate(source, sample=True, top_p=0.9, num_sequences=5, max_new_tokens=4, stop_ids=())
    assert all(row[0] == FIRST and row[-1] == END for row in samples) and len({row[1] for row in samples}) > 1


@pytest.mark.one_backend
def test_wrong_first_tokens(pair):
    ours, _ = pair
    with pytest.raises(ValueError, match="`first_token` must be a token of the vocabulary.* 0 and 60. Received: 61"):
        ours.generate(np.array([5, 2]), first_token=61)
    with pytest.raises(ValueError, match="tokenizer"):
        ours.generate(np.array([5, 2]), first_token="de_DE")


# === Texts ===

DOCUMENTS = ["the cat sat on the mat", "a dog ran over the hill", "they sat on a chair"] * 20
TEXTS = ["the cat ran over the mat", "a dog sat"]


def backbone_for(tokenizer, **fields):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, max_length=64)
    return Bart(BartConfig(**sizes, vocabulary_size=tokenizer.vocabulary_size, **fields))


@pytest.mark.one_backend
@pytest.mark.parametrize("kind", ["bart", "mbart"])
def test_texts_in_transformers(kind, tmp_path):
    """What is saved here, transformers reads, and generates the same texts from texts."""
    import torch
    import transformers

    if kind == "bart":
        tokenizer, fields = Tokenizer.train("byte_bpe", DOCUMENTS, 280), dict(forced_bos_id=0, forced_eos_id=2)
    else:
        tokenizer = Tokenizer.train("unigram", DOCUMENTS, 76, family="mbart50").with_language("de_DE")
        fields = dict(model_type="mbart", decoder_start_id=tokenizer.eos_id, forced_bos_id=tokenizer.id("ro_RO"))
    model = randomize(Seq2SeqLM(backbone_for(tokenizer, **fields), tokenizer=tokenizer), std=0.6)
    model.save_to_preset(tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    encoder = transformers.AutoTokenizer.from_pretrained(tmp_path)
    inputs = encoder(TEXTS, return_tensors="pt", padding=True)
    for name in (None, "fr_XX") if kind == "mbart" else (None,):
        forced = {} if name is None else dict(forced_bos_token_id=encoder.convert_tokens_to_ids(name))
        with torch.no_grad():
            wanted = theirs.generate(**inputs, max_new_tokens=9, do_sample=False, **forced)
        wanted = encoder.batch_decode(wanted, skip_special_tokens=True)
        found = model.generate(TEXTS, max_new_tokens=9, first_token=name)
        assert [text.strip() for text in found] == [text.strip() for text in wanted] and all(found)


@pytest.mark.one_backend
def test_zero_shot_classification_equals_transformers(tmp_path):
    import transformers

    tokenizer = Tokenizer.train("byte_bpe", DOCUMENTS, 280)
    names = ["contradiction", "neutral", "entailment"]
    randomize(TextClassifier(backbone_for(tokenizer), labels=names, tokenizer=tokenizer), std=0.6).save_to_preset(
        tmp_path
    )
    theirs = transformers.pipeline("zero-shot-classification", str(tmp_path), device="cpu")
    ours = ZeroShotClassifier.from_preset(tmp_path)
    for text in TEXTS:
        wanted = theirs(text, ["cats", "dogs", "chairs"])
        found = ours.classify(text, ["cats", "dogs", "chairs"])["scores"]
        np.testing.assert_allclose([found[name] for name in wanted["labels"]], wanted["scores"], atol=1e-5)


@pytest.mark.one_backend
def test_targets_begin_with_the_first_token():
    """In training and in scores, as in generation: the decoder reads </s> <s> and the text."""
    tokenizer = Tokenizer.train("byte_bpe", DOCUMENTS, 280)
    model = Seq2SeqLM(backbone_for(tokenizer), tokenizer=tokenizer)
    ids = tokenizer.encode(["the cat"], add_special_tokens=False)[0].tolist()
    x, y, _ = model.text_batches(["a dog"], ["the cat"], None, 1, 1, 0, False)[0]
    assert x["decoder_token_ids"].tolist() == [[2, 0, *ids]] and y.tolist() == [[0, *ids, 2]]
    score = model.score("the cat", "a dog")
    logits = to_numpy(model(x))[0].astype("float64")
    expected = (logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))[np.arange(1, len(ids) + 2), y[0, 1:]]
    np.testing.assert_allclose(score["token_scores"], expected, atol=1e-5)
    batches = Seq2SeqBatches([[5, 2]], [[0, 7]], batch_size=1, layout=Seq2SeqLayout(end_id=2, first_id=0))
    assert batches[0][1].tolist() == [[0, 7, 2]]


# === Settings of the folder ===

SETTINGS = dict(
    num_beams=3, max_length=14, min_length=5, no_repeat_ngram_size=2, length_penalty=2.0, early_stopping=True,
    repetition_penalty=1.3,
)  # fmt: skip


def their_texts(model, source, **options):
    import torch

    with torch.no_grad():
        return model.generate(input_ids=torch.from_numpy(source[None].astype("int64")), **options)[0].tolist()[1:]


@pytest.fixture(scope="module")
def with_settings(pair, tmp_path_factory):
    """(ours, read from a folder of theirs; theirs; theirs, read from a folder of ours), with `SETTINGS`."""
    import transformers

    folder = tmp_path_factory.mktemp("settings")
    theirs = transformers.BartForConditionalGeneration(pair[1].config)
    theirs.load_state_dict(pair[1].state_dict())
    theirs.eval().generation_config.update(**SETTINGS, forced_bos_token_id=FIRST)
    theirs.save_pretrained(folder / "theirs")
    ours = Seq2SeqLM.from_preset(folder / "theirs")
    ours.save_to_preset(folder / "ours")
    assert Seq2SeqLM.from_preset(folder / "ours").generation == ours.generation == SETTINGS
    older = json.loads((folder / "theirs" / "config.json").read_text()) | SETTINGS
    (folder / "theirs" / "generation_config.json").unlink()
    (folder / "theirs" / "config.json").write_text(json.dumps(older))
    assert Seq2SeqLM.from_preset(folder / "theirs").generation == SETTINGS
    return ours, theirs, transformers.BartForConditionalGeneration.from_pretrained(folder / "ours")


@pytest.mark.parametrize(
    "changes",
    [{}, dict(num_beams=1), dict(max_new_tokens=4), dict(repetition_penalty=1.0, no_repeat_ngram_size=3)],
    ids=["as stored", "one beam", "shorter", "other values"],
)
@pytest.mark.one_backend
def test_settings_of_a_folder_apply_unless_the_call_has_others(changes, pair, with_settings):
    ours, *others = with_settings
    sources = random_sources(6)
    plain = pair[0].generate(sources, max_new_tokens=13)
    for source, other, found in zip(sources, plain, ours.generate(sources, **changes), strict=True):
        for theirs in others:
            assert found.tolist() == their_texts(theirs, source, **changes)[: len(found)]
        assert found.tolist() != other.tolist()


@pytest.mark.one_backend
def test_settings_are_checked(with_settings, tmp_path):
    ours = with_settings[0]
    assert Seq2SeqLM.from_config(ours.get_config()).generation == SETTINGS
    with pytest.raises(ValueError, match="`generation` may set max_new_tokens, .*. Received: beams"):
        Seq2SeqLM(ours.backbone, generation={"beams": 3})
    with pytest.raises(ValueError, match="Beam search does not sample: use num_beams=1"):
        ours.generate(np.array([5, 2]), sample=True)
    with pytest.raises(ValueError, match="`repetition_penalty` must be above 0"):
        ours.generate(np.array([5, 2]), repetition_penalty=0.0)
    stored = {"num_beams": "3"}
    with pytest.raises(ValueError, match="`num_beams` in some.json must be int. Received: '3'"):
        read_settings(stored, "some.json")
    assert read_settings({"top_k": 0, "num_beam_groups": 1, "bad_words_ids": []}, "some.json") == {}
    assert read_settings({"do_sample": True}, "some.json") == {"sample": True, "top_k": 50}
    assert settings_of_config({"max_length": 20, "eos_token_id": [5], "num_beams": 2}) == {"num_beams": 2}
    assert written_settings({"sample": True}) == {"do_sample": True, "top_k": 0}


@pytest.mark.one_backend
@pytest.mark.parametrize("stored", [{"suppress_tokens": [5]}, {"typical_p": 0.9, "do_sample": True}])
def test_settings_that_generate_does_not_have(stored, pair, tmp_path):
    """They are refused when texts are generated, and saved again."""
    pair[0].save_to_preset(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(stored))
    model = Seq2SeqLM.from_preset(tmp_path)
    with pytest.raises(ValueError, match=f"Received in `model.generation`: .*'{next(iter(stored))}'.*pop"):
        model.generate(np.array([5, 2]))
    model.save_to_preset(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text()).items() >= stored.items()
    if "do_sample" in stored:
        assert len(model.generate(np.array([5, 2]), sample=False))
    model.generation.pop(next(iter(stored)))
    assert len(model.generate(np.array([5, 2])))
