"""Prepares a corpus: reads, filters and tokenizes documents in parts, and assembles corpora from them."""

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kerasbert.data import Tokenizer, read_documents
from kerasbert.data.corpus.parts import Assembly, BatchEncoder, Parts, num_documents
from kerasbert.data.corpus.shards import Selection
from kerasbert.data.corpus.writing import document_batches, token_dtype
from kerasbert.data.text.cleaning import C4Rules
from kerasbert.data.text.documents import files_of, is_hub
from kerasbert.data.text.filters import (
    BadWordFilter,
    DropReport,
    Filter,
    LanguageFilter,
    PageCleaner,
    deduplicated,
    filtered,
)
from kerasbert.data.text.storage import find_files
from kerasbert.data.text.tables import suffix_of
from kerasbert.data.workers import in_order

PARTS = ".parts"  # the folder of the parts, in that of the corpus
BATCHES = 64  # batches of a part: 64 million characters or more


@dataclasses.dataclass(frozen=True)
class Source:
    """The text of a corpus, and how it is filtered.

    Args:
        names: files, folders, URLs and data sets.
        options: arguments of `read_documents`.
        clean: "c4" or None.
        deduplicate: a key of `cleaning.DEDUPLICATIONS`, or None.
        language: the language to keep, or None.
    """

    names: tuple[str, ...]
    options: dict
    clean: str | None = None
    deduplicate: str | None = None
    language: str | None = None

    def files(self) -> list:
        """All files and names of data sets on the hub, in the order in which they are read."""
        if self.is_warc():
            return [file for name in self.names for file in find_files(name)]
        return [file for name in self.names for file in ([name] if is_hub(name) else files_of(name))]

    def is_warc(self) -> bool:
        """Whether the files are WARC files of web crawls."""
        files = [file for name in self.names if not is_hub(name) for file in find_files(name)]
        return bool(files) and all(suffix_of(file) == ".warc" for file in files)

    def settings(self) -> dict:
        """Everything that determines the documents, as a dict that JSON can represent."""
        found = {file: size for name in self.names if not is_hub(name) for file, size in find_files(name).items()}
        times = {file: file.stat().st_mtime_ns for file in found if isinstance(file, Path)}
        files = [[str(file), size, times.get(file)] for file, size in found.items()]
        rules = {"clean": self.clean, "deduplicate": self.deduplicate, "language": self.language}
        return {"names": self.names, "files": files, **self.options, **rules}

    def filters(self) -> tuple[tuple[Filter, ...], tuple[Filter, ...]]:
        """The filters before and after deduplication."""
        rules = self.rules()
        before = (PageCleaner(rules),) if rules else ()
        after = (LanguageFilter(self.language),) if self.language else ()
        return before, after + ((BadWordFilter(rules),) if rules else ())

    def rules(self) -> C4Rules | None:
        return C4Rules() if self.clean else None


@dataclasses.dataclass(frozen=True)
class BatchFilter:
    """A callable that filters a list of documents. It returns the kept documents and a report of the others."""

    filters: tuple[Filter, ...]

    def __call__(self, documents: list[str]) -> tuple[list[str], list[dict]]:
        report = DropReport()
        return list(filtered(documents, self.filters, report)), report.to_list()


def encode_parts(folder: Path, source: Source, tokenizer: Tokenizer, workers: int) -> tuple[list[Path], DropReport]:
    """Writes the incomplete parts of a corpus. Returns the paths of all parts, and a report of what was dropped."""
    parts = Parts(folder, {**source.settings(), "tokenizer": tokenizer.hash, "batches": BATCHES})
    records, report = parts.complete(), DropReport()
    before, after = source.filters()
    documents: Iterable[str] = read_documents(source.names, **source.options)
    if source.deduplicate:  # whether a document is repeated depends on all documents before it
        documents = _cleaned(documents, before, report, workers)
        documents = deduplicated(documents, source.deduplicate, source.rules(), report)
        before = ()
    read = sum(record["read"] for record in records)
    if read:
        print(f"{folder.parent}: continuing after {read:,} documents")
    batches = document_batches(itertools.islice(documents, read, None))
    encoded = in_order(BatchEncoder(tokenizer, (*before, *after)), batches, workers)
    clock = time.perf_counter()
    for first in encoded:
        group = itertools.chain([first], itertools.islice(encoded, BATCHES - 1))
        records.append(parts.write(len(records), group, token_dtype(tokenizer)))
        done = sum(record["read"] for record in records)
        print(f"{done:,} documents read, {(done - read) / (time.perf_counter() - clock):,.0f} a second", flush=True)
    for record in records:
        report.add(record["dropped"])
    return parts.prefixes(len(records)), report


def _cleaned(documents: Iterable[str], filters: tuple, report: DropReport, workers: int) -> Iterator[str]:
    for kept, dropped in in_order(BatchFilter(filters), document_batches(documents), workers if filters else 1):
        report.add(dropped)
        yield from kept


def assemble(
    folders: Sequence[Path],
    parts: Sequence[Path],
    held_out_every: int,
    tokenizer: Tokenizer,
    sources: Iterable[str],
    shards: int | None,
    block_documents: int,
    workers: int = 1,
) -> None:
    """Writes a corpus from the documents in parts, and a held-out corpus if there are two folders; see `assemblies`."""
    for work in assemblies(folders, parts, held_out_every, tokenizer, shards, block_documents):
        count = work.num_pieces()
        if work.shards and count < work.shards:
            blocks = f"{count} blocks of {block_documents:,} documents"
            print(f"{work.folder}: {count} of {work.shards} shards, as there are {blocks}")
        work.finish(sum(in_order(work.write, range(count), min(workers, count))), sources)


def assemblies(
    folders: Sequence[Path],
    parts: Sequence[Path],
    held_out_every: int,
    tokenizer: Tokenizer,
    shards: int | None,
    block_documents: int,
) -> list[Assembly]:
    """Returns the corpora that are assembled from parts: one for the first folder, and a held-out one for the second.

    At least two documents are held out, so that sentence pairs can be evaluated, or the last of two or three.
    """
    if not parts:
        raise ValueError(
            "A corpus needs at least one document with text. Received: no document with text. Check the source."
        )
    every, rest = None, [(folders[0], True)]
    if len(folders) > 1:
        count = num_documents(parts)
        if count < 2:
            raise ValueError(
                f"Whole documents are held out: there must be two or more. Received: {count} of them. Separate the "
                "documents of a text file by blank lines, or drop --held-out and prepare a separate corpus for "
                "evaluation."
            )
        every = min(held_out_every, count // 2 if count > 3 else count)
        rest.append((folders[1], False))
    return [
        Assembly(
            folder,
            tuple(parts),
            tokenizer,
            Selection(every, is_rest),
            shards if is_rest or shards is None else 1,
            block_documents,
        )
        for folder, is_rest in rest
    ]
