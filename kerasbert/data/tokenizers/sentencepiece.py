"""Reads and writes SentencePiece model files without the library (Kudo, Richardson 2018, arXiv 1808.06226).

A model file is a protocol buffer with the pieces, their scores and the rules that normalize text. Its wire format can
be read without a compiler: each field consists of a key (number and type) and a value.
"""

import dataclasses
import math
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

MARK = "▁"  # represents a space
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACES_AT_ENDS, SPACES_BEHIND, BREAKS = "^ +| +$", " +$", r"[\n\r\t]"  # regular expressions
MAX_PIECE = 1_000  # maximum number of characters; SentencePiece learns pieces of at most 16


@dataclasses.dataclass
class SentencePieceModel:
    """The content of a model file.

    Args:
        pieces: (text, score, type) of every piece, in the order of their ids.
        kind: `UNIGRAM` or `BPE`.
        charsmap: the compiled rules of the normalizer, or b"" if there is none.
        byte_fallback: whether unknown characters are encoded as bytes.
        add_dummy_prefix: whether a space is put before the text.
        remove_extra_whitespaces: whether to remove spaces at the ends of the text, and to replace consecutive spaces by
            one.
    """

    pieces: list[tuple[str, float, int]]
    kind: int = UNIGRAM
    charsmap: bytes = b""
    byte_fallback: bool = False
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True

    @property
    def unk_id(self) -> int:
        return next(i for i, (_, _, kind) in enumerate(self.pieces) if kind == UNKNOWN)


# === The file ===


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (number, value) for each field of a message. Values of four or eight bytes are returned as bytes."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("it has a number of more than 64 bits")

    while place < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"it has the unknown wire type {wire}")
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        if place + size > len(data):
            raise ValueError("it is truncated")
        yield number, data[place : place + size]
        place += size


def _typed(value: int | bytes, kind: type) -> int | bytes:
    if not isinstance(value, kind):
        raise ValueError("it has a field of the wrong type")
    return value


def _piece(fields: dict) -> tuple[str, float, int]:
    """Returns (text, score, type) of a piece."""
    text, kind = _typed(fields.get(1, b""), bytes).decode(), _typed(fields.get(3, NORMAL), int)
    (score,) = struct.unpack("<f", _typed(fields.get(2, b"\0\0\0\0"), bytes))
    if not text or len(text) > MAX_PIECE or kind not in range(NORMAL, BYTE + 1) or not math.isfinite(score):
        raise ValueError(f"it has a piece of {len(text)} characters, type {kind} and score {score}")
    return text, score, kind


def read_model(path: str | Path) -> SentencePieceModel:
    """Reads a `.model` file.

    Raises:
        ValueError: the file is damaged, or the model is neither unigram nor BPE.
    """
    path = Path(path)
    pieces, trainer, normalizer = [], {}, {}
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1:
                pieces.append(_piece(dict(_fields(_typed(value, bytes)))))
            elif number == 2:
                trainer = dict(_fields(_typed(value, bytes)))
            elif number == 3:
                normalizer = dict(_fields(_typed(value, bytes)))
        if not any(kind == UNKNOWN for _, _, kind in pieces):
            raise ValueError("it has no piece for unknown text")
        if len({text for text, _, _ in pieces}) < len(pieces):
            raise ValueError("it has a duplicate piece")
        _typed(normalizer.get(2, b""), bytes)
        for message, number in ((trainer, 3), (trainer, 35), (normalizer, 3), (normalizer, 4)):
            _typed(message.get(number, 0), int)
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError(f"{path} is not a valid SentencePiece model ({error}).") from None
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise ValueError(f"A SentencePiece model must be unigram or BPE. Received: {path} of type {kind}.")
    return SentencePieceModel(
        pieces,
        kind,
        normalizer.get(2, b""),
        bool(trainer.get(35, 0)),
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
    )


def _field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1  # negative numbers are written as 64 bits
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def model_bytes(model: SentencePieceModel) -> bytes:
    """Serializes a model to the content of a `.model` file."""
    parts = []
    for text, score, kind in model.pieces:
        piece = _field(1, text.encode()) + _field(2, float(score)) + (_field(3, kind) if kind != NORMAL else b"")
        parts.append(_field(1, piece))
    ids = {text: i for i, (text, _, kind) in enumerate(model.pieces) if kind in (CONTROL, UNKNOWN)}
    unknown = model.pieces[model.unk_id][0]
    trainer = _field(3, model.kind) + _field(4, len(model.pieces)) + _field(35, int(model.byte_fallback))
    # Names and ids of the pieces for unknown, beginning, end and padding. The id of a missing piece is -1.
    for id_number, name_number, names in ((40, 45, [unknown]), (41, 46, ["<s>"]), (42, 47, ["</s>"]),
                                          (43, 48, ["<pad>", "[PAD]"])):  # fmt: skip
        name = next((name for name in names if name in ids), names[0])
        trainer += _field(id_number, ids.get(name, -1)) + _field(name_number, name.encode())
    normalizer = _field(1, b"nmt_nfkc" if model.charsmap else b"identity") + _field(2, model.charsmap)
    normalizer += _field(3, int(model.add_dummy_prefix)) + _field(4, int(model.remove_extra_whitespaces))
    return b"".join([*parts, _field(2, trainer), _field(3, normalizer + _field(5, 1))])


# === As a tokenizer ===


def build_backend(
    model: SentencePieceModel,
    steps: list[normalizers.Normalizer] = (),
    unk_token: str | None = None,
    split_whitespace: bool = False,
    scheme: str | None = None,
    strips: str | None = SPACES_AT_ENDS,
) -> hf.Tokenizer:
    """Builds a tokenizer that gives the same ids as SentencePiece's encoder.

    Args:
        model: the model, with its pieces in the order of their final ids.
        steps: normalizers of the family, which are applied before that of the model.
        unk_token: the unknown token. Default: the piece of type `UNKNOWN`.
        split_whitespace: whether words also end at Unicode white space that the normalizer keeps, such as U+0085.
            transformers does this for published families, but SentencePiece treats such white space as ordinary
            characters.
        scheme: where to put a space before text: "always", "first" or "never". Default: as the model says.
        strips: regular expression of the spaces at the ends of a text that are removed if the model says so. The class
            of mBART-50 keeps one at both ends, and that of DeBERTa-v2 one before the text.
    """
    unk_token = unk_token or model.pieces[model.unk_id][0]
    if model.kind == UNIGRAM:
        unk_id = next(i for i, (text, _, _) in enumerate(model.pieces) if text == unk_token)
        pieces = [(text, score) for text, score, _ in model.pieces]
        backend = hf.Tokenizer(models.Unigram(pieces, unk_id, byte_fallback=model.byte_fallback))
    else:
        vocabulary = {text: i for i, (text, _, _) in enumerate(model.pieces)}
        backend = hf.Tokenizer(
            models.BPE(
                vocabulary, _merges(model), unk_token=unk_token, fuse_unk=True, byte_fallback=model.byte_fallback
            )
        )
    steps = [*steps, *([normalizers.Precompiled(model.charsmap)] if model.charsmap else [])]
    if model.remove_extra_whitespaces:
        steps += spaces_removed(strips)
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    # If no piece has a space inside, words can be tokenized independently.
    split_words = all(MARK not in text.lstrip(MARK) for text, _, kind in model.pieces if kind in (NORMAL, USER_DEFINED))
    split_words = split_words and model.remove_extra_whitespaces
    scheme = scheme or ("always" if model.add_dummy_prefix else "never")
    words = [pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split_words)]
    if split_whitespace and split_words:
        words.insert(0, pre_tokenizers.WhitespaceSplit())
    if model.kind == UNIGRAM:
        words.append(names_apart(text for text, _, kind in model.pieces if kind in (CONTROL, UNKNOWN)))
    backend.pre_tokenizer = pre_tokenizers.Sequence(words)
    blanks = decoders.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split_words)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), blanks]) if model.byte_fallback else blanks
    return backend


def spaces_removed(strips: str | None) -> list[normalizers.Normalizer]:
    """The normalizers of `remove_extra_whitespaces`; see `build_backend`."""
    at_ends = [normalizers.Replace(hf.Regex(strips), "")] if strips else []
    return [*at_ends, normalizers.Replace(hf.Regex(" {2,}"), " ")]


def names_apart(special: Iterable[str]) -> pre_tokenizers.PreTokenizer:
    """Splits names of special tokens that occur in plain text, so that they do not become special tokens."""
    rests: dict[str, list[str]] = {}
    for token in special:
        rests.setdefault(re.escape(token[0]), []).append(re.escape(token[1:]))
    pattern = "|".join(f"{first}(?={'|'.join(rest)})" for first, rest in rests.items())
    return pre_tokenizers.Split(hf.Regex(pattern), "merged_with_previous")


def _merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """All pairs of pieces whose concatenation is also a piece, best first. SentencePiece merges every such pair."""
    scores = {text: score for text, score, kind in model.pieces if kind in (NORMAL, USER_DEFINED)}
    ids = {text: i for i, (text, _, _) in enumerate(model.pieces)}
    merges = []
    for text in sorted(scores, key=lambda text: (-scores[text], ids[text])):
        pairs = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        merges += [(left, right) for left, right in pairs if left in scores and right in scores]
    return merges
