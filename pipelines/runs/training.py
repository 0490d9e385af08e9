"""A pretraining run: it is opened, restored, trained and finished."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from kerasbert.backend import seed_everything, share_batches
from kerasbert.backend.hosts import check_same, gathered, is_first_process, together
from kerasbert.backend.sharded_arrays import is_divided, orbax
from kerasbert.checkpoints.model_card import describe
from kerasbert.data import Batches, Corpus, Tokenizer
from kerasbert.data.text.files import write_text
from kerasbert.data.text.locks import locked
from kerasbert.objectives import Objective, Seq2SeqLM
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

from ..recipes import tree
from ..recipes.data import named
from ..recipes.phases import Phases
from ..recipes.recipe import Recipe, all_recipes, find_recipe
from .building import (
    BelowUnigrams,
    evaluation_batches,
    make_batches,
    make_model,
    make_optimizer,
    rematerialize,
    unigram_loss,
)
from .devices import described_device
from .model_card import Measured, without_folders, write_card
from .outputs import check_model_folder
from .run_folders import claim_folder, record_of

CONTINUE = "Run the same command again to continue."


@dataclasses.dataclass(frozen=True)
class Options:
    """How a recipe is run; see `pretrain`. `unfinished`: whether a run whose time is up saves the model so far."""

    held_out_steps: int = 100
    report_every: int = 1_000
    keep: int = 3
    output: Path | None = None
    tensorboard: bool = False
    less_memory: bool = False
    unfinished: bool = True
    reschedule: bool = False

    def __post_init__(self):
        if min(self.report_every, self.held_out_steps, self.keep) < 1:
            raise ValueError(
                "`report_every`, `held_out_steps` and `keep` must be at least 1. Received: "
                f"{self.report_every}, {self.held_out_steps}, {self.keep}."
            )


@dataclasses.dataclass
class Run:
    """A run that is open.

    Args:
        recipe, folder, options: what is run, where, and how.
        corpora, unseen: the text of training, and held-out text if there is any.
        batches, validation: their batches.
        pieces: the runs that are passed to `fit` one after the other. A compiled program has fixed shapes, so a run
            whose batches change shape is divided.
        every: number of updates between reports.
        record: what identifies the run.
        model: the compiled model.
        devices: number of devices that share a batch.
        entropy: loss of a unigram model, in nats per token.
        checkpoints: the checkpoints, once the run is restored.
    """

    recipe: Recipe
    folder: Path
    options: Options
    corpora: dict[str, Corpus]
    unseen: dict[str, Corpus] | None
    batches: Batches
    validation: Batches | None
    pieces: list[Batches]
    every: int
    record: dict
    model: Objective | None = None
    devices: int = 1
    entropy: float = 0.0
    checkpoints: Checkpoints | None = None

    @property
    def streams(self) -> bool:
        """Whether the model has a memory, with a row for each row of a batch."""
        return "stream_start" in self.batches[0][0]


def train(
    recipe: Recipe,
    corpus: Corpus | dict[str, Corpus],
    run: Path,
    held_out: Corpus | dict[str, Corpus] | None = None,
    request: StopRequest | None = None,
    **options: Any,
) -> dict:
    """Runs a recipe on open corpora (see `pretrain`), and returns the last row of the log.

    Several processes need a `keras.distribution` (see `kerasbert.training.parallel`), which must be set before. Only
    the first process writes files and returns the row. The others return {}.

    Args:
        request: a `StopRequest`, which stops the run. Default: one that Ctrl-C triggers.
        **options: fields of `Options`.

    Raises:
        RunStopped: a signal stopped the run, or its time was up and `unfinished` is False.
    """
    request = request or StopRequest()
    opened = open_run(recipe, corpus, run, held_out, request, Options(**options))
    # The folder is claimed only once the recipe is known to be valid, and by the first process for all of them.
    with contextlib.ExitStack() as held:
        done = restore(opened, held)
        stopped = fit(opened, done, request)
        return finish(opened, stopped)


def open_run(
    recipe: Recipe,
    corpus: Corpus | dict[str, Corpus],
    folder: Path,
    held_out: Corpus | dict[str, Corpus] | None,
    request: StopRequest,
    options: Options,
) -> Run:
    """Makes the batches and the compiled model of a run, and trains its teacher or its first stage if need be."""
    if options.output is not None:
        check_model_folder(options.output)
    recipe = dataclasses.replace(recipe, dtype=recipe.policy)  # a run continues with the dtype that it began with
    corpora, unseen = named(corpus), None if held_out is None else named(held_out)
    with together():
        batches = make_batches(recipe, corpora)
        validation = None if unseen is None else evaluation_batches(recipe, unseen, options.held_out_steps)
    record = record_of(recipe, batches)
    check_same("recipe and data", record)
    pieces = batches.prefixes() if isinstance(batches, Phases) else [batches]
    every = report_interval([len(piece) // recipe.accumulation for piece in pieces], options.report_every)
    if recipe.average * every > recipe.steps:
        raise ValueError(
            f"`average` must be at most {recipe.steps // every}, the reports of the run. Received: {recipe.average}. "
            f"Use report_every={max(1, recipe.steps // recipe.average)} or less."
        )
    run = Run(recipe, folder, options, corpora, unseen, batches, validation, pieces, every, record)
    folders = {
        role: _model_of(source, corpora, folder / role, request)
        for role in ("teacher", "init_from")
        if (source := getattr(recipe, role))
    }
    parts = [*(batches.parts if isinstance(batches, Phases) else [batches]), *([validation] if validation else [])]
    run.devices = share_batches(math.gcd(*(part.rows for part in parts)))
    seed_everything(recipe.seed)
    run.model = make_model(recipe, next(iter(corpora.values())), **folders)
    if is_divided(run.model.variables):
        orbax()  # or else the run would end at its first checkpoint
    if options.less_memory:
        rematerialize(run.model)
    run.model.compile(make_optimizer(recipe))
    return run


def restore(run: Run, held: contextlib.ExitStack) -> int:
    """Claims the folder of a run until `held` is closed, and loads the newest checkpoint.

    Returns: the number of steps that are done.
    """
    recipe, earlier = run.recipe, []
    with together():
        if is_first_process():
            held.enter_context(locked(run.folder))
            reschedule = run.options.reschedule
            earlier = claim_folder(run.folder, run.record, recipe.accumulation, reschedule, fixed_rows=run.streams)
    earlier = json.loads(gathered(json.dumps(earlier))[0])
    run.entropy = unigram_loss(run.corpora, run.unseen)
    say(_summary(run))
    keep = max(run.options.keep, recipe.average)
    run.checkpoints = Checkpoints(run.folder / "checkpoints", keep=keep, recipe=run.record, earlier=earlier)
    for data, training in ((run.batches, True), (run.validation, False)):
        if data is not None and "stream_start" in data[0][0]:  # checkpoints include the memory
            run.model.start_memory(len(data[0][0]["stream_start"]), training)
    done = run.checkpoints.restore(run.model)
    if done:
        finished = ", the last step: the model is saved again" if done == len(run.batches) else ""
        say(f"continuing from step {done:,} of {len(run.batches):,}{finished}")
    return done


def fit(run: Run, done: int, request: StopRequest) -> RunStopped | None:
    """Trains the model from step `done` on. Returns the reason if the run stopped, and will be finished nevertheless.

    Raises:
        RunStopped: a signal stopped the run, or its time was up and there is no model to save.
    """
    interval = run.every * run.recipe.accumulation
    try:
        with request:
            for piece in run.pieces:
                if len(piece) > done:
                    options = dict(validation_data=run.validation, callbacks=_callbacks(run, request))
                    run.model.fit(piece, steps_per_epoch=interval, **options)
    except RunStopped as stopped:
        say(f"stopped after step {stopped.step:,} of {len(run.batches):,}. {run.checkpoints.describe_newest()}")
        if stopped.reason != "time" or not run.options.unfinished or not stopped.step:
            raise
        return stopped
    return None


def finish(run: Run, stopped: RunStopped | None) -> dict:
    """Saves the model with its recipe and its card, and returns the last row of the log."""
    checkpoints, model, recipe = run.checkpoints, run.model, run.recipe
    if checkpoints.log is not None and (goodput := checkpoints.log.describe_goodput()):
        say(goodput)
    checkpoints.restore(model)  # at its end, `fit` may have replaced the weights by averages
    if recipe.optimizer.use_ema:
        model.optimizer.finalize_variable_values(model.trainable_variables)
    if recipe.average and stopped is None:
        checkpoints.average(model, recipe.average)
    folder, last = run.options.output or run.folder / "model", {}
    model.save_to_preset(folder)
    if is_first_process():
        log = read_log(run.folder)
        last = log[-1] if log else {}
        if log:
            _draw(run.folder)
        # With this file, `evaluate` can repeat the validation of the run, even if the folder is moved.
        sources = without_folders({role: run.record["recipe"][role] for role in ("teacher", "init_from")})
        published = {**run.record, "recipe": {**run.record["recipe"], **sources}}
        published["held_out_steps"] = run.options.held_out_steps
        write_text(folder / "recipe.json", json.dumps(published, indent=2))
        _write_card(run, folder, last, stopped)
        print(f"saved {folder}" + (f", the model so far. {CONTINUE}" if stopped else ""))
    gathered("")  # so that every process can read the model now
    return last


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


def say(text: str) -> None:
    """Prints a line, in the first of several processes."""
    if is_first_process():
        print(text, flush=True)


def _callbacks(run: Run, request: StopRequest) -> list[keras.callbacks.Callback]:
    # Not for encoder-decoders, whose targets include sentinels and copied tokens, which are easier to predict.
    below = [] if isinstance(run.model, Seq2SeqLM) else [BelowUnigrams(run.entropy)]
    tensorboard = [TensorBoardLog(run.folder / "tensorboard")] if run.options.tensorboard else []
    stops = [StopOnRequest(request, run.checkpoints), StopOnNaN(run.checkpoints)]
    return [*below, run.checkpoints, *stops, RunLog(run.folder), Progress(len(run.batches)), *tensorboard]


def _summary(run: Run) -> str:
    recipe, tokens = run.recipe, sum(text.num_tokens for text in run.corpora.values())
    sizes = " and ".join(dict.fromkeys(f"{phase.batch_size * phase.length:,}" for phase in recipe.phases))
    weights = run.model.count_params()
    text = f"{recipe.name}: {weights:,} weights, {recipe.steps:,} updates of {sizes} tokens, {tokens:,} "
    text += f"tokens of text; a report every {run.every:,} updates; unigram loss {run.entropy:.3f} nats per token"
    return text + (f"; on {run.devices} devices" if run.devices > 1 else "")


def _model_of(source: str, corpora: dict[str, Corpus], run: Path, request: StopRequest) -> str | Path:
    """Returns the folder of a model: `source` itself, or the result of the recipe with this name, which runs first."""
    if source not in all_recipes():
        return source
    if not (run / "model" / "kerasbert.json").exists():
        train(find_recipe(source), corpora, run, request=request, unfinished=False)
    return run / "model"


def _write_card(run: Run, folder: Path, last: dict, stopped: RunStopped | None) -> None:
    log, unseen = {**last, "unigram_loss": run.entropy}, run.unseen
    held_out = [name for name in log if unseen and (name.startswith("val_") or name == "below_unigram")]
    scores = {name.removeprefix("val_"): log.pop(name) for name in held_out}
    known = {text.fingerprint for text in run.corpora.values()}
    repeated = sum(text.num_documents for text in (unseen or {}).values() if text.fingerprint in known)
    measured = [Measured(", ".join(unseen), scores, repeated=repeated)] if unseen and scores else []
    steps = {"steps done": f"{stopped.step:,} of {len(run.batches):,}"} if stopped else {}
    write_card(
        folder,
        f"This model was pretrained with the objective {type(run.model).__name__}",
        data={
            "sources": {name: [text.summary.get("sources"), text.fingerprint] for name, text in run.corpora.items()},
            "tokens": sum(text.num_tokens for text in run.corpora.values()),
        },
        recipe={
            **steps,
            "steps": run.recipe.steps,
            **tree.flat(run.record["recipe"]),
            "device": described_device(run.devices),
        },
        scores={},
        description=describe(run.model),
        measured=measured,
        log=log,
        start=run.recipe.init_from,
    )


def _draw(run: Path) -> None:
    try:
        plot_curves(run)
    except ImportError as error:
        print(error)
