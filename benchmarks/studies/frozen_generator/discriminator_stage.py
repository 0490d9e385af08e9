"""Trains an encoder further as ELECTRA's discriminator, on the samples of a frozen generator.

    KERAS_BACKEND=torch python -m benchmarks.studies.frozen_generator.discriminator_stage \
        --corpus corpora/books --output runs/discriminator --generator runs/decay/model

The second of the two stages in Clark et al. 2020 (arXiv 2003.10555, section 3.2), with the models and the optimizer of
`run.py`. The encoder is `modernbert_mini_en`, which was trained by masked language modeling only. All of
its targets were masked, so no loss was computed at visible tokens, whose hidden states fine-tuning reads. The
discriminator has a loss at every token.

A stage can be followed by another one (--start FOLDER), with a new head and new Adam moments. The learning rate is
constant after the warm-up, or decays to 0 with --decay. The folder is written every 1,000 updates.
"""

import dataclasses
import json
import time
from pathlib import Path

import kerasbert  # noqa: F401  # isort: skip  # before keras, for which it picks the backend
import keras
import tyro

from benchmarks.harness import append
from benchmarks.studies.frozen_generator.run import START, make_trainer, recipe_of
from kerasbert.data import Corpus
from kerasbert.models import ModernBert
from pipelines.recipes.tiny import tiny_adam, tiny_phase
from pipelines.runs.building import make_batches, make_optimizer


class Saved(keras.callbacks.Callback):
    """Appends the means of the last updates to the log every 200 updates, and writes the encoder every 1,000 updates.

    Args:
        tokenizer: the tokenizer, which is saved with the encoder.
        folder: the folder to write.
    """

    def __init__(self, tokenizer, folder: Path):
        super().__init__()
        self.tokenizer, self.folder, self.updates = tokenizer, folder, 0

    def on_train_batch_end(self, batch, logs=None):
        self.updates += 1
        if self.updates % 200 == 0:
            means = {name: round(float(value), 4) for name, value in logs.items()}
            row = {"update": self.updates, **means, "seconds": round(time.process_time())}
            print(json.dumps(row), flush=True)
            append(self.folder / "progress.jsonl", [row])
            self.model.reset_metrics()
        if self.updates % 1_000 == 0:
            self.save()

    def on_train_end(self, logs=None):
        self.save()

    def save(self):
        trained = self.model.discriminator.backbone
        encoder = ModernBert(trained.config, dtype="float32")  # whose folder can be loaded without `ModernElectra`
        encoder.set_weights(trained.get_weights())
        encoder.save_to_preset(self.folder)
        self.tokenizer.save(self.folder)


def main(
    corpus: Path,
    output: Path,
    generator: Path,
    start: Path = START,
    steps: int = 5_000,
    decay: bool = False,
    seed: int = 0,
) -> None:
    """Trains the encoder and writes its folder, with the log of the run as progress.jsonl.

    Args:
        corpus: a folder that `prepare_corpus` wrote with the tokenizer of `bert_mini_en`.
        output: folder of the encoder.
        generator: folder of a MaskedLM with this tokenizer, which is not trained.
        start: folder of the encoder to start from.
        steps: updates of 16 rows of 128 tokens, with one or two segments each.
        decay: whether the learning rate decays linearly to 0.
        seed: seed of the rows, the masks, the samples and the new head.
    """
    recipe, optimizer = recipe_of(seed, steps), tiny_adam(5e-4, min(300, steps // 2), final=0.0 if decay else 5e-4)
    data, phases = dataclasses.replace(recipe.data, rows="segments"), tiny_phase(steps, 16, 128)
    recipe = dataclasses.replace(recipe, data=data, phases=phases, optimizer=optimizer)
    text, trainer = Corpus.open(corpus), make_trainer(generator, start, seed)
    trainer.compile(make_optimizer(recipe))
    trainer.fit(make_batches(recipe, text), verbose=0, callbacks=[Saved(text.tokenizer(), output)])


if __name__ == "__main__":
    tyro.cli(main)
