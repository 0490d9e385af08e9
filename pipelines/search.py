"""Searches documents: the lines of a file, or a table.

python -m pipelines.search "how do cats rest" --model saved_models/mine --documents corpus.txt
python -m pipelines.search "how do cats rest" --model bm25 --documents corpus.txt --reranker saved_models/reranker
"""

import json

from kerasbert.retrieval import BM25, search
from kerasbert.retrieval.evaluation import is_embedder

from .command_line.command import Command
from .reading.tables import Reading
from .runs.cutting import say_cut
from .runs.losses import read_documents
from .runs.searching import WORDS, loaded_reranker, loaded_stage
from .runs.task_models import cut_documents
from .runs.task_options import Files


def find(
    documents: str,
    model: str = WORDS,
    reranker: str | None = None,
    column: str | None = None,
    top: int = 10,
    top_k: int = 100,
    batch_size: int = 32,
    files: Files = Files(),
    queries: tuple[str, ...] = (),
) -> None:
    """Prints the best documents for each query, as JSON lines.

    Args:
        documents: file with the documents: lines of text, or a table.
        column: name of the column of documents in a table. Default: its only column of texts, or `text`, after `title`
            and a space if there is a title.
        model: bm25 for a search by words, or folder of an embedder.
        reranker: folder of a reranker, which orders the first `top_k` documents again.
        top: number of documents to print.
        top_k: number of documents that the reranker scores.
        batch_size: texts per step.
        queries: what to search for.
    """
    if not queries:
        raise ValueError("A search needs a query. Received: none.")
    texts = read_documents(documents, Reading(files.encoding, files.format), column)
    stage = loaded_stage(model)
    second = loaded_reranker(reranker)
    for loaded in (stage, second):
        if loaded is not None and loaded != WORDS:
            say_cut(cut_documents(loaded, texts))
    count = min(top if second is None else top_k, len(texts))
    if stage == WORDS:
        found = BM25(texts).search(queries, count)
    elif is_embedder(stage):
        vectors = (stage.embed_queries(list(queries), batch_size), stage.embed_documents(texts, batch_size))
        found = search(*vectors, count, stage.similarity)
    else:
        raise ValueError(f"--model must be {WORDS} or an embedder. Received: {model}. A reranker is for --reranker.")
    for query, numbers, scores in zip(queries, *found, strict=True):
        best = [(texts[n], float(s)) for n, s in zip(numbers, scores, strict=True) if n >= 0]
        if second is not None and best:
            ranked = second.rank(query, [text for text, _ in best], batch_size=batch_size)
            best = [(row["text"], row["score"]) for row in ranked]
        rows = [{"text": text, "score": score} for text, score in best[:top]]
        print(json.dumps({"query": query, "documents": rows}, ensure_ascii=False))


main = Command(
    find,
    groups={"data": ("queries", "documents", "column", "top"), "model": ("model", "reranker", "top_k")},
    first=("queries",),
)

if __name__ == "__main__":
    main()
