"""A discriminator like ELECTRA's beside a detector that counts bigrams, on the samples of one frozen generator.

    KERAS_BACKEND=torch python -m benchmarks.studies.frozen_generator.run --corpus corpora/sentences \
        --held-out corpora/held_out --generator runs/decay/model

Both stages of the two in Clark et al. 2020 (arXiv 2003.10555, section 3.2): masked language modeling, and then a
discriminator that is trained on the samples of a frozen generator, and starts with weights of the first stage. The
generator of `rows.jsonl` is a BERT of the recipes `bert.mini_en` and `bert.mini_en_decay`. The
discriminators, one for each seed, start as `modernbert_mini_en`, which has read more. (In the paper, both
are the same network.)

The detector knows how often the generator writes a token, and how often a token stands beside its two neighbors in the
training text (`bars.bigram_scores`). Both are scored by the area under the ROC curve on the same held-out samples. A
t-test over the seeds decides whether the gain over the detector is above GOAL.

A run that is finished is a line of rows.jsonl, and the same command continues with the others.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from benchmarks.harness import append, machine
from benchmarks.significance import paired_t_test
from benchmarks.studies.tiny_recipes.measures import compare
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, Tokens
from kerasbert.models import ModernBert
from kerasbert.models.electra import ReplacedTokenHead
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection
from pipelines.recipes.data import ReplacedTokenData
from pipelines.recipes.recipe import Recipe, find_recipe
from pipelines.recipes.tiny import tiny_adam, tiny_phase
from pipelines.runs.building import make_batches, make_optimizer

RESULTS = Path(__file__).with_name("rows.jsonl")
GOAL = 0.03
START = Path(__file__).resolve().parents[3] / "saved_models/modernbert_mini_en"


def replaced_token_head(config, **common) -> ReplacedTokenHead:
    return ReplacedTokenHead(config.hidden_dim, config.head_activation, config.kernel_initializer(), **common)


class ModernElectra(ModernBert):
    """ModernBERT with the head of ELECTRA's discriminator."""

    family = dataclasses.replace(
        ModernBert.family, heads={**ModernBert.family.heads, "replaced_token": replaced_token_head}
    )


def recipe_of(seed: int, steps: int) -> Recipe:
    """ELECTRA's objective on rows like those of the generator: single sentences, packed."""
    data, optimizer = ReplacedTokenData("packed", Tokens(0.15, shares=(1.0, 0.0))), tiny_adam(5e-4, steps // 20)
    run = dict(phases=tiny_phase(steps), seed=seed, data=data, optimizer=optimizer)
    return dataclasses.replace(find_recipe("electra.tiny"), **run)


def make_trainer(generator: Path, start: Path, seed: int) -> ReplacedTokenDetection:
    """The objective that trains the encoder in `start`, with a new head, on the samples of the frozen generator."""
    seed_everything(seed)
    generator = MaskedLM.from_preset(generator, dtype="float32")
    discriminator = ModernElectra.from_preset(start, dtype="mixed_bfloat16")
    trainer = ReplacedTokenDetection(generator, discriminator, 1.0, embedding_sharing="none", seed=seed)
    trainer.generator.trainable = False
    return trainer


def run(recipe: Recipe, generator: Path, corpora: dict, held_out: dict) -> dict:
    """Trains one discriminator. Returns its area, those of the detectors, and the loss of the generator."""
    model = make_trainer(generator, START, recipe.seed)
    model.compile(make_optimizer(recipe))
    model.fit(make_batches(recipe, corpora), verbose=0)
    return areas(recipe, model, corpora, held_out)


def areas(recipe: Recipe, model: ReplacedTokenDetection, corpora: dict, held_out: dict) -> dict:
    """The areas of a discriminator and of the detectors on held-out samples, and the loss of the generator."""
    found = {one["what"]: one for one in compare(recipe, model, corpora, held_out)["measures"]}
    curve, loss = found["replaced tokens, AUC"], found["tokens, nats"]
    return {"auc": curve["value"], "bars": curve["bars"], "nats": loss["value"], "unigrams": loss["bars"]["unigrams"]}


def main(
    corpus: Path, held_out: Path, generator: Path, seeds: int = 5, steps: int = 2_000, results: Path = RESULTS
) -> None:
    """Trains what is not in the results, and prints the comparison.

    Args:
        corpus: a folder that `prepare_corpus` wrote with the tokenizer of `bert_mini_en`.
        held_out: the same for held-out text.
        generator: folder of a MaskedLM with this tokenizer.
        seeds: number of discriminators.
        steps: updates of each.
        results: file of the finished runs.
    """
    texts = [{"text": Corpus.open(folder)} for folder in (corpus, held_out)]
    print(verdict(finished(results, seeds, steps, lambda seed: run(recipe_of(seed, steps), generator, *texts))))


def finished(results: Path, seeds: int, steps: int, run: Callable[[int], dict], **setting: Any) -> list[dict]:
    """The rows of all seeds with a setting. Those that are not in the results are run, and appended."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    wanted = {"steps": steps, **setting}
    done = {row["seed"]: row for row in map(json.loads, lines) if wanted.items() <= row.items()}
    for seed in range(seeds):
        if seed not in done:
            begin = time.process_time()
            row = {"seed": seed, **wanted, **run(seed)}
            row |= {"seconds": round(time.process_time() - begin, 1), **machine()}
            append(results, [row])
            done[seed] = row
            print(json.dumps(row), flush=True)
    return [done[seed] for seed in range(seeds)]


def verdict(rows: list[dict]) -> str:
    """How the discriminators compare with the detector, and whether the gain is above GOAL."""
    areas, detector = [row["auc"] for row in rows], [row["bars"]["bigrams"] for row in rows]
    test = paired_t_test(areas, [area + GOAL for area in detector])
    met = "met" if test.mean > 0 and test.p < 0.05 else "not met"
    return (
        f"AUC {sum(areas) / len(rows):.4f}, bigram detector {sum(detector) / len(rows):.4f}, gain "
        f"{test.mean + GOAL:+.4f} ± {test.error:.4f}; a gain of {GOAL} is {met} (p = {test.p:.4f}, {len(rows)} seeds)"
    )


if __name__ == "__main__":
    tyro.cli(main)
