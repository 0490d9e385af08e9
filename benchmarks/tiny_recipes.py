"""Every tiny recipe on real text: what it learns, how fast, in how much memory.

    python benchmarks/tiny_recipes.py --data ../shared/data                    # all cells, one after the other
    python benchmarks/tiny_recipes.py --data ../shared/data --only electra.tiny xlnet.tiny
    python benchmarks/tiny_recipes.py --data ../shared/data --table            # writes tiny_recipes.md

A cell is one recipe, trained in a program of its own: a row of RESULTS, appended when it is finished; a cell that is
there is not run again, and one that was cut off continues from its checkpoint. Training text are English novels (and
German, French and parallel sentences for several languages; captions for translation), held-out text others.

Losses are measured so that they mean something: of tokens that the model was not shown (kept tokens, sentinels and the
special tokens around a text do not count), beside the loss of a model that knows how frequent tokens are, on the same
targets. Replaced tokens: area under the curve, and the cross-entropy beside the entropy of the share of replaced ones.
Sentence pairs: accuracy with its standard error.
"""

import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402
import tyro  # noqa: E402

import kerasbert  # noqa: E402
from kerasbert.data import Batches, Corpus, Tokenizer, parallel_documents, read_documents  # noqa: E402
from pipelines.building import evaluation_batches, make_model  # noqa: E402
from pipelines.pretrain import train  # noqa: E402
from pipelines.recipes.recipe import all_recipes, find_recipe  # noqa: E402

RESULTS = Path(__file__).with_name("tiny_recipes.jsonl")
SENTINELS = "<extra_id_"
VOCABULARY = 8_000
HELD_OUT_STEPS = 40

# Family -> (text, kind of tokenizer, family of its special tokens); otherwise English WordPiece.
TEXTS = {
    "albert": ("novels", "unigram", "albert"),  # of 4 MB it would learn the order of sentences by heart
    "camembert": ("french", "unigram", None),
    "gpt2": ("english", "byte_bpe", None),
    "mbert": ("languages", "wordpiece", None),
    "modernbert": ("english", "byte_bpe", None),
    "roberta": ("english", "byte_bpe", None),
    "seq2seq_attention": ("captions", "wordpiece", None),
    "t5": ("english", "unigram", "t5"),
    "transformer": ("captions", "wordpiece", None),
    "xlm": ("languages", "wordpiece", None),
    "xlm_roberta": ("languages", "unigram", None),
    "xlnet": ("english", "unigram", "xlnet"),
}
FILES = {
    "en": ("pretraining/lm_en_5mb.txt", "pretraining/lm_en_valid.txt"),
    "de": ("pretraining/lm_de_5mb.txt", None),
    "fr": ("pretraining/lm_fr_5mb.txt", None),
}
NOVELS = "pretraining/en_novels"
HELD_OUT_NOVELS = ("Chesterton_Thursday_1908", "Doyle_Hound_1902")  # what "en" is measured on
PAIRS = {"de-en": "parallel/tatoeba/tatoeba.deu-eng", "en-fr": "parallel/tatoeba/tatoeba.fra-eng"}
SPLITS = ("train", "val")  # of captions
SUFFIXES = {"de": "deu", "en": "eng", "fr": "fra"}


def tiny_recipes() -> list[str]:
    """Names of the twins; teachers are trained inside the cells that need them, and no tasks are among the texts."""
    runs = [name for name in all_recipes() if name.partition(".")[2].startswith("tiny") or name.endswith("_tiny")]
    return [name for name in runs if not name.endswith("teacher") and not find_recipe(name).unlabelled]


def main(
    data: Path,
    only: tuple[str, ...] = (),
    work: Path = Path("runs/tiny_recipes"),
    seconds: float | None = None,
    table: bool = False,
    cell: str = "",
    set: tuple[str, ...] = (),
) -> None:
    """Runs cells, and writes the table.

    Args:
        data: folder of the texts.
        only: recipes; default: all.
        work: folder for corpora and runs.
        seconds: stop a cell after so long, to see that it works; nothing is recorded then.
        table: only write it.
        cell: the one recipe that this program is to run.
        set: changes of the recipe.
    """
    if cell:
        row = run_cell(cell, data, work, list(set))
        with open(RESULTS, "a") as file:
            file.write(json.dumps(row) + "\n")
        return
    done = {(row["recipe"], tuple(row["set"])) for row in rows()}
    for name in () if table else only or tiny_recipes():
        if (name, set) in done:
            continue
        command = [sys.executable, __file__, "--data", str(data), "--work", str(work), "--cell", name]
        try:
            subprocess.run([*command, *(["--set", *set] if set else [])], timeout=seconds, check=True)
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {seconds:.0f} seconds")
        except subprocess.CalledProcessError as error:
            print(f"{name}: failed ({error.returncode})")
    print(write_table())


def rows() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_cell(name: str, data: Path, work: Path, settings: list[str]) -> dict:
    """Trains a recipe and measures it before and after."""
    import keras  # behind kerasbert, which picks the backend

    recipe = find_recipe(name).with_settings(settings)
    corpora, unseen = texts_of(name, data, work)
    run = work / "-".join([name, *settings]).replace("/", "_")
    before = {}
    if not recipe.teacher and not recipe.init_from:
        model = make_model(recipe, next(iter(corpora.values())))
        model.compile("sgd")  # to evaluate
        before = measure(recipe, model, corpora, unseen)
    clock = time.perf_counter()
    last = train(recipe, corpora, run, unseen, held_out_steps=HELD_OUT_STEPS, report_every=500)
    seconds = time.perf_counter() - clock

    model = kerasbert.load(run / "model")  # of a teacher and its student, the student
    model.compile("sgd")  # to evaluate
    return {
        "recipe": name,
        "set": settings,
        "backend": keras.backend.backend(),
        "cores": len(os.sched_getaffinity(0)),
        "weights": model.backbone.count_params(),
        "steps": last["step"],
        "start": before,
        "end": measure(recipe, model, corpora, unseen, on_training_text=True),
        "held_out": measure(recipe, model, corpora, unseen),
        "tokens_per_second": last.get("tokens_per_second"),
        "seconds": round(seconds, 1),
        "peak_mib": peak_mib(),
        "last": last,
    }


def peak_mib() -> int:
    """Most memory of this program; `getrusage` would begin with that of the program which started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024)


# === Text ===


def texts_of(name: str, data: Path, work: Path) -> tuple[dict[str, Corpus], dict[str, Corpus]]:
    """Corpora for training and for measuring, written the first time."""
    text, kind, special = TEXTS.get(name.partition(".")[0], ("english", "wordpiece", None))
    folder = work / "corpora" / f"{text}-{kind}-{special}"
    documents = parts_of(text, data)
    if not (folder / "finished").exists():
        whole = itertools.chain.from_iterable(training for training, _ in documents.values())
        tokenizer = Tokenizer.train(kind, whole, VOCABULARY, lowercase=kind == "wordpiece", family=special)
        for part, (training, held_out) in documents.items():
            for split, found in (("train", training), ("held_out", held_out)):
                if found and not (folder / split / part / "corpus.json").exists():
                    Corpus.write(folder / split / part, found, tokenizer)
        (folder / "finished").touch()
    wanted = [part for part in documents if "-" not in part or find_recipe(name).pairs or text == "captions"]
    splits = [{part: folder / split / part for part in wanted} for split in ("train", "held_out")]
    opened = [{part: Corpus.open(path) for part, path in split.items() if path.is_dir()} for split in splits]
    return opened[0], opened[1]


def parts_of(text: str, data: Path) -> dict[str, tuple[list[str], list[str]]]:
    """(documents to train on, held-out documents) of each corpus."""
    if text == "captions":
        folder = data / "parallel" / "multi30k"
        sides = [[(folder / f"{split}.{end}").read_text().splitlines() for end in ("de", "en")] for split in SPLITS]
        training, held_out = (list(parallel_documents(*side)) for side in sides)
        return {"de-en": (training, held_out)}
    if text == "novels":
        texts = sorted((data / NOVELS).glob("*.txt"))[::2]
        texts = [path for path in texts if path.stem not in HELD_OUT_NOVELS]
        return {"en": (list(read_documents(texts)), list(read_documents(data / FILES["en"][1])))}
    languages = {"english": ["en"], "french": ["fr"], "languages": ["de", "en", "fr"]}[text]
    parts = {}
    for language in languages:
        training, held_out = FILES[language]
        found = list(read_documents(data / training))
        if held_out is None:  # the last twentieth of the text, in documents that are enough for random pairs
            lines = [line for document in found for line in document.splitlines()]
            chapters = ["\n".join(lines[start : start + 100]) for start in range(0, len(lines), 100)]
            cut = len(chapters) * 19 // 20
            parts[language] = (chapters[:cut], chapters[cut:])
        else:
            parts[language] = (found, list(read_documents(data / held_out)))
    if text == "languages":
        for pair, prefix in PAIRS.items():
            sides = [(data / f"{prefix}.{SUFFIXES[end]}").read_text().splitlines() for end in pair.split("-")]
            parts[pair] = (list(parallel_documents(*sides)), [])
    return parts


# === Measures ===


class Unseen(Batches):
    """Batches whose weights are 0 where the target was shown, is a sentinel, or ends a text.

    Args:
        batches: of any objective.
        skipped: ids that are no text.
    """

    def __init__(self, batches: Batches, skipped: list[int]):
        super().__init__(batches.batch_size, len(batches), batches.seed)
        self.batches, self.length, self.skipped = batches, batches.length, skipped

    def __getitem__(self, step: int) -> tuple:
        x, y, weights = self.batches[step + self._start]
        targets, used = (value["tokens"] if isinstance(value, dict) else value for value in (y, weights))
        if targets.ndim == 2:
            used = used * ~np.isin(targets, self.skipped) * ~self._shown(x, targets)
        return x, y, {**weights, "tokens": used} if isinstance(weights, dict) else used

    def _shown(self, x: dict, targets: np.ndarray) -> np.ndarray:
        ids, slots = x["token_ids"], x.get("masked_positions")
        if "query_ranks" in x:  # the content stream reads the real tokens, the query stream predicts
            return np.zeros(targets.shape, bool)
        if slots is not None:
            return np.take_along_axis(ids, np.maximum(slots, 0), axis=1) == targets
        copies = getattr(self.batches, "objective", None) in ("bert", "mass")
        if not copies:
            return np.zeros(targets.shape, bool)
        width = min(ids.shape[1], targets.shape[1])
        return np.pad(ids[:, :width] == targets[:, :width], [(0, 0), (0, targets.shape[1] - width)])


def measure(recipe, model, corpora: dict[str, Corpus], unseen: dict[str, Corpus], on_training_text=False) -> dict:
    """Metrics on held-out batches, or on some of the training text, and what they are to be compared with."""
    found = corpora if on_training_text else unseen
    found = {name: text for name, text in found.items() if len(found) == 1 or "-" not in name}
    batches = evaluation_batches(recipe, found, HELD_OUT_STEPS)
    tokenizer = next(iter(corpora.values())).tokenizer()
    skipped = [i for i, token in enumerate(tokenizer.tokens) if token.startswith(SENTINELS)]
    ids = (tokenizer.facts[f"{role}_id"] for role in ("bos", "cls", "eos", "sep", "pad"))
    skipped += [i for i in ids if i is not None]
    batches = batches if recipe.objective in ("SkipGram", "BidirectionalLM") else Unseen(batches, skipped)
    metrics = {name: float(value) for name, value in model.evaluate(batches, verbose=0, return_dict=True).items()}
    if recipe.objective == "SkipGram":
        return metrics
    if "perplexity" in metrics:
        metrics["token_loss"] = math.log(metrics["perplexity"])
    elif "mlm_loss" in metrics:
        metrics["token_loss"] = metrics["mlm_loss"]
    metrics["unigram_loss"] = unigram_loss(batches, corpora)
    if "replaced_rate" in metrics:
        p = metrics["replaced_rate"]
        metrics["base_rate_entropy"] = -p * math.log(p) - (1 - p) * math.log(1 - p)
    if "sentence_pair_accuracy" in metrics:
        pairs = sum(float(weights["sentence_pair"].sum()) for _, _, weights in batches)
        p = metrics["sentence_pair_accuracy"]
        metrics["sentence_pair_error"] = math.sqrt(p * (1 - p) / pairs)
    return metrics


def unigram_loss(batches: Batches, corpora: dict[str, Corpus]) -> float:
    """Nats of the same targets for a model that knows how often each token is in the training text.

    Where rare tokens are chosen more often than others, targets are as frequent as a power of that: the best counts.
    """
    size = next(iter(corpora.values())).facts["vocabulary_size"]
    counts = sum(np.pad(c, (0, size - len(c))) for c in (text.counts() for text in corpora.values())) + 1.0
    used = np.zeros(size)  # how often each token is a target
    for _, y, weights in batches:
        targets, weights = map(_of_tokens, (y, weights))
        np.add.at(used, targets.ravel(), weights.ravel())
    shares = (counts**power / (counts**power).sum() for power in (1.0, 0.7, 0.5, 0.3))
    return min(-float(used @ np.log(share)) for share in shares) / max(float(used.sum()), 1.0)


def _of_tokens(value) -> np.ndarray:
    """Targets or weights of tokens, of both directions where there are two."""
    if not isinstance(value, dict):
        return value
    return value["tokens"] if "tokens" in value else np.concatenate(list(value.values()))


# === The table ===


def write_table() -> str:
    """Writes `RESULTS`.md, the table of all cells, and returns it."""
    columns = ("recipe", "start", "end", "held out", "unigrams", "further, held out", "tokens/s", "MiB", "minutes")
    lines = [
        "# The tiny recipes on real text",
        "",
        "One core each, by `tiny_recipes.py`. Nats of the tokens that were not shown: before training, at its end on",
        "text that was trained on, on held-out text, and of a model that knows the frequencies of held-out targets.",
        "`pairs`: accuracy of next sentence or sentence order, with its standard error. `replaced`: area under the",
        "curve, and the cross-entropy beside the entropy of the share. Tokens a second with padding; peak memory of",
        "the process.",
        "",
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
    ]
    for row in sorted(rows(), key=lambda row: row["recipe"]):
        held = row["held_out"]
        further = []
        if "rtd_auc" in held:
            losses = f"{held['rtd_loss']:.3f} of {held['base_rate_entropy']:.3f} nats"
            further.append(f"replaced {held['rtd_auc']:.3f}, {losses}")
        if "sentence_pair_accuracy" in held:
            further.append(f"pairs {held['sentence_pair_accuracy']:.3f} +- {held['sentence_pair_error']:.3f}")
        numbers = [part.get("token_loss", part.get("loss")) for part in (row["start"], row["end"], held)]
        numbers.append(held.get("unigram_loss"))
        cells = [row["recipe"], *("" if number is None else f"{number:.3f}" for number in numbers), "; ".join(further)]
        cells += [f"{row['tokens_per_second'] or 0:,.0f}", f"{row['peak_mib']:,}", f"{row['seconds'] / 60:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines) + "\n"
    RESULTS.with_suffix(".md").write_text(text)
    return text


if __name__ == "__main__":
    tyro.cli(main)
