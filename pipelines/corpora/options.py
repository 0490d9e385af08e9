"""Records of the options of `train_tokenizer` and `prepare_corpus`."""

from dataclasses import asdict, dataclass
from typing import Literal

from ..command_line.options import Options


@dataclass(frozen=True)
class TextFiles(Options):
    """How documents are read.

    Args:
        column: the column of a table that holds the text.
        documents: what ends a document in a text file: a blank line, or the end of the file. By default, it is the end
            of the file if there are several text files, and their blank lines separate paragraphs. The choice is
            printed.
        encoding: encoding of the files.
        errors: what to do with bytes that cannot be decoded.
        subset: configuration of a data set on the hub.
        split: split of a data set on the hub.
    """

    column: str | None = None
    documents: Literal["auto", "blank-line", "file"] = "auto"
    encoding: str = "utf-8"
    errors: Literal["strict", "replace", "ignore"] = "strict"
    subset: str | None = None
    split: str = "train"

    def reading(self) -> dict:
        """The arguments of `read_documents` other than `documents`."""
        return {name: value for name, value in asdict(self).items() if name != "documents"}


@dataclass(frozen=True)
class Cleaning(Options):
    """Which documents and lines are kept.

    Args:
        clean: clean web text by the rules of C4, which remove lines that are not sentences, and pages with code or
            too little text.
        deduplicate: keep only the first occurrence of each line, document, or span of three consecutive sentences.
        language: keep only documents in this language, such as en, as detected by langdetect with 99% certainty.
    """

    clean: Literal["c4"] | None = None
    deduplicate: Literal["lines", "documents", "spans", "minhash"] | None = None
    language: str | None = None


@dataclass(frozen=True)
class Processes(Options):
    """The processes that prepare a corpus.

    Args:
        workers: number of processes that clean and tokenize. By default, only this process does. Without an executor,
            at most one for each core is started, because more of them would only take memory and time.
        executor: run as a datatrove pipeline, on this machine, on Slurm or on a Ray cluster. It also supports WARC
            files, and the deduplication minhash. On Slurm, jobs are submitted, and the last one writes corpus.json.
        tasks: number of tasks into which the files are divided for an executor.
        executor_options: further arguments of datatrove's executor, such as partition=cpu time=24:00:00 for Slurm.
    """

    workers: int = 1
    executor: Literal["local", "slurm", "ray"] | None = None
    tasks: int = 1
    executor_options: tuple[str, ...] = ()
