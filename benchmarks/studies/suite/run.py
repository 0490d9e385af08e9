"""Evaluates a pretrained model on a suite of small tasks, with significance tests of all differences.

python -m benchmarks.studies.suite.run --model runs/mine/model --data datasets --text novels --output results

Its parts:

    minimal_pairs  acceptable and unacceptable sentences, in twenty paradigms of grammar
    cloze          one masked word in each of 200 held-out sentences
    vectors        correlation of the cosines of mean vectors with the similarity of sentences, without training
    wnut17         named entities; this task and all following ones with fine-tuning
    squad          answers to questions, in short contexts
    qnli           whether a sentence answers a question
    stsb           similarity of two sentences
    summaries      whether two sentences summarize the same paper
    reviews        whether a review is positive

Models are fine-tuned from their weights, from random weights of the same architecture, and from a reference. A seed
determines the examples, their order, the new head and the dropout. It is the same for all starting weights, so that
their scores can be compared in pairs. Every measurement is called a cell, and is a line of cells.jsonl. A cell that
already exists for the same weights and settings is not measured again, so an interrupted suite can resume, and several
models, processes and numbers of seeds can share a folder. suite.md is the table of the last command.

On one core, a model of 8 layers and 256 units takes about three hours, and one fine-tuning about three minutes.
"""

import functools
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

import kerasbert
from benchmarks.studies.suite.minimal_pairs import MinimalPair, generate
from benchmarks.studies.suite.ngram_model import Unigrams
from benchmarks.studies.suite.report import write_report
from benchmarks.studies.suite.scores import (
    BATCH_SIZE,
    ORDER,
    Start,
    TrainingText,
    cloze_scores,
    pair_scores,
    training_scores,
    unigram_cloze_scores,
    vector_scores,
)
from benchmarks.studies.suite.tasks import FINE_TUNING
from kerasbert.objectives import CausalLM, MaskedLM, Seq2SeqLM

HELD_OUT_TEXT = "pretraining/lm_en_valid.txt"  # one paragraph per line
FILES = {
    "minimal_pairs": (),
    "cloze": (HELD_OUT_TEXT,),
    "vectors": (FINE_TUNING["stsb"].files[1],),
    **{name: task.files for name, task in FINE_TUNING.items()},
}


@dataclass(frozen=True)
class SuiteOptions:
    """Options of a suite; see `run_suite`.

    Args:
        reference: folder of a model to compare with.
        seeds: seeds. For each of them, a model is trained once for each task and each set of starting weights.
        examples: maximum number of examples to train on.
        learning_rate: peak learning rate for all tasks.
        reference_learning_rate: the same for the reference, whose size may need another one. Default: `learning_rate`.
        epochs: passes over the training examples.
        dtype: dtype policy of the models that are fine-tuned, such as mixed_bfloat16. Default: that of their folder.
        parts: the parts to measure. Default: all parts for which there are data.
        pairs: number of minimal pairs per paradigm.
        sentences: number of cloze sentences.
    """

    reference: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    examples: int = 2_000
    learning_rate: float = 5e-4
    reference_learning_rate: float | None = None
    epochs: int = 4
    dtype: str | None = None
    parts: tuple[str, ...] = ()
    pairs: int = 200
    sentences: int = 200


@dataclass(frozen=True)
class Cell:
    """A measurement.

    Args:
        identity: everything that determines the result: the task, the starting weights, the seed, and settings.
        measure: function that returns the `scores`, in per cent, the `count` of examples, and other fields of the row.
    """

    identity: dict
    measure: Callable[[], dict]

    @property
    def name(self) -> str:
        return f"{self.identity['task']}, {self.identity['start']}, seed {self.identity['seed']}"


# === The suite ===


def run_suite(
    model: str,
    output: Path,
    data: Path | None = None,
    text: tuple[Path, ...] = (),
    options: SuiteOptions = SuiteOptions(),
) -> dict[str, float]:
    """Measures all cells of a suite that are not yet in `output`, and writes the table after each of them.

    Args:
        model: folder of an encoder or a causal language model.
        output: folder for cells.jsonl and suite.md.
        data: folder of the data sets, with the files of `FILES`. Default: only the minimal pairs are measured.
        text: text files, or folders of them, that the model was trained on.
        options: see `SuiteOptions`.

    Returns: {"task_start": mean of the first score of the task with these starting weights, in per cent}.
    """
    output = _checked_output(output)
    parts = _checked_parts(options, data)
    suite = Suite(model, data, TrainingText(text), options)
    cells = [cell for part in _in_order(parts, options) for cell in suite.cells(*part)]
    output.mkdir(parents=True, exist_ok=True)
    measured = Measured(output / "cells.jsonl")
    todo = [cell for cell in cells if cell.identity not in measured]
    print(f"{len(cells)} cells, {len(cells) - len(todo)} of which have already been measured")
    for number, cell in enumerate(todo, start=1):
        measured.read()
        if cell.identity in measured:  # by another process in the meantime
            continue
        begin = time.perf_counter()
        row = cell.measure()
        gc.collect()  # trained models contain reference cycles, and would otherwise accumulate in memory
        seconds = round(time.perf_counter() - begin, 1)
        measured.add({"cell": cell.identity, **row, "seconds": seconds})
        name, value = next(iter(row["scores"].items()))
        print(f"{number} of {len(todo)}: {cell.name}: {name} {value:.1f} ({seconds:.0f} s)", flush=True)
        write_report(output / "suite.md", model, measured.rows(cells), list(suite.left_out.values()))
    table = write_report(output / "suite.md", model, measured.rows(cells), list(suite.left_out.values()))
    print(table)
    return _means(measured.rows(cells))


def _checked_output(output: Path) -> Path:
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"`output` must be a folder for a suite. Received: {output}, a file.")
    return output


def _checked_parts(options: SuiteOptions, data: Path | None) -> tuple[str, ...]:
    """Returns the parts to measure, after checking that all of their files exist."""
    for name, number in (("examples", options.examples), ("seeds", len(options.seeds)), ("epochs", options.epochs)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {number}.")
    if options.reference_learning_rate is not None and options.reference is None:
        raise ValueError(
            "`reference_learning_rate` needs a `reference`. Received: "
            f"{options.reference_learning_rate:g} without one. Add --reference FOLDER, or use --learning-rate."
        )
    if len(set(options.seeds)) < len(options.seeds):
        raise ValueError(f"`seeds` must be different. Received: {', '.join(map(str, options.seeds))}.")
    unknown = [part for part in options.parts if part not in FILES]
    if unknown:
        raise ValueError(f"`parts` must be among {', '.join(FILES)}. Received: {', '.join(unknown)}.")
    parts = tuple(dict.fromkeys(options.parts)) or tuple(
        part for part, files in FILES.items() if data is not None or not files
    )
    if data is None and any(FILES[part] for part in parts):
        raise ValueError(
            f"Only {', '.join(part for part in FILES if not FILES[part])} can be measured without data sets. Received: "
            f"parts {', '.join(parts)} without `data`. Add --data FOLDER."
        )
    if data is not None and not data.is_dir():
        raise NotADirectoryError(f"`data` must be the folder of the data sets of a suite. Received: {data}.")
    missing = {part: [file for file in FILES[part] if not (data / file).is_file()] for part in parts if FILES[part]}
    missing = {part: files for part, files in missing.items() if files}
    if missing:
        names = ", ".join(dict.fromkeys(file for files in missing.values() for file in files))
        rest = " ".join(part for part in parts if part not in missing)
        raise FileNotFoundError(
            f"A suite needs the files of all its parts. Received: {data}, which lacks {names}, for "
            f"{', '.join(missing)}. Add them" + (f", or measure the other parts: --parts {rest}." if rest else ".")
        )
    return parts


class Measured:
    """The file of cells, JSON lines."""

    def __init__(self, path: Path):
        self.path, self._rows = path, {}
        self.read()

    def read(self) -> None:
        """Reads the file, which other processes may have written to."""
        path = self.path
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), start=1):
            try:
                row = json.loads(line)
                self._rows[_key(row["cell"])] = row
            except (ValueError, TypeError, KeyError):
                raise ValueError(
                    f"{path} must have the cells of a suite, one per line. Received, in line {number}: {line[:80]!r}. "
                    "Delete the line, so that the cell is measured again."
                ) from None

    def __contains__(self, identity: dict) -> bool:
        return _key(identity) in self._rows

    def add(self, row: dict) -> None:
        self._rows[_key(row["cell"])] = row
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self, cells: list[Cell]) -> list[dict]:
        """Returns the rows of the given cells that have been measured."""
        return [self._rows[_key(cell.identity)] for cell in cells if cell.identity in self]


def _key(identity: dict) -> str:
    return json.dumps(identity, sort_keys=True)


def _means(rows: list[dict]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for row in rows:
        name = f"{row['cell']['task']}_{row['cell']['start']}"
        values.setdefault(name, []).append(next(iter(row["scores"].values())))
    return {name: float(np.mean(found)) for name, found in values.items()}


# === Plan ===


class Suite:
    """The cells of a suite, and a list of what cannot be measured.

    Args:
        model: folder of the model.
        data: folder of the data sets, or None.
        text: the text that the model was trained on.
        options: see `SuiteOptions`.

    Attributes:
        left_out: the parts that models cannot be used for, with reasons. It is filled by `cells`.
    """

    def __init__(self, model: str, data: Path | None, text: TrainingText, options: SuiteOptions):
        self.data, self.text, self.options, self.left_out = data, text, options, {}
        pretrained = kerasbert.load(model)
        self.starts = [Start("pretrained", model, pretrained), Start("scratch", model, pretrained, load_weights=False)]
        if options.reference is not None:
            self.starts.append(Start("reference", options.reference, kerasbert.load(options.reference)))
        for start in self.starts:
            if isinstance(start.model, Seq2SeqLM):
                raise ValueError(
                    f"A suite evaluates encoders and causal language models. Received: {start.folder}, a Seq2SeqLM."
                )

    @functools.cached_property
    def pairs(self) -> list[MinimalPair]:
        return generate(self.text.counts, pairs=self.options.pairs)

    def cells(self, part: str, seed: int) -> Iterator[Cell]:
        """Returns the cells of a part. Cells that do not depend on a seed have seed 0."""
        if part == "minimal_pairs":
            yield from self._minimal_pairs()
        elif part == "cloze":
            yield from self._cloze()
        elif part == "vectors":
            task = FINE_TUNING["stsb"]
            for start in self.starts:
                measure = functools.partial(vector_scores, task, start, seed, self.data / task.files[1])
                yield Cell(dict(task=part, start=start.name, seed=seed, model=start.checksum), measure)
        else:
            yield from self._training(part, seed)

    def _fitting(self, part: str, fits: Callable[[Start], bool], need: str) -> list[Start]:
        """Returns the starts that can be used for a part. For others, the reason is added to `left_out`."""
        for start in self.starts:
            if start.load_weights and not fits(start):
                name = type(start.model).__name__
                self.left_out[part, start.name] = f"{part} of the {start.name} model, a {name}: needs {need}"
        return [start for start in self.starts if fits(start)]

    def _minimal_pairs(self) -> Iterator[Cell]:
        def is_judge(start):
            return start.load_weights and isinstance(start.model, MaskedLM | CausalLM)

        starts = self._fitting("minimal_pairs", is_judge, "a MaskedLM or a CausalLM")
        text = self.text
        identity = dict(task="minimal_pairs", seed=0, pairs=self.options.pairs, text=text.names)
        for start in starts:
            key = dict(identity, start=start.name, model=start.checksum)
            yield Cell(key, lambda start=start: pair_scores(start.model, self.pairs))
        if starts and text.sources:
            yield Cell(dict(identity, start="unigrams"), lambda: pair_scores(Unigrams(text.counts), self.pairs))
            yield Cell(dict(identity, start=f"{ORDER}-grams"), lambda: pair_scores(text.ngrams(), self.pairs))

    def _cloze(self) -> Iterator[Cell]:
        def is_filler(start):
            return start.load_weights and isinstance(start.model, MaskedLM)

        starts = self._fitting("cloze", is_filler, "a MaskedLM")
        arguments = (self.data / HELD_OUT_TEXT, self.options.sentences)
        for number, start in enumerate(starts):
            identity = dict(task="cloze", seed=0, sentences=self.options.sentences, model=start.checksum)
            yield Cell(dict(identity, start=start.name), functools.partial(cloze_scores, start.model, *arguments))
            if number == 0:
                measure = functools.partial(unigram_cloze_scores, start.model, *arguments, self.text)
                yield Cell(dict(identity, start="unigrams", text=self.text.names), measure)

    def _training(self, name: str, seed: int) -> Iterator[Cell]:
        task, options = FINE_TUNING[name], self.options
        count, epochs = options.examples, options.epochs
        constants = dict(examples=count, batch_size=BATCH_SIZE, epochs=epochs, length=task.length)
        constants |= {} if options.dtype is None else {"dtype": options.dtype}
        for start in self._fitting(name, lambda start: task.head in start.heads, f"a family with a {task.head} head"):
            rate = options.learning_rate
            if start.name == "reference":
                rate = options.reference_learning_rate or rate
            identity = dict(
                task=name, start=start.name, seed=seed, model=start.checksum, learning_rate=rate, **constants
            )
            settings = (count, rate, epochs, options.dtype)
            measure = functools.partial(training_scores, name, start, self.data, seed, *settings)
            yield Cell(identity, measure)


def _in_order(parts: tuple[str, ...], options: SuiteOptions) -> Iterator[tuple[str, int]]:
    """Orders (part, seed) so that a seed is complete before the next one. An unfinished suite has complete pairs."""
    yield from ((part, options.seeds[0]) for part in parts if part not in FINE_TUNING)
    yield from ((part, seed) for seed in options.seeds for part in parts if part in FINE_TUNING)


if __name__ == "__main__":
    tyro.cli(run_suite, config=(tyro.conf.OmitArgPrefixes,))
