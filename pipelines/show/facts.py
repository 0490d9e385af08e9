"""Describes the noise of a recipe in sentences, from the settings of its batches."""

import inspect

import numpy as np

from kerasbert.data import (
    Batches,
    Denoising,
    NGrams,
    Noise,
    PermutationLMBatches,
    RareTokens,
    RateSchedule,
    RetroMAEBatches,
    SentenceOrder,
    SkipGramBatches,
    Spans,
    TextInfilling,
    Tokenizer,
    TokenSpans,
    TokensWithReplacement,
    TSDAEBatches,
    WholeTextBatches,
    WholeWords,
    WindowNGrams,
)
from kerasbert.data.noise.span_corruption import noise_counts

from ..recipes.models import BidirectionalLM, ReplacedTokenDetection, Seq2SeqLM
from ..recipes.recipe import Recipe

_DENOISING = {
    "random_spans": "{rate:.0%} of the tokens are noise, in spans of {mean:g} on average; a sentinel replaces each.",
    "replace_spans": "Each token is noise with a probability of {rate:.0%}; a sentinel replaces each run of noise.",
    "drop_tokens": "Each token is noise with a probability of {rate:.0%}; noise is dropped.",
    "mass": "Each token is noise with a probability of {rate:.0%}; <M> replaces each noise token.",
    "text_infilling": "{rate:.0%} of the words vanish: spans of {mean:g} words on average, each of which is a mask.",
    "bert": "Each token is noise with a probability of {rate:.0%}; <M> replaces 90% of them, a random token 10%.",
    "deshuffling": "The tokens are shuffled.",
    "prefix_lm": "The text is split at a random place; the second part is predicted from the first.",
    "lm": "Every token is predicted from those before it.",
}


def about(recipe: Recipe, batches: Batches) -> str:
    """Describes which tokens are predicted, and what replaces them in the input."""
    noise = getattr(batches, "noise", None)
    if isinstance(noise, Denoising | TextInfilling):
        return _DENOISING[noise.objective].format(rate=noise.rate, mean=noise.mean_span)
    if isinstance(batches, PermutationLMBatches):
        return (
            f"Spans of up to {noise.longest} tokens are predicted, one token in {noise.partial}, in a random order; "
            "each is predicted from the context and from the targets before it in the order."
        )
    if isinstance(batches, TSDAEBatches):
        return (
            f"{batches.deletion:.0%} of the words are deleted; every token of the text is predicted from the embedding "
            "of what is left and from the tokens before it."
        )
    if isinstance(batches, WholeTextBatches):
        return "The text is read twice, with different dropout, and recognized among the other texts of the batch."
    if isinstance(batches, SkipGramBatches):
        return f"A word at most {batches.window} words away is told apart from {batches.negatives} random words."
    if isinstance(noise, Noise):
        return f"{_chosen(noise)} {_shown(noise, isinstance(recipe.model.objective, ReplacedTokenDetection))}"
    if isinstance(recipe.model.objective, BidirectionalLM):
        return "Two models predict the next and the previous token."
    is_seq2seq = isinstance(recipe.model.objective, Seq2SeqLM)
    return "The target is predicted from the source." if is_seq2seq else _DENOISING["lm"]


def _chosen(noise: Noise) -> str:
    if isinstance(noise, RateSchedule):
        return f"{_chosen(noise.noise)} In the run, the rate changes to {noise.final:.0%}."
    if not hasattr(noise, "rate"):  # a rule from outside the package
        return (inspect.getdoc(noise) or type(noise).__name__).splitlines()[0]
    rate = f"{noise.rate:.0%} of the tokens"
    if isinstance(noise, Spans):
        spans = f"in spans of 1 to {noise.longest} words" if noise.longest > 1 else "as whole words"
        return f"{rate} are predicted, {spans if noise.words else 'piece by piece'}."
    if isinstance(noise, TokenSpans):
        return f"{rate} are predicted, in spans of 1 to {noise.longest} tokens."
    if isinstance(noise, RareTokens):
        weight = f"in proportion to their count to the power -{noise.exponent}"
        of = " of a batch" if noise.whole_batch else ""
        return f"{rate}{of} are predicted, rare tokens more often: {weight}."
    if isinstance(noise, WindowNGrams):
        return f"{rate} are predicted, one n-gram of up to {len(noise.probabilities)} in each window of a row."
    if isinstance(noise, NGrams):
        return f"{rate} are predicted, in n-grams of up to {len(noise.probabilities)} words."
    if isinstance(noise, WholeWords):
        return f"{rate} are predicted, as whole words."
    if isinstance(noise, TokensWithReplacement):
        return f"{rate} are predicted, drawn one by one, so that one may be drawn twice."
    if getattr(noise, "count", "") == "independent":
        return f"Each token is predicted with a probability of {noise.rate:.0%}."
    return f"{rate} are predicted."


def _shown(noise: Noise, is_replaced: bool) -> str:
    mask, kept = noise.shares
    rest = 1 - mask - kept
    parts = [f"{mask:.0%} of these are masked"]
    parts += [f"{kept:.0%} kept"] if kept > 1e-9 else []
    parts += [f"{rest:.0%} replaced by random tokens"] if rest > 1e-9 else []
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return text + (", and a generator fills them all." if is_replaced else ".")


def notes(recipe: Recipe, batches: Batches, tokenizer: Tokenizer, tokens: int) -> list[str]:
    """Adds what a picture of one short text does not show.

    Args:
        tokens: number of tokens of the text.
    """
    noise = getattr(batches, "noise", None)
    found = []
    if isinstance(batches, RetroMAEBatches):
        found.append(
            "The decoder predicts every token from the embedding of the text, its position, and the tokens that it "
            f"sees: {batches.decoder_rate:.0%} are hidden, other words from every position. One position is shown."
        )
    if isinstance(noise, Denoising):
        if noise.objective == "random_spans" and tokens < batches.max_tokens:
            here, there = (
                [int(count[0]) for count in noise_counts(np.array([size]), noise.rate, noise.mean_span)]
                for size in (tokens, batches.max_tokens)
            )
            spans = f"{tokens} tokens have {here[0]} noise tokens in {here[1]} span{'s' * (here[1] > 1)}"
            found.append(f"{spans}." if noise.roll else f"{spans}, and the last span ends the text.")
            found.append(
                f"Rows of this recipe have {batches.max_tokens} tokens, {there[0]} of them noise in {there[1]} spans."
            )
        if noise.needs_sentinels:
            names = [tokenizer.token(number) for number in noise.sentinels[:3]]
            mask = noise.parts.inputs in ("mask", "mask_or_random")
            found.append(f"<M> is {names[0]}." if mask else f"<X>, <Y> and <Z> are {', '.join(names)}.")
        if batches.layout == "encoder_decoder":
            found.append("The decoder reads the targets shifted right by one.")
    elif isinstance(recipe.model.objective, Seq2SeqLM):
        if isinstance(noise, TextInfilling) and noise.permute_sentences:
            found.append("Sentences are shuffled, if there are several.")
        found.append("The decoder reads the targets shifted right by one.")
    if isinstance(batches, PermutationLMBatches):
        found.append(
            "Two segments follow in the row. They have a separate order, and attend to all of this part."
            if batches.reuse_length
            else "Special tokens have a place in the order, but are not predicted."
        )
    return found


def label_notes(recipe: Recipe, y) -> list[str]:
    """Explains the label of a pair of segments."""
    if not isinstance(y, dict) or "sentence_pair" not in y:
        return []
    label = int(y["sentence_pair"])
    if isinstance(getattr(recipe.data, "rows", None), SentenceOrder):
        return [f"Label {label}: the segments are {'swapped' if label else 'in the original order'}."]
    return [f"Label {label}: the second segment {'is from another document' if label else 'follows the first'}."]
