"""ELECTRA's discriminator beside a detector that counts bigrams, on the samples of one frozen generator.

    python benchmarks/frozen_generator.py --data ../shared/data

The two stages of Clark et al. 2020 (arXiv 2003.10555, section 3.2): a masked language model of 2 layers and 128 units
is trained, and then kept as the generator. Discriminators of the same shape are trained on its samples, one for each
seed, from the weights of the generator or from random weights. The detector knows how often the generator writes a
token, and how often a token stands beside its two neighbours in the training text (`bars.bigram_scores`). Both are
scored by the area under the ROC curve on the same held-out samples. The gain over the detector is tested against GOAL
by a t-test over the seeds.

A run that is finished is a line of frozen_generator.jsonl, and the same command continues with the others.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tyro  # noqa: E402

from benchmarks.harness import append, machine  # noqa: E402
from benchmarks.recipe_measures import compare  # noqa: E402
from benchmarks.recipe_texts import corpora_of  # noqa: E402
from kerasbert.backend import seed_everything  # noqa: E402
from kerasbert.objectives import Discriminator, MaskedLM, ReplacedTokenDetection  # noqa: E402
from pipelines.building import make_batches, make_model, make_optimizer  # noqa: E402
from pipelines.recipes.recipe import find_recipe  # noqa: E402
from pipelines.statistics import paired_t_test  # noqa: E402

RESULTS = Path(__file__).with_name("frozen_generator.jsonl")
GOAL = 0.03
STARTS = ("generator", "random")  # where the weights of the discriminator come from


def generator_recipe(steps: int):
    """A masked language model with the config of the discriminator of electra.tiny, and its share of masks."""
    electra = find_recipe("electra.tiny")
    same = {name: getattr(electra, name) for name in ("backbone", "config", "local_start", "schedule", "optimizer")}
    return replace(find_recipe("bert.tiny"), name="generator", steps=steps, objective_options={}, data={}, **same)


def trained_generator(folder: Path, steps: int, corpora: dict, held_out: dict) -> float:
    """Trains the generator, unless it is in the folder, and returns its loss on held-out text."""
    recipe = generator_recipe(steps)
    if folder.exists():
        model = MaskedLM.from_preset(folder)
    else:
        seed_everything(recipe.seed)
        model = make_model(recipe, next(iter(corpora.values())))
        model.compile(make_optimizer(recipe))
        model.fit(make_batches(recipe, corpora), verbose=0)
        model.save_to_preset(folder)
    found = compare(recipe, model, corpora, held_out)["measures"][0]
    print(f"generator: {found['value']:.3f} nats, unigrams {found['bars']['unigrams']:.3f}", flush=True)
    return found["gain"]


def run(start: str, seed: int, steps: int, folder: Path, corpora: dict, held_out: dict) -> dict:
    """Trains one discriminator; its area under the ROC curve, and that of the detector."""
    recipe = replace(find_recipe("electra.tiny"), steps=steps, seed=seed)
    seed_everything(seed)
    generator = MaskedLM.from_preset(folder)
    if start == "generator":
        discriminator = Discriminator.from_preset(folder)
    else:
        discriminator = make_model(recipe, next(iter(corpora.values()))).discriminator
    model = ReplacedTokenDetection(generator, discriminator, embedding_sharing="none", seed=seed)
    model.generator.trainable = False
    model.compile(make_optimizer(recipe))
    model.fit(make_batches(recipe, corpora), verbose=0)
    found = compare(recipe, model, corpora, held_out)["measures"]
    curve = next(one for one in found if one["what"] == "replaced tokens, AUC")
    return {"auc": curve["value"], "bars": curve["bars"]}


def main(
    data: Path,
    work: Path = Path("runs/frozen_generator"),
    seeds: int = 5,
    generator_steps: int = 1_500,
    steps: int = 2_000,
    results: Path = RESULTS,
) -> None:
    """Trains what is not in the results, and prints the comparison.

    Args:
        data: folder of the texts.
        work: folder for the corpora and the generator.
        seeds: discriminators from each start.
        generator_steps: updates of the generator.
        steps: updates of a discriminator.
        results: file of the finished runs.
    """
    corpora, held_out = corpora_of("electra.tiny", data, work / "corpora")
    gain = trained_generator(work / "generator", generator_steps, corpora, held_out)
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    done = {(row["start"], row["seed"], row["steps"]): row for row in map(json.loads, lines)}
    for seed in range(seeds):
        for start in STARTS:
            if (start, seed, steps) in done:
                continue
            begin = time.process_time()
            row = {"start": start, "seed": seed, "steps": steps, "generator_gain": gain}
            row |= run(start, seed, steps, work / "generator", corpora, held_out)
            row |= {"seconds": round(time.process_time() - begin, 1), **machine()}
            append(results, [row])
            done[start, seed, steps] = row
            print(json.dumps(row), flush=True)
    for start in STARTS:
        print(verdict(start, [done[start, seed, steps] for seed in range(seeds)]))


def verdict(start: str, rows: list[dict]) -> str:
    """How the discriminators compare with the detector, and whether the gain is above GOAL."""
    areas, detector = [row["auc"] for row in rows], [row["bars"]["bigrams"] for row in rows]
    test = paired_t_test(areas, [area + GOAL for area in detector])
    mean = sum(areas) / len(areas)
    met = "met" if test.mean > 0 and test.p < 0.05 else "not met"
    gain = f"{test.mean + GOAL:+.4f} +- {test.error:.4f}"
    return (
        f"from {start} weights: AUC {mean:.4f}, bigram detector {sum(detector) / len(rows):.4f}, gain {gain}; "
        f"a gain of {GOAL} is {met} (p = {test.p:.4f}, {len(rows)} seeds)"
    )


if __name__ == "__main__":
    tyro.cli(main)
