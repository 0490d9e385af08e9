"""Texts that are put before the texts of a model, by the names of their uses."""

import dataclasses
from typing import Any

DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Texts that are put before others.

    Args:
        texts: {name: text}, such as {"query": "query: ", "document": "passage: "}.
        default: the name of the prompt that `embed` uses by default. Default: none.
        pooled: whether the hidden states of a prompt's tokens are pooled together with the hidden states of the text.

    Raises:
        ValueError: if `default` is the name of no prompt.

    Example:
        >>> from kerasbert.tasks import Prompts, TextEmbedder
        >>> prompts = Prompts({"query": "query: ", "document": "passage: "})
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder", prompts=prompts)
        >>> query = model.embed_queries("how to cook rice")  # reads "query: how to cook rice"
        >>> query.shape
        (256,)
    """

    texts: dict[str, str] = dataclasses.field(default_factory=dict)
    default: str | None = None
    pooled: bool = True

    def __post_init__(self) -> None:
        if self.default is not None and self.default not in self.texts:
            raise ValueError(f"`default` must be one of the prompts, {self.texts}. Received: {self.default!r}.")

    def text(self, name: str | None = None) -> str:
        """Returns the text of a prompt, by default of the default one, or "" if there is none.

        Raises:
            ValueError: if there is no prompt of this name.
        """
        name = self.default if name is None else name
        if name is not None and name not in self.texts:
            raise ValueError(f"`prompt` must be one of {sorted(self.texts)}. Received: {name!r}.")
        return self.texts.get(name, "") if name is not None else ""

    @property
    def for_queries(self) -> str | None:
        """The name of the prompt of queries: "query" if there is one, or else the default."""
        return "query" if "query" in self.texts else self.default

    @property
    def for_documents(self) -> str | None:
        """The name of the prompt of documents: the first of `DOCUMENT_PROMPTS` that there is, or else the default."""
        return next((name for name in DOCUMENT_PROMPTS if name in self.texts), self.default)


def prompts_of(prompts: Any, skippable: bool = False) -> Prompts:
    """Returns a `Prompts`, from one, or from {name: text}, or from the dict of its fields; None gives none.

    Raises: ValueError for prompts with `pooled=False`, unless they are `skippable`.
    """
    if not isinstance(prompts, Prompts):
        given: dict[str, Any] = dict(prompts or {})
        prompts = Prompts(**given) if isinstance(given.get("texts"), dict) else Prompts(given)
    if not prompts.pooled and not skippable:
        raise ValueError("Only a TextEmbedder can leave prompts out of its pooling. Received: Prompts(pooled=False).")
    return prompts
