"""Pretrains a model on a corpus by a recipe; the same command again continues a run that was cut off.

python -m pipelines.pretrain --recipe bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000
"""

import json
import math
from pathlib import Path

import keras

import kerasbert.data
import kerasbert.objectives
from kerasbert.backend import seed_everything
from kerasbert.data import Batches, Corpus, Tokenizer
from kerasbert.training import (
    Checkpoints,
    LossScale,
    Progress,
    RunLog,
    StopOnNaN,
    TensorBoardLog,
    TransformerAdamW,
    WarmupDecay,
    plot_curves,
    read_log,
)

from .command import command
from .model_card import write_card
from .phases import Phases
from .recipes.recipe import Recipe, find_recipe


def pretrain(
    corpus: Path,
    run: Path,
    recipe: str = "bert.tiny",
    held_out: Path | None = None,
    held_out_steps: int = 100,
    report_every: int = 1_000,
    keep: int = 3,
    output: Path | None = None,
    tokenizer: Path | None = None,
    tensorboard: bool = False,
    set: tuple[str, ...] = (),
) -> dict:
    """Pretrains a model by a recipe.

    Args:
        corpus: folder of `prepare_corpus`.
        run: folder for the recipe, the logs, the curves and the checkpoints. A run in it is continued.
        recipe: family.run, such as bert.base.
        held_out: a second corpus, evaluated at every report.
        held_out_steps: most batches of it an evaluation.
        report_every: updates between two reports, each with a checkpoint. Lowered to divide the run.
        keep: newest checkpoints to keep.
        output: folder for the model. Default: RUN/model.
        tokenizer: folder of the tokenizer that the corpus must have.
        tensorboard: also write files for TensorBoard.
        set: changes of the recipe, such as steps=1000 schedule.peak=1e-3 config.num_layers=4 data.whole_words=true.
    """
    text = Corpus.open(corpus, Tokenizer.load(tokenizer) if tokenizer else None)
    unseen = Corpus.open(held_out, text.tokenizer()) if held_out else None
    return train(
        find_recipe(recipe).with_settings(list(set)),
        text,
        run,
        unseen,
        held_out_steps=held_out_steps,
        report_every=report_every,
        keep=keep,
        output=output,
        tensorboard=tensorboard,
    )


def train(
    recipe: Recipe,
    corpus: Corpus,
    run: Path,
    held_out: Corpus | None = None,
    held_out_steps: int = 100,
    report_every: int = 1_000,
    keep: int = 3,
    output: Path | None = None,
    tensorboard: bool = False,
) -> dict:
    """Runs a recipe on an open corpus; returns the last row of the log. See `pretrain`."""
    seed_everything(recipe.seed)
    batches = make_batches(recipe, corpus)
    # A compiled program has one shape: a run whose rows grow is fitted piece by piece.
    pieces = batches.prefixes() if isinstance(batches, Phases) else [batches]
    every = report_interval([len(piece) // recipe.accumulation for piece in pieces], report_every)
    model = make_model(recipe, corpus)
    model.compile(make_optimizer(recipe))
    facts = record_of(recipe, batches)
    claim_folder(run, facts)  # behind everything that can be wrong with the recipe

    entropy = corpus.unigram_loss(held_out) if held_out else corpus.unigram_entropy()
    print(
        f"{recipe.name}: {model.backbone.count_params():,} weights, {recipe.steps:,} updates of "
        f"{recipe.batch_size * recipe.length:,} tokens, {corpus.num_tokens:,} tokens of text; a report every {every:,} "
        f"updates; {entropy:.3f} nats for a model that knows the frequencies of tokens"
    )
    validation = None if held_out is None else evaluation_batches(recipe, held_out, held_out_steps)
    checkpoints = Checkpoints(run / "checkpoints", keep=keep, recipe=facts)
    done = checkpoints.restore(model)
    for piece in pieces:
        if len(piece) > done:
            callbacks = [
                BelowUnigrams(entropy),
                checkpoints,
                StopOnNaN(checkpoints),
                RunLog(run),
                Progress(len(batches)),
            ]
            if tensorboard:
                callbacks.append(TensorBoardLog(run / "tensorboard"))
            interval = every * recipe.accumulation
            model.fit(piece, steps_per_epoch=interval, validation_data=validation, callbacks=callbacks)
    last = read_log(run)[-1]
    _draw(run)
    folder = output or run / "model"
    model.save_to_preset(folder)
    write_card(
        folder,
        f"{type(model.backbone).__name__} pretrained with {recipe.objective}",
        data={"sources": corpus.summary.get("sources"), "tokens": corpus.num_tokens, "corpus": corpus.fingerprint},
        recipe=facts["recipe"],
        metrics={**last, "unigram_loss": entropy},
    )
    print(f"saved {folder}")
    return last


def report_interval(ends: list[int], wanted: int) -> int:
    """The largest number up to `wanted` that divides every end of a piece, all counted in updates."""
    whole = math.gcd(*ends)
    found = next(number for number in range(min(wanted, whole), 0, -1) if whole % number == 0)
    if found * 20 < min(wanted, whole):
        raise ValueError(
            f"The steps of a run must be a multiple of something near `report_every`. Received: {ends[-1]} steps and "
            f"report_every={wanted}, with {found} between. Use --set steps={max(1, round(ends[-1] / wanted)) * wanted}."
        )
    return found


def make_batches(recipe: Recipe, corpus: Corpus) -> Batches:
    """The batches of the whole run."""
    cls = getattr(kerasbert.data, recipe.batches)

    def part(length: int, steps: int, seed: int) -> Batches:
        shape = dict(batch_size=recipe.batch_size, length=length, accumulation=recipe.accumulation)
        return cls(corpus, seed=seed, steps=steps, **shape, **recipe.data)

    first = part(recipe.length, recipe.steps - recipe.long_steps, recipe.seed)
    if not recipe.long_steps:
        return first
    return Phases([first, part(recipe.long_length, recipe.long_steps, recipe.seed + 1)])


def evaluation_batches(recipe: Recipe, corpus: Corpus, steps: int | None = None) -> Batches:
    """One pass over a corpus, or its first `steps` batches; the same rows and masks every time."""
    cls = getattr(kerasbert.data, recipe.batches)
    rows = min(recipe.batch_size, 128)
    options = dict(batch_size=rows, length=recipe.length, seed=recipe.seed, **{**recipe.data, **recipe.held_out})
    whole = cls(corpus, **options)
    return whole if steps is None or len(whole) <= steps else cls(corpus, steps=steps, **options)


def make_model(recipe: Recipe, corpus: Corpus):
    """The objective with a new backbone for the corpus's vocabulary."""
    tokenizer = corpus.tokenizer()
    longest = max(recipe.length, recipe.long_length)
    fields = {"vocabulary_size": tokenizer.vocabulary_size, "pad_id": tokenizer.pad_id, **recipe.config}
    known = recipe.fields_of("config")
    room = getattr(recipe.backbone_config(), "max_length", None)
    if room is not None and room < longest:
        raise ValueError(
            f"Rows must fit the position table. Received: rows of {longest} tokens, config.max_length={room}. "
            f"Use --set config.max_length={longest}."
        )
    cls = getattr(kerasbert.objectives, recipe.objective)
    return cls.from_preset(
        recipe.backbone,
        load_weights=False,
        dtype=recipe.dtype,
        tokenizer=tokenizer,
        **recipe.objective_options,
        **{name: value for name, value in fields.items() if name in known},
    )


def make_optimizer(recipe: Recipe):
    """AdamW by the recipe, scaled for float16."""
    optimizer = TransformerAdamW(
        WarmupDecay(steps=recipe.steps, **recipe.schedule),
        gradient_accumulation_steps=recipe.accumulation if recipe.accumulation > 1 else None,
        **recipe.optimizer,
    )
    return LossScale(optimizer) if recipe.dtype == "mixed_float16" else optimizer


def record_of(recipe: Recipe, batches: Batches) -> dict:
    """What identifies a run: the recipe and the data."""
    return json.loads(json.dumps({"recipe": {**vars(recipe)}, "batches": batches.recipe()}))


def claim_folder(run: Path, facts: dict) -> None:
    """Writes recipe.json into a new run folder; refuses the folder of another run."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / "recipe.json"
    if not path.exists():
        path.write_text(json.dumps(facts, indent=2))
        return
    try:
        there = json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"{path} must be the JSON of a recipe. It is damaged: use another run folder.") from None
    differing = sorted(
        f"  {group}.{name}: {there.get(group, {}).get(name, 'absent')} in the folder, {value} now"
        for group, values in facts.items()
        for name, value in values.items()
        if there.get(group, {}).get(name, "absent") != value
    )
    if differing:
        raise ValueError(
            f"The folder {run} holds a run of another recipe:\n" + "\n".join(differing) + "\nUse another folder."
        )


class BelowUnigrams(keras.callbacks.Callback):
    """Reports how far the loss is below that of token frequencies alone, on held-out text if there is any."""

    def __init__(self, entropy: float):
        super().__init__()
        self.entropy = entropy

    def on_epoch_end(self, epoch, logs=None):
        perplexity = (logs or {}).get("val_perplexity", (logs or {}).get("perplexity"))
        if perplexity:
            logs["below_unigram"] = self.entropy - math.log(perplexity)


def _draw(run: Path) -> None:
    try:
        plot_curves(run)
    except ImportError as error:
        print(error)


if __name__ == "__main__":
    command(pretrain)
