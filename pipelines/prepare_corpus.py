"""Turns text into a corpus of token ids.

python -m pipelines.prepare_corpus --source text.txt --tokenizer corpora/tokenizer --output corpora/text
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from kerasbert.data import Corpus, Tokenizer
from kerasbert.data.corpus.parts import Parts
from kerasbert.data.corpus.writing import check_is_free
from kerasbert.data.text.documents import document_boundary
from kerasbert.data.text.files import write_text
from kerasbert.data.text.locks import locked
from kerasbert.data.workers import available_cores

from .command_line.command import Command
from .corpora.datatrove import Engine, stages
from .corpora.options import Cleaning, Processes, TextFiles
from .corpora.parts import PARTS, Source, assemble, encode_parts
from .reading.tokenizers import load_tokenizer

UNFINISHED = ".unfinished"  # marks a folder while its corpus is being prepared, and lists the files that it had before
FILES = (  # files of a corpus and its tokenizer
    *("corpus.json", "corpus.idx", "corpus.bin", "shard-*", "word_starts.npy", "dropped.json", ".*.partial"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model"),
)


def prepare_corpus(
    source: list[str],
    tokenizer: str,
    output: Path,
    held_out: Path | None = None,
    held_out_every: int = 100,
    shards: int | None = None,
    block_documents: int = 1024,
    text: TextFiles = TextFiles(),
    cleaning: Cleaning = Cleaning(),
    processes: Processes = Processes(),
) -> Corpus | None:
    """Tokenizes documents into Megatron's .bin and .idx files.

    If a preparation is interrupted, the same command continues it. The files do not depend on the number of workers.

    Args:
        source: files or folders (text, CSV, TSV, JSON, JSONL, Parquet, WET of Common Crawl), URLs of them, such as
            s3://bucket/folder, or hf://name for a data set on the hub.
        tokenizer: folder of a tokenizer or a model, a model of the package, or hf://org/name.
        output: folder for the corpus, which must not contain one yet.
        held_out: folder for a second corpus, to evaluate on. It contains one of every `held_out_every` documents. If
            there are fewer than twice as many documents, two documents are held out (of two or three documents, the
            last one).
        held_out_every: hold out one of every this many documents, such as 100 to hold out one per cent.
        shards: write the corpus in this many shards, if it is too large for planning all documents at once. The batches
            of a run do not depend on the number of shards.
        block_documents: for a corpus in shards, the number of consecutive documents that are planned at once. A shard
            has at least one such block.
    """
    workers = processes.workers
    if held_out and held_out_every < 2:
        raise ValueError(f"`held_out_every` must be at least 2. Received: {held_out_every}.")
    if block_documents < 2 or (shards is not None and shards < 1) or workers < 1:
        raise ValueError(
            "`workers` and `shards` must be at least 1, and `block_documents` at least 2. Received: "
            f"{workers}, {shards}, {block_documents}."
        )
    options = text.reading()
    documents = Source(tuple(source), options, **asdict(cleaning))
    options["documents"] = "file" if documents.is_warc() else boundary(source, text.documents, text.encoding)
    loaded = load_tokenizer(tokenizer)
    folders = [output, *([held_out] if held_out else [])]
    if processes.executor is not None:
        engine = Engine(processes.executor, processes.tasks, workers, dict(map(option, processes.executor_options)))
        return with_datatrove(folders, documents, loaded, held_out_every, (shards, block_documents), engine)
    if cleaning.deduplicate == "minhash" or documents.is_warc():
        raise ValueError("WARC files and --deduplicate minhash need datatrove. Use --executor local.")
    if workers > available_cores():
        workers = available_cores()
        print(f"{workers} workers, as this process may use {workers} cores")
    with preparing(folders, loaded):
        parts, dropped = encode_parts(output / PARTS, documents, loaded, workers)
        assemble(folders, parts, held_out_every, loaded, source, shards, block_documents, workers)
        dropped.write(output / "dropped.json")
        shutil.rmtree(output / PARTS)
    dropped.show()
    return described(folders)


def with_datatrove(
    folders: list[Path],
    source: Source,
    tokenizer: Tokenizer,
    held_out_every: int,
    sharding: tuple[int | None, int],
    engine: Engine,
) -> Corpus | None:
    """Prepares a corpus with a datatrove pipeline. Returns the corpus, or None if jobs were only submitted."""
    if source.deduplicate not in (None, "minhash"):
        raise ValueError(
            f"With --executor, tasks know only their own documents. Received: --deduplicate {source.deduplicate}. Use "
            "minhash, or no executor."
        )
    if engine.tasks < 1:
        raise ValueError(f"`tasks` must be at least 1. Received: {engine.tasks}.")
    work = (folders[0] / PARTS).absolute()
    folders = [folder.absolute() for folder in folders]

    def run() -> None:
        Parts(work, {**source.settings(), "tokenizer": tokenizer.hash, "tasks": engine.tasks, "corpus": str(sharding)})
        engine.run(stages(folders, work, source, tokenizer, held_out_every, sharding, engine), work / "logs")

    if (
        engine.executor == "slurm"
    ):  # jobs outlive this process: corpus.json, which is written last, says that all is done
        for folder in folders:
            check_is_free(folder, tokenizer)
        run()
        print(f"Jobs are submitted. {folders[0] / 'corpus.json'} appears when the last one has ended.")
        return None
    with preparing(folders, tokenizer):
        run()
        shutil.rmtree(work)
    return described(folders)


def option(text: str) -> tuple[str, object]:
    """Parses one of the `executor_options`, whose value is JSON or text.

    "time=24:00:00" -> ("time", "24:00:00"), "cpus_per_task=2" -> ("cpus_per_task", 2)
    """
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"`executor_options` must have the form name=value. Received: {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def described(folders: list[Path]) -> Corpus:
    """Prints descriptions of finished corpora. Returns the first corpus."""
    corpora = [Corpus.open(folder) for folder in folders]
    for corpus in corpora:
        describe(corpus)
    if len(corpora) > 1:
        share = corpora[1].num_tokens / sum(corpus.num_tokens for corpus in corpora)
        documents = sum(corpus.num_documents for corpus in corpora)
        few = f", because there are only {documents} documents" if share > 0.2 and documents < 10 else ""
        print(f"{share:.2%} of the tokens are held out{few}")
    return corpora[0]


@contextlib.contextmanager
def preparing(folders: list[Path], tokenizer: Tokenizer) -> Iterator[None]:
    """Context manager that locks the folders of new corpora, and marks them as unfinished until all are complete.

    Files of an interrupted preparation are removed first. If this preparation fails, its files are removed, too.
    Complete parts are kept, so that the same command continues after them. A folder with a finished corpus raises an
    error.
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
                remove_unfinished(folder)
            check_is_free(folder, tokenizer)
        for folder in folders:
            write_text(folder / UNFINISHED, json.dumps([path.name for path in folder.iterdir()]))
        try:
            yield
        except BaseException as error:
            for folder in folders:
                remove_unfinished(folder)
            keep_parts(folders[0] / PARTS, error)
            raise
        # Remove the marks in reverse order: as long as the first corpus is marked as unfinished, all are written again.
        for folder in reversed(folders):
            (folder / UNFINISHED).unlink()


def keep_parts(parts: Path, error: BaseException) -> None:
    """Keeps the parts of a failed preparation if the same command can continue after them."""
    complete = [*parts.glob("part-*.json"), *parts.glob("logs/*/completions/*")]
    if isinstance(error, ValueError) or not complete:
        shutil.rmtree(parts, ignore_errors=True)
    else:
        print(f"{parts.parent}: the parts that are complete are kept, and the same command continues after them")


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
    """Determines what ends a document in a text file, "blank-line" or "file", and prints it."""
    found, reason = document_boundary(source, encoding) if documents == "auto" else (documents, "as asked for")
    other = (
        f" To change this: --documents {'blank-line' if found == 'file' else 'file'}." if documents == "auto" else ""
    )
    print(f"{'Every text file is one document' if found == 'file' else 'Blank lines end documents'}: {reason}.{other}")
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
        "text": ("source",),
        "corpus": ("tokenizer", "output", "held_out", "held_out_every", "shards", "block_documents"),
    },
)

if __name__ == "__main__":
    main()
