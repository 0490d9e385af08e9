"""Pretrains a small BERT on Python's own documentation for a few minutes, and writes its checkpoint in pieces.

    benchmarks/devices/gpu_check.sh pretrain

The run is that of `pipelines.pretrain`: a repeated command continues it. The pieces of its last checkpoint are written
to the folder `pieces` beside the results, with their checksums, and the command that joins them is printed.
"""

import argparse
import dataclasses
import os
import sys
import tarfile
import time
from pathlib import Path

from benchmarks.devices.parts import FAILED, UNFINISHED
from benchmarks.devices.pieces import how_to_join, split
from benchmarks.devices.results import Results, device_name

SECONDS = 350  # of the whole command
AFTERWARDS = 45  # seconds that are kept for the last checkpoint, the model and the pieces
NAME = "checkpoint.tar"
LEAST_GAIN = 0.5  # nats per token below the unigram entropy after a whole run; on the plateau, it is 0


def recipe_of(tiny: bool):
    """BERT-mini with the settings of the quickstart, in bfloat16 and with the dropout of the paper."""
    from pipelines.quickstart import RECIPE
    from pipelines.recipes.data import Phase
    from pipelines.recipes.models import Pretraining

    recipe = dataclasses.replace(RECIPE, name="gpu_check")
    if tiny:
        return _of_phase(recipe, Phase(12, batch_size=4, length=32))
    config = dict(max_length=128, dropout=0.1, attention_dropout=0.1, initializer_range=0.05)
    recipe = dataclasses.replace(recipe, model=Pretraining("bert_mini", config), dtype="mixed_bfloat16")
    return _of_phase(recipe, Phase(6_000, batch_size=256, length=128))


def _of_phase(recipe, phase):
    """The recipe with one phase, whose schedule has a peak of 1e-3 and a warm-up of a twelfth of its updates."""
    settings = ["learning_rate=1e-3", f"warmup={phase.steps // 12}"]
    return dataclasses.replace(recipe, phases=(phase,)).with_settings(settings)


def corpora(folder: Path, vocabulary: int, documents: int | None):
    """Returns (corpus, held-out corpus) of Python's documentation. An earlier command's are opened."""
    from kerasbert.data import Corpus, Tokenizer
    from pipelines.quickstart import modules
    from pipelines.reading.standard_library import docstrings, held_out_modules, paragraphs, topics

    paths = folder / "corpus", folder / "held_out"
    if (folder / "written").exists():
        return tuple(map(Corpus.open, paths))
    found = docstrings()
    hidden = held_out_modules(found)
    seen = [*modules([d for d in found if d.module not in hidden]), *map(paragraphs, topics())][:documents]
    held_out = modules([d for d in found if d.module in hidden])[:documents]
    tokenizer = Tokenizer.train("wordpiece", seen, vocabulary_size=vocabulary, lowercase=True)
    texts = Corpus.write(paths[0], seen, tokenizer, sources=["docstrings and topics of Python"])
    unseen = Corpus.write(paths[1], held_out, tokenizer)
    (folder / "written").touch()
    return texts, unseen


def pretrain(folder: Path, minutes: float, tiny: bool) -> tuple[bool, str, dict]:
    """Runs the recipe until it is finished or the time is up, and compares the loss with the unigram entropy."""
    from kerasbert.training import StopRequest
    from pipelines.pretrain import train

    request, recipe = StopRequest(minutes), recipe_of(tiny)
    corpus, unseen = corpora(folder, 500 if tiny else 4_000, 20 if tiny else None)
    every = recipe.steps // (2 if tiny else 6)
    start = time.perf_counter()
    last = train(recipe, corpus, folder / "run", unseen, held_out_steps=4, report_every=every, keep=1, request=request)
    seconds = time.perf_counter() - start
    log = {key: value for key, value in last.items() if isinstance(value, (int, float))}
    step = int(log.get("step", 0))
    tokens = step * recipe.phases[0].batch_size * recipe.phases[0].length
    gain = log.get("below_unigram")
    whole = step == recipe.steps
    right = gain is not None and (tiny or not whole or gain >= LEAST_GAIN)
    text = f"step {step} of {recipe.steps}, {tokens:,} tokens, {seconds:.0f} s in this command; held-out text "
    text += "was not evaluated" if gain is None else f"{gain:.2f} nats per token below its unigram entropy"
    return right, text, {"log": log, "whole": whole}


def write_pieces(run: Path, folder: Path) -> tuple[bool, str, dict]:
    """Writes the newest checkpoint of a run in pieces."""
    files = sorted((run / "checkpoints").glob("step_*"))
    if not files:
        return False, "the run has no checkpoint", {}
    packed = run / NAME
    with tarfile.open(packed, "w") as file:
        for path in files:
            if path.stem == files[-1].stem:
                file.add(path, arcname=path.name)
    pieces = split(packed, folder)
    size = packed.stat().st_size
    packed.unlink()
    return True, f"{size / 1e6:.1f} MB in {len(pieces)} pieces; to join them: {how_to_join(NAME)}", {"bytes": size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for the results, the run and the pieces")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--tiny", action="store_true", help="sizes for trying the script on a CPU")
    options = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "jax")
    end = time.monotonic() + options.seconds
    device = device_name()
    name = f"pretrain{'_tiny' if options.tiny else ''}"
    work = options.folder / name
    work.mkdir(parents=True, exist_ok=True)
    print(f"{device}; results and run in {options.folder}", flush=True)
    results = Results(options.folder / f"{name}.jsonl", device)
    minutes = max(1.0, end - time.monotonic() - AFTERWARDS) / 60
    found = []
    for cell, function in (
        ("pretraining", lambda: pretrain(work, minutes, options.tiny)),
        ("pieces", lambda: write_pieces(work / "run", options.folder / "pieces")),
    ):
        try:
            found.append(function())
        except Exception as error:
            found.append((False, f"{type(error).__name__}: {error}"[:1_000], {}))
        results.add(cell, found[-1][0], found[-1][1], **found[-1][2])
    if not all(right for right, *_ in found):
        return FAILED
    return 0 if found[0][2]["whole"] else UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
