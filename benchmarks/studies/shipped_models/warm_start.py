"""Starts a ModernBERT with what a trained BERT knows about single tokens.

    python -m benchmarks.studies.shipped_models.warm_start --source runs/decay/model --output runs/warm_start
    python -m pipelines.pretrain modernbert.mini_en --corpus corpora/s --run runs/mini --set init_from=runs/warm_start

The token embeddings, the norm after them and the head that predicts tokens are copied; the blocks are random. The
models must have the same tokenizer and width. README.md has the result of one run.
"""

from pathlib import Path

import tyro

import kerasbert
from kerasbert.backend import seed_everything
from kerasbert.objectives import MaskedLM
from pipelines.recipes.recipe import find_recipe


def main(source: Path, output: Path, recipe: str = "modernbert.mini_en", seed: int = 0) -> None:
    """Writes the model to start from.

    Args:
        source: folder of a BERT with a head that predicts tokens.
        output: folder for the ModernBERT.
        recipe: recipe of the ModernBERT.
        seed: seed of the random weights.
    """
    seed_everything(seed)
    bert = kerasbert.load(source, dtype="float32")
    tokens, chosen = bert.require_tokenizer(), find_recipe(recipe)
    ids = {name: tokens.info[name] for name in ("pad_id", "cls_id", "sep_id")}
    fields = {**ids, "bos_id": ids["cls_id"], "eos_id": ids["sep_id"], "vocabulary_size": tokens.vocabulary_size}
    fields |= chosen.model.config
    model = MaskedLM.from_preset(chosen.model.size, load_weights=False, tokenizer=tokens, dtype="float32", **fields)
    copy_tokens(bert, model)
    model.save_to_preset(output)


def copy_tokens(bert: MaskedLM, modernbert: MaskedLM) -> None:
    """Copies the token embeddings with their norm, and the head. ModernBERT has fewer biases, which are left out."""
    pairs = [
        (bert.backbone.token_embedding.embeddings, modernbert.backbone.token_embedding.embeddings),
        (bert.backbone.embedding_norm.gamma, modernbert.backbone.embedding_norm.gamma),
        (bert.masked_lm.dense.kernel, modernbert.masked_lm.transform.dense.kernel),
        (bert.masked_lm.norm.gamma, modernbert.masked_lm.transform.norm.gamma),
        (bert.masked_lm.bias, modernbert.masked_lm.bias),
    ]
    for one, other in pairs:
        other.assign(one.value)


if __name__ == "__main__":
    tyro.cli(main)
