"""Classification with a few examples per label: an embedder trained on pairs, and a linear classifier."""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, overload

import numpy as np

from ..checkpoints.folder import find_folder
from ..checkpoints.tensor_files import open_tensors, write_safetensors
from ..core.packages import required
from ..data.counts import check_counts
from ..data.tasks.labels import names_of
from ..data.tasks.targets import encoded_classes, encoded_sets
from ..data.text.folders import folder_at, replaced_together
from ..data.text.json_files import check_types, read_json, shortened
from ..retrieval.bm25 import check_list
from ..retrieval.few_labels import PairRules, contrastive_pairs
from ..training.convert import read_texts
from ..training.optimizers import adamw
from ..training.schedules import RunDecay
from .linear_head import HEADS, STRATEGIES, LinearHead, check_head_options
from .sentence_transformers.modules import write_json
from .text_embedder import TextEmbedder

CONFIG, PICKLE = "config_setfit.json", "model_head.pkl"  # files of the `setfit` package
HEAD, SETTINGS = "model_head.safetensors", "model_head.json"


class SetFit:
    """Learns to classify texts from about 8 examples per label (Tunstall et al. 2022, arXiv 2209.11055).

    `fit` first trains the embedder on pairs of examples, which are similar if they have the same label. Then it trains
    a linear classifier on the vectors. `save_to_preset` writes folders that the `setfit` package reads. Folders that
    `setfit` writes are not read, because they contain the classifier as a pickle, which can run any code.

    Args:
        embedder: a `TextEmbedder` whose objective has pairs with scores, such as "cosine", the paper's.
        labels: the label names, or their number; see `TextClassifier`.
        problem: `"classes"` (each text has one label) or `"labels"` (each text has any number of labels).
        strategy: for problem="labels". `"one-vs-rest"` and `"multi-output"` are the same: they classify each label by
            itself. In a `"classifier-chain"`, the answers for the labels before are inputs as well.
        normalize: whether the classifier reads vectors that are scaled to length 1.

    Raises:
        ValueError: if `embedder` is no `TextEmbedder`, `problem` or `strategy` is unknown, or `labels` are not two or
            more different names.

    Example:
        >>> from kerasbert.tasks import SetFit
        >>> model = SetFit.from_preset("modernbert_mini_en_embedder", labels=["weather", "food"])
        >>> texts = ["It will rain tomorrow.", "Snow fell last night.", "The soup is salty.", "She baked fresh bread."]
        >>> model = model.fit(texts, ["weather", "weather", "food", "food"], epochs=2, learning_rate=2e-4, verbose=0)
        >>> [answer["label"] for answer in model.classify(["It will snow.", "The bread is salty."])]
        ['weather', 'food']
    """

    def __init__(
        self,
        embedder: TextEmbedder,
        labels: int | Sequence | Mapping,
        problem: str = "classes",
        strategy: str = "one-vs-rest",
        normalize: bool = False,
    ):
        if not isinstance(embedder, TextEmbedder):
            raise ValueError(f"A SetFit model needs a TextEmbedder. Received: {type(embedder).__name__}.")
        if problem not in ("classes", "labels"):
            raise ValueError(f"`problem` must be classes or labels. Received: {problem!r:.80}.")
        if strategy not in STRATEGIES:
            raise ValueError(f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: {strategy!r:.80}.")
        self.embedder, self.problem, self.normalize = embedder, problem, normalize
        self.labels = names_of(labels)
        if len(self.labels) < 2:
            raise ValueError(f"`labels` must be two or more different names. Received: {self.labels}.")
        self.strategy = strategy if problem == "labels" else None
        self.head: LinearHead | None = None

    # === Training ===

    def fit(
        self,
        texts: Sequence[str],
        y: Any,
        pairs: PairRules | None = None,
        epochs: int = 1,
        batch_size: int = 16,
        learning_rate: float = 2e-5,
        head: str = "logistic",
        head_options: Mapping[str, Any] | None = None,
        verbose: int | str = "auto",
    ) -> Self:
        """Trains the embedder and the classifier.

        Args:
            texts: the examples, a list of str.
            y: a label for each text, or with problem="labels" a list of labels, as in `TextClassifier.fit`.
            pairs: which pairs the embedder is trained on. Default: `PairRules()`.
            epochs: passes over the pairs. With 0, the embedder is not trained.
            batch_size: number of pairs per batch.
            learning_rate: the peak rate of AdamW, after a warm-up of 10% of the updates and before a linear decay to 0.
            head: `"logistic"`, scikit-learn's `LogisticRegression` (`pip install "kerasbert[metrics]"`), or `"dense"`,
                a linear layer trained by gradient descent.
            head_options: arguments of `LogisticRegression`, such as {"C": 10.0}, or of `linear_head.fit_dense`.
            verbose: as in Keras, for the training of the embedder.

        Raises:
            ValueError: if the numbers of texts and targets differ, a label is unknown, all or no examples have a label,
                the objective has no pairs with scores, `epochs` or `batch_size` is too small, `head` or one of its
                options is unknown, or `"dense"` is used with a classifier chain.
            ImportError: if `"logistic"` needs scikit-learn, which is not installed.
        """
        if head not in HEADS:
            raise ValueError(f"`head` must be one of {', '.join(HEADS)}. Received: {head!r:.80}.")
        check_counts(batch_size=batch_size)
        check_counts(0, epochs=epochs)
        check_head_options(head, head_options or {})
        texts = read_texts(texts, "fit")
        check_list(texts, "texts")
        texts = list(texts)
        targets = self._checked_targets(texts, y)
        if epochs:
            self._train_embedder(texts, targets, pairs, epochs, batch_size, learning_rate, verbose)
        self.head = HEADS[head](self._vectors(texts), targets, self.strategy, **(head_options or {}))
        return self

    def _checked_targets(self, texts, y):
        """Returns int (n,), or 0 and 1 (n, number of labels), or raises a ValueError."""
        encoded = encoded_classes(self.labels, y) if self.strategy is None else encoded_sets(self.labels, y)
        if len(encoded) != len(texts):
            raise ValueError(f"There must be one target per text. Received: {len(texts)} and {len(encoded)}.")
        if encoded.ndim == 2 and (self.strategy is None or not np.isin(encoded, (0, 1)).all()):
            raise ValueError("The targets must be labels. Received: rows of probabilities.")
        if encoded.ndim == 1 and len(encoded) and not 0 <= encoded.min() <= encoded.max() < len(self.labels):
            wrong = encoded[(encoded < 0) | (encoded >= len(self.labels))][0]
            raise ValueError(f"Targets must be in {self.labels}, or be their indices. Received: {wrong}.")
        hits = encoded if encoded.ndim == 2 else encoded[:, None] == np.arange(len(self.labels))
        counts = hits.sum(axis=0)
        for label, count in zip(self.labels, counts, strict=True):
            if not 0 < count < len(texts):
                raise ValueError(
                    "Each label needs an example with it, and one without it. Received: "
                    f"{label!r} in {int(count)} of {len(texts)} examples."
                )
        return encoded

    def _train_embedder(self, texts, targets, pairs, epochs, batch_size, learning_rate, verbose):
        objective = self.embedder.objective
        if objective is None or objective.targets not in ("scores", "numbers", "binary"):
            raise ValueError(
                'The embedder must have an objective of pairs with scores, such as objective="cosine". Received: '
                f"{objective and objective.name}."
            )
        kinds = targets.tolist() if targets.ndim == 1 else [set(np.flatnonzero(row).tolist()) for row in targets]
        found = contrastive_pairs(kinds, pairs or PairRules())
        updates = epochs * math.ceil(len(found) / batch_size)
        self.embedder.compile(adamw(RunDecay(learning_rate, updates // 10, updates)))
        examples, scores = [(texts[i], texts[j]) for i, j, _ in found], [score for *_, score in found]
        self.embedder.fit(examples, scores, batch_size=batch_size, epochs=epochs, verbose=verbose)

    def _vectors(self, texts, batch_size=32):
        vectors = self.embedder.embed(texts, batch_size)
        if self.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    # === Prediction ===

    def probabilities(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Computes the probability of each label, float64 (number of texts, number of labels).

        Raises:
            ValueError: if `texts` is no list of str, or the model has not been trained.
        """
        texts = read_texts(texts, "probabilities")
        check_list(texts, "texts")
        return self._trained_head().probabilities(self._vectors(list(texts), batch_size))

    @overload
    def classify(self, texts: str, batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def classify(self, texts: Sequence[str], batch_size: int = ...) -> list[dict[str, Any]]: ...

    def classify(self, texts: Any, batch_size: int = 32) -> Any:
        """Predicts labels.

        Args:
            texts: a str, or a list of str.
            batch_size: number of texts per batch.

        Returns: a dict for each text, as `TextClassifier.classify` returns it: {"label", "score", "scores"}, or with
            problem="labels" {"labels", "scores"}, the labels with a probability above 0.5.

        Raises:
            ValueError: if a text is no str, or the model has not been trained.
        """
        texts = read_texts(texts, "classify")
        if isinstance(texts, str):
            return self.classify([texts], batch_size)[0]
        answers = []
        for row in self.probabilities(texts, batch_size):
            named = dict(zip(self.labels, row.tolist(), strict=True))
            best = max(named, key=named.__getitem__)
            one = {"label": best, "score": named[best], "scores": named}
            several = {"labels": [label for label in named if named[label] > 0.5], "scores": named}
            answers.append(one if self.strategy is None else several)
        return answers

    def _trained_head(self):
        if self.head is None:
            raise ValueError("The classifier must be trained first. Received: a SetFit model before `fit`.")
        return self.head

    # === Folders ===

    def save_to_preset(self, path: str | PathLike) -> None:
        """Writes the embedder and the classifier to a folder, which `setfit.SetFitModel` reads, too.

        The classifier is in `model_head.safetensors`, and for the `setfit` package also in `model_head.pkl`, which
        needs scikit-learn.

        Args:
            path: the folder, created if it does not exist.

        Raises:
            ValueError: if the model has not been trained.
            ImportError: if scikit-learn is not installed.
        """
        head, folder = self._trained_head(), folder_at(path)
        estimator, dump = head.to_sklearn(), required("joblib", "metrics").dump
        self.embedder.save_to_preset(folder)
        with replaced_together(folder, last=CONFIG) as new:
            write_safetensors(new / HEAD, {"kernel": np.array(head.kernel), "bias": np.array(head.bias)})
            write_json(new / SETTINGS, {"problem": self.problem, "strategy": self.strategy})
            dump(estimator, new / PICKLE)
            write_json(new / CONFIG, {"normalize_embeddings": self.normalize, "labels": self.labels})

    @classmethod
    def from_preset(
        cls,
        path: str | PathLike,
        labels: int | Sequence | Mapping | None = None,
        problem: str | None = None,
        strategy: str | None = None,
        normalize: bool | None = None,
        objective: Any = "cosine",
        **overrides: Any,
    ) -> Self:
        """Loads a model that has been saved, or creates one from an embedder or encoder.

        Args:
            path, objective, **overrides: see `TextEmbedder.from_preset`.
            labels, problem, strategy, normalize: see the class, for a new model. A model that has been saved has its
                own.

        Raises:
            FileNotFoundError: if there is no such folder or model.
            ValueError: if a new model has no `labels`, one of these four is given for a saved model, the classifier is
                only stored as a pickle, or the files of the classifier are invalid.
        """
        is_folder = Path(path).is_dir() or str(path).startswith("hf://")
        folder = find_folder(path, overrides.get("revision"), overrides.get("token")) if is_folder else None
        if folder is None or not (folder / HEAD).exists():
            if folder is not None and (folder / CONFIG).exists() and labels is None:
                raise ValueError(
                    f"A SetFit model must have the file {HEAD}. Received: {folder}, whose classifier is in {PICKLE}, a "
                    "pickle, which could run any code. Pass `labels` to train a new classifier on its embedder."
                )
            if labels is None:
                raise ValueError(f"A new SetFit model needs `labels`. Received: none, and no {HEAD} in {path}.")
            embedder = TextEmbedder.from_preset(path, objective=objective, **overrides)
            return cls(embedder, labels, problem or "classes", strategy or "one-vs-rest", bool(normalize))
        given = dict(labels=labels, problem=problem, strategy=strategy, normalize=normalize)
        names = [name for name, value in given.items() if value is not None]
        if names:
            raise ValueError(
                "A model that has been saved has its own labels, problem, strategy and normalization. Received: "
                f"{' and '.join(names)}, for {folder}. Leave them out."
            )
        found, settings = read_json(folder / CONFIG), read_json(folder / SETTINGS)
        check_types(found, {"normalize_embeddings": bool, "labels": list}, folder / CONFIG)
        check_types(settings, {"problem": str, "strategy": str | None}, folder / SETTINGS)
        unknown = {*found} - {"normalize_embeddings", "labels"} | {*settings} - {"problem", "strategy"}
        if unknown or "labels" not in found or "problem" not in settings:
            raise ValueError(
                f"{CONFIG} must have normalize_embeddings and labels, and {SETTINGS} problem and strategy. Received: "
                f"{shortened({**found, **settings})}, in {folder}."
            )
        embedder = TextEmbedder.from_preset(path, objective=objective, **overrides)
        stored = settings.get("strategy") or "one-vs-rest"
        model = cls(embedder, found["labels"], settings["problem"], stored, found.get("normalize_embeddings", False))
        model.head = _read_head(folder / HEAD, model)
        return model


def _read_head(path, model):
    tensors = open_tensors(path)
    if {*tensors.keys()} != {"kernel", "bias"}:
        raise ValueError(f"{path} must contain kernel and bias. Received: {', '.join(tensors.keys())}.")
    kernel, bias = (np.asarray(tensors.get_tensor(name), float) for name in ("kernel", "bias"))
    outputs = 1 if model.strategy is None and len(model.labels) == 2 else len(model.labels)
    width = model.embedder.embedding_dim + (outputs if model.strategy == "classifier-chain" else 0)
    if kernel.shape != (outputs, width) or bias.shape != (outputs,):
        raise ValueError(
            f"The kernel and bias in {path} must have the shapes {(outputs, width)} and {(outputs,)}. Received: "
            f"{kernel.shape} and {bias.shape}."
        )
    if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
        raise ValueError(f"The weights in {path} must be finite. Received: NaN or infinity.")
    return LinearHead(kernel, bias, model.strategy)
