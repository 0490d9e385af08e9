"""Corpora that datatrove prepares: the same files as without it, WARC files, MinHash, interruptions and Slurm."""

import gzip
import io
import json
import os
import stat
import sys

import numpy as np
import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from kerasbert.data import Corpus, Tokenizer
from pipelines.corpora import datatrove as module
from pipelines.corpora.options import Cleaning, Processes
from pipelines.prepare_corpus import option, prepare_corpus
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

WORDS = "the wind blew over hills and nobody in village heard what old man said that night when rain fell".split()


def page(seed, sentences=6):
    random = np.random.default_rng(seed)
    return "\n".join(" ".join(random.choice(WORDS, 9)).capitalize() + "." for _ in range(sentences))


@pytest.fixture
def folder(tmp_path):
    """Seven files of three pages, and a tokenizer."""
    (tmp_path / "text").mkdir()
    for number in range(7):
        pages = [page(3 * number + place) for place in range(3)]
        pages[1] += "\nshort line" if number % 2 else "\nfunction() { return 1 }."
        (tmp_path / "text" / f"{number}.txt").write_text("\n\n".join(pages))
    Tokenizer.train("wordpiece", [page(seed) for seed in range(30)], 120).save(tmp_path / "tokenizer")
    return tmp_path


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".bin", ".idx", ".json")}


def prepare(folder, name, source="text", **options):
    names = dict(output=folder / name, held_out=folder / f"{name}_held_out", held_out_every=5)
    names |= dict(cleaning=Cleaning("c4"))
    return prepare_corpus([str(folder / source)], folder / "tokenizer", **{**names, **options})


@pytest.mark.parametrize("shards", [None, 3])
def test_the_files_are_those_without_datatrove(folder, shards):
    """Of the corpus and of the held-out one, with what was dropped, for any number of tasks."""
    sharding = {} if shards is None else dict(shards=shards, block_documents=4)
    expected = prepare(folder, "expected", **sharding)
    expected.verify()
    assert expected.num_documents == 14  # of 21 pages 4 are dropped, and 3 held out
    for tasks in (1, 9) if shards is None else (3,):
        prepare(folder, f"tasks_{tasks}", **sharding, processes=Processes(executor="local", tasks=tasks))
        for suffix in ("", "_held_out"):
            assert files_of(folder / f"tasks_{tasks}{suffix}") == files_of(folder / f"expected{suffix}"), tasks
        assert not list((folder / f"tasks_{tasks}").glob(".*"))
    dropped = json.loads((folder / "expected" / "dropped.json").read_text())
    assert [(entry["filter"], entry["reason"], entry["documents"]) for entry in dropped] == [
        ("page cleaner", "curly bracket", 4)
    ]
    assert len(dropped[0]["samples"]) == 3 and dropped[0]["samples"][0] == (page(1) + "\nfunction() {")[:200]


def test_two_processes(folder):
    prepare(folder, "expected")
    prepare(folder, "two", processes=Processes(2, "local", tasks=2))
    assert files_of(folder / "two") == files_of(folder / "expected")


def test_complete_tasks_are_not_repeated(folder, monkeypatch):
    prepare(folder, "expected")
    done, write = [], module.WritePart.__call__

    def fails(self, documents, rank, tasks):
        if rank == 2 and len(done) < 3:
            done.append(None)
            raise OSError("the node went away")
        done.append(rank)
        write(self, documents, rank, tasks)

    monkeypatch.setattr(module.WritePart, "__call__", fails)
    with pytest.raises(OSError, match="node went away"):
        prepare(folder, "again", processes=Processes(executor="local", tasks=4))
    assert done == [0, 1, None]
    assert [path.name for path in (folder / "again").iterdir()] == [".parts"]
    prepare(folder, "again", processes=Processes(executor="local", tasks=4))
    assert done == [0, 1, None, 2, 3]
    assert files_of(folder / "again") == files_of(folder / "expected")


def test_similar_documents_are_dropped(folder):
    """A page with one other word is dropped, wherever it is; the report shows it."""
    copy = page(0).replace("wind", "storm", 1)
    assert copy != page(0)
    (folder / "text" / "6.txt").write_text(f"{page(50)}\n\n{copy}")
    options = dict(held_out=None, cleaning=Cleaning(deduplicate="minhash"))
    corpus = prepare(folder, "unique", processes=Processes(executor="local", tasks=2), **options)
    dropped = json.loads((folder / "unique" / "dropped.json").read_text())
    assert [(entry["reason"], entry["documents"]) for entry in dropped] == [("similar document", 1)]
    assert corpus.num_documents == 7 * 3 - 1 - 1
    assert dropped[0]["samples"][0] in (copy[:200], page(0)[:200])


def test_warc_files(folder):
    (folder / "crawl").mkdir()
    text = "<p>" + "</p><p>".join(page(4).split("\n")) + "</p>"
    with open(folder / "crawl" / "0.warc.gz", "wb") as file:
        writer = WARCWriter(file, gzip=True)
        for kind, body in (("text/html", f"<html><body><article>{text}</article></body></html>"), ("image/png", "x")):
            headers = {"WARC-Identified-Payload-Type": kind}
            record = writer.create_warc_record(
                "http://example.com",
                "response",
                payload=io.BytesIO(body.encode()),
                http_headers=StatusAndHeaders("200 OK", [], protocol="HTTP/1.1"),
                warc_headers_dict=headers,
            )
            writer.write_record(record)
    with pytest.raises(ValueError, match="WARC files.*need datatrove. Use --executor local"):
        prepare(folder, "crawled", "crawl")
    corpus = prepare(
        folder, "crawled", "crawl", held_out=None, cleaning=Cleaning(), processes=Processes(executor="local")
    )
    assert corpus.num_documents == 1
    tokenizer = corpus.tokenizer()
    assert corpus.tokens.tolist() == np.concatenate(tokenizer.encode(page(4).split("\n"), False)).tolist()


SBATCH = """#!{python}
# Runs the tasks of a job at once, as Slurm's sbatch would do later.
import os, re, subprocess, sys
script = sys.stdin.read() if not os.path.exists(sys.argv[-1]) else open(sys.argv[-1]).read()
tasks = re.search(r"--array=0-([0-9]+)", script)
pickle = re.search(r"launch_pickled_pipeline (\\S+)", script)
if pickle:
    code = "from datatrove.tools.launch_pickled_pipeline import main; main()"
    for task in range(int(tasks[1]) + 1 if tasks else 1):
        environment = {{**os.environ, "SLURM_ARRAY_TASK_ID": str(task), "RUN_OFFSET": "0", "SLURM_NODELIST": "here"}}
        subprocess.run([sys.executable, "-c", code, pickle[1]], env=environment, check=True, stdout=sys.stderr)
print("Submitted batch job 17")
"""


def test_slurm(folder, monkeypatch, capfd):
    """With stand-ins for Slurm's programs; that for `sbatch` runs the tasks of a job in processes of their own."""
    prepare(folder, "expected")
    (folder / "bin").mkdir()
    for name, text in (("sbatch", SBATCH.format(python=sys.executable)), ("scontrol", "#!/bin/sh\necho here")):
        program = folder / "bin" / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    found = prepare(
        folder,
        "jobs",
        processes=Processes(
            executor="slurm", tasks=2, executor_options=("partition=cpu", "time=1:00:00", "mem_per_cpu_gb=4")
        ),
    )
    assert found is None and "corpus.json appears when the last one has ended" in capfd.readouterr().out
    assert files_of(folder / "jobs") == files_of(folder / "expected")
    script = (folder / "jobs" / ".parts" / "logs" / "parts" / "launch_script.slurm").read_text()
    assert "--partition=cpu" in script and "--time=1:00:00" in script and "--mem-per-cpu=4G" in script
    Corpus.open(folder / "jobs").verify()


def test_bad_options(folder):
    with pytest.raises(ValueError, match="Received: --deduplicate lines. Use minhash, or no executor"):
        prepare(folder, "bad", cleaning=Cleaning("c4", "lines"), processes=Processes(executor="local"))
    with pytest.raises(ValueError, match="minhash need datatrove. Use --executor local"):
        prepare(folder, "bad", cleaning=Cleaning("c4", "minhash"))
    with pytest.raises(ValueError, match="`tasks` must be at least 1. Received: 0"):
        prepare(folder, "bad", processes=Processes(executor="local", tasks=0))
    with pytest.raises(ValueError, match="form name=value. Received: 'partition'"):
        prepare(folder, "bad", processes=Processes(executor="slurm", executor_options=("partition",)))
    assert not (folder / "bad").exists()
    assert [option("a=2"), option("time=1:00"), option("b=x=y")] == [("a", 2), ("time", "1:00"), ("b", "x=y")]


def test_texts_survive_the_files_between_stages(tmp_path):
    """Any text does: line breaks, surrogates that JSON escapes, and a task without documents."""
    from datatrove.data import Document

    texts = ["one\ntwo", "naïve \u2028 \x85 text", ""]
    module.WriteTexts(tmp_path / "clean")([Document(text=t, id=str(n)) for n, t in enumerate(texts)], 0, 2)
    module.WriteTexts(tmp_path / "clean")([], 1, 2)
    read = module.ReadTexts(tmp_path / "clean")
    assert [document.text for document in read(None, 0, 2)] == texts and not list(read(None, 1, 2))
    with gzip.open(tmp_path / "clean" / "00001.jsonl.gz") as file:
        assert file.read() == b""
