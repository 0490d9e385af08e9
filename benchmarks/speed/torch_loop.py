"""Trains a BERT of 4 layers and 256 units by `fit`, and by a plain torch loop over transformers with the same batches.

    KERAS_BACKEND=jax python -m benchmarks.speed.torch_loop --corpus corpora/sentences --held-out corpora/held_out

Both models start from the same weights and see the same masked rows in the same order, with the same schedule of the
learning rate, AdamW and clipping; there is no dropout. A seed changes the weights, the order of the rows and the masks.
At the end, the loss is measured on the same held-out batches. Hours are processor time. A measurement that is done is a
line of the results, and the same command goes on with the others; the last lines that it prints are the means.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import append, machine

SETTINGS = ("batch_size=8", "length=64", "optimizer.schedule.final=0.0", "model.max_length=64")
HELD_OUT = 400  # batches
CONTENDERS = ("kerasbert", "torch loop")


def recipe_of(seed: int, steps: int):
    from pipelines.recipes.recipe import find_recipe

    return find_recipe("bert.mini_en").with_settings([*SETTINGS, f"steps={steps}", f"seed={seed}"])


def kerasbert(model, recipe, batches, held_out) -> dict:
    """Trains with `fit`."""
    from pipelines.runs.building import make_optimizer

    model.compile(optimizer=make_optimizer(recipe))
    begin = time.process_time()
    model.fit(batches, verbose=0)
    seconds = time.process_time() - begin
    found = model.evaluate(held_out, verbose=0, return_dict=True)
    return {"loss": math.log(found["perplexity"]), "seconds": seconds}


def torch_loop(model, recipe, batches, held_out) -> dict:
    """Trains the same weights in torch."""
    import torch
    from transformers import BertForMaskedLM

    torch.manual_seed(recipe.seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        peer = BertForMaskedLM.from_pretrained(folder)
    numbers, schedule = recipe.optimizer, recipe.optimizer.schedule(recipe.steps)
    decayed = [weight for weight in peer.parameters() if weight.ndim > 1]
    others = [weight for weight in peer.parameters() if weight.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": numbers.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=0.0,
        betas=(numbers.beta_1, numbers.beta_2),
        eps=numbers.epsilon,
        fused=True,
    )

    def loss_of(batch):
        x, targets, weights = batch
        ids = torch.tensor(x["token_ids"]).long()
        sequences = torch.tensor(x["sequence_ids"])
        visible = (sequences[:, :, None] == sequences[:, None])[:, None]  # a token attends to those of its own sequence
        labels = np.full(ids.shape, -100)
        rows, slots = np.nonzero(weights)
        labels[rows, x["masked_positions"][rows, slots]] = targets[rows, slots]
        places = torch.tensor(x["position_ids"]).long()
        return peer(ids, visible, position_ids=places, labels=torch.tensor(labels)).loss, len(rows)

    rates = [float(schedule(step)) for step in range(recipe.steps)]
    begin = time.process_time()
    peer.train()
    for step in range(recipe.steps):
        loss, _ = loss_of(batches[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), numbers.global_clipnorm)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.process_time() - begin
    peer.eval()
    with torch.no_grad():
        found = [(float(loss), count) for loss, count in (loss_of(held_out[i]) for i in range(len(held_out)))]
    return {"loss": sum(loss * n for loss, n in found) / sum(n for _, n in found), "seconds": seconds}


def measure(options: argparse.Namespace) -> dict:
    """One run, in this process."""
    from kerasbert.backend import seed_everything
    from kerasbert.data import Corpus
    from pipelines.runs.building import evaluation_batches, make_batches, make_model, unigram_loss

    recipe = recipe_of(options.seed, options.steps)
    corpus, unseen = Corpus.open(options.corpus), Corpus.open(options.held_out)
    seed_everything(recipe.seed)
    model = make_model(recipe, corpus)
    batches, held_out = make_batches(recipe, corpus), evaluation_batches(recipe, unseen, HELD_OUT)
    train = kerasbert if options.contender == "kerasbert" else torch_loop
    found = train(model, recipe, batches, held_out)
    unigrams = unigram_loss({"text": corpus}, {"text": unseen})
    return {**found, "unigrams": unigrams, "backend": machine()["backend"]}


def key(row: dict) -> tuple:
    return row["contender"], row["seed"], row["steps"], row["corpus"]


def report(rows: list[dict], seeds: int) -> None:
    losses = {}
    for contender in CONTENDERS:
        mine = [row for row in rows if row["contender"] == contender]
        losses[contender] = np.array([row["loss"] for row in sorted(mine, key=lambda row: row["seed"])])
        hours = sum(row["seconds"] for row in mine) / 3600
        shown = ", ".join(f"{loss:.4f}" for loss in losses[contender])
        print(f"{contender:12} loss {shown}; {hours:.2f} hours of one core")
    if all(len(found) == seeds for found in losses.values()):
        print(f"mean difference {np.subtract(*losses.values()).mean():+.4f} nats")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--corpus", type=Path, required=True, help="a folder that prepare_corpus wrote")
    arguments.add_argument("--held-out", type=Path, required=True)
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=10_000)
    arguments.add_argument("--results", type=Path, default=Path(__file__).with_name("torch_loop.jsonl"))
    arguments.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.contender:
        print(json.dumps(measure(options)))
        return
    lines = options.results.read_text(encoding="utf-8").splitlines() if options.results.exists() else ()
    rows = [json.loads(line) for line in lines]
    for seed in range(options.seeds):
        for contender in CONTENDERS:
            row = {"contender": contender, "seed": seed, "steps": options.steps, "corpus": options.corpus.name}
            if key(row) in map(key, rows):
                continue
            command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
            command += ["--contender", contender, "--seed", str(seed)]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            row |= {**machine(), **json.loads(printed.splitlines()[-1])}
            append(options.results, [row])
            rows.append(row)
            print(json.dumps(row), flush=True)
    report(
        [row for row in rows if (row["steps"], row["corpus"]) == (options.steps, options.corpus.name)], options.seeds
    )


if __name__ == "__main__":
    main()
