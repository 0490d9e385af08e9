"""Vectors of 5,000 texts of mixed lengths by an encoder of MiniLM's shape (6 layers of 384), tokenisation included.

    KERAS_BACKEND=jax python benchmarks/embeddings.py --texts 5000

Against sentence-transformers (torch) and ONNX Runtime, which gets the model by torch.onnx, all its graph optimisations,
and batches sorted by length like those of sentence-transformers. The texts are paragraphs of the English that Python
carries. Programs are compiled before the clock runs; the column "first s" has the time of the first pass with it.
"""

import os
from pathlib import Path

import numpy as np
from harness import Comparison, Contender, Work, compare, parser

SHAPE = dict(num_layers=6, hidden_dim=384, num_heads=12, feed_forward_dim=1_536, max_length=512)
LONGEST, BATCH = 256, 32


def prepare(folder: Path, options) -> None:
    from kerasbert.backend import seed_everything
    from kerasbert.data import Tokenizer
    from kerasbert.models import Bert, BertConfig
    from kerasbert.tasks import TextEmbedder
    from pipelines.standard_library import docstrings, paragraphs, topics

    texts = [text for topic in topics() for text in paragraphs(topic).split("\n") if text.strip()]
    texts += [text for d in docstrings() for text in [d.text, *paragraphs(d.text).split("\n")] if text.strip()]
    tokenizer = Tokenizer.train("wordpiece", texts, vocabulary_size=12_000, lowercase=True)
    seed_everything(0)
    # Weights three times BERT's, so that vectors of different texts differ.
    config = BertConfig(**SHAPE, vocabulary_size=tokenizer.vocabulary_size, initializer_range=0.06)
    model = TextEmbedder(Bert(config), normalize=True, max_length=LONGEST, tokenizer=tokenizer)
    model.save_to_preset(folder / "model")
    chosen = np.random.default_rng(0).permutation(len(texts))[: options.texts]
    lines = [" ".join(texts[i].split()) for i in chosen]
    (folder / "texts.txt").write_text("\n".join(lines), encoding="utf-8")
    encoded = tokenizer.encode(lines)
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


def kerasbert(folder: Path) -> Work:
    from kerasbert.tasks import TextEmbedder

    texts, facts = loaded(folder)
    model = TextEmbedder.from_preset(folder / "model")
    return Work(lambda: model.embed(texts), {"vectors": model.embed(texts)}, tries=1, **facts)


def sentence_transformers(folder: Path) -> Work:
    from sentence_transformers import SentenceTransformer

    texts, facts = loaded(folder)
    model = SentenceTransformer(str(folder / "model"), device="cpu")

    def run() -> np.ndarray:
        return model.encode(texts, batch_size=BATCH, show_progress_bar=False)

    return Work(run, {"vectors": run()}, tries=1, **facts)


def onnx_runtime(folder: Path) -> Work:
    import onnxruntime
    import torch
    from tokenizers import Tokenizer
    from transformers import BertModel

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertModel.from_pretrained(folder / "model", attn_implementation="eager").eval()

        def forward(self, ids, real):
            x = self.bert(input_ids=ids, attention_mask=real).last_hidden_state
            real = real[:, :, None].float()
            return torch.nn.functional.normalize((x * real).sum(1) / real.sum(1))

    texts, facts = loaded(folder)
    path = str(folder / "model.onnx")
    example = (torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64))
    axes = {"ids": {0: "rows", 1: "columns"}, "real": {0: "rows", 1: "columns"}}
    torch.onnx.export(
        Pooled(), example, path, input_names=["ids", "real"], dynamic_axes=axes, dynamo=False, opset_version=17
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    threads = os.environ.get("OMP_NUM_THREADS")
    options.intra_op_num_threads = int(threads) if threads else len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)

    def run() -> np.ndarray:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        vectors = np.zeros((len(rows), SHAPE["hidden_dim"]), "float32")
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            lengths = np.array([len(rows[i]) for i in chosen])
            real = np.arange(lengths.max()) < lengths[:, None]
            ids = np.zeros(real.shape, "int64")
            ids[real] = np.concatenate([rows[i] for i in chosen])
            vectors[chosen] = session.run(None, {"ids": ids, "real": real.astype("int64")})[0]
        return vectors

    return Work(run, {"vectors": run()}, tries=1, **facts)


CONTENDERS = {
    "kerasbert": Contender(kerasbert),
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
            Comparison("kerasbert", "sentence-transformers", 1.5, tolerance=1e-5),
            Comparison("kerasbert", "ONNX Runtime", 1.0, tolerance=1e-5),
        ],
        unit="texts",
        options=arguments.parse_args(),
    )
