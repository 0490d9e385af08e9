"""What the demo page asks of models: plain texts and numbers in, dicts for JSON out, with notes on what was cut."""

import contextlib
import functools
import inspect
import threading
import typing
from collections.abc import Iterator

import numpy as np

import kerasbert
from kerasbert.checkpoints.folder import ModelFolder
from kerasbert.data import encode_texts
from kerasbert.data.tasks.tagging import words_of
from kerasbert.data.text.json_files import check_types, shortened
from kerasbert.models import Backbone
from kerasbert.objectives import ReplacedTokenDetection, Seq2SeqLM

from ..info.uses import TABS, tabs_of
from ..show.attention import attention_of, attention_page, is_encoder_decoder

MASK = "[MASK]"  # read as the mask token of every model
MOST_TOKENS = 64  # of a text whose attention is shown
MOST_CHARACTERS, MOST_TEXTS, MOST_ANSWERS, MOST_MASKS = 10_000, 32, 100, 16  # of a request
# What a request may set of `generate`, with its largest value. Work and memory are proportional to these numbers.
SETTINGS = {
    "max_new_tokens": (int, 512),
    "min_new_tokens": (int, 512),
    "num_beams": (int, 8),
    "num_sequences": (int, 8),
    "length_penalty": (float, 10),
    "early_stopping": (bool, True),
    "sample": (bool, True),
    "temperature": (float, 10),
    "top_k": (int, 1_000),
    "top_p": (float, 1),
    "seed": (int, 2**31 - 1),
}
SHOWN = 60  # characters of a text in messages


def answered(method):
    """A method of `Demo` for one caller at a time, which checks its arguments: Keras's models are not safe for threads.

    They must have the annotated types; texts must be text of limited length, lists and numbers of answers limited.
    """
    types = {name: kind for name, kind in typing.get_type_hints(method).items() if name != "return"}
    signature = inspect.signature(method)

    @functools.wraps(method)
    def run(self, *args, **kwargs):
        given = signature.bind(self, *args, **kwargs).arguments
        check_types(given, types, "the request")
        for name, value in given.items():
            if name == "top" and not 1 <= value <= MOST_ANSWERS:
                raise ValueError(f"The number of answers must be from 1 to {MOST_ANSWERS}. Received: {value}.")
            texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
            if len(texts) > MOST_TEXTS:
                raise ValueError(f"There may be at most {MOST_TEXTS} {name}. Received: {len(texts)}.")
            for text in texts:
                if "\x00" in text:
                    raise ValueError("A text must not contain the character NUL. Received: a text with it.")
                if len(text) > MOST_CHARACTERS:
                    raise ValueError(
                        f"A text may have at most {MOST_CHARACTERS:,} characters. Received: {len(text):,}. Shorten it."
                    )
        with self.lock:
            return method(self, *args, **kwargs)

    return run


def checked_settings(settings: dict | None) -> dict:
    """The settings of a request for `generate` that are not null. Raises a ValueError for others than `SETTINGS`."""
    check_types({"settings": settings}, {"settings": dict | None}, "the request")
    settings = {name: value for name, value in (settings or {}).items() if value is not None}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise ValueError(f"`settings` may contain {', '.join(SETTINGS)}. Received: {shortened(name)}.")
        kind, most = SETTINGS[name]
        check_types({name: value}, {name: kind}, "the request")
        if not 0 <= value <= most:
            raise ValueError(f"`{name}` must be from 0 to {most}. Received: {shortened(value)}.")
    return settings


class Demo:
    """Models and what they can do, each by the name of a tab; see `uses.TABS`.

    Args:
        models: {name: model} of loaded models with tokenizers.
    """

    def __init__(self, models: dict):
        self.lock = threading.Lock()
        self.models = {}  # tab -> {name: model}
        for name, model in models.items():
            for tab, part in _parts(model):
                self.models.setdefault(tab, {})[name] = part
        order = [*TABS.values(), "attention"]
        self.models = {tab: self.models[tab] for tab in order if tab in self.models}

    @classmethod
    def load(cls, paths: tuple[str, ...]) -> "Demo":
        """Loads model folders, each under the name of its folder.

        Raises:
            ValueError: for a model without a tokenizer, one that a page cannot show anything of, and no models.
        """
        if not paths:
            raise ValueError("A page needs a model. Received: none. Give a folder: serve saved_models/mine.")
        models = {}
        for path in paths:
            name = path.rstrip("/").rpartition("/")[2]
            name = path if name in models else name
            if name in models:
                raise ValueError(f"Models must be different folders. Received: {path} twice.")
            models[name] = _with_tokenizer(kerasbert.load(path), path)
            if not tabs_of(models[name]):
                raise ValueError(
                    f"A page shows models that read text. Received: {path}, a {type(models[name]).__name__}, which has "
                    "no task and no attention. Fine-tune it first."
                )
        return cls(models)

    def model(self, tab: str, name: str = ""):
        """The model of a tab; without a name the first."""
        known = self.models.get(tab)
        if known is None:
            raise ValueError(f"The tabs of this page are {', '.join(self.models)}. Received: {tab!r}.")
        if name and name not in known:
            raise ValueError(f"The models of {tab!r} are {', '.join(known)}. Received: {name!r}.")
        return known[name] if name else next(iter(known.values()))

    # === Answers ===

    @answered
    def fill_mask(self, text: str, top: float = 5, score: bool = True, model: str = "") -> dict:
        """The likeliest tokens for each mask, and the text with them.

        Returns: {"masks": for each mask [{"token", "score" (its probability), "text" (with the best tokens in the other
            masks)}], "text" (with the best tokens), "score" (pseudo-log-likelihood of that text in nats), "perplexity",
            "notes"}; with `score` False, or if the text is too long for it, score and perplexity are None.
        """
        filler = self.model("fill-mask", model)
        tokenizer = filler.tokenizer
        mask = tokenizer.token(tokenizer.mask_id)
        text = _given(text).replace(MASK, mask)
        if text.count(mask) > MOST_MASKS:
            raise ValueError(f"A text may have at most {MOST_MASKS} masks. Received: {text.count(mask)}.")
        notes = cut(tokenizer, text, filler.backbone.position_limit)
        found = filler.fill_mask(text, top_k=int(top))
        ids = encode_texts(tokenizer, [text], filler.backbone.position_limit)["token_ids"][0]
        places = np.flatnonzero(ids == tokenizer.mask_id)
        ids[places] = [mask[0]["id"] for mask in found]

        def filled(place, token):
            changed = ids.copy()
            changed[place] = token
            return tokenizer.decode(changed)

        masks = [
            [{"token": one["token"], "score": one["score"], "text": filled(place, one["id"])} for one in mask]
            for place, mask in zip(places, found, strict=True)
        ]
        best = tokenizer.decode(ids)
        scored = {"score": None, "perplexity": None}
        if score:
            try:
                scored = {key: filler.score(best)[key] for key in scored}
            except ValueError as error:  # the text fills the model
                notes.append(f"The sentence has no score: {error}")
        return {"masks": masks, "text": best, **scored, "notes": notes}

    @answered
    def replaced(self, text: str, model: str = "") -> dict:
        """{"tokens": [{"token", "score" (the probability that it replaces another token)}], "notes"}."""
        detector = self.model("replaced", model)
        text = _given(text)
        notes = cut(detector.tokenizer, text, detector.backbone.position_limit)
        return {"tokens": detector.score_tokens(text), "notes": notes}

    @answered
    def classify(self, text: str, second: str = "", model: str = "") -> dict:
        """The result of `TextClassifier.classify` for a text or a pair of texts, and "notes"."""
        classifier = self.model("classify", model)
        example = (_given(text), second) if second.strip() else _given(text)
        return {**classifier.classify(example), "notes": cut(classifier.tokenizer, example, classifier.max_length)}

    @answered
    def tag(self, text: str, model: str = "") -> dict:
        """{"text", "spans": [{"type", "text", "start", "stop", "score"}], "notes"}: entities, or tags of all words."""
        tagger = self.model("tag", model)
        found = tagger.tag(_given(text))
        if "O" in tagger.labels:
            return {"text": text, "spans": found["entities"], "notes": []}
        items = zip(words_of(text), found["labels"], found["scores"], strict=True)
        spans = [
            {"type": label, "text": text[start:stop], "start": start, "stop": stop, "score": score}
            for (start, stop), label, score in items
        ]
        return {"text": text, "spans": spans, "notes": []}

    @answered
    def answer(self, question: str, context: str, top: float = 3, model: str = "") -> dict:
        """{"context", "answers": results of `QuestionAnswerer.answer`, best first, "notes"}."""
        reader = self.model("answer", model)
        pair = (_given(question, "question"), _given(context, "context"))
        found = reader.answer(pair, n_best=int(top))
        notes = cut(reader.tokenizer, pair[0], reader.max_question_length, specials=False, what="question")
        return {"context": context, "answers": found if top > 1 else [found], "notes": notes}

    @answered
    def choose(self, context: str, choices: list[str], model: str = "") -> dict:
        """{"choices": [{"text", "score"}] in the given order, "choice" (the index of the best), "notes"}."""
        chooser = self.model("choose", model)
        choices = [choice.strip() for choice in choices if choice.strip()]
        if len(choices) < 2:
            raise ValueError(f"There must be two or more choices, one in each line. Received: {len(choices)}.")
        found = chooser.choose((_given(context, "context"), choices))
        longest = max(choices, key=len)
        listed = [{"text": t, "score": s} for t, s in zip(choices, found["scores"], strict=True)]
        notes = cut(chooser.tokenizer, (context, longest), chooser.max_length)
        return {"choices": listed, "choice": found["choice"], "notes": notes}

    @answered
    def compare(self, texts: list[str], model: str = "") -> dict:
        """{"texts", "similarities": cosines of all pairs, (n, n), "notes"}."""
        embedder = self.model("compare", model)
        texts = [text.strip() for text in texts if text.strip()]
        if len(texts) < 2:
            raise ValueError(f"There must be two or more texts, one in each line. Received: {len(texts)}.")
        vectors = np.asarray(embedder.embed(texts), "float64")
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        notes = [note for text in texts for note in cut(embedder.tokenizer, text, embedder.max_length)]
        return {"texts": texts, "similarities": (vectors @ vectors.T).tolist(), "notes": notes}

    @answered
    def generate(self, prompt: str, model: str = "", **settings) -> dict:
        """{"prompt", "texts": [{"text", "score" (log probability in nats)}], "notes"}; `settings` are of `generate`."""
        settings = checked_settings(settings)
        writer = self.model("generate", model)
        prompt, notes = _given(prompt, "prompt"), []
        if isinstance(writer, Seq2SeqLM):
            notes = cut(writer.tokenizer, prompt, writer.tokenizer.max_length)
        found = writer.generate(prompt, scores=True, **settings)
        return {"prompt": prompt, "texts": found if isinstance(found, list) else [found], "notes": notes}

    @answered
    def attention(self, text: str, second: str = "", model: str = "") -> dict:
        """{"page": HTML of a page with the weights of all heads, "notes"}."""
        shown = self.model("attention", model)
        backbone = getattr(shown, "backbone", shown)
        if is_encoder_decoder(backbone) and not second.strip():
            raise ValueError("An encoder-decoder needs a second text, which its decoder reads. Received: one text.")
        weights = attention_of(backbone, shown.tokenizer, _given(text), second, MOST_TOKENS)
        return {"page": attention_page("Attention", weights), "notes": []}


def _parts(model) -> Iterator[tuple[str, object]]:
    """(tab, the part of a model that answers there)."""
    if isinstance(model, ReplacedTokenDetection):
        for tab in tabs_of(model.discriminator):
            yield tab, model.discriminator
        yield "fill-mask", model.generator
        return
    for tab in tabs_of(model):
        yield tab, model


def _with_tokenizer(model, path: str):
    if isinstance(model, ReplacedTokenDetection):
        for half in (model.generator, model.discriminator):
            half.tokenizer = half.tokenizer or model.tokenizer
    if getattr(model, "tokenizer", None) is None:
        tokenizer = ModelFolder(path).tokenizer() if isinstance(model, Backbone) else None
        if tokenizer is None:
            raise ValueError(
                f"A page needs text, and text needs a tokenizer. Received: {path}, which has no tokenizer files. Copy "
                "tokenizer.json there from the folder of the model that it was made from."
            )
        model.tokenizer = tokenizer
    return model


def _given(text: str, what: str = "text") -> str:
    if not text or not text.strip():
        raise ValueError(f"The {what} must not be empty. Received: nothing. Type something into the field.")
    return text


def cut(tokenizer, text: str | tuple[str, str], limit: int | None, specials: bool = True, what: str = "text") -> list:
    """Notes on what a model does not read of a text or a pair: those of at most `limit` tokens are read completely."""
    limit = min((one for one in (limit, tokenizer.max_length) if one), default=None)
    if limit is None:
        return []
    texts = [text] if isinstance(text, str) else list(text)
    offsets = [where for _, where in tokenizer.encode_with_offsets(texts, plain_text=False)]
    count = sum(map(len, offsets))
    room = limit - (len(tokenizer.template(pair=len(texts) == 2)) - len(texts) if specials else 0)
    if count <= room:
        return []
    if len(texts) == 2:
        return [f"The texts have {count:,} tokens together; the model reads {room:,} and drops ends of the longer one."]
    with contextlib.suppress(IndexError):
        rest = texts[0][offsets[0][room][0] :]
        shown = rest if len(rest) <= SHOWN else rest[: SHOWN - 1] + "…"
        return [f"The {what} has {count:,} tokens; the model reads {room:,}. It did not read: {shown!r}"]
    return []
