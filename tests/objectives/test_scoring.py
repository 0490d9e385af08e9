"""Scores of texts equal a plain loop over a model of transformers, one token at a time."""

import numpy as np
import pytest
import torch
import transformers

from kerasbert import metrics
from kerasbert.data import Tokenizer
from kerasbert.models import T5, Bert, BertConfig, T5Config
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM, scoring
from tests.models.reference import their_model

LINES = ["the cat sat on the mat.", "a dog ran home!", "cats, dogs and mats", "it was unbelievable"]
TEXTS = ["the cats sat.", "home", "it ran on and on and on, it was unbelievably mat", "a dog", "the cats sat"]


def tokenizer_of(kind, folder):
    size = {"wordpiece": 70, "byte_bpe": 300, "unigram": 130}[kind]
    tokenizer = Tokenizer.train(kind, LINES * 20, size, family="t5" if kind == "unigram" else None)
    tokenizer.save(folder)
    return tokenizer


def log_softmax(logits):
    return torch.log_softmax(logits.double(), dim=-1)


@pytest.mark.parametrize("within_words", [False, True])
def test_masked_scores(tmp_path, within_words):
    tokenizer = tokenizer_of("wordpiece", tmp_path)
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
    config = transformers.BertConfig(vocab_size=tokenizer.vocabulary_size, max_position_embeddings=40, **sizes)
    theirs = their_model("BertForMaskedLM", config, tmp_path)
    model = MaskedLM.from_preset(tmp_path)
    found = model.score(TEXTS, within_words=within_words, batch_size=4)
    assert len(found) == len(TEXTS)
    pieces = 0
    for text, answer in zip(TEXTS, found, strict=True):
        encoding = tokenizer.backend.encode(text)
        ids, words, expected = np.array(encoding.ids), encoding.word_ids, []
        for place in range(1, len(ids) - 1):
            masked = ids.copy()
            masked[place] = tokenizer.mask_id
            for other in range(place + 1, len(ids) - 1):
                if within_words and words[other] == words[place]:
                    masked[other] = tokenizer.mask_id
                    pieces += 1
            with torch.no_grad():
                logits = theirs(torch.from_numpy(masked[None])).logits[0, place]
            expected.append(log_softmax(logits)[ids[place]].item())
        np.testing.assert_allclose(answer["token_scores"], expected, atol=2e-5)
        assert answer["score"] == pytest.approx(sum(expected), abs=1e-4) and answer["tokens"] == len(expected)
        assert answer["perplexity"] == pytest.approx(np.exp(-np.mean(expected)), rel=1e-4)
    assert pieces == (3 if within_words else 0)
    assert model.score(TEXTS[1], within_words)["score"] == pytest.approx(found[1]["score"], abs=1e-4)
    with pytest.raises(ValueError, match="must have at most 40 tokens.*Received: text 1 of 62"):
        model.score(["cat", "the " * 60])


def test_a_model_with_sentence_pairs_has_the_same_scores(tmp_path):
    tokenizer = tokenizer_of("wordpiece", tmp_path)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=16, max_length=24)
    backbone = Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes))
    alone, paired = (MaskedLM(backbone, sentence_pair=pair, tokenizer=tokenizer) for pair in (False, True))
    paired.masked_lm.set_weights(alone.masked_lm.get_weights())
    for one, other in zip(alone.score(TEXTS), paired.score(TEXTS), strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)


@pytest.mark.one_backend
def test_causal_scores(tmp_path, monkeypatch):
    tokenizer = tokenizer_of("byte_bpe", tmp_path)
    config = transformers.GPT2Config(vocab_size=tokenizer.vocabulary_size, n_embd=24, n_layer=2, n_head=3)
    theirs = their_model("GPT2LMHeadModel", config, tmp_path)
    model = CausalLM.from_preset(tmp_path)
    start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    assert start is not None

    def expected(text, context):
        before = tokenizer.backend.encode(context, add_special_tokens=False).ids if context else [start]
        ids = before + tokenizer.backend.encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            logits = log_softmax(theirs(torch.tensor([ids])).logits[0])
        return [logits[i - 1, ids[i]].item() for i in range(len(before), len(ids))]

    contexts = [None, "the mat", "dog ", None, "a"]
    found = model.score(TEXTS, contexts, batch_size=2)
    monkeypatch.setattr(scoring, "LOGITS", 10)  # one text at a time
    one_by_one = model.score(TEXTS, contexts)
    for text, context, answer, again in zip(TEXTS, contexts, found, one_by_one, strict=True):
        np.testing.assert_allclose(answer["token_scores"], expected(text, context), atol=2e-5)
        assert answer["score"] == pytest.approx(again["score"], abs=1e-4)
    assert model.score("home", contexts="the mat")["tokens"] == len(expected("home", "the mat"))
    assert model.score("", "the mat") == {"score": 0.0, "tokens": 0, "perplexity": 1.0, "token_scores": []}
    with pytest.raises(ValueError, match="Every text needs a context. Received: 1 for 5 texts"):
        model.score(TEXTS, ["a"])


@pytest.mark.one_backend
def test_scores_of_answers(tmp_path):
    tokenizer = tokenizer_of("unigram", tmp_path)
    sizes = dict(d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3)
    ids = dict(eos_token_id=tokenizer.eos_id, pad_token_id=tokenizer.pad_id, decoder_start_token_id=0)
    config = transformers.T5Config(vocab_size=tokenizer.vocabulary_size, **sizes, **ids)
    theirs = their_model("T5ForConditionalGeneration", config, tmp_path)
    model = Seq2SeqLM.from_preset(tmp_path)
    found = model.score(TEXTS[:3], TEXTS[2:], batch_size=2)
    for text, context, answer in zip(TEXTS[:3], TEXTS[2:], found, strict=True):
        source = torch.tensor([tokenizer.backend.encode(context).ids])
        target = torch.tensor([[*tokenizer.backend.encode(text, add_special_tokens=False).ids, ids["eos_token_id"]]])
        with torch.no_grad():
            logits = log_softmax(theirs(input_ids=source, labels=target).logits[0])
        expected = logits[torch.arange(target.shape[1]), target[0]].numpy()
        np.testing.assert_allclose(answer["token_scores"], expected, atol=3e-5)
    with pytest.raises(ValueError, match="no `contexts`"):
        model.score(TEXTS)


@pytest.mark.one_backend
def test_text_without_a_tokenizer():
    model = Seq2SeqLM(
        T5(T5Config(vocabulary_size=20, num_layers=1, num_heads=1, hidden_dim=8, head_dim=8, feed_forward_dim=8))
    )
    with pytest.raises(ValueError, match="Text needs a tokenizer"):
        model.score("a", "b")


@pytest.mark.one_backend
def test_minimal_pairs():
    good, bad = [-3.0, -1.0, -2.0, -5.0], [-4.0, -0.5, -2.0, -6.0]
    assert metrics.minimal_pairs(good, bad) == 0.625  # a tie counts one half
    answers = [[{"score": score} for score in scores] for scores in (good, bad)]
    assert metrics.minimal_pairs(*answers) == 0.625
    with pytest.raises(ValueError, match="must be finite"):
        metrics.minimal_pairs([np.nan], [1.0])
