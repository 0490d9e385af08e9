"""Pretrains a model on a corpus by a recipe; the same command again continues a run that was cut off.

python -m pipelines.pretrain bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000
"""

import inspect
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import keras

from kerasbert.backend import seed_everything, share_batches
from kerasbert.data import Batches, Corpus, Tokenizer
from kerasbert.training import (
    Checkpoints,
    Progress,
    RunLog,
    StopOnNaN,
    TensorBoardLog,
    plot_curves,
    read_log,
)

from .building import evaluation_batches, make_batches, make_model, make_optimizer, named, rematerialize, unigram_loss
from .command import command
from .model_card import write_card
from .phases import Phases
from .recipes.recipe import Recipe, all_recipes, find_recipe


def pretrain(
    corpus: tuple[str, ...],
    run: Path,
    recipe: str = "bert.tiny",
    held_out: tuple[str, ...] = (),
    held_out_steps: int = 100,
    report_every: int = 1_000,
    keep: int = 3,
    output: Path | None = None,
    tokenizer: Path | None = None,
    tensorboard: bool = False,
    less_memory: bool = False,
    set: tuple[str, ...] = (),
) -> dict:
    """Pretrains a model by a recipe.

    Args:
        corpus: folders of `prepare_corpus`. Recipes with languages know them by name: de=corpora/de fr=corpora/fr, and
            de-fr=corpora/pairs for parallel text.
        run: folder for the recipe, the logs, the curves and the checkpoints. A run in it is continued.
        recipe: family.run, such as bert.base; it may also stand first, without --recipe.
        held_out: corpora of other text, evaluated at every report.
        held_out_steps: most batches of them an evaluation.
        report_every: updates between two reports, each with a checkpoint. Lowered to divide the run.
        keep: newest checkpoints to keep.
        output: folder for the model. Default: RUN/model.
        tokenizer: folder of the tokenizer that the corpus must have.
        tensorboard: also write files for TensorBoard.
        less_memory: rematerialise, which makes an update a third longer: blocks keep their input only.
        set: changes of the recipe, such as steps=1000 learning_rate=1e-3 config.num_layers=4 data.whole_words=true.
    """
    chosen = find_recipe(recipe).with_settings(list(set))
    texts = open_corpora(corpus, Tokenizer.load(tokenizer) if tokenizer else None)
    unseen = open_corpora(held_out, next(iter(texts.values())).tokenizer()) if held_out else None
    return train(
        chosen,
        texts,
        run,
        unseen,
        held_out_steps=held_out_steps,
        report_every=report_every,
        keep=keep,
        output=output,
        tensorboard=tensorboard,
        less_memory=less_memory,
    )


def open_corpora(paths: str | Path | Sequence[str | Path], tokenizer: Tokenizer | None) -> dict[str, Corpus]:
    """Corpora by name: `name=folder`, or the name of the folder. All must have one tokenizer."""
    corpora = {}
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        name, equals, folder = str(path).partition("=")
        folder = Path(folder if equals else path)
        name = name if equals else folder.name
        if name in corpora:
            raise ValueError(f"Corpora must have different names. Received: {name!r} twice. Use name=folder.")
        corpora[name] = Corpus.open(folder, tokenizer)
        tokenizer = tokenizer or corpora[name].tokenizer()
    return corpora


def train(
    recipe: Recipe,
    corpus: Corpus | dict[str, Corpus],
    run: Path,
    held_out: Corpus | dict[str, Corpus] | None = None,
    held_out_steps: int = 100,
    report_every: int = 1_000,
    keep: int = 3,
    output: Path | None = None,
    tensorboard: bool = False,
    less_memory: bool = False,
) -> dict:
    """Runs a recipe on open corpora; returns the last row of the log. See `pretrain`."""
    if min(report_every, held_out_steps, keep) < 1:
        raise ValueError(
            "`report_every`, `held_out_steps` and `keep` must be at least 1. Received: "
            f"{report_every}, {held_out_steps}, {keep}."
        )
    corpora, unseen = named(corpus), None if held_out is None else named(held_out)
    batches = make_batches(recipe, corpora)
    validation = None if unseen is None else evaluation_batches(recipe, unseen, held_out_steps)
    # A compiled program has one shape: a run whose rows grow is fitted piece by piece.
    pieces = batches.prefixes() if isinstance(batches, Phases) else [batches]
    every = report_interval([len(piece) // recipe.accumulation for piece in pieces], report_every)
    if recipe.average * every > recipe.steps:
        raise ValueError(
            f"`average` must be at most the reports of a run, {recipe.steps // every}. Received: {recipe.average}. Use "
            f"report_every={max(1, recipe.steps // recipe.average)} or less."
        )
    folders = {}
    for role in ("teacher", "init_from"):
        if getattr(recipe, role):
            folders[role] = _model_of(getattr(recipe, role), corpora, run / role)
    phases = batches.parts if isinstance(batches, Phases) else [batches]
    shared = [*phases, validation] if validation else phases
    devices = share_batches(math.gcd(*(part.rows for part in shared)))
    seed_everything(recipe.seed)
    model = make_model(recipe, next(iter(corpora.values())), **folders)
    if less_memory:
        rematerialize(model)
    model.compile(make_optimizer(recipe))
    facts = record_of(recipe, batches)
    claim_folder(run, facts)  # behind everything that can be wrong with the recipe

    entropy = unigram_loss(corpora, unseen)
    tokens = sum(text.num_tokens for text in corpora.values())
    print(
        f"{recipe.name}: {model.backbone.count_params():,} weights, {recipe.steps:,} updates of "
        f"{recipe.batch_size * recipe.length:,} tokens, {tokens:,} tokens of text; a report every {every:,} "
        f"updates; {entropy:.3f} nats for a model that knows the frequencies of tokens"
        + (f"; on {devices} devices" if devices > 1 else "")
    )
    checkpoints = Checkpoints(run / "checkpoints", keep=max(keep, recipe.average), recipe=facts)
    for data, training in ((batches, True), (validation, False)):
        if data is not None and "stream_start" in data[0][0]:  # memories are part of a checkpoint
            model.start_memory(len(data[0][0]["stream_start"]), training)
    done = checkpoints.restore(model)
    for piece in pieces:
        if len(piece) > done:
            callbacks = [
                # Targets of an encoder-decoder are not all text: sentinels and copies are easier.
                *([] if recipe.objective == "Seq2SeqLM" else [BelowUnigrams(entropy)]),
                checkpoints,
                StopOnNaN(checkpoints),
                RunLog(run),
                Progress(len(batches)),
            ]
            if tensorboard:
                callbacks.append(TensorBoardLog(run / "tensorboard"))
            interval = every * recipe.accumulation
            model.fit(piece, steps_per_epoch=interval, validation_data=validation, callbacks=callbacks)
    checkpoints.restore(model)  # `fit` may have ended with averages in the place of weights
    if recipe.optimizer.get("use_ema"):
        model.optimizer.finalize_variable_values(model.trainable_variables)
    if recipe.average:
        checkpoints.average(model, recipe.average)
    last = read_log(run)[-1]
    _draw(run)
    folder = output or run / "model"
    model.save_to_preset(folder)
    sources = {name: [text.summary.get("sources"), text.fingerprint] for name, text in corpora.items()}
    write_card(
        folder,
        f"{type(model.backbone).__name__} pretrained with {recipe.objective}",
        data={"sources": sources, "tokens": tokens},
        recipe=facts["recipe"],
        metrics={**last, "unigram_loss": entropy},
    )
    print(f"saved {folder}")
    return last


def _model_of(source: str, corpora: dict[str, Corpus], run: Path) -> str | Path:
    """A folder of a model: `source` itself, or what a recipe of that name leaves, which is run first."""
    if source not in all_recipes():
        return source
    if not (run / "model" / "kerasbert.json").exists():
        train(find_recipe(source), corpora, run)
    return run / "model"


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
        logs = {} if logs is None else logs
        if not any(name.endswith("perplexity") for name in logs):
            return
        logs["below_unigram"] = self.entropy - math.log(logs.get("val_perplexity", logs.get("perplexity")))


def _draw(run: Path) -> None:
    try:
        plot_curves(run)
    except ImportError as error:
        print(error)


def _listing() -> str:
    """What --help says: every recipe with the first line of its docstring."""
    lines = [f"- {name:32} {inspect.getdoc(run).splitlines()[0]}" for name, run in all_recipes().items()]
    return "\n".join([inspect.getdoc(pretrain).splitlines()[0], "", "Recipes:", *lines])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        sys.argv.insert(1, "--recipe")
    command(pretrain, description=_listing())
