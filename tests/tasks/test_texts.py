"""What the text methods are given: anything but texts is an error that says what they take."""

import pytest

from kerasbert.models import GPT2, GPT2Config
from kerasbert.objectives import CausalLM, MaskedLM
from kerasbert.tasks import MultipleChoice, QuestionAnswerer, TextClassifier, TextEmbedder, TokenClassifier

pytestmark = pytest.mark.one_backend

METHODS = [
    (TextClassifier, "classify"), (TokenClassifier, "tag"), (MultipleChoice, "choose"), (QuestionAnswerer, "answer"),
    (TextEmbedder, "embed"), (MaskedLM, "fill_mask"), (MaskedLM, "score"),
]  # fmt: skip


@pytest.mark.parametrize("cls, method", METHODS, ids=[method for _, method in METHODS])
def test_no_texts(cls, method, tiny_backbone, tokenizer):
    model = cls(tiny_backbone(), tokenizer=tokenizer)
    for wrong in (None, 3, {"text": "a"}, iter(["a"])):
        with pytest.raises(ValueError, match=f"`{method}` takes .*, or a list of them. Received: "):
            getattr(model, method)(wrong)
    with pytest.raises(ValueError, match="Convert it with list"):
        getattr(model, method)(text for text in ["a"])


def test_no_prompts(tokenizer):
    config = GPT2Config(vocabulary_size=tokenizer.vocabulary_size, num_layers=1, num_heads=1, hidden_dim=4)
    model = CausalLM(GPT2(config), tokenizer=tokenizer)
    for method in (model.generate, model.score):
        with pytest.raises(ValueError, match="or a list of them. Received: NoneType"):
            method(None)


@pytest.mark.parametrize("method", ["fit", "predict", "evaluate"])
def test_no_data(method, tiny_backbone, tokenizer):
    with pytest.raises(ValueError, match="Received: NoneType"):
        getattr(TextClassifier(tiny_backbone(), tokenizer=tokenizer), method)(None, verbose=0)
