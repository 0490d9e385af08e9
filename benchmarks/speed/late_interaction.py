"""MaxSim of queries of 32 tokens with 100 documents of about 180 tokens, 128 wide, as a search re-ranks them.

    KERAS_BACKEND=torch python -m benchmarks.speed.late_interaction --rounds 7

Against sentence-transformers, which pads the same arrays. Documents have 120 to 240 tokens.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

DOCUMENTS, WIDTH, REPEATS = 100, 128, 20


def prepare(folder: Path, options) -> None:
    generator = np.random.default_rng(0)
    lengths = [32] * options.queries + list(generator.integers(120, 241, DOCUMENTS))
    vectors = generator.normal(size=(sum(lengths), WIDTH)).astype("float32")
    np.savez(folder / "vectors.npz", vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True), lengths=lengths)


def work_of(folder: Path, max_sim) -> Work:
    with np.load(folder / "vectors.npz") as saved:
        texts = np.split(saved["vectors"], np.cumsum(saved["lengths"])[:-1])
    queries, documents = texts[:-DOCUMENTS], texts[-DOCUMENTS:]
    outputs = {}

    def run() -> None:
        for _ in range(REPEATS):
            outputs["scores"] = np.asarray(max_sim(queries, documents))

    flops = 2.0 * WIDTH * sum(map(len, queries)) * sum(map(len, documents)) * REPEATS
    return Work(run, outputs, units=float(REPEATS * len(queries) * DOCUMENTS), flops=flops)


def kerasbert(folder: Path) -> Work:
    from kerasbert.retrieval.late_interaction import max_sim_of_texts

    return work_of(folder, max_sim_of_texts)


def sentence_transformers(folder: Path) -> Work:
    from sentence_transformers.util import maxsim

    return work_of(folder, maxsim)


CONTENDERS = {"kerasbert": Contender(kerasbert), "sentence-transformers": Contender(sentence_transformers)}

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--queries", type=int, default=1)
    comparisons = [Comparison("kerasbert", "sentence-transformers", 1.0, tolerance=1e-4)]
    compare("late_interaction", prepare, CONTENDERS, comparisons, unit="pairs of texts", options=arguments.parse_args())
