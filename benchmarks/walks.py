"""How far a reader walks through the source: the files that `pretrain`, `fit` and `load` visit, in order.

    KERAS_BACKEND=torch python -m benchmarks.walks              # a line for each walk
    KERAS_BACKEND=torch python -m benchmarks.walks --files      # and the files, with the functions that are read there

A walk is the first call of every function of `kerasbert/` and `pipelines/`, as a reader reads a function once. It
leaves out what is a subject of its own (data, layers, models, the backend), and what is called from deeper than DEPTHS:
the course of the work, and not what computes it. `load` goes deeper, because its first functions only hand over to each
other. A stay is a run of consecutive calls in one file. A return is a stay in a file that was left before.
"""

import argparse
import contextlib
import io
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = tuple(f"{ROOT / name}{os.sep}" for name in ("kerasbert", "pipelines"))
LEFT_OUT = tuple(f"{ROOT / 'kerasbert' / name}{os.sep}" for name in ("backend", "data", "layers", "models"))
DEPTHS = {"pretrain": 3, "fit": 3, "load": 8}  # functions of ours on the stack
WORDS = "the old cat dog hen cow saw met hid led by in a house tree garden".split()


def walk(function: Callable[[], object], depth: int) -> list[tuple[str, str]]:
    """Runs a function. Returns (file, function) of the calls that are followed, in order."""
    seen: set[CodeType] = set()
    found: list[tuple[str, str]] = []
    stack = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal stack
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(FOLDERS):
            return
        if event == "return":
            stack -= 1
            return
        stack += 1
        is_followed = stack <= depth and not code.co_filename.startswith(LEFT_OUT) and not code.co_name.startswith("<")
        if is_followed and code not in seen:
            seen.add(code)
            found.append((os.path.relpath(code.co_filename, ROOT), code.co_qualname))

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


def stays_of(calls: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """The stays of a walk: (file, functions that are read there)."""
    return [(file, [name for _, name in run]) for file, run in itertools.groupby(calls, key=lambda call: call[0])]


def returns_of(stays: list[tuple[str, list[str]]]) -> int:
    """The number of stays in files that were left before."""
    return len(stays) - len({file for file, _ in stays})


def walks(work: Path) -> dict[str, Callable[[], object]]:
    """{name: what is walked through}, on tiny data and models."""
    import kerasbert
    from kerasbert.data import Corpus, Tokenizer
    from kerasbert.models import Bert, BertConfig
    from kerasbert.tasks import TextClassifier
    from pipelines.pretrain import pretrain

    texts = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    tokenizer = Tokenizer.train("wordpiece", texts * 3, 60)
    Corpus.write(work / "corpus", ["\n".join(texts)] * 8, tokenizer)
    config = BertConfig(tokenizer.vocabulary_size, 1, 2, hidden_dim=16, feed_forward_dim=24, max_length=32)
    model = TextClassifier(Bert(config), labels=["a", "b"], tokenizer=tokenizer)
    model.save_to_preset(work / "model")
    return {
        "pretrain": lambda: pretrain(
            (str(work / "corpus"),), work / "run", "bert.tiny", set=("steps=2", "optimizer.schedule.warmup=1")
        ),
        "fit": lambda: model.fit(texts, ["a", "b"] * 8, batch_size=4, verbose=0),
        "load": lambda: kerasbert.load(work / "model"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="print the stays")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, function in walks(Path(folder)).items():
            with contextlib.redirect_stdout(io.StringIO()):
                stays = stays_of(walk(function, DEPTHS[name]))
            files = len({file for file, _ in stays})
            print(f"{name:9} {len(stays)} stays in {files} files, {returns_of(stays)} returns")
            for file, names in stays if options.files else ():
                print(f"    {file}: {', '.join(names)}")


if __name__ == "__main__":
    main()
