"""Writes the vectors of texts: the lines of a file, or a column of a table.

python -m pipelines.embed saved_models/mine documents.txt --output vectors.npy
python -m pipelines.embed saved_models/mine corpus.jsonl --column text --prompt document --output vectors.npy
"""

import functools
from pathlib import Path

import kerasbert
from kerasbert.retrieval.evaluation import is_embedder

from .command_line.command import Command
from .reading.documents import read_documents
from .reading.tables import Reading
from .runs.cutting import say_cut
from .runs.outputs import check_outputs, counted
from .runs.task_models import cut_documents
from .runs.task_options import Files
from .runs.vectors import check_suffix, write_vectors


def embed(
    input: str,
    model: str,
    output: Path,
    column: str | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
    files: Files = Files(),
) -> None:
    """Writes the vectors of texts in their order, for `numpy.load`, and for sparse ones `scipy.sparse.load_npz`.

    The vectors of the tokens of a multi-vector model are written below one another, with the number of tokens of each
    text: an .npz with the arrays `vectors` and `lengths`.

    Args:
        input: file of texts, one per line (blank lines are left out), a table, or hf://name:configuration#split.
        model: folder of an embedder, modernbert_mini_en_embedder, or hf://org/name.
        output: file for the vectors: .npy for dense vectors, .npz for others.
        column: name of the column of texts in a table. Default: its only column of texts, or `text`, after `title` and
            a space if there is a title.
        prompt: name of a prompt of the model that is put before every text; "query" and "document" are the methods
            `embed_queries` and `embed_documents`. Default: the default prompt of the model.
        batch_size: texts per step.
    """
    check_outputs({"--output": output}, {"input": input})
    loaded = kerasbert.load(model)
    if not is_embedder(loaded):
        raise ValueError(
            f"Vectors are computed by an embedder. Received: {model}, a {type(loaded).__name__}. Train one with "
            "kerasbert finetune --task embed."
        )
    texts = read_documents(input, Reading(files.encoding, files.format), column).texts
    say_cut(cut_documents(loaded, texts))
    methods = {"query": loaded.embed_queries, "document": loaded.embed_documents}
    compute = methods[prompt] if prompt in methods else functools.partial(loaded.embed, prompt=prompt)
    check_suffix(output, compute(texts[:1]))  # before the others, which may take hours
    write_vectors(output, compute(texts, batch_size=batch_size))
    print(f"wrote {output}: {counted(len(texts), 'text')}")


main = Command(
    embed, groups={"data": ("input", "output", "column"), "model": ("model", "prompt")}, first=("model", "input")
)

if __name__ == "__main__":
    main()
