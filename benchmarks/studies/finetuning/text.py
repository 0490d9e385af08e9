"""Text for pretraining that is near to the tasks of `run.py`: what they train on, without labels, and more.

Don't Stop Pretraining (Gururangan et al. 2020, arXiv 2004.10964, section 4): masks on the unlabeled text of a task
help on that task. No file that is measured on is read; passages of QNLI's questions may be among those of SQuAD.
"""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

ALL = 10**9
LINES = 20  # of short texts in a document


def write_text(jobs: dict, read, data: Path, folder: Path) -> tuple[Path, Path]:
    """Writes `text.txt` and `held_out.txt`, a fortieth of the documents, unless they are there; returns their paths.

    Args:
        jobs: the tasks. Left out are translation, and SQuAD 2.0: the other SQuAD may be measured on its articles.
        read: (job, data) -> examples for training and for measuring.
        data: folder of the texts.
        folder: where to write.
    """
    paths = folder / "text.txt", folder / "held_out.txt"
    if not all(path.exists() for path in paths):
        found = [*_task_texts(jobs, read, data), *_other_texts(data / "pretraining"), *_abstracts(data)]
        random.Random(0).shuffle(found)
        few = len(found) // 40
        folder.mkdir(parents=True, exist_ok=True)
        for path, some in zip(paths, (found[few:], found[:few]), strict=True):
            path.write_text("\n\n".join(some))
    return paths


def _task_texts(jobs: dict, read, data: Path) -> Iterator[str]:
    for name, job in jobs.items():
        if job.kind == "sequences" or name == "squad_v2":
            continue
        testing = job.testing if len(job.files) == 1 else ALL  # of one file, a part is measured
        training, _ = read(replace(job, training=ALL, testing=testing), data)
        texts = [" ".join(x) for x in training.x] if job.kind == "tags" else _strings(training.x)
        yield from _documents(texts)


def _other_texts(folder: Path) -> Iterator[str]:
    articles = [folder / f"wikitext2/wiki.{part}.raw" for part in ("valid", "test")]
    for path in (*articles, folder / "lm_en_5mb.txt"):
        yield from _documents(line for line in path.read_text().splitlines() if not line.startswith(" ="))


def _abstracts(data: Path) -> Iterator[str]:
    for line in (data / "summarization/train.jsonl").read_text().splitlines():
        yield "\n".join(json.loads(line)["source"])


def _strings(value) -> Iterator[str]:
    for item in value:
        yield from [item] if isinstance(item, str) else _strings(item)


def _documents(texts: Iterable[str]) -> Iterator[str]:
    """Different texts, some in a document, a line each."""
    lines = list(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))
    for start in range(0, len(lines), LINES):
        yield "\n".join(lines[start : start + LINES])
