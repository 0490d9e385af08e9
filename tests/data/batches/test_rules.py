"""Masking rules as objects."""

import numpy as np
import pytest

from kerasbert.data import (
    MaskedLMBatches,
    RareTokens,
    ReplacedTokenBatches,
    SpanMaskBatches,
    Spans,
    Tokens,
    WindowNGrams,
    masking_rule,
)
from kerasbert.data.noise.noise import Noise

from .test_batches import same

pytestmark = pytest.mark.one_backend


def test_spans_in_plain_masked_rows(corpus):
    """`MaskedLMBatches` takes any rule: spans without boundary terms are those of `SpanMaskBatches`."""
    ours = MaskedLMBatches(corpus, 6, 32, rows="sentences", noise=Spans(), steps=3)
    same(ours[2], SpanMaskBatches(corpus, 6, 32, boundary=False, steps=3)[2])


def test_bad_rules(corpus):
    with pytest.raises(TypeError, match="whole_words"):
        MaskedLMBatches(corpus, 6, 32, whole_words=True)
    with pytest.raises(ValueError, match="masking rate must be above 0"):
        Tokens(1.0)
    with pytest.raises(ValueError, match="masked and of kept tokens must add up to 1"):
        ReplacedTokenBatches(corpus, 6, 32, noise=Tokens())
    with pytest.raises(ValueError, match="`phrases` requires rows that are contiguous"):
        MaskedLMBatches(corpus, 6, 32, rows="packed", noise=Spans(phrases=np.array([[1, 3]])))[0]
    with pytest.raises(NotImplementedError):
        Noise().num_slots(8, 2)


def test_rules_of_families():
    assert masking_rule("bert") == Tokens()
    assert masking_rule("xlm", 0.3) == Tokens(0.3, mask_special=True, count="independent", skip_first=True)
    assert masking_rule("distilbert", rare_exponent=0.7) == RareTokens(exponent=0.7, whole_batch=True)
    with pytest.raises(ValueError, match="needs `rare_exponent`. Received: None. Use 0.7"):
        masking_rule("distilbert")
    assert masking_rule("deberta", ngrams=3) == WindowNGrams(ngrams=3)
    assert masking_rule("deberta_anywhere") == WindowNGrams(ngrams=1, words=False, anywhere=True)
    # 15% of 512 is 76.8; DeBERTa completes its last word; independent counts get six standard deviations.
    slots = {rule: masking_rule(rule).num_slots(512, 2) for rule in ("bert", "roberta", "xlm")}
    assert (
        slots == {"bert": 77, "roberta": 77, "xlm": 126} and masking_rule("deberta", ngrams=3).num_slots(512, 2) == 85
    )
