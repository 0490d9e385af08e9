"""Fine-tuning, step by step, is that of transformers: the same losses, gradients, updates and rates."""

import json

import keras
import numpy as np
import pytest

from benchmarks.studies.finetuning.peer import train
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TokenClassifier
from kerasbert.training import adamw

TEXTS = [
    "Ann lives in Rome .", "Bob lives in Bonn .", "in Rome lives Bob", "Ann met Bob in Bonn", "a cat met a dog",
    "the cat sat in Rome with a dog", "who is it ?",
]  # fmt: skip
PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
TAGS = [["B" if word in ("Ann", "Bob") else "O" for word in text.split()] for text in TEXTS]
CHOICES = [(text, ["Rome", "a cat", "Bob lives in Bonn"]) for text in TEXTS]
QUESTIONS = [("who ?", text) for text in TEXTS]
ANSWERS = [("Ann", 0), ("Bob", 0), ("Bob", 14), None, ("a cat", 0), ("the cat", 0), None]

# Seven examples in batches of four: the last one of a pass has a row of padding.
CASES = {
    "classes": (TextClassifier, dict(labels=["no", "yes"]), PAIRS, ["no", "yes", "no", "no", "yes", "yes", "no"]),
    "score": (TextClassifier, dict(problem="score"), TEXTS, [0.5, 1.0, -2.0, 4.0, 0.0, 3.0, 1.0]),
    "tags": (TokenClassifier, dict(labels=["O", "B"]), [text.split() for text in TEXTS], TAGS),
    "questions": (QuestionAnswerer, dict(max_length=16, stride=4), QUESTIONS, ANSWERS),
    "choices": (MultipleChoice, {}, CHOICES, [0, 2, 1, 0, 1, 2, 0]),
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", TEXTS * 20, vocabulary_size=70)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "classes" else pytest.mark.one_backend) for kind in CASES]
)
def test_updates(kind, tokenizer, tmp_path):
    cls, options, x, y = CASES[kind]
    config = BertConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        feed_forward_dim=24,
        max_length=32,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.2,
    )
    model = cls(Bert(config), tokenizer=tokenizer, **options)
    model.save_to_preset(tmp_path / "before")
    # transformers never trains the row of its padding token, which the span logits of padding do reach; BERT does.
    stored = json.loads((tmp_path / "before" / "config.json").read_text())
    (tmp_path / "before" / "config.json").write_text(json.dumps({**stored, "pad_token_id": tokenizer.info["mask_id"]}))
    targets = y if kind in ("questions", "choices") else model.encode_labels(y)
    batches = model.text_batches(x, targets, None, 4, 5, 0, True)
    numbers = dict(warmup=2, steps=len(batches), weight_decay=0.1)
    train(kind, getattr(model, "labels", None), tmp_path / "before", tmp_path / "after", batches, 1e-2, 0, **numbers)
    model.compile(adamw(1e-2, **numbers))
    model.fit(batches, verbose=0)

    theirs, before = (cls.from_preset(tmp_path / name, **options) for name in ("after", "before"))
    found = zip(*(part.trainable_variables for part in (model, theirs, before)), strict=True)
    for variable, *others in found:
        value, wanted, first = (keras.ops.convert_to_numpy(part.value) for part in (variable, *others))
        if np.abs(wanted - first).max() > 5e-3:
            np.testing.assert_allclose(value, wanted, atol=2e-4, err_msg=variable.path)
        else:  # softmax cancels some biases: their gradients are rounding
            assert variable.path.endswith(("bias", "beta")) and np.abs(value - first).max() < 1e-2, variable.path
