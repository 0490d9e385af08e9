"""Cleans and deduplicates web text by the rules of C4.

The steps of the pipeline, in order, are: reading the pages of a Common Crawl file (`wet_pages`), keeping one page per
URL (`one_page_a_url`), cleaning pages (`C4Rules`), line deduplication (`deduplicate_lines`), a language filter
(`in_language`), and a bad-word filter. Paper: Raffel et al. 2019, arXiv 1910.10683, section 2.2. Where the paper and
its code differ, the rules are those of the code.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_END = re.compile(r"""[.!?]+["'”’)\]]*\s+(?=["'“‘(\[]*[A-Z0-9À-ÖØ-ÞА-Я])|[。！？]+""")
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt messrs vs etc cf e.g i.e viz no vol fig pp ed inc ltd co "
    "corp jan feb mar apr jun jul aug sep sept oct nov dec".split()
)


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences.

    A sentence ends with . ! or ? before a space and a capital letter, but not after an abbreviation.

    "Mr. Fox ran. Why? He was late." -> "Mr. Fox ran.", "Why?", "He was late."
    """
    sentences, start = [], 0
    for match in _END.finditer(text):
        words = text[start : match.start()].split()
        word = words[-1].lstrip("\"'“‘([") if words else ""
        is_stop = text[match.start()] == "." and not text.startswith("..", match.start())
        if is_stop and (word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "I")):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return [*sentences, text[start:].strip()] if text[start:].strip() else sentences


@dataclass(frozen=True)
class C4Rules:
    """C4's rules for cleaning a page. A call returns the cleaned page, or None if the page is dropped.

    The defaults follow the official code. The first versions of the paper require 3 words per line and 5 sentences.

    Args:
        max_page_characters: maximum number of characters in a page. Longer pages are dropped.
        max_word_characters: maximum number of characters in a word. Lines with a longer word are dropped.
        min_line_words: minimum number of words in a line. Shorter lines are dropped.
        min_sentences: minimum number of sentences in the remaining lines of a page. Shorter pages are dropped.
        bad_words: words and phrases. Pages that contain one of them are dropped.
        bad_words_by_line: whether to search each line separately for bad words, instead of the whole page. Older
            versions of C4 did this, and missed words at the beginning and the end of a line.
        sentences: function that splits a line into sentences. C4 uses NLTK's Punkt model for English.
    """

    max_page_characters: int = 190_000
    max_word_characters: int = 1_000
    min_line_words: int = 5
    min_sentences: int = 3
    bad_words: tuple[str, ...] = ()
    bad_words_by_line: bool = False
    sentences: Callable[[str], list[str]] = split_sentences

    def __call__(self, page: str) -> str | None:
        page = self.without_deduplication(page)
        return None if page is None or self.has_bad_words(page) else page

    def without_deduplication(self, page: str) -> str | None:
        """Applies all rules except the bad-word filter, which C4 applies only after line deduplication."""
        if len(page) > self.max_page_characters:
            return None
        lines, sentences = [], 0
        for line in page.split("\n"):
            kept = self.clean_line(line)
            if kept is None:
                return None
            if kept:
                lines.append(kept)
                sentences += len(self.sentences(kept))
        return "\n".join(lines) if lines and sentences >= self.min_sentences else None

    def clean_line(self, line: str) -> str | None:
        """Returns the cleaned line, "" if the line is dropped, or None if the whole page is dropped.

        "He wrote it in 1999 [3] in Paris." -> "He wrote it in 1999  in Paris."
        """
        line = line.strip()
        if any(len(word) > self.max_word_characters for word in line.split()):
            return ""
        line = _CITATION.sub("", line)
        if not line.endswith((".", "?", "!", '"')) or line.endswith("..."):
            return ""
        if len(line.split()) < self.min_line_words:
            return ""
        lower = line.lower()
        if "lorem ipsum" in lower:
            return None
        if "javascript" in lower:
            return ""
        if "{" in line:
            return None
        if any(policy in lower for policy in _POLICIES):
            return ""
        if self.bad_words and self.bad_words_by_line and re.search(f"[^a-z]({self._words})[^a-z]", lower):
            return None
        return line

    def has_bad_words(self, page: str) -> bool:
        """Whether the page contains one of the bad words as a whole word, ignoring case."""
        if not self.bad_words or self.bad_words_by_line:
            return False
        return re.search(rf"(?:\W|^)({self._words})(?:\W|$)", page.lower()) is not None

    @property
    def _words(self) -> str:
        return "|".join(re.escape(word.lower()) for word in self.bad_words)


# === Deduplication ===


def deduplicate_lines(
    documents: Iterable[str], min_sentences: int = 3, sentences: Callable[[str], list[str]] = split_sentences
) -> Iterator[str]:
    """Keeps only the first occurrence of every line, and drops documents that then have too few sentences.

    Lines are compared across all documents, ignoring case. Hashes of 8 bytes per line are kept in memory. C4 keeps a
    line in the page whose URL has the smallest MD5 hash. In the order of `one_page_a_url`, this is the first page that
    contains the line.
    """
    seen: set[bytes] = set()
    for document in documents:
        lines = []
        for line in document.split("\n"):
            mark = _mark(line.strip().lower())
            if mark not in seen:
                seen.add(mark)
                lines.append(line)
        text = "\n".join(lines)
        if text.strip() and len(sentences(text)) >= min_sentences:
            yield text


def deduplicate_documents(documents: Iterable[str]) -> Iterator[str]:
    """Keeps only the first occurrence of every document, ignoring white space and case."""
    seen: set[bytes] = set()
    for document in documents:
        mark = _mark(" ".join(document.lower().split()))
        if mark not in seen:
            seen.add(mark)
            yield document


def deduplicate_spans(
    documents: Iterable[str], span: int = 3, sentences: Callable[[str], list[str]] = split_sentences
) -> Iterator[str]:
    """Keeps only the first occurrence of every span of three consecutive sentences, as described in T5's paper.

    A span may cross lines, but not documents.
    """
    seen: set[bytes] = set()
    for document in documents:
        lines = [sentences(line) for line in document.split("\n")]
        flat = [sentence.lower() for line in lines for sentence in line]
        repeated = [False] * len(flat)
        for start in range(len(flat) - span + 1):
            mark = _mark("\n".join(flat[start : start + span]))
            if mark in seen:
                repeated[start : start + span] = [True] * span
            seen.add(mark)
        marks = iter(repeated)
        kept = [" ".join(sentence for sentence in line if not next(marks)) for line in lines]
        if text := "\n".join(line for line in kept if line):
            yield text


DEDUPLICATIONS = {"lines": deduplicate_lines, "documents": deduplicate_documents, "spans": deduplicate_spans}

# === Languages ===

Detector = Callable[[str], tuple[str, float] | None]


def in_language(
    documents: Iterable[str], detect: Detector, language: str = "en", threshold: float = 0.99
) -> Iterator[str]:
    """Keeps the documents that are in `language` with a probability of at least `threshold`.

    Args:
        detect: function from a text to (language, probability), or to None if the language is unknown. Documents for
            which it raises an exception are dropped.
    """
    for document in documents:
        try:
            found = detect(document)
        except Exception:  # detectors raise various exceptions for text without letters
            continue
        if found is not None and found[0] == language and found[1] >= threshold:
            yield document


def langdetect_detector(seed: int = 0) -> Detector:
    """Returns C4's language detector, from the package langdetect. Its results are random, so it needs a seed."""
    try:
        import langdetect
    except ImportError:
        raise ImportError("This language filter needs langdetect. Install it with: pip install langdetect") from None
    langdetect.DetectorFactory.seed = seed

    def detect(text: str) -> tuple[str, float] | None:
        found = langdetect.detect_langs(text)
        return (found[0].lang, found[0].prob) if found else None

    return detect


# === Common Crawl ===


def wet_pages(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields (URL, text) of every page of a Common Crawl WET file."""
    url, text = "", []
    for line in lines:
        line = line.strip()
        if line == "WARC/1.0":
            if url and text:
                yield url, "\n".join(text)
            url, text = "", []
        elif line.startswith("WARC-Target-URI:"):
            url = line.partition(":")[2].strip()
        elif line and not line.startswith(("WARC", "Content-")):
            text.append(line)
    if url and text:
        yield url, "\n".join(text)


def normalized_url(url: str) -> str:
    """Removes the scheme, "www.", tracking parameters and the trailing slash from a URL.

    "https://www.example.com/a/?utm_source=x" -> "example.com/a"
    """
    url = re.sub(r"^https?://", "", url)
    url = re.sub(r"\?(utm_|ref|feed).*$", "", url.removeprefix("www."))
    return url.rstrip("/")


def one_page_a_url(pages: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keeps the last page of each URL, and sorts the pages by the MD5 hashes of their normalized URLs.

    As a result, neither the order of the result nor a subsequent deduplication depends on the order of the input.
    """
    by_url = {normalized_url(url): text for url, text in pages}
    return sorted(by_url.items(), key=lambda page: hashlib.md5(page[0].encode(), usedforsecurity=False).digest())


# === Pipeline ===


def clean_documents(
    documents: Iterable[str],
    rules: C4Rules | None = None,
    deduplicate: str | None = None,
    detect: Detector | None = None,
    language: str = "en",
) -> Iterator[str]:
    """Applies the steps of the pipeline to documents, in the order of C4.

    Args:
        rules: the page cleaner, or None for no cleaning.
        deduplicate: "lines" (as in C4's code), "spans" (as in its paper), "documents", or None.
        detect: the language detector (see `in_language`), or None for no language filter.
        language: the language of the documents to keep.
    """
    if deduplicate is not None and deduplicate not in DEDUPLICATIONS:
        raise ValueError(f"`deduplicate` must be one of {', '.join(DEDUPLICATIONS)}. Received: {deduplicate!r}.")
    if rules is not None:
        documents = (page for document in documents if (page := rules.without_deduplication(document)) is not None)
    if deduplicate == "lines":
        documents = (
            deduplicate_lines(documents, rules.min_sentences, rules.sentences)
            if rules
            else deduplicate_lines(documents, 0)
        )
    elif deduplicate is not None:
        documents = DEDUPLICATIONS[deduplicate](documents)
    if detect is not None:
        documents = in_language(documents, detect, language)
    return (document for document in documents if rules is None or not rules.has_bad_words(document))


def _mark(text: str) -> bytes:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[:8]
