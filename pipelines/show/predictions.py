"""Shows a model's predictions: the most likely tokens at masks, next tokens, or which tokens were replaced."""

import numpy as np

from kerasbert.data import Tokenizer
from kerasbert.objectives import CausalLM, Discriminator, ReplacedTokenDetection

from .bars import STYLE, Bars, bars_as_html
from .html import page
from .words import TokenNames


def predictions(model, texts: tuple[str, ...], top: int = 5) -> list[Bars]:
    """Computes the predictions of a model for texts, one `Bars` per mask or text.

    Args:
        model: a model that fills masks, a causal language model, which continues texts, or a discriminator, which
            scores every token. For replaced token detection, the generator fills masks.
        texts: the texts. For a model that fills masks, they contain its mask token.
        top: number of tokens to show.

    Raises:
        ValueError: for a model of another kind, and for texts without a mask.
    """
    if not texts or top < 1:
        raise ValueError(
            f"There must be a text, and `top` must be at least 1. Received: {len(texts)} texts, top={top}."
        )
    if isinstance(model, ReplacedTokenDetection):
        model = model.generator
    if hasattr(model, "fill_mask"):
        return _masks(model, texts, top)
    if isinstance(model, CausalLM):
        return [_next_tokens(model, text, top) for text in texts]
    if isinstance(model, Discriminator):
        return [_replaced(model, text) for text in texts]
    raise ValueError(
        "A picture of predictions needs a model that fills masks, a causal language model or a discriminator. "
        f"Received: {type(model).__name__}. For answers of a task, use `predict`."
    )


def _masks(model, texts: tuple[str, ...], top: int) -> list[Bars]:
    found, names = model.fill_mask(list(texts), top_k=top), TokenNames(model.tokenizer)
    mask = model.tokenizer.token(model.tokenizer.mask_id)
    pictures = []
    for text, masks in zip(texts, found, strict=True):
        place = -1
        for number, best in enumerate(masks, 1):
            place = text.find(mask, place + 1)
            title = f"Mask {number} of {len(masks)}" if len(masks) > 1 else f"{mask}"
            tokens, scores = [names(one["id"]) for one in best], [one["score"] for one in best]
            marked = (place, place + len(mask)) if place >= 0 else (0, 0)
            pictures.append(Bars(title, text, tokens, scores, marked=marked))
    return pictures


def _next_tokens(model: CausalLM, text: str, top: int) -> Bars:
    tokenizer: Tokenizer = model.require_tokenizer()
    names, ids = TokenNames(tokenizer), model.encode_prompts([text])[0]
    if not len(ids):
        raise ValueError("A text to continue must have at least one token. Received: an empty one.")
    logits = model.predict({"token_ids": ids[None]}, verbose=0)[0, -1, : tokenizer.vocabulary_size].astype("float64")
    scores = np.exp(logits - np.logaddexp.reduce(logits))
    best = np.argsort(-scores, kind="stable")[:top]
    return Bars("Next token", text, [names(int(i)) for i in best], scores[best].tolist())


def _replaced(model: Discriminator, text: str) -> Bars:
    found = model.score_tokens(text)
    return Bars("Was the token replaced?", text, [one["token"] for one in found], [one["score"] for one in found])


def predictions_page(title: str, pictures: list[Bars]) -> str:
    """Creates a page with the predictions, in which bars are probabilities."""
    intro = "<p>Bars are probabilities, from 0% to 100%.</p>"
    return page(title, intro + "".join(map(bars_as_html, pictures)), STYLE)
