"""Objectives of pretraining side by side, at equal compute: small models, the papers' questions.

    python -m benchmarks.studies.objectives.run train --data data  # every cell that is not there yet
    python -m benchmarks.studies.objectives.run train --data data --only "MLM" "ELECTRA" --seeds 0
    python -m benchmarks.studies.objectives.run decide --data data  # fresh seeds for claims that are undecided
    python -m benchmarks.studies.objectives.run budget --data data  # updates, tokens, operations and hours
    python -m benchmarks.studies.objectives.run plot  # report.png and report.md

Every model has 2 layers of width 128 (an encoder-decoder 2 and 2, ELECTRA a generator of one layer in addition), a
vocabulary of 2,000 and rows of 64 tokens of English novels. All are pretrained with the same number of floating-point
operations of matrix products, BUDGET, including the gradients. Equal compute does not mean equal seconds here: the
number of operations does not depend on what else the machine does, so cells can be repeated. (An objective that
predicts every token pays for its output layer. At this width that is a third of its compute, in a base model a tenth.)
Models with learned positions start with local attention, without which they stay at token frequencies in runs of this
length (plateau.md).

Two measures are the same for all models, both on frozen vectors of all layers: `signs`, the share of the variance of
the signs between neighboring words that a linear map of the vectors explains, in a text without signs; and
`similarity`, the correlation of the cosines of mean vectors with the similarity of sentences. For an encoder-decoder,
its encoder is measured. Directions are also compared after fine-tuning, with and without a BiLSTM on top, and masked
language models by their held-out loss on the same kind of masks.

A cell is one setting and one seed, and takes less than four minutes on one core. Its row is appended to RESULTS when it
is finished, and a cell with a row is not run again. `budget` shows the cost of all cells before they are run. The rows
of `decide` are in FRESH.
"""

import json
import time
from dataclasses import replace
from pathlib import Path

import tyro

from benchmarks.studies.objectives import replication
from benchmarks.studies.objectives.parts import (
    SENTINELS,
    VOCABULARY,
    corpora,
    fine_tuned,
    part_of,
    sign_baselines,
    signs,
    similarity,
    training_flops,
)
from benchmarks.studies.objectives.report import report
from kerasbert.backend import seed_everything
from kerasbert.data import Denoising, Spans
from pipelines.recipes.data import DenoisingData, MaskedLMData, SpanMaskData
from pipelines.recipes.models import MaskedLM, SpanBoundary
from pipelines.recipes.recipe import Evaluation, find_recipe
from pipelines.recipes.tiny import LOCAL_START_TO_THE_LEFT, tiny_phase
from pipelines.runs.building import evaluation_batches, make_batches, make_model, make_optimizer

RESULTS = Path(__file__).with_name("rows.jsonl")
FRESH = Path(__file__).with_name("fresh_rows.jsonl")
WORK = Path("runs/study")
BUDGET = 1.2e13
SIZE = VOCABULARY + SENTINELS
NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)


def base(name: str, steps_like: str = "bert.tiny", **changes):
    """A recipe of this study: a tiny recipe without dropout, with the ids behind the vocabulary."""
    recipe = find_recipe(steps_like)
    dropout = dict(dropout=0.0) if steps_like.startswith("t5") else NO_DROPOUT
    sizes = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, vocabulary_size=SIZE)
    model = replace(recipe.model, config={**recipe.model.config, **sizes, **dropout})
    return replace(recipe, **{"name": name, "phases": tiny_phase(), "model": model, **changes})


# === Settings: what is trained, and on how much text ===

SENTINEL_IDS = tuple(range(SIZE - 1, VOCABULARY - 1, -1))


def masked(static_masks: int = 0):
    held_out = Evaluation(data={"static_masks": 0})
    return lambda: base("masked", data=MaskedLMData(static_masks=static_masks), held_out=held_out)


def paired(rows: str):
    return lambda: base("paired", data=MaskedLMData(rows))


def spans(noise: Spans, boundary: bool = False):
    def recipe():
        held_out = Evaluation(data={"noise.longest": 1, "noise.words": False})
        recipe = base("spans", "spanbert.tiny", held_out=held_out)
        model = recipe.model if boundary else replace(recipe.model, objective=MaskedLM())
        return replace(recipe, model=model, data=SpanMaskData("chunks", noise, boundary))

    return recipe


def electra():
    recipe = base("electra", "electra.tiny")
    objective = recipe.model.objective
    config = {**objective.generator.config, "vocabulary_size": SIZE, **NO_DROPOUT}
    objective = replace(objective, generator=replace(objective.generator, config=config))
    return replace(recipe, model=replace(recipe.model, objective=objective))


def denoised(objective: str = "random_spans", rate: float = 0.15):
    data = DenoisingData(Denoising(objective, rate, sentinels=SENTINEL_IDS))
    return lambda: base("denoised", "t5.tiny", data=data)


def left_to_right():
    recipe = base("left_to_right", "gpt.tiny")
    return replace(recipe, model=replace(recipe.model, start=LOCAL_START_TO_THE_LEFT))


SETTINGS = {
    "no pretraining, encoder": masked(),
    "no pretraining, encoder-decoder": denoised(),
    "MLM": masked(),
    "ELECTRA": electra,
    "T5 prefix LM": denoised("prefix_lm"),
    "T5 BERT-style": denoised("bert"),
    "T5 MASS-style": denoised("mass"),
    "T5 deshuffling": denoised("deshuffling"),
    "T5 replace spans": denoised("replace_spans"),
    "T5 drop tokens": denoised("drop_tokens"),
    "T5 random spans": denoised(),
    "left to right": left_to_right,
    "NSP": paired("segment_pairs"),
    "SOP": paired("sentence_order"),
    "masks of pieces": spans(Spans(longest=1, words=False)),
    "masks of words": spans(Spans(longest=1)),
    "masks of spans": spans(Spans()),
    "masks of spans, SBO": spans(Spans(), boundary=True),
    "ELECTRA, 1/4 compute": electra,
    "ELECTRA, 2x compute": electra,
    "MLM, 1/4 compute": masked(),
    "MLM, 2x compute": masked(),
    "one static mask, 16 passes": masked(static_masks=1),
    "dynamic masks, 16 passes": masked(),
    "T5, rate 10%": denoised(rate=0.10),
    "T5, rate 50%": denoised(rate=0.50),
    "T5, 64 passes": denoised(),
}
BASELINE = "no pretraining, encoder"
FINE_TUNED = ("MLM", "left to right", BASELINE)
COMPUTE = {"1/4 compute": 0.25, "2x compute": 2.0}


# === Cells ===


def cell(name: str, seed: int, data: Path) -> dict:
    """One setting with one seed; its row of RESULTS."""
    begin = time.process_time()
    training, held_out = corpora(data, WORK / "corpus")
    recipe, text = replace(SETTINGS[name](), seed=seed), training
    steps, once = steps_of(name, recipe, training)
    ending = name.rpartition(", ")[2]
    if ending.endswith(" passes"):
        tokens = steps * recipe.phases[0].batch_size * recipe.phases[0].length
        text = part_of(training, tokens / int(ending.split()[0]), data, WORK / "corpus")
    seed_everything(seed)
    recipe = recipe.with_settings([f"steps={max(1, steps)}", f"warmup={max(1, steps // 10)}"])
    model = make_model(recipe, training)
    model.compile(make_optimizer(recipe))
    if steps:
        model.fit(make_batches(recipe, text), verbose=0)
    trained = time.process_time() - begin
    arguments = model.evaluate(evaluation_batches(recipe, held_out, 30), verbose=0, return_dict=True)
    leads = recipe.model.size.startswith(("bert", "electra"))
    both = (training, held_out)
    measures = {"signs": signs(model.backbone, both, leads)}
    measures["similarity"] = similarity(model.backbone, data, training.tokenizer(), leads)
    for recurrent in (False, True) if name in FINE_TUNED else ():
        measures["fine-tuned, BiLSTM" if recurrent else "fine-tuned"] = fine_tuned(
            model.backbone, both, leads, seed, recurrent
        )
    baselines = {"baselines": sign_baselines(both)} if name == BASELINE else {}
    return {
        "cell": f"{name}, seed {seed}",
        "setting": name,
        "seed": seed,
        "steps": steps,
        "teraflops": round(steps * once / 1e12, 3),
        "tokens": steps * recipe.phases[0].batch_size * recipe.phases[0].length,
        **{key: round(value, 4) for key, value in measures.items()},
        **baselines,
        "held_out": {key: round(float(value), 4) for key, value in arguments.items()},
        "pretraining_seconds": round(trained, 1),
        "seconds": round(time.process_time() - begin, 1),
    }


def steps_of(name: str, recipe, training) -> tuple[int, float]:
    """The number of updates of a setting, and the floating-point operations of one."""
    once = flops_of(recipe, make_batches(recipe, training)[0])
    if name.startswith("no pretraining"):
        return 0, once
    return max(1, round(BUDGET * COMPUTE.get(name.rpartition(", ")[2], 1.0) / once)), once


def flops_of(recipe, batch: tuple) -> float:
    config, generator = recipe.config(), getattr(recipe.model.objective, "generator", None)
    if isinstance(recipe.model.objective, SpanBoundary):
        return training_flops(config, batch, outputs=2)
    return training_flops(config, batch, generator.made_config() if generator else None)


def rows(results: Path = RESULTS) -> dict[str, dict]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def train(data: Path, only: tuple[str, ...] = tuple(SETTINGS), seeds: tuple[int, ...] = (0, 1, 2, 3, 4)) -> None:
    """Runs cells, all settings with the first seed, then with the next.

    Args:
        data: folder of the texts.
        only: settings.
        seeds: of weights, order and noise.
    """
    run_cells([(name, seed) for seed in seeds for name in only], data, RESULTS)


def decide(data: Path) -> None:
    """Runs fresh seeds for the undecided claims that take the fewest minutes (`replication.py`).

    Args:
        data: folder of the texts.
    """
    run_cells(replication.cells(list(rows().values())), data, FRESH)


def run_cells(cells: list[tuple[str, int]], data: Path, results: Path) -> None:
    """Runs the (setting, seed) that have no row yet, and appends their rows."""
    for name, seed in cells:
        if f"{name}, seed {seed}" in rows(results):
            continue
        row = cell(name, seed, data)
        with open(results, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def budget(data: Path, seeds: int = 5, gigaflops: float = 100.0, measuring: float = 30.0) -> None:
    """Prints what all cells cost, as a table in Markdown.

    Args:
        data: folder of the texts.
        seeds: number of seeds.
        gigaflops: operations of training per second of one core, in billions.
        measuring: seconds of a cell that are not training.
    """
    training, _ = corpora(data, WORK / "corpus")
    print("| setting | updates | tokens | operations | minutes of a seed |\n|---|---|---|---|---|")
    total = 0.0
    for name, make in SETTINGS.items():
        recipe = make()
        steps, once = steps_of(name, recipe, training)
        minutes = (steps * once / gigaflops / 1e9 + measuring) / 60
        total += minutes
        tokens = steps * recipe.phases[0].batch_size * recipe.phases[0].length
        print(f"| {name} | {steps:,} | {tokens:,} | {steps * once:.1e} | {minutes:.1f} |")
    print(f"\n{len(SETTINGS) * seeds} cells, {total * seeds / 60:.1f} hours of one core.")


def plot() -> None:
    """Draws report.png and writes report.md from the cells that are there."""
    measured = list(rows().values())
    ending = replication.section(measured, list(rows(FRESH).values()))
    for path in report(measured, RESULTS.with_name("report"), ending):
        print(path)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "decide": decide, "budget": budget, "plot": plot})
