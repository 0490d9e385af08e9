"""Steps of a tokenizer that lengthen a text without bounds are refused; those of published ones are not."""

import base64
import json
import random

import pytest
import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers

from kerasbert.data import Tokenizer
from kerasbert.data.tokenizers import growth
from kerasbert.data.tokenizers.checks import rust_errors

pytestmark = pytest.mark.one_backend

LIGATURE = "\ufdfa"  # 18 characters and 33 bytes after NFKC


def content(**parts):
    """A tokenizer.json with a small vocabulary and other parts."""
    vocabulary = {"[UNK]": 0, "a": 1, "[CLS]": 2}
    backend = hf.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.add_special_tokens(["[CLS]"])
    return {**json.loads(backend.to_str()), **parts}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def replaced(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def template(single, ids=(2,)):
    items = [{"Sequence": {"id": item, "type_id": 0}} if len(item) == 1 else _special(item) for item in single]
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]
    special = {"[CLS]": {"id": "[CLS]", "ids": list(ids), "tokens": ["[CLS]"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": items, "pair": pair, "special_tokens": special}


def _special(name):
    return {"SpecialToken": {"id": name, "type_id": 0}}


def charsmap(text):
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + text.encode() + b"\0").decode()


LONG = "a" * 30
NORMALIZERS = {
    "strings": [replaced("a", LONG)] * 8,
    "expressions": [replaced("a|b", LONG, "Regex")] * 8,
    "between characters": [replaced("", "aa")] * 30,
    "expressions that match nothing": [replaced("b*", "a", "Regex")] * 30,
    "borders of words": [replaced(r"\b", "aa a", "Regex")] * 8,
    "ligatures": [replaced(".", LIGATURE, "Regex"), {"type": "NFKD"}] * 6,
    "a long start": [{"type": "Prepend", "prepend": "a" * 5_000}],
    "bytes": [{"type": "ByteLevel"}] * 40,
    "nested": [sequence("normalizers", replaced("a", LONG), replaced("a", LONG))] * 4,
    "a charsmap": [{"type": "Precompiled", "precompiled_charsmap": charsmap("b" * 70)}] * 3,
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_that_multiply(name, tmp_path):
    whole = content(normalizer=sequence("normalizers", *NORMALIZERS[name]))
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    message = r"must not lengthen a text by more than 4,000 times when it encodes. Received: .*lengthen it .* times"
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(tmp_path)
    with pytest.raises(ValueError, match=message):  # as .keras files hold it
        Tokenizer.from_json(json.dumps({"tokenizer": whole, "roles": {}}))


@pytest.mark.parametrize(
    "parts, message",
    [
        (
            {"decoder": sequence("decoders", *[replaced("a", LONG)] * 8)},
            r"by more than 20 times when it decodes.*6.56e\+11",
        ),
        ({"decoder": sequence("decoders", *[replaced("x*", "a", "Regex")] * 8)}, "when it decodes.*256 times"),
        ({"decoder": sequence("decoders", *[{"type": "BPEDecoder", "suffix": ""}] * 40)}, "when it decodes"),
        (
            {
                "pre_tokenizer": sequence(
                    "pretokenizers", *[{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 40
                )
            },
            "when it encodes",
        ),
        (
            {
                "pre_tokenizer": sequence(
                    "pretokenizers",
                    *[{"type": "Metaspace", "replacement": mark, "prepend_scheme": "always"} for mark in "ab" * 20],
                )
            },
            "when it encodes",
        ),
        (
            {"post_processor": template("AAA")},
            "each text once, and 1,000 special tokens. Received: the texts 'A, A, A'",
        ),
        ({"post_processor": sequence("processors", template("AA"))}, "Received: the texts 'A, A'"),
        ({"post_processor": template(["[CLS]"] * 40 + ["A"], [2] * 50)}, "'A' and 2,000 special tokens"),
        (
            {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "b" * 10_001: 1}, "unk_token": "[UNK]"}},
            "10,001 bytes",
        ),
        (
            {
                "model": {
                    "type": "WordPiece",
                    "vocab": {"[UNK]": 0, "a": 1},
                    "unk_token": "[UNK]",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 10**9,
                }
            },
            "`max_input_chars_per_word` must be at most 10,000. Received: 1000000000",
        ),
    ],
)
def test_other_parts_that_multiply(parts, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(content(**parts)))
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(tmp_path)


def test_padding_of_a_file_is_not_used(tmp_path):
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": 10**9}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content(padding=padding)))
    assert [row.tolist() for row in Tokenizer.load(tmp_path).encode(["a"])] == [[1]]


STEPS = [
    lambda: normalizers.NFC(),
    lambda: normalizers.NFKD(),
    lambda: normalizers.NFKC(),
    lambda: normalizers.Lowercase(),
    lambda: normalizers.StripAccents(),
    lambda: normalizers.BertNormalizer(),
    lambda: normalizers.ByteLevel(),
    lambda: normalizers.Prepend("▁"),
    lambda: normalizers.Replace("a", LIGATURE),
    lambda: normalizers.Replace(hf.Regex("[a-z]"), "é1"),
    lambda: normalizers.Replace(hf.Regex("x*"), "ab"),
    lambda: normalizers.Replace(hf.Regex("^|b"), "▁▁"),
    lambda: normalizers.Replace("", "c"),
]


def test_the_factors_are_bounds():
    """No sequence of four steps lengthens a text by more than its factor."""
    rng = random.Random(0)
    reached, count = 0.0, 0
    for _ in range(300):
        steps = normalizers.Sequence([rng.choice(STEPS)() for _ in range(4)])
        text = "".join(rng.choice(f"aB {LIGATURE}İé中x▁") for _ in range(rng.choice((1, 2, 9))))
        factor = growth._of_normalizers(growth._steps(steps))
        try:
            with rust_errors("steps"):
                found = len(steps.normalize_str(text).encode()) / len(text.encode())
        except ValueError:  # the library fails for some sequences of replacements
            continue
        count += 1
        assert found <= factor, (steps, text)
        reached = max(reached, found / factor)
    assert reached > 0.3 and count > 150


def test_chains_of_published_tokenizers_are_accepted():
    """ALBERT's normalizer with the longest text of SentencePiece's rules, and Llama's decoder."""
    steps = [
        replaced("``", '"'),
        replaced("''", '"'),
        {"type": "NFKD"},
        {"type": "StripAccents"},
        {"type": "Lowercase"},
    ]
    steps += [{"type": "Precompiled", "precompiled_charsmap": charsmap("صلى الله عليه وسلم")}]
    steps += [replaced(" {2,}", " ", "Regex")]
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
    assert growth._of_normalizers(steps) * growth._of_pre_tokenizers([mark]) == 11 * 1.5 * 33 * 6 < 4_000
    llama = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    assert growth._of_decoders(growth._steps(llama)) == 1
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(hf.Regex(r"\s+"), "isolated"), pre_tokenizers.ByteLevel()])
    assert growth._of_pre_tokenizers(growth._steps(split)) == 4
