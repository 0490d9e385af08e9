"""A sentence as the text of a run: the documents, and the settings that rows of a recipe need for so little text."""

import dataclasses

import numpy as np

from kerasbert.data import Batches, Corpus, Tokenizer

from ..building import make_batches
from ..recipes.recipe import Recipe

# What follows the sentence, and other text, for rows of pairs and for rows that must be full.
NEXT = "We will bring a cake."
OTHER = "The ship left the harbour at noon.\nNobody saw it again."
STEPS = 200  # steps of a run; the sentence is in one of their rows
SHOWN_PAIRS = 6  # pairs of a word with a nearby word in a picture


def documents_for(recipe: Recipe, sentence: str, following: str = NEXT, translation: str = "") -> list[str]:
    """The documents of a corpus with the sentence, one line for each sentence.

    Args:
        recipe: what it reads decides whether the sentence needs a companion.
        sentence: the text; line breaks separate sentences.
        following: the sentence that follows, for pairs of segments, if there is only one sentence.
        translation: for recipes with pairs of languages.

    Raises:
        ValueError: if the recipe needs a translation and there is none.
    """
    if recipe.batches == "PairBatches" or recipe.pairs == "TranslationLMBatches":
        if not translation:
            raise ValueError(
                f"The recipe {recipe.name} reads pairs of a sentence and its translation. Received: no translation. "
                "Give it with --translation."
            )
        return [f"{sentence}\n{translation}"]
    if recipe.labelled_pairs:
        return [sentence if "\n" in sentence else f"{sentence}\n{following}", OTHER]
    return [sentence, OTHER] if recipe.objective == "PermutationLM" else [sentence]


def batches_for(recipe: Recipe, documents: list[str], tokenizer: Tokenizer, seed: int) -> Batches:
    """The batches of a recipe on documents, one row per step.

    Settings of the recipe are kept, apart from the length of the run. Two kinds of rows need others: those of
    permutations have no padding, so that the first part gets the length of the first document; and of so few words
    none may be dropped from the pairs of nearby words.
    """
    changes = dict(batch_size=1, steps=STEPS, accumulation=1, seed=seed, small_batches=(), small_steps=0)
    changes |= dict(long_length=0, long_steps=0, average=0)
    if recipe.objective == "PermutationLM":
        first = len(tokenizer.encode([documents[0]], add_special_tokens=False)[0])
        second = len(tokenizer.encode([documents[1]], add_special_tokens=False)[0]) // 2
        further = dict(reuse_length=first, bidirectional_data=False)
        targets = max(1, round(first / recipe.data.get("partial_prediction", 6)))
        data = {**recipe.data, **further, "permutation_size": None, "max_predictions": 2 * targets}
        changes |= dict(length=first + 3 + second, data=data, config={**recipe.config, **further})
    if recipe.objective == "SkipGram":
        changes |= dict(batch_size=SHOWN_PAIRS, data={**recipe.data, "threshold": None})
    corpus = Corpus.in_memory(documents, tokenizer)
    return make_batches(dataclasses.replace(recipe, **changes), {_corpus_name(recipe): corpus})


def _corpus_name(recipe: Recipe) -> str:
    """The name that the corpus needs, which says what its languages are."""
    if recipe.unlabelled:
        return recipe.unlabelled
    if not recipe.languages:
        return "text"
    first = "en" if "en" in recipe.languages else recipe.languages[0]
    if not recipe.pairs:
        return first
    others = [name for name in ("fr", *recipe.languages) if name in recipe.languages and name != first]
    return f"{first}-{others[0]}"


def shows(ids: np.ndarray, sentence: np.ndarray, length: int) -> bool:
    """Whether a row of token ids shows a sentence: all of it, or a part if it is too long for rows of this length."""
    size = len(sentence)
    if size > length // 4:  # pairs of segments lose tokens at either end
        return np.isin(sentence, ids).sum() >= length // 4
    return any(np.array_equal(ids[start : start + size], sentence) for start in range(len(ids) - size + 1))
