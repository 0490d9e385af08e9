"""Turns text into a corpus of token ids.

python -m pipelines.prepare_corpus --source text.txt --tokenizer corpora/tokenizer --output corpora/text
"""

import contextlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from kerasbert.data import Corpus, Tokenizer, read_documents
from kerasbert.data.text.cleaning import langdetect_detector
from kerasbert.data.text.documents import document_boundary
from kerasbert.data.text.files import write_text

from .command import Command
from .locks import locked

UNFINISHED = ".unfinished"  # marks a folder while its corpus is being prepared, and lists the files that it had before
FILES = (  # files of a corpus and its tokenizer
    *("corpus.json", "corpus.idx", "corpus.bin", "word_starts.npy", ".*.partial"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model"),
)


def prepare_corpus(
    source: list[str],
    tokenizer: Path,
    output: Path,
    held_out: Path | None = None,
    held_out_every: int = 100,
    column: str | None = None,
    errors: Literal["strict", "replace", "ignore"] = "strict",
    encoding: str = "utf-8",
    subset: str | None = None,
    split: str = "train",
    clean: Literal["c4"] | None = None,
    deduplicate: Literal["lines", "documents", "spans"] | None = None,
    language: str | None = None,
    documents: Literal["auto", "blank-line", "file"] = "auto",
) -> Corpus:
    """Tokenizes documents into Megatron's .bin and .idx files.

    Args:
        source: files or folders (text, CSV, TSV, JSON, JSONL, Parquet, WET of Common Crawl), or hf://name for a data
            set on the hub.
        tokenizer: folder of the tokenizer.
        output: folder for the corpus, which must not contain one yet. An unfinished corpus of an interrupted command is
            replaced.
        held_out: folder for a second corpus, to evaluate on: every `held_out_every`-th document. If there are fewer
            than twice as many documents, two are held out (of two or three documents, the last one).
        held_out_every: hold out one of every so many documents, such as 100 to hold out one per cent.
        column: the column of a table that holds the text.
        errors: what to do with bytes that cannot be decoded.
        encoding: encoding of the files.
        subset: configuration of a data set on the hub.
        split: split of a data set on the hub.
        clean: clean web text by the rules of C4, which remove lines that are not sentences, and pages with code or
            too little text.
        deduplicate: keep only the first occurrence of each line, document, or span of three consecutive sentences.
        language: keep only documents in this language, such as en, as detected by langdetect with 99% certainty.
        documents: what ends a document in a text file: a blank line, or the end of the file. By default it is the end
            of the file if there are several text files whose blank lines separate paragraphs. The choice is printed.
    """

    options = dict(column=column, errors=errors, encoding=encoding, subset=subset, split=split)
    options |= dict(clean=clean, deduplicate=deduplicate, documents=boundary(source, documents, encoding))
    if language:
        options |= dict(detect=langdetect_detector(), language=language)

    if held_out:
        # Check this before anything is written: a corpus of one document has nothing to hold out.
        first = sum(1 for _ in itertools.islice(read_documents(source, **options), 2 * held_out_every))
        if first < 2 or held_out_every < 2:
            raise ValueError(
                "Whole documents are held out: there must be two or more, and `held_out_every` at least 2. Received: "
                f"{first} of them, held_out_every={held_out_every}. Separate the documents of a text file by blank "
                "lines, or drop --held-out and prepare a separate corpus for evaluation."
            )
        # At least two, so that sentence pairs can be evaluated.
        held_out_every = min(held_out_every, first // 2 if first > 3 else first)

    def chosen(unseen: bool) -> Iterator[str]:
        for number, document in enumerate(read_documents(source, **options), start=1):
            if unseen == (held_out is not None and number % held_out_every == 0):
                yield document

    loaded = Tokenizer.load(tokenizer)
    with preparing([output, *([held_out] if held_out else [])]):
        corpus = Corpus.write(output, chosen(False), loaded, sources=source)
        describe(corpus)
        if held_out:
            unseen = Corpus.write(held_out, chosen(True), loaded, sources=source)
            describe(unseen)
            share = unseen.num_tokens / (corpus.num_tokens + unseen.num_tokens)
            print(f"{share:.2%} of the tokens are held out")
    return corpus


@contextlib.contextmanager
def preparing(folders: list[Path]) -> Iterator[None]:
    """Locks the folders of corpora to be written, and marks them as unfinished until all corpora are complete.

    Unfinished files of an earlier command are removed first, and those of this one if it fails. A folder with a
    finished corpus is an error.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError(f"Corpora must have different folders. Received: {folders[0]} twice. Change --held-out.")
    with contextlib.ExitStack() as locks:
        for folder in folders:
            locks.enter_context(locked(folder))
        for folder in folders:
            if (folder / "corpus.json").exists() and not (folder / UNFINISHED).exists():
                raise FileExistsError(f"{folder} contains a corpus. Remove it, or choose another folder.")
        for folder in folders:
            if (folder / UNFINISHED).exists():
                print(f"{folder}: replacing a corpus that was never finished")
                remove_unfinished(folder)
            write_text(folder / UNFINISHED, json.dumps([path.name for path in folder.iterdir()]))
        try:
            yield
        except BaseException:
            for folder in folders:
                remove_unfinished(folder)
            raise
        # In reverse order: as long as the first corpus is marked as unfinished, all of them are written again.
        for folder in reversed(folders):
            (folder / UNFINISHED).unlink()


def remove_unfinished(folder: Path) -> None:
    """Removes the files that `Corpus.write` added after the folder was marked, then the mark."""
    before = json.loads((folder / UNFINISHED).read_text(encoding="utf-8"))
    for path in [path for path in folder.iterdir() if path.name not in before]:
        if path.name == "plans":
            shutil.rmtree(path)
        elif any(path.match(pattern) for pattern in FILES):
            path.unlink()
    (folder / UNFINISHED).unlink()


def boundary(source: list[str], documents: str, encoding: str = "utf-8") -> str:
    """Returns what ends a document in a text file, "blank-line" or "file", and prints it."""
    found, reason = document_boundary(source, encoding) if documents == "auto" else (documents, "as asked for")
    print(f"{'Every text file is one document' if found == 'file' else 'Blank lines end documents'}: {reason}.")
    return found


def describe(corpus: Corpus) -> None:
    unknown = corpus.summary["unknown_tokens"] / corpus.num_tokens
    print(
        f"{corpus.folder}: {corpus.num_documents:,} documents of {corpus.num_tokens / corpus.num_documents:,.0f} "
        f"tokens on average, {corpus.num_sequences:,} lines, {corpus.num_tokens:,} tokens ({unknown:.2%} unknown), "
        f"unigram entropy {corpus.unigram_entropy():.3f} nats"
    )


main = Command(
    prepare_corpus,
    groups={
        "text": ("source", "column", "documents", "encoding", "errors", "subset", "split"),
        "cleaning": ("clean", "deduplicate", "language"),
        "corpus": ("tokenizer", "output", "held_out", "held_out_every"),
    },
)

if __name__ == "__main__":
    main()
