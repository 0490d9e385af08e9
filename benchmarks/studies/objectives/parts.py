"""What the cells of `run.py` are made of: text, floating-point operations, and the measures of encoders."""

import re
from pathlib import Path

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import keras
import numpy as np
from keras import ops

from benchmarks.studies.suite.tasks import FINE_TUNING
from kerasbert import metrics
from kerasbert.data import Corpus, Tokenizer, encode_texts, read_documents
from kerasbert.training import adamw

VOCABULARY = 2_000
SENTINELS = 32  # ids behind the vocabulary
ENDS = re.compile(r"([.?!][\"'”’)]*) +(?=[A-Z\"'“‘(])")
STOPS, PAUSES = set(".?!"), set(",;:")
WIDTH = 62  # tokens of text in a row of a measure


# === Text ===


def documents(path: Path) -> list[str]:
    """The text in documents of 30 paragraphs, one sentence a line."""
    paragraphs = [line for text in read_documents(path) for line in text.splitlines() if line.strip()]
    groups = [paragraphs[first : first + 30] for first in range(0, len(paragraphs), 30)]
    return [ENDS.sub(r"\1\n", "\n".join(group)) for group in groups]


def corpora(data: Path, work: Path) -> tuple[Corpus, Corpus]:
    """The text to train on, and held-out text. They are written the first time."""
    files = [data / "pretraining" / name for name in ("lm_en_5mb.txt", "lm_en_valid.txt")]
    if not (work / "held_out" / "corpus.json").exists():
        texts = list(map(documents, files))
        tokenizer = Tokenizer.train("wordpiece", texts[0], VOCABULARY, lowercase=True)
        for name, found in zip(("training", "held_out"), texts, strict=True):
            if not (work / name / "corpus.json").exists():
                Corpus.write(work / name, found, tokenizer)
    return Corpus.open(work / "training"), Corpus.open(work / "held_out")


def part_of(corpus: Corpus, tokens: float, data: Path, work: Path) -> Corpus:
    """The first documents that have so many tokens."""
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    count = int(np.searchsorted(starts, tokens))
    folder = work / f"first_{count}"
    if not (folder / "corpus.json").exists():
        text = documents(data / "pretraining" / "lm_en_5mb.txt")[:count]
        Corpus.write(folder, text, corpus.tokenizer())
    return Corpus.open(folder)


# === Compute ===


def training_flops(config, batch: tuple, generator=None, outputs: int = 1) -> float:
    """Floating-point operations of one update: twice the multiplications of matrices, three times for the gradients.

    Embeddings, norms, activations, softmax and the optimizer are left out, as is usual.

    Args:
        config: of the backbone.
        batch: of the run; padding is computed, too.
        generator: config of a second model that fills the slots.
        outputs: how many predictions every slot has.
    """
    x = batch[0]
    rows, length = x["token_ids"].shape
    target = x["decoder_token_ids"].shape[1] if "decoder_token_ids" in x else 0
    slots = x["masked_positions"].shape[1] if "masked_positions" in x else target or length
    total = _stack(config, length) + (_stack(config, target, length) if target else 0)
    total += outputs * _output(config, slots) if generator is None else 0
    total += _stack(generator, length) + _output(generator, slots) if generator else 0
    return 6.0 * rows * total


def _stack(config, length: int, context: int = 0) -> float:
    """Multiplications of a stack of blocks for one row."""
    wide, inner = config.hidden_dim, config.feed_forward_dim
    block = length * (4 * wide**2 + 2 * wide * inner + 2 * length * wide)
    if context:
        block += 2 * (length + context) * wide**2 + 2 * length * context * wide
    return config.num_layers * block


def _output(config, count: int) -> float:
    return count * (config.hidden_dim**2 + config.hidden_dim * config.vocabulary_size)


# === Measures ===


class Reader(keras.Model):
    """The vectors of tokens in all layers of a backbone, beside one another; of an encoder-decoder, the encoder's.

    Args:
        backbone: any.
        mean: True for the mean over the tokens of a row.
    """

    def __init__(self, backbone, mean=False):
        super().__init__()
        self.backbone, self.mean = backbone, mean

    def call(self, inputs):
        states = self.backbone(inputs, hidden_states=True)["hidden_states"]
        x = ops.concatenate(states["encoder"] if isinstance(states, dict) else states, axis=-1)
        if not self.mean:
            return x
        here = ops.arange(inputs["token_ids"].shape[1])[None] < inputs["lengths"][:, None]
        here = ops.cast(here, "float32")[..., None]
        return ops.sum(x * here, axis=1) / ops.sum(here, axis=1)


class Tagger(keras.Model):
    """Three scores for every token, of the last layer, or of a bidirectional LSTM on top of it."""

    def __init__(self, backbone, recurrent):
        super().__init__()
        self.backbone, self.recurrent = backbone, None
        if recurrent:
            self.recurrent = keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True))
        self.dense = keras.layers.Dense(3)

    def call(self, inputs):
        x = self.backbone(inputs)["sequence_output"]
        return self.dense(x if self.recurrent is None else self.recurrent(x))


def rows_of(bodies: np.ndarray, tokenizer: Tokenizer, leads: bool) -> dict:
    """Rows of text between the special tokens that a model has seen in training."""
    ends = np.full((len(bodies), 1), tokenizer.sep_id, np.int32)
    starts = np.full((len(bodies), 1 if leads else 0), tokenizer.cls_id, np.int32)
    ids = np.concatenate([starts, bodies, ends], axis=1).astype(np.int32)
    return {"token_ids": ids, "lengths": np.full(len(ids), ids.shape[1], np.int32)}


def without_punctuation(corpus: Corpus, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (up to count, 62) of a text without its signs, and what was behind each: 0 nothing, 1 pause, 2 a stop."""
    names = corpus.tokenizer().tokens
    kind = np.array([3 if not any(c.isalnum() for c in name) else 0 for name in names])
    kind[[i for i, name in enumerate(names) if name in PAUSES]] = 1
    kind[[i for i, name in enumerate(names) if name in STOPS]] = 2
    tokens = np.asarray(corpus.tokens[: count * WIDTH * 2])
    words = np.flatnonzero(kind[tokens] == 0)
    behind = np.maximum.reduceat(np.where(kind[tokens] == 3, 0, kind[tokens]), words)  # of a word and what follows
    rows = min(count, len(words) // WIDTH)
    return tuple(found[: rows * WIDTH].reshape(rows, WIDTH) for found in (tokens[words], behind))


def signs(backbone, corpora: tuple[Corpus, Corpus], leads: bool) -> float:
    """How much of what sign stands between two words of a text without signs a linear map of their vectors explains.

    R2 of the indicators of pauses and stops on held-out text, vectors as they are: 0 is what frequencies explain.
    """
    sides = []
    for corpus, count in zip(corpora, (1_200, 400), strict=True):
        tokens, labels = without_punctuation(corpus, count)
        rows = rows_of(tokens, corpora[0].tokenizer(), leads)
        vectors = Reader(backbone).predict(rows, batch_size=100, verbose=0)[:, int(leads) : -1]
        vectors = np.concatenate([vectors[:, :-1], vectors[:, 1:]], axis=-1)
        wanted = np.stack([labels == 1, labels == 2], axis=-1)[:, :-1].reshape(-1, 2)
        sides.append((vectors.reshape(len(wanted), -1).astype("float64"), wanted.astype("float64")))
    (x, y), (unseen, expected) = sides
    mean, spread, share = x.mean(0), x.std(0) + 1e-6, y.mean(0)
    x = (x - mean) / spread
    weights = np.linalg.solve(x.T @ x + 100.0 * np.eye(x.shape[1]), x.T @ (y - share))
    left = expected - share - (unseen - mean) / spread @ weights
    return float(1 - np.square(left).sum() / np.square(expected - share).sum())


def sign_baselines(corpora: tuple[Corpus, Corpus]) -> dict[str, float]:
    """Nats a word on held-out text for guessing the signs by their frequency, overall and after each token."""
    (tokens, labels), (unseen, expected) = (without_punctuation(*p) for p in zip(corpora, (3_200, 400), strict=True))
    shares = np.bincount(labels.ravel(), minlength=3) / labels.size
    counts = np.zeros((corpora[0].tokenizer().vocabulary_size, 3))
    np.add.at(counts, (tokens, labels), 1.0)
    by_token = (counts + shares) / (counts.sum(axis=1, keepdims=True) + 1.0)
    return {
        "frequencies": float(-np.log(shares[expected]).mean()),
        "tokens": float(-np.log(by_token[unseen, expected]).mean()),
    }


def fine_tuned(backbone, corpora: tuple[Corpus, Corpus], leads: bool, seed: int, recurrent: bool) -> float:
    """Nats a word for the same after 200 updates of all weights; the backbone is as before afterwards."""
    (tokens, labels), (unseen, expected) = (without_punctuation(*p) for p in zip(corpora, (3_200, 400), strict=True))
    before, start = int(leads), backbone.get_weights()
    tokenizer = corpora[0].tokenizer()
    keras.utils.set_random_seed(seed)
    tagger = Tagger(backbone, recurrent)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    tagger.compile(adamw(1e-3, warmup=20, steps=200), loss)
    padding = [(0, 0), (before, 1)]
    y, there = np.pad(labels, padding), np.pad(np.ones(labels.shape, np.float32), padding)
    tagger.fit(rows_of(tokens, tokenizer, leads), y, sample_weight=there, batch_size=16, verbose=0)
    logits = tagger.predict(rows_of(unseen, tokenizer, leads), batch_size=100, verbose=0)[:, before:-1]
    backbone.set_weights(start)
    logits = logits.astype("float64") - np.logaddexp.reduce(logits.astype("float64"), axis=-1, keepdims=True)
    return float(-np.take_along_axis(logits, expected[..., None], axis=-1).mean())


def similarity(backbone, data: Path, tokenizer: Tokenizer, leads: bool) -> float:
    """Spearman correlation of human similarity scores with the cosines of mean vectors: STS-B, 1,379 held-out pairs.

    The vector of a sentence is the mean of the hidden states of all layers over its tokens.
    """
    examples = FINE_TUNING["stsb"].read(data / FINE_TUNING["stsb"].files[1])
    sides = []
    for texts in zip(*examples.x, strict=True):
        x = encode_texts(tokenizer, list(texts), max_length=WIDTH, pad_to=WIDTH)
        x = {name: x[name] for name in ("token_ids", "lengths")}
        if not leads:
            x = {"token_ids": x["token_ids"][:, 1:].copy(), "lengths": x["lengths"] - 1}
        vectors = Reader(backbone, mean=True).predict(x, batch_size=100, verbose=0)
        sides.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return metrics.spearman([float(label) for label in examples.y], (sides[0] * sides[1]).sum(axis=1))
