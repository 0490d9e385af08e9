"""In-context learning: the prompt to the letter, labels by their log probabilities, answers up to the separator."""

import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, T5, Bert, BertConfig, GPT2Config, T5Config
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM
from kerasbert.tasks import FewShot
from tests.models.reference import randomize

EXAMPLES = [("warm and fine", "good"), ("dull", "bad"), ("cold", "bad")]
TEMPLATE = "Review: {}\nOpinion: {answer}"
LINES = ["Review: warm and fine", "Opinion: good or bad, very bad", "dull cold"]


@pytest.fixture(scope="module")
def gpt2():
    tokenizer = Tokenizer.train("byte_bpe", LINES * 30, vocabulary_size=300)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24, max_length=160)
    model = CausalLM(GPT2(GPT2Config(vocabulary_size=tokenizer.vocabulary_size, **sizes)), tokenizer=tokenizer)
    randomize(model)
    return model


@pytest.mark.one_backend
def test_prompts(gpt2):
    shot = FewShot(gpt2, EXAMPLES[:2], TEMPLATE, instruction="What do they think?")
    assert shot.prompt("quick") == (
        "What do they think?\n\nReview: warm and fine\nOpinion: good\n\nReview: dull\nOpinion: bad\n\n"
        "Review: quick\nOpinion:"
    )
    assert shot.labels == ["good", "bad"]
    pair = FewShot(gpt2, [(("a", "b"), "yes")], "{} / {} -> {answer}", separator="\n")
    assert pair.prompt(("c", "d")) == "a / b -> yes\nc / d ->"
    for wrong in ("c", ("c", "d", "e")):
        with pytest.raises(ValueError, match="one text for each of the 2 placeholders of the template. Received"):
            pair.prompt(wrong)
    assert FewShot(gpt2, template="{1} {0} {1} {answer}").prompt(("a", "b")) == "b a b"
    for template in ("no place {answer}", "{text} {answer}"):
        with pytest.raises(ValueError, match="`template` must have {} for each text of an input. Received: "):
            FewShot(gpt2, template=template)
    drawn = {FewShot(gpt2, EXAMPLES, TEMPLATE, shots=1, seed=seed).prompt("x") for seed in range(9)}
    assert len(drawn) > 1


@pytest.mark.one_backend
def test_classes_by_the_scores_of_labels(gpt2):
    shot = FewShot(gpt2, EXAMPLES, TEMPLATE, labels=["good", "very bad"])
    for normalize in (True, False):
        answers = shot.classify(["quick", "warm"], normalize=normalize)
        for text, answer in zip(["quick", "warm"], answers, strict=True):
            scores = [gpt2.score(f" {label}", shot.prompt(text)) for label in shot.labels]
            logits = np.array([s["score"] / (s["tokens"] if normalize else 1) for s in scores])
            expected = np.exp(logits) / np.exp(logits).sum()
            np.testing.assert_allclose([answer["scores"][label] for label in shot.labels], expected, rtol=1e-4)
            assert answer["label"] == shot.labels[expected.argmax()] and answer["score"] == max(
                answer["scores"].values()
            )
    assert shot.classify("quick") == shot.classify(["quick"])[0]


@pytest.mark.one_backend
def test_answers_end_at_the_separator(gpt2, monkeypatch):
    shot = FewShot(gpt2, EXAMPLES, TEMPLATE)
    tokenizer = gpt2.tokenizer

    def generate(ids, **options):
        more = tokenizer.encode([" good\n\nReview: bad"], add_special_tokens=False)[0]
        return [np.concatenate([row, more]) for row in ids]

    monkeypatch.setattr(gpt2, "generate", generate)
    assert shot.answer(["quick", "warm"]) == ["good", "good"]
    monkeypatch.undo()
    assert isinstance(shot.answer("quick", max_new_tokens=3), str)


@pytest.mark.one_backend
def test_an_encoder_decoder_answers_its_prompt():
    tokenizer = Tokenizer.train("unigram", LINES * 30, vocabulary_size=129, family="t5")
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, head_dim=8, feed_forward_dim=24)
    ids = dict(pad_id=tokenizer.pad_id, eos_id=tokenizer.eos_id, decoder_start_id=tokenizer.pad_id)
    model = Seq2SeqLM(T5(T5Config(vocabulary_size=tokenizer.vocabulary_size, **sizes, **ids)), tokenizer=tokenizer)
    shot = FewShot(model, EXAMPLES, TEMPLATE)
    assert shot.prompt("quick").endswith("Review: quick\nOpinion: ")
    (answer,) = shot.classify(["quick"], normalize=False)
    scores = np.array([model.score(label, shot.prompt("quick"))["score"] for label in ("good", "bad")])
    expected = np.exp(scores - np.logaddexp.reduce(scores))
    np.testing.assert_allclose([answer["scores"][label] for label in ("good", "bad")], expected, rtol=1e-4)
    assert shot.answer(["quick"], max_new_tokens=3) == model.generate([shot.prompt("quick")], max_new_tokens=3)


@pytest.mark.one_backend
def test_mistakes_are_clear(gpt2):
    masked = MaskedLM(Bert(BertConfig(vocabulary_size=9, num_layers=1, num_heads=1, hidden_dim=8, feed_forward_dim=8)))
    for call, message in (
        (lambda: FewShot(masked), "needs a CausalLM or a Seq2SeqLM. Received: a MaskedLM"),
        (lambda: FewShot(gpt2, template="{answer} {}"), "must end with {answer}"),
        (lambda: FewShot(gpt2, EXAMPLES, shots=4), "at most the number of examples, 3"),
        (lambda: FewShot(gpt2, EXAMPLES, labels=["one"]).classify("a"), "two or more labels"),
        (lambda: FewShot(gpt2, EXAMPLES * 20, TEMPLATE).classify("a"), "must have at most 160 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.one_backend
def test_nothing_asked(gpt2):
    shot = FewShot(gpt2, EXAMPLES)
    assert shot.classify([]) == shot.answer([]) == []
