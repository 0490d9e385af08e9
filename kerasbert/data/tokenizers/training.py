"""Trains vocabularies. The same text always gives the same vocabulary."""

import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ..text import moses
from ..text.documents import checked_documents, lines_of
from .families import FAMILIES, mark_special
from .reading import bert_template, bpe_of_words, roberta_template
from .sentencepiece import names_apart

# Special tokens in the order of their ids. The mask token of byte_bpe comes after the learned tokens, as in RoBERTa.
SPECIAL_TOKENS = {
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "byte_bpe": {
        **{"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>"},
        "mask": "<mask>",
    },
    "unigram": {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "bpe": FAMILIES["xlm"].roles,
}

MOST_PIECES = 1 << 24


class Case(NamedTuple):
    """Whether letters are lower-cased, and whether they lose their accents."""

    lowercase: bool
    strip_accents: bool

    @classmethod
    def of(cls, kind: str, lowercase: bool, accents: str | None) -> "Case":
        """Reads the arguments of `Tokenizer.train`."""
        always = kind == "bpe" and lowercase  # XLM's preprocessing does both or neither
        if accents not in (None, "keep", "strip") or (kind == "bpe" and accents not in (None, _XLM[lowercase])):
            raise ValueError(
                '`accents` must be "keep" or "strip"; for the BPE of XLM, "strip" with lowercase=True, and "keep" '
                f"without it. Received: {accents!r} for {kind} with lowercase={lowercase}."
            )
        return cls(lowercase, always or accents == "strip")

    def steps(self) -> list[normalizers.Normalizer]:
        """The normalizers, for vocabularies other than WordPiece."""
        steps = [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()] if self.strip_accents else []
        return [*steps, *([normalizers.Lowercase()] if self.lowercase else [])]


_XLM = {True: "strip", False: "keep"}
_MIN_FREQUENCY = 2  # a pair of tokens that occurs only once is not merged
# Longer lines are split: a long text without spaces is one word, on which unigram training is slow.
_LONGEST_LINE = 4096


def _train_wordpiece(lines: Iterator[str], vocabulary_size: int, case: Case, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.WordPiece(unk_token=roles["unk"]))
    # Without a value, accents are stripped where letters are lower-cased.
    strip = None if case.strip_accents == case.lowercase else case.strip_accents
    backend.normalizer = normalizers.BertNormalizer(lowercase=case.lowercase, strip_accents=strip)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(dict.fromkeys(roles.values()))
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        characters: set[str] = set()
        for line in lines:
            characters.update(line)
            spool.write(line + "\n")
        spool.seek(0)
        # The trainer numbers "##" letters in the order of a hash map, which differs between processes, and breaks ties
        # by these numbers. Passing the letters as special tokens fixes their order, and makes sure that every letter of
        # the text has a "##" token.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocabulary_size,
            min_frequency=_MIN_FREQUENCY,
            show_progress=False,
            special_tokens=special + [f"##{letter}" for letter in _inner_letters(backend, characters)],
        )
        backend.train_from_iterator((line.rstrip("\n") for line in spool), trainer)
    trained = hf.Tokenizer(models.WordPiece(vocab=backend.get_vocab(), unk_token=roles["unk"]))
    trained.normalizer, trained.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trained.decoder = decoders.WordPiece(prefix="##")
    trained.add_special_tokens([hf.AddedToken(token, special=True, normalized=False) for token in special])
    return trained


def _inner_letters(backend: hf.Tokenizer, characters: Iterable[str]) -> list[str]:
    """Characters that can continue a word: all except punctuation and ideographs, which are separate words."""
    inner: set[str] = set()
    for character in characters:
        words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(f"a{character}a"))
        for word, _ in words:
            inner.update(word[1:])
    return sorted(inner)


def _train_byte_bpe(lines: Iterator[str], vocabulary_size: int, case: Case, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.BPE())
    if steps := case.steps():
        backend.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    mask = roles.get("mask")
    special = [token for token in dict.fromkeys(roles.values()) if token != mask]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - (mask is not None),
        min_frequency=_MIN_FREQUENCY,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    backend.train_from_iterator(lines, trainer)
    if (
        mask is not None
    ):  # `lstrip`: the mask token absorbs the space before it, because the space belongs to the masked word
        backend.add_special_tokens([hf.AddedToken(mask, lstrip=True, special=True, normalized=False)])
    return backend


def _train_bpe(lines: Iterator[str], vocabulary_size: int, case: Case, roles: dict) -> hf.Tokenizer:
    """Trains BPE on words that Moses found, with marks at their ends (Sennrich et al. 2016, arXiv 1508.07909; XLM)."""
    backend = hf.Tokenizer(models.BPE(unk_token=roles["unk"], end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = list(dict.fromkeys(roles.values()))
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        letters: set[str] = set()
        for line in lines:
            words = moses.prepare(line, case.lowercase)
            letters.update(letter for word in words.split() for letter in (*word[:-1], f"{word[-1]}</w>"))
            spool.write(words + "\n")
        spool.seek(0)
        # As for WordPiece, passing the letters as special tokens fixes their ids.
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            min_frequency=_MIN_FREQUENCY,
            show_progress=False,
            special_tokens=special + sorted(letters),
            end_of_word_suffix="</w>",
        )
        backend.train_from_iterator((line.rstrip("\n") for line in spool), trainer)
    model = json.loads(backend.to_str())["model"]
    trained = hf.Tokenizer(bpe_of_words(model["vocab"], list(map(tuple, model["merges"]))))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.decoder = decoders.BPEDecoder(suffix="</w>")
    mark_special(trained, special)
    return trained


def _train_unigram(lines: Iterator[str], vocabulary_size: int, case: Case, roles: dict) -> hf.Tokenizer:
    backend = hf.Tokenizer(models.Unigram())
    steps = [normalizers.Nmt(), normalizers.NFKC(), *case.steps()]
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(hf.Regex(r"\s+"), " ")])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = list(dict.fromkeys(roles.values()))
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary_size, special_tokens=special, unk_token=roles["unk"], show_progress=False
    )
    try:
        backend.train_from_iterator(lines, trainer)
    except Exception as error:
        if "ocab" not in str(error):
            raise
        raise _TooSmall(str(error)) from None
    pieces = _in_fixed_order(json.loads(backend.to_str())["model"]["vocab"], special)
    trained = hf.Tokenizer(models.Unigram(pieces, unk_id=special.index(roles["unk"])))
    trained.normalizer = backend.normalizer
    trained.pre_tokenizer = pre_tokenizers.Sequence([backend.pre_tokenizer, names_apart(special)])
    trained.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    swallow = roles.get("mask")
    trained.add_special_tokens([hf.AddedToken(t, lstrip=t == swallow, special=True, normalized=False) for t in special])
    return trained


class _TooSmall(Exception):
    """The vocabulary size is too small for the alphabet."""


def _in_fixed_order(pieces: list, special: list[str]) -> list[tuple[str, float]]:
    """Makes tokens and scores independent of the order of a hash map in the trainer.

    The trainer puts letters that its pruning removed back into the vocabulary. Their scores are the lowest score plus
    0, 1e-4, 2e-4 and so on, in an arbitrary order. This function assigns these scores in the order of code points. All
    scores are rounded, because their last digits depend on the order of summation.
    """
    scores = {piece: score for piece, score in pieces if piece not in special}
    lowest = min(scores.values(), default=0.0)
    steps = {piece: (score - lowest) / 1e-4 for piece, score in scores.items() if len(piece) == 1}
    late = sorted(p for p, step in steps.items() if step < len(steps) and abs(step - round(step)) < 1e-6)
    values = sorted(scores[piece] for piece in late)
    scores |= dict(zip(late, values, strict=True))
    ordered = sorted(((piece, round(score, 8)) for piece, score in scores.items()), key=lambda p: (-p[1], p[0]))
    return [(token, 0.0) for token in special] + ordered


TRAINERS = {"wordpiece": _train_wordpiece, "byte_bpe": _train_byte_bpe, "unigram": _train_unigram, "bpe": _train_bpe}


def train_backend(
    kind: str,
    documents: Iterable[str],
    vocabulary_size: int,
    case: Case,
    roles: dict[str, str],
    behind: Sequence[str] = (),
) -> hf.Tokenizer:
    """Trains the backend of a tokenizer, with the template of its kind.

    Args:
        kind, documents, vocabulary_size: as in `Tokenizer.train`.
        case: the `Case` of the letters.
        roles: the special tokens that are part of the training, by role.
        behind: special tokens that the caller adds after the learned tokens. `vocabulary_size` includes them.

    Raises:
        ValueError: there is no text, or the vocabulary size is too large for the text or too small for its alphabet.
    """
    if kind not in TRAINERS:
        raise ValueError(f"`kind` must be one of {', '.join(TRAINERS)}. Received: {kind!r}.")
    if "unk" not in roles and kind != "byte_bpe":
        raise ValueError(f"`special_tokens` must have an unknown token, {{'unk': ...}}. Received: {roles}.")
    special = {*roles.values(), *behind}
    is_integer = hasattr(vocabulary_size, "__index__") and not isinstance(vocabulary_size, bool)
    if not is_integer or not len(special) < vocabulary_size <= MOST_PIECES:
        raise ValueError(
            f"`vocabulary_size` must be an integer above the number of special tokens, {len(special)}, and at most "
            f"{MOST_PIECES:,}. Received: {vocabulary_size!r}."
        )
    lines = (line for document in checked_documents(documents) for line in lines_of(document, _LONGEST_LINE))
    first = next(lines, None)
    if first is None:
        raise ValueError("`documents` must contain text. Received: documents without any text.")
    try:
        backend = TRAINERS[kind](itertools.chain([first], lines), vocabulary_size - len(behind), case, roles)
    except _TooSmall as error:
        raise ValueError(
            f"`vocabulary_size` must cover the alphabet of the text and the {len(special)} special tokens. Received: "
            f"{vocabulary_size}, which is too small ({error}). Use a larger size, or text with fewer characters."
        ) from None
    reached = backend.get_vocab_size(with_added_tokens=True) + len(behind)
    if reached < vocabulary_size:
        raise ValueError(
            f"`vocabulary_size` must not exceed the number of tokens that the text supports. Received: "
            f"{vocabulary_size}, but training ended at {reached} tokens. Use at most {reached}, or more text."
        )
    if reached > vocabulary_size:
        raise ValueError(
            f"`vocabulary_size` must cover the alphabet and the special tokens. Received: {vocabulary_size}, but there "
            "are "
            f"{reached} of them. Use at least {reached}, or text with fewer characters."
        )
    if "cls" in roles and "sep" in roles:
        template = roberta_template if kind == "byte_bpe" else bert_template
        backend.post_processor = template(roles, backend.get_vocab(with_added_tokens=True))
    return backend


def train_family(
    family: str, kind: str, documents: Iterable[str], vocabulary_size: int, case: Case, roles: dict | None
) -> tuple[hf.Tokenizer, dict[str, str]]:
    """Like `train_backend`, with the special tokens and the template of a family.

    Returns: the backend, and the special token of each role.
    """
    known = FAMILIES.get(family)
    trainable = [name for name, entry in FAMILIES.items() if entry.kind == kind]
    if known is None or known.kind != kind:
        raise ValueError(f"For {kind}, `family` must be one of {', '.join(trainable)}. Received: {family!r}.")
    roles = roles or known.roles
    named = {role: token for role, token in roles.items() if token not in known.behind + known.special}
    named |= {token: token for token in known.special}
    backend = train_backend(kind, documents, vocabulary_size, case, named, known.behind)
    mark_special(backend, known.behind, roles.get("mask"))
    layout = known.template(roles, backend.get_vocab(with_added_tokens=True))
    if layout is not None and family != "roberta":  # RoBERTa already has a template that gives the same ids
        backend.post_processor = layout
    return backend, roles
