"""Generator and discriminator trained together, beside a detector that counts bigrams.

    KERAS_BACKEND=torch python -m benchmarks.studies.frozen_generator.joint --corpus corpora/sentences \
        --held-out corpora/held_out

ELECTRA's joint training (Clark et al. 2020, arXiv 2003.10555, section 3.1), in which no part has to leave the plateau
of token frequencies: both models start from a masked language model, `bert_mini_en`, whose network is that of ELECTRA.
The discriminator is this model with a new head. The generator has the first of its six layers (with `--layers`, evenly
spaced ones) and its head, and is first trained alone for ALONE updates, because it misses the other layers. Then both
are trained together. There are two ways to share the embeddings:

    shared        both models train one table, as in ELECTRA, with one optimizer
    disentangled  the discriminator adds a difference and trains only this, as in DeBERTa-v3 (He et al. 2021, arXiv
                  2111.09543, section 3.3), with an optimizer for each model

Rows, learning rates, detector and test are those of `run.py`. The attention of DeBERTa is not part of this study. A
run that is finished is a line of joint_rows.jsonl, and the same command continues with the others.
"""

import dataclasses
from pathlib import Path

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import tyro

from benchmarks.studies.frozen_generator.run import START, areas, finished, recipe_of, verdict
from kerasbert.backend import seed_everything
from kerasbert.data import Corpus
from kerasbert.models import Electra, ElectraConfig
from kerasbert.objectives import MaskedLM, ReplacedTokenDetection, start_from_teacher
from kerasbert.training import AlternatingOptimizers
from pipelines.recipes.data import MaskedLMData
from pipelines.recipes.recipe import Recipe
from pipelines.runs.building import make_batches, one_optimizer

RESULTS = Path(__file__).with_name("joint_rows.jsonl")
SHARING = ("shared", "disentangled")
BERT = START.with_name("bert_mini_en")
DTYPE = "mixed_bfloat16"
ALONE = 200


def electra_from(start: Path, num_layers: int | None = None) -> MaskedLM:
    """A BERT as a masked language model of the class `Electra`, with all of its layers or with evenly spaced ones."""
    bert = MaskedLM.from_preset(start)
    fields = {field.name for field in dataclasses.fields(ElectraConfig)} - {"model_type"}
    known = {name: value for name, value in dataclasses.asdict(bert.backbone.config).items() if name in fields}
    known |= dict(embedding_dim=known["hidden_dim"], num_layers=num_layers or known["num_layers"])
    model = MaskedLM(Electra(ElectraConfig(**known), dtype=DTYPE), tokenizer=bert.tokenizer)
    start_from_teacher(model, bert, transform=True)
    return model


def make_generator(start: Path, layers: int, seed: int, corpora: dict[str, Corpus]) -> MaskedLM:
    """The generator, trained alone."""
    seed_everything(seed)
    model, recipe = electra_from(start, layers), recipe_of(seed, ALONE)
    recipe = dataclasses.replace(recipe, data=MaskedLMData("packed", recipe.data.noise))
    model.compile(one_optimizer(recipe))
    model.fit(make_batches(recipe, corpora), verbose=0)
    return model


def run(recipe: Recipe, layers: int, sharing: str, corpora: dict, held_out: dict, start: Path = BERT) -> dict:
    """Trains one pair of models. Returns the area of the discriminator, and those of the detectors."""
    seed, generator = recipe.seed, make_generator(start, layers, recipe.seed, corpora)
    seed_everything(seed)
    trainer = ReplacedTokenDetection(generator, electra_from(start).backbone, embedding_sharing=sharing, seed=seed)
    one, other = one_optimizer(recipe), one_optimizer(recipe)
    trainer.compile(one if sharing == "shared" else AlternatingOptimizers(one, other))
    trainer.fit(make_batches(recipe, corpora), verbose=0)
    return areas(recipe, trainer, corpora, held_out)


def main(
    corpus: Path, held_out: Path, layers: int = 1, seeds: int = 5, steps: int = 1_000, results: Path = RESULTS
) -> None:
    """Trains what is not in the results, and prints the comparisons.

    Args:
        corpus: a folder that `prepare_corpus` wrote with the tokenizer of `bert_mini_en`.
        held_out: the same for held-out text.
        layers: of the generator.
        seeds: number of pairs of models.
        steps: updates of both together.
        results: file of the finished runs.
    """
    texts = [{"text": Corpus.open(folder)} for folder in (corpus, held_out)]
    for sharing in SHARING:
        rows = finished(
            results,
            seeds,
            steps,
            lambda seed, sharing=sharing: run(recipe_of(seed, steps), layers, sharing, *texts),
            sharing=sharing,
            layers=layers,
        )
        print(f"{sharing}: {verdict(rows)}")


if __name__ == "__main__":
    tyro.cli(main)
