"""The measurements of the evaluation suite. Each function returns a row with its scores in per cent."""

import functools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from benchmarks.studies.suite.cloze import Cloze, draw_clozes, frequent_words, masked_ids, predict_words, top_accuracies
from benchmarks.studies.suite.minimal_pairs import MinimalPair, accuracy
from benchmarks.studies.suite.ngram_model import NgramModel, Ngrams, Words
from benchmarks.studies.suite.tasks import FINE_TUNING, SuiteTask, some
from kerasbert import metrics
from kerasbert.backend import seed_everything
from kerasbert.checkpoints.folder import find_folder
from kerasbert.data import Tokenizer, read_documents
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextEmbedder
from kerasbert.training import StopOnNaN, adamw
from pipelines.reading.examples import Examples
from pipelines.reading.label_names import label_names
from pipelines.runs.task_models import batches_of, new_model, score

BATCH_SIZE = 16
ORDER = 5  # maximum n of the n-gram model


@dataclass(frozen=True)
class Start:
    """Starting weights: models are fine-tuned from them, or they are evaluated unchanged.

    Args:
        name: "pretrained", "scratch" or "reference".
        folder: folder of the model.
        model: the model in the folder.
        load_weights: False for random weights.
    """

    name: str
    folder: str
    model: keras.Model
    load_weights: bool = True

    @functools.cached_property
    def checksum(self) -> str:
        """A checksum of the weights in the folder; of random weights, one of the architecture and the tokenizer."""
        if not self.load_weights:
            backbone = getattr(self.model, "backbone", self.model)
            tokenizer = getattr(self.model, "tokenizer", None) or Tokenizer.load(find_folder(self.folder))
            return f"{zlib.crc32(f'{backbone.config} {tokenizer.hash}'.encode()):08x}"
        found = 0
        for weight in self.model.trainable_weights:
            found = zlib.crc32(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)), found)
        return f"{found:08x}"

    @property
    def heads(self) -> Mapping:
        """The kinds of heads that the model's family has."""
        return getattr(self.model, "backbone", self.model).family.heads


class TrainingText:
    """The words of the text that the model was trained on. The text is read only when they are needed.

    Args:
        sources: text files, or folders of them. Empty if the text is unknown.
    """

    def __init__(self, sources: tuple[Path, ...]):
        self.sources = sources
        for source in sources:
            if not source.exists():
                raise FileNotFoundError(f"`text` must name files or folders. Received: {source}, which does not exist.")

    @property
    def names(self) -> list[str]:
        return list(map(str, self.sources))

    @functools.cached_property
    def words(self) -> Words:
        return Words(read_documents(list(self.sources), documents="file"))

    @functools.cached_property
    def counts(self) -> Mapping[str, int] | None:
        return self.words.counts() if self.sources else None

    def ngrams(self) -> Ngrams:
        return Ngrams(NgramModel(self.words.ids, len(self.words.vocabulary), ORDER), self.words)


# === Without training ===


def pair_scores(model, pairs: Sequence[MinimalPair]) -> dict:
    """Computes accuracies on minimal pairs, overall and by paradigm."""
    found = accuracy(model, pairs)
    return {"scores": {name: 100 * found[name] for name in ("overall", *found)}, "count": len(pairs)}


def _clozes(model: MaskedLM, held_out: Path, count: int) -> list[Cloze]:
    documents = read_documents(held_out, documents="blank-line")
    limit = getattr(model.backbone.config, "max_length", None)
    return draw_clozes(documents, model.require_tokenizer(), count, max_length=limit)


def cloze_scores(model: MaskedLM, held_out: Path, count: int) -> dict:
    """Computes accuracies of a model on masked words, and its answers for the first ten sentences."""
    clozes, tokenizer = _clozes(model, held_out, count), model.require_tokenizer()
    answers = predict_words(model, clozes)
    found = top_accuracies(masked_ids(tokenizer, clozes), answers)
    shown = [
        {"text": cloze.gap, "word": cloze.word, "answers": [tokenizer.decode([i]).strip() for i in ids]}
        for cloze, ids in zip(clozes[:10], answers, strict=False)
    ]
    return {"scores": {name: 100 * value for name, value in found.items()}, "count": len(clozes), "answers": shown}


def unigram_cloze_scores(model: MaskedLM, held_out: Path, count: int, text: TrainingText) -> dict:
    """Computes the accuracies of always answering with the most frequent words of the training text.

    The masked words are the same as for the model. Without a training text, the frequencies of the held-out text are
    used.
    """
    clozes = _clozes(model, held_out, count)
    counts = text.counts or Words(read_documents(held_out, documents="file")).counts()
    words = [cloze.word.lower().replace("’", "'") for cloze in clozes]
    found = top_accuracies(words, [frequent_words(counts)] * len(words))
    return {"scores": {name: 100 * value for name, value in found.items()}, "count": len(clozes)}


def vector_scores(task: SuiteTask, start: Start, seed: int, path: Path) -> dict:
    """Correlates similarity scores with cosines of sentence vectors, which are means of the last hidden states."""
    seed_everything(seed)
    model = TextEmbedder.from_preset(start.folder, pooling="mean", load_weights=start.load_weights)
    examples = task.read(path)
    sides = [model.embed(list(side)) for side in zip(*examples.x, strict=True)]
    first, second = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-9) for side in sides)
    cosines, targets = (first * second).sum(axis=1), [float(label) for label in examples.y]
    return {"scores": {"spearman": 100 * metrics.spearman(targets, cosines)}, "count": len(examples)}


# === With training ===


@functools.lru_cache(maxsize=len(FINE_TUNING))
def _read(name: str, data: Path) -> tuple[Examples, Examples]:
    return FINE_TUNING[name].examples(data)


def training_scores(
    name: str,
    start: Start,
    data: Path,
    seed: int,
    count: int,
    learning_rate: float,
    epochs: int,
    dtype: str | None = None,
) -> dict:
    """Fine-tunes a model on at most `count` examples, which depend on the seed, and returns its scores."""
    task, (training, testing) = FINE_TUNING[name], _read(name, data)
    labels = label_names(task.kind, training, where=f" in {data / task.files[0]}")
    numbers = np.random.Generator(np.random.Philox(seed)).permutation(len(training))[:count]
    chosen = some(training, numbers)
    seed_everything(seed)
    positions = getattr(start.model, "backbone", start.model).position_limit
    length = task.length if positions is None else min(task.length, positions)
    model = new_model(task.kind, start.folder, labels, length, load_weights=start.load_weights, dtype=dtype)
    batches = batches_of(model, task.kind, chosen, batch_size=BATCH_SIZE, epochs=epochs, seed=seed)
    model.compile(adamw(learning_rate, warmup=len(batches) // 10, steps=len(batches), weight_decay=0.01))
    model.fit(batches, callbacks=[StopOnNaN()], verbose=0)
    found = score(model, testing)[0]
    scores = {metric: task.scale * found[metric] for metric in task.metrics}
    return {"scores": scores, "count": len(testing), "training": len(chosen)}
