"""Which tokens of queries and documents a late-interaction model reads, and which of them it scores."""

import dataclasses
import typing
from typing import Any

import numpy as np

from ..data.text.json_files import check_types
from ..data.tokenizers.tokenizer import Tokenizer

ROLES = ("query", "document")


@dataclasses.dataclass(frozen=True)
class QueryExpansion:
    """Fills queries with a token whose vectors are scored, too.

    Khattab, Zaharia 2020, arXiv 2004.12832, section 3.2.

    Args:
        length: number of tokens that every query has at least.
        strategy: "fixed": longer queries are truncated to `length`, as in the paper. "min": they keep their tokens.
        attend: whether tokens attend to the added ones. By default, only the added tokens attend to the others.
        token: the token that is added. Default: the mask token, or the end token of tokenizers without one.

    Raises:
        ValueError: if a value has the wrong type, `length` is below 1, or `strategy` is unknown.
    """

    length: int
    strategy: str = "fixed"
    attend: bool = False
    token: str | None = None

    def __post_init__(self) -> None:
        check_types(dataclasses.asdict(self), typing.get_type_hints(QueryExpansion), "QueryExpansion")
        if self.strategy not in ("fixed", "min") or self.length < 1:
            raise ValueError(
                "QueryExpansion needs a `length` of 1 or more, and a `strategy` that is fixed or min. Received: "
                f"{self.length} and {self.strategy!r:.40}."
            )

    def token_id(self, tokenizer: Tokenizer) -> int:
        """Returns the id of the token that is added.

        Raises:
            ValueError: if the tokenizer does not have the token.
        """
        if self.token is None:
            found = tokenizer.eos_id if tokenizer.mask_id is None else tokenizer.mask_id
        else:
            found = known_id(tokenizer, self.token)
        if found is None:
            raise ValueError(
                "Query expansion needs a token of the vocabulary, by default the mask token. Received: "
                f"token={self.token!r} for a tokenizer without it."
            )
        return found


@dataclasses.dataclass(frozen=True)
class TokenRules:
    """Which tokens of queries and documents are read, and which of them are scored.

    Args:
        query_length, document_length: maximum numbers of tokens. Default: the `max_length` of the model.
        expansion: a `QueryExpansion`, or None.
        skip_words: tokens that are read but not scored, such as punctuation.
        skip_in: in which texts they are not scored: some of "query" and "document".
        keep_ids: ids of the only tokens of documents that are scored. Default: all.

    Raises:
        ValueError: if a value has the wrong type, a length is below 1, `skip_in` has another name, or `query_length` is
            below the length of the expansion.
    """

    query_length: int | None = None
    document_length: int | None = None
    expansion: QueryExpansion | None = None
    skip_words: tuple[str, ...] = ()
    skip_in: tuple[str, ...] = ("document",)
    keep_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("skip_words", "skip_in", "keep_ids"):
            if isinstance(getattr(self, name), list):  # JSON has no tuples
                object.__setattr__(self, name, tuple(getattr(self, name)))
        hints = typing.get_type_hints(TokenRules)
        if isinstance(self.expansion, dict):
            check_types(self.expansion, typing.get_type_hints(QueryExpansion), "expansion")
            object.__setattr__(self, "expansion", QueryExpansion(**self.expansion))
        hints.pop("expansion")
        check_types({name: getattr(self, name) for name in hints}, hints, "TokenRules")
        wrong = [n for n in (self.query_length, self.document_length) if n is not None and n < 1]
        if wrong or not set(self.skip_in) <= set(ROLES):
            raise ValueError(
                f"TokenRules needs lengths of 1 or more, and `skip_in` with some of {', '.join(ROLES)}. Received: "
                f"lengths {self.query_length} and {self.document_length}, skip_in={self.skip_in!r:.60}."
            )
        if self.expansion and self.query_length is not None and self.query_length < self.expansion.length:
            raise ValueError(
                "`query_length` must be at least the length of the expansion. Received: "
                f"{self.query_length} and {self.expansion.length}."
            )

    @property
    def most_query_tokens(self) -> int | None:
        """The largest number of tokens of a query, or None if only the model limits it."""
        if self.expansion is not None and self.expansion.strategy == "fixed":
            return self.expansion.length
        return self.query_length

    def unknown_words(self, tokenizer: Tokenizer) -> list[str]:
        """Returns those of `skip_words` that are no tokens of the vocabulary, and which have no effect.

        If they were replaced by the unknown token, every unknown word would be skipped.
        """
        return [word for word in self.skip_words if known_id(tokenizer, word) is None]

    def scored(self, tokenizer: Tokenizer | None, vocabulary_size: int, query: bool) -> np.ndarray | None:
        """Returns which tokens of the vocabulary are scored, bool (vocabulary_size,), or None if all of them are.

        Args:
            tokenizer: the tokenizer. Without one, `skip_words` have no ids.
            vocabulary_size: number of token ids.
            query: whether the texts are queries.
        """
        table = np.ones(vocabulary_size, bool)
        if self.keep_ids and not query:
            table[:] = False
            table[[index for index in self.keep_ids if 0 <= index < vocabulary_size]] = True
        if tokenizer is not None and ROLES[not query] in self.skip_in:
            ids = (known_id(tokenizer, word) for word in self.skip_words)
            table[[index for index in ids if index is not None and index < vocabulary_size]] = False
        return None if table.all() else table


def known_id(tokenizer: Tokenizer, token: str) -> int | None:
    """Returns the id of a token, or None if the vocabulary does not have it."""
    try:
        return tokenizer.id(token)
    except KeyError:
        return None


def rules_of(tokens: Any) -> TokenRules:
    """Returns `TokenRules`, from one or from the dict of its fields; None gives the defaults."""
    if isinstance(tokens, TokenRules):
        return tokens
    given = dict(tokens or {})
    known = [field.name for field in dataclasses.fields(TokenRules)]
    if not set(given) <= set(known):
        raise ValueError(f"`tokens` must be TokenRules, with the fields {', '.join(known)}. Received: {given!r:.100}.")
    return TokenRules(**given)
