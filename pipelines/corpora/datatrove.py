"""Prepares a corpus with datatrove, whose executors run the work of `parts` on this machine or a cluster.

Every task reads consecutive files of the source, filters their documents, and writes one part. Tasks that are complete
are skipped when the same command runs again. The corpus does not depend on the number of tasks, and is the same as
without datatrove. Steps of a pipeline are called with (documents, number of the task, number of tasks).
"""

import dataclasses
import gzip
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kerasbert.data import Tokenizer, read_documents
from kerasbert.data.corpus.parts import Assembly, BatchEncoder, Parts
from kerasbert.data.corpus.writing import document_batches, token_dtype
from kerasbert.data.processes import safe_path
from kerasbert.data.text.files import write_text
from kerasbert.data.text.filters import DropReport, Filter, filtered

from .parts import Source, assemblies

WARC = ".warc"
_BUCKETS = 14  # of MinHash; with 8 hashes each, texts that share 72% of their shingles are likely to be found


@dataclasses.dataclass(frozen=True)
class Engine:
    """Specifies how datatrove runs a pipeline.

    Args:
        executor: "local", "slurm" or "ray".
        tasks: number of tasks into which the files are divided.
        workers: number of tasks that run at the same time.
        options: further arguments of datatrove's executor, such as `partition` and `time` for Slurm.
    """

    executor: str
    tasks: int
    workers: int
    options: dict

    def run(self, stages: Sequence[tuple[str, list, int]], logs: Path) -> None:
        """Runs stages (name, steps, number of tasks) one after another, or submits them on Slurm.

        Args:
            logs: folder for datatrove's logs, which also say which tasks are complete.
        """
        from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor

        previous = None
        for name, steps, tasks in stages:
            shared = dict(pipeline=steps, tasks=tasks, workers=min(self.workers, tasks), logging_dir=str(logs / name))
            if self.executor == "slurm":
                previous = SlurmPipelineExecutor(job_name=name, depends=previous, **shared, **self.options)
            else:
                kind = LocalPipelineExecutor if self.executor == "local" else RayPipelineExecutor
                with safe_path():
                    kind(**shared, **self.options).run()
        if previous is not None:
            previous.run()  # submits those that it depends on as well


def stages(
    folders: Sequence[Path],
    work: Path,
    source: Source,
    tokenizer: Tokenizer,
    held_out_every: int,
    sharding: tuple[int | None, int],
    engine: Engine,
) -> list[tuple[str, list, int]]:
    """Returns the stages (name, steps, number of tasks) for a corpus, and a held-out one if there are two folders.

    Args:
        work: folder of the parts and of all intermediate files, which all machines must be able to read.
        sharding: number of shards, and number of documents of a block.
        further arguments: as in `parts.assemble`.
    """
    report, tasks = DropReport(), engine.tasks
    before, after = source.filters()
    read = ReadWarc(source) if source.is_warc() else ReadText(source)
    filtering = [read, Keep((*before, *after), report), WriteReport(work / "reports", "filters", report)]
    part = WritePart(work, tokenizer, one_core=engine.workers > 1 or engine.executor != "local")
    if source.deduplicate == "minhash":
        found = [
            ("clean", [*filtering, WriteTexts(work / "clean")], tasks),
            *minhash_stages(work, tasks, part),
        ]
    else:
        found = [("parts", [*filtering, part], tasks)]
    pieces = WritePieces(folders, work, tasks, held_out_every, tokenizer, *sharding)
    return [*found, ("pieces", [pieces], (sharding[0] or 1) + 1), ("corpus", [Finish(pieces, source)], 1)]


def minhash_stages(work: Path, tasks: int, part: "WritePart") -> list[tuple[str, list, int]]:
    """The stages of datatrove's MinHash deduplication of the texts in `clean`, which keeps one of similar documents."""
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.hashing import HashConfig

    config = MinhashConfig(num_buckets=_BUCKETS, hash_config=HashConfig(hash_fc="sha1"))
    signatures, buckets, removed = (str(work / name) for name in ("signatures", "buckets", "removed"))
    read, report = ReadTexts(work / "clean"), DropReport()
    keep = MinhashDedupFilter(removed, exclusion_writer=Excluded(report))
    return [
        ("signatures", [read, Signatures(signatures, config)], tasks),
        ("buckets", [MinhashDedupBuckets(signatures, buckets, config=config)], _BUCKETS),
        ("clusters", [MinhashDedupCluster(buckets, removed, config=config)], 1),
        ("parts", [read, keep, WriteReport(work / "reports", "minhash", report), part], tasks),
    ]


# === Steps ===


def share(files: Sequence, rank: int, tasks: int) -> list:
    """Returns the consecutive files that a task reads."""
    return list(files[len(files) * rank // tasks : len(files) * (rank + 1) // tasks])


class ReadText:
    """Reads documents from all kinds of files that `read_documents` supports."""

    def __init__(self, source: Source):
        self.source = source

    def __call__(self, documents, rank: int, tasks: int) -> Iterator:
        from datatrove.data import Document

        if files := share(self.source.files(), rank, tasks):
            for number, text in enumerate(read_documents(files, **self.source.options)):
                yield Document(text=text, id=f"{rank}/{number}")


class ReadWarc:
    """Reads the main text of the pages in WARC files, with datatrove's reader and Trafilatura."""

    def __init__(self, source: Source):
        self.source = source

    def __call__(self, documents, rank: int, tasks: int) -> Iterator:
        import trafilatura  # noqa: F401  # datatrove would take its absence for pages without text
        from datatrove.pipeline.extractors import Trafilatura
        from datatrove.pipeline.readers import WarcReader

        for path in share(self.source.files(), rank, tasks):
            folder, _, name = str(path).rpartition("/")
            yield from Trafilatura(timeout=10).run(WarcReader(folder or ".").read_file(name), rank, tasks)


class Keep:
    """Applies our filters to each document."""

    def __init__(self, filters: tuple[Filter, ...], report: DropReport):
        self.filters, self.report = filters, report

    def __call__(self, documents: Iterable, rank: int, tasks: int) -> Iterator:
        for document in documents:
            for text in filtered([document.text], self.filters, self.report):
                document.text = text
                yield document


class Excluded:
    """Adds documents that a filter drops to a report. datatrove calls this an exclusion writer."""

    def __init__(self, report: DropReport):
        self.report = report

    def __enter__(self) -> "Excluded":
        return self

    def __exit__(self, *error) -> None:
        pass

    def write(self, document, rank: int = 0) -> None:
        self.report.drop("deduplication", "similar document", document.text)


class WriteReport:
    """Writes the report of what the previous filters dropped in a task."""

    def __init__(self, folder: Path, name: str, report: DropReport):
        self.folder, self.name, self.report = folder, name, report

    def __call__(self, documents: Iterable, rank: int, tasks: int) -> Iterator:
        self.report.entries.clear()  # a process may run several tasks
        yield from documents
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / f"{self.name}-{rank:05d}.json", json.dumps(self.report.to_list()))


class WriteTexts:
    """Writes the texts of a task as lines of JSON, for the stages of the deduplication."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, documents: Iterable, rank: int, tasks: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{rank:05d}.partial"
        with gzip.open(partial, "wt", encoding="utf-8", compresslevel=3) as file:
            for document in documents:
                file.write(json.dumps([document.id, document.text]) + "\n")
        os.replace(partial, self.folder / f"{rank:05d}.jsonl.gz")


class ReadTexts:
    """Reads the texts that `WriteTexts` wrote in the same task."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, documents, rank: int, tasks: int) -> Iterator:
        from datatrove.data import Document

        with gzip.open(self.folder / f"{rank:05d}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                name, text = json.loads(line)
                yield Document(text=text, id=name)


class Signatures:
    """Computes MinHash signatures of word shingles. Words are split at white space, so that no tagger is needed."""

    def __init__(self, folder: str, config):
        self.folder, self.config = folder, config

    def __call__(self, documents: Iterable, rank: int, tasks: int) -> None:
        from datatrove.pipeline.dedup import MinhashDedupSignature

        signatures = MinhashDedupSignature(self.folder, self.config, "aii_Syrc")  # its tokenizer needs no package
        signatures.word_tokenizer = self
        signatures.run(documents, rank, tasks)

    @staticmethod
    def word_tokenize(text: str) -> list[str]:
        return text.split()


class WritePart:
    """Tokenizes the documents of a task into one part."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, one_core: bool):
        self.folder, self.tokenizer, self.one_core = folder, tokenizer, one_core

    def __call__(self, documents: Iterable, rank: int, tasks: int) -> None:
        if self.one_core:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        batches = map(BatchEncoder(self.tokenizer), document_batches(document.text for document in documents))
        Parts(self.folder).write(rank, batches, token_dtype(self.tokenizer))


class WritePieces:
    """Writes the shards of the corpora, one per task, after all parts have been written."""

    def __init__(
        self,
        folders: Sequence[Path],
        work: Path,
        num_parts: int,
        held_out_every: int,
        tokenizer: Tokenizer,
        shards: int | None,
        block_documents: int,
    ):
        self.folders, self.work, self.num_parts = folders, work, num_parts
        self.held_out_every, self.tokenizer, self.sharding = held_out_every, tokenizer, (shards, block_documents)

    def assemblies(self) -> list[Assembly]:
        parts = Parts(self.work).prefixes(self.num_parts)
        return assemblies(self.folders, parts, self.held_out_every, self.tokenizer, *self.sharding)

    def counts(self, corpus: int, piece: int) -> Path:
        return self.work / f"counts-{corpus}-{piece:05d}.npy"

    def __call__(self, documents, rank: int, tasks: int) -> None:
        works = self.assemblies()
        pieces = [(corpus, piece) for corpus, work in enumerate(works) for piece in range(work.num_pieces())]
        for corpus, piece in pieces[rank::tasks]:
            np.save(self.counts(corpus, piece), works[corpus].write(piece))


class Finish:
    """Writes corpus.json of the corpora, after all shards are written, and the report of what was dropped."""

    def __init__(self, pieces: WritePieces, source: Source):
        self.pieces, self.source = pieces, source

    def __call__(self, documents, rank: int, tasks: int) -> None:
        report = DropReport()
        for path in sorted((self.pieces.work / "reports").glob("*.json")):
            report.add(json.loads(path.read_text(encoding="utf-8")))
        report.write(self.pieces.folders[0] / "dropped.json")
        for corpus, work in reversed([*enumerate(self.pieces.assemblies())]):
            counts = sum(np.load(self.pieces.counts(corpus, piece)) for piece in range(work.num_pieces()))
            work.finish(counts, self.source.names)
