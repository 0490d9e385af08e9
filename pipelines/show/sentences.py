"""Uses a sentence as the text of a run: documents for a corpus, and recipe settings for so little text."""

from dataclasses import replace

import numpy as np

from kerasbert.data import Batches, Corpus, Tokenizer

from ..recipes.data import Languages, PairData, PermutationLMData, Phase, SkipGramData, TextAndTasks
from ..recipes.recipe import Recipe
from ..runs.building import make_batches

# Text that follows the sentence, and other text, for rows of pairs and for rows that must be full.
NEXT = "We will bring a cake."
OTHER = "The ship left the harbour at noon.\nNobody saw it again."
STEPS = 200  # number of steps of a run that are searched for the sentence
SHOWN_PAIRS = 6  # number of word pairs that a picture of skip-gram shows


def documents_for(recipe: Recipe, sentence: str, following: str = NEXT, translation: str = "") -> list[str]:
    """Creates documents for a corpus with the sentence, with one sentence per line.

    Args:
        recipe: the recipe, which determines whether further sentences are needed.
        sentence: the text. Line breaks separate sentences.
        following: the sentence that follows, for pairs of segments, if there is only one sentence.
        translation: translation of the sentence, for recipes with pairs of languages.

    Raises:
        ValueError: if the recipe needs a translation and there is none.
    """
    if _is_parallel(recipe):
        if not translation:
            raise ValueError(
                f"The recipe {recipe.name} reads pairs of a sentence and its translation. Received: no translation. "
                "Give it with --translation."
            )
        return [f"{sentence}\n{translation}"]
    if recipe.data.labeled:
        return [sentence if "\n" in sentence else f"{sentence}\n{following}", OTHER]
    return [sentence, OTHER] if isinstance(recipe.data, PermutationLMData) else [sentence]


def batches_for(recipe: Recipe, documents: list[str], tokenizer: Tokenizer, seed: int) -> Batches:
    """Creates the batches of a recipe for documents, with one row per step.

    The settings of the recipe are used, except for the length of the run. Two kinds of rows need other settings. Rows
    for permutations have no padding, so the first part gets the length of the first document. For skip-gram, no words
    are dropped, because there are so few.
    """
    data, phase = recipe.data, Phase(STEPS, batch_size=1, length=recipe.phases[0].length)
    if isinstance(data, PermutationLMData):
        first = len(tokenizer.encode([documents[0]], add_special_tokens=False)[0])
        second = len(tokenizer.encode([documents[1]], add_special_tokens=False)[0]) // 2
        noise = replace(data.noise, max_predictions=2 * max(1, round(first / data.noise.partial)))
        data, phase = PermutationLMData(first, noise=noise), replace(phase, length=first + 3 + second)
    if isinstance(data, SkipGramData):
        data, phase = replace(data, threshold=None), replace(phase, batch_size=SHOWN_PAIRS)
    corpus = Corpus.in_memory(documents, tokenizer)
    changed = replace(recipe, data=data, phases=(phase,), accumulation=1, seed=seed, average=0)
    return make_batches(changed, {_corpus_name(recipe): corpus})


def _is_parallel(recipe: Recipe) -> bool:
    """Whether the recipe reads pairs of a sentence and its translation."""
    return isinstance(recipe.data, PairData) or getattr(recipe.data, "pairs", None) is not None


def _corpus_name(recipe: Recipe) -> str:
    """Returns the name that the corpus needs for this recipe. It determines the languages."""
    data = recipe.data
    if isinstance(data, TextAndTasks):
        return data.text_name
    if not isinstance(data, Languages):
        return "text"
    first = "en" if "en" in data.names else data.names[0]
    if not data.pairs:
        return first
    others = [name for name in ("fr", *data.names) if name in data.names and name != first]
    return f"{first}-{others[0]}"


def shows(ids: np.ndarray, sentence: np.ndarray, length: int) -> bool:
    """Whether a row of token ids contains a sentence, or a part of it if it is too long for rows of this length."""
    size = len(sentence)
    if size > length // 4:  # segments of pairs may be truncated at both ends
        return np.isin(sentence, ids).sum() >= length // 4
    return any(np.array_equal(ids[start : start + size], sentence) for start in range(len(ids) - size + 1))
