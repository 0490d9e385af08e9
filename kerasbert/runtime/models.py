"""Answers texts with exports, with numpy, tokenizers and ONNX Runtime: neither Keras nor a backend is imported.

Each class has the answers of a task of `kerasbert.tasks`, to the last digits. A request is encoded as a `Job`, whose
rows may be computed together with those of other requests.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.batches.bucketing import batches_by_length
from ..data.tasks import answers
from ..data.tasks.examples import encode_texts
from ..data.tasks.prompts import prompts_of
from ..data.tasks.questions import QuestionRows
from ..data.tasks.tagging import TaggedRows
from ..data.text.json_files import read_json, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from .activations import activated
from .cutting import cut_text
from .programs import Programs, Threads
from .rows import Job, Row, padded, rows_of


class TooLong(ValueError):
    """A text has more tokens than its model reads, and must not be truncated."""


class ExportedModel:
    """A model that an export computes.

    Args:
        folder: folder of the export.
        saved: the content of its `kerasbert.json`.
        threads: how ONNX Runtime uses cores.

    Attributes:
        labels: names of the outputs, or None.
        max_length: maximum number of tokens per row, or None.
    """

    does = ""  # the method of the task
    per_token = False  # whether there is an output for each token
    splits = False  # whether long texts are split instead of being truncated

    def __init__(self, folder: Path, saved: dict[str, Any], threads: Threads = Threads()):
        self.folder, self.saved, self.arguments = folder, saved, saved.get("arguments") or {}
        export = saved["export"]
        self.max_length = self.arguments.get("max_length") or export.get("max_length")
        self.labels = export.get("labels")
        self.tokenizer = Tokenizer.load(folder)
        self.info = self.tokenizer.info
        self.prompts = prompts_of(self.arguments.get("prompts"), skippable=True)
        self.pads_left = self.info["padding_side"] == "left" and not self.splits
        self.programs = Programs(folder, export, threads)

    @functools.cached_property
    def reader(self) -> Tokenizer:
        """The tokenizer that reads the texts: with `lowercase`, in lower case."""
        return self.tokenizer.lower_casing if self.arguments.get("lowercase") else self.tokenizer

    # === Texts to rows ===

    def job(self, inputs: Sequence, truncate: bool = True, **options: Any) -> Job:
        """Encodes the inputs of a request.

        Args:
            inputs: a list with what the method of the task takes.
            truncate: whether texts that are too long are truncated. Otherwise, they are an error.
            **options: options of the method of the task.

        Raises:
            TooLong: if a text is too long, without `truncate`.
            ValueError: if an input or an option is invalid.
        """
        raise NotImplementedError

    def text_rows(self, texts: Sequence, truncate: bool, masks: bool = False) -> list[Row]:
        """Encodes texts or pairs as rows of at most `max_length` tokens, with the positions of masks if wanted."""
        texts = [self._cut(text) for text in texts]
        if not truncate:
            self._check_lengths(texts)
        if masks:
            return rows_of(*answers.encode_masks(self.reader, texts, self.max_length))
        return rows_of(encode_texts(self.reader, texts, self.max_length))

    def _cut(self, text: Any) -> Any:
        if self.max_length is None:
            return text
        if isinstance(text, str):
            return cut_text(text, self.max_length, self.count_tokens)
        return tuple(cut_text(part, self.max_length, self.count_tokens) for part in text)

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, without special tokens."""
        return len(self.reader.encode([text], add_special_tokens=False)[0])

    def _check_lengths(self, texts):
        if self.max_length is None:
            return
        parts = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        for number, pair in enumerate(parts):
            template = self.info["pair" if len(pair) == 2 else "single"]
            count = sum(map(self.count_tokens, pair)) + len(template) - len(pair)
            if count > self.max_length:
                raise TooLong(
                    f"A text may have at most {self.max_length} tokens. Received: at least {count}, as text {number}. "
                    "Shorten it, or allow that it is truncated."
                )

    # === Rows to outputs ===

    def compute(self, rows: Sequence[Row]) -> list[Any]:
        """Computes the outputs of rows together. Returns for each row an array, or a dict of several.

        With int8, rows are computed one after the other, which takes no longer: the largest activation of a batch says
        how all of them are rounded, so that an answer would depend on the other rows and on padding.
        """
        if self.saved["export"].get("quantized") and len(rows) > 1:
            return [self.compute([row])[0] for row in rows]
        found = self.programs.run("model", padded(rows, self.info["pad_id"] or 0, self.pads_left))
        outputs = []
        for number, row in enumerate(rows):
            of_row = {name: self._part(array[number], row) for name, array in found.items()}
            outputs.append(of_row if len(of_row) > 1 else next(iter(of_row.values())))
        return outputs

    def _part(self, output, row):
        """The outputs of a row, without those of padding; copied, so that the batch is not kept in memory."""
        if not self.per_token:
            return output.copy()
        output = output[len(output) - len(row) :] if self.pads_left else output[: len(row)]
        return (output if row.positions is None else output[row.positions]).copy()

    def answer(self, inputs: Sequence, batch_size: int = 32, **options: Any) -> Any:
        """Answers inputs: encodes them, and computes rows of similar length together.

        Args:
            inputs, **options: see `job`.
            batch_size: number of rows per batch, for rows of 64 tokens.
        """
        job = self.job(inputs, **options)
        outputs: list[Any] = [None] * len(job.rows)
        lengths = np.array([len(row) for row in job.rows], "int32")
        for examples, _, _ in batches_by_length(lengths, batch_size, exact=True):
            for number, output in zip(examples, self.compute([job.rows[i] for i in examples]), strict=True):
                outputs[number] = output
        return job.read(outputs)


class Embedder(ExportedModel):
    """The vectors of a `TextEmbedder`; answers are float32 (n, embedding_dim)."""

    does = "embed"

    def job(self, inputs, truncate=True, prompt=None):
        return Job(self.text_rows(self.prompted(inputs, prompt), truncate), np.stack)

    def prompted(self, texts: Sequence[str], prompt: str | None) -> list[str]:
        """The texts with a prompt before each; see `Embedder.embed`."""
        before = self.prompts.text(prompt)
        if before and not self.prompts.pooled:
            raise ValueError(
                "Prompts that are not pooled need the layers. Received: a prompt for an export. Load the model without "
                "`engine`."
            )
        return [before + text for text in texts]


class SparseEmbedder(Embedder):
    """The vectors of a `SparseEmbedder`; an answer is (token ids, weights) of the weights that are not 0."""

    def job(self, inputs, truncate=True, prompt=None):
        if (self.arguments.get("queries") or {}).get("default"):
            raise ValueError(
                "An export has the encoder of documents. Received: queries with weights of their own. Load the model "
                "without `engine`."
            )
        return Job(self.text_rows(self.prompted(inputs, prompt), truncate), list)

    def _part(self, output, row):
        ids = np.flatnonzero(output)
        return answers.largest_weights(ids, output[ids], self.arguments.get("max_active_dims"))


class Reranker(ExportedModel):
    """The scores of a `Reranker`; answers are float32 (n,), or (n, outputs) for several outputs."""

    does = "score"

    def job(self, inputs, truncate=True, prompt=None, activate=True):
        before = self.prompts.text(prompt)
        name = self.arguments.get("activation", "identity") if activate else "identity"

        def read(outputs):
            scores = activated(name, np.stack(outputs))
            return scores[:, 0] if len(self.labels or ()) == 1 else scores

        return Job(self.text_rows([(before + query, text) for query, text in inputs], truncate), read)


class Classifier(ExportedModel):
    """The answers of `TextClassifier.classify`, or without `activate`, {label: logit}."""

    does = "classify"

    def job(self, inputs, truncate=True, activate=True):
        labels, problem = self.labels or [], self.saved["export"]["problem"]

        def read(outputs):
            if activate:
                return answers.classified(np.stack(outputs), labels, problem)
            return [dict(zip(labels, output.tolist(), strict=True)) for output in outputs]

        return Job(self.text_rows(inputs, truncate), read)


class Tagger(ExportedModel):
    """The answers of `TokenClassifier.tag`."""

    does = "tag"
    per_token = splits = True

    def job(self, inputs, truncate=True):
        sentences = list(inputs)
        rows = TaggedRows(self.tokenizer, sentences, self.max_length)

        def read(outputs):
            return answers.tagged(rows, sentences, list(rows.read(_joined(outputs))), self.labels or [])

        return Job(rows_of(rows.x), read)


class QuestionAnswerer(ExportedModel):
    """The answers of `QuestionAnswerer.answer`: for each question a list of them, best first."""

    does = "answer"
    per_token = splits = True

    def job(self, inputs, truncate=True, n_best=1, null_threshold=None):
        lengths = [self.arguments[name] for name in ("max_length", "stride", "max_question_length")]
        rows = QuestionRows(self.tokenizer, list(inputs), *lengths)

        def read(outputs):
            start, end = (_joined([output[name] for output in outputs]) for name in ("start", "end"))
            return answers.answered(rows, start, end, n_best, null_threshold, self.arguments["max_answer_length"])

        return Job(rows_of(rows.x), read)


class MaskFiller(ExportedModel):
    """The answers of `MaskedLM.fill_mask`."""

    does = "fill_mask"
    per_token = True

    def job(self, inputs, truncate=True, top_k=5):
        rows = self.text_rows(inputs, truncate, masks=True)
        return Job(rows, lambda outputs: [answers.filled_masks(self.tokenizer, row, top_k) for row in outputs])

    def compute(self, rows):
        found = super().compute(rows)
        return [output["tokens"] if isinstance(output, dict) else output for output in found]

    def _part(self, output, row):
        return output if output.ndim == 1 else super()._part(output, row)  # of the pair of sentences


def _joined(outputs):
    """Pads outputs of rows with zeros, and joins them."""
    width = max(map(len, outputs))
    found = np.zeros((len(outputs), width, *outputs[0].shape[1:]), outputs[0].dtype)
    for number, output in enumerate(outputs):
        found[number, : len(output)] = output
    return found


# Class of a model -> the class that answers with its export.
CLASSES: dict[str, type[ExportedModel]] = {
    "TextClassifier": Classifier,
    "TokenClassifier": Tagger,
    "QuestionAnswerer": QuestionAnswerer,
    "TextEmbedder": Embedder,
    "SparseEmbedder": SparseEmbedder,
    "Reranker": Reranker,
    "MaskedLM": MaskFiller,
}


def is_export(folder: Path) -> bool:
    """Whether a folder is an export in ONNX of a model that `open_export` opens."""
    file = Path(folder) / "kerasbert.json"
    saved = read_json(file) if file.is_file() else {}
    export = saved.get("export")
    return isinstance(export, dict) and export.get("format") in ("onnx", "onnxruntime") and saved["class"] in CLASSES


def open_export(folder: Path, threads: Threads = Threads()) -> ExportedModel:
    """Opens an export in ONNX.

    Args:
        folder: the folder.
        threads: how ONNX Runtime uses cores.

    Raises: ValueError if the folder is no export in ONNX, or that of a model with other answers.
    """
    folder = Path(folder)
    file = folder / "kerasbert.json"
    saved = read_json(file) if file.is_file() else {}
    if not isinstance(saved.get("export"), dict):
        raise ValueError(f"An export must have an entry `export` in kerasbert.json. Received: {folder} without one.")
    if saved.get("class") not in CLASSES:
        raise ValueError(
            f"An export without Keras answers for {', '.join(CLASSES)}. Received: {folder}, the export of a "
            f"{shortened(saved.get('class'))}. Use kerasbert.load."
        )
    return CLASSES[saved["class"]](folder, saved, threads)
