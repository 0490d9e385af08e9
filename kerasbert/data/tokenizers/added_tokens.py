"""Special tokens and added tokens, read from the settings of a folder as transformers 5 reads them."""

from collections.abc import Iterator

import tokenizers as hf

from ..text.json_files import shortened

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")


def text_of(token: str | dict | None) -> str | None:
    """The text of a special token, which settings store as a str or as a dict of flags."""
    return token.get("content") if isinstance(token, dict) else token


def named_tokens(settings: dict, roles: tuple[str, ...]) -> Iterator[str | dict]:
    """Yields special tokens other than those of the roles that have a name, such as "image_token": "<image>"."""
    known = {f"{role}_token" for role in roles}
    for name, token in settings.items():
        if name.endswith("_token") and name not in known and isinstance(text_of(token), str):
            yield token
    yield from settings["named_special_tokens"].values()


def merged(stored: dict, mapped: dict, is_sentencepiece: bool) -> dict:
    """Merges the content of tokenizer_config.json and special_tokens_map.json.

    The latter wins. It is not used if the former lists all added tokens. In the result, "named_special_tokens" are the
    further special tokens that have a name, as a dict, and "extra_special_tokens" are the others, as a list. Those in
    "additional_special_tokens" count where no list of "extra_special_tokens" is stated.

    Args:
        is_sentencepiece: whether the vocabulary is a SentencePiece model. transformers then ignores the
            "additional_special_tokens" of special_tokens_map.json, and those beside named tokens.
    """
    mapped = {} if stored.get("added_tokens_decoder") is not None else dict(mapped)
    result, named = dict(stored), {}
    if result.get("additional_special_tokens") and not result.get("extra_special_tokens"):
        result["extra_special_tokens"] = result.pop("additional_special_tokens")
    for more in ({}, mapped):
        before = result.get("extra_special_tokens") or []
        if isinstance(more.get("extra_special_tokens"), list):
            new = [token for token in more["extra_special_tokens"] if token not in before]
            more = {**more, "extra_special_tokens": [*before, *new]}
        result |= more
        if isinstance(result.get("extra_special_tokens"), dict):
            named |= result.pop("extra_special_tokens")
    more = result.pop("additional_special_tokens", None)
    extra = result.pop("extra_special_tokens", None if is_sentencepiece else more)
    return {**result, "named_special_tokens": named, "extra_special_tokens": extra}


def added(token: str | dict, special: bool) -> hf.AddedToken:
    """The `AddedToken` of a token in the settings."""
    if not isinstance(text_of(token), str) or not text_of(token):
        raise ValueError(f"Every added token must have a text. Received: {shortened(token)}.")
    flags = {name: token[name] for name in FLAGS if name in token} if isinstance(token, dict) else {}
    return hf.AddedToken(text_of(token), special=special, **flags)


def add(backend: hf.Tokenizer, token: hf.AddedToken) -> None:
    """Registers a token. A token that is not in the vocabulary gets the next id."""
    (backend.add_special_tokens if token.special else backend.add_tokens)([token])


def add_listed(backend: hf.Tokenizer, listed: dict[int, dict], special: set[str], folder) -> None:
    """Registers the tokens of "added_tokens_decoder" or added_tokens.json, with their flags.

    Args:
        listed: {id: token}.
        special: texts of the special tokens.

    Raises:
        ValueError: a token would get another id than the stated one.
    """
    for index, token in sorted(listed.items()):
        if not isinstance(token.get("content"), str):
            raise ValueError(f"Every added token must have a text. Received: no text for id {index} in {folder}.")
        text = token["content"]
        add(backend, added(token, token.get("special", False) or text in special))
        if backend.token_to_id(text) != index:
            raise ValueError(
                f"The ids of added tokens must follow those of the vocabulary. Received: {index} for "
                f"{text!r} in {folder}, but its id is {backend.token_to_id(text)}."
            )


def add_missing(backend: hf.Tokenizer, tokens: list[str | dict]) -> None:
    """Registers special tokens that are not registered yet."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for token in tokens:
        if text_of(token) not in known:
            known.add(text_of(token))
            add(backend, added(token, special=True))
