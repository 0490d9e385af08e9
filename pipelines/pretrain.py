"""Pretrains a model on a corpus by a recipe; the same command again continues a run that was cut off.

python -m pipelines.pretrain bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000
"""

import contextlib
import copy
import inspect
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import keras

from kerasbert.backend import seed_everything, share_batches
from kerasbert.backend.distribution import is_first_process
from kerasbert.data import Batches, Corpus, Tokenizer
from kerasbert.data.text.files import write_text
from kerasbert.training import (
    Checkpoints,
    Progress,
    RunLog,
    RunStopped,
    StopOnNaN,
    StopOnRequest,
    StopRequest,
    TensorBoardLog,
    plot_curves,
    read_log,
)

from .building import evaluation_batches, make_batches, make_model, make_optimizer, named, rematerialize, unigram_loss
from .command import command
from .locks import locked
from .model_card import Measured, describe, without_folders, write_card
from .phases import Phases
from .recipes.recipe import Recipe, all_recipes, find_recipe

CONTINUE = "Run the same command again to continue."


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
    minutes: float | None = None,
    set: tuple[str, ...] = (),
) -> dict:
    """Pretrains a model by a recipe.

    Ctrl-C stops the run after its step, with a checkpoint at which the same command continues; a second one stops it at
    once.

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
        minutes: stop after so many, with a checkpoint at which the same command continues, and save the model so far.
        set: changes of the recipe, such as steps=1000 learning_rate=1e-3 config.num_layers=4 data.whole_words=true. A
            finished run goes on when it is given more `steps`.
    """
    request = StopRequest(minutes)
    chosen = find_recipe(recipe).with_settings(list(set))
    texts = open_corpora(corpus, Tokenizer.load(tokenizer) if tokenizer else None)
    unseen = open_corpora(held_out, next(iter(texts.values())).tokenizer()) if held_out else None
    try:
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
            request=request,
        )
    except RunStopped:
        print(CONTINUE, flush=True)
        raise


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
    request: StopRequest | None = None,
    unfinished: bool = True,
) -> dict:
    """Runs a recipe on open corpora; returns the last row of the log. See `pretrain`.

    Args:
        request: what stops the run. Default: Ctrl-C.
        unfinished: whether a run whose time is up saves its model.

    Raises:
        RunStopped: by a signal, or by the time without `unfinished`.
    """
    request = request or StopRequest()
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
            folders[role] = _model_of(getattr(recipe, role), corpora, run / role, request)
    phases = batches.parts if isinstance(batches, Phases) else [batches]
    shared = [*phases, validation] if validation else phases
    devices = share_batches(math.gcd(*(part.rows for part in shared)))
    seed_everything(recipe.seed)
    model = make_model(recipe, next(iter(corpora.values())), **folders)
    if less_memory:
        rematerialize(model)
    model.compile(make_optimizer(recipe))
    facts = record_of(recipe, batches)
    # Behind everything that can be wrong with the recipe. Of processes that train one model together, the first writes.
    with locked(run) if is_first_process() else contextlib.nullcontext():
        earlier = claim_folder(run, facts, recipe.accumulation)
        entropy = unigram_loss(corpora, unseen)
        tokens = sum(text.num_tokens for text in corpora.values())
        print(
            f"{recipe.name}: {model.backbone.count_params():,} weights, {recipe.steps:,} updates of "
            f"{recipe.batch_size * recipe.length:,} tokens, {tokens:,} tokens of text; a report every {every:,} "
            f"updates; {entropy:.3f} nats for a model that knows the frequencies of tokens"
            + (f"; on {devices} devices" if devices > 1 else "")
        )
        checkpoints = Checkpoints(run / "checkpoints", keep=max(keep, recipe.average), recipe=facts, earlier=earlier)
        for data, training in ((batches, True), (validation, False)):
            if data is not None and "stream_start" in data[0][0]:  # memories are part of a checkpoint
                model.start_memory(len(data[0][0]["stream_start"]), training)
        done = checkpoints.restore(model)
        if done:
            finished = ", the last one: the model is saved again" if done == len(batches) else ""
            print(f"continuing from step {done:,} of {len(batches):,}{finished}", flush=True)
        stopped = None
        try:
            with request:
                for piece in pieces:
                    if len(piece) > done:
                        callbacks = [
                            # Targets of an encoder-decoder are not all text: sentinels and copies are easier.
                            *([] if recipe.objective == "Seq2SeqLM" else [BelowUnigrams(entropy)]),
                            checkpoints,
                            StopOnRequest(request, checkpoints),
                            StopOnNaN(checkpoints),
                            RunLog(run),
                            Progress(len(batches)),
                        ]
                        if tensorboard:
                            callbacks.append(TensorBoardLog(run / "tensorboard"))
                        interval = every * recipe.accumulation
                        model.fit(piece, steps_per_epoch=interval, validation_data=validation, callbacks=callbacks)
        except RunStopped as error:
            stopped = error
            print(
                f"stopped after step {stopped.step:,} of {len(batches):,}. {checkpoints.describe_newest()}", flush=True
            )
            if stopped.reason != "time" or not unfinished or not stopped.step:
                raise
        checkpoints.restore(model)  # `fit` may have ended with averages in the place of weights
        if recipe.optimizer.get("use_ema"):
            model.optimizer.finalize_variable_values(model.trainable_variables)
        if recipe.average and stopped is None:
            checkpoints.average(model, recipe.average)
        log = read_log(run)
        last = log[-1] if log else {}
        if log:
            _draw(run)
        folder = output or run / "model"
        model.save_to_preset(folder)
        # So that `evaluate` can measure the model as its run did, wherever its folder is moved.
        published = {**facts, "recipe": without_folders(facts["recipe"]), "held_out_steps": held_out_steps}
        write_text(folder / "recipe.json", json.dumps(published, indent=2))
        steps = {"steps done": f"{stopped.step:,} of {len(batches):,}"} if stopped else {}
        _write_card(folder, model, corpora, unseen, {**steps, **facts["recipe"]}, {**last, "unigram_loss": entropy})
        print(f"saved {folder}" + (f", the model so far. {CONTINUE}" if stopped else ""))
    return last


def _model_of(source: str, corpora: dict[str, Corpus], run: Path, request: StopRequest) -> str | Path:
    """A folder of a model: `source` itself, or what a recipe of that name leaves, which is run first."""
    if source not in all_recipes():
        return source
    if not (run / "model" / "kerasbert.json").exists():
        train(find_recipe(source), corpora, run, request=request, unfinished=False)
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


def claim_folder(run: Path, facts: dict, accumulation: int = 1) -> list[dict]:
    """Writes recipe.json into a new run folder, or into that of a finished run that gets more steps.

    Returns: what identified the run before it got more steps, each time.

    Raises:
        ValueError: the folder is that of another run.
    """
    path = run / "recipe.json"
    if not path.exists():
        write_text(path, json.dumps(facts, indent=2))
        return []
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} must be the JSON of a recipe. It is damaged: use another run folder.") from None
    earlier = there.pop("earlier", [])
    differing = sorted(
        f"  {group}.{name}: {there.get(group, {}).get(name, 'absent')} in the folder, {value} now"
        for group, values in facts.items()
        for name, value in values.items()
        if there.get(group, {}).get(name, "absent") != value
    )
    if not differing:
        return earlier
    hint = "Use another folder."
    if _is_longer(facts, there):
        steps = there["recipe"]["steps"]
        if (run / "checkpoints" / f"step_{steps * accumulation:08d}.json").exists():
            print(f"extending the run of {steps:,} updates; the schedule is that of {facts['recipe']['steps']:,} now")
            write_text(path, json.dumps({**facts, "earlier": [*earlier, there]}, indent=2))
            return [*earlier, there]
        hint = f"More steps extend a run that is finished: finish it with --set steps={steps}, or use another folder."
    raise ValueError(f"The folder {run} holds a run of another recipe:\n" + "\n".join(differing) + f"\n{hint}")


def _is_longer(facts: dict, there: dict) -> bool:
    """Whether a run is another one with more steps at its end."""
    shorter = copy.deepcopy(facts)
    steps = there.get("recipe", {}).get("steps", math.inf)
    if steps >= shorter["recipe"]["steps"]:
        return False
    parts, parts_there = (record.get("batches", {}).get("parts") for record in (shorter, there))
    if parts and parts_there:
        parts[-1]["steps"] = parts_there[-1]["steps"]
    shorter["recipe"]["steps"] = steps
    return shorter == there


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


def _write_card(folder: Path, model, corpora: dict, unseen: dict | None, recipe: dict, scores: dict) -> None:
    held_out = [name for name in scores if unseen and (name.startswith("val_") or name == "below_unigram")]
    measured = [Measured(", ".join(unseen), {name: scores.pop(name) for name in held_out})] if held_out else []
    write_card(
        folder,
        f"{type(model.backbone).__name__} pretrained with {recipe['objective']}",
        data={
            "sources": {name: [text.summary.get("sources"), text.fingerprint] for name, text in corpora.items()},
            "tokens": sum(text.num_tokens for text in corpora.values()),
        },
        recipe=recipe,
        scores=scores,
        description=describe(model),
        measured=measured,
    )


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
