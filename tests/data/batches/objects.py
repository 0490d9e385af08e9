"""Batches from short descriptions of their rows and noise, for tests of many combinations."""

import inspect

from kerasbert.data import (
    Denoising,
    DenoisingBatches,
    DenoisingLayout,
    MaskedLMBatches,
    MaskedPermutedLMBatches,
    PermutationLMBatches,
    ReplacedTokenBatches,
    SegmentPairs,
    SentenceOrder,
    SentencePairs,
    SpanMaskBatches,
    Spans,
    SpanTargets,
    TranslationLMBatches,
    electra_noise,
    masking_rule,
)


def batches_of(cls, corpus, batch_size, length, **described):
    """Makes batches of a class. Arguments that its function of `DESCRIPTIONS` knows stand for objects."""
    function = DESCRIPTIONS.get(cls)
    if function is not None:
        known = inspect.signature(function).parameters
        named = {name: described.pop(name) for name in list(described) if name in known}
        described |= function(length, **named)
    return cls(corpus, batch_size, length, **described)


def _masked(
    length,
    rows=None,
    sentence_pairs=False,
    short_sequence_rate=0.1,
    lone_sentences="skip",
    static_masks=False,
    dupe_factor=10,
    mask_rate=0.15,
    max_predictions=None,
    whole_words=False,
    rule="bert",
    ngrams=None,
    rare_exponent=None,
    shares=(0.8, 0.1),
):
    rows = rows or ("segment_pairs" if sentence_pairs else "chunks")
    pairs = {"segment_pairs": SegmentPairs, "sentence_pairs": SentencePairs}
    if rows in pairs:
        rows = pairs[rows](dupe_factor, short_sequence_rate)
    elif rows == "sentence_order":
        rows = SentenceOrder(dupe_factor, short_sequence_rate, lone_sentences)
    noise = masking_rule(rule, mask_rate, max_predictions, whole_words, ngrams, rare_exponent, shares)
    return {"rows": rows, "noise": noise, "static_masks": dupe_factor if static_masks else 0}


def _replaced(
    length,
    rows=None,
    sentence_pairs=False,
    static_masks=False,
    dupe_factor=10,
    mask_rate=0.15,
    max_predictions=None,
    mask_share=0.85,
    with_replacement=False,
    whole_words=False,
    rule="bert",
    ngrams=None,
    rare_exponent=None,
):
    found = _masked(length, rows, sentence_pairs, static_masks=static_masks, dupe_factor=dupe_factor)
    noise = electra_noise(length, mask_rate, max_predictions, mask_share, with_replacement)
    if whole_words or ngrams or rare_exponent or rule != "bert":
        slots, shares = noise.max_predictions, noise.shares
        noise = masking_rule(rule, mask_rate, slots, whole_words, ngrams, rare_exponent, shares)
    return {**found, "noise": noise}


def _spans(
    length,
    whole_sentences=True,
    scheme="spans",
    mask_rate=0.15,
    geometric=0.2,
    longest=10,
    phrases=None,
    phrase_share=0.5,
):
    noise = Spans.of_scheme(scheme, geometric, longest, rate=mask_rate, phrases=phrases, phrase_share=phrase_share)
    return {"rows": "sentences" if whole_sentences else "chunks", "noise": noise}


def _permuted(length, partial_prediction=6, max_predictions=None, max_span=5, whole_words=False):
    return {"noise": SpanTargets(partial_prediction, max_span, whole_words, max_predictions)}


def _denoised(
    length,
    objective="random_spans",
    rate=0.15,
    mean_span=3.0,
    roll=False,
    sentinels=None,
    layout="encoder_decoder",
    target_length=None,
    start_id=None,
    targets_only=None,
):
    noise = Denoising(objective, rate, mean_span, roll, sentinels)
    return {"noise": noise, "layout": DenoisingLayout(layout, target_length, start_id, targets_only)}


def _translated(length, mask_rate=0.15, max_predictions=None, rule="xlm"):
    return {"noise": masking_rule(rule, mask_rate, max_predictions)}


DESCRIPTIONS = {
    MaskedLMBatches: _masked,
    MaskedPermutedLMBatches: _masked,
    ReplacedTokenBatches: _replaced,
    SpanMaskBatches: _spans,
    PermutationLMBatches: _permuted,
    DenoisingBatches: _denoised,
    TranslationLMBatches: _translated,
}
