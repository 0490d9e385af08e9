"""Objectives of pretraining side by side, at equal compute: small models, the papers' questions.

    python benchmarks/study.py train --data ../shared/data                     # every cell that is not there yet
    python benchmarks/study.py train --data ../shared/data --only "MLM" "ELECTRA" --seeds 0
    python benchmarks/study.py plot                                            # study.png and study.md

Every model has 2 layers of width 128 (an encoder-decoder 2 and 2, ELECTRA a generator of half the width besides), a
vocabulary of 2,000 and rows of 64 tokens of English novels, and is pretrained with the same number of floating-point
operations of matrix products, BUDGET, gradients included. That is what equal compute means here, not equal seconds:
operations do not depend on what else the machine does, and a cell can be repeated. (An objective that predicts every
token pays for its output layer: at this width that is a third of its compute, in a base model a tenth.)

Two measures are the same for all of them, both of frozen vectors of all layers, by a linear map that has one solution:
`signs`, how much it explains of which sign stood between two neighbouring words of a text without signs, and `reviews`,
its accuracy on sentences of film reviews (a sentence as a whole). Of an encoder-decoder the encoder is measured.
Directions are compared after fine-tuning, too, with and without a BiLSTM on top; masked language models by their
held-out loss as well, all on the same kind of masks.

A cell is one setting and one seed, less than three minutes on one core; its row is appended to RESULTS once it is
finished, and a cell that is there is not run again.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tyro  # noqa: E402

from benchmarks.study_parts import SENTINELS, VOCABULARY, corpora, fine_tuned, part_of, reviews, signs, training_flops
from benchmarks.study_report import report  # noqa: E402
from kerasbert.backend import seed_everything  # noqa: E402
from pipelines.building import evaluation_batches, make_batches, make_model, make_optimizer  # noqa: E402
from pipelines.recipes.recipe import find_recipe  # noqa: E402

RESULTS = Path(__file__).with_name("study.jsonl")
WORK = Path("runs/study")
BUDGET = 1.6e12
SIZE = VOCABULARY + SENTINELS
NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)


def base(name: str, steps_like: str = "bert.tiny", **changes):
    """A recipe of this study: a tiny recipe without dropout, with the ids behind the vocabulary."""
    recipe = find_recipe(steps_like)
    dropout = dict(dropout=0.0) if steps_like.startswith("t5") else NO_DROPOUT
    config = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, vocabulary_size=SIZE)
    config = {**recipe.config, **config, **dropout}
    numbers = dict(name=name, batch_size=16, length=64, held_out={}, config=config)
    return replace(recipe, **{**numbers, **changes})


# === Settings: what is trained, and on how much text ===

MASKS = dict(mask_rate=0.15)
SENTINEL_IDS = tuple(range(SIZE - 1, VOCABULARY - 1, -1))
PAIRS = dict(objective_options=dict(sentence_pair=True))


def masked(**data):
    held_out = {**({"static_masks": False} if "static_masks" in data else {})}
    return lambda: base("masked", objective_options={}, data={**MASKS, **data}, held_out=held_out)


def paired(rows: str):
    return lambda: base("paired", data=dict(MASKS, rows=rows), **PAIRS)


def spans(scheme: str, boundary: bool = False):
    def recipe():
        numbers = dict(objective="SpanBoundary") if boundary else dict(objective="MaskedLM", objective_options={})
        data = dict(scheme="pieces" if scheme == "names" else scheme, boundary=boundary, whole_sentences=False)
        return base("spans", "spanbert.tiny", **numbers, data=data, held_out=dict(scheme="pieces", phrases=None))

    return recipe


def electra():
    generator = {**find_recipe("electra.tiny").generator_config, "vocabulary_size": SIZE, **NO_DROPOUT}
    return base("electra", "electra.tiny", generator_config=generator)


def denoised(objective: str = "random_spans", **data):
    def recipe():
        data_ = dict(objective=objective, sentinels=SENTINEL_IDS, **data)
        return base("denoised", "t5.tiny", data=data_)

    return recipe


def left_to_right():
    return base("left_to_right", "gpt.tiny")


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
    "masks of pieces": spans("pieces"),
    "masks of words": spans("words"),
    "masks of names": spans("names"),
    "masks of spans": spans("spans"),
    "masks of spans, SBO": spans("spans", boundary=True),
    "ELECTRA, 1/4 compute": electra,
    "ELECTRA, 2x compute": electra,
    "MLM, 1/4 compute": masked(),
    "MLM, 2x compute": masked(),
    "one static mask, 16 passes": masked(static_masks=True, dupe_factor=1),
    "dynamic masks, 16 passes": masked(),
    "T5, rate 10%": denoised(rate=0.10),
    "T5, rate 25%": denoised(rate=0.25),
    "T5, rate 50%": denoised(rate=0.50),
    "T5, 4 passes": denoised(),
    "T5, 64 passes": denoised(),
}
DIRECTIONS = ("MLM", "left to right")
COMPUTE = {"1/4 compute": 0.25, "2x compute": 2.0}


# === Cells ===


def cell(name: str, seed: int, data: Path) -> dict:
    """One setting with one seed; its row of RESULTS."""
    begin = time.process_time()
    training, held_out, names = corpora(data, WORK / "corpus")
    recipe, text = replace(SETTINGS[name](), seed=seed), training
    if name == "masks of names":
        recipe.data["phrases"] = names
    ending = name.rpartition(", ")[2]
    budget = BUDGET * COMPUTE.get(ending, 1.0)
    once = flops_of(recipe, make_batches(replace(recipe, steps=1, schedule={"peak": 1.0, "warmup": 0}), training)[0])
    steps = 0 if name.startswith("no pretraining") else max(1, round(budget / once))
    if ending.endswith(" passes"):
        tokens = steps * recipe.batch_size * recipe.length
        text = part_of(training, tokens / int(ending.split()[0]), data, WORK / "corpus")
    seed_everything(seed)
    recipe = replace(recipe, steps=max(1, steps), schedule={**recipe.schedule, "warmup": max(1, steps // 10)})
    model = make_model(recipe, training)
    model.compile(make_optimizer(recipe))
    if steps:
        model.fit(make_batches(recipe, text), verbose=0)
    trained = time.process_time() - begin
    arguments = model.evaluate(evaluation_batches(recipe, held_out, 30), verbose=0, return_dict=True)
    leads = recipe.backbone.startswith(("bert", "electra"))
    both = (training, held_out)
    measures = {"signs": signs(model.backbone, both, leads)}
    measures["reviews"] = reviews(model.backbone, data, training.tokenizer(), leads)
    for recurrent in (False, True) if name in DIRECTIONS else ():
        measures["fine-tuned, BiLSTM" if recurrent else "fine-tuned"] = fine_tuned(
            model.backbone, both, leads, seed, recurrent
        )
    return {
        "cell": f"{name}, seed {seed}",
        "setting": name,
        "seed": seed,
        "steps": steps,
        "teraflops": round(steps * once / 1e12, 3),
        "tokens": steps * recipe.batch_size * recipe.length,
        **{key: round(value, 4) for key, value in measures.items()},
        "held_out": {key: round(float(value), 4) for key, value in arguments.items()},
        "pretraining_seconds": round(trained, 1),
        "seconds": round(time.process_time() - begin, 1),
    }


def flops_of(recipe, batch: tuple) -> float:
    config = recipe.backbone_config()
    if recipe.objective == "SpanBoundary":
        return training_flops(config, batch, outputs=2)
    return training_flops(config, batch, recipe.backbone_config(recipe.generator) if recipe.generator else None)


def rows() -> dict[str, dict]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["cell"]: row for row in map(json.loads, lines)}


def train(data: Path, only: tuple[str, ...] = tuple(SETTINGS), seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    """Runs cells, all settings with the first seed, then with the next.

    Args:
        data: folder of the texts.
        only: settings.
        seeds: of weights, order and noise.
    """
    for seed in seeds:
        for name in only:
            if f"{name}, seed {seed}" in rows():
                continue
            row = cell(name, seed, data)
            with open(RESULTS, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def plot() -> None:
    """Draws study.png and writes study.md from the cells that are there."""
    for path in report(list(rows().values()), RESULTS.with_suffix("")):
        print(path)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "plot": plot})
