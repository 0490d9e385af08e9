"""Searches documents: the lines of a file, or a table.

python -m pipelines.search "how do cats rest" --model saved_models/mine --documents corpus.txt
python -m pipelines.search "how do cats rest" --model bm25 --documents corpus.txt --reranker saved_models/reranker
"""

import sys
from json import dumps
from pathlib import Path
from textwrap import shorten

from kerasbert.checkpoints.folder import shipped_folder
from kerasbert.retrieval import BM25, search
from kerasbert.retrieval.evaluation import is_embedder

from .command_line.command import Command
from .reading.documents import read_documents
from .reading.tables import Reading
from .runs.cutting import say_cut
from .runs.searching import WORDS, loaded_reranker, loaded_stage
from .runs.task_models import cut_documents
from .runs.task_options import Files
from .runs.vectors import read_vectors


def find(
    documents: str,
    model: str = WORDS,
    reranker: str | None = None,
    column: str | None = None,
    top: int = 10,
    top_k: int = 100,
    batch_size: int = 32,
    vectors: Path | None = None,
    json: bool = False,
    files: Files = Files(),
    queries: tuple[str, ...] = (),
) -> None:
    """Prints the best documents for each query: tables in a terminal, and JSON lines in a file or for a program.

    A document has the id of its table (`id` or `_id`), or its number from 0, its score and its text.

    Args:
        documents: file with the documents: lines of text, or a table.
        column: name of the column of documents in a table. Default: its only column of texts, or `text`, after `title`
            and a space if there is a title.
        model: bm25 for a search by words, or folder of an embedder.
        reranker: folder of a reranker, which orders the first `top_k` documents again.
        top: number of documents to print.
        top_k: number of documents that the reranker scores.
        batch_size: texts per step.
        vectors: vectors of the documents that `kerasbert embed` wrote with the same model, which are then not computed
            again.
        json: print JSON lines in a terminal, too.
        queries: what to search for.
    """
    _check_queries(queries, model)
    read = read_documents(documents, Reading(files.encoding, files.format), column)
    texts = read.texts
    stage = loaded_stage(model)
    if vectors is not None and (stage == WORDS or not is_embedder(stage)):
        raise ValueError(f"--vectors needs the embedder that wrote them. Received: --model {model}.")
    second = loaded_reranker(reranker)
    for loaded in (stage, second):
        if loaded is not None and loaded != WORDS:
            say_cut(cut_documents(loaded, texts))
    count = min(top if second is None else top_k, len(texts))
    if stage == WORDS:
        found = BM25(texts).search(queries, count)
    elif is_embedder(stage):
        stored = stage.embed_documents(texts, batch_size) if vectors is None else read_vectors(vectors, len(texts))
        found = search(stage.embed_queries(list(queries), batch_size), stored, count, stage.similarity)
    else:
        raise ValueError(f"--model must be {WORDS} or an embedder. Received: {model}. A reranker is for --reranker.")
    for query, numbers, scores in zip(queries, *found, strict=True):
        best = [(int(n), float(s)) for n, s in zip(numbers, scores, strict=True) if n >= 0]
        if second is not None and best:
            ranked = second.rank(query, [texts[n] for n, _ in best], batch_size=batch_size)
            best = [(best[row["index"]][0], row["score"]) for row in ranked]
        rows = [{"id": read.ids[n], "score": score, "text": texts[n]} for n, score in best[:top]]
        _print(query, rows, json)


def _check_queries(queries: tuple[str, ...], model: str) -> None:
    """Raises a ValueError if there is no query, or if one of them names the model that the others are for."""
    if not queries:
        raise ValueError("A search needs a query. Received: none.")
    named = next((query for query in queries if model == WORDS and is_model(query)), None)
    if named is not None:
        raise ValueError(f"A query must be a text. Received: {named}, which is a model. Use --model {named}.")


def is_model(name: str) -> bool:
    """Whether a text names a model: a folder, hf://org/name or a model that comes with the package."""
    return name.startswith("hf://") or (Path(name) / "config.json").is_file() or shipped_folder(name) is not None


def _print(query: str, rows: list[dict], as_json: bool) -> None:
    """Prints the documents of a query."""
    if not rows:
        print(f"No document shares a word with {query!r}. An embedder finds other words: --model.", file=sys.stderr)
    if as_json or not sys.stdout.isatty():
        print(dumps({"query": query, "documents": rows}, ensure_ascii=False))
    else:
        from .show.answers import print_answer

        found = [{**row, "text": shorten(row["text"], 300, placeholder=" ...")} for row in rows]
        print_answer({"input": query, "documents": found})


main = Command(
    find,
    groups={
        "data": ("queries", "documents", "column", "vectors", "top", "json"),
        "model": ("model", "reranker", "top_k"),
    },
    first=("queries",),
)

if __name__ == "__main__":
    main()
