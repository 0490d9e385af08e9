"""Makes version_0_1: folders as version 0.1 wrote them, which later versions have to read.

Run on PyTorch: KERAS_BACKEND=torch python -m tests.goldens.make_version_0_1

For each family: a tokenizer, a corpus, the folder of an interrupted run (recipe, log, and the checkpoint of step 2 of
4), the model folder at the end of the same run, and that model as a .keras file.
"""

import contextlib
import random
import shutil
import tempfile
from pathlib import Path

import kerasbert
from kerasbert import __version__
from pipelines.prepare_corpus import prepare_corpus
from pipelines.pretrain import pretrain
from pipelines.train_tokenizer import train_tokenizer

FOLDER = Path(__file__).resolve().parent / "version_0_1"
SIZE = ("config.num_layers=1", "config.num_heads=2", "config.hidden_dim=8", "config.feed_forward_dim=12")
RUN = ("steps=4", "batch_size=2", "length=16", "schedule.warmup=1")
SETTINGS = {
    "bert.tiny": (*SIZE, "config.max_length=16", "data.dupe_factor=2"),
    "electra.tiny": (
        *SIZE,
        "config.max_length=16",
        "config.embedding_dim=8",
        *(f"generator_config.{setting.removeprefix('config.')}" for setting in SIZE),
        "generator_config.embedding_dim=8",
        "generator_config.max_length=16",
    ),
    "t5.tiny": SIZE,
    "xlnet.tiny": (
        *SIZE,
        "config.memory_length=8",
        "config.reuse_length=8",
        "data.reuse_length=8",
        "data.permutation_size=8",
        "data.max_predictions=4",
        "data.max_span=2",
    ),
}

TOKENIZERS = {
    "bert.tiny": dict(vocabulary_size=60, lowercase=True),
    "electra.tiny": dict(vocabulary_size=60, lowercase=True),
    "t5.tiny": dict(vocabulary_size=130, kind="unigram", family="t5"),  # of which 100 are sentinels
    "xlnet.tiny": dict(vocabulary_size=34, kind="unigram", family="xlnet"),
}
# A unigram vocabulary is cut down from the substrings of its text, which therefore has to have enough of them.
SYLLABLES = {"xlnet.tiny": ("ba", "ke", "lo", "mi", "nu", "sa", "te")}


def text(syllables: tuple[str, ...] = ()) -> str:
    """Twelve documents of three lines over 20 words, or over all words of two of the syllables."""
    words = ["the", "cat", "dog", "sat", "ran", "big", "red", "house"] + [f"word{i}" for i in range(12)]
    if syllables:
        words = [first + second for first in syllables for second in syllables]
    draw = random.Random(0)
    return "\n\n".join("\n".join(" ".join(draw.choices(words, k=6)) for _ in range(3)) for _ in range(12))


def make(name: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):  # corpus.json names its sources
        Path("text.txt").write_text(text(SYLLABLES.get(name, ())))
        train_tokenizer(["text.txt"], folder / "tokenizer", **TOKENIZERS[name])
        prepare_corpus(["text.txt"], folder / "tokenizer", folder / "corpus")
    run = folder / "run"
    pretrain(folder / "corpus", run, recipe=name, report_every=2, set=(*RUN, *SETTINGS[name]))
    shutil.move(run / "model", folder / "model")
    kerasbert.load(folder / "model").save(folder / "model.keras")
    for path in (*run.glob("checkpoints/step_00000004*"), *run.glob("curves.png")):
        path.unlink()


if __name__ == "__main__":
    assert __version__.startswith("0.1"), f"version {__version__} must not write the files of version 0.1"
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in SETTINGS:
        make(name, FOLDER / name.removesuffix(".tiny"))
