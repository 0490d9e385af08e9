"""A 4-layer, 256-wide BERT on 4 MB of English novels: which settings leave the plateau first, and what it is worth.

    python -m benchmarks.studies.english_bert.run settings --text lm_en_5mb.txt --held-out lm_en_valid.txt
    python -m benchmarks.studies.english_bert.run long --text lm_en_5mb.txt --held-out lm_en_valid.txt --minutes 20
    python -m benchmarks.studies.english_bert.run reviews --reviews movie_reviews.latin1.txt

Every masked language model first learns how frequent words are, and to copy the tenth of the targets that is shown: it
rests at nine tenths of the entropy of words (the plateau). What it gains below comes from context. Relative positions
leave the plateau first: DeBERTa's and ModernBERT's are the last of the settings, the very last one a small model for
`finetuning/run.py`. `settings` trains each row of SETTINGS for the same time, `long` one of them for longer, `reviews`
fine-tunes the result and the same model from scratch, three seeds each. Every training is a cell: its row is appended
to RESULTS once it is finished, a cell that is there is not run again, and a cell that was cut off continues from its
checkpoint.
"""

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import tyro

from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, Tokenizer, read_documents
from kerasbert.tasks import TextClassifier
from kerasbert.training import Progress, adamw, read_log
from pipelines.pretrain import train
from pipelines.recipes.data import MaskedLMData
from pipelines.recipes.models import Pretraining
from pipelines.recipes.recipe import Evaluation, Recipe
from pipelines.recipes.tiny import tiny_adam, tiny_phase
from pipelines.runs.building import make_batches, make_model, make_optimizer

RESULTS = Path(__file__).with_name("rows.jsonl")
RUNS = Path("runs/english_bert")
VOCABULARY = 8_000
SHOWN = 0.1  # of the targets, by BERT's rule

NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)

BASE = Recipe(
    "base",
    Pretraining("bert_mini", NO_DROPOUT),
    MaskedLMData(),
    tiny_phase(1_000, 16, 128),
    tiny_adam(1e-3, 100),
    held_out=Evaluation(data={"noise.rate": 0.15}),
)
EIGHT_ROWS = ("batch_size=8",)
# DeBERTa of the same size.
RELATIVE = {
    **NO_DROPOUT,
    **dict(num_layers=4, hidden_dim=256, num_heads=4, feed_forward_dim=1_024, mask_decoder=True),
    "initializer_range": 0.06,
}
# ModernBERT of the same size.
ROTARY = {
    **dict(num_layers=4, hidden_dim=256, num_heads=4, feed_forward_dim=704),
    "attention_output_dropout": 0.0,
}
# 0.02 suits a width of 768.
TWO_LAYERS = {
    **dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=352),
    **dict(attention_output_dropout=0.0, initializer_range=0.08),
}


def sized(size: str, config: dict) -> tuple[str, ...]:
    """Settings for a model of another size, or with another config."""
    return (f"model.size={size}", "model.config={}", *(f"model.{name}={value}" for name, value in config.items()))


# Settings of the recipe. Each is evaluated by BERT's rule, 15% of the tokens, whatever it trains on.
SETTINGS = {
    "base": (),
    "8 rows": EIGHT_ROWS,
    "16 rows of 64": ("length=64",),
    "8 rows, 30% masks": (*EIGHT_ROWS, "data.noise.rate=0.3"),
    "8 rows, rate 5e-4": (*EIGHT_ROWS, "learning_rate=5e-4"),
    "8 rows, rate 2e-3": (*EIGHT_ROWS, "learning_rate=2e-3"),
    "8 rows, rate 2e-3, 40% masks": (*EIGHT_ROWS, "learning_rate=2e-3", "data.noise.rate=0.4"),
    "8 rows, initializer 0.06, rate 3e-3": (*EIGHT_ROWS, "learning_rate=3e-3", "model.initializer_range=0.06"),
    "8 rows, rate 1e-4": (*EIGHT_ROWS, "learning_rate=1e-4"),
    "8 rows, dropout 0.1": (*EIGHT_ROWS, "model.config={}"),
    "relative positions, 8 rows": (*EIGHT_ROWS, *sized("deberta_base", RELATIVE)),
    "rotary positions, 8 rows, 30% masks": (
        *EIGHT_ROWS,
        *sized("modernbert_base", ROTARY),
        *("data.noise.rate=0.3", "learning_rate=2e-3", "warmup=200"),
    ),
    "rotary positions, 2 layers of 128, initializer 0.08": (
        *sized("modernbert_base", TWO_LAYERS),
        *("length=64", "data.noise.rate=0.3", "learning_rate=3e-3"),
    ),
}


def corpora(text: Path, held_out: Path, folder: Path) -> tuple[Corpus, Corpus]:
    """The two corpora, made once; the tokenizer is trained on the first alone."""
    if not (folder / "held_out" / "corpus.json").exists():
        tokenizer = Tokenizer.train("wordpiece", read_documents(text), vocabulary_size=VOCABULARY, lowercase=True)
        Corpus.write(folder / "text", read_documents(text), tokenizer)
        Corpus.write(folder / "held_out", read_documents(held_out), tokenizer)
    return Corpus.open(folder / "text"), Corpus.open(folder / "held_out")


def steps_in(minutes: float, recipe, corpus: Corpus) -> int:
    """How many steps of a recipe this machine does in that time, a multiple of 10; measured on 12 of them."""
    seed_everything(0)
    model = make_model(recipe, corpus)
    model.compile(make_optimizer(recipe))
    batches, times = make_batches(recipe, corpus), []
    for step in range(13):
        start = time.perf_counter()
        model.train_on_batch(*batches[step])
        times.append(time.perf_counter() - start)
    return max(10, int(minutes * 60 / np.median(times[1:])) // 10 * 10)


def cell(name: str, minutes: float, text: Path, held_out: Path, runs: Path = RUNS) -> dict:
    """One pretraining, in a folder of `runs`; its row of RESULTS."""
    key = f"{name}, {minutes:g} minutes" + ("" if runs == RUNS else f", {runs.name}")
    if row := finished().get(key):
        return row
    corpus, unseen = corpora(text, held_out, runs / "corpus")
    run = runs / folder_of(key)
    recipe = BASE.with_settings(list(SETTINGS[name]))
    plan = run / "steps.json"
    if not plan.exists():
        run.mkdir(parents=True, exist_ok=True)
        plan.write_text(json.dumps(steps_in(minutes, recipe, corpus)))
    steps = json.loads(plan.read_text())
    recipe = replace(recipe.with_settings([f"steps={steps}"]), name=key)
    train(recipe, corpus, run, unseen, held_out_steps=40, report_every=steps // 10)
    curve = [
        [
            round(row["seconds"]),
            row["step"],
            round(float(np.log(row["val_perplexity"])), 3),
            round(row["val_accuracy"], 3),
        ]
        for row in read_log(run)
    ]
    tokens = read_log(run)[-1]["tokens"]
    plateau = (1 - SHOWN) * corpus.unigram_loss(unseen)
    return finish(
        cell=key,
        unigram_entropy=round(unseen.unigram_entropy(), 3),
        unigram_loss=round(corpus.unigram_loss(unseen), 3),
        steps=steps,
        tokens=tokens,
        tokens_per_second=round(tokens / curve[-1][0]),
        curve=curve,
        below=round(corpus.unigram_loss(unseen) - curve[-1][2], 3),
        left_plateau=next((s for s, _, loss, _ in curve if loss < plateau - 0.1), None),
    )


def folder_of(key: str) -> str:
    return key.replace(" ", "_").replace(",", "").replace("%", "")


def finished() -> dict:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def finish(**row) -> dict:
    with open(RESULTS, "a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def settings(text: Path, held_out: Path, minutes: float = 4.0, only: tuple[str, ...] = tuple(SETTINGS)) -> None:
    """Trains every setting for the same time and prints where each one stands."""
    rows = [cell(name, minutes, text, held_out) for name in only]
    for row in sorted(rows, key=lambda row: -row["below"]):
        left = f"plateau left at {row['left_plateau']} s" if row["left_plateau"] else "on the plateau"
        print(f"{row['cell']:32} {row['steps']:6,} steps  {row['below']:+.3f} nats  {left}")


def long(text: Path, held_out: Path, minutes: float = 20.0, name: str = "base") -> None:
    """Trains one setting for longer and prints its held-out loss every tenth of the time."""
    row = cell(name, minutes, text, held_out)
    print(f"unigram entropy of the held-out text: {row['unigram_entropy']} nats; its loss under the unigrams of the")
    print(f"training text: {row['unigram_loss']} nats; the plateau is nine tenths of it")
    for seconds, step, loss, accuracy in row["curve"]:
        below = row["unigram_loss"] - loss
        print(f"{seconds / 60:5.1f} min  step {step:6,}  loss {loss:.3f}  {below:.3f} below  {accuracy:.1%}")


def reviews(
    reviews: Path, minutes: float = 20.0, name: str = "base", examples: int = 3_000, epochs: int = 2, seeds: int = 3
) -> None:
    """Fine-tunes on labeled sentences, from the long run and from scratch; the last 1,000 by hash are held out."""
    lines = set(reviews.read_text("latin-1").splitlines())
    lines = sorted(lines, key=lambda line: hashlib.sha256(line.encode()).digest())
    labeled = [(line[2:], int(line[0])) for line in lines if line[:2] in ("0 ", "1 ")]
    training, testing = labeled[:-1_000][:examples], labeled[-1_000:]
    run = RUNS / folder_of(f"{name}, {minutes:g} minutes")
    for start in ("pretrained", "from scratch"):
        for seed in range(seeds):
            key = f"reviews, {start}, {name}, {minutes:g} minutes, seed {seed}"
            if key in finished():
                continue
            seed_everything(seed)
            model = TextClassifier.from_preset(
                run / "model", start == "pretrained", labels=2, max_length=48, classifier_dropout=0.1
            )
            steps = -(-len(training) // 32) * epochs
            model.compile(adamw(3e-4, warmup=steps // 10, steps=steps))
            begin = time.perf_counter()
            model.fit(*zip(*training, strict=True), epochs=epochs, seed=seed, callbacks=[Progress(quiet=True)])
            texts, labels = zip(*testing, strict=True)
            right = model.predict(texts, verbose=0).argmax(-1) == np.array(labels)
            finish(
                cell=key,
                examples=len(training),
                epochs=epochs,
                accuracy=float(right.mean()),
                seconds=round(time.perf_counter() - begin),
            )
    rows = finished()
    for start in ("pretrained", "from scratch"):
        found = [r["accuracy"] for key, r in rows.items() if key.startswith(f"reviews, {start}, {name}, {minutes:g}")]
        print(f"{start:13} {np.mean(found):.3f} ± {np.std(found):.3f} over {len(found)} seeds")


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"settings": settings, "long": long, "reviews": reviews})
