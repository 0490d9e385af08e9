"""Cloze tests: a language model predicts one masked word in each sentence (Taylor 1953)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerasbert.data import Tokenizer, encode_texts
from kerasbert.data.text.cleaning import split_sentences
from kerasbert.objectives import MaskedLM

WORDS = (8, 40)  # minimum and maximum number of words in a sentence
WORD = re.compile(r"(?<![\w'’-])[^\W\d_]+(?:['’][^\W\d_]+)*(?![\w'’-])")  # does not match parts of "to-night"


@dataclass(frozen=True)
class Cloze:
    """A sentence, and the word in it that is to be predicted.

    Args:
        text: the sentence.
        start, stop: index of the word's first character, and of the character after its last.
        position: index of the word's token (it has only one) among the tokens of the sentence.
    """

    text: str
    start: int
    stop: int
    position: int

    @property
    def word(self) -> str:
        return self.text[self.start : self.stop]

    @property
    def gap(self) -> str:
        """The sentence with a gap in place of the word."""
        return f"{self.text[: self.start]}____{self.text[self.stop :]}"


def draw_clozes(
    documents: Iterable[str], tokenizer: Tokenizer, count: int = 200, seed: int = 0, max_length: int | None = None
) -> list[Cloze]:
    """Draws random sentences whose length is within `WORDS`, and one single-token word in each of them.

    The order in which sentences and words are tried does not depend on the tokenizer. Two tokenizers give the same
    words, except where a word is a single token for only one of them.

    Args:
        documents: held-out text, a paragraph per line.
        tokenizer: tokenizer of the model.
        count: number of sentences.
        seed: seed of the random choices.
        max_length: maximum number of tokens in a sentence, including special tokens.

    Raises:
        ValueError: there are fewer than `count` sentences with such a word.
    """
    lines = (line for document in documents for line in document.split("\n"))
    sentences = list(dict.fromkeys(sentence for line in lines for sentence in split_sentences(line)))
    limit = (max_length or 512) - (len(tokenizer.info["single"]) - 1)
    draw, found = np.random.Generator(np.random.Philox(seed)), []
    for number in draw.permutation(len(sentences)):
        text = sentences[number]
        words = [match.span() for match in WORD.finditer(text)]
        if not WORDS[0] <= len(words) <= WORDS[1]:
            continue
        order = draw.permutation(len(words))
        ((ids, offsets),) = tokenizer.encode_with_offsets([text])
        known = {
            (int(left), int(right)): place
            for place, (left, right) in enumerate(offsets)
            if ids[place] != tokenizer.unk_id
        }
        single = next((words[i] for i in order if words[i] in known), None)
        if single is not None and len(ids) <= limit:
            found.append(Cloze(text, *single, known[single]))
            if len(found) == count:
                return found
    raise ValueError(
        f"The held-out text must have {count} sentences of {WORDS[0]} to {WORDS[1]} words with a single-token word. "
        f"Received: {len(sentences)} sentences, {len(found)} of which qualify. Use a longer text."
    )


def predict_words(model: MaskedLM, clozes: Sequence[Cloze], top_k: int = 5) -> list[list[int]]:
    """Predicts the masked word of each sentence. Returns the ids of the `top_k` most likely tokens, best first."""
    tokenizer = model.require_tokenizer()
    before = [item for item, _ in tokenizer.info["single"]].index("A")
    x = encode_texts(tokenizer, [cloze.text for cloze in clozes], plain_text=True)
    positions = np.array([[before + cloze.position] for cloze in clozes], "int32")
    np.put_along_axis(x["token_ids"], positions, tokenizer.mask_id, axis=1)
    logits = model.predict({**x, "masked_positions": positions}, verbose=0)
    logits = (logits["tokens"] if isinstance(logits, dict) else logits)[:, 0, : tokenizer.vocabulary_size]
    return np.argsort(-logits, axis=-1, kind="stable")[:, :top_k].tolist()


def masked_ids(tokenizer: Tokenizer, clozes: Sequence[Cloze]) -> list[int]:
    """Returns the token id of the masked word of each sentence."""
    rows = tokenizer.encode([cloze.text for cloze in clozes], add_special_tokens=False, plain_text=True)
    return [int(row[cloze.position]) for row, cloze in zip(rows, clozes, strict=True)]


def frequent_words(counts: Mapping[str, int], top_k: int = 5) -> list[str]:
    """Returns the most frequent words, which a unigram model predicts for every sentence. Punctuation is excluded."""
    return sorted((word for word in counts if word.isalpha()), key=lambda word: (-counts[word], word))[:top_k]


def top_accuracies(right: Sequence, answers: Sequence[Sequence], top_k: int = 5) -> dict[str, float]:
    """Computes top-1 and top-k accuracy: how often the word is the first answer, or among the first `top_k` answers."""
    first = [answer[:1] for answer in answers]
    return {
        f"top_{k}": float(np.mean([word in answer for word, answer in zip(right, kept, strict=True)]))
        for k, kept in ((1, first), (top_k, answers))
    }
