"""In-context learning: a language model performs a task specified by a few examples in its prompt."""

import string
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np

from ..data.tasks.labels import names_of
from ..training.convert import read_texts
from ..training.trainable import Trainable
from .task import zipped_columns


class FewShot:
    r"""Answers by continuing a prompt of examples with a language model, without training.

    Brown et al. 2020, arXiv 2005.14165, section 2.4. `classify` compares the log probabilities of the labels. `answer`
    generates text. This is a prompt with one example, where the model continues after the last colon:

        Review: warm and fine
        Opinion: good

        Review: dull
        Opinion:

    Args:
        model: a `CausalLM`, which continues the prompt, or a `Seq2SeqLM`, whose encoder reads the prompt.
        examples: pairs (input, answer) for the prompt. An input is a str, or a tuple of str if the template has several
            placeholders {}.
        template: format of an example. Each {} is replaced by a text of the input. {answer} must be at the end.
        labels: the answers that `classify` chooses from, str or numbers. Default: the answers of the examples.
        instruction: text at the beginning of the prompt.
        separator: text between examples. A generated answer ends before the next separator.
        shots: number of examples in the prompt, drawn at random. Default: all, in the given order.
        seed: seed of the random selection of `shots` examples.

    Raises:
        ValueError: if `model` generates no text, `template` has no {} or does not end with {answer}, an example is no
            pair (input, answer) or has another number of texts than the template, `labels` are a number, or `shots`
            exceeds the number of examples.

    Example:
        >>> import kerasbert
        >>> from kerasbert.tasks import FewShot
        >>> model = kerasbert.load("gpt2_mini_en")  # comes with the repository
        >>> examples = [("warm and fine", "good"), ("dull", "bad")]
        >>> few_shot = FewShot(model, examples, template="Review: {}\nOpinion: {answer}")
        >>> few_shot.classify("wonderful")["label"]
        'good'
    """

    def __init__(
        self,
        model: Trainable,
        examples: Iterable[tuple[str | tuple[str, ...], str]] = (),
        template: str = "{}\n{answer}",
        labels: Sequence | None = None,
        instruction: str = "",
        separator: str = "\n\n",
        shots: int | None = None,
        seed: int = 0,
    ):
        if not isinstance(model, Trainable) or not hasattr(model, "generate"):
            raise ValueError(
                f"In-context learning needs a CausalLM or a Seq2SeqLM. Received: a {type(model).__name__}."
            )
        if not template.endswith("{answer}"):
            raise ValueError(f"`template` must end with {{answer}}. Received: {template!r}.")
        examples = [_checked(example, number) for number, example in enumerate(zipped_columns(examples))]
        answers = list(dict.fromkeys(answer for _, answer in examples))
        if isinstance(labels, int):
            raise ValueError(f"`labels` must be the answers to choose from. Received: {labels}.")
        self.labels = names_of(labels or answers) if labels is not None or answers else []
        if shots is not None and shots > len(examples):
            raise ValueError(f"`shots` must be at most the number of examples, {len(examples)}. Received: {shots}.")
        if shots is not None:
            order = np.random.Generator(np.random.Philox(seed)).permutation(len(examples))
            examples = [examples[i] for i in order[:shots]]
        self.model = model
        self.separator = separator
        self._num_texts = _num_placeholders(template.removesuffix("{answer}"))
        # A token may include the space before a word, so the space belongs to the answer.
        self._question = template.removesuffix("{answer}")
        self._blank = " " if self._question.endswith(" ") and self.model.continues else ""
        self._question = self._question.removesuffix(self._blank) if self._blank else self._question
        shown = [self._asked(text) + self._blank + str(answer) for text, answer in examples]
        self._start = separator.join([*([instruction] if instruction else []), *shown, ""])

    def prompt(self, text: str | tuple[str, ...]) -> str:
        """Returns the prompt for an input. It ends where the answer should begin."""
        return self._start + self._asked(text)

    @overload
    def classify(
        self, texts: str | tuple[str, ...], normalize: bool = ..., batch_size: int = ...
    ) -> dict[str, Any]: ...

    @overload
    def classify(
        self, texts: Sequence[str] | Sequence[tuple[str, ...]], normalize: bool = ..., batch_size: int = ...
    ) -> list[dict[str, Any]]: ...

    def classify(
        self,
        texts: str | tuple[str, ...] | Sequence[str] | Sequence[tuple[str, ...]],
        normalize: bool = True,
        batch_size: int = 32,
    ):
        """Selects the most likely label for each input.

        Args:
            texts: an input, or a list of them.
            normalize: whether to compare mean log probabilities per token. False compares sums, which favors short
                labels.
            batch_size: number of prompts per batch.

        Returns: a list with a dict {"label", "score", "scores"} for each input: the best label, its probability among
            the labels, and {label: probability}. For a single input, only its dict.

        Raises:
            ValueError: if there are fewer than two labels, or the model has no tokenizer.
        """
        texts = read_texts(texts, "classify", "an input")
        if isinstance(texts, (str, tuple)):
            return self.classify([texts], normalize, batch_size)[0]
        if len(self.labels) < 2:
            raise ValueError(f"Classification needs two or more labels. Received: {self.labels}. Pass `labels=`.")
        prompts = [self.prompt(text) for text in texts for _ in self.labels]
        wanted = [self._blank + str(label) for _ in texts for label in self.labels]
        found = self.model.score(wanted, prompts, batch_size=batch_size)
        logits = np.array([row["score"] / (max(1, row["tokens"]) if normalize else 1) for row in found])
        answers = []
        for row in logits.reshape(len(texts), len(self.labels)):
            scores = np.exp(row - np.logaddexp.reduce(row))
            named = dict(zip(self.labels, scores.tolist(), strict=True))
            best = max(named, key=named.get)
            answers.append({"label": best, "score": named[best], "scores": named})
        return answers

    @overload
    def answer(self, texts: str | tuple[str, ...], **options: Any) -> str: ...

    @overload
    def answer(self, texts: Sequence[str] | Sequence[tuple[str, ...]], **options: Any) -> list[str]: ...

    def answer(self, texts: str | tuple[str, ...] | Sequence[str] | Sequence[tuple[str, ...]], **options: Any):
        """Generates the answer to each input, up to the separator.

        Args:
            texts: an input, or a list of them.
            **options: options of `generate`.

        Returns: a list with a str for each input. For a single input, only its str.

        Raises:
            ValueError: if the model has no tokenizer, or an option of `generate` is invalid.
        """
        texts = read_texts(texts, "answer", "an input")
        if isinstance(texts, (str, tuple)):
            return self.answer([texts], **options)[0]
        if not len(texts):
            return []
        prompts = [self.prompt(text) for text in texts]
        if not self.model.continues:
            return self.model.generate(prompts, **options)
        tokenizer = self.model.require_tokenizer()
        ids = tokenizer.encode(prompts, add_special_tokens=False)
        found = self.model.generate(ids, **options)
        answers = [tokenizer.decode(whole[len(start) :]) for start, whole in zip(ids, found, strict=True)]
        return [answer.split(self.separator)[0].strip() for answer in answers]

    def _asked(self, text):
        texts = [text] if isinstance(text, str) else text
        if len(texts) != self._num_texts:
            raise ValueError(
                f"An input must have one text for each of the {self._num_texts} placeholders of the template. "
                f"Received: {text!r:.60}."
            )
        return self._question.format(*texts)


def _num_placeholders(question):
    """Returns the number of texts that a template takes. Placeholders are {}, or numbered: {0}."""
    names = [name for _, name, _, _ in string.Formatter().parse(question) if name is not None]
    if not names or not all(name == "" or name.isdecimal() for name in names):
        raise ValueError(f"`template` must have {{}} for each text of an input. Received: {question + '{answer}'!r}.")
    return len(names) if "" in names else 1 + max(map(int, names))


def _checked(example, number):
    """Checks an example of a prompt, and returns (input, answer)."""
    right = isinstance(example, (tuple, list)) and len(example) == 2
    texts = (example[0],) if right and isinstance(example[0], str) else example[0] if right else ()
    if not isinstance(texts, (tuple, list)) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "An example must be (input, answer), where the input is a str or a tuple of str. Received: "
            f"{example!r:.60}, as example {number}."
        )
    return tuple(example)
