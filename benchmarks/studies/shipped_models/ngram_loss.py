"""Losses of a causal language model and of n-grams on the same held-out rows.

    python -m benchmarks.studies.shipped_models.ngram_loss --model runs/gpt2/model \
        --corpus corpora/novels --held-out corpora/held

Neither reads what is before the row. The n-grams are counted in the text that the model was trained on, and have
interpolated modified Kneser-Ney smoothing.
"""

import json
from pathlib import Path

import numpy as np
import tyro

from benchmarks.studies.suite.ngram_model import NgramModel
from benchmarks.studies.tiny_recipes.bars import unigram_losses
from kerasbert.data import CausalLMBatches, Corpus
from kerasbert.objectives import CausalLM


def main(corpus: Path, held_out: Path, model: Path | None = None, length: int = 128, order: int = 5) -> None:
    """Prints losses in nats per token.

    Args:
        corpus: the training text, a folder that `prepare_corpus` wrote.
        held_out: other text with the same tokenizer.
        model: folder of a causal language model. Default: only n-grams.
        length: tokens per row.
        order: maximum number of tokens in an n-gram.
    """
    trained, text = Corpus.open(corpus), Corpus.open(held_out)
    batches = CausalLMBatches(text, batch_size=16, length=length, seed=0)
    rows, targets = held_out_rows(batches)
    losses = {"unigrams": unigram_losses(targets, trained.counts()).mean()}
    for n in range(2, order + 1):
        ngrams = NgramModel(np.asarray(trained.tokens), trained.tokenizer().vocabulary_size, n)
        losses[f"{n}-grams"] = -np.mean(np.concatenate([ngrams.log_probabilities(row)[1:] for row in rows]))
    if model is not None:
        found = CausalLM.from_preset(model, dtype="float32")
        found.compile("sgd")
        losses["model"] = found.evaluate(batches, verbose=0, return_dict=True)["loss"]
    print(json.dumps({"targets": len(targets), **{name: round(float(loss), 4) for name, loss in losses.items()}}))


def held_out_rows(batches: CausalLMBatches) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the tokens of each row, the last of which is only a target, and all targets (n,), row by row."""
    rows = []
    for tokens, targets, weights in (batches[i] for i in range(len(batches))):
        for row, following, weight in zip(tokens["token_ids"], targets, weights, strict=True):
            count = int(np.count_nonzero(weight))
            if count:
                rows.append(np.append(row[:1], following[:count]))
    return rows, np.concatenate([row[1:] for row in rows])


if __name__ == "__main__":
    tyro.cli(main)
