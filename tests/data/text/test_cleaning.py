"""C4's rules by the sheet's examples, and deduplication."""

import gzip
import hashlib

import pytest

from kerasbert.data import read_documents
from kerasbert.data.text.cleaning import (
    C4Rules,
    clean_documents,
    deduplicate_documents,
    deduplicate_lines,
    deduplicate_spans,
    in_language,
    langdetect_detector,
    normalized_url,
    one_page_a_url,
    split_sentences,
    wet_pages,
)

pytestmark = pytest.mark.one_backend

GOOD = ["The first line is long enough to stay.", "So is the second one of this page.", "And the third, as it happens."]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("Home Menu Login", ""),
        ("Too short.", ""),
        ("This line is long enough to stay.", "This line is long enough to stay."),
        ("And then it goes on and on...", ""),
        ("And then it goes on and on. . .", "And then it goes on and on. . ."),
        ("And then it goes on and on…", ""),
        ("He wrote it in 1999 [3] in Paris.[citation needed]", "He wrote it in 1999  in Paris."),
        ("He lived for years in Paris. [3]", ""),
        ("An empty mark[] is deleted from here[edit] too.", "An empty mark is deleted from here too."),
        ("Marks in other [Edit] letters stay as they are.", "Marks in other [Edit] letters stay as they are."),
        ("Please enable Javascript to view this page.", ""),
        ("By reading on you accept our use of cookies today.", ""),
        ("Read more in the Privacy Policy of this site.", ""),
        ("function f() returns one in a line }", ""),
        ("The code is a = { b } as shown here.", None),
        ("Click { here", ""),
        ("Lorem ipsum dolor sit amet, consectetur.", None),
        ('She said "come home right now"', 'She said "come home right now"'),
        ("She said “come home right now”", ""),
        ("  White space at both ends is taken off.  ", "White space at both ends is taken off."),
        (f"A word of {'x' * 1001} is much too long.", ""),
        (f"A word of {'x' * 1000} is just short enough.", f"A word of {'x' * 1000} is just short enough."),
    ],
)
def test_lines_of_the_sheet(line, kept):
    assert C4Rules().clean_line(line) == kept
    page = C4Rules()("\n".join([*GOOD, line]))
    assert page == (None if kept is None else "\n".join([*GOOD, kept] if kept else GOOD))


def test_pages_need_three_sentences():
    rules = C4Rules()
    assert rules("\n".join(GOOD[:2])) is None
    assert rules("\n".join(GOOD)) == "\n".join(GOOD)
    assert rules("One line holds them all. It has three. They are counted here.") is not None
    assert rules("Nothing\nof\nthis stays") is None and rules("") is None
    assert rules("This is a sentence of some words. " * 6000) is None  # longer than 190,000 characters
    paper = C4Rules(min_line_words=3, min_sentences=5)
    assert paper("\n".join(GOOD)) is None
    assert paper("Three words now.\n" + "\n".join([*GOOD, "One more is the fifth of them."])) is not None


def test_bad_words():
    page = "\n".join([*GOOD, "An ugly duckling is on this line."])
    assert C4Rules(bad_words=("duck",))(page) == page
    assert C4Rules(bad_words=("UGLY duckling",))(page) is None
    assert C4Rules(bad_words=("long enough",))(page) is None
    start = "\n".join([*GOOD, "Ugly things at the start are caught."])
    assert C4Rules(bad_words=("ugly",))(start) is None
    assert C4Rules(bad_words=("ugly",), bad_words_by_line=True)(start) == start  # the older rule misses it there
    assert C4Rules(bad_words=("ugly",), bad_words_by_line=True)(page) is None
    assert C4Rules(bad_words=("a.b",))("\n".join([*GOOD, "There is an axb in this line."])) is not None


def test_sentences():
    assert split_sentences("Mr. Fox ran. Why? He was late.") == ["Mr. Fox ran.", "Why?", "He was late."]
    assert split_sentences('He said "Go!" Then J. R. Smith left, e.g. home. Done') == [
        'He said "Go!"',
        "Then J. R. Smith left, e.g. home.",
        "Done",
    ]
    assert split_sentences("It costs 3.5 dollars. and so on") == ["It costs 3.5 dollars. and so on"]
    assert split_sentences("Wait... What?! No.") == ["Wait...", "What?!", "No."]
    assert split_sentences("  ") == []


def test_lines_stay_on_one_page():
    first, second = (
        "\n".join(GOOD),
        "\n".join([GOOD[1].upper(), *(f"Line {n} is only on this page." for n in range(3))]),
    )
    assert list(deduplicate_lines([first, second])) == [first, "\n".join(second.split("\n")[1:])]
    assert list(deduplicate_lines([first, first])) == [first]
    assert list(deduplicate_lines(["\n".join([*GOOD, GOOD[0]])])) == [first]
    assert list(deduplicate_lines([first, "\n".join([GOOD[0], "Only two. Sentences left."])])) == [first]
    # The recount runs over the whole page: a line without its own end may join the next.
    assert list(deduplicate_lines(["One is here\nand two. Three. Four"])) == ["One is here\nand two. Three. Four"]
    assert list(deduplicate_lines(["One is here\nand two. Three"])) == []


def test_documents_stay_once():
    assert list(deduplicate_documents(["A b.", "a  B.\n", "c"])) == ["A b.", "c"]


def test_three_sentences_in_a_row_stay_once():
    a, b, c, d = ("Alpha is here.", "Beta is there.", "Gamma came too.", "Delta was late.")
    assert list(deduplicate_spans([f"{a} {b} {c}", f"{d}\n{a} {b}\n{c}\n{d}"])) == [f"{a} {b} {c}", f"{d}\n{d}"]
    assert list(deduplicate_spans([f"{a} {b} {d}", f"{a} {b} {c}"])) == [f"{a} {b} {d}", f"{a} {b} {c}"]
    assert list(deduplicate_spans([f"{a} {b} {c}", f"{a} {b} {c}"])) == [f"{a} {b} {c}"]
    assert list(deduplicate_spans([f"{a} {b} {c} {a} {b} {c} {d}"])) == [f"{a} {b} {c} {d}"]


def test_a_language_filter():
    found = {"one": ("en", 0.995), "two": ("en", 0.98), "three": ("de", 1.0), "four": None}

    def detect(text):
        if text == "five":
            raise RuntimeError("no letters")
        return found[text]

    assert list(in_language([*found, "five"], detect)) == ["one"]
    assert list(in_language([*found, "five"], detect, "de")) == ["three"]
    assert list(in_language(found, detect, threshold=0.9)) == ["one", "two"]


def test_langdetect_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "langdetect", None)
    with pytest.raises(ImportError, match="needs langdetect"):
        langdetect_detector()


def test_pages_of_common_crawl():
    lines = [
        *("WARC/1.0", "WARC-Type: warcinfo", "Content-Length: 9", "", "isPartOf: CC", ""),
        *("WARC/1.0", "WARC-Target-URI: http://www.a.com/x/", "Content-Type: text/plain", "", " One. ", "", "Two."),
        *("WARC/1.0", "WARC-Target-URI: https://b.org", "", "WARC-like lines go.", "Three."),
        *("WARC/1.0", "WARC-Target-URI: https://empty.org", ""),
    ]
    assert list(wet_pages(lines)) == [("http://www.a.com/x/", "One.\nTwo."), ("https://b.org", "Three.")]


def test_urls():
    assert normalized_url("https://www.example.com/a/?utm_source=x") == "example.com/a"
    assert normalized_url("http://example.com/a?ref=1") == normalized_url("example.com/a?feed=rss") == "example.com/a"
    assert normalized_url("http://example.com/a?page=2") == "example.com/a?page=2"
    pages = [("http://a.com", "1"), ("http://b.com/", "2"), ("https://www.a.com/", "3"), ("http://c.com", "4")]
    found = one_page_a_url(pages)
    assert dict(found) == {"a.com": "3", "b.com": "2", "c.com": "4"}
    assert [url for url, _ in found] == sorted(dict(found), key=lambda url: hashlib.md5(url.encode()).hexdigest())
    assert one_page_a_url(pages[1:][::-1]) == one_page_a_url(pages[1:])


def test_files_of_common_crawl_are_documents(tmp_path):
    pages = {"http://a.com/1": "Old.", "https://www.b.org": "Three.\n\nFour.", "https://www.a.com/1/": "New."}
    records = "".join(f"WARC/1.0\nWARC-Target-URI: {url}\n\n{text}\n\n" for url, text in pages.items())
    with gzip.open(tmp_path / "CC-MAIN-1.warc.wet.gz", "wt", encoding="utf-8") as file:
        file.write(records)
    assert sorted(read_documents(tmp_path)) == ["New.", "Three.\nFour."]  # the last page of each URL
    (tmp_path / "CC-MAIN-1.warc.wet.gz").unlink()
    (tmp_path / "damaged.wet").write_text("no record", encoding="utf-8")
    with pytest.raises(ValueError, match="damaged.wet has no text"):
        list(read_documents(tmp_path))


def test_the_whole_pipeline_in_its_order(tmp_path):
    extra = [f"This line number {n} is on another page." for n in range(3)]
    pages = [
        "\n".join(["Menu", *GOOD]),
        "\n".join([*GOOD, *extra, "The end of all this…"]),
        "A { b } is code, no text.",
    ]
    expected = ["\n".join(GOOD), "\n".join(extra)]
    assert list(clean_documents(pages, C4Rules(), "lines")) == expected
    assert list(clean_documents(pages, C4Rules())) == ["\n".join(GOOD), "\n".join([*GOOD, *extra])]
    assert list(clean_documents(pages)) == pages
    # A word that deduplication took away condemns nobody.
    assert list(clean_documents(pages, C4Rules(bad_words=("second",)), "lines")) == expected[1:]
    assert list(clean_documents(pages, C4Rules(), "lines", lambda text: ("en", "number" in text))) == expected[1:]
    path = tmp_path / "web.txt"
    path.write_text("\n\n".join(pages), encoding="utf-8")
    assert list(read_documents(path, clean="c4", deduplicate="lines")) == expected
    assert list(read_documents(path, deduplicate="lines"))[1] == "\n".join([*extra, "The end of all this…"])
    assert list(read_documents(path)) == pages
    with pytest.raises(ValueError, match='`clean` must be "c4" or None'):
        read_documents(path, clean="c5")
    with pytest.raises(ValueError, match="`deduplicate` must be one of lines, documents, spans"):
        read_documents(path, deduplicate="words")
