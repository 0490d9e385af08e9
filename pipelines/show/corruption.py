"""Shows how the objectives corrupt a sentence: the rows that a run of a recipe would read, and their targets."""

import dataclasses
from collections.abc import Callable

import numpy as np

from kerasbert.data import Batches, DenoisingBatches, SentenceOrder, TextInfilling, Tokenizer
from kerasbert.objectives import MaskedLM

from ..recipes.models import ReplacedTokenDetection
from ..recipes.recipe import Recipe, find_recipe
from .facts import about, label_notes, notes
from .renderings import Row, denoising_lines, infilling_lines, lines_of
from .rows import Line, Rows
from .sentences import NEXT, STEPS, batches_for, documents_for, shows
from .words import TokenNames, model_type_of, word_tokenizer

# {recipe of an objective: heading}
OBJECTIVES = {
    "bert.base": "Masked tokens and next-sentence prediction (BERT)",
    "roberta.base": "Masked tokens without pairs (RoBERTa)",
    "bert.large_whole_words": "Whole words (BERT, later checkpoints)",
    "albert.base": "N-grams of words, and sentence order (ALBERT)",
    "deberta.v1_base": "N-grams in windows (DeBERTa)",
    "spanbert.base": "Spans and their boundaries (SpanBERT)",
    "distilbert.base": "Rare tokens (DistilBERT)",
    "modernbert.base": "30% masked tokens in packed rows (ModernBERT)",
    "electra.base": "Replaced tokens (ELECTRA)",
    "xlm.mlm": "Masked tokens of a stream (XLM)",
    "xlm.mlm_tlm": "Translation language model (XLM)",
    "xlnet.base": "Permutations (XLNet)",
    "gpt.base": "Next token (GPT)",
    "transformer_xl.wikitext103": "Next token, with a memory (Transformer-XL)",
    "elmo.base": "Next and previous token (ELMo)",
    "word_vectors.google_news": "Nearby words (word2vec)",
    "t5.base": "Random spans (T5)",
    "t5.replace_spans": "Replace spans (T5)",
    "t5.drop_tokens": "Drop tokens (T5)",
    "t5.mass_style": "MASS-style (T5)",
    "t5.bert_style": "BERT-style (T5)",
    "t5.deshuffling": "Deshuffling (T5)",
    "t5.prefix_lm": "Prefix language model with a decoder (T5)",
    "t5.prefix_language_model": "Prefix language model in one row (T5)",
    "t5.language_model": "Language model (T5)",
    "transformer.base": "Translation (Transformer)",
}
# For these recipes, words are split into pieces, because the noise treats words in a special way.
IN_PIECES = {"bert.large_whole_words": 4, "albert.base": 4}


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence, and settings for its corruption.

    Args:
        sentence: the text. Line breaks separate sentences.
        following: the sentence that follows it, for pairs of segments.
        translation: translation of the sentence, for recipes with pairs of languages.
        seed: seed of the noise.
        draws: number of rows, each with different noise.
        tokenizer: the tokenizer. Default: one with whole words as tokens; see `word_tokenizer`.
        pieces: for the default tokenizer, the maximum number of letters in a piece. With 0, words are not split.
        words: for the default tokenizer, the words besides those of the text. Default: common words.
        generator: a masked language model that replaces masked tokens, for replaced token detection. Default: random
            words, drawn with their frequencies in the text. Words that are not in the text have frequency 1.
    """

    sentence: str
    following: str = NEXT
    translation: str = ""
    seed: int = 0
    draws: int = 1
    tokenizer: Tokenizer | None = None
    pieces: int = 0
    words: tuple[str, ...] | None = None
    generator: MaskedLM | None = None


def corrupted(recipe: Recipe, example: Example, title: str = "") -> list[Rows]:
    """Creates pictures of the first rows of a run that contain the sentence, one for each draw of the noise.

    Raises:
        ValueError: if the recipe cannot create rows from the sentence.
    """
    if not example.sentence.strip() or example.draws < 1:
        raise ValueError(
            f"There must be a sentence and at least one draw. Received: {example.sentence!r}, {example.draws} draws."
        )
    documents = documents_for(recipe, example.sentence, example.following, example.translation)
    tokenizer = example.tokenizer or word_tokenizer(documents, model_type_of(recipe), example.pieces, example.words)
    batches = batches_for(recipe, documents, tokenizer, example.seed)
    sentence = documents[0].splitlines()[0]
    text, start = (np.concatenate(tokenizer.encode(part.splitlines(), False)) for part in (documents[0], sentence))
    further = notes(recipe, batches, tokenizer, len(text))
    objective, rows = recipe.model.objective, getattr(recipe.data, "rows", None)
    if isinstance(objective, ReplacedTokenDetection) and example.generator is None:
        further.append(
            "There is no generator, so random words replace masked tokens. Words of the text are more likely."
        )
    options = dict(names=TokenNames(tokenizer), mask_id=tokenizer.mask_id, languages=getattr(recipe.data, "names", ()))
    options["first_part"] = getattr(batches, "reuse_length", None) or None
    if isinstance(objective, ReplacedTokenDetection):
        options["objective"] = objective.objective
    pictures = []
    # If the corpus contains other text, the sentence must be at the start of a row, or anywhere if segments are
    # swapped.
    first = None if isinstance(rows, SentenceOrder) else len(start) + 1
    for step, batch in enumerate(batches):
        row = Row.of_batch(batch, 0, sample=_sampler(batches, example, step), **options)
        if len(documents) > 1 and not shows(row.originals[:first], start, batches.length):
            continue
        heading = (title or recipe.name) + (f", draw {len(pictures) + 1}" if example.draws > 1 else "")
        lines = _lines(batch, row, batches, text)
        said = (*label_notes(recipe, row.y), *further)
        pictures.append(Rows(heading, about(recipe, batches), tuple(lines), said))
        if len(pictures) == example.draws:
            return pictures
    raise ValueError(
        f"The sentence must be in {example.draws} of the first {STEPS} rows of the recipe {recipe.name}. Received: one "
        f"that is in {len(pictures)}, {sentence[:60]!r}. Use a shorter sentence, another --seed or fewer --draws."
    )


def _lines(batch: tuple, row: Row, batches: Batches, text: np.ndarray) -> list[Line]:
    if isinstance(batches, DenoisingBatches) and batches.layout == "encoder_decoder":
        lines = infilling_lines if isinstance(batches.noise, TextInfilling) else denoising_lines
        return lines(row, text[: batches.max_tokens], batches.noise)
    if "context_ids" in row.x:  # every pair of words is a separate row
        rows = [Row.of_batch(batch, number, names=row.names) for number in range(len(batch[1]))]
        return [line for one in rows for line in lines_of(one)]
    return lines_of(row)


def _sampler(batches: Batches, example: Example, step: int) -> Callable[[dict], np.ndarray]:
    """Returns the function that samples replacements for masked tokens, as a generator does in training."""
    draw = np.random.default_rng([example.seed, step])

    def sample(x: dict) -> np.ndarray:
        slots = len(x["masked_positions"])
        if example.generator is None:
            tokenizer = batches.corpus.tokenizer()
            counts = 1 + np.bincount(batches.corpus.tokens, minlength=tokenizer.vocabulary_size)
            counts[tokenizer.special_ids] = 0
            return draw.choice(len(counts), slots, p=counts / counts.sum()).astype(np.int32)
        logits = example.generator.predict({key: np.asarray(value)[None] for key, value in x.items()}, verbose=0)
        logits = (logits["tokens"] if isinstance(logits, dict) else logits)[0].astype("float64")
        return np.argmax(logits + draw.gumbel(size=logits.shape), axis=-1).astype(np.int32)

    return sample


def every_objective(example: Example, settings: tuple[str, ...] = ()) -> list[Rows]:
    """Creates pictures for all `OBJECTIVES`. For an objective that cannot be drawn, the picture says why."""
    pictures = []
    for name, title in OBJECTIVES.items():
        recipe, title = find_recipe(name).with_settings(list(settings)), f"{title}: {name}"
        try:
            # Split words into pieces, to show how the noise treats words.
            pieces = example.pieces or IN_PIECES.get(name, 0)
            pictures += corrupted(recipe, dataclasses.replace(example, pieces=pieces), title)
        except ValueError as error:
            pictures.append(Rows(title, "", (), (f"Not drawn: {error}",)))
    return pictures
