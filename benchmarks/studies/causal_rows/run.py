"""GPT-BERT's objective against masked language modeling alone, at equal compute.

    python -m benchmarks.studies.causal_rows.run --text novels.txt --held-out other_novels.txt

In the batches of GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159), some rows are causal and the others have
masks. The question is whether the causal rows make the model better at filling in masks. A cell is a share of causal
rows and a seed: GPT-BERT's network with 2 layers of width 128 and a vocabulary of 2,000, trained with `--updates`
batches of 16 rows of 64 tokens, in which 30 to 15% of the tokens are masked. A causal row has 20 targets, for which a
row with masks has room, too. All batches therefore have the same shape, and all cells the same number of operations.
The measure is the loss on held-out text with masks of 15%, the same in all cells.

A finished cell is a row of `rows.jsonl`. The same command continues with the others, and prints the comparison.
"""

import dataclasses
import json
import math
import time
from pathlib import Path

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import tyro

from benchmarks.harness import append, machine
from benchmarks.significance import holm, mean_and_error, paired_t_test
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus, RateSchedule, Tokenizer, TokenSpans, read_documents
from pipelines.recipes.data import HybridLMData
from pipelines.recipes.recipe import Recipe, find_recipe
from pipelines.runs.building import evaluation_batches, make_batches, make_model, make_optimizer

RESULTS = Path(__file__).with_name("rows.jsonl")
SHARES = (0.0, 1 / 16)  # of causal rows: none, and as in the paper
VOCABULARY = 2_000
BATCHES = 60  # of held-out text


def recipe_of(share: float, seed: int, updates: int, tokenizer: Tokenizer) -> Recipe:
    recipe = find_recipe("gpt_bert.tiny")
    first = 1 + max(tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id)  # after special tokens
    noise = RateSchedule(TokenSpans(0.3, random_from=first), final=0.15)
    data = HybridLMData("packed", noise, causal_share=share, causal_targets=20)
    recipe = dataclasses.replace(recipe, data=data, seed=seed)
    return recipe.with_settings([f"steps={updates}", f"warmup={updates // 10}"])


def run(recipe: Recipe, training: Corpus, held_out: Corpus) -> dict:
    """Trains a model. Returns its loss on held-out masks in nats a token."""
    seed_everything(recipe.seed)
    model = make_model(recipe, training)
    model.compile(make_optimizer(recipe))
    model.fit(make_batches(recipe, training), verbose=0)
    only_masks = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, causal_share=0.0), seed=0)
    found = model.evaluate(evaluation_batches(only_masks, held_out, BATCHES), verbose=0, return_dict=True)
    return {name: float(value) for name, value in found.items()}


def main(text: Path, held_out: Path, seeds: int = 5, updates: int = 1_000, results: Path = RESULTS) -> None:
    """Trains what is not in the results, and prints the comparison.

    Args:
        text: file or folder of the text to train on.
        held_out: of the text to measure on.
        seeds: number of models of each share.
        updates: of each.
        results: file of the rows.
    """
    documents = list(read_documents(text))
    tokenizer = Tokenizer.train("wordpiece", documents, VOCABULARY, lowercase=True)
    corpora = [Corpus.in_memory(found, tokenizer) for found in (documents, list(read_documents(held_out)))]
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    done = {(row["share"], row["seed"], row["updates"]): row for row in map(json.loads, lines)}
    for seed in range(seeds):
        for share in SHARES:
            if (share, seed, updates) in done:
                continue
            begin = time.process_time()
            row = {"share": share, "seed": seed, "updates": updates, "tokens": updates * 16 * 64}
            row |= run(recipe_of(share, seed, updates, tokenizer), *corpora)
            row |= {"seconds": round(time.process_time() - begin), **machine()}
            append(results, [row])
            done[share, seed, updates] = row
            print(json.dumps(row), flush=True)
    print(comparison([done[share, seed, updates] for share in SHARES for seed in range(seeds)]))


def comparison(rows: list[dict]) -> str:
    """The losses of each share, and the differences from no causal rows: paired t-tests with Holm's correction."""
    losses = {share: [math.log(row["perplexity"]) for row in rows if row["share"] == share] for share in SHARES}
    tests = {share: paired_t_test(losses[share], losses[SHARES[0]]) for share in SHARES[1:]}
    p_values = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    lines = []
    for share in SHARES:
        mean, error = mean_and_error(losses[share])
        lines.append(f"{share:.0%} causal rows: {mean:.3f} ± {error:.3f} nats a masked token")
        if share in tests:
            lines[-1] += f", {tests[share].mean:+.3f} ± {tests[share].error:.3f} (p = {p_values[share]:.4f})"
    return "\n".join(lines)


if __name__ == "__main__":
    tyro.cli(main)
