"""Preparing large corpora: speed by the number of workers, memory, interruptions, and an index of 3 GB in training.

python -m benchmarks.speed.corpora text --novels FOLDER --output TEXT --megabytes 200
python -m benchmarks.speed.corpora tokenizers --text TEXT --tokenizer TOKENIZER --workers 2
python -m benchmarks.speed.corpora prepare --text TEXT --tokenizer TOKENIZER --work WORK --workers 2 [--executor local]
python -m benchmarks.speed.corpora killed --text TEXT --tokenizer TOKENIZER --work WORK --workers 2
python -m benchmarks.speed.corpora index --tokenizer TOKENIZER --work WORK --sequences 240000000
python -m benchmarks.speed.corpora table

All but the first and the last append a row to corpora.jsonl, with a digest of all files of the corpus: it is the same
for the same text. The last writes corpora.md. Workers have one core each. Times include all that follows the imports.
"""

import argparse
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from kerasbert.data import Corpus, MaskedLMBatches, SegmentPairs, Tokenizer, read_documents
from kerasbert.data.corpus.megatron import EncodedDocuments, MegatronPair, Pairs, PairWriter
from kerasbert.data.corpus.shards import shard_digest, shard_name, shard_table
from kerasbert.data.corpus.writing import write_record, write_tokenizer
from kerasbert.data.text.documents import lines_of

RESULTS = Path(__file__).with_name("corpora.jsonl")
SHARDS, BLOCK = 4, 16
LINES, TOKENS = 200, 4  # of the synthetic index: lines of a document, tokens of a line


# === Text ===


def write_text(novels: Path, output: Path, megabytes: float) -> None:
    """Writes the novels again and again, each time with other names and with edits, until there is enough text."""
    output.mkdir(parents=True)
    verbs, size, number = ["said", "cried", "whispered", "answered", "murmured", "thought"], 0, 0
    sources = sorted(novels.glob("*.txt"))
    while size < megabytes * 1e6:
        turn, place = divmod(number, len(sources))
        lines = sources[place].read_text(encoding="utf-8", errors="replace").split("\n")
        lines = lines[37 * turn :] + lines[: 37 * turn]
        text = "\n".join(lines).replace(" said ", f" {verbs[turn % len(verbs)]} ")
        text = text.replace("Mr", f"Mr{'abcdefghijklmnopqrstuvwxyz'[turn % 26]}" if turn else "Mr")
        size += (output / f"{turn:03d}_{sources[place].name}").write_bytes(text.encode())
        number += 1


# === Preparation ===


def digest(*folders: Path) -> str:
    """A hash of all files of corpora but the list of sources."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        if path.suffix in (".bin", ".idx") or path.name.startswith("shard-"):
            found.update(f"{path.parent.name}/{path.name}".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


class Peaks:
    """The largest anonymous memory in MB while it is entered: of this process, and of a worker process."""

    def __enter__(self) -> "Peaks":
        self.workers, self.anonymous, self._going = 0.0, 0.0, True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._going = False
        self._thread.join()

    def _watch(self) -> None:
        while self._going:
            self.anonymous = max(self.anonymous, memory("self"))
            for children in Path("/proc/self/task").glob("*/children"):
                for child in filter(is_worker, children.read_text().split()):
                    self.workers = max(self.workers, memory(child))
            time.sleep(0.05)


def is_worker(process: str) -> bool:
    """Whether a child process is a worker, and no longer a copy of this process that is about to become one."""
    try:
        return b"serve()" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def memory(process: str) -> float:
    """Memory of a process in MB, without mapped files."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024 if "RssAnon:" in status else 0.0


def prepare(options) -> dict:
    """Prepares a corpus and measures it, in this process."""
    from pipelines.corpora import parts as corpus_parts
    from pipelines.corpora.options import Processes, TextFiles
    from pipelines.prepare_corpus import prepare_corpus

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    corpus_parts.BATCHES = options.batches
    corpus, held_out = options.work / "train", options.work / "held_out"
    more = dict(executor=options.executor, tasks=options.tasks) if options.executor else {}
    clock, processor = time.perf_counter(), processor_seconds()
    with Peaks() as peaks:
        prepare_corpus(
            *([str(options.text)], options.tokenizer, corpus, held_out),
            **dict(shards=SHARDS, block_documents=BLOCK, text=TextFiles(documents="file")),
            processes=Processes(options.workers, **more),
        )
    seconds = time.perf_counter() - clock
    size = sum(path.stat().st_size for path in options.text.iterdir()) / 1e6
    row = dict(megabytes=round(size, 1), workers=options.workers, seconds=round(seconds, 1))
    row |= dict(megabytes_per_second=round(size / seconds, 2), digest=digest(corpus, held_out))
    if options.executor:  # its processes are not children of this one
        row |= dict(executor=options.executor, tasks=options.tasks)
    else:
        row |= dict(processor_seconds=round(processor_seconds() - processor, 1))
        row |= dict(peak_mb=round(peaks.anonymous), peak_mb_of_a_worker=round(peaks.workers))
    for folder in (corpus, held_out):
        shutil.rmtree(folder)
    return row


def processor_seconds() -> float:
    """Seconds that processors spent on this process and its children: they depend little on what else is running."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def tokenizers(options) -> dict:
    """Tokenizes the same lines with `tokenizers` alone, which uses one core or all."""
    os.environ["TOKENIZERS_PARALLELISM"] = str(options.workers > 1).lower()
    backend = Tokenizer.load(options.tokenizer).backend
    lines = [line for text in read_documents(options.text, documents="file") for line in lines_of(text)]
    size, clock, processor = sum(len(line.encode()) for line in lines) / 1e6, time.perf_counter(), processor_seconds()
    for start in range(0, len(lines), 4_000):
        backend.encode_batch_fast(lines[start : start + 4_000], add_special_tokens=False)
    seconds = time.perf_counter() - clock
    row = dict(megabytes=round(size, 1), workers=options.workers, seconds=round(seconds, 1))
    row |= dict(processor_seconds=round(processor_seconds() - processor, 1))
    return row | dict(megabytes_per_second=round(size / seconds, 2))


def killed(options) -> dict:
    """Prepares a corpus in a process that is killed twice, after two parts and after four."""
    command = [sys.executable, "-m", __spec__.name, "prepare", *sys.argv[2:]]
    parts, kills = options.work / "train" / ".parts", []
    for wanted in (2, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        while len(list(parts.glob("part-*.json"))) < wanted and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is not None:
            raise SystemExit("The preparation ended before it was killed. Use more text, or smaller --batches.")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills.append(len(list(parts.glob("part-*.json"))))
    row = prepare(options)
    return dict(killed_after_parts=kills, **{name: row[name] for name in ("megabytes", "workers", "digest")})


# === A large index ===


def write_index(folder: Path, tokenizer: Tokenizer, sequences: int) -> None:
    """Writes a corpus in one shard with that many sequences of four tokens."""
    prefix, step = folder / shard_name(0), 1_000_000
    folder.mkdir(parents=True)
    with PairWriter(prefix, np.uint16) as writer:
        for start in range(0, sequences, step):
            count = min(step, sequences - start)
            tokens = np.arange(start * TOKENS, (start + count) * TOKENS) * 7919 % tokenizer.vocabulary_size
            lengths = np.full(count, TOKENS, np.int32)
            writer.append(EncodedDocuments(tokens, lengths, np.full(count // LINES, LINES)))
    files = Pairs([MegatronPair(prefix)])
    record = {name: getattr(files, name) for name in ("num_tokens", "num_sequences", "num_documents")}
    record |= dict(name=prefix.name, first_block=0, sha256=shard_digest(files, 0, 1024), tokenizer=tokenizer.hash)
    prefix.with_name(f"{prefix.name}.json").write_text(json.dumps(record))
    table = {**shard_table(folder, 1, tokenizer.hash), "block_documents": 1024}
    counts = Corpus.open(prefix, tokenizer).counts()
    write_tokenizer(folder, tokenizer)
    write_record(folder, tokenizer, counts, files, ["synthetic"], **table)


def index(options) -> dict:
    """Trains a small model on rows of pairs of a synthetic corpus, and measures anonymous memory."""
    import keras

    from kerasbert.models import Bert, BertConfig
    from kerasbert.objectives import MaskedLM

    tokenizer, folder = Tokenizer.load(options.tokenizer), options.work / f"index-{options.sequences}"
    if not folder.exists():
        command = [sys.executable, "-m", __spec__.name, "write_index", *sys.argv[2:]]
        subprocess.run(command, check=True)
    size = (folder / "shard-00000.idx").stat().st_size / 1e6
    clock = time.perf_counter()
    with Peaks() as peaks:
        corpus = Corpus.open(folder)
        batches = MaskedLMBatches(corpus, 16, 128, seed=1, steps=20, rows=SegmentPairs(options.passes))
        built = time.perf_counter() - clock
        keras.utils.set_random_seed(0)
        sizes = dict(num_layers=2, hidden_dim=64, num_heads=2, feed_forward_dim=128, max_length=128)
        model = MaskedLM(
            Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes), pooler=True), sentence_pair=True
        )
        model.compile("adam")
        model.fit(batches, verbose=0)
    row = dict(index_mb=round(size), anonymous_mb=round(peaks.anonymous), rows=len(batches._layout.plan))
    return {**row, "seconds_until_the_first_batch": round(built, 1), "backend": keras.backend.backend()}


# === The table ===

COLUMNS = {
    "task": "task", "megabytes": "text, MB", "workers": "workers", "seconds": "seconds",
    "megabytes_per_second": "MB/s", "processor_seconds": "processor seconds",
    "peak_mb_of_a_worker": "memory of a worker, MB", "digest": "digest of the files",
}  # fmt: skip


def write_table() -> None:
    """Writes the fastest row of each command to corpora.md. Rows about the large index have a table of their own."""
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    rows = {row["command"]: row for row in sorted(rows, key=lambda row: -row.get("seconds", 0))}
    lines = [" | ".join(["", *COLUMNS.values(), ""]).strip(), "|---" * len(COLUMNS) + "|"]
    for row in sorted(rows.values(), key=lambda row: (row["task"] != "tokenizers", row.get("megabytes", 0))):
        name = row["task"] + (", datatrove" if row.get("executor") else "")
        if row["task"] == "killed":
            name = "killed after {} and after {} parts".format(*row["killed_after_parts"])
        cells = {**row, "task": name, "peak_mb_of_a_worker": row.get("peak_mb_of_a_worker") or ""}
        if row["task"] != "index":
            lines.append(" | ".join(["", *(str(cells.get(column, "")) for column in COLUMNS), ""]).strip())
    lines += ["", "| index, MB | rows of a pass | anonymous memory of training, MB |", "|---|---|---|"]
    for row in rows.values():
        if row["task"] == "index":
            lines.append(f"| {row['index_mb']:,} | {row['rows']:,} | {row['anonymous_mb']} |")
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("text", "tokenizers", "prepare", "killed", "index", "write_index", "table"))
    for name in ("novels", "output", "text", "tokenizer", "work"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--executor")
    for name, default in (("workers", 1), ("tasks", 8), ("sequences", 240_000), ("passes", 1), ("batches", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if options.task == "text":
        write_text(options.novels, options.output, options.megabytes)
    elif options.task == "table":
        write_table()
    elif options.task == "write_index":
        folder = options.work / f"index-{options.sequences}"
        write_index(folder, Tokenizer.load(options.tokenizer), options.sequences)
    else:
        measure = {"tokenizers": tokenizers, "prepare": prepare, "killed": killed, "index": index}[options.task]
        command = " ".join(Path(word).name for word in sys.argv)
        row = dict(task=options.task, **measure(options), command=command)
        print(json.dumps(row))
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
