import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.tasks.tagging import TaggedRows, entities, tags_of, tags_within, words_of
from tests.data.mixed_text import MARKS, SCRIPTS

pytestmark = pytest.mark.one_backend


def test_words_are_characters_of_the_text():
    assert words_of("It's  5.") == [(0, 2), (2, 3), (3, 4), (6, 7), (7, 8)]
    assert [text[a:b] for text in ["人人 abc１２\té!"] for a, b in words_of(text)] == ["人", "人", "abc１２", "é", "!"]
    for text in SCRIPTS + MARKS:
        spans = words_of(text)
        assert all(text[a:b].strip() == text[a:b] != "" for a, b in spans)
        assert "".join(text[a:b] for a, b in spans) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "हिन्दी में लिखो",
        "مُحَمَّد رسول",
        "می\u200cخواهم بروم",
        "שָׁלוֹם עולם",
        "தமிழ் நாடு",
        "e\u0301te\u0301 ❤\ufe0f",
        "1\ufe0f\u20e3 x",
    ],
)
def test_marks_belong_to_their_letters(text):
    """Vowel signs, points and joiners are no words of their own, nor do they end one."""
    assert [text[a:b] for a, b in words_of(text)] == text.split()


@pytest.mark.parametrize(
    "tags, expected",
    [
        ("B-P I-P O I-L", [("P", 0, 2), ("L", 3, 4)]),
        ("I-P I-P B-P I-P", [("P", 0, 2), ("P", 2, 4)]),  # IOB1
        ("I-P I-L B-L E-L S-P", [("P", 0, 1), ("L", 1, 2), ("L", 2, 4), ("P", 4, 5)]),
        ("B-P E-P E-P I-P", [("P", 0, 2), ("P", 2, 3), ("P", 3, 4)]),
        ("B I O I", [("", 0, 2), ("", 3, 4)]),
        ("PER PER O LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-A-B I-A-B", [("A-B", 0, 2)]),
        ("U-P B-P L-P O", [("P", 0, 1), ("P", 1, 3)]),
        ("O", []),
        ("", []),
    ],
)
def test_entities_of_every_scheme(tags, expected):
    assert entities(tags.split()) == expected


@pytest.mark.parametrize("scheme", ["bio", "bioes", "iob1"])
def test_schemes_are_read_as_they_are_written(scheme):
    rng = np.random.default_rng(0)
    for _ in range(200):
        length, spans, place = 12, [], 0
        while place < length:
            width = int(rng.integers(1, 4))
            if rng.random() < 0.6 and place + width <= length:
                spans.append((str(rng.choice(["P", "L"])), place, place + width))
            place += width
        assert entities(tags_of(spans, length, scheme)) == spans
    with pytest.raises(ValueError, match="within the 4 words and must not overlap"):
        tags_of([("P", 0, 2), ("L", 1, 3)], 4)


def test_the_first_piece_carries_the_label(wordpiece):
    words = ["ten", "tones", "'s", "net"]
    rows = TaggedRows(wordpiece, [words], max_length=32)
    pieces = [wordpiece.encode([word], add_special_tokens=False)[0] for word in words]
    assert rows.x["token_ids"][0].tolist() == [wordpiece.cls_id, *np.concatenate(pieces), wordpiece.sep_id]
    firsts = 1 + np.cumsum([0, *map(len, pieces[:-1])])
    assert np.flatnonzero(rows.words[0] >= 0).tolist() == firsts.tolist()
    y, weight = rows.targets([[3, 1, 4, 2]])
    assert y[0, firsts].tolist() == [3, 1, 4, 2] and weight[0].sum() == 4
    with pytest.raises(ValueError, match="sentence 0 of 4 words with 3 labels"):
        rows.targets([[1, 2, 3]])


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_every_word_is_read_once_whatever_the_window(kind, request):
    tokenizer = request.getfixturevalue(kind)
    sentences = [["ten", "net", "tone", "note"] * 9, "a net, ten notes and tones.", ["a"], "", ["ten", "\x01", "net"]]
    rows = TaggedRows(tokenizer, sentences, max_length=12)
    assert rows.x["token_ids"].shape[1] <= 12
    read = list(rows.read(np.repeat(np.arange(rows.words.size).reshape(rows.words.shape)[..., None], 2, axis=2)))
    for number, (values, spans) in enumerate(zip(read, rows.word_spans, strict=True)):
        assert values.shape == (len(spans), 2)
        found = ~np.isnan(values[:, 0])
        there = [len(p) > 0 for p in tokenizer.encode(_words(rows, number), add_special_tokens=False)]
        assert (found <= np.array(there, bool)).all()  # only what has pieces is read
        assert found.sum() >= len(spans) - 1 and len(set(values[found, 0])) == found.sum()
    # The window with more context: no word next to a cut is read there unless the text ends.
    inner = rows.words[1][rows.words[1] >= 0]
    assert inner.min() > rows.words[0][rows.words[0] >= 0].max()


@pytest.mark.parametrize(
    ("kind", "text", "hosts"),
    [
        ("byte_bpe", "(ten).", [0, 1, 2, 2]),
        ("unigram", "ten 日本 日", [0, 1, 1, 3]),
        ("wordpiece", "ten \x01", [0, -1]),
    ],
)
def test_words_in_one_piece_are_read_together(kind, text, hosts):
    documents = ["a net (of notes). (ten).", "ten 日本", "日 人", "本 ten", "日本人 net", "人日", "日本 日本"] * 40
    sizes = dict(byte_bpe=283, unigram=24, wordpiece=34)
    rows = TaggedRows(Tokenizer.train(kind, documents, sizes[kind]), [text], max_length=16)
    assert rows.hosts[0].tolist() == hosts
    assert sorted(rows.words[rows.words >= 0]) == sorted(set(hosts) - {-1})
    values = next(rows.read(rows.words[..., None].astype("float64")))
    np.testing.assert_array_equal(values[:, 0], [np.nan if host < 0 else host for host in hosts])


@pytest.mark.parametrize(
    ("tag", "within"),
    [
        ("B-LOC", "B-LOC I-LOC I-LOC"),
        ("I-LOC", "I-LOC I-LOC I-LOC"),
        ("S-LOC", "B-LOC I-LOC E-LOC"),
        ("E-LOC", "I-LOC I-LOC E-LOC"),
        ("U-LOC", "B-LOC I-LOC L-LOC"),
        ("O", "O O O"),
        ("LOC", "LOC LOC LOC"),
    ],
)
def test_tags_of_words_in_one_piece(tag, within):
    assert tags_within(tag, 3) == within.split() and tags_within(tag, 1) == [tag]
    assert entities([*tags_within(tag, 3), "O"]) == [(kind, a, 3) for kind, a, _ in entities([tag])]


def _words(rows, number):
    return [rows.texts[number][a:b] for a, b in rows.word_spans[number]]


def test_bad_sentences(wordpiece):
    with pytest.raises(ValueError, match="3 as sentence 1"):
        TaggedRows(wordpiece, [["a"], 3], 16)
    with pytest.raises(ValueError, match="leave space"):
        TaggedRows(wordpiece, [["a"]], 2)


def test_as_many_labels_as_sentences(wordpiece):
    rows = TaggedRows(wordpiece, [["ten"], ["net"]], max_length=8)
    for tags in ([[0]], [[0], [1], [1]]):
        with pytest.raises(ValueError, match=f"Every sentence must have labels. Received: 2 sentences, {len(tags)}"):
            rows.targets(tags)
