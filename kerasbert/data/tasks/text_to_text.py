"""The text-to-text formats of T5: converts labeled examples to texts, and generated texts to labels.

Paper: Raffel et al. 2019, arXiv 1910.10683, appendix D; features are ordered as in the official code.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence

from .labels import indices_of, names_of

LABELS = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "qqp": ("not_duplicate", "duplicate"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ("entailment", "not_entailment"),
    "rte": ("entailment", "not_entailment"),
    "cb": ("entailment", "contradiction", "neutral"),
    "copa": ("choice1", "choice2"),
    "boolq": ("False", "True"),
    "multirc": ("False", "True"),
    "wic": ("False", "True"),
}
_ORDERS = {"multirc": ("question", "answer", "paragraph"), "wic": ("sentence1", "sentence2", "word")}
_DETERMINERS = frozenset(
    "a an few her his each every many much my our some that the their these this those which whose your".split()
)


def classification_text(task: str, example: Mapping, labels: Sequence[str] | None = None) -> tuple[str, str]:
    """Converts a labeled example to an input text (the task and its named features) and a target text (the label).

    Features are in alphabetical order, except for multirc and wic.

    "rte", {"sentence1": "A.", "sentence2": "B.", "label": 1} -> "rte sentence1: A. sentence2: B.", "not_entailment"

    Args:
        task: name with which the text begins.
        example: features by name. "label" is a label or its index, or -1 if it is unknown. "idx" is left out.
        labels: names of the labels, as in `names_of`. Default: those of the task in `LABELS`.
    """
    if labels is None:
        if task not in LABELS:
            raise ValueError(
                f"Without `labels`, `task` must be one of {', '.join(LABELS)}. Received: {task!r}. Pass `labels`."
            )
        labels = LABELS[task]
    names = _ORDERS.get(task) or sorted(name for name in example if name not in ("label", "idx"))
    text = " ".join([task, *(f"{name}: {example[name]}" for name in names)])
    labels = names_of(labels)
    if example["label"] == -1 and -1 not in labels:
        return text, "<unk>"
    (number,) = indices_of(labels, [example["label"]])
    if not 0 <= number < len(labels):
        raise ValueError(f"`label` must be from -1 to {len(labels) - 1}. Received: {number}.")
    return text, str(labels[number])


def similarity_text(example: Mapping, task: str = "stsb") -> tuple[str, str]:
    """Converts a sentence pair with a score from 0 to 5 to input and target text. Scores become multiples of 0.2.

    score 2.57 -> "2.6"; 2.5 -> "2.4"
    """
    text = f"{task} sentence1: {example['sentence1']} sentence2: {example['sentence2']}"
    return text, f"{round(float(example['label']) * 5) / 5:.1f}"


def question_text(example: Mapping) -> tuple[str, str]:
    """Converts a question with its context and its first answer to input and target text.

    Punctuation marks are surrounded by spaces. The keys are "question", "context" and "answers", a list of str.

    "What's up?" -> "What ' s up ? "
    """
    parts = example["question"], example["context"], example["answers"][0]
    question, context, answer = map(_space_punctuation, parts)
    return f"question: {question} context: {context}", answer


def pronoun_text(text: str, pronoun: str, word: int, task: str = "wsc") -> str:
    """Puts asterisks around the pronoun whose referent the model must find. `word` is the number of words before it.

    "The dog saw it .", "it", 3 -> "wsc: The dog saw *it* ."
    """
    words = text.split()
    found = words[word].strip(string.punctuation) if word < len(words) else ""
    if found.lower() != pronoun.lower():
        raise ValueError(f"Word {word} of the text must be the pronoun {pronoun!r}. Received: {found!r}.")
    words[word] = words[word].replace(found, f"*{found}*")
    return f"{task}: {' '.join(words)}"


def translation_text(source: str, from_language: str, to_language: str) -> str:
    """Builds an input text: "That is good.", "English", "German" -> "translate English to German: That is good." """
    return f"translate {from_language} to {to_language}: {source}"


def summary_text(source: str) -> str:
    """Builds an input text: "A long text." -> "summarize: A long text." """
    return f"summarize: {source}"


# === Answers ===


def label_of(answer: str, labels: Sequence[str]) -> int:
    """Index of the label that the text names, or -1 for any other text, which always counts as wrong."""
    return labels.index(answer) if answer in labels else -1


def score_of(answer: str, limits: tuple[float, float] | None = None) -> float:
    """Parses the score in a text. Returns -1 if the text is not a number, as in the official code.

    Args:
        limits: numbers outside this range also give -1; the paper uses (1, 5).
    """
    try:
        score = float(answer)
    except ValueError:
        return -1.0
    if not math.isfinite(score):  # `float` also accepts "nan" and "inf"
        return -1.0
    return score if limits is None or limits[0] <= score <= limits[1] else -1.0


def same_noun(answer: str, noun: str) -> bool:
    """Whether one text contains all words of the other, ignoring case and determiners.

    "the dog", "Dog" -> True
    """
    first, second = (set(re.sub(r"[^\w\s]", " ", text.lower()).split()) - _DETERMINERS for text in (answer, noun))
    return bool(first) and bool(second) and (first <= second or second <= first)


def span_of(answer: str, context: str) -> str:
    """Finds the first part of the context that equals the answer up to whitespace. Without a match, returns the answer.

    "Ann ' s cat", "It was Ann's cat." -> "Ann's cat"
    """
    pattern = r"\s*".join(map(re.escape, "".join(answer.split())))
    found = re.search(pattern, context) if pattern else None
    return found.group() if found else answer


def _space_punctuation(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(f"([{re.escape(string.punctuation)}])", r" \1 ", text))
