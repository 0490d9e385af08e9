"""Pretrains a model on a corpus with a recipe. Repeating the command continues an interrupted run.

python -m pipelines.pretrain bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000
"""

import contextlib
import dataclasses
import inspect
import json
import math
from collections.abc import Sequence
from pathlib import Path

from kerasbert.backend import seed_everything, share_batches
from kerasbert.backend.hosts import check_same, gathered, is_first_process, together
from kerasbert.checkpoints.model_card import describe
from kerasbert.data import Corpus, Tokenizer
from kerasbert.data.text.files import write_text
from kerasbert.data.text.locks import locked
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

from .command_line.command import Command
from .recipes.recipe import Recipe, all_recipes, find_recipe
from .runs.building import (
    BelowUnigrams,
    evaluation_batches,
    make_batches,
    make_model,
    make_optimizer,
    named,
    rematerialize,
    unigram_loss,
)
from .runs.devices import use_devices
from .runs.model_card import Measured, without_folders, write_card
from .runs.phases import Phases
from .runs.run_folders import claim_folder, record_of

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
    reschedule: bool = False,
    devices: str | None = None,
    set: tuple[str, ...] = (),
) -> dict:
    """Pretrains a model with a recipe.

    Ctrl-C (or SIGTERM) stops the run after the current step and saves a checkpoint from which the same command
    continues. A second signal stops it at once.

    Args:
        corpus: folders that `prepare_corpus` wrote. Recipes with languages need their names: de=corpora/de
            fr=corpora/fr, and de-fr=corpora/pairs for parallel text.
        run: folder for the recipe, the logs, the curves and the checkpoints. If it already contains a run, the run
            continues.
        recipe: name of a recipe, such as bert.base, or the recipe.json of another run or of a model. It may also be the
            first argument, without --recipe.
        held_out: corpora of held-out text, which are evaluated at every report.
        held_out_steps: maximum number of held-out batches per evaluation.
        report_every: number of updates between reports, each with a checkpoint. It is reduced to a divisor of the steps
            of the run.
        keep: number of newest checkpoints to keep.
        output: folder for the model. Default: RUN/model.
        tokenizer: folder of the tokenizer that the corpus must have.
        tensorboard: also write files for TensorBoard.
        less_memory: recompute activations in the backward pass instead of storing them, which saves memory, but makes
            updates about a third slower.
        minutes: stop after this many minutes, and save the model and a checkpoint. The same command continues the run.
        reschedule: let an unfinished run continue with different `steps`, a different `schedule` and a different
            `batch_size`, such as a learning rate that decays from now on: --reschedule --set steps=6000
            schedule.decay_from=4000; or larger batches: --reschedule --set batch_size=512. A batch contains the rows
            that it would contain if the run had had this size from the start.
        devices: layout of several devices, of one host or of many: data (each has all weights), fsdp (weights and the
            state of the optimizer are divided), tensor or tensor=4 (layers are divided among the devices of a host, or
            4). Default: data, on as many devices of this process as divide the batch.
        set: overrides of the recipe, such as steps=1000 learning_rate=1e-3 config.num_layers=4 data.whole_words=true.
            With more `steps`, a finished run is extended.
    """
    request = StopRequest(minutes)
    use_devices(devices)
    with together():
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
            reschedule=reschedule,
        )
    except RunStopped:
        print(CONTINUE, flush=True)
        raise


def open_corpora(paths: str | Path | Sequence[str | Path], tokenizer: Tokenizer | None) -> dict[str, Corpus]:
    """Opens corpora, given as name=folder or folder, and returns {name: corpus}. All must have the same tokenizer."""
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
    reschedule: bool = False,
) -> dict:
    """Runs a recipe on open corpora (see `pretrain`), and returns the last row of the log.

    Several processes need a `keras.distribution` (see `kerasbert.training.parallel`), which must be set before. Only
    the first process writes files and returns the row. The others return {}.

    Args:
        request: a `StopRequest`, which stops the run. Default: one that Ctrl-C triggers.
        unfinished: whether to save the model if the run stops because its time is up.

    Raises:
        RunStopped: a signal stopped the run, or its time was up and `unfinished` is False.
    """
    request = request or StopRequest()
    if min(report_every, held_out_steps, keep) < 1:
        raise ValueError(
            "`report_every`, `held_out_steps` and `keep` must be at least 1. Received: "
            f"{report_every}, {held_out_steps}, {keep}."
        )
    recipe = dataclasses.replace(recipe, dtype=recipe.policy)  # a run continues with the dtype that it began with
    corpora, unseen = named(corpus), None if held_out is None else named(held_out)
    with together():
        batches = make_batches(recipe, corpora)
        validation = None if unseen is None else evaluation_batches(recipe, unseen, held_out_steps)
    info = record_of(recipe, batches)
    check_same("recipe and data", info)
    # A compiled program has fixed shapes, so a run whose batches change shape calls `fit` for each piece.
    pieces = batches.prefixes() if isinstance(batches, Phases) else [batches]
    every = report_interval([len(piece) // recipe.accumulation for piece in pieces], report_every)
    if recipe.average * every > recipe.steps:
        raise ValueError(
            f"`average` must be at most {recipe.steps // every}, the reports of the run. Received: {recipe.average}. "
            f"Use report_every={max(1, recipe.steps // recipe.average)} or less."
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
    # The folder is claimed only once the recipe is known to be valid, and by the first process for all of them.
    with contextlib.ExitStack() as held:
        earlier = []
        with together():
            if is_first_process():
                held.enter_context(locked(run))
                streams = "stream_start" in batches[0][0]  # whose memory has a row for each row of a batch
                earlier = claim_folder(run, info, recipe.accumulation, reschedule, fixed_rows=streams)
        earlier = json.loads(gathered(json.dumps(earlier))[0])
        entropy = unigram_loss(corpora, unseen)
        tokens = sum(text.num_tokens for text in corpora.values())
        say(
            f"{recipe.name}: {model.count_params():,} weights, {recipe.steps:,} updates of "
            f"{recipe.batch_size * recipe.length:,} tokens, {tokens:,} tokens of text; a report every {every:,} "
            f"updates; unigram loss {entropy:.3f} nats per token" + (f"; on {devices} devices" if devices > 1 else "")
        )
        checkpoints = Checkpoints(run / "checkpoints", keep=max(keep, recipe.average), recipe=info, earlier=earlier)
        for data, training in ((batches, True), (validation, False)):
            if data is not None and "stream_start" in data[0][0]:  # checkpoints include the memory
                model.start_memory(len(data[0][0]["stream_start"]), training)
        done = checkpoints.restore(model)
        if done:
            finished = ", the last step: the model is saved again" if done == len(batches) else ""
            say(f"continuing from step {done:,} of {len(batches):,}{finished}")
        stopped = None
        try:
            with request:
                for piece in pieces:
                    if len(piece) > done:
                        callbacks = [
                            # Not for encoder-decoders, whose targets include sentinels and copied tokens, which are
                            # easier to predict.
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
            say(f"stopped after step {stopped.step:,} of {len(batches):,}. {checkpoints.describe_newest()}")
            if stopped.reason != "time" or not unfinished or not stopped.step:
                raise
        if checkpoints.log is not None and (goodput := checkpoints.log.describe_goodput()):
            say(goodput)
        checkpoints.restore(model)  # at its end, `fit` may have replaced the weights by averages
        if recipe.optimizer.get("use_ema"):
            model.optimizer.finalize_variable_values(model.trainable_variables)
        if recipe.average and stopped is None:
            checkpoints.average(model, recipe.average)
        folder = output or run / "model"
        model.save_to_preset(folder)
        last = {}
        if is_first_process():
            log = read_log(run)
            last = log[-1] if log else {}
            if log:
                _draw(run)
            # With this file, `evaluate` can repeat the validation of the run, even if the folder is moved.
            published = {**info, "recipe": without_folders(info["recipe"]), "held_out_steps": held_out_steps}
            write_text(folder / "recipe.json", json.dumps(published, indent=2))
            steps = {"steps done": f"{stopped.step:,} of {len(batches):,}"} if stopped else {}
            _write_card(folder, model, corpora, unseen, {**steps, **info["recipe"]}, {**last, "unigram_loss": entropy})
            print(f"saved {folder}" + (f", the model so far. {CONTINUE}" if stopped else ""))
        gathered("")  # so that every process can read the model now
    return last


def say(text: str) -> None:
    """Prints a line, in the first of several processes."""
    if is_first_process():
        print(text, flush=True)


def _model_of(source: str, corpora: dict[str, Corpus], run: Path, request: StopRequest) -> str | Path:
    """Returns the folder of a model: `source` itself, or the result of the recipe with this name, which runs first."""
    if source not in all_recipes():
        return source
    if not (run / "model" / "kerasbert.json").exists():
        train(find_recipe(source), corpora, run, request=request, unfinished=False)
    return run / "model"


def report_interval(ends: list[int], wanted: int) -> int:
    """The largest interval, in updates, that is at most `wanted` and divides the end of each part of the run."""
    whole = math.gcd(*ends)
    found = next(number for number in range(min(wanted, whole), 0, -1) if whole % number == 0)
    if found * 20 < min(wanted, whole):
        raise ValueError(
            f"The steps of a run must have a divisor near `report_every`. Received: {ends[-1]} steps and "
            f"report_every={wanted}; the best is {found}. Use --set steps={max(1, round(ends[-1] / wanted)) * wanted}."
        )
    return found


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
    """Lists all recipes with the first lines of their docstrings, for --help."""
    lines = [f"- {name:32} {inspect.getdoc(run).splitlines()[0]}" for name, run in all_recipes().items()]
    return "\n".join(["Recipes:", *lines])


main = Command(
    pretrain,
    groups={
        "recipe": ("recipe", "set"),
        "data": ("corpus", "tokenizer", "held_out", "held_out_steps"),
        "run": (
            "run",
            "output",
            "minutes",
            "devices",
            "reschedule",
            "report_every",
            "keep",
            "tensorboard",
            "less_memory",
        ),
    },
    first=("recipe",),
    details=_listing,
)

if __name__ == "__main__":
    main()
