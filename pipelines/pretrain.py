"""Pretrains a model on a corpus with a recipe. Repeating the command continues an interrupted run.

python -m pipelines.pretrain bert.tiny --corpus corpora/text --run runs/tiny --set steps=1000
"""

from pathlib import Path

from kerasbert.backend.hosts import together
from kerasbert.training import RunStopped, StopRequest

from .command_line.command import Command
from .reading.tokenizers import load_tokenizer
from .recipes.recipe import find_recipe
from .runs.devices import use_devices
from .runs.training import CONTINUE, open_corpora, train


def pretrain(
    corpus: tuple[str, ...],
    run: Path,
    recipe: str = "bert.tiny",
    held_out: tuple[str, ...] = (),
    held_out_steps: int = 100,
    report_every: int = 1_000,
    keep: int = 3,
    output: Path | None = None,
    tokenizer: str | None = None,
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
        corpus: folders that `prepare-corpus` wrote. Recipes with languages need their names: de=corpora/de
            fr=corpora/fr, and de-fr=corpora/pairs for parallel text.
        run: folder for the recipe, the logs, the curves and the checkpoints. A run that it contains continues.
        recipe: name of a recipe, such as bert.base; the recipe.json of another run or of a model; or recipes.py:mine,
            the function `mine` of a Python file.
        held_out: corpora of held-out text, which are evaluated at every report.
        held_out_steps: maximum number of held-out batches per evaluation.
        report_every: updates between reports, each with a checkpoint. It is reduced to a divisor of the run's steps.
        keep: number of newest checkpoints to keep.
        output: folder for the model. Default: RUN/model.
        tokenizer: folder or hf://org/name of the tokenizer that the corpus must have.
        tensorboard: also write files for TensorBoard.
        less_memory: recompute activations instead of storing them, which makes updates about a third slower.
        minutes: stop after this many minutes, and save the model and a checkpoint. The same command continues the run.
        reschedule: let an unfinished run continue with different `steps`, `optimizer.schedule` and `batch_size`, such
            as a rate that decays from now on: --reschedule --set steps=6000 optimizer.schedule.decay_from=4000;
            or larger batches: --set batch_size=512, with the rows of a run that had this size from the start.
        devices: layout of several devices, of one host or of many: data (each has all weights), fsdp (weights and the
            state of the optimizer are divided), tensor or tensor=4 (layers are divided among the devices of a host, or
            4). Default: data, on as many devices of this process as divide the batch.
        set: overrides of the recipe, such as steps=1000 learning_rate=1e-3 model.num_layers=4 data.noise=WholeWords
            data.noise.rate=0.3. `steps`, `batch_size`, `length` and `learning_rate` are short forms for the whole run.
            With more `steps`, a finished run is extended.
    """
    request = StopRequest(minutes)
    use_devices(devices)
    with together():
        chosen = find_recipe(recipe).with_settings(list(set))
        texts = open_corpora(corpus, load_tokenizer(tokenizer) if tokenizer else None)
        unseen = open_corpora(held_out, next(iter(texts.values())).tokenizer()) if held_out else None
    options = dict(held_out_steps=held_out_steps, report_every=report_every, keep=keep, output=output)
    options |= dict(tensorboard=tensorboard, less_memory=less_memory, reschedule=reschedule)
    try:
        return train(chosen, texts, run, unseen, request, **options)
    except RunStopped:
        print(CONTINUE, flush=True)
        raise


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
)

if __name__ == "__main__":
    main()
