"""Finds hard negatives for pairs of a query and a positive, and writes examples for `kerasbert finetune`.

python -m pipelines.mine saved_models/mine pairs.csv --output negatives.jsonl
python -m pipelines.mine saved_models/mine pairs.csv --layout labeled-pair --output pairs_for_a_reranker.jsonl
"""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import kerasbert
from kerasbert.data.text.files import text_written_whole
from kerasbert.retrieval import NegativeRules, mine_hard_negatives
from kerasbert.retrieval.evaluation import is_embedder

from .command_line.command import Command
from .command_line.options import Options
from .reading.documents import read_documents
from .reading.labeled import GUESSED, Columns
from .reading.tables import Reading
from .reading.text_columns import read_text_columns
from .runs.cutting import say_cut
from .runs.outputs import check_outputs, counted
from .runs.searching import loaded_reranker
from .runs.task_models import cut_documents
from .runs.task_options import Files


@dataclass(frozen=True)
class Rules(Options):
    """Which documents are negatives of a query.

    Args:
        num_negatives: number of negatives for each query.
        range_min: leave out so many of the most similar documents.
        range_max: consider documents up to this rank. Default: enough for all negatives, and ten times as many if there
            are limits.
        absolute_margin: leave out documents that score less than this below the query's worst positive, or above it.
        relative_margin: the same, as a share of the score of that positive.
        max_score: leave out documents with a higher score.
        min_score: leave out documents with a lower score.
        sampling: top for the most similar documents, or random.
    """

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None
    sampling: Literal["top", "random"] = "top"


def mine(
    input: str,
    model: str,
    output: Path,
    documents: str | None = None,
    reranker: str | None = None,
    layout: Literal["triplet", "n-tuple", "labeled-pair", "labeled-list"] = "n-tuple",
    with_scores: bool = False,
    seed: int = 0,
    batch_size: int = 32,
    rules: Rules = Rules(),
    files: Files = Files(),
    columns: Columns = GUESSED,
) -> None:
    """Finds documents that are similar to queries, but none of their positives, and writes them as JSON lines.

    Args:
        input: table with pairs of a query and a positive. A query may have several positives.
        model: folder of the embedder that finds the documents, modernbert_mini_en_embedder, or hf://org/name.
        output: file for the examples.
        documents: file with more documents: lines of text, or a table with one column. Default: the positives.
        reranker: folder of a reranker, whose scores count for the limits of the rules.
        layout: triplet and n-tuple have the columns query, positive and negative (or negative_1, ...); labeled-pair has
            query, document and label; labeled-list has query, documents and labels.
        with_scores: write the scores of the documents: a column of triplets and n-tuples, or in place of labels.
        seed: of random choices.
        batch_size: texts per step.
        columns: names of the columns of the query (text) and the positive (pair). Default: the first two.
    """
    check_outputs({"--output": output}, {"input": input, "--documents": documents})
    reading = Reading(files.encoding, files.format)
    found = read_text_columns(input, columns, reading=replace(reading, say=print))
    if len(found.x[0]) != 2 or found.y[0] is not None:
        raise ValueError(
            f"Negatives are found for pairs without labels. Received: {input} with rows of "
            f"{counted(len(found.x[0]), 'text')}{'' if found.y[0] is None else ' and labels'}. Use --columns.text and "
            "--columns.pair."
        )
    miner = kerasbert.load(model)
    if not is_embedder(miner):
        raise ValueError(f"Negatives are found by an embedder. Received: {model}, a {type(miner).__name__}.")
    corpus = [] if documents is None else read_documents(documents, reading).texts
    chosen = NegativeRules(**{field.name: getattr(rules, field.name) for field in fields(rules)})
    scorer = loaded_reranker(reranker)
    say_cut(cut_documents(miner, [*(positive for _, positive in found.x), *corpus]))
    rows = mine_hard_negatives(
        found.x, miner, corpus, chosen, layout, scorer, with_scores=with_scores, seed=seed, batch_size=batch_size
    )
    if not rows:
        raise ValueError(
            f"The rules must leave negatives. Received: {input}, none of whose queries has enough. Mine fewer, change "
            "the limits, or add --documents."
        )
    names = columns_of(layout, chosen.num_negatives, with_scores)
    with text_written_whole(output) as file:
        for row in rows:
            file.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n")
    _say_queries(output, rows, {query for query, _ in found.x}, chosen.num_negatives if layout == "n-tuple" else 1)


def _say_queries(output: Path, rows: list[tuple], queries: set[str], fewest: int) -> None:
    """Says how many examples were written, and how many queries have none."""
    used = {row[0] for row in rows}
    print(f"wrote {output}: {counted(len(rows), 'example')} of {counted(len(used), 'query', 'queries')}")
    if left := len(queries - used):
        few = f"fewer than {fewest} negatives" if fewest > 1 else "no negatives"
        print(
            f"left out: {left:,} of {len(queries):,} queries, for which the rules leave {few}. Mine fewer, change the "
            "limits, or add --documents."
        )


def columns_of(layout: str, negatives: int, with_scores: bool) -> list[str]:
    """The names of the columns of a layout."""
    if layout == "labeled-pair":
        return ["query", "document", "score" if with_scores else "label"]
    if layout == "labeled-list":
        return ["query", "documents", "scores" if with_scores else "labels"]
    others = ["negative"] if layout == "triplet" else [f"negative_{i + 1}" for i in range(negatives)]
    return ["query", "positive", *others, *(["scores"] if with_scores else [])]


main = Command(
    mine,
    groups={"data": ("input", "output", "documents", "layout", "with_scores"), "model": ("model", "reranker")},
    first=("model", "input"),
)

if __name__ == "__main__":
    main()
