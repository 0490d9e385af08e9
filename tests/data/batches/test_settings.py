"""Objects and the settings of recipes that stand for them."""

import numpy as np
import pytest

from kerasbert.data import (
    Corpus,
    Denoising,
    DenoisingBatches,
    DenoisingLayout,
    MaskedLMBatches,
    NGrams,
    PermutationLMBatches,
    RareTokens,
    ReplacedTokenBatches,
    SegmentPairs,
    SentenceOrder,
    SpanMaskBatches,
    Spans,
    SpanTargets,
    Tokenizer,
    Tokens,
    TokensWithReplacement,
    WholeWords,
    WindowNGrams,
    electra_noise,
    masking_rule,
)
from kerasbert.data.noise.noise import Noise

from .test_batches import same

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def t5_corpus(tmp_path_factory, documents):
    tokenizer = Tokenizer.train("unigram", documents, 250, family="t5")
    return Corpus.write(tmp_path_factory.mktemp("t5") / "en", documents, tokenizer)


@pytest.fixture(scope="module")
def xlnet_corpus(tmp_path_factory, documents):
    tokenizer = Tokenizer.train("unigram", documents, 150, family="xlnet")
    return Corpus.write(tmp_path_factory.mktemp("xlnet") / "en", documents, tokenizer)


MASKED = [
    (dict(whole_words=True, mask_rate=0.3), dict(noise=WholeWords(0.3))),
    (dict(ngrams=3, max_predictions=4), dict(noise=NGrams(0.15, ngrams=3, max_predictions=4))),
    (dict(rare_exponent=0.7), dict(noise=RareTokens(exponent=0.7))),
    (dict(rule="distilbert", rare_exponent=0.7), dict(noise=RareTokens(exponent=0.7, whole_batch=True))),
    (dict(sentence_pairs=True, dupe_factor=3), dict(rows=SegmentPairs(3))),
    (dict(rows="sentence_order", short_sequence_rate=0.0), dict(rows=SentenceOrder(10, 0.0))),
    (dict(static_masks=True, dupe_factor=2), dict(static_masks=2)),
    (
        dict(rule="roberta", whole_words=True),
        dict(noise=WholeWords(by_word=True, mask_special=True, count="drawn", random_from=4)),
    ),
    (dict(rule="deberta", ngrams=(0.2, 0.8)), dict(noise=WindowNGrams(ngrams=(0.2, 0.8)))),
    (dict(shares=(0.5, 0.2)), dict(noise=Tokens(shares=(0.5, 0.2)))),
]


@pytest.mark.parametrize(("settings", "objects"), MASKED)
def test_settings_stand_for_objects(corpus, settings, objects):
    ours = MaskedLMBatches(corpus, 6, 32, seed=2, steps=30, **objects)
    plain = MaskedLMBatches.from_settings(corpus, 6, 32, seed=2, steps=30, **settings)
    with pytest.warns(DeprecationWarning, match="from_settings"):
        old = MaskedLMBatches(corpus, 6, 32, seed=2, steps=30, **settings)
    for step in (0, 29):
        same(ours[step], plain[step])
        same(ours[step], old[step])
    assert old.recipe() == plain.recipe() != ours.recipe()
    assert set(settings) <= set(plain.recipe())


def test_objects_of_other_batches(corpus, t5_corpus, xlnet_corpus):
    pairs = [
        (ReplacedTokenBatches, corpus, dict(mask_share=1.0), dict(noise=electra_noise(32, mask_share=1.0))),
        (
            ReplacedTokenBatches,
            corpus,
            dict(with_replacement=True),
            dict(noise=TokensWithReplacement(max_predictions=4, shares=(0.85, 0.15))),
        ),
        (SpanMaskBatches, corpus, dict(scheme="words", mask_rate=0.3), dict(noise=Spans(0.3, longest=1))),
        (SpanMaskBatches, corpus, dict(whole_sentences=False, boundary=False), dict(rows="chunks", boundary=False)),
        (
            DenoisingBatches,
            t5_corpus,
            dict(objective="drop_tokens", rate=0.3, layout="prefix", targets_only=False),
            dict(noise=Denoising("drop_tokens", 0.3), layout=DenoisingLayout("prefix", targets_only=False)),
        ),
        (PermutationLMBatches, xlnet_corpus, dict(max_span=3, whole_words=True), dict(noise=SpanTargets(6, 3, True))),
    ]
    for cls, text, settings, objects in pairs:
        ours, plain = cls(text, 4, 32, steps=6, **objects), cls.from_settings(text, 4, 32, steps=6, **settings)
        same(ours[5], plain[5])
        with pytest.warns(DeprecationWarning, match=next(iter(settings))):
            same(cls(text, 4, 32, steps=6, **settings)[5], plain[5])


def test_spans_in_plain_masked_rows(corpus):
    """`MaskedLMBatches` takes any rule: spans without boundary terms are those of `SpanMaskBatches`."""
    ours = MaskedLMBatches(corpus, 6, 32, rows="sentences", noise=Spans(), steps=3)
    same(ours[2], SpanMaskBatches(corpus, 6, 32, boundary=False, steps=3)[2])


def test_bad_settings(corpus):
    with pytest.raises(TypeError, match="no argument 'mask_rates'"):
        MaskedLMBatches(corpus, 6, 32, mask_rates=0.3)
    with pytest.raises(ValueError, match="`noise` replaces .*whole_words"):
        MaskedLMBatches(corpus, 6, 32, whole_words=True, noise=Tokens())
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
